"""Claude Code transcripts: JSON lines of ``user``, ``assistant`` and other records, in and home again.

Source: the ``.jsonl`` files of Claude Code; a message is an Anthropic one (text, thinking, tool_use, tool_result and other blocks). A
``tool_result`` stands in a user's record and becomes a tool's message. Records of a sidechain (a subagent at work) are a nested run, so
that they do not stand in the transcript. The tree that ``parentUuid`` makes is told by attributes; the line follows the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from rath_bridge.errors import UnsupportedError
from rath_bridge.interchange import shapes
from rath_bridge.interchange.natives import key, lines, record
from rath_bridge.interchange.recorded import home
from rath_bridge.model.chunk import Draft, draft
from rath_bridge.model.kinds import Inference, Message, Note, Run, Usage
from rath_bridge.model.parts import (
    BlobPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolCallResponsePart,
    UriPart,
    foreign_part,
)
from rath_bridge.model.report import LossReport
from rath_bridge.session import Session

name: Final = "claude_code"
VERSION: Final = "1"
_ORIGIN: Final = {"adapter": "rath_bridge.interchange", "framework": name, "version": VERSION}
_PLACE: Final = "Claude Code transcript"
_FACTS: Final = ("uuid", "parentUuid", "sessionId", "cwd", "gitBranch", "version", "isMeta", "requestId")


def recognises(obj: Any, /) -> bool:
    """Tell a transcript by a record with a message, a role and a uuid."""
    if not isinstance(obj, list) or not obj:
        return False
    if not all(isinstance(one, Mapping) for one in cast("list[Any]", obj)):
        return False
    entries = cast("list[Mapping[str, Any]]", obj)
    if not all(isinstance(one.get("type"), str) for one in entries):
        return False
    return any(
        one["type"] in ("user", "assistant") and isinstance(one.get("message"), Mapping) and "uuid" in one for one in entries
    )


def documents(obj: Any) -> Iterable[tuple[str | None, Any]]:
    """A transcript is one session, named by its ``sessionId``."""
    entries = cast("list[Any]", obj) if recognises(obj) else []
    names = [one.get("sessionId") for one in entries]
    return [(next((one for one in names if isinstance(one, str) and one), None), obj)]


def decode(obj: Any, /) -> Sequence[Draft]:
    """Translate a transcript's records.

    Raises:
        DecodeError: A record is not what it should be; the error names the path.
    """
    drafts: list[Draft] = []
    side: str | None = None
    seen: set[str] = set()
    for number, one in enumerate(shapes.rows(obj, _PLACE, "")):
        path = f"[{number}]"
        found = shapes.table(one, _PLACE, path)
        at = shapes.moment(found.get("timestamp"))
        if found.get("isSidechain") is True and side is None:
            side = "claude-side-" + key([found.get("sessionId"), found.get("uuid"), number])[:16]
            begin = Run(phase="begin", name="sidechain", type="agent", parent=str(found.get("sessionId") or "claude-code"))
            drafts.append(draft(begin, run=side, origin=_ORIGIN, at=at))
        run = side if found.get("isSidechain") is True else None
        native = record(name, VERSION, "record", one, _PLACE)
        bodies = _bodies(found, path, seen)
        for place, body in enumerate(bodies):
            drafts.append(draft(body, run=run, origin=_ORIGIN, at=at, native=native if place == len(bodies) - 1 else None))
    return drafts


def _bodies(found: Mapping[str, Any], path: str, seen: set[str]) -> list[Any]:
    """What a record says: model call, messages; the last of them carries the record."""
    kind = shapes.text(found.get("type"), _PLACE, f"{path}.type")
    facts = {field: found[field] for field in _FACTS if found.get(field) is not None}
    if kind not in ("user", "assistant") or not isinstance(found.get("message"), Mapping):
        return [Note(text=f"Claude Code {kind}", attributes={k: v for k, v in found.items() if k != "type"})]
    message = shapes.table(found["message"], _PLACE, f"{path}.message")
    content = message.get("content")
    parts = [TextPart(content)] if isinstance(content, str) else _parts(content, f"{path}.message.content")
    identity = message.get("id")
    bodies: list[Any] = []
    usage = message.get("usage")
    if kind == "assistant" and isinstance(usage, Mapping) and (not isinstance(identity, str) or identity not in seen):
        seen.add(str(identity))  # one model call may be written as several records, each with the whole usage
        bodies.append(_inference(message, cast("Mapping[str, Any]", usage)))
    answers = tuple(part for part in parts if isinstance(part, ToolCallResponsePart))
    if answers:
        bodies.append(Message(role="tool", parts=answers, attributes=facts))
    rest = tuple(part for part in parts if not isinstance(part, ToolCallResponsePart))
    if rest or not answers:
        bodies.append(Message(role=kind, parts=rest, id=identity if isinstance(identity, str) else None, attributes=facts))
    return bodies


def _inference(message: Mapping[str, Any], usage: Mapping[str, Any]) -> Inference:
    cached, made = shapes.number(usage.get("cache_read_input_tokens")), shapes.number(usage.get("cache_creation_input_tokens"))
    fresh = shapes.number(usage.get("input_tokens"))
    counts = Usage(
        input_tokens=None if fresh is None else fresh + (cached or 0) + (made or 0),
        output_tokens=shapes.number(usage.get("output_tokens")), cache_read_input_tokens=cached, cache_creation_input_tokens=made,
    )  # fmt: skip
    model, identity = message.get("model"), message.get("id")
    return Inference(
        provider="anthropic", model=model if isinstance(model, str) else None, observer="callback", usage=counts,
        response_id=identity if isinstance(identity, str) else None,
    )  # fmt: skip


def _parts(content: Any, path: str) -> list[Part]:
    return [_part(one, f"{path}[{number}]") for number, one in enumerate(shapes.rows(content, _PLACE, path))]


def _part(one: Any, path: str) -> Part:
    found = shapes.table(one, _PLACE, path)
    kind = shapes.text(found.get("type"), _PLACE, f"{path}.type")
    if kind == "text":
        return TextPart(shapes.text(found.get("text"), _PLACE, f"{path}.text"))
    if kind == "thinking":
        signed = {"signature": found["signature"]} if found.get("signature") is not None else {}
        return ReasoningPart(shapes.text(found.get("thinking"), _PLACE, f"{path}.thinking"), signed)
    if kind == "tool_use":
        call_id = shapes.text_or_none(found.get("id"), _PLACE, f"{path}.id")
        return ToolCallPart(call_id, shapes.text(found.get("name"), _PLACE, f"{path}.name"), found.get("input"))
    if kind == "tool_result":
        call_id = shapes.text_or_none(found.get("tool_use_id"), _PLACE, f"{path}.tool_use_id")
        failed = {"is_error": True} if found.get("is_error") is True else {}
        return ToolCallResponsePart(call_id, found.get("content"), failed)
    source = found.get("source")
    if kind in ("image", "document") and isinstance(source, Mapping):
        media = _media(kind, cast("Mapping[str, Any]", source))
        if media is not None:
            return media
    return foreign_part(found)


def _media(kind: str, source: Mapping[str, Any]) -> Part | None:
    media_type = source.get("media_type")
    known = media_type if isinstance(media_type, str) else None
    if isinstance(source.get("url"), str):
        return UriPart(kind, source["url"], known)
    if source.get("type") == "base64" and isinstance(source.get("data"), str):
        data = shapes.decoded(source["data"])
        return None if data is None else BlobPart(kind, data, known)
    return None


def encode(session: Session, /) -> tuple[Any, LossReport]:
    """Give a transcript's records back, as far as the line goes.

    Raises:
        UnsupportedError: The session does not come from Claude Code: nobody else writes its transcripts.
    """
    found = home(session, name)
    if found is None:
        raise UnsupportedError("claude_code takes back its own transcripts only: export this session as openai_messages or atif")
    return found


def dumps(native: Any, /) -> bytes:
    """One record a line."""
    return lines(native)
