"""What models read and said, as the GenAI conventions write it: ``gen_ai.input.messages`` and ``gen_ai.output.messages``.

An ``inference`` chunk holds its items in the framework's own JSON. Shapes that are known from outside become messages; anything
else stays as it is, as a generic part of a message whose role is the best that can be told.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

import orjson

from rath_bridge.model.encoding import BlobRef, TreeRef
from rath_bridge.model.kinds import Message
from rath_bridge.model.parts import BlobPart, Part, part_to_json

_ROLES: Final = {
    "UserMessage": "user", "SystemMessage": "system", "AssistantMessage": "assistant", "FunctionExecutionResultMessage": "tool",
    "human": "user", "ai": "assistant", "system": "system", "tool": "tool", "developer": "system", "function": "tool",
}  # fmt: skip


def json_text(value: Any) -> str:
    """Return a value as JSON text; what JSON does not hold becomes text."""
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # numbers beyond 64 bits, halves of surrogate pairs
        return json.dumps(value, default=_plain, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, BlobRef | TreeRef):
        return {"digest": value.digest}
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    return list(cast("Iterable[Any]", value)) if isinstance(value, tuple | set | frozenset) else repr(value)


def part(value: Part) -> dict[str, Any]:
    """Return a part as the conventions' JSON: bytes in base64."""
    found = part_to_json(value)
    if isinstance(value, BlobPart) and isinstance(value.content, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        found["content"] = b64encode(value.content).decode()
    return found


def message(body: Message) -> dict[str, Any]:
    """Return a message chunk's body as the conventions' JSON."""
    found: dict[str, Any] = {"role": body.role, "parts": [part(one) for one in body.parts]}
    if body.name is not None:
        found["name"] = body.name
    return found


def messages(items: Iterable[Any], default: str = "user") -> list[dict[str, Any]]:
    """Return a model call's items, in the framework's JSON, as messages; ``default`` is the role of a bare text."""
    return [_message(item, default) for item in items]


def output(items: Sequence[Any], finish_reasons: Sequence[str]) -> list[dict[str, Any]]:
    """Return what a model said as one message of all its items, with why it stopped."""
    found = messages(items, "assistant")
    role = next((one["role"] for one in found), "assistant")
    reason = finish_reason(finish_reasons[0]) if finish_reasons else "stop"
    parts = [one for each in found for one in each["parts"]]
    return [{"role": "assistant" if role == "unknown" else role, "parts": parts, "finish_reason": reason}] if found else []


def finish_reason(text: str) -> str:
    """Return a finish reason in the conventions' words, where they have one."""
    return {"tool_calls": "tool_call", "function_calls": "tool_call", "function_call": "tool_call", "tool_use": "tool_call",
            "end_turn": "stop", "max_tokens": "length"}.get(text, text)  # fmt: skip


def _message(item: Any, default: str) -> dict[str, Any]:
    if isinstance(item, str):
        return {"role": default, "parts": [{"type": "text", "content": item}]}
    if not isinstance(item, Mapping):
        return {"role": "unknown", "parts": [{"type": "unknown", "content": item}]}
    data: Mapping[str, Any] = cast("Mapping[str, Any]", item)
    if isinstance(data.get("data"), Mapping) and data.get("type") in _ROLES:  # LangChain's message_to_dict
        data = {**data["data"], "type": data["type"]}
    kind = data.get("type")
    if isinstance(data.get("parts"), list) and isinstance(data.get("role"), str):
        return dict(data)
    if kind == "function_call":
        called = {
            "type": "tool_call",
            "id": data.get("call_id"),
            "name": data.get("name"),
            "arguments": _parsed(data.get("arguments")),
        }
        return {"role": "assistant", "parts": [called]}
    if kind == "function_call_output":
        return {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": data.get("call_id"), "response": data.get("output")}],
        }
    if kind == "reasoning" and "parts" not in data and "role" not in data:
        return {"role": "assistant", "parts": [_reasoning(data)]}
    role = data.get("role") or _ROLES.get(str(kind))
    if role is None:
        return {"role": "assistant" if "content" in data or kind == "tool_call" else "unknown", "parts": [_part(data)]}
    role = _ROLES.get(str(role), str(role))
    parts = _parts(data.get("content"), data, role)
    for call in data.get("tool_calls") or ():
        given = call.get("function", call)
        arguments = given.get("arguments", given.get("args"))
        parts.append({"type": "tool_call", "id": call.get("id"), "name": given.get("name"), "arguments": _parsed(arguments)})
    found = {"role": role, "parts": parts}
    name = data.get("name") or data.get("source")
    return {**found, "name": name} if isinstance(name, str) and role != "tool" else found


def _parts(content: Any, data: Mapping[str, Any], role: str) -> list[dict[str, Any]]:
    if role == "tool" and data.get("tool_call_id"):
        return [{"type": "tool_call_response", "id": data["tool_call_id"], "response": content}]
    if content is None or content in ("", []):
        return []
    if isinstance(content, list | tuple):
        return [_part(one) for one in cast("Sequence[Any]", content)]
    return [{"type": "text", "content": content}]


def _part(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"type": "text", "content": value}
    if not isinstance(value, Mapping):
        return {"type": "unknown", "content": value}
    found: dict[str, Any] = dict(cast("Mapping[str, Any]", value))
    kind = found.get("type")
    if kind in ("text", "input_text", "output_text") and "text" in found:
        return {"type": "text", "content": found["text"]}
    if "call_id" in found and "content" in found:  # AutoGen's FunctionExecutionResult
        return {"type": "tool_call_response", "id": found["call_id"], "response": found["content"]}
    if kind is None and {"id", "name", "arguments"} <= found.keys():  # AutoGen's FunctionCall
        return {"type": "tool_call", "id": found["id"], "name": found["name"], "arguments": _parsed(found["arguments"])}
    return found if isinstance(kind, str) else {"type": "unknown", "content": found}


def _reasoning(data: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(data.get("content"), str):
        return dict(data)
    pieces: list[Any] = [one for name in ("summary", "content") for one in data.get(name) or ()]
    told = [str(one.get("text", "")) for one in pieces if isinstance(one, dict)]  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return {"type": "reasoning", "content": "\n".join(told)}


def _parsed(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return arguments
