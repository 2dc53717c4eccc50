"""Responses-API items as neutral messages: their texts, reasoning, calls, answers and media as parts that any framework can read."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from typing import Any, cast

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
from rath_openai_agents.items import SERVER_SIDE, TEXTS, Item, kind_of, listed, parse, plain, role, table


def message(items: Sequence[Item], *, name: str | None = None, **fields: Any) -> Message:
    """Return the neutral message that one or several items of one speaker are."""
    parts = [part for item in items for part in parts_of(item)]
    native_id = next((item["id"] for item in items if isinstance(item.get("id"), str)), None)
    return Message(role=role(items[0]), parts=tuple(parts), name=name, id=native_id, **fields)


def parts_of(item: Item) -> list[Part]:
    """Return the neutral parts of an item."""
    kind = kind_of(item)
    if kind == "message" and "role" in item:
        content = item.get("content")
        if isinstance(content, str):
            return [TextPart(content)]
        if isinstance(content, list | tuple):
            return [_content_part(part) for part in cast("Sequence[Any]", content)]
        return []
    if kind in ("function_call", "custom_tool_call"):
        arguments = parse(item.get("arguments")) if kind == "function_call" else item.get("input")
        return [ToolCallPart(_text(item.get("call_id")), str(item.get("name", "")), arguments)]
    if kind in ("function_call_output", "custom_tool_call_output"):
        return [ToolCallResponsePart(_text(item.get("call_id")), item.get("output"))]
    if kind == "reasoning":
        texts = [*listed(item.get("summary")), *listed(item.get("content"))]
        return [ReasoningPart("\n".join(str(table(t).get("text", "")) for t in texts))]
    rest = {k: v for k, v in item.items() if k != "type"}
    if kind in SERVER_SIDE:
        named = str(rest.pop("name", None) or str(kind).removesuffix("_call"))
        return [
            GenericPart(
                "server_tool_call", {"id": rest.pop("id", None), "name": named, "server_tool_call": {"type": kind, **rest}}
            )
        ]
    return [GenericPart(f"openai.{kind}", rest)]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _content_part(part: Any) -> Part:
    if not isinstance(part, Mapping):
        return GenericPart("openai.content", {"value": plain(part)})
    one = dict(cast("Mapping[str, Any]", part))
    kind = str(one.pop("type", None))
    if kind in TEXTS and isinstance(one.get("text"), str):
        text = one.pop("text")
        return TextPart(text, {k: v for k, v in one.items() if v is not None and v != []})
    media = _media(kind, one)
    return media if media is not None else GenericPart(kind if kind == "refusal" else f"openai.{kind}", one)


def _media(kind: str, one: dict[str, Any]) -> Part | None:
    """Read ``input_image`` and ``input_file``; what is not taken goes to ``extra``."""
    source = {"input_image": ("image", "image_url"), "input_file": ("document", "file_url")}.get(kind)
    if source is None:
        return None
    modality, field = source
    rest = {k: v for k, v in one.items() if v is not None}
    if isinstance(rest.get("file_id"), str):
        return FilePart(modality, rest.pop("file_id"), None, rest)
    for name in (field, "file_data"):
        address = rest.get(name)
        if isinstance(address, str):
            del rest[name]
            return _address(modality, address, rest)
    return None


def _address(modality: str, address: str, rest: dict[str, Any]) -> Part:
    head, comma, data = address.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        try:
            return BlobPart(modality, b64decode(data, validate=True), head[5:-7] or None, rest)
        except (Base64Error, ValueError):
            pass
    return UriPart(modality, address, None, rest)
