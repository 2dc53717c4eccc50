"""What a connection remembers: where its chunks go, who calls, what the server said of itself, and which requests are open."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rath_bridge.model.chunk import Draft, SpanContext
from rath_bridge.model.digests import new_id
from rath_bridge.recorder import RunHandle
from rath_mcp import bodies
from rath_mcp.frames import Direction, Numbered, dumps, mapping

Emit = Callable[..., Draft | None]
"""``emit(body, *, run, origin, span, at, native)``, as `rath_bridge.recorder.Recorder.emit` has it."""


@dataclass(slots=True, eq=False)
class Book:
    """One session's share of a connection: where its chunks go."""

    emit: Emit
    trace_id: str
    parent: RunHandle | None = None
    """The run in which the connection was opened."""
    run: SpanContext | None = None
    """Ids of the server's run, once it has begun."""
    run_id: str = field(default_factory=new_id)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends: the run that the sending code works in."""

    run: RunHandle | None = None
    """Its calls stand under this run; under the server's run, when absent."""
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True, eq=False)
class Server:
    """What is known of the other end."""

    info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    protocol: str | None = None
    capabilities: Any = None
    instructions: str | None = None
    client: Any = None
    tools: dict[str, Any] = field(default_factory=dict[str, Any])
    lists: Sequence[Any] = ()
    """In a replay: the tools that it had listed in the end, which the run need not ask for where a tool that did is served whole."""
    more: dict[str, Any] = field(default_factory=dict[str, Any])
    """What the transport knows: the command, an exit status."""

    @property
    def name(self) -> str | None:
        name = self.info.get("name")
        return name if isinstance(name, str) and name else None

    def effect(self, params: Any) -> str | None:
        """What a tool does to the world, by its own annotations (``readOnlyHint``): a hint that the server gives, no proof."""
        hint = mapping(mapping(self.tools.get(str(mapping(params).get("name")))).get("annotations")).get("readOnlyHint")
        return {True: "reads", False: "writes"}.get(hint) if isinstance(hint, bool) else None

    def attributes(self) -> dict[str, Any]:
        """What a run chunk tells of it."""
        known = {
            "mcp.protocol.version": self.protocol, "rath.mcp.server": dict(self.info) or None,
            "rath.mcp.capabilities": self.capabilities, "rath.mcp.client": self.client, **self.more,
        }  # fmt: skip
        return {key: value for key, value in known.items() if value is not None}


@dataclass(slots=True, eq=False)
class Exchange:
    """A request that waits for its answer."""

    id: Any
    by: Direction
    method: str
    params: Any
    at: int
    book: Book
    run: str
    call_id: str
    span: SpanContext | None
    frames: list[Numbered]
    """Kept with the answer: those that were not written yet."""
    progress: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    name: str | None = None

    @property
    def key(self) -> str:
        """Its id, as `key_of` has it."""
        return key_of(self.id)

    @property
    def is_call(self) -> bool:
        return self.method not in bodies.HOUSEKEEPING


def key_of(request_id: Any) -> str:
    """Tell the id 3 from the id "3"."""
    return str(request_id) if type(request_id) is int else dumps(request_id).decode()
