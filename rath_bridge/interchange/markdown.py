"""A session as Markdown, for people: one heading a message, calls and answers as fenced blocks. Out only."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from rath_bridge.errors import UnsupportedError
from rath_bridge.interchange.natives import key, plain
from rath_bridge.model.chunk import Draft, format_time
from rath_bridge.model.parts import BlobPart, FilePart, Part, ReasoningPart, TextPart, ToolCallPart, ToolCallResponsePart, UriPart
from rath_bridge.model.report import Loss, LossReport, ManifestEntry
from rath_bridge.session import Session
from rath_bridge.verbs.inert import inert
from rath_bridge.verbs.transcript import calls, transcript

name: Final = "markdown"
_FENCES: Final = re.compile("`{3,}")


def recognises(_: Any, /) -> bool:
    """Never: what people wrote for people is not read back."""
    return False


def decode(_: Any, /) -> Sequence[Draft]:
    """Not offered.

    Raises:
        UnsupportedError: Always.
    """
    raise UnsupportedError("markdown is written and not read: export the session as atif or openai_messages to read it again")


def encode(session: Session, /) -> tuple[str, LossReport]:
    """Write the transcript; what Markdown only hints at (media, keys beside a part) is named in the report."""
    chunks = list(session.chunks())
    status = {(call.asked, call.call_id): call.status for call in calls(chunks) if call.asked is not None}
    losses: list[Loss] = []
    entries: list[ManifestEntry] = []
    blocks = [f"# {_line(session.name)}", f"{len(chunks)} chunks; head `{session.head}`"]
    for one in transcript(chunks):
        speaker = f" ({_line(one.name)})" if one.name is not None else ""
        said = [f"## {_line(one.role)}{speaker}", f"*{format_time(one.chunk.at)[:19]}Z*"]
        for number, part in enumerate(one.parts):
            said.append(_block(part))
            lost = _lost(part)
            if lost is not None:
                losses.append(Loss(one.id, f"parts[{number}]", lost))
            state = status.get((one.id, part.id)) if isinstance(part, ToolCallPart) and part.id is not None else None
            if state in ("pending", "no_response"):
                said.append("*(no response)*")
                losses.append(Loss(one.id, f"parts[{number}].id", "the call is pending; it is written as one without a response"))
        entries.append(ManifestEntry(len(entries), one.id, key(said)))
        blocks += said
    return "\n\n".join(blocks) + "\n", LossReport(tuple(losses), tuple(entries))


def dumps(native: Any, /) -> bytes:
    """UTF-8; halves of surrogate pairs as escapes."""
    return str(native).encode("utf-8", "backslashreplace")


def _block(part: Part) -> str:
    if isinstance(part, TextPart):
        return part.content
    if isinstance(part, ReasoningPart):
        return "\n".join(f"> {row}" for row in part.content.split("\n"))
    if isinstance(part, ToolCallPart):
        return f"**calls** `{_line(part.name)}`{_id(part.id)}\n\n{_fenced(part.arguments)}"
    if isinstance(part, ToolCallResponsePart):
        return f"**answers**{_id(part.id)}\n\n{_fenced(part.response)}"
    if isinstance(part, UriPart):
        return f"{'!' if part.modality == 'image' else ''}[{_line(part.modality)}](<{_line(part.uri)}>)"
    if isinstance(part, BlobPart):
        return f"*({_line(part.modality)}, {len(part.content)} bytes, {_line(part.mime_type or 'unknown type')})*"
    if isinstance(part, FilePart):
        return f"*({_line(part.modality)}, file {_line(part.file_id)})*"
    return f"**{_line(part.type)}**\n\n{_fenced(dict(part.extra))}"


def _lost(part: Part) -> str | None:
    if isinstance(part, BlobPart):
        return f"the {part.modality} itself: only its size is told"
    if isinstance(part, TextPart | ReasoningPart | ToolCallPart | ToolCallResponsePart | FilePart | UriPart) and part.extra:
        return f"what stands beside the {part.type}: {', '.join(sorted(part.extra))}"
    return None


def _fenced(value: Any) -> str:
    """A block that nothing in the text can end."""
    text = value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False, indent=2)
    longest = max((len(found) for found in _FENCES.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{'' if isinstance(value, str) else 'json'}\n{text}\n{fence}"


def _id(call_id: str | None) -> str:
    return "" if call_id is None else f" ({_line(call_id)})"


def _line(text: str) -> str:
    """A foreign text within a line of ours."""
    return inert(" ".join(text.replace("`", "'").split()))
