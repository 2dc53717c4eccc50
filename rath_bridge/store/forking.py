"""What must be still while the process forks, and what a child does with what it inherited.

A thread may be in the middle of a transaction when another one forks. So a fork first lets everybody finish who holds a store's lock,
holds up whoever comes next, and takes the locks itself; in the parent and in the child they are released when it is over.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from threading import Event, RLock, get_ident, local
from time import monotonic
from typing import Any, Final, Generic, Protocol, TypeVar, cast
from weakref import ReferenceType, ref

WAIT: Final = 5.0
"""Seconds that a fork waits at most, for all locks together; what is not at rest by then is never used in the child."""
_SLICE: Final = 0.1
"""They are counted in pieces: while the whole process is stopped, nobody comes to rest, and it is not waited either."""

T = TypeVar("T")


class Living(Generic[T]):
    """Objects for as long as they live. Unlike a ``WeakSet``, it may be read while other threads add."""

    def __init__(self) -> None:
        self._found: dict[int, ReferenceType[T]] = {}

    def add(self, one: T) -> None:
        """Remember an object."""
        name = id(one)

        def gone(which: ReferenceType[T]) -> None:
            if self._found.get(name) is which:
                del self._found[name]

        self._found[name] = ref(one, gone)

    def all(self) -> list[T]:
        """Those that live."""
        return [one for found in list(self._found.values()) if (one := found()) is not None]


class Forkable(Protocol):
    """Something with locks or connections that a child inherits."""

    def locks(self) -> Iterable[StoreLock]:
        """What must be taken for it to be at rest; asked for one after the other, each when those before it are taken."""
        ...

    def after_fork(self, held: Sequence[StoreLock], *, child: bool) -> None:
        """In a child, let go of what belongs to the parent; what is not among ``held`` was in use by a thread that is no more."""
        ...


class _Resting(local):
    """What a fork of this thread has taken."""

    def __init__(self) -> None:
        self.alone = False
        self.found: list[Forkable] = []
        self.held: dict[int, list[StoreLock]] = {}


class StoreLock:
    """A reentrant lock that lets a fork go first: no crowd of writers holds one up."""

    __slots__ = ("lock",)

    def __init__(self) -> None:
        self.lock = RLock()

    def __enter__(self) -> None:
        if _coming:
            _stand_aside()
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    def is_mine(self) -> bool:
        """Tell whether this thread holds it."""
        return cast(Any, self.lock)._is_owned()  # as `threading.Condition` asks it


_all: Living[Forkable] = Living()
_turn = RLock()
"""Held by the thread that forks: one at a time."""
_coming = 0
"""The thread that forks, or is about to."""
_over = Event()
_resting = _Resting()


def register(one: Forkable) -> None:
    """Bring something to rest whenever this process forks, for as long as it lives."""
    _all.add(one)


def _stand_aside() -> None:
    """Wait until the fork is over; who holds a store's lock goes on, since the fork waits for that one."""
    if _coming != get_ident() and not any(lock.is_mine() for one in _all.all() for lock in one.locks()):
        _over.wait(WAIT)


def _before() -> None:
    global _coming
    _resting.found, _resting.held = _all.all(), {}
    _resting.alone = _turn.acquire(timeout=WAIT)
    if _resting.alone:
        _over.clear()
        _coming = get_ident()
        _gather(_resting.found, _resting.held, WAIT)


def _gather(found: Sequence[Forkable], held: dict[int, list[StoreLock]], patience: float) -> None:
    """Take every lock, or, where one is not free, none while it is waited for: who holds it may need another one first."""
    given_up: set[int] = set()
    while (wanted := _taken(found, held, given_up)) is not None:
        _release(held)
        begun = monotonic()
        if wanted.lock.acquire(timeout=min(_SLICE, patience)):
            wanted.lock.release()
        elif patience <= 0:
            given_up.add(id(wanted))
        patience = max(0.0, patience - min(_SLICE, monotonic() - begun))


def _taken(found: Sequence[Forkable], held: dict[int, list[StoreLock]], given_up: set[int]) -> StoreLock | None:
    """Take what is free; returns what is not."""
    for one in found:
        mine = held.setdefault(id(one), [])
        for lock in one.locks():
            if lock.lock.acquire(blocking=False):
                mine.append(lock)
            elif id(lock) not in given_up:
                return lock
    return None


def _release(held: dict[int, list[StoreLock]]) -> None:
    for locks in held.values():
        while locks:
            locks.pop().lock.release()


def _after(child: bool) -> None:
    global _coming, _over, _turn
    found, held, alone = _resting.found, _resting.held, _resting.alone
    _resting.found, _resting.held, _resting.alone = [], {}, False
    if child and not alone:  # a server that forks by its own means asks nobody before: what is free now was at rest
        found = _all.all()
        _gather(found, held, 0.0)
    try:
        for one in found:
            one.after_fork(tuple(held.get(id(one), ())), child=child)
    finally:
        _release(held)
        if child:
            _turn, _over, _coming = RLock(), Event(), 0
        elif alone:
            _coming = 0
            _over.set()
            _turn.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=lambda: _after(False), after_in_child=lambda: _after(True))
