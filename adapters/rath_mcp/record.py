"""Recording: the frames of one connection, folded into chunks as they come.

A `Connection` takes frames of both directions, from any thread, and writes to a `Book`: one session's share of it. What a tool
call needs is written when it is sent, so that a call whose answer never comes is on record, too. `rath_mcp.bodies` has the table
of what becomes what.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import RLock
from typing import Any, Final

from rath_bridge.model.chunk import SpanContext, now
from rath_bridge.model.digests import new_id
from rath_bridge.model.kinds import Body, Error, Note, Run, ToolResult
from rath_mcp import bodies
from rath_mcp.bodies import meta_of
from rath_mcp.exchange import Book, Caller, Exchange, Server, key_of
from rath_mcp.frames import Direction, Frame, Numbered, mapping, shape, to_native

_SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
_PROTOCOL: Final = "io.modelcontextprotocol/protocolVersion"
PROGRESS_LIMIT: Final = 1000
"""Progress notifications that wait for their result; beyond it they are written as notes."""


class Connection:
    """One connection between a client and a server, from its first frame to `close`."""

    def __init__(self, home: Book, *, label: str | None = None, id: str | None = None) -> None:  # noqa: A002 - the field's name
        """Begin to listen; nothing is written before the first frame.

        Args:
            home: Where frames go that no caller sent.
            label: What to call the server where it does not say its name.
            id: Identifies the connection in native records; random, when absent.
        """
        self.id = id or new_id(8)
        self.label = label
        self.home = home
        self.server = Server()
        self._lock = RLock()
        self.count = 0
        self.open: dict[tuple[Direction, str], Exchange] = {}
        self.tokens: dict[str, Exchange] = {}
        self.hello: dict[tuple[Direction, str], str] = {}
        self.before: list[Numbered] = []
        """The handshake's frames, kept for the chunk with which the run begins."""
        self.waiting: list[Numbered] = []
        """What the server sent before it answered the handshake."""
        self.books: list[Book] = []
        self.closed = False

    # ---------------------------------------------------------------- frames

    def see(self, frame: Frame, book: Book | None = None, caller: Caller | None = None) -> None:
        """Take the next frame, before it is passed on.

        Args:
            frame: As it crosses the wire.
            book: The session that a frame sent from here belongs to; ``home``, when absent.
            caller: Who sends it.
        """
        with self._lock:
            item = Numbered(self.id, self.count, frame)
            self.count += 1
            kind = shape(frame.message) if frame.decodable else "other"
            if self.hello and frame.direction == "s2c" and kind != "answer":
                self.waiting.append(item)
                return
            self._take(kind, frame, [item], book or self.home, caller or Caller())

    def _take(self, kind: str, frame: Frame, kept: list[Numbered], book: Book, caller: Caller) -> None:
        if kind == "batch" and frame.message:  # of protocol 2025-03-26: understood one by one, each keeps the whole frame
            for message in frame.message:
                one = Frame(direction=frame.direction, message=message, t=frame.t)
                self._take("other" if isinstance(message, list) else shape(message), one, kept, book, caller)
        elif kind == "request":
            self._request(frame, kept, book, caller)
        elif kind == "answer":
            self._answer(frame, kept)
        elif kind == "notification":
            self._notification(frame, kept, book)
        else:
            self._note("unreadable", kept, book, {"rath.mcp.unmatched": frame.problem or "not a JSON-RPC message"}, frame)

    def _request(self, frame: Frame, kept: list[Numbered], book: Book, caller: Caller) -> None:
        message, by = mapping(frame.message), frame.direction
        method, params = message["method"], message.get("params")
        key: tuple[Direction, str] = (by, key_of(message["id"]))
        version = meta_of(params).get(_PROTOCOL)
        if isinstance(version, str):
            self.server.protocol = version
        if method in bodies.HANDSHAKE and by == "c2s":
            self.hello[key] = method
            self.before += kept
            self.server.client = mapping(params).get("clientInfo", self.server.client)
            return
        if key in self.open:
            self._fail(self.open[key], "superseded")
        server_run = self._begin(book)
        run = caller.run.id if caller.run is not None else book.run_id
        above = caller.run.span if caller.run is not None else server_run
        span = bodies.span_of(params) or SpanContext(above.trace_id, new_id(8), above.span_id)
        side = "" if by == "c2s" else "s:"
        exchange = Exchange(
            id=message["id"], by=by, method=method, params=params, at=_at(frame), book=book, run=run,
            call_id=f"{self.id}:{side}{key[1]}", span=span, frames=kept,
        )  # fmt: skip
        self.open[key] = exchange
        token = meta_of(params).get("progressToken")
        if token is not None:
            self.tokens[by + key_of(token)] = exchange
        if exchange.is_call:
            attributes = {"jsonrpc.request.id": str(message["id"]), "rath.mcp.connection": self.id, **caller.attributes}
            if self.server.protocol is not None:
                attributes["mcp.protocol.version"] = self.server.protocol
            body = bodies.call_body(
                method,
                params,
                call_id=exchange.call_id,
                server=self.server.name,
                by_server=by == "s2c",
                attributes=attributes,
                effect=self.server.effect(params) if method == "tools/call" else None,
            )
            exchange.name = body.name
            exchange.frames = []
            self._emit(book, body, exchange.run, exchange.at, kept, span)

    def _answer(self, frame: Frame, kept: list[Numbered]) -> None:
        answer = mapping(frame.message)
        asker: Direction = "c2s" if frame.direction == "s2c" else "s2c"
        key, basis = self._match(asker, answer["id"])
        hello = self.hello.pop(key, None)
        if hello is not None:
            self._greeted(hello, answer, kept)
            return
        exchange = self.open.pop(key, None)
        if exchange is None:
            why = "it answers no open request"
            self._note("answer", kept, None, {"rath.mcp.unmatched": why}, frame)
            return
        self._learn(exchange, answer)
        self._forget(exchange)
        at = _at(frame)
        if exchange.is_call:
            body = bodies.result_body(
                answer, name=exchange.name, call_id=exchange.call_id, duration=max(0, at - exchange.at) / 1e6, basis=basis,
                attributes=_progress(exchange) | _status(frame),
            )  # fmt: skip
            self._emit(exchange.book, body, exchange.run, at, [*exchange.frames, *kept], exchange.span)
        else:
            status = {"rath.status": "error" if "error" in answer else "ok"}
            self._note(exchange.method, [*exchange.frames, *kept], exchange.book, status, frame)

    def _notification(self, frame: Frame, kept: list[Numbered], book: Book) -> None:
        message = mapping(frame.message)
        method, params = message["method"], mapping(message.get("params"))
        if method == "notifications/cancelled":
            exchange = self.open.get(self._match(frame.direction, params.get("requestId"))[0])
            if exchange is not None:
                why = params.get("reason")
                self._fail(exchange, bodies.cancel_reason(params), kept, _at(frame), why if isinstance(why, str) else None)
                return
        elif method == "notifications/progress" and "progressToken" in params:
            asker: Direction = "c2s" if frame.direction == "s2c" else "s2c"
            exchange = self.tokens.get(asker + key_of(params["progressToken"]))
            if exchange is not None and len(exchange.progress) < PROGRESS_LIMIT:
                told = {key: value for key, value in params.items() if key != "progressToken"}
                exchange.progress.append({"at": _at(frame), **told})
                exchange.frames += kept
                return
            if exchange is not None:
                self._note(method, kept, exchange.book, frame=frame)
                return
        else:
            self._note(method, kept, book, frame=frame)
            return
        self._note(method, kept, book, {"rath.mcp.unmatched": "it names no open request"}, frame)

    # ---------------------------------------------------------------- what is no frame

    def fail(self, request_id: Any, reason: str, detail: str | None = None) -> bool:
        """Close a request of the client that will get no answer; False where it is closed already.

        Args:
            request_id: Its JSON-RPC id.
            reason: ``timeout``, ``cancelled``, ``stream_ended``, ``server_exit`` ...
            detail: What the client was told, or said.
        """
        with self._lock:
            exchange = self.open.get(("c2s", key_of(request_id)))
            if exchange is not None:
                self._fail(exchange, reason, detail=detail)
            return exchange is not None

    def client_error(self, error: BaseException, book: Book, run: str | None) -> None:
        """Record that the client's code refused what the server answered: a second fact beside the answer."""
        with self._lock:
            self._begin(book)
            body = Error(type=type(error).__name__, message=str(error)[:2000], where="mcp client")
            self._emit(book, body, run or book.run_id, now(), [], None)

    def begin(self) -> None:
        """Begin the server's run where nothing has been said yet: that it was there is worth telling."""
        with self._lock:
            self._begin(self.home)

    def close(self, reason: str = "stream_ended", error: str | None = None, at: int | None = None) -> None:
        """End the connection: open calls are closed ``no_response``, and the server's run ends. Safe to call twice.

        Args:
            reason: ``stream_ended`` (the server's side ended), ``client_closed``, ``server_exit`` ...
            error: What went wrong, where something did.
            at: Microseconds since 1970; now, when absent.
        """
        with self._lock:
            if self.closed:
                return
            self.closed = True
            left = len(self.open) + len(self.hello)
            if self.hello or self.before or self.waiting:
                self.hello.clear()
                self._begin(self.home)
                self._release()
            for exchange in list(self.open.values()):
                self._fail(exchange, reason, at=at)
            if error is None and left and reason != "client_closed":
                error = f"{reason} with {left} request(s) open"
            for book in self.books:
                body = Run(
                    phase="end", name=self._name, type="server", status="error" if error else "ok", error=error,
                    tools=tuple(self.server.tools.values()) or tuple(self.server.lists), attributes=self.server.attributes(),
                )  # fmt: skip
                self._emit(book, body, book.run_id, at or now(), [], book.run)

    def _fail(
        self, exchange: Exchange, reason: str, kept: Sequence[Numbered] = (), at: int | None = None, detail: str | None = None
    ) -> None:
        self.open.pop((exchange.by, exchange.key), None)
        self._forget(exchange)
        at = now() if at is None else at
        frames = [*exchange.frames, *kept]
        if not exchange.is_call:
            self._note(exchange.method, frames, exchange.book, {"rath.status": "no_response", "rath.reason": reason})
            return
        body = ToolResult(
            name=exchange.name, call_id=exchange.call_id, status="no_response", reason=reason, error=detail,
            duration=max(0, at - exchange.at) / 1e6, attributes=_progress(exchange),
        )  # fmt: skip
        self._emit(exchange.book, body, exchange.run, at, frames, exchange.span)

    # ---------------------------------------------------------------- inside

    @property
    def _name(self) -> str:
        return self.server.name or self.label or "mcp"

    def _greeted(self, method: str, answer: Mapping[str, Any], kept: list[Numbered]) -> None:
        self.before += kept
        result = mapping(answer.get("result"))
        if not result:  # a server of the older era refuses server/discover: initialize follows
            return
        server = self.server
        server.info = mapping(result.get("serverInfo")) or server.info
        server.capabilities = result.get("capabilities", server.capabilities)
        if isinstance(result.get("instructions"), str):
            server.instructions = result["instructions"]
        if method == "initialize" and isinstance(result.get("protocolVersion"), str):
            server.protocol = result["protocolVersion"]
        self._introduced(result)
        self._begin(self.home)
        self._release()

    def _introduced(self, result: Mapping[str, Any]) -> None:
        info = mapping(meta_of(result).get(_SERVER_INFO))
        if info and not self.server.info:
            self.server.info = info

    def _release(self) -> None:
        """Write what had to wait for the handshake."""
        if self.before:  # the run had begun without it
            self._note("handshake", self.before, self.home)
            self.before = []
        waiting, self.waiting = self.waiting, []
        for item in waiting:
            kind = shape(item.frame.message) if item.frame.decodable else "other"
            self._take(kind, item.frame, [item], self.home, Caller())

    def _learn(self, exchange: Exchange, answer: Mapping[str, Any]) -> None:
        result = mapping(answer.get("result"))
        self._introduced(result)
        if exchange.method == "tools/list" and isinstance(result.get("tools"), list):
            if mapping(exchange.params).get("cursor") is None:
                self.server.tools.clear()
            for tool in result["tools"]:
                self.server.tools[str(mapping(tool).get("name"))] = tool

    def _begin(self, book: Book) -> SpanContext:
        """Return the server's run in a book; it begins with the first thing to tell."""
        if book.run is not None:
            return book.run
        above = book.parent
        book.run = SpanContext(above.span.trace_id if above else book.trace_id, new_id(8), above.span.span_id if above else None)
        frames: list[Numbered] = []
        if book is self.home:
            frames, self.before = self.before, []
        first = frames[0].frame.at if frames else None
        self.books.append(book)
        body = Run(
            phase="begin", name=self._name, type="server", parent=above.id if above else None, native_id=self.id,
            system_instructions=self.server.instructions, attributes=self.server.attributes(),
        )  # fmt: skip
        self._emit(book, body, book.run_id, first or now(), frames, book.run)
        return book.run

    def _match(self, asker: Direction, request_id: Any) -> tuple[tuple[Direction, str], str | None]:
        """Find a request by the id of its answer; some servers turn numbers into text, and the SDKs accept that."""
        key = (asker, key_of(request_id))
        if key not in self.open and key not in self.hello and isinstance(request_id, str) and request_id.isdecimal():
            number = (asker, key_of(int(request_id)))
            if number in self.open or number in self.hello:
                return number, "inferred"
        return key, None

    def _forget(self, exchange: Exchange) -> None:
        for token in [token for token, found in self.tokens.items() if found is exchange]:
            del self.tokens[token]

    def _note(
        self,
        text: str,
        kept: Sequence[Numbered],
        book: Book | None,
        attributes: Mapping[str, Any] | None = None,
        frame: Frame | None = None,
    ) -> None:
        book = book or self.home
        self._begin(book)
        at = now() if frame is None else _at(frame)
        self._emit(book, Note(text=text, author="mcp", attributes=dict(attributes or {})), book.run_id, at, kept, None)

    def _emit(self, book: Book, body: Body, run: str, at: int, kept: Sequence[Numbered], span: SpanContext | None) -> None:
        origin = {"adapter": "rath_mcp", "framework": "mcp", "version": self.server.protocol or "unknown"}
        native = to_native(kept, self.server.protocol or "") if kept else None
        book.emit(body, run=run, at=at, origin=origin, span=span, native=native)


def _at(frame: Frame) -> int:
    return now() if frame.at is None else frame.at


def _progress(exchange: Exchange) -> dict[str, Any]:
    return {"rath.mcp.progress": list(exchange.progress)} if exchange.progress else {}


def _status(frame: Frame) -> dict[str, Any]:
    status = frame.extra.get("status")
    return {} if status is None else {"http.response.status_code": status}
