"""Session -> Session, sync and async: the shape of everything that works on a session."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from rath_bridge.session import Session


@runtime_checkable
class Transform(Protocol):
    """Anything that takes a Session and returns the Session that it left. Wrapped runnables are Transforms."""

    def __call__(self, session: Session, /) -> Session:
        """Run on a session; returns it as it stands afterwards."""
        ...


@runtime_checkable
class AsyncTransform(Protocol):
    """A `Transform` that can be awaited."""

    async def acall(self, session: Session, /) -> Session:
        """Async twin of calling it."""
        ...
