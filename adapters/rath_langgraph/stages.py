"""Where a store leads: to itself, or, in the context of a replay, to the scratch in which the replay writes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from rath_bridge.session import Store
from rath_langgraph.threads import Threads

_REPLAYS: Final = 4
"""Replays at the same time."""


class Stages:
    """The threads of a store, and apart from them those of a replay, whose writes go elsewhere. Shared by a saver's shallow copies."""

    def __init__(self, store: Store, session: str | None = None) -> None:
        self._store, self._session = store, session
        self._own = Threads(Store(store.kept), session)
        self._others: OrderedDict[int, Threads] = OrderedDict()

    def here(self) -> Threads:
        """What is known of the store that this context leads to."""
        backend = self._store.backend
        if backend is self._store.kept:
            return self._own
        found = self._others.get(id(backend))
        if found is None or found.store.kept is not backend:
            found = self._others[id(backend)] = Threads(Store(backend), self._session)
            while len(self._others) > _REPLAYS:
                self._others.popitem(last=False)
        return found

    def bound(self) -> Stages:
        """The same for the store that this context leads to, alone."""
        made = Stages(self._store.bound(), self._session)
        made._own = self.here()
        return made
