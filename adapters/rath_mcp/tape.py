"""A tape: what a session knows of servers' answers, request by request, in the order in which they were asked.

It is read from the wire records of `rath_mcp`'s own recorders; calls that another framework recorded are told as MCP would have
told them (`rath_mcp.encode`). Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from rath_bridge.model.kinds import ToolResult
from rath_bridge.session import Session
from rath_mcp.asked import Asked, Json
from rath_mcp.encode import encode
from rath_mcp.frames import CODEC, Frame, frame_from_json, mapping, shape

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


def tape(session: Session) -> list[Exchange]:
    """Read the exchanges of a session's line that a client began."""
    chunks = list(session.chunks())
    frames = [frame_from_json(item) for item in encode(session, "frames")[0]]
    found = list(_exchanges(frames))
    reasons: dict[str, str] = {}
    told: set[str] = set()
    for chunk in chunks:
        ref = chunk.native_ref if chunk.body_bytes is not None else None
        if ref is not None and ref["framework"] == "mcp" and ref["codec"] == CODEC:
            told.add(chunk.id)
        if chunk.kind == "tool_result" and chunk.body_bytes is not None:
            body = cast(ToolResult, chunk.body)
            if body.status == "no_response" and body.call_id and body.reason:
                reasons[body.call_id] = body.reason
                reasons[f":{body.call_id.partition(':')[2]}"] = body.reason  # frames of a lone connection do not name it
    for name, exchange in found:
        exchange.reason = reasons.get(name) if exchange.answer is None else None
    pairs, report = encode(session, "results")
    place = {chunk.id: (chunk.at * 1000, chunk.position) for chunk in chunks}
    others: list[Exchange] = []
    for entry in report.manifest:
        pair = pairs[entry.position]
        request = mapping(pair.get("request"))
        if entry.chunk in told or not request:
            continue
        answer = {key: pair[key] for key in ("result", "error") if key in pair}
        others.append(Exchange(str(request.get("method")), request.get("params"), place[entry.chunk], answer))
    return sorted([*(exchange for _, exchange in found), *others], key=lambda one: one.at)


def _exchanges(frames: Sequence[Frame]) -> Iterable[tuple[str, Exchange]]:
    """Pair the requests of clients with their answers, within each connection; named by call id, as the recorder names them."""
    opened: dict[tuple[str, str], Exchange] = {}
    asked: dict[tuple[str, str], Asked] = {}
    notified: dict[str, Exchange] = {}
    found: list[tuple[str, Exchange]] = []
    for index, frame in enumerate(frames):
        if not frame.decodable:
            continue
        connection = str(frame.extra.get("connection", ""))
        whole: Any = frame.message
        messages: list[Any] = whole if shape(whole) == "batch" else [whole]
        for message in messages:
            kind, data = shape(message), mapping(message)
            if kind == "request" and frame.direction == "c2s":
                one = Exchange(data["method"], data.get("params"), (frame.t or 0, index))
                opened[connection, str(data["id"])] = one
                found.append((f"{connection}:{data['id']}", one))
            elif kind == "answer" and frame.direction == "s2c":
                one = opened.pop((connection, str(data["id"])), None)
                if one is not None:
                    one.answer = {key: data[key] for key in ("result", "error") if key in data}
            elif kind == "request":
                question = asked[connection, str(data["id"])] = Asked(data["method"], data.get("params"))
                mine = [one for (name, _), one in opened.items() if name == connection]
                if not mine and connection in notified:  # asked because of what the client had told
                    mine = [notified[connection]]
                    if not mine[0].told:
                        found.append(("", mine[0]))
                if mine:
                    mine[-1].told.append(question)
            elif kind == "answer":
                question = asked.pop((connection, str(data["id"])), None)
                if question is not None:
                    question.answer = {key: data[key] for key in ("result", "error") if key in data}
            elif kind == "notification" and frame.direction == "c2s":
                notified[connection] = Exchange(data["method"], None, (frame.t or 0, index), {})
            elif kind == "notification":
                _tell(data, connection, opened)
    return found


def _tell(message: Mapping[str, Any], connection: str, opened: Mapping[tuple[str, str], Exchange]) -> None:
    method, params = message["method"], mapping(message.get("params"))
    mine = [one for (name, _), one in opened.items() if name == connection]
    if method == "notifications/progress":
        mine = [
            one for one in mine if mapping(mapping(one.params).get("_meta")).get("progressToken") == params.get("progressToken")
        ]
    if mine and method in ("notifications/progress", "notifications/message"):
        mine[-1].told.append(dict(message))
