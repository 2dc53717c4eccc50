"""Public entry points of frameworks that answer from the record, for contexts in which a replay runs and for no others."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import RLock
from typing import Any, cast

from rath_bridge.replay.tape import current_tape

_lock = RLock()
_held: dict[tuple[int, str], list[Any]] = {}
"""Owner and name to the owner, what stood there, the wrapper, and how many replays want it."""


@contextmanager
def patched(owner: Any, name: str, wrapper: Callable[..., Any]) -> Generator[None]:
    """Put a wrapper in front of a function or method of a framework while the block runs; the last replay to leave restores it.

    Where no tape is current (other threads, other contexts), the original is called and nothing else happens.

    Args:
        owner: A class or a module.
        name: Of the attribute.
        wrapper: Called as ``wrapper(original, *args, **kwargs)`` where a tape is current; the same function each time. For a coroutine
            function it returns an awaitable, for an async generator an async iterator, as the original does.
    """
    place = (id(owner), name)
    with _lock:
        if place not in _held:
            standing = inspect.getattr_static(owner, name)
            own = name in vars(owner)
            _held[place] = [owner, standing, wrapper, 0, own]
            setattr(owner, name, _wrapped(standing, wrapper))
        held = _held[place]
        if held[2] is not wrapper:
            raise RuntimeError(f"{name} of {owner!r} is patched for replays by {held[2]!r} already")
        held[3] += 1
    try:
        yield
    finally:
        with _lock:
            held[3] -= 1
            if not held[3]:
                del _held[place]
                if held[4]:
                    setattr(owner, name, held[1])
                else:
                    delattr(owner, name)


def _wrapped(standing: Any, wrapper: Callable[..., Any]) -> Any:
    kind: Any = next((one for one in (staticmethod, classmethod) if type(standing) is one), None)
    original: Callable[..., Any] = cast(Any, standing if kind is None else cast(Any, standing).__func__)

    def call(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs) if current_tape() is None else wrapper(original, *args, **kwargs)

    async def awaited(*args: Any, **kwargs: Any) -> Any:
        return await call(*args, **kwargs)

    made = functools.wraps(original)(awaited if inspect.iscoroutinefunction(original) else call)
    return made if kind is None else kind(made)
