"""One small session for each row of the mapping table, and what to look for on the other side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from PIL import Image

import rath_bridge as rb
from rath_bridge.interchange import openai_messages
from rath_bridge.model.kinds import Message
from rath_bridge.model.parts import (
    BlobPart,
    FilePart,
    GenericPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolCallResponsePart,
    UriPart,
)
from rath_bridge.model.report import LossReport
from rath_bridge.plugins import adapter
from tests.handover.stacks import handed

Pick = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True)
class Probe:
    """What goes in, and how it is found again."""

    said: tuple[Message, ...]
    pick: Pick
    """Messages (as recorded, or as they are read back) -> the fact that the row is about; empty where it is gone."""


def picture() -> bytes:
    out = BytesIO()
    Image.new("RGB", (3, 2), "red").save(out, "PNG")
    return out.getvalue()


def user(*parts: Part | str, **fields: Any) -> Message:
    return Message(role="user", parts=tuple(TextPart(p) if isinstance(p, str) else p for p in parts), **fields)


def assistant(*parts: Part | str, **fields: Any) -> Message:
    return Message(role="assistant", parts=tuple(TextPart(p) if isinstance(p, str) else p for p in parts), **fields)


def answer(call_id: str | None, value: Any = "paid", **extra: Any) -> Message:
    return Message(role="tool", parts=(ToolCallResponsePart(call_id, value, extra),))


def parts_of(kind: type[Any]) -> Pick:
    return lambda messages: [part for one in messages for part in one.parts if isinstance(part, kind)]


def calls(field: str) -> Pick:
    return lambda messages: [getattr(part, field) for part in parts_of(ToolCallPart)(messages)]


def answers(messages: Sequence[Any]) -> Any:
    return [(part.id, part.response, bool(part.extra.get("is_error") or part.extra.get("status") == "error"))
            for part in parts_of(ToolCallResponsePart)(messages)]  # fmt: skip


def pairs(messages: Sequence[Any]) -> Any:
    return calls("id")(messages), [part.id for part in parts_of(ToolCallResponsePart)(messages)]


def media(messages: Sequence[Any]) -> Any:
    found = [part for one in messages for part in one.parts if isinstance(part, BlobPart | FilePart | UriPart)]
    return [
        (p.type, p.modality, getattr(p, "content", None) or getattr(p, "uri", None) or getattr(p, "file_id", None)) for p in found
    ]


def role_of(text: str) -> Pick:
    return lambda messages: [one.role for one in messages if text in one.text]


def names(messages: Sequence[Any]) -> Any:
    return [one.name for one in messages if one.name and one.role != "tool"]


def texts(messages: Sequence[Any]) -> Any:
    return [one.text for one in messages if one.text]


def told(text: str) -> Pick:
    return lambda messages: [part for one in messages for part in one.parts if text in str(getattr(part, "content", ""))]


ADDRESS = "https://example.com/x.png"
PAY = ToolCallPart("c1", "pay", {"n": 3})
LONG = "c" * 90
PNG = picture()

PROBES: dict[str, Probe] = {
    "role: user, assistant": Probe((user("hi"), assistant("ho")), lambda m: [(one.role, one.text) for one in m]),
    "role: system": Probe((Message(role="system", parts=(TextPart("be brief"),)), user("hi")), role_of("be brief")),
    "role: developer": Probe((Message(role="developer", parts=(TextPart("be brief"),)), user("hi")), role_of("be brief")),
    "role: any other": Probe((Message(role="critic", parts=(TextPart("too long"),)), user("hi")), role_of("too long")),
    "a speaker's name": Probe((user("hi", name="ann"),), names),
    "a speaker's name with other characters": Probe((user("hi", name="Ann Lee"),), names),
    "call and result": Probe((user("go"), assistant(PAY), answer("c1")), lambda m: (calls("arguments")(m), answers(m))),
    "text beside a call": Probe((user("go"), assistant("paying", PAY), answer("c1")), told("paying")),
    "call without an id": Probe((user("go"), assistant(ToolCallPart(None, "pay", {"n": 3}))), calls("id")),
    "call id that is too long": Probe((user("go"), assistant(ToolCallPart(LONG, "pay", {})), answer(LONG)), pairs),
    "call id used twice": Probe((user("go"), assistant(PAY), answer("c1"), assistant(PAY), answer("c1")), pairs),
    "tool name with other characters": Probe((user("go"), assistant(ToolCallPart("c1", "bank.pay", {})), answer("c1")), calls("name")),
    "arguments that are no object": Probe((user("go"), assistant(ToolCallPart("c1", "pay", "{broken")), answer("c1")), calls("arguments")),
    "result that is no text": Probe((user("go"), assistant(PAY), answer("c1", {"at": 1})), answers),
    "result that is an error": Probe((user("go"), assistant(PAY), answer("c1", "no money", is_error=True)), answers),
    "call that is pending": Probe((user("go"), assistant(PAY), user("well?")), answers),
    "answer that nobody asked for": Probe((user("go"), answer("c9")), answers),
    "image, as bytes": Probe((user("look", BlobPart("image", PNG, "image/png")),), media),
    "image, by address": Probe((user("look", UriPart("image", ADDRESS)),), lambda m: media(m) or told(ADDRESS)(m)),
    "image, by file id": Probe((user("look", FilePart("image", "file-1")),), media),
    "image that an assistant made": Probe((user("draw"), assistant("here", BlobPart("image", PNG, "image/png"))), media),
    "audio": Probe((user("hear", BlobPart("audio", b"RIFF....WAVE", "audio/wav")),), media),
    "document": Probe((user("read", BlobPart("document", b"%PDF-1.7", "application/pdf", {"filename": "a.pdf"})),), media),
    "reasoning": Probe((user("go"), assistant(ReasoningPart("hm"), "ok")), lambda m: [p.content for p in parts_of(ReasoningPart)(m)]),
    "reasoning with a signature": Probe((user("go"), assistant(ReasoningPart("hm", {"signature": "s"}), "ok")), parts_of(ReasoningPart)),
    "structured output": Probe((user("go"), assistant(TextPart('{"total": 3}'))), texts),
    "structured output: its schema": Probe(
        (user("go"), assistant(TextPart('{"total": 3}', {"schema": "Bill"}))), lambda m: [p.extra for p in parts_of(TextPart)(m) if p.extra]
    ),
    "refusal": Probe((user("go"), assistant(GenericPart("refusal", {"content": "no"}))), parts_of(GenericPart)),
    "provider's own tool call": Probe(
        (user("go"), assistant(GenericPart("server_tool_call", {"name": "web"}), "ok")), parts_of(GenericPart)
    ),
}  # fmt: skip
"""By the row of `rath_bridge.handover.table.MAPPING` that it is about."""


def handed_over(probe: Probe, target: str) -> tuple[Any, Any, LossReport, list[Any]]:
    """Hand a probe over and read it back: what stood there, what arrived, the report, the native list."""
    session = rb.open_store("memory:").create("probe").append(*(rb.draft(one) for one in probe.said))
    native, report = handed(session, target)
    module: Any = openai_messages if target == "openai_messages" else adapter(target)
    back = rb.open_store("memory:").create("back").append(*module.decode(native))
    return probe.pick(session.messages()), probe.pick(back.messages()), report, list(native)


def fate(before: Any, after: Any) -> str:
    """What became of it."""
    if after == before:
        return "kept"
    return "changed" if after and (not isinstance(after, tuple) or any(after)) else "left out"
