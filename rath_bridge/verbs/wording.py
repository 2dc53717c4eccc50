"""Two texts, word by word: what both have, what only one has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Final, Literal

Piece = tuple[Literal["same", "removed", "added"], str]

MOST: Final = 2_000_000
"""Words of one side times words of the other that are compared; beyond, what lies between the common ends stands as one piece."""
_WORDS: Final = re.compile(r"\w+|\s+|[^\w\s]")


def words(ours: str, theirs: str) -> list[Piece]:
    """Compare two texts.

    Returns:
        Pieces in order: ``removed`` stands in ours only, ``added`` in theirs; all but the added give ours back, all but the removed
        theirs.
    """
    left: list[str] = _WORDS.findall(ours)
    right: list[str] = _WORDS.findall(theirs)
    shortest = min(len(left), len(right))
    front = next((i for i in range(shortest) if left[i] != right[i]), shortest)
    end = next((i for i in range(shortest - front) if left[-1 - i] != right[-1 - i]), shortest - front)
    found: list[Piece] = [("same", "".join(left[:front]))]
    found += _between(left[front : len(left) - end], right[front : len(right) - end])
    found.append(("same", "".join(left[len(left) - end :])))
    return _joined(found)


def _between(left: Sequence[str], right: Sequence[str]) -> list[Piece]:
    if len(left) * len(right) > MOST:
        return [("removed", "".join(left)), ("added", "".join(right))]
    found: list[Piece] = []
    for tag, a, a_end, b, b_end in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag == "equal":
            found.append(("same", "".join(left[a:a_end])))
        else:
            found.append(("removed", "".join(left[a:a_end])))
            found.append(("added", "".join(right[b:b_end])))
    return found


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Leave out empty pieces, and take a lone space between two changes into them: words are read better than letters."""
    kept = [piece for piece in pieces if piece[1]]
    found: list[Piece] = []
    removed = added = ""
    for number, (tag, text) in enumerate(kept):
        inside = tag == "same" and text.isspace() and 0 < number < len(kept) - 1 and (removed or added)
        if tag == "removed" or inside:
            removed += text
        if tag == "added" or inside:
            added += text
        if tag == "same" and not inside:
            found += _changed(removed, added)
            removed = added = ""
            found.append(("same", text))
    return found + _changed(removed, added)


def _changed(removed: str, added: str) -> list[Piece]:
    found: list[Piece] = []
    if removed:
        found.append(("removed", removed))
    if added:
        found.append(("added", added))
    return found
