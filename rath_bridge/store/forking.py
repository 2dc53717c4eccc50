"""What must be still while the process forks, and what a child does with what it inherited.

A thread may be in the middle of a transaction when another one forks. So everything that is registered here is asked to come to
rest first, and is told afterwards, in the parent and in the child, that the fork is over.
"""

from __future__ import annotations

import os
from threading import local
from typing import Final, Protocol
from weakref import WeakSet

WAIT: Final = 5.0
"""Seconds that a fork waits for one lock; what is not at rest by then is left alone in the child, and never used there."""


class Forkable(Protocol):
    """Something with locks or connections that a child inherits."""

    def before_fork(self) -> None:
        """Come to rest: take the locks, each for `WAIT` at most."""
        ...

    def after_fork(self, *, child: bool) -> None:
        """Release what `before_fork` has taken; in a child, let go of what belongs to the parent as well."""
        ...


_all: WeakSet[Forkable] = WeakSet()
_resting = local()


def register(one: Forkable) -> None:
    """Bring something to rest whenever this process forks, for as long as it lives."""
    _all.add(one)


def _before() -> None:
    _resting.found = list(_all)
    for one in _resting.found:
        one.before_fork()


def _after(child: bool) -> None:
    found: list[Forkable] = getattr(_resting, "found", [])
    _resting.found = []
    for one in found:
        one.after_fork(child=child)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=lambda: _after(False), after_in_child=lambda: _after(True))
