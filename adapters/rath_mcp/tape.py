"""A tape: what a session knows of servers' answers, request by request, in the order in which they were asked.

It is read from the wire records of `rath_mcp`'s own recorders; calls that another framework recorded are told as MCP would have
told them (`rath_mcp.encode`). Pure.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Run, ToolCall, ToolResult
from rath_bridge.session import Session
from rath_mcp.asked import Asked, Json
from rath_mcp.encode import encode, kept
from rath_mcp.exchange import key_of as key
from rath_mcp.frames import Frame, mapping, shape

HANDSHAKE: Final = ("initialize", "server/discover")
_GIVEN_UP: Final = frozenset({"timeout", "cancelled", "client_closed", "record_ended", "client_error"})
"""Reasons for which there is no answer that are the client's: it stopped waiting for a server that was there."""


@dataclass(slots=True, eq=False)
class Exchange:
    """A request on record, and what came of it."""

    method: str
    params: Any
    at: tuple[int, int]
    """When it was asked; the place on the tape, where times are equal."""
    answer: Json | None = None
    """``{"result": ...}`` or ``{"error": ...}``; None where none came."""
    reason: str | None = None
    """Why none came."""
    told: list[Json | Asked] = field(default_factory=list[Json | Asked])
    """What the server sent before it answered: progress, log messages, and requests of its own."""
    after: list[Json] = field(default_factory=list[Json])
    """What it sent after that, before it was asked anything else."""
    connection: str = ""
    run: str | None = None
    """The run in which it was asked."""
    chunks: tuple[Digest, ...] = ()
    """The call, and what came of it."""

    @property
    def key(self) -> str:
        """What makes another request equal to it."""
        return key_of(self.method, self.params)

    @property
    def name(self) -> str:
        """The tool, the resource or the prompt, else the method."""
        return name_of(self.method, self.params)

    @property
    def given_up(self) -> bool:
        """The client stopped waiting; the server had not failed."""
        return self.answer is None and (self.reason is None or self.reason in _GIVEN_UP)


def key_of(method: str, params: Any) -> str:
    """Return method and parameters in one canonical text; ``_meta`` says nothing about what is asked."""
    plain = {key: value for key, value in mapping(params).items() if key != "_meta"}
    if method == "tools/call" and not plain.get("arguments"):  # {} and nothing at all are the same call
        plain.pop("arguments", None)
    return f"{method} {json.dumps(plain, sort_keys=True, separators=(',', ':'))}"


def name_of(method: str, params: Any) -> str:
    """Return what a request is about, for people."""
    given = mapping(params)
    named = given.get("name") or given.get("uri")
    return f"{method} {named}" if isinstance(named, str) else method


def tape(session: Session, server: str | None = None) -> list[Exchange]:
    """Read the exchanges of a session's line that a client began.

    Args:
        session: The record.
        server: Only those with the server of this name.
    """
    chunks = list(session.chunks())
    found = wire(chunks)
    if server is not None:
        names = servers(chunks)
        found = [one for one in found if names.get(one.connection) == server]
    told = {chunk.id for chunk in chunks if kept(chunk) is not None}
    pairs, report = encode(session, "results")
    by_id = {chunk.id: chunk for chunk in chunks}
    for entry in report.manifest:
        pair = pairs[entry.position]
        request = mapping(pair.get("request"))
        if entry.chunk in told or not request:
            continue
        chunk = by_id[entry.chunk]
        if server is not None and cast(ToolCall, chunk.body).server != server:
            continue
        answer = {key: pair[key] for key in ("result", "error") if key in pair}
        found.append(Exchange(str(request.get("method")), request.get("params"), (chunk.at * 1000, chunk.position), answer))
    return sorted(found, key=lambda one: one.at)


def servers(chunks: Sequence[Chunk]) -> dict[str, str]:
    """Return the server of each connection on record."""
    found: dict[str, str] = {}
    for chunk in chunks:
        if chunk.kind == "run" and chunk.body_bytes is not None:
            run = cast(Run, chunk.body)
            if run.type == "server" and run.native_id:
                found[run.native_id] = run.name
    return found


def named_servers(chunks: Sequence[Chunk]) -> list[str]:
    """Return the servers that a record can answer as: those that were connected to, and those that other frameworks' calls name."""
    calls = (cast(ToolCall, chunk.body) for chunk in chunks if chunk.kind == "tool_call" and chunk.body_bytes is not None)
    return sorted({*servers(chunks).values(), *(call.server for call in calls if call.server is not None)})


def wire(chunks: Sequence[Chunk]) -> list[Exchange]:
    """Pair the requests of clients with what came of them, within each connection, from the frames that chunks keep."""
    tapes: dict[str, dict[int, tuple[Chunk, Frame]]] = defaultdict(dict)
    closed: dict[str, list[tuple[Digest, ToolResult]]] = defaultdict(list)
    for chunk in chunks:
        for item in kept(chunk) or ():
            tapes[item.connection][item.number] = (chunk, item.frame)
        if chunk.kind == "tool_result" and chunk.body_bytes is not None:
            body = cast(ToolResult, chunk.body)
            if body.status == "no_response" and body.call_id:
                closed[body.call_id].append((chunk.id, body))
    found: list[Exchange] = []
    for name, frames in tapes.items():
        line = _Line(name, [frames[number] for number in sorted(frames)])
        for request_id, one in line.exchanges():
            if one.answer is None and closed[f"{name}:{request_id}"]:
                chunk, body = closed[f"{name}:{request_id}"].pop(0)
                one.reason, one.chunks = body.reason, (*one.chunks, chunk)
            found.append(one)
    return found


class _Line:
    """One connection's frames, in order."""

    def __init__(self, name: str, frames: Sequence[tuple[Chunk, Frame]]) -> None:
        self._name, self._frames = name, frames
        self._open: dict[str, Exchange] = {}
        self._asked: dict[str, Asked] = {}
        self._last: Exchange | None = None
        """What the client did last: what the server says while nothing is open comes after that."""
        self._found: list[tuple[str, Exchange]] = []

    def exchanges(self) -> Iterator[tuple[str, Exchange]]:
        """Return them with the ids of their requests, as the recorder writes them."""
        for index, (chunk, frame) in enumerate(self._frames):
            whole: Any = frame.message if frame.decodable else None
            for message in whole if shape(whole) == "batch" else [whole]:
                self._take(mapping(message), frame, chunk, index)
        return iter(self._found)

    def _take(self, message: Mapping[str, Any], frame: Frame, chunk: Chunk, index: int) -> None:
        kind, ours = shape(message), frame.direction == "c2s"
        if kind in ("request", "notification") and ours:
            one = Exchange(
                message["method"], message.get("params"), (frame.t or 0, index), None if kind == "request" else {},
                connection=self._name, run=chunk.run, chunks=(chunk.id,),
            )  # fmt: skip
            if kind == "request":
                self._open[key(message["id"])] = one
                self._found.append((key(message["id"]), one))
            elif one.method != "notifications/cancelled":
                self._last = one
        elif kind == "answer" and not ours:
            one = self._open.pop(key(message["id"]), None) or self._open.pop(str(message["id"]), None)
            if one is not None:
                one.answer = {key: message[key] for key in ("result", "error") if key in message}
                one.chunks = tuple(dict.fromkeys((*one.chunks, chunk.id)))
                self._last = one
        elif kind == "request":
            question = self._asked[key(message["id"])] = Asked(message["method"], message.get("params"))
            if self._open:
                next(reversed(self._open.values())).told.append(question)
            elif self._last is not None and self._last.method.startswith("notifications/"):
                self._keep(self._last)
                self._last.told.append(question)
        elif kind == "answer":
            question = self._asked.pop(key(message["id"]), None)
            if question is not None:
                question.answer = {key: message[key] for key in ("result", "error") if key in message}
        elif kind == "notification":
            self._told(message)

    def _told(self, message: Mapping[str, Any]) -> None:
        mine = list(self._open.values())
        if message["method"] == "notifications/progress":
            token = mapping(message.get("params")).get("progressToken")
            mine = [one for one in mine if mapping(mapping(one.params).get("_meta")).get("progressToken") == token]
        if mine:
            mine[-1].told.append(dict(message))
        elif self._last is not None and message["method"] != "notifications/progress":
            self._keep(self._last)
            self._last.after.append(dict(message))

    def _keep(self, notice: Exchange) -> None:
        """A notification of the client is an exchange where the server did something because of it."""
        if notice.method.startswith("notifications/") and not notice.told and not notice.after:
            self._found.append(("", notice))
