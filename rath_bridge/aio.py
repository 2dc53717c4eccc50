"""The async face: a bounded pool of our own threads around whole operations (a hop costs about 0.1 ms)."""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from asyncio import Future
    from concurrent.futures import ThreadPoolExecutor

P = ParamSpec("P")
T = TypeVar("T")

WORKERS: Final = 8
_pools: dict[int, ThreadPoolExecutor] = {}


def _pool() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # asyncio and this cost as much to import as all the rest of us

    pid = os.getpid()  # a forked worker does not inherit threads
    pool = _pools.get(pid)
    if pool is None:  # no lock: a child would inherit it, and a pool that is not taken has no threads
        pool = _pools.setdefault(pid, ThreadPoolExecutor(WORKERS, "rath_bridge"))
    return pool


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a whole operation on the pool, in a copy of the caller's context; who is cancelled does not wait for its end (`settled`)."""
    return await _handed(call, *args, **kwargs)


async def settled(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The same, but who is cancelled goes when it has ended: what is still written would stand behind what comes next."""
    import asyncio

    future = _handed(call, *args, **kwargs)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
    if cancelled is not None:
        raise cancelled from future.exception()
    return future.result()


def _handed(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    import asyncio

    context = contextvars.copy_context()
    return asyncio.get_running_loop().run_in_executor(_pool(), partial(context.run, partial(call, *args, **kwargs)))
