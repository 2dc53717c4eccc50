"""In process: a tee on the transport of an MCP client, which also knows which run sent each request.

It stands between ``ClientSession`` and its streams, so it sees what crosses the wire and not what the SDK makes of it. The
receiving task of a session runs in the context in which the connection was opened; who calls is therefore read on the send side,
by request id. Both SDK lines (1.28+ and 2.x) are supported; nothing of ``mcp`` is imported before it is used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final, TypeVar, cast

from rath_bridge.aio import in_thread
from rath_bridge.errors import RecorderError, UnsupportedError
from rath_bridge.given import check_store
from rath_bridge.model.kinds import Gap
from rath_bridge.plugins import require
from rath_bridge.recorder import Recorder, current_recorder, current_run, recorder_for
from rath_bridge.session import Store, open_store
from rath_mcp import bodies
from rath_mcp.exchange import Book, Caller
from rath_mcp.marks import mark_request
from rath_mcp.record import Connection
from rath_mcp.streams import TeeRead, TeeWrite, dump, frame_of, receive_from

T = TypeVar("T")
_log: Final = logging.getLogger("rath_bridge")
_sent: Final[ContextVar[list[Any] | None]] = ContextVar("rath_mcp_sent", default=None)
"""Ids of the requests that the enclosing ``send_request`` has put on the wire."""


class ClientRecorder:
    """Writes one client connection into sessions: the ambient recorder's, where a call is made inside one, else its own."""

    def __init__(
        self,
        store: Store | None = None,
        session: str | None = None,
        *,
        label: str | None = None,
        durable: bool = False,
        **options: Any,
    ) -> None:
        """Prepare to record; nothing is opened or written before the first frame.

        Args:
            store: Where to write outside of any recorder; the default store, when absent.
            session: Write there, whatever is ambient.
            label: What to call the server where it does not say its name.
            durable: Make each tool call durable before it is sent; otherwise it is within 100 ms.
            **options: Of `rath_bridge.recorder.Recorder`.
        """
        check_store(store, "record_client", session, optional=True)
        self._durable = durable
        self._due: Book | None = None
        self._marked = False
        self._told: Exception | None = None
        self._store, self._session, self._label, self._options = store, session, label, options
        self._own: Recorder | None = None
        self._books: dict[str, tuple[Recorder, Book]] = {}
        self._connection: Connection | None = None
        recorder, ours = self._ambient()
        if recorder is not None and ours:
            self._books[recorder.id] = (recorder, Book(recorder.emit, recorder.trace_id, current_run()))

    def sends(self, message: Any) -> None:
        """Record a message of the client, in the context of the code that sends it."""
        with self._guard():
            book, caller = self._choose()
            if not self._marked:
                self._marked = any(mark_request(message, one.store.url) for one, its in self._books.values() if its is book)
            frame = frame_of(message, "c2s")
            if frame.decodable and "method" in frame.message and "id" in frame.message:
                sent = _sent.get()
                if sent is not None:
                    sent.append(frame.message["id"])
            self.connection.see(frame, book, caller)
            if self._durable and frame.decodable and frame.message.get("method") == "tools/call":
                self._due = book

    async def settled(self) -> None:
        """Wait until the tool call that is about to be sent is durable, where that was asked for."""
        due, self._due = self._due, None
        for recorder, book in list(self._books.values()):
            if book is due:
                await in_thread(recorder.flush)

    def receives(self, message: Any) -> None:
        """Record a message of the server, or the exception that stands for one."""
        with self._guard():
            self.connection.see(frame_of(message, "s2c"))

    def failed(self, request_ids: list[Any], error: BaseException) -> None:
        """Record how a request ended for the client that got no answer, or refused the one that came."""
        with self._guard():
            reason, is_protocol = reason_of(error)
            for request_id in request_ids:
                still_open = self.connection.fail(request_id, reason, str(error)[:2000] or None)
                if not still_open and isinstance(error, Exception) and not is_protocol:
                    self.refused(error)

    def refused(self, error: Exception) -> None:
        """Record that the client's code refused an answer, unless that is on record."""
        if error is not self._told and not reason_of(error)[1]:
            with self._guard():
                book, caller = self._choose()
                self._told = error
                self.connection.client_error(error, book, caller.run.id if caller.run else None)

    def close(self, reason: str) -> None:
        """End the connection's runs. Safe to call twice."""
        if self._connection is None or self._connection.closed:
            return
        with self._guard():
            self._connection.close(reason)
        if self._own is not None:
            self._own.close()

    @property
    def connection(self) -> Connection:
        """The fold; made with the first frame."""
        if self._connection is None:
            home = next((book for _, book in self._books.values()), None) or self._choose()[0]
            self._connection = Connection(home, label=self._label)
        return self._connection

    def _ambient(self) -> tuple[Recorder | None, bool]:
        """The ambient recorder, and whether it is the one to write to."""
        ambient = current_recorder()
        if ambient is None or self._session is None:
            return ambient, ambient is not None
        return ambient, self._session == ambient.name and self._store in (None, ambient.store)

    def _choose(self) -> tuple[Book, Caller]:
        recorder, ours = self._ambient()
        if recorder is not None and ours:
            if recorder.id not in self._books:
                self._books[recorder.id] = (recorder, Book(recorder.emit, recorder.trace_id))
            return self._books[recorder.id][1], Caller(current_run())
        elsewhere = {}
        run = current_run()
        if recorder is not None and run is not None:  # a run of another session: named, never pointed at
            elsewhere = {"rath.mcp.caller": {"session": recorder.name, "run": run.id, "name": run.name}}
        if self._own is None:
            store = self._store or (recorder.store if recorder is not None else open_store())
            self._own = (
                Recorder.late(store, self._session, **self._options)
                if self._session
                else recorder_for(store, "mcp", **self._options)[0]
            )
            self._books[self._own.id] = (self._own, Book(self._own.emit, self._own.trace_id))
        return self._books[self._own.id][1], Caller(None, elsewhere)

    @contextmanager
    def _guard(self) -> Generator[None]:
        """Never break the session that is watched (unless its recorder is strict), never fail in silence."""
        try:
            yield
        except RecorderError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the user's session goes on
            _log.warning("rath_bridge: an MCP frame could not be recorded: %s: %s", type(error).__name__, error)
            for recorder, _ in list(self._books.values())[:1]:
                recorder.emit(Gap(count=1, reason=f"an MCP frame could not be recorded ({type(error).__name__})"), run=None)


def record_client(
    client_session: T, store: Store | None = None, session: str | None = None, *, label: str | None = None, **options: Any
) -> T:
    """Record every frame of an ``mcp.ClientSession``, both ways, from here on.

    Best before ``initialize``; an initialised session may be given, too, but then the server's name is not on record. Calls land
    under the run that makes them (`rath_bridge.recorder.current_run`), else under the server's own run.

    Args:
        client_session: A ``ClientSession`` of SDK 1.28+ or 2.x, entered or not.
        store: Where to write outside of any recorder; the default store, when absent.
        session: Name of the session to write to, whatever recorder is ambient.
        label: What to call the server where it does not say its name.
        **options: ``durable=True`` (a tool call is durable before it is sent), and those of `rath_bridge.recorder.Recorder`.

    Returns:
        The same session.

    Raises:
        UnsupportedError: It has no streams (an in-process server of SDK 2.x).
    """
    held: Any = client_session
    if getattr(held, "_rath_mcp_recorder", None) is not None:  # once is enough
        return client_session
    holder = getattr(held, "_dispatcher", held)
    if not (hasattr(holder, "_read_stream") and hasattr(holder, "_write_stream")):
        raise UnsupportedError(
            "record_client needs a ClientSession over streams, and this one has none: "
            "connect over stdio or HTTP, or give it tee(read, write, recorder)"
        )
    recorder = ClientRecorder(store, session, label=label, **options)
    entered = getattr(held, "_task_group", None) is not None
    if not entered:
        holder._read_stream = TeeRead(holder._read_stream, recorder)
    elif holder is held:
        _tap_running_1x(held, recorder)
    else:
        _tap_running_2x(holder, recorder)
    holder._write_stream = TeeWrite(holder._write_stream, recorder)
    held.send_request = _watched(_method(held, "send_request"), recorder)
    held.call_tool = _judged(_method(held, "call_tool"), recorder)
    held._rath_mcp_recorder = recorder
    return client_session


@contextmanager
def record_clients(store: Store | None = None, session: str | None = None, **options: Any) -> Generator[None]:
    """Record every ``ClientSession`` that is made inside the block, whoever makes it.

    For hosts that make their sessions themselves: ``MultiServerMCPClient`` of langchain-mcp-adapters, ``MCPServerStdio`` of the
    OpenAI Agents SDK, ``McpWorkbench`` of AutoGen. The sessions are recorded to their end, also when that is after the block.

    Args:
        store: Where to write outside of any recorder; the default store, when absent.
        session: Name of the session to write to, whatever recorder is ambient.
        **options: Of `record_client`.

    Raises:
        MissingExtraError: ``mcp`` is not installed.
    """
    check_store(store, "record_clients", session, optional=True)
    made = require("mcp.client.session", "record_clients", "mcp").ClientSession
    plain = made.__init__

    @wraps(plain)
    def init(self: Any, *args: Any, **given: Any) -> None:
        plain(self, *args, **given)
        if hasattr(getattr(self, "_dispatcher", self), "_read_stream"):
            record_client(self, store, session, **options)

    made.__init__ = init
    try:
        yield
    finally:
        made.__init__ = plain


def _method(session: Any, name: str) -> Callable[..., Any]:
    """Return a method that is looked up when it is called, as Python does: what stands in its class may change (in a replay)."""
    if name in vars(session):
        return cast("Callable[..., Any]", vars(session)[name])
    kind = cast(Any, type(session))

    def method(*args: Any, **given: Any) -> Any:
        return getattr(kind, name)(session, *args, **given)

    return wraps(cast("Callable[..., Any]", getattr(session, name)))(method)


def _watched(send_request: Callable[..., Any], recorder: ClientRecorder) -> Callable[..., Any]:
    """Wrap ``ClientSession.send_request``: it alone knows that the client stopped waiting."""

    @wraps(send_request)
    async def watched(*args: Any, **given: Any) -> Any:
        sent: list[Any] = []
        token = _sent.set(sent)
        try:
            return await send_request(*args, **given)
        except BaseException as error:
            recorder.failed(sent, error)
            raise
        finally:
            _sent.reset(token)

    return watched


def _judged(call_tool: Callable[..., Any], recorder: ClientRecorder) -> Callable[..., Any]:
    """Wrap ``ClientSession.call_tool``: it may refuse what came (structured content against the output schema), and say only that."""

    @wraps(call_tool)
    async def judged(*args: Any, **given: Any) -> Any:
        try:
            return await call_tool(*args, **given)
        except Exception as error:
            recorder.refused(error)
            raise

    return judged


def _tap_running_1x(session: Any, recorder: ClientRecorder) -> None:
    """Listen to a session whose receive loop may wait in ``receive`` already: that message is caught where it is handled."""
    stream = session._read_stream
    plain_receive, plain_aclose = stream.receive, stream.aclose
    hooks = ("_handle_response", "_received_request", "_received_notification", "_handle_incoming")
    caught: list[bool] = []

    def hook(name: str) -> Callable[..., Any]:
        plain = getattr(session, name)

        async def handle(given: Any) -> Any:
            if not caught:
                caught.append(True)
                recorder.receives(_given_back(given))
            return await plain(given)

        return handle

    if stream.statistics().tasks_waiting_receive:
        for name in hooks:
            setattr(session, name, hook(name))

    async def receive() -> Any:
        for name in hooks:
            session.__dict__.pop(name, None)
        return await receive_from(plain_receive, recorder)

    async def aclose() -> None:
        recorder.close("client_closed")
        await plain_aclose()

    stream.receive, stream.aclose = receive, aclose


def _given_back(given: Any) -> Any:
    """Return the message in what a handler of SDK 1.x is given."""
    request = getattr(given, "request", None)
    if request is not None:  # a RequestResponder
        root = getattr(request, "root", request)
        return {"jsonrpc": "2.0", "id": given.request_id, **dump(root, outgoing=False)}
    if isinstance(given, Exception) or hasattr(given, "message"):
        return given
    return {"jsonrpc": "2.0", **dump(getattr(given, "root", given), outgoing=False)}


def _tap_running_2x(dispatcher: Any, recorder: ClientRecorder) -> None:
    """Listen where the running read loop of SDK 2.x hands on each item."""
    plain_dispatch, plain_closed = dispatcher._dispatch, dispatcher._fan_out_closed

    async def dispatch(item: Any, *args: Any) -> Any:
        recorder.receives(item)
        return await plain_dispatch(item, *args)

    def closed() -> Any:
        recorder.close("stream_ended")
        return plain_closed()

    dispatcher._dispatch, dispatcher._fan_out_closed = dispatch, closed


def reason_of(error: BaseException) -> tuple[str, bool]:
    """Return why a request has no answer, and whether the SDK's protocol error says so."""
    if not isinstance(error, Exception):
        return "cancelled", False
    code = getattr(getattr(error, "error", error), "code", None)
    if not isinstance(code, int):
        ended = type(error).__name__ in ("ClosedResourceError", "BrokenResourceError", "EndOfStream")
        return ("stream_ended", True) if ended else ("client_error", False)
    return ("timeout" if code in bodies.TIMEOUTS else "stream_ended" if code == bodies.CLOSED else "protocol_error"), True
