"""MCP's part of a replay (`rath_bridge.replay`): client sessions whose servers are the record.

Inside a replay every ``ClientSession`` that is made gets streams that lead to the record, whatever its transport, and stdio servers
are not started before a request is really made live. All else of the SDK runs as always, recorders too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, cast

from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Run
from rath_bridge.recorder import RunHandle, current_run
from rath_bridge.replay import Divergence, Tape, current_tape, patched
from rath_mcp.bodies import HOUSEKEEPING
from rath_mcp.content import wire_result
from rath_mcp.frames import mapping, shape
from rath_mcp.replay import CLOSED, Miss, ReplayServer
from rath_mcp.serving import Json, result
from rath_mcp.tape import HANDSHAKE, Exchange, key_of, name_of, wire

_FREE = HOUSEKEEPING | set(HANDSHAKE)
"""What is answered without being counted: it is housekeeping, and does nothing."""


class McpPlayer:
    """Answers for MCP servers from a record."""

    def __init__(self, core: Tape) -> None:
        self.core = core
        self.exchanges = sorted(
            (one for one in wire(core.held.chunks) if self._position(one) > core.after), key=lambda one: one.at
        )  # fmt: skip
        self.waiting: dict[str, list[Exchange]] = {}
        for one in self.exchanges:
            self.waiting.setdefault(one.key, []).append(one)
        self.greetings = [one for one in self.exchanges if one.method in HANDSHAKE]
        self._runs = _paths(core)
        self.ends = _ends(core)

    def _position(self, one: Exchange) -> int:
        return max((self.core.held.position(chunk) or 0 for chunk in one.chunks), default=0)

    @property
    def on_wire(self) -> bool:
        """The record holds what crossed the wire, so frameworks above may leave their MCP tools as they are."""
        return any(one.method == "tools/call" for one in self.exchanges)

    @contextmanager
    def installed(self) -> Generator[None]:
        """Let client sessions lead to the record, and start no server."""
        session = import_module("mcp.client.session").ClientSession
        stdio = import_module("mcp.client.stdio")
        with (
            patched(session, "__init__", _made),
            patched(session, "send_request", _asked),
            patched(stdio, "_create_platform_compatible_process", _later),
        ):
            yield

    @property
    def unused(self) -> Sequence[Digest]:
        """What came of calls that were not asked for."""
        left = {id(one) for waiting in self.waiting.values() for one in waiting}
        return [one.chunks[-1] for one in self.exchanges if id(one) in left and _counts(one) and one.chunks]

    @property
    def reasons(self) -> Sequence[str]:
        """Nothing keeps a wire record from being replayed; what was erased or lost, the core tells."""
        return []

    def find(self, method: str, params: Any, connection: str | None) -> Exchange | None:
        """Return the next equal call: of this connection and this caller, where the record has one."""
        waiting = self.waiting.get(key_of(method, params), [])
        caller = _names(current_run())
        return max(
            waiting, default=None, key=lambda one: (one.connection == connection, self._runs.get(one.run or "") == caller)
        )  # fmt: skip

    def take(self, one: Exchange | None) -> None:
        """It has been answered for."""
        if one is not None:
            self.waiting[one.key].remove(one)

    def differs(self, method: str, params: Any) -> Divergence:
        """Say what the record has in the place of a call that it does not have."""
        left = [one for waiting in self.waiting.values() for one in waiting if _counts(one)]
        left.sort(key=lambda one: one.at)
        name = name_of(method, params)
        same = [one for one in left if name_of(one.method, one.params) == name]
        if same:
            return Divergence(
                f"tool call {_tool(method, params)}", _told(method, params), _told(same[0].method, same[0].params),
                same[0].chunks[0], "arguments",
            )  # fmt: skip
        there = f"{name_of(left[0].method, left[0].params)}" if left else "no call"
        return Divergence(f"tool call {_tool(method, params)}", name, there, left[0].chunks[0] if left else None)


class RecordedServer(ReplayServer):
    """The server of one client session, as the record has it; the tape decides about each call."""

    def __init__(self, player: McpPlayer, connection: str | None = None) -> None:
        super().__init__(player.exchanges)
        self._waiting = player.waiting  # shared: the sessions of a run take from one record
        self.player = player
        self.connection = connection
        self.greeting: Mapping[str, Any] = {}
        """What the recorded server answered to the client's greeting."""

    @property
    def end(self) -> Run:
        """How this session's server ended."""
        return self.player.ends.get(self.connection or "") or Run(phase="end", name="mcp")

    def take(self, message: Mapping[str, Any]) -> list[Json] | None:
        """Return what to send for a message of the client; None where it is to be made live.

        Raises:
            ReplayDivergenceError: It is not on record.
            ReplayHaltedError: The replay ends before it.
        """
        method, params = message.get("method"), message.get("params")
        if shape(message) != "request" or not isinstance(method, str) or method in _FREE:
            if method in HANDSHAKE:
                self._bind(method, params)
            return list(self.answer(message))
        player, core = self.player, self.player.core
        found = player.find(method, params, self.connection)
        given = mapping(params).get("arguments") if method == "tools/call" else _plain(params)
        verdict = core.ask(
            "tool", _tool(method, params), chunk=found.chunks[-1] if found is not None else None, arguments=given,
            expected=lambda: player.differs(method, params),
        )  # fmt: skip
        player.take(found)
        if verdict.action == "live":
            return None
        if verdict.action == "serve" and found is not None:
            return self._play(message["id"], method, params, iter(self._again(found, message["id"], params)))
        if verdict.action == "error":
            return [result(message["id"], {"content": [{"type": "text", "text": verdict.error}], "isError": True})]
        return [result(message["id"], _as_result(verdict.value))]

    def closes(self, messages: Sequence[Json]) -> bool:
        """Tell whether the server went away instead of answering, on record."""
        fault = mapping(messages[-1].get("error") if messages else None)
        return fault.get("code") == CLOSED and str(fault.get("message")).startswith("on record this call was never answered")

    def left(self, miss: Miss) -> Divergence:
        """A client that answers the server's question otherwise has left the record."""
        return self.player.core.miss(Divergence(name_of(miss.method, miss.params), "another answer", miss.problem))

    def _bind(self, method: str, params: Any) -> None:
        """Take the next greeting on record: this session is the one that began with it."""
        same = key_of(method, params)
        waiting = [one for one in self.player.greetings if one.method == method and one in self._waiting[one.key]]
        one = next((one for one in waiting if one.key == same), waiting[0] if waiting else None)
        if one is not None:
            self._waiting[one.key].remove(one)
            self.connection = one.connection
            self.greeting = mapping(mapping(one.answer).get("result"))

    def _hello(self, params: Any) -> Json:
        return dict(self.greeting) if "protocolVersion" in self.greeting else super()._hello(params)

    def _recorded(self, method: str) -> Mapping[str, Any]:
        mine = [one for one in self.exchanges if one.connection == self.connection and one.method == method]
        return self.greeting or next((mapping(mapping(one.answer).get("result")) for one in mine), super()._recorded(method))

    def _next(self, method: str, params: Any) -> Exchange | None:
        """Housekeeping of this connection, as often as it is asked."""
        key = key_of(method, params)
        mine = [one for one in self._waiting.get(key, []) if one.connection == self.connection]
        if mine:
            self._waiting[key].remove(mine[0])
            self._last[key] = mine[0]
            self.player.core.answered.update(mine[0].chunks)
            return mine[0]
        again = [one for one in self.exchanges if one.key == key and one.connection == self.connection]
        return self._last.get(key) or (again[-1] if again else super()._next(method, params))


def _counts(one: Exchange) -> bool:
    return one.method not in _FREE and not one.method.startswith("notifications/")


def _tool(method: str, params: Any) -> str:
    name = mapping(params).get("name")
    return name if method == "tools/call" and isinstance(name, str) else method


def _plain(params: Any) -> Json:
    return {key: value for key, value in mapping(params).items() if key != "_meta"}


def _told(method: str, params: Any) -> str:
    given = mapping(params).get("arguments") if method == "tools/call" else _plain(params)
    return repr(given or {})[:200]


def _as_result(value: Any) -> Json:
    """A value that stands in for a recorded result, as MCP would have it."""
    if isinstance(value, Mapping) and "content" in value:
        return dict(mapping(wire_result(value)))
    if isinstance(value, Mapping):
        return {"content": [{"type": "text", "text": json.dumps(value, default=repr)}], "structuredContent": dict(mapping(value))}
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else repr(value)}]}


def _names(run: RunHandle | None) -> tuple[str, ...]:
    found: list[str] = []
    while run is not None:
        found.append(run.name)
        run = run.parent
    return tuple(reversed(found))


def _paths(core: Tape) -> dict[str, tuple[str, ...]]:
    """Return the names of a recorded run and of those around it; of a server's run, of those around it alone."""
    found: dict[str, tuple[str, ...]] = {}
    for chunk in core.held.chunks:
        if chunk.kind == "run" and chunk.run is not None and chunk.body_bytes is not None:
            body = cast(Run, chunk.body)
            if body.phase == "begin":
                above = found.get(body.parent or "", ())
                found[chunk.run] = above if body.type == "server" else (*above, body.name)
    return found


def _ends(core: Tape) -> dict[str, Run]:
    """Return how each connection's server ended: its tools are those that it had listed."""
    names: dict[str, str] = {}
    found: dict[str, Run] = {}
    for chunk in core.held.chunks:
        if chunk.kind == "run" and chunk.run is not None and chunk.body_bytes is not None:
            body = cast(Run, chunk.body)
            if body.phase == "begin" and body.native_id is not None:
                names[chunk.run] = body.native_id
            elif chunk.run in names:
                found[names[chunk.run]] = body
    return found


def _made(original: Callable[..., Any], session: Any, *args: Any, **options: Any) -> None:
    original(session, *args, **options)
    tape = current_tape()
    player = tape.player("mcp") if tape is not None else None
    if player is not None:
        from rath_mcp.wires import lead_to

        lead_to(session, RecordedServer(player))


async def _asked(original: Callable[..., Any], session: Any, *args: Any, **options: Any) -> Any:
    tape = current_tape()
    player = tape.player("mcp") if tape is not None else None
    wire = getattr(session, "_rath_mcp_wire", None)
    if player is not None and (wire is None or wire.tape is not tape):
        from rath_mcp.wires import lead_open

        recorder = getattr(session, "_rath_mcp_recorder", None)
        lead_open(session, RecordedServer(player, None if recorder is None else recorder.connection.id))
    return await original(session, *args, **options)


async def _later(original: Callable[..., Any], *args: Any, **options: Any) -> Any:
    from rath_mcp.wires import later_process

    return later_process(lambda: original(*args, **options))
