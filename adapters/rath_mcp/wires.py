"""The streams of a client session whose server is the record, and the process of a server that may never be started.

For both SDK lines: what is used of ``anyio`` and ``mcp`` is imported when the first session is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from time import time_ns
from typing import TYPE_CHECKING, Any, cast

from rath_bridge.errors import UnsupportedError
from rath_bridge.model.kinds import Run
from rath_bridge.recorder import current_recorder
from rath_bridge.replay import current_tape
from rath_mcp.exchange import Book
from rath_mcp.frames import Direction, Frame, shape
from rath_mcp.record import Connection
from rath_mcp.serving import Json
from rath_mcp.streams import TeeRead, TeeWrite, dump

if TYPE_CHECKING:
    from rath_mcp.staging import RecordedServer


def lead_to(session: Any, server: RecordedServer) -> None:
    """Lead a new client session to the record, below a recorder that listens to it already.

    Raises:
        UnsupportedError: It has no streams (an in-process server of SDK 2.x).
    """
    holder, read, write = _streams(session)
    wire = Wire(session, server, _inner(read), _inner(write))
    _put(holder, "_read_stream", wire.incoming)
    _put(holder, "_write_stream", Outgoing(wire))
    session._rath_mcp_wire = wire


def lead_open(session: Any, server: RecordedServer) -> None:
    """Lead a client session that was opened before the replay to the record, for as long as the replay runs."""
    holder, read, write = _streams(session)
    plain = _inner(write)
    before = plain.wire if isinstance(plain, Outgoing) else None
    wire = Wire(session, server, _inner(read), plain if before is None else before.write, opened=True)
    _put(holder, "_write_stream", Outgoing(wire))
    session._rath_mcp_wire = wire


def _streams(session: Any) -> tuple[Any, Any, Any]:
    holder = getattr(session, "_dispatcher", session)
    if not (hasattr(holder, "_read_stream") and hasattr(holder, "_write_stream")):
        raise UnsupportedError("this MCP session has no streams, so its server cannot be replayed: connect over stdio or HTTP")
    return holder, holder._read_stream, holder._write_stream


def _inner(stream: Any) -> Any:
    return stream.inner if isinstance(stream, (TeeRead, TeeWrite)) else stream


def _put(holder: Any, name: str, inner: Any) -> None:
    stream = getattr(holder, name)
    if isinstance(stream, (TeeRead, TeeWrite)):
        stream.inner = inner
    else:
        setattr(holder, name, inner)


class Wire:
    """One session's way to the record, and to the real server once something is made live."""

    def __init__(self, session: Any, server: RecordedServer, read: Any, write: Any, *, opened: bool = False) -> None:
        import anyio

        self._session, self._server, self._read, self.write = session, server, read, write
        self._opened = opened
        """The session was opened before the replay, and its server has been greeted."""
        if not opened:  # an open session goes on reading where it reads
            self._outgoing, self.incoming = anyio.create_memory_object_stream[Any](float("inf"))
        self._hello: Any = None
        self._echo: Echo | None = None
        self._pump: asyncio.Task[None] | None = None
        self._greeted: asyncio.Future[None] | None = None

    @property
    def tape(self) -> Any:
        """The replay that it belongs to."""
        return self._server.player.core

    async def send(self, item: Any) -> None:
        """Take a message of the client."""
        if current_tape() is not self.tape:  # the replay is over, the session is not
            await self.write.send(item)
            return
        sent = getattr(item, "message", item)
        message = dump(getattr(sent, "root", sent), outgoing=True)
        misses = len(self._server.misses)
        answers = self._server.take(message)
        if message.get("method") == "initialize":
            self._hello = item
            recorder = getattr(self._session, "_rath_mcp_recorder", None)
            if recorder is not None:
                recorder.connection.server.lists = self._server.end.tools
            elif self._server.connection is not None:
                self._echo = Echo(self._server.end)
        if self._echo is not None:
            self._echo.see(message, "c2s")
        for miss in self._server.misses[
            misses:
        ]:  # told in the SDK's own loop, which survives no exception: the call fails instead
            self._server.left(miss)
        if answers is None:
            await self._live(item)
        elif self._server.closes(answers) and not self._opened:
            self._say(answers[:-1])
            self._outgoing.close()
        else:
            self._say(answers)

    def _say(self, messages: Sequence[Json]) -> None:
        for message in messages:
            if self._echo is not None:
                self._echo.see(message, "s2c")
            if self._opened:
                _slip_in(self._read, _as_item(message))
            else:
                self._outgoing.send_nowait(_as_item(message))

    async def _live(self, item: Any) -> None:
        """Make a request live; the real server is greeted first, as the client has greeted the record."""
        if self._opened:
            await self.write.send(item)
            return
        if self._pump is None:
            loop = asyncio.get_running_loop()
            self._greeted = loop.create_future()
            self._pump = loop.create_task(self._listen())
            if self._hello is None:
                self._greeted.set_result(None)
            else:
                await self.write.send(self._hello)
        assert self._greeted is not None
        first = not self._greeted.done()
        await asyncio.shield(self._greeted)
        if first and self._hello is not None:
            await self.write.send(_as_item({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        await self.write.send(item)

    async def _listen(self) -> None:
        """Pass on what the real server says."""
        assert self._greeted is not None
        try:
            async for item in self._read:
                sent = getattr(item, "message", item)
                message = {} if isinstance(sent, Exception) else dump(getattr(sent, "root", sent), outgoing=False)
                if not self._greeted.done() and shape(message) == "answer":
                    self._greeted.set_result(None)
                else:
                    if self._echo is not None:
                        self._echo.see(message, "s2c")
                    await self._outgoing.send(item)
        finally:
            if not self._greeted.done():
                self._greeted.set_result(None)
            self._outgoing.close()

    async def aclose(self) -> None:
        """The session is over."""
        if self._echo is not None:
            self._echo.close()
        if self._pump is not None:
            self._pump.cancel()
            with suppress(asyncio.CancelledError):
                await self._pump
        if not self._opened:
            self._outgoing.close()
            await self._read.aclose()
        await self.write.aclose()


class Echo:
    """Records what a proxy recorded: the program itself records nothing of this connection."""

    def __init__(self, end: Run) -> None:
        recorder = current_recorder()
        assert recorder is not None  # there always is one in a replay
        self._end = end
        self._connection = Connection(Book(recorder.emit, recorder.trace_id), label=end.name)
        self._connection.server.lists = end.tools

    def see(self, message: Any, direction: Direction) -> None:
        self._connection.see(Frame(direction=direction, message=message, t=time_ns()))

    def close(self) -> None:
        told = self._end.attributes
        self._connection.server.more |= {key: told[key] for key in ("rath.mcp.exit_status",) if key in told}
        self._connection.close("client_closed", self._end.error)


class Outgoing:
    """The write stream of a session that leads to the record."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    async def send(self, item: Any) -> None:
        """Send a message."""
        await self.wire.send(item)

    async def aclose(self) -> None:
        """Close the session's way."""
        await self.wire.aclose()

    async def __aenter__(self) -> Outgoing:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _slip_in(stream: Any, item: Any) -> None:
    """Let a session that waits for its server read this; never waits, since the session's own loop may be who calls."""
    from contextvars import copy_context

    from anyio import WouldBlock
    from anyio.streams.memory import MemoryObjectSendStream

    if hasattr(stream, "last_context"):  # of SDK 2.x: each message comes with the context of who sent it
        stream, item = stream._inner, (copy_context(), item)
    sender: Any = MemoryObjectSendStream(stream._state)
    try:
        sender.send_nowait(item)
    except WouldBlock:
        stream._state.buffer.append(item)
    finally:
        sender.close()


def _as_item(message: Json) -> Any:
    """Return wire JSON as the streams of the SDK that is installed carry it."""
    from mcp import types
    from mcp.shared.message import SessionMessage

    kind: Any = types.JSONRPCMessage
    if hasattr(kind, "model_validate"):
        return SessionMessage(kind.model_validate(message))
    adapter = cast(Any, types).jsonrpc_message_adapter
    return SessionMessage(adapter.validate_python(message, by_name=False))


def later_process(start: Callable[[], Awaitable[Any]]) -> Any:
    """Return a process that is started when something is written to it; ``anyio.abc.Process`` in shape."""
    import anyio
    from anyio.abc import ByteReceiveStream, ByteSendStream, Process

    class Late(Process):
        def __init__(self) -> None:
            self.real: Any = None
            self.over = anyio.Event()
            self.stdin_, self.stdout_ = In(), Out()

        async def begin(self) -> Any:
            if self.real is None:
                self.real = await start()
                self.over.set()
            return self.real

        async def aclose(self) -> None:
            self.over.set()
            if self.real is not None:
                await self.real.aclose()

        async def wait(self) -> int:
            return 0 if self.real is None else await self.real.wait()

        def terminate(self) -> None:
            self.send_signal(15)

        def kill(self) -> None:
            self.send_signal(9)

        def send_signal(self, signal: Any) -> None:
            if self.real is not None:
                self.real.send_signal(signal)

        @property
        def pid(self) -> int:
            return 0 if self.real is None else self.real.pid

        @property
        def returncode(self) -> int | None:
            return 0 if self.real is None else self.real.returncode

        @property
        def stdin(self) -> ByteSendStream | None:
            return self.stdin_

        @property
        def stdout(self) -> ByteReceiveStream | None:
            return self.stdout_

        @property
        def stderr(self) -> ByteReceiveStream | None:
            return None

    class In(ByteSendStream):
        async def send(self, item: bytes) -> None:
            await (await late.begin()).stdin.send(item)

        async def aclose(self) -> None:
            late.over.set()
            if late.real is not None:
                await late.real.stdin.aclose()

    class Out(ByteReceiveStream):
        async def receive(self, max_bytes: int = 65536) -> bytes:
            await late.over.wait()
            if late.real is None:
                raise anyio.EndOfStream
            return await late.real.stdout.receive(max_bytes)

        async def aclose(self) -> None:
            if late.real is not None:
                await late.real.stdout.aclose()

    late = Late()
    return late
