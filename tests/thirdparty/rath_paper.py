"""A third party's adapter in one file, as small as it can be: transcripts on paper.

The "framework" is a `Sheet`: lines of ``who: what``, which hold no tool calls, no images and no line breaks. It enters by the
entry point ``rath_bridge.adapters`` and imports nothing of rath_bridge's own adapters.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from rath_bridge.errors import DecodeError, UnsupportedError
from rath_bridge.model.chunk import Draft, Native, draft
from rath_bridge.model.digests import digest
from rath_bridge.model.kinds import Message
from rath_bridge.model.parts import TextPart
from rath_bridge.model.report import Loss, LossReport, ManifestEntry
from rath_bridge.session import Session

name: Final = "paper"
extra: Final = "paper"
SUPPORTED: Final = {"rath-paper": ">=0.1"}

ROLES: Final = {"me": "user", "you": "assistant", "rules": "system"}


@dataclass
class Sheet:
    """The framework's own value."""

    lines: list[str]


def recognises(obj: Any) -> bool:
    """Only sheets."""
    return isinstance(obj, Sheet)


def decode(obj: Any) -> Sequence[Draft]:
    """One message for each line; the line itself goes home as native bytes."""
    return [_line(text, f"lines[{number}]") for number, text in enumerate(obj.lines)]


def _line(text: str, path: str) -> Draft:
    who, colon, what = text.partition(": ")
    if not colon:
        raise DecodeError("sheet", "a line is 'who: what'", path)
    body = Message(role=ROLES.get(who, who), parts=(TextPart(what),), name=None if who in ROLES else who)
    return draft(body, native=Native("paper", "0.1", "json", json.dumps(text).encode()))


def encode(session: Session, as_: str = "messages") -> tuple[Sheet, LossReport]:
    """A sheet; what paper cannot hold is named."""
    if as_ != "messages":
        raise UnsupportedError(f"paper has no form {as_!r}; it has 'messages'")
    words = {role: who for who, role in ROLES.items()}
    lines: list[str] = []
    losses: list[Loss] = []
    manifest: list[ManifestEntry] = []
    for message in session.messages():
        native = message.chunk.native
        if native is not None and native.framework == "paper":
            line = json.loads(native.data)
        else:
            for index, part in enumerate(message.parts):
                if not isinstance(part, TextPart):
                    losses.append(Loss(message.id, f"parts[{index}]", f"a {part.type} does not fit on paper; left out"))
            if message.name:
                losses.append(Loss(message.id, "name", "paper knows the role only"))
            if not message.text and message.parts:
                losses.append(Loss(message.id, "parts", "nothing to write down; the line is left out"))
                continue
            line = f"{words.get(message.role, message.role)}: {message.text}"
        manifest.append(ManifestEntry(len(lines), message.id, digest(line.encode("utf-8", "surrogatepass"))))
        lines.append(line)
    return Sheet(lines), LossReport(tuple(losses), tuple(manifest))
