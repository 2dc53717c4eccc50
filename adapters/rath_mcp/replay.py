"""The replay server: ``rath-bridge mcp replay SESSION`` answers a host from the record, and touches nothing.

The n-th of several equal requests gets the n-th recorded answer; ``_meta`` does not count, so the record of one protocol era serves
clients of the other. A request that is not on record is an error, never a guess. Listings, pings and other housekeeping may be
asked as often as a client likes. What the server asked of its client in the middle of a call (sampling, elicitation, roots) is asked
again at the same place; a client that says something else than on record has left the record.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rath_bridge.errors import UnsupportedError
from rath_bridge.given import check_session
from rath_bridge.session import Session
from rath_mcp.asked import Asked
from rath_mcp.bodies import HOUSEKEEPING
from rath_mcp.frames import mapping, shape
from rath_mcp.serving import METHOD_NOT_FOUND, VERSIONS, Json, error, hello, result
from rath_mcp.tape import Exchange, key_of, name_of, named_servers, tape

MISS: Final = -32004
"""Code of the error for a request that is not on record (of the range that JSON-RPC leaves to servers)."""
CLOSED: Final = -32000
TIMEOUT: Final = -32001
NOTICE: Final = "notifications/"
_EMPTY: Final = frozenset({"ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"})
_LISTS: Final = {
    "tools/list": "tools", "resources/list": "resources", "resources/templates/list": "resourceTemplates", "prompts/list": "prompts",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Miss:
    """A request that the record does not answer."""

    method: str
    params: Any
    problem: str
    """What the record has instead."""

    def __str__(self) -> str:
        return f"{name_of(self.method, self.params)}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Parked:
    """A request that goes on when the client has answered what it was asked."""

    request_id: Any
    method: str
    params: Any
    asked: Asked
    rest: Iterator[Json | Asked]


@dataclass(slots=True, eq=False)
class ReplayServer:
    """Answers from a tape; see `rath_mcp.serving.serve`."""

    exchanges: list[Exchange]
    hold: bool = True
    """Leave a request unanswered that was given up unanswered (a timeout): the client gives up again, as it did."""
    misses: list[Miss] = field(default_factory=list[Miss])
    served: int = 0
    _waiting: dict[str, list[Exchange]] = field(default_factory=dict[str, list[Exchange]])
    _last: dict[str, Exchange] = field(default_factory=dict[str, Exchange])
    _parked: dict[str, Parked] = field(default_factory=dict[str, Parked])
    _asked: int = 0
    _greeted: bool = False
    _client: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The capabilities of a client of the era with a handshake."""

    def __post_init__(self) -> None:
        for one in self.exchanges:
            self._waiting.setdefault(one.key, []).append(one)

    @property
    def unused(self) -> tuple[Exchange, ...]:
        """Recorded calls that nobody has asked for; housekeeping aside."""
        left = {id(one) for waiting in self._waiting.values() for one in waiting}
        idle = HOUSEKEEPING | {"initialize", "server/discover"}
        return tuple(
            one for one in self.exchanges if id(one) in left and one.method not in idle and not one.method.startswith(NOTICE)
        )

    def answer(self, message: Any) -> Iterable[Json]:
        """Return what the recorded server said, and what it asked."""
        kind = shape(message)
        if kind == "answer":
            return self._answered(message)
        if kind == "notification":
            return self._noticed(message["method"], mapping(message.get("params")))
        if kind != "request":
            return []
        request_id, method, params = message["id"], message["method"], message.get("params")
        if method == "initialize":
            self._greeted, self._client = True, mapping(mapping(params).get("capabilities"))
            return [result(request_id, self._hello(params))]
        if method == "server/discover":
            return [self._discovered(request_id)]
        if method in _EMPTY:
            return [result(request_id, {})]
        one = self._next(method, params)
        if one is None:
            return [self._miss(request_id, method, params)]
        self.served += method not in HOUSEKEEPING
        return self._play(request_id, method, params, iter(self._again(one, request_id, params)))

    def _play(self, request_id: Any, method: str, params: Any, script: Iterator[Json | Asked]) -> list[Json]:
        """Say what comes next, up to a question that this client can answer."""
        said: list[Json] = []
        for step in script:
            if not isinstance(step, Asked):
                said.append(step)
            elif step.may_go_to(self._client):
                self._asked += 1
                name = f"rath-{self._asked}"
                self._parked[name] = Parked(request_id, method, params, step, script)
                return [*said, step.request(name)]
        return said

    def _answered(self, message: Mapping[str, Any]) -> list[Json]:
        one = self._parked.pop(str(message["id"]), None)
        if one is None:
            return []
        if one.asked.is_same(message):
            return self._play(one.request_id, one.method, one.params, one.rest)
        problem = f"the client answered {one.asked.method} otherwise than on record"
        self.misses.append(Miss(one.method, one.params, problem))
        if one.request_id is None:
            return []
        data = {"recorded": one.asked.answer}
        return [error(one.request_id, MISS, f"not on record: {name_of(one.method, one.params)}: {problem}", data)]

    def _noticed(self, method: str, params: Mapping[str, Any]) -> list[Json]:
        if method == f"{NOTICE}cancelled":
            for name in [name for name, one in self._parked.items() if one.request_id == params.get("requestId")]:
                del self._parked[name]
            return []
        waiting = self._waiting.get(key_of(method, params or None))
        if not waiting:
            return []
        one = waiting.pop(0)
        return self._play(None, method, None, iter([*one.told, *one.after]))

    def _next(self, method: str, params: Any) -> Exchange | None:
        key = key_of(method, params)
        waiting = self._waiting.get(key)
        if waiting:
            self._last[key] = waiting.pop(0)
            return self._last[key]
        if method in HOUSEKEEPING:
            return self._last.get(key) or self._listed(method, params)
        return None

    def _listed(self, method: str, params: Any) -> Exchange | None:
        """A listing that the recorded client never asked for: what the record shows to exist, said to be inferred."""
        if method not in _LISTS or mapping(params).get("cursor") is not None:
            return None
        found: list[Json] = []
        if method == "tools/list":
            names = {str(mapping(one.params).get("name")) for one in self.exchanges if one.method == "tools/call"}
            found = [{"name": name, "inputSchema": {"type": "object"}} for name in sorted(names)]
        value = {_LISTS[method]: found, "_meta": {"rath-bridge/basis": "inferred"}}
        return Exchange(method, params, (0, 0), {"result": value})

    def _again(self, one: Exchange, request_id: Any, params: Any) -> list[Json | Asked]:
        token = mapping(mapping(params).get("_meta")).get("progressToken")
        told: list[Json | Asked] = []
        for message in one.told:
            if isinstance(message, Asked) or message["method"] != "notifications/progress":
                told.append(message)
            elif token is not None:
                told.append({**message, "params": {**message["params"], "progressToken": token}})
        wanted = mapping(mapping(mapping(one.answer).get("result")).get("inputRequests"))
        if wanted and self._greeted:
            return [*told, *self._questions(one, wanted, request_id, params)]
        if one.answer is not None:
            return [*told, {"jsonrpc": "2.0", "id": request_id, **one.answer}, *one.after]
        if not one.given_up:
            return [*told, error(request_id, CLOSED, f"on record this call was never answered: {one.reason}")]
        if self.hold:
            return told
        return [*told, error(request_id, TIMEOUT, f"on record the client gave up waiting: {one.reason or 'no answer'}")]

    def _questions(self, one: Exchange, wanted: Mapping[str, Any], request_id: Any, params: Any) -> list[Json | Asked]:
        """What the later era puts into a result and asks for again, told in the era in which the server asks by itself."""
        asked = _first(one.params)
        for after in self.exchanges:
            said = mapping(mapping(after.params).get("inputResponses"))
            waiting = self._waiting.get(after.key, [])
            if said and after in waiting and after.method == one.method and _first(after.params) == asked:
                waiting.remove(after)
                found: list[Json | Asked] = [
                    Asked(mapping(ask).get("method", ""), mapping(ask).get("params"), {"result": said.get(name)})
                    for name, ask in wanted.items()
                ]
                return [*found, *self._again(after, request_id, params)]
        return [error(request_id, CLOSED, "on record the client was asked for input, and never went on")]

    def _miss(self, request_id: Any, method: str, params: Any) -> Json:
        name = name_of(method, params)
        same = [one for one in self.exchanges if one.name == name and one.method == method]
        equal = sum(one.key == key_of(method, params) for one in same)
        if equal:
            problem = f"the record has {equal} such call(s), and all have been served"
        elif same:
            problem = f"the record has {len(same)} call(s) of it, with other arguments"
        else:
            problem = "the record has no call of it"
        self.misses.append(Miss(method, params, problem))
        data = {"recorded": [_without_meta(one.params) for one in same[:5]]}
        return error(request_id, MISS, f"not on record: {name}: {problem}", data)

    def _recorded(self, method: str) -> Mapping[str, Any]:
        found = (mapping(mapping(one.answer).get("result")) for one in self.exchanges if one.method == method)
        return next((one for one in found if one), mapping(None))

    def _hello(self, params: Any) -> Json:
        recorded = self._recorded("initialize")
        if not recorded:  # the record is of the era without a handshake, or of no MCP server at all
            later = self._recorded("server/discover")
            info = mapping(mapping(later.get("_meta")).get("io.modelcontextprotocol/serverInfo")) or _US
            capabilities = later.get("capabilities") or self._offers()
            instructions = later.get("instructions")
            return hello(params, info, capabilities, instructions if isinstance(instructions, str) else None)
        version = mapping(params).get("protocolVersion")
        spoken = version if version in VERSIONS else recorded.get("protocolVersion", VERSIONS[-1])
        return {**recorded, "protocolVersion": spoken}

    def _discovered(self, request_id: Any) -> Json:
        recorded = self._recorded("server/discover")
        if recorded:
            return result(request_id, dict(recorded))
        return error(request_id, METHOD_NOT_FOUND, "the record is of the era with a handshake: send initialize")

    def _offers(self) -> Json:
        methods = {one.method.partition("/")[0] for one in self.exchanges}
        return {name: {} for name in ("tools", "resources", "prompts") if name in methods}


_US: Final = {"name": "rath-bridge replay", "version": "1"}


def _first(params: Any) -> Json:
    """A request as it was before its client had answered anything."""
    return {key: value for key, value in _without_meta(params).items() if key not in ("inputResponses", "requestState")}


def _without_meta(params: Any) -> Json:
    return {key: value for key, value in mapping(params).items() if key != "_meta"}


def replay_server(session: Session, *, hold: bool = True, server: str | None = None) -> ReplayServer:
    """Return a server that answers MCP requests from what a session has on record.

    Args:
        session: Its calls to MCP servers, recorded by `rath_mcp`, and tool calls that other adapters recorded.
        hold: Leave a request unanswered that was given up unanswered; False answers it with a timeout's error at once.
        server: Answer as this one of the session's servers alone.

    Returns:
        A server for `rath_mcp.serving.serve`, or for your own transport: ``answer(message)`` returns the messages to send. Look at
        its ``misses`` and ``unused`` when the run is over.

    Raises:
        UnsupportedError: There is no server of that name on record.
    """
    check_session(session, "replay_server")
    exchanges = tape(session, server)
    if server is not None and not exchanges:
        known = ", ".join(named_servers(list(session.chunks()))) or "none"
        raise UnsupportedError(f"{session.name} has no server {server!r} on record: it has {known}")
    return ReplayServer(exchanges, hold=hold)


def replay_command(session: Session, *, server: str | None = None, hold: bool = True) -> list[str]:
    """Return the command line of a replay server: what a host's configuration takes in the place of the real one.

    So the recorded tools of a session come to any framework through its own support for MCP: ``MultiServerMCPClient`` (LangChain
    tools), ``MCPServerStdio`` (function tools of the OpenAI Agents SDK), ``McpWorkbench`` (AutoGen).

    Args:
        session: Its record, in a store that other processes can open.
        server: As for `replay_server`.
        hold: As for `replay_server`.

    Raises:
        UnsupportedError: The store lives in this process only.
    """
    check_session(session, "replay_command")
    url = session.store.url
    if url.startswith("memory:") or url.endswith(":memory:"):
        raise UnsupportedError("a replay server runs in a process of its own, and a store in memory cannot be opened there")
    named = [] if server is None else ["--server", server]
    held = [] if hold else ["--no-hold"]
    return [sys.executable, "-m", "rath_bridge", "mcp", "replay", "--store", url, *named, *held, session.name]
