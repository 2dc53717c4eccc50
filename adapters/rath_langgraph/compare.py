"""Comparison keys: what stays the same when a framework hands a message back, or a graph runs again.

Ids, names, response metadata and usage are left out: LangGraph's ``add_messages`` gives ids, agents give names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from rath_bridge.model.digests import Digest, digest
from rath_bridge.model.encoding import dumps, encode, escape
from rath_langgraph.instances import step_into
from rath_langgraph.neutral import plain, role_of

_DEPTH: Final = 32
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")


def compare_key(message: BaseMessage) -> Digest:
    """Return the digest of what a message says: role, content, calls."""
    content: Any = message.content
    if isinstance(content, list):
        content = blocks = [_named(block) for block in cast("list[Any]", content)]
        texts = [block if isinstance(block, str) else block.get("text") for block in blocks]
        if (
            len(blocks) == 1
            and isinstance(texts[0], str)
            and (isinstance(blocks[0], str) or set(blocks[0]) <= {"type", "text", "id"})
        ):
            content = texts[0]
    facts: list[Any] = [role_of(message), plain(content)]
    if isinstance(message, AIMessage):
        facts.append([[call["id"], call["name"], plain(call["args"])] for call in message.tool_calls])
    if isinstance(message, ToolMessage):
        facts.append(message.tool_call_id)
    return digest(encode(facts)[0])


def _named(block: Any) -> Any:
    """A content block without the id that LangChain makes up for it (``langchain_core.utils.uuid``: ``lc_`` and a new UUID)."""
    if not isinstance(block, Mapping):
        return block
    found = cast("Mapping[str, Any]", block)
    return {key: value for key, value in found.items() if key != "id" or not str(value).startswith("lc_")}


def content_key(value: Any) -> Digest:
    """Return the digest of what a channel's value says: messages without their ids, sets and maps without their order."""
    return digest(dumps(escape(_said(value), {})))


def _said(value: Any, depth: int = 0, around: tuple[int, ...] = ()) -> Any:
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind in (str, int, float, bool, bytes, type(None)):
        return value
    if depth > _DEPTH:
        return kind.__qualname__
    if isinstance(value, BaseMessage):
        return compare_key(value)
    if isinstance(value, Enum):  # its members lead to its class, and that to all its members
        return [kind.__qualname__, value._name_ or repr(value._value_)]
    if isinstance(value, type):
        return ["type", value.__qualname__]
    if isinstance(value, Mapping):
        pairs = [
            [_said(key, depth + 1, around), _said(item, depth + 1, around)]
            for key, item in cast("Mapping[Any, Any]", value).items()
        ]
        return ["map", *sorted(pairs, key=repr)]
    if isinstance(value, (set, frozenset)):
        return ["set", *sorted((_said(item, depth + 1, around) for item in cast("set[Any]", value)), key=repr)]
    if isinstance(value, (list, tuple)):
        return [_said(item, depth + 1, around) for item in cast("list[Any]", value)]
    fields: Any = getattr(value, "__dict__", None)
    if not fields and hasattr(kind, "__slots__"):
        fields = {name: getattr(value, name, None) for name in kind.__slots__ if not name.startswith("__")}
    if not fields:
        return [kind.__qualname__, _ADDRESS.sub("", repr(value))]
    if id(value) in around:
        return kind.__qualname__
    return [kind.__qualname__, _said(fields, depth + step_into(value), (*around, id(value)))]
