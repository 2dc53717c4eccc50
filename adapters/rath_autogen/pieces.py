"""One dumped message of AutoGen -> the chunks that it is, without AutoGen: used by ``decode`` and while a run is recorded.

What each type becomes (``autogen_agentchat.messages`` and ``autogen_core.models``, 0.7):

=============================================  ===========================================================================
Text-, Stop-, MultiModal-, StructuredMessage   ``message``: text, images as bytes, structured content as JSON text
HandoffMessage                                 ``message`` and a ``handoff`` beside it
ToolCallRequestEvent                           ``message`` of the assistant with ``tool_call`` parts
ToolCallExecutionEvent                         ``message`` of role ``tool`` with ``tool_call_response`` parts
ToolCallSummaryMessage                         ``message``: its text (calls and results stand before it)
ThoughtEvent                                   ``message`` with a ``reasoning`` part
CodeGenerationEvent, CodeExecutionEvent        ``message`` with ``server_tool_call`` / ``server_tool_call_response`` parts
SelectorEvent, SelectSpeakerEvent              ``route``
MemoryQueryEvent                               ``memory``
UserInputRequestedEvent, streaming chunks      ``note``, never part of a transcript
System-, User-, AssistantMessage, ...          ``message`` of that role; ``thought`` is a ``reasoning`` part
=============================================  ===========================================================================
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, cast

from rath_autogen.natives import (
    EVENT_TYPES,
    FRAMEWORK,
    LLM_TYPES,
    class_path,
    dump,
    from_own,
    is_structured,
    native,
    own_json,
    version,
)
from rath_bridge.errors import DecodeError
from rath_bridge.model.chunk import Native
from rath_bridge.model.kinds import Body, Handoff, Inference, Memory, Message, Note, Route, Usage
from rath_bridge.model.parts import BlobPart, GenericPart, Part, ReasoningPart, TextPart, ToolCallPart, ToolCallResponsePart

OBSERVER: Final = "message"
"""Observer of an ``inference`` that only a message's ``models_usage`` tells of: it knows tokens, not the request (law 7)."""


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Piece(NamedTuple):
    """A body and the native record that goes with it."""

    body: Body
    at: int | None = None
    """Microseconds since 1970: when AutoGen made the message."""
    native: Native | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """A message as it came: its JSON, and what only the object knows."""

    data: Mapping[str, Any]
    raw: bytes | None = None
    """The exact JSON of ``data``, where it is at hand."""
    cls: str | None = None
    """Where the class of a message that AutoGen does not bring is found again."""
    text: str | None = None
    """What the class itself says its text is; custom types only."""
    chat: bool = False
    """A custom type that agents say to each other."""

    @classmethod
    def of(cls, message: Any) -> Seen:
        """Read a message object, or take a dumped one as it is."""
        if isinstance(message, Mapping):
            return cls(cast("Mapping[str, Any]", message))
        raw = own_json(message)
        if raw is not None:
            return cls(from_own(raw), raw)
        path = class_path(message)
        custom = path is not None and not is_structured(type(message).__name__)
        chat = hasattr(message, "to_model_text")
        text = (message.to_model_text() if chat else message.to_text()) if custom else None
        return cls(dump(message), None, path, text, chat)


def taken(message: Any) -> bytes | Seen:
    """A message object as it is at this moment, to be read later (`read`): most are a few microseconds of AutoGen's own JSON."""
    return own_json(message) or Seen.of(message)


def read(held: bytes | Seen) -> Seen:
    """What `taken` took."""
    return Seen(from_own(held), held) if isinstance(held, bytes) else held


def pieces(
    seen: Seen, humans: Collection[str] = ("user",), *, place: str = "message", usage: bool = True, position: int | None = None
) -> list[Piece]:
    """Translate one message.

    Args:
        seen: The message.
        humans: Sources whose messages are a user's; everybody else is an assistant.
        place: What to call it in errors.
        usage: Make an ``inference`` of ``models_usage``; False where another observer has it.
        position: Place of the message in its run, where it is known.

    Raises:
        DecodeError: A field is missing or of another shape; the error names it.
    """
    try:
        first, *rest = _bodies(seen, humans, position)
        counted = _usage(seen.data) if usage else []
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        name = seen.data.get("type", "a message")
        raise DecodeError(place, f"not a {name} of AutoGen ({type(error).__name__}: {error})", _field(error)) from error
    at = created_at(seen.data)
    record = native(seen.data) if seen.raw is None else Native(FRAMEWORK, version(), "json", seen.raw)
    return [*(Piece(body, at) for body in counted), Piece(first, at, record), *(Piece(body, at) for body in rest)]


def _field(error: Exception) -> str:
    return str(error.args[0]) if isinstance(error, KeyError) and error.args else ""


def created_at(data: Mapping[str, Any]) -> int | None:
    """Microseconds since 1970 at which AutoGen made a message; None for messages of a model context, which have no time."""
    text = data.get("created_at")
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND


def _usage(data: Mapping[str, Any]) -> list[Body]:
    given = data.get("models_usage")
    if given is None:
        return []
    counted = Usage(input_tokens=_count(given["prompt_tokens"]), output_tokens=_count(given["completion_tokens"]))
    return [Inference(observer=OBSERVER, agent=data["source"], usage=counted, attributes={"message_id": data.get("id")})]


def _count(value: Any) -> int | None:
    """A number of tokens; a damaged state may hold anything."""
    return int(value) if isinstance(value, int | float) and abs(value) < 2**63 else None


def _bodies(seen: Seen, humans: Collection[str], position: int | None) -> list[Body]:
    data, kind = seen.data, str(seen.data.get("type", ""))
    if kind in LLM_TYPES:
        return [_llm(data, kind, position)]
    source = str(data["source"])
    facts = _facts(seen)
    role = "user" if source in humans else "assistant"

    def said(parts: Sequence[Part], as_: str = role) -> Message:
        return Message(role=as_, parts=tuple(parts), name=source, id=data.get("id"), position=position, attributes=facts)

    content = data.get("content")
    if kind == "HandoffMessage":
        context = data.get("context") or None
        passed = Handoff(from_agent=source, to_agent=data["target"], input={"context": context} if context else None)
        return [said([TextPart(data["content"])]), passed]
    if kind in ("TextMessage", "StopMessage", "ToolCallSummaryMessage"):
        return [said([TextPart(data["content"])])]
    if kind == "MultiModalMessage":
        return [said(_media(data["content"]))]
    if is_structured(kind):
        return [said([TextPart(_json(data["content"]), {"schema": kind[len("StructuredMessage[") : -1]})])]
    if kind == "ToolCallRequestEvent":
        return [said([_call(call) for call in data["content"]], "assistant")]
    if kind == "ToolCallExecutionEvent":
        return [said([_response(result) for result in data["content"]], "tool")]
    if kind == "ThoughtEvent":
        return [said([ReasoningPart(data["content"])], "assistant")]
    if kind == "CodeGenerationEvent":
        blocks = GenericPart("server_tool_call", {"name": "code_execution", "server_tool_call": {"blocks": data["code_blocks"]}})
        return [said([TextPart(data["content"]), blocks], "assistant")]
    if kind == "CodeExecutionEvent":
        return [said([GenericPart("server_tool_call_response", {"server_tool_call_response": data["result"]})], "tool")]
    if kind == "SelectSpeakerEvent":
        return [Route(router=source, chosen=tuple(data["content"]), attributes=facts)]
    if kind == "SelectorEvent":
        return [Route(router=source, reason=data["content"], attributes=facts)]
    if kind == "MemoryQueryEvent":
        items = tuple(_remembered(item) for item in data["content"])
        return [Memory(op="recall", items=items, attributes={**facts, "agent": source})]
    if kind in EVENT_TYPES:  # what is left: a request for input, a streaming chunk
        return [Note(text=data["content"], author=source, attributes=facts)]
    if seen.chat:
        return [said([TextPart(seen.text or "")])]
    return [Note(text=seen.text if seen.text is not None else _json(content), author=source, attributes=facts)]


def _facts(seen: Seen) -> dict[str, Any]:
    found: dict[str, Any] = {"type": seen.data.get("type"), "metadata": seen.data.get("metadata"), "class": seen.cls}
    return {key: value for key, value in found.items() if value}


def _llm(data: Mapping[str, Any], kind: str, position: int | None) -> Message:
    facts = {"type": kind}
    content = data["content"]
    if kind == "SystemMessage":
        return Message(role="system", parts=(TextPart(content),), position=position, attributes=facts)
    if kind == "UserMessage":
        return Message(role="user", name=data["source"], parts=tuple(_media(content)), position=position, attributes=facts)
    if kind == "AssistantMessage":
        thought = data.get("thought")
        parts: list[Part] = [ReasoningPart(thought)] if thought else []
        parts += [TextPart(content)] if isinstance(content, str) else [_call(call) for call in content]
        return Message(role="assistant", name=data["source"], parts=tuple(parts), position=position, attributes=facts)
    return Message(role="tool", parts=tuple(_response(result) for result in content), position=position, attributes=facts)


def _media(content: Any) -> list[Part]:
    items: list[Any] = [content] if isinstance(content, str) else list(content)
    return [TextPart(item) if isinstance(item, str) else _image(item["data"]) for item in items]


def _image(data: str) -> BlobPart:
    return BlobPart("image", b64decode(data), "image/png")


def _call(call: Mapping[str, Any]) -> ToolCallPart:
    return ToolCallPart(call["id"], call["name"], parsed(call["arguments"]))


def _response(result: Mapping[str, Any]) -> ToolCallResponsePart:
    extra: dict[str, Any] = {"name": result["name"]}
    if result.get("is_error") is not None:
        extra["is_error"] = result["is_error"]
    return ToolCallResponsePart(result["call_id"], result["content"], extra)


def _remembered(item: Mapping[str, Any]) -> dict[str, Any]:
    content: Any = item["content"]
    if isinstance(content, Mapping):
        held = cast("Mapping[str, Any]", content)
        if set(held) == {"$bytes"} or (set(held) == {"data"} and str(item["mime_type"]).startswith("image/")):
            content = b64decode(next(iter(held.values())))
    found: dict[str, Any] = {"content": content, "mime_type": item["mime_type"], "metadata": item.get("metadata")}
    return {key: value for key, value in found.items() if value is not None}


def parsed(arguments: str) -> Any:
    """Arguments as a value; the text itself where it is no JSON (the native record keeps the exact text)."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
