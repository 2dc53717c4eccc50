"""Chat Completions messages, as generation spans hold them, as Responses-API items.

The SDK's chat models convert their input items before the span sees them, so these items are put together again: readable, not exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from rath_openai_agents.items import Item, table

_CONTENT = {"text": "input_text", "image_url": "input_image", "file": "input_file"}


def items_of(messages: Sequence[Any]) -> tuple[str | None, list[Item]]:
    """Return the leading system text (the SDK puts an agent's instructions there) and the items of the rest."""
    found = [cast("Mapping[str, Any]", one) for one in messages if isinstance(one, Mapping)]
    system = None
    if found and found[0].get("role") == "system":
        content = found[0].get("content")
        system = content if isinstance(content, str) else None
        found = found[1:] if system is not None else found
    return system, [item for one in found for item in _items(one)]


def output_of(messages: Sequence[Any]) -> list[Item]:
    """Return the items of a generation span's output: chat messages, or (streamed) a whole response."""
    items: list[Item] = []
    for one in messages:
        if not isinstance(one, Mapping):
            continue
        entry = cast("Mapping[str, Any]", one)
        if isinstance(entry.get("output"), list):
            items += [_without_none(item) for item in entry["output"] if isinstance(item, Mapping)]
        else:
            items += _items(entry)
    return items


def _without_none(item: Any) -> Item:
    return {name: value for name, value in item.items() if value is not None}


def _items(one: Mapping[str, Any]) -> list[Item]:
    role = one.get("role")
    content = one.get("content")
    if role == "tool":
        return [{"type": "function_call_output", "call_id": one.get("tool_call_id"), "output": _tool_output(content)}]
    items: list[Item] = []
    if role == "assistant":
        if content:
            items.append(
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": _plain_text(content)}]}
            )
        if one.get("refusal"):
            items.append({"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": one["refusal"]}]})
        for call in one.get("tool_calls") or ():
            function = table(table(call).get("function"))
            items.append(
                {
                    "type": "function_call", "call_id": table(call).get("id"), "name": function.get("name"),
                    "arguments": function.get("arguments"),
                }
            )  # fmt: skip
        return items
    return [{"role": str(role), "content": content if isinstance(content, str) else [_part(part) for part in content or ()]}]


def _part(part: Any) -> Any:
    kind = _CONTENT.get(str(table(part).get("type")))
    if kind is None:
        return part
    found = table(part)
    if kind == "input_text":
        return {"type": kind, "text": found.get("text")}
    value = found.get(str(found["type"]))
    if kind == "input_image" and isinstance(value, Mapping):
        image = cast("Mapping[str, Any]", value)
        return {"type": kind, "image_url": image.get("url"), "detail": image.get("detail", "auto")}
    return {"type": kind, **(cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {})}


def _plain_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(table(part).get("text", "")) for part in content)


def _tool_output(content: Any) -> Any:
    return content if isinstance(content, str) or content is None else _plain_text(content)
