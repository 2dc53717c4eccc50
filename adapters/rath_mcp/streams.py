"""The tee: streams that stand between a transport and a client session, and the frames in what they carry.

Nothing of ``mcp`` or ``anyio`` is imported: the streams of SDK 1.28+ and of 2.x have the same few methods.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from time import time_ns
from typing import Any, Protocol, Self, cast

from rath_mcp.frames import Direction, Frame


class Observer(Protocol):
    """What a tee shows its messages to (`rath_mcp.client.ClientRecorder`)."""

    def sends(self, message: Any, /) -> None:
        """The client sends this."""
        ...

    async def settled(self) -> None:
        """Wait until what was sent may cross the wire."""
        ...

    def receives(self, message: Any, /) -> None:
        """The server has sent this, or the transport raised it."""
        ...

    def close(self, reason: str, /) -> None:
        """The connection has ended."""
        ...


class TeeRead:
    """A client's read stream that shows what comes to a recorder first."""

    def __init__(self, inner: Any, observer: Observer) -> None:
        self.inner, self._observer = inner, observer

    async def receive(self) -> Any:
        """Return the next message of the server."""
        return await receive_from(self.inner.receive, self._observer)

    async def aclose(self) -> None:
        """Close the stream; the connection has ended."""
        self._observer.close("client_closed")
        await self.inner.aclose()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except Exception as error:
            if type(error).__name__ == "EndOfStream":  # anyio's, without importing it
                raise StopAsyncIteration from None
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class TeeWrite:
    """A client's write stream that shows what goes to a recorder first: a request is on record before it is sent."""

    def __init__(self, inner: Any, observer: Observer) -> None:
        self.inner, self._observer = inner, observer

    async def send(self, item: Any) -> None:
        """Send a message to the server."""
        self._observer.sends(item)
        await self._observer.settled()
        await self.inner.send(item)

    async def aclose(self) -> None:
        """Close the stream."""
        await self.inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


async def receive_from(receive: Callable[[], Any], observer: Observer) -> Any:
    try:
        item = await receive()
    except Exception:
        observer.close("stream_ended")
        raise
    observer.receives(item)
    return item


def tee(read: Any, write: Any, observer: Observer) -> tuple[TeeRead, TeeWrite]:
    """Put a `rath_mcp.ClientRecorder` between a transport's streams and the session that is made of them.

    The streams alone do not tell when a client gives up waiting (SDK 1.x sends nothing then): such a call is closed when the
    connection is. `record_client` sees that, too.
    """
    return TeeRead(read, observer), TeeWrite(write, observer)


def frame_of(item: Any, direction: Direction) -> Frame:
    """Return what a stream of either SDK carries as a frame: a ``SessionMessage``, a message, or an exception."""
    t = time_ns()
    if isinstance(item, Exception):
        return _unreadable(item, direction, t)
    message = getattr(item, "message", item)
    message = getattr(message, "root", message)
    if isinstance(message, dict):
        return Frame(direction=direction, message=cast(Any, message), t=t)
    return Frame(direction=direction, message=dump(message, outgoing=direction == "c2s"), t=t)


def dump(message: Any, *, outgoing: bool) -> dict[str, Any]:
    """Return a model as the wire has it: what was read as it came (nulls, too), what is sent as the transports write it."""
    if outgoing:
        return message.model_dump(by_alias=True, mode="json", exclude_none=True)
    return {"jsonrpc": "2.0", **message.model_dump(by_alias=True, exclude_unset=True)}


def _unreadable(error: Exception, direction: Direction, t: int) -> Frame:
    """Return the frame for a line that the SDK refused; pydantic's errors still hold the line."""
    problem = f"{type(error).__name__}: {error}"[:2000]
    raw: Any = None
    errors = cast(Any, getattr(error, "errors", None))
    for found in cast("list[dict[str, Any]]", errors(include_url=False) if callable(errors) else []):
        if found.get("type") == "json_invalid" and isinstance(found.get("input"), str | bytes):
            raw = found["input"]
            break
        if found.get("type") == "missing" and isinstance(found.get("input"), dict):
            return Frame(direction=direction, message=found["input"], t=t, problem=problem)
    data = raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw
    return Frame(direction=direction, t=t, raw=data, problem=problem)
