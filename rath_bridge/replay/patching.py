"""Public entry points of frameworks that answer from the record, for contexts in which a replay runs and for no others."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import Any, cast

from rath_bridge.replay.tape import current_tape

_lock = RLock()


@dataclass(slots=True, eq=False)
class _Place:
    """A patched attribute."""

    standing: Any
    own: bool
    """It stood on the owner itself, not on a class above."""
    wrapper: Callable[..., Any]
    ours: Any = None
    """What stands there now."""
    wanted: int = 0
    """How many replays want it."""


_places: dict[tuple[int, str], _Place] = {}


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
    key = (id(owner), name)
    with _lock:
        place = _places.get(key)
        if place is None:
            place = _places[key] = _Place(inspect.getattr_static(owner, name), name in vars(owner), wrapper)
            place.ours = _wrapped(place)
            setattr(owner, name, place.ours)
        if place.wrapper is not wrapper:
            raise RuntimeError(f"{name} of {owner!r} is patched for replays by {place.wrapper!r} already")
        place.wanted += 1
    try:
        yield
    finally:
        with _lock:
            place.wanted -= 1
            if not place.wanted:
                del _places[key]
                _restore(owner, name, place)


def _restore(owner: Any, name: str, place: _Place) -> None:
    """Put back what stood there; where somebody has patched it since, over ours, theirs stays, and ours does nothing below it."""
    if inspect.getattr_static(owner, name) is not place.ours:
        return
    if place.own:
        setattr(owner, name, place.standing)
    else:
        delattr(owner, name)


def _wrapped(place: _Place) -> Any:
    """The wrapper, as long as a replay wants it: who patched the same place meanwhile may put it back when nobody does."""
    standing, wrapper = place.standing, place.wrapper
    kind: Any = next((one for one in (staticmethod, classmethod) if type(standing) is one), None)
    original: Callable[..., Any] = cast(Any, standing if kind is None else cast(Any, standing).__func__)

    def call(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original, *args, **kwargs) if place.wanted and current_tape() is not None else original(*args, **kwargs)

    async def awaited(*args: Any, **kwargs: Any) -> Any:
        return await call(*args, **kwargs)

    made = functools.wraps(original)(awaited if inspect.iscoroutinefunction(original) else call)
    return made if kind is None else kind(made)
