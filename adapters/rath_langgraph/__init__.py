"""The rath_bridge adapter for LangGraph: a checkpointer that grows with what is said, a callback handler, wrapped graphs.

Imports without LangGraph; the names below are loaded when they are first used.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

# The rooms have the names of the functions in them: imported here, the functions are what the package shows.
from rath_langgraph.decode import decode, recognises
from rath_langgraph.edge import SUPPORTED, room
from rath_langgraph.encode import encode

if TYPE_CHECKING:
    from rath_bridge.model.digests import Digest
    from rath_bridge.model.kinds import Message
    from rath_bridge.replay import Player, Tape
    from rath_bridge.store.protocol import Backend
    from rath_langgraph.databases import open_database as open_database
    from rath_langgraph.merging import merge_state as merge_state
    from rath_langgraph.moving import export_thread as export_thread
    from rath_langgraph.moving import import_thread as import_thread
    from rath_langgraph.node import as_node as as_node
    from rath_langgraph.record import RathCallbackHandler as RathCallbackHandler
    from rath_langgraph.saver import RathSaver as RathSaver
    from rath_langgraph.serde import RathSerializer as RathSerializer
    from rath_langgraph.tasks import NodeTiming as NodeTiming
    from rath_langgraph.tasks import node_timings as node_timings
    from rath_langgraph.wrapping import RathGraph as RathGraph
    from rath_langgraph.wrapping import wrap as wrap

name: Final = "langgraph"
extra: Final = "langgraph"
frameworks: Final = ("langgraph", "langchain_core")

_PUBLIC: Final = {
    "NodeTiming": "tasks", "RathGraph": "wrapping", "as_node": "node", "merge_state": "merging", "node_timings": "tasks",
    "RathCallbackHandler": "record", "RathSaver": "saver", "RathSerializer": "serde", "export_thread": "moving",
    "import_thread": "moving", "open_database": "databases", "wrap": "wrapping",
}  # fmt: skip

__all__ = [
    "SUPPORTED",
    "NodeTiming",
    "RathCallbackHandler",
    "RathGraph",
    "RathSaver",
    "RathSerializer",
    "as_node",
    "decode",
    "encode",
    "export_thread",
    "extra",
    "frameworks",
    "import_thread",
    "merge_state",
    "name",
    "node_timings",
    "open_database",
    "player",
    "prompt",
    "recognises",
    "wrap",
]  # fmt: skip


def needed(backend: Backend, before: int) -> Iterable[Digest]:
    """Tell what ``rath-bridge prune`` must leave although it is old: what the delta channels of younger checkpoints are rebuilt from."""
    if not backend.scopes(name):
        return ()
    return room("upkeep", "pruning threads of LangGraph").needed(backend, before)


def prompt(items: Sequence[bytes]) -> Sequence[Message]:
    """Read what a model was told: the items of a recorded prompt, as messages for everybody.

    Raises:
        MissingExtraError: LangGraph is not installed.
        RathError: They are no messages.
    """
    room("serde", "reading a prompt of LangGraph")
    from rath_langgraph.items import join_list
    from rath_langgraph.neutral import message_body
    from rath_langgraph.serde import RathSerializer

    return [message_body(one) for one in RathSerializer().loads_typed(("msgpack", join_list(list(items))))]


def player(tape: Tape) -> Player | None:
    """Answer for LangChain's models and tools in a replay; None where LangGraph has nothing on record and is not in use.

    Raises:
        MissingExtraError: It has something on record, and is not installed.
    """
    kinds = {chunk.kind for chunk in tape.held.chunks if '"langgraph"' in (chunk.origin or "")}
    in_use = "langchain_core" in sys.modules and find_spec("langgraph") is not None
    if not kinds & {"inference", "tool_call", "tool_result", "checkpoint"} and not in_use:
        return None
    return room("replay", "a replay of LangGraph").GraphPlayer(tape)


def __getattr__(wanted: str) -> Any:
    if wanted not in _PUBLIC:
        raise AttributeError(f"module 'rath_langgraph' has no attribute {wanted!r}")
    value = getattr(room(_PUBLIC[wanted], f"rath_langgraph.{wanted}"), wanted)
    globals()[wanted] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
