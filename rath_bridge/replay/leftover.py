"""What a run leaves running when its replay ends (a task, a thread, a callback) must not be made live: players stay for it."""

from __future__ import annotations

import weakref
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Final

from rath_bridge.replay.tape import set_aside


class _Mark:
    """Lives as long as a context of the replay does."""


_mark: Final[ContextVar[_Mark | None]] = ContextVar("rath_bridge_leftover", default=None)


@contextmanager
def standing_in() -> Generator[ExitStack]:
    """Yield a stack that is closed once no copy of the block's context is left: at the end of the block, or later."""
    players, mark = ExitStack(), _Mark()
    token = _mark.set(mark)
    alive = weakref.ref(mark)
    del mark
    try:
        yield players
    finally:
        _mark.reset(token)
        del token
        left = alive()
        if left is None:
            players.close()
        else:
            weakref.finalize(left, players.close).atexit = False


@contextmanager
def outside() -> Generator[None]:
    """Carry out a call that the tape made live, with all that it asks in turn: the block, and what it starts, is no part of the replay."""
    token = _mark.set(None)
    try:
        with set_aside():
            yield
    finally:
        _mark.reset(token)
