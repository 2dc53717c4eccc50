"""Saved state of an agent or a team (``save_state()``) as a checkpoint: its lists are trees, the rest is the envelope.

A state repeats every message that was ever said, so each list in it (a model context, a buffer, a thread) is a list tree of its
items' bytes: saved again after a turn, it costs what the turn added. `join` builds the same JSON again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from rath_autogen.natives import FRAMEWORK, VOLATILE, from_bytes, to_bytes
from rath_bridge.errors import DecodeError
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest, digest
from rath_bridge.model.encoding import TreeRef
from rath_bridge.model.kinds import Checkpoint
from rath_bridge.model.trees import Fetch, list_tree, map_tree, read_list, read_map

LISTS: Final = frozenset({"messages", "message_thread", "message_buffer"})
"""Keys under which AutoGen's states hold messages."""
_CUT: Final = "$list"
_NEW: Final = VOLATILE | {"request_id", "full_message_id"}


def is_state(data: Any) -> bool:
    """Tell whether a JSON object is what ``save_state()`` of an agent or a team returns."""
    if not isinstance(data, Mapping):
        return False
    held = cast("Mapping[str, Any]", data)
    return str(held.get("type", "")).endswith("State") and "version" in held


def checkpoint(state: Mapping[str, Any]) -> tuple[Checkpoint, dict[Digest, bytes]]:
    """Return a saved state as a checkpoint body, and the objects that it refers to."""
    lists: dict[str, list[Any]] = {}
    envelope = _cut(state, "", lists)
    objects: dict[Digest, bytes] = {}
    roots: dict[str, bytes] = {}
    for path, items in lists.items():
        raw = [to_bytes(item) for item in items]
        names = [digest(data) for data in raw]
        tree, nodes = list_tree([bytes.fromhex(name) for name in names])
        objects |= nodes | dict(zip(names, raw, strict=True))
        roots[path] = bytes.fromhex(tree.ref.digest)
    ref, nodes = map_tree(roots)
    counts = {path: len(items) for path, items in lists.items()}
    body = Checkpoint(
        namespace=FRAMEWORK, source=str(state["type"]), state=ref, lists=counts, content=digest(to_bytes(_said(state))),
        envelope=envelope,
    )  # fmt: skip
    return body, objects | nodes


def _said(value: Any) -> Any:
    """A state without what is new in every run: ids, times and the like of its messages."""
    if isinstance(value, Mapping):
        held = cast("Mapping[str, Any]", value)
        dropped = _NEW if "created_at" in held and "source" in held else frozenset[str]()
        return {key: _said(held[key]) for key in sorted(held) if key not in dropped}
    if isinstance(value, list):
        return [_said(item) for item in cast("list[Any]", value)]
    return value


def _cut(value: Any, path: str, lists: dict[str, list[Any]]) -> Any:
    if isinstance(value, Mapping):
        found: dict[str, Any] = {}
        for key, item in cast("Mapping[str, Any]", value).items():
            below = f"{path}/{key}" if path else key
            if key in LISTS and isinstance(item, list):
                lists[below] = cast("list[Any]", item)
                found[key] = _CUT
            else:
                found[key] = _cut(item, below, lists)
        return found
    return value


def join(chunk: Chunk, fetch: Fetch) -> Any:
    """Build the state that a checkpoint chunk holds.

    Raises:
        DecodeError: A list is missing.
    """
    body = cast(Checkpoint, chunk.body)
    roots = read_map(body.state, fetch) if body.state else {}

    def items(path: str) -> list[Any]:
        if path not in roots:
            raise DecodeError(f"chunk {chunk.id[:16]}", "the saved state lacks a list", path)
        names = [raw.hex() for raw in read_list(TreeRef(roots[path].hex(), int(body.lists[path])), fetch)]
        held = fetch(_distinct(names))
        return [from_bytes(held[name]) for name in names]

    def fill(value: Any, path: str) -> Any:
        if not isinstance(value, Mapping):
            return value
        found: dict[str, Any] = {}
        for key, item in cast("Mapping[str, Any]", value).items():
            below = f"{path}/{key}" if path else key
            found[key] = items(below) if key in LISTS and item == _CUT else fill(item, below)
        return found

    return fill(body.envelope, "")


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def thread(state: Mapping[str, Any]) -> list[Any]:
    """Return the messages of a saved state that are its transcript: a team's thread, or an agent's model context.

    Raises:
        DecodeError: There is no such list, or it is of another shape.
    """
    context = state.get("llm_context")
    if isinstance(context, Mapping):
        return _messages(cast("Mapping[str, Any]", context).get("messages"), "llm_context.messages")
    if "agent_states" in state:
        agents = state["agent_states"]
        if not isinstance(agents, Mapping):
            raise DecodeError("AutoGen state", "an object was expected", "agent_states")
        for name, found in cast("Mapping[str, Any]", agents).items():
            if isinstance(found, Mapping) and "message_thread" in found:
                return _messages(found["message_thread"], f"agent_states.{name}.message_thread")
    return []


def _messages(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise DecodeError("AutoGen state", "a list of messages was expected", path)
    found = cast("list[Any]", value)
    for place, one in enumerate(found):
        if not isinstance(one, Mapping):
            raise DecodeError("AutoGen state", f"a message was expected, not a {type(one).__name__}", f"{path}[{place}]")
    return found
