"""A process that is replayed as a whole: its threads and what it does at its exit belong to the replay, too.

In a program of the user's own, threads that were not started with a copied context go on live, since they may serve others. Here
nobody else is served.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from threading import Thread
from typing import Any, Final

from rath_bridge.replay.patching import patched
from rath_bridge.replay.tape import current_tape

_started: Final[ContextVar[list[Thread]]] = ContextVar("rath_bridge_started")


@contextmanager
def whole_process() -> Generator[None]:
    """Take everything along that is started inside the block, and wait for its threads, as an interpreter does at its end.

    Where no replay runs, nothing is done.
    """
    if current_tape() is None:
        yield
        return
    started: list[Thread] = []
    with ExitStack() as undo:
        undo.callback(_started.reset, _started.set(started))
        undo.enter_context(patched(Thread, "start", _start))
        undo.enter_context(patched(ThreadPoolExecutor, "submit", _submit))
        undo.enter_context(patched(atexit, "register", _at_exit))
        try:
            yield
        finally:
            for thread in started:  # threads start threads: the list grows meanwhile
                thread.join()


def _start(original: Callable[..., Any], thread: Thread, *args: Any, **kwargs: Any) -> Any:
    if not _is_worker(thread):  # it may serve others later: what is submitted brings its own context
        run, context = thread.run, copy_context()
        thread.run = partial(context.run, run)
        if not thread.daemon:
            _started.get().append(thread)
    return original(thread, *args, **kwargs)


def _submit(original: Callable[..., Any], pool: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return original(pool, copy_context().run, fn, *args, **kwargs)


def _at_exit(original: Callable[..., Any], fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    original(copy_context().run, fn, *args, **kwargs)
    return fn


def _is_worker(thread: Thread) -> bool:
    """A pool's thread waits for work until the interpreter ends."""
    return getattr(getattr(thread, "_target", None), "__module__", "") == "concurrent.futures.thread"
