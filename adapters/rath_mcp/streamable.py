"""The HTTP proxy: ``rath-bridge mcp record --http URL --listen 127.0.0.1:PORT``, for streamable HTTP of both protocol eras.

A plain reverse proxy on loopback: bodies pass as they come, event streams event by event. Before a request is passed on its
message stands in the spool, before an answer is, too. A connection is what ``Mcp-Session-Id`` names; requests without one share a
connection, and a second request with an id that is still open opens another beside it. Source: MCP, basic transports (2025-11-25,
2026-07-28).
"""

from __future__ import annotations

import json
import os
import select
import socket
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from io import BufferedIOBase
from itertools import chain, count
from threading import Event, Lock, Thread
from time import time_ns
from typing import Any, Final
from urllib.parse import urlsplit

from rath_bridge.model.digests import digest
from rath_mcp.events import Events
from rath_mcp.frames import Direction, Frame, mapping, parse_line, shape
from rath_mcp.loopback import LoopbackHandler, LoopbackServer, refusal
from rath_mcp.spool import EVENT, Spool
from rath_mcp.stdio import label_of, recording, say

KEPT: Final = ("mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name", "traceparent", "last-event-id", "content-type")
"""Headers that stand in the record; no others do, and no credentials."""
_HOP: Final = frozenset({
    "host", "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade",
    "content-length", "accept-encoding",
})  # fmt: skip
PIECE: Final = 1 << 18
_HANG_UP: Final = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)


class Tape:
    """Where frames go, and which connection each belongs to."""

    def __init__(self, spool: Spool | None, wake: int | None, durable: bool) -> None:
        self._spool, self._wake, self._durable = spool, wake, durable
        self._lock = Lock()
        self._open: dict[str, set[str]] = {}
        self._keys: dict[str, str] = {}
        self._count = 0
        self._nameless: list[str] = []
        """Connections of servers that greet without naming a session, newest first."""

    def place(self, session: str | None, ids: set[str], greeting: bool) -> str:
        """Return the connection for a message of the client, and hold its request ids there."""
        with self._lock:
            if session is not None:
                key = self._keys.setdefault(session, digest(session.encode())[:12])
            elif greeting:
                self._count += 1
                key = f"hello-{self._count}"
            else:
                lanes = chain(self._nameless, (f"lane-{number}" for number in count(1)))
                key = next(lane for lane in lanes if not self._open.get(lane, set()) & ids)
            self._open.setdefault(key, set()).update(ids)
            return key

    def named(self, session: str, key: str) -> None:
        """The server has given a connection its name."""
        with self._lock:
            self._keys.setdefault(session, key)

    def nameless(self, key: str) -> None:
        """The server has greeted and given no name: what comes without one belongs here."""
        with self._lock:
            self._nameless.insert(0, key)

    def done(self, key: str, ids: set[str]) -> None:
        """Requests are answered, or will never be."""
        with self._lock:
            self._open.get(key, set()).difference_update(ids)

    def frame(self, data: bytes, direction: Direction, key: str, **extra: Any) -> Frame:
        """Put a message down; returns it."""
        frame = parse_line(data, direction, time_ns())
        sync = direction == "c2s" and self._durable
        if frame.decodable and json.detect_encoding(data) == "utf-8":  # it stands in the event as it came: it may be large
            head = json.dumps({**extra, "dir": direction, "t": frame.t, "msg": 0}).encode()
            self._put(b'{"connection": %b, "frame": %b%b}}' % (json.dumps(key).encode(), head[:-2], data), sync)
        else:
            self._put(json.dumps({"connection": key, "frame": {**frame.to_json(), **extra}}).encode(), sync)
        return frame

    def event(self, facts: dict[str, Any]) -> None:
        """Put an event down, and wake the keeper."""
        self._put(json.dumps(facts).encode())

    def _put(self, event: bytes, sync: bool = False) -> None:
        if self._spool is not None and self._wake is not None:
            self._spool.write(EVENT, event, sync)
            with suppress(OSError):
                os.write(self._wake, b".")


class Post:
    """The requests of one body, until each has its answer."""

    def __init__(self, tape: Tape, body: bytes, headers: dict[str, str]) -> None:
        self._tape = tape
        frame = parse_line(body, "c2s")
        whole: Any = frame.message if frame.decodable else None
        messages: list[Any] = whole if shape(whole) == "batch" else [whole]
        asked = [mapping(one) for one in messages if shape(one) == "request"]
        self.waiting: dict[str, Any] = {json.dumps(one["id"]): one["id"] for one in asked}
        self.greeting = any(one["method"] == "initialize" for one in asked)
        self.key = tape.place(headers.get("mcp-session-id"), set(self.waiting), self.greeting)
        if body:
            tape.frame(body, "c2s", self.key, headers=headers)

    def answered(self, data: bytes, status: int, headers: dict[str, str]) -> None:
        """Put a message of the server down."""
        frame = self._tape.frame(data, "s2c", self.key, status=status, headers=headers)
        whole: Any = frame.message if frame.decodable else None
        messages: list[Any] = whole if shape(whole) == "batch" else [whole]
        ids = {json.dumps(mapping(one)["id"]) for one in messages if shape(one) == "answer"}
        for name in ids:
            self.waiting.pop(name, None)
        self._tape.done(self.key, ids)

    def over(self, reason: str, detail: str | None = None) -> None:
        """No more will come: what waits still was never answered."""
        if self.waiting:
            ids = list(self.waiting.values())
            self._tape.event({"connection": self.key, "failed": ids, "reason": reason, "detail": detail})
            self._tape.done(self.key, set(self.waiting))
            self.waiting.clear()


class Handler(LoopbackHandler):
    """One connection of a client."""

    server: Proxy  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:  # noqa: N802 - the name that http.server calls
        """Pass a request on."""
        self._forward()

    do_GET = do_POST  # noqa: N815 - the names that http.server calls
    do_DELETE = do_POST  # noqa: N815

    def _forward(self) -> None:
        why = refusal(self.headers)
        if why is not None:
            self.send_error(403, why)
            self.close_connection = True  # what it sent is not read
            return
        try:
            body = _sent(self.rfile, self.headers)
        except ValueError:
            self.send_error(400, "the length of the request cannot be read")
            self.close_connection = True
            return
        post = Post(self.server.tape, body, _kept(self.headers))
        over = Event()
        upstream = self.server.connect()
        try:
            try:
                headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
                upstream.request(
                    self.command, self.server.asks(self.path), body if body or self.command == "POST" else None, headers
                )
                Thread(target=_watch, args=(self.connection, upstream, over), daemon=True).start()
                response = upstream.getresponse()
            except (OSError, HTTPException) as error:
                gone = over.is_set()
                post.over("cancelled" if gone else "unreachable", None if gone else f"{type(error).__name__}: {error}")
                self.close_connection = True
                if not gone:
                    self.send_error(502, "the MCP server cannot be reached")
                return
            self._answer(response, post, over)
            if self.command == "DELETE" and response.status < 300:
                self.server.tape.event({"connection": post.key, "close": "client_closed"})
        finally:
            over.set()
            upstream.close()

    def _answer(self, response: HTTPResponse, post: Post, over: Event) -> None:
        kept = _kept(response.headers)
        if "mcp-session-id" in kept:
            self.server.tape.named(kept["mcp-session-id"], post.key)
        elif post.greeting and response.status < 300:
            self.server.tape.nameless(post.key)
        stream = "text/event-stream" in kept.get("content-type", "")
        length = response.getheader("content-length")
        self.send_response(response.status, response.reason)
        for name, value in response.getheaders():
            if name.lower() not in (*_HOP, "date", "server"):
                self.send_header(name, value)
        chunked = length is None and response.status not in (202, 204, 304)
        self.send_header(*(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", length or "0")))
        self.end_headers()
        events, body = Events(), list[bytes]()
        gone = True
        try:
            while data := response.read1(PIECE):
                if stream:
                    for message in events.feed(data):
                        post.answered(message, response.status, kept)
                    self._pass(data, chunked)
                    continue
                for piece in body[-1:]:  # the last one waits until the whole is put down
                    self._pass(piece, chunked)
                body.append(data)
            # Asked before the client can see the end: one that has all of it hangs up because of that.
            gone = over.is_set() and response.length != 0
            self._body(b"".join(body), post, response.status, kept)
            for piece in body[-1:]:
                self._pass(piece, chunked)
            if chunked:
                self.wfile.write(b"0\r\n\r\n")
            if response.length:  # the server broke off: who waits for the rest must not wait for ever
                self.close_connection = True
        except (OSError, HTTPException):
            self.close_connection = True
            gone = gone and over.is_set()
            with suppress(OSError):  # a server that broke off: what it said passes all the same
                for piece in body[-1:]:
                    self._pass(piece, chunked)
        post.over(*_end(response, events.rest() if stream else b"".join(body), gone))

    def _pass(self, data: bytes, chunked: bool) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
        self.wfile.flush()

    def _body(self, data: bytes, post: Post, status: int, kept: dict[str, str]) -> None:
        frame = parse_line(data, "s2c") if status >= 400 else None
        if data.strip() and (frame is None or (frame.decodable and shape(frame.message) == "answer")):
            post.answered(data, status, kept)


class Proxy(LoopbackServer):
    """The listening side."""

    def __init__(self, listen: tuple[str, int], upstream: str, tape: Tape) -> None:
        super().__init__(listen, Handler)
        self.tape = tape
        self._to = urlsplit(upstream)
        self.path = self._to.path

    def connect(self) -> HTTPConnection:
        """Return a connection to the server."""
        kind = HTTPSConnection if self._to.scheme == "https" else HTTPConnection
        return kind(self._to.hostname or "", self._to.port)

    def asks(self, asked: str) -> str:
        """Return the path to ask for: the server's own where the client asks for the root or for that path."""
        path, mark, query = asked.partition("?")
        base = self.path.rstrip("/")
        known = base if path in ("/", "", self.path, base) else path
        return f"{known or '/'}{mark}{query}"


def _end(response: HTTPResponse, held: bytes, gone: bool) -> tuple[str, str | None]:
    """How a request ended that has no answer: reason and detail.

    A status that was passed on whole counts before a client that hangs up: it has what it asked for.
    """
    if response.status >= 400 and not response.length:
        told = held.decode("utf-8", "replace")[:2000]
        return f"http_{response.status}", f"HTTP {response.status} {response.reason}: {told}"
    return ("cancelled" if gone else "stream_ended"), None


def _sent(source: BufferedIOBase, headers: Any) -> bytes:
    """Read the body of a request: of a length that is known, or in chunks (RFC 9112, section 7.1).

    Raises:
        ValueError: Its length is no number.
    """
    if "chunked" not in (headers.get("transfer-encoding") or "").lower():
        return source.read(int(headers.get("content-length") or 0))
    pieces: list[bytes] = []
    while size := int(source.readline(1000).partition(b";")[0], 16):
        pieces.append(source.read(size))
        source.readline(1000)
    while source.readline(1 << 16).strip():  # trailers
        pass
    return b"".join(pieces)


def _kept(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items() if name.lower() in KEPT}


def _watch(client: socket.socket, upstream: HTTPConnection, over: Event) -> None:
    """Hang up on the server when the client does: in the later era that is how a call is cancelled."""
    poll = select.poll()
    with suppress(OSError, ValueError):
        poll.register(client, _HANG_UP)
        while not over.is_set():
            if poll.poll(200) and not over.is_set():
                over.set()
                sock = upstream.sock
                if sock is not None:
                    sock.shutdown(socket.SHUT_RDWR)


def record(url: str, upstream: str, listen: tuple[str, int], session: str | None = None, durable: bool = False) -> int:
    """Be the proxy until a signal ends it.

    Args:
        url: The store's address.
        upstream: The MCP server's address.
        listen: Where to listen, on loopback.
        session: Where to write; ``mcp/`` and the server's host, when absent.
        durable: Have each request on disk before it is passed on.

    Raises:
        PlaceError: Another program listens there.
    """
    label = label_of([urlsplit(upstream).hostname or "http"])
    with recording(url, session or f"mcp/{label}", label=label) as (spool, wake):
        tape = Tape(spool, wake, durable)
        proxy = Proxy(listen, upstream, tape)
        proxy.end_by_signal()
        say(f"recording {upstream} on {proxy.address(proxy.path)}")
        with proxy:
            proxy.serve_forever(poll_interval=0.1)
        tape.event({"exit": 0, "reason": "client_closed"})
    return 0
