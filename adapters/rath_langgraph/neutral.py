"""One LangChain message -> its neutral body.

Every message chunk carries the message's own msgpack bytes (`native`), so the way home is exact; the parts are for everybody else.
Source: ``langchain_core.messages``, v0 and v1 content blocks.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import metadata
from typing import Any, Final, cast

from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, HumanMessage, SystemMessage, ToolMessage

from rath_bridge.model.chunk import Draft, Native, draft
from rath_bridge.model.digests import Digest
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
    foreign_part,
)
from rath_langgraph.items import long_texts

_MODALITIES: Final = {"image": "image", "audio": "audio", "video": "video", "file": "document"}
_ROLES: Final = {HumanMessage: "user", AIMessage: "assistant", SystemMessage: "system", ToolMessage: "tool"}
_TOOL_BLOCKS: Final = frozenset(
    {"tool_call", "tool_use", "invalid_tool_call", "tool_call_chunk", "input_json_delta", "function_call"}
)


@lru_cache(maxsize=1)
def version() -> str:
    """The installed version of LangGraph."""
    return metadata.version("langgraph")


@lru_cache(maxsize=1)
def origin() -> Mapping[str, str]:
    """What our chunks say about who recorded them."""
    return {"adapter": "rath_langgraph", "framework": "langgraph", "version": version()}


def role_of(message: BaseMessage) -> str:
    """Return the neutral role of a message."""
    if isinstance(message, ChatMessage):
        return message.role
    if isinstance(message, SystemMessage) and message.additional_kwargs.get("__openai_role__") == "developer":
        return "developer"
    return next((role for kind, role in _ROLES.items() if isinstance(message, kind)), message.type)


def message_body(message: BaseMessage) -> Message:
    """Translate one message into its neutral body."""
    reason = message.response_metadata.get("finish_reason") or message.response_metadata.get("stop_reason")
    return Message(
        role=role_of(message),
        parts=tuple(_parts(message)),
        name=message.name if type(message.name) is str and not isinstance(message, ToolMessage) else None,
        id=message.id,
        finish_reason=reason if type(reason) is str else None,
    )


def message_draft(message: BaseMessage, data: bytes, **fields: Any) -> Draft:
    """Build the chunk of one message.

    Args:
        message: What the framework holds.
        data: Its bytes as an item of a msgpack list.
        **fields: Of `rath_bridge.model.chunk.draft`; ``body`` replaces the body made here.
    """
    body: Message = fields.pop("body", None) or message_body(message)
    objects: dict[Digest, bytes] = {}
    long_texts(message, objects)
    return draft(body, native=Native("langgraph", version(), "msgpack", data), objects=objects, origin=origin(), **fields)


def _parts(message: BaseMessage) -> Iterator[Part]:
    if isinstance(message, ToolMessage):
        extra: dict[str, Any] = {}
        if message.status != "success":
            extra["status"] = message.status
        if message.artifact is not None:
            extra["artifact"] = plain(message.artifact)
        if message.name:
            extra["name"] = message.name
        yield ToolCallResponsePart(message.tool_call_id, plain(message.content), extra)
        return
    reasoning = message.additional_kwargs.get("reasoning_content")
    if isinstance(reasoning, str) and reasoning:
        yield ReasoningPart(reasoning)
    blocks: list[str | dict[Any, Any]] = [message.content] if isinstance(message.content, str) else message.content
    for block in blocks:
        if isinstance(block, str):
            if block:
                yield TextPart(block)
        else:
            yield from _block(cast("dict[str, Any]", block))
    if isinstance(message, AIMessage):
        for call in message.tool_calls:
            yield ToolCallPart(call["id"], call["name"], plain(call["args"]))
        for bad in message.invalid_tool_calls:
            error = {"error": bad["error"]} if bad.get("error") else {}
            yield ToolCallPart(bad.get("id"), bad.get("name") or "", bad.get("args"), error)


def _block(block: Mapping[str, Any]) -> Iterator[Part]:
    kind = block.get("type")
    rest = {key: plain(value) for key, value in block.items() if key != "type"}
    if kind in _TOOL_BLOCKS:  # the message's tool_calls say the same
        return
    if kind == "text" and isinstance(block.get("text"), str):
        yield TextPart(rest.pop("text"), rest)
    elif kind == "reasoning" and isinstance(block.get("reasoning"), str):
        yield ReasoningPart(rest.pop("reasoning"), rest)
    elif kind == "thinking" and isinstance(block.get("thinking"), str):
        yield ReasoningPart(rest.pop("thinking"), rest)
    elif kind == "image_url":
        address = block.get("image_url")
        url = address.get("url") if isinstance(address, Mapping) else address  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        yield _media("image", {"url": url})
    elif kind in _MODALITIES:
        yield _media(_MODALITIES[kind], block)
    else:
        yield foreign_part({**rest, "type": str(kind)})


def _media(modality: str, block: Mapping[str, Any]) -> Part:
    mime = block.get("mime_type")
    data, url, file_id = block.get("base64"), block.get("url"), block.get("file_id") or block.get("id")
    if block.get("source_type") == "base64":
        data = block.get("data")
    if isinstance(url, str) and url.startswith("data:") and ";base64," in url:
        head, _, data = url.partition(";base64,")
        mime, url = head[5:] or mime, None
    if isinstance(data, str):
        try:
            return BlobPart(modality, b64decode(data, validate=True), mime)
        except ValueError:
            return GenericPart(modality, {"data": data})
    if isinstance(url, str):
        return UriPart(modality, url, mime)
    if isinstance(file_id, str):
        return FilePart(modality, file_id, mime)
    return GenericPart(modality, {key: plain(value) for key, value in block.items() if key != "type"})


def plain(value: Any) -> Any:
    """Return a value that a body can hold; what it cannot is shown by its repr (the native record has it whole)."""
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind in (str, int, float, bool, bytes, type(None)):
        return value
    if isinstance(value, Mapping):
        return {key if type(key) is str else repr(key): plain(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in cast("Sequence[Any]", value)]
    return repr(value)[:2000]
