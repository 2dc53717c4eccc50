"""Text from agents is inert: what could steer a terminal, or hide from a reader, is shown as a visible escape.

Escaped are control characters (C0, DEL, C1), format characters (bidi controls, zero width spaces, tag characters: category
``Cf``), line and paragraph separators, lone surrogates and unassigned code points. The two joiners stay: scripts and emoji need them.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_JOINERS: Final = "\u200c\u200d"
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cn", "Cs", "Zl", "Zp"})
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x00": "\\0"}
_VARIATIONS: Final = range(0xE0100, 0xE01F0)
"""Variation selectors 17 to 256: invisible, and used to smuggle text."""
_SPACES: Final = re.compile(r"[ \t\r\n\v\f]+")


def inert(text: str, *, keep: str = "") -> str:
    r"""Return ``text`` with everything that is not plainly visible written as ``\x1b``, ``\u202e`` or ``\U000e0041``.

    Args:
        text: Anything: a name, a message, an error.
        keep: Characters to leave alone (``"\n"`` where lines are wanted).
    """
    if text.isprintable():
        if text.isascii() or not any(ord(char) in _VARIATIONS for char in text):
            return text
    elif not keep and text.isascii():
        return "".join(char if " " <= char <= "~" else _escape(char) for char in text)
    return "".join(char if char in keep or not _hidden(char) else _escape(char) for char in text)


def one_line(text: str, limit: int = 300) -> str:
    """Return the first words of ``text`` on one inert line, cut with an ellipsis after ``limit`` characters."""
    words = _SPACES.sub(" ", text[: limit * 2]).strip()
    cut = len(words) > limit or len(text) > limit * 2
    return inert(words[:limit]) + ("…" if cut else "")


def _hidden(char: str) -> bool:
    return char not in _JOINERS and (unicodedata.category(char) in _HIDDEN or ord(char) in _VARIATIONS)


def _escape(char: str) -> str:
    code = ord(char)
    if char in _SHORT:
        return _SHORT[char]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
