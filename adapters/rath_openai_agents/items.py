"""Responses-API items as bytes and as comparison keys; as neutral messages they are in `messages`.

An item is what the SDK calls ``TResponseInputItem``: one entry of ``Runner.run``'s input list. Items are plain JSON objects here;
pydantic values are dumped with ``exclude_unset`` (explicit nulls would reach the next request and change it).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import Any, Final, cast

import orjson

from rath_bridge.errors import DecodeError
from rath_bridge.model.digests import Digest
from rath_bridge.model.encoding import INLINE_LIMIT

FRAMEWORK: Final = "openai_agents"
Item = dict[str, Any]

PAIRS: Final[Mapping[str, str]] = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "shell_call": "shell_call_output",
    "local_shell_call": "local_shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
}
"""Call type to the type of its answer; both carry ``call_id`` (a local shell's answer carries the call's id as ``id``)."""

NATIVE: Final[Mapping[str, str]] = {
    "shell_call": "shell", "local_shell_call": "local_shell", "apply_patch_call": "apply_patch", "computer_call": "computer",
}  # fmt: skip
"""Calls of the SDK's own tools, whose items name none: type to the tool that carries them out (as its spans name it)."""

OUTPUTS: Final = frozenset({*PAIRS.values(), "tool_search_output", "program_output"})
SERVER_SIDE: Final = frozenset(
    {"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call", "mcp_list_tools"}
)
MODEL_SIDE: Final = frozenset({*PAIRS, *SERVER_SIDE, "reasoning", "mcp_approval_request", "tool_search_call", "program"})
TEXTS: Final = frozenset({"input_text", "output_text", "text"})


# ------------------------------------------------------------------ bytes


def _jsonable(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return dump(value)
    raise TypeError(f"a {type(value).__module__}.{type(value).__qualname__}")


def dump(model: Any) -> Any:
    """Return a pydantic value as JSON values, with only the fields that were set (the SDK's own choice for input items)."""
    return model.model_dump(mode="json", exclude_unset=True, warnings=False)


def to_bytes(value: Any, place: str = "item") -> bytes:
    """Return JSON bytes that read back equal: key order kept, any int, float and str.

    Raises:
        DecodeError: Something in it is no JSON value.
    """
    return _dumps(value, place)[0]


def _dumps(value: Any, place: str) -> tuple[bytes, bool]:
    """Return the bytes, and whether ``value`` was made of JSON values alone."""
    try:
        data = orjson.dumps(value)
        if b"null" not in data:  # orjson writes NaN as null
            return data, True
    except (TypeError, orjson.JSONEncodeError):
        pass
    try:
        data = json.dumps(value, default=_jsonable, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise DecodeError(place, f"not JSON ({error})") from error
    if not _same_keys(value):
        raise DecodeError(place, "an object with a key that is not text")
    return data, False


def _same_keys(value: Any) -> bool:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Mapping):
            found = cast("Mapping[Any, Any]", item)
            if not all(isinstance(key, str) for key in found):
                return False
            stack.extend(found.values())
        elif isinstance(item, list | tuple):
            stack.extend(cast("Sequence[Any]", item))
    return True


def from_bytes(data: bytes, place: str = "native record") -> Any:
    """Inverse of `to_bytes`.

    Raises:
        DecodeError: Not JSON.
    """
    try:
        return json.loads(data)
    except ValueError as error:
        raise DecodeError(place, f"not JSON ({error})") from error


def table(value: Any) -> Mapping[str, Any]:
    """Return a JSON object as it is, and anything else as an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def listed(value: Any) -> Sequence[Any]:
    """Return a JSON list as it is, and anything else as an empty one."""
    return cast("Sequence[Any]", value) if isinstance(value, list | tuple) else ()


def kind_of(item: Mapping[str, Any]) -> str:
    """Return an item's type, which messages and references may leave out."""
    return str(item.get("type") or ("message" if "role" in item else "item_reference"))


def item_list(given: Any) -> list[Any]:
    """Return a run's or a model's input as a list of items; a text is one user message (as ``ItemHelpers`` has it)."""
    if isinstance(given, str):
        return [{"content": given, "role": "user"}]
    return list(given)


@dataclass(frozen=True, slots=True)
class Known:
    """An item with what is worked out from its bytes once."""

    value: Item
    data: bytes
    raw: bytes
    """sha256 of ``data``, 32 bytes."""
    key: Digest
    """Comparison key."""


def known(value: Any, place: str = "item") -> Known:
    """Work out bytes, digest and comparison key of an item.

    Raises:
        DecodeError: It is no JSON object.
    """
    data, pure = _dumps(value, place)
    found = value if pure else from_bytes(data, place)
    if not isinstance(found, dict):
        raise DecodeError(place, f"an item is a JSON object, not a {type(value).__name__}")
    item = cast("Item", found)
    return Known(item, data, sha256(data).digest(), key(item))


def long_texts(value: Any) -> dict[Digest, bytes]:
    """Return the long texts inside a value as blobs, so that a store keeps each of them once."""
    found: dict[Digest, bytes] = {}
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            if len(item) * 3 < INLINE_LIMIT:
                continue
            try:
                data = item.encode()
            except UnicodeEncodeError:
                continue
            if len(data) >= INLINE_LIMIT:
                found[sha256(data).hexdigest()] = data
        elif isinstance(item, Mapping):
            stack.extend(cast("Mapping[str, Any]", item).values())
        elif isinstance(item, list | tuple):
            stack.extend(cast("Sequence[Any]", item))
    return found


class Told(str):
    """What a model was told of a tool's result that is no text, with the result itself: a replay puts on record what was on record."""

    __slots__ = ("result",)
    result: Any


_PLAIN: Final = frozenset({str, int, float, bool, bytes, type(None)})


def plain(value: Any) -> Any:
    """Return what a tool, a guardrail or a span holds as JSON values; what is none becomes its text, as in the SDK."""
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind in _PLAIN:
        return value
    if kind is dict:  # the common ones first, without a call for each leaf
        return {
            name if type(name) is str else str(name): one if type(one) in _PLAIN else plain(one) for name, one in value.items()
        }
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, str):
        return value.result if isinstance(value, Told) else str.__str__(value)
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in cast("Sequence[Any]", value)]
    if hasattr(value, "model_dump"):
        return dump(value)
    return str(value)


# ------------------------------------------------------------------ comparison


def key(item: Mapping[str, Any]) -> Digest:
    """Return the comparison key: ids, status and absent values left out; a text is equal in each of the forms it may take."""
    kind = kind_of(item)
    shape: dict[str, Any]
    if kind == "message" and "role" in item:
        shape = {"role": item["role"], "content": _content_key(item.get("content"))}
    else:
        gone = ("status", "created_by") if kind == "item_reference" else ("id", "status", "created_by")
        shape = {k: _trim(v) for k, v in item.items() if k not in gone and v is not None and v != []}
        shape["type"] = kind
        if kind == "function_call":
            shape["arguments"] = parse(item.get("arguments"))
            shape.pop("caller", None)
    return sha256(_sorted(shape)).hexdigest()


def _sorted(value: Any) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS, default=_jsonable)
    except (TypeError, orjson.JSONEncodeError):
        return json.dumps(value, sort_keys=True, default=str).encode()


def _content_key(content: Any) -> Any:
    if isinstance(content, str):
        return [["text", content]]
    if not isinstance(content, list | tuple):
        return content
    found: list[Any] = []
    for part in cast("Sequence[Any]", content):
        if isinstance(part, Mapping):
            one = cast("Mapping[str, Any]", part)
            found.append(["text", one.get("text")] if str(one.get("type")) in TEXTS else _trim(one))
        else:
            found.append(part)
    return found


def _trim(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _trim(v) for k, v in cast("Mapping[str, Any]", value).items() if v is not None}
    if isinstance(value, list | tuple):
        return [_trim(v) for v in cast("Sequence[Any]", value)]
    return value


# ------------------------------------------------------------------ neutral


def parse(text: Any) -> Any:
    """Return arguments parsed where they are JSON, else as they are."""
    if not isinstance(text, str):
        return plain(text)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def role(item: Mapping[str, Any]) -> str:
    """Return the neutral role of an item."""
    kind = kind_of(item)
    if kind == "message" and isinstance(item.get("role"), str):
        return str(item["role"])
    if kind in MODEL_SIDE:
        return "assistant"
    if kind in OUTPUTS:
        return "tool"
    return "user" if kind == "mcp_approval_response" else "system"


def of_model(item: Mapping[str, Any]) -> bool:
    """Tell whether an item is something that a model says."""
    return role(item) == "assistant"


def grouped(items: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Cut a list into messages, as (start, stop): what a model says in one go stands together, all else alone.

    A reply's reasoning, text and calls follow each other in the list. A hand-written assistant message (its content is a text) is a
    message of its own.
    """
    found: list[tuple[int, int]] = []
    open_group = False
    for i, item in enumerate(items):
        joins = of_model(item) and not isinstance(item.get("content"), str)
        if joins and open_group:
            found[-1] = (found[-1][0], i + 1)
        else:
            found.append((i, i + 1))
        open_group = joins
    return found
