"""The index in memory: which chunk stands under a key. The same layers as in SQL, without its rows."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, cast

from rath_bridge.errors import NameInUseError
from rath_bridge.model.chunk import Key
from rath_bridge.model.digests import Digest
from rath_bridge.store.layers import Entry, read_layers

_GONE: Final = ""
Place = tuple[str, str]
"""Key and sub."""


@dataclass(slots=True)
class _Space:
    """The entries of one namespace, with the clock at which they were written."""

    entries: dict[Place, tuple[Digest, int]] = field(default_factory=dict[Place, tuple[Digest, int]])
    order: list[Place] = field(default_factory=list[Place])

    def put(self, place: Place, name: Digest, clock: int) -> None:
        if place not in self.entries:
            insort(self.order, place)
        self.entries[place] = (name, clock)

    def page(self, upto: int | None, before: str | None, exact: str | None, sub: str | None, size: int | None) -> list[Entry]:
        order = self.order
        end = len(order) if before is None else bisect_left(order, (before, ""))
        first = 0
        if exact is not None:
            first, end = bisect_left(order, (exact, "")), min(end, bisect_left(order, (exact + "\0", "")))
        found: list[Entry] = []
        while end > first and (size is None or len(found) < size):
            group = end
            while group > first and order[group - 1][0] == order[end - 1][0]:
                group -= 1
            for place in order[group:end]:
                name, clock = self.entries[place]
                if sub in (None, place[1]) and (upto is None or clock <= upto):
                    found.append(Entry(*place, name))
            end = group
        return found[:size]


@dataclass(slots=True, eq=False)
class _Owner:
    """A native id with its namespaces; ``base`` is what it was copied from, seen up to ``upto``."""

    spaces: dict[str, _Space] = field(default_factory=dict[str, _Space])
    base: _Owner | None = None
    upto: int | None = None
    clock: int = 0
    """Grows with every copy: what was written before is seen by one."""

    def layers(self, namespace: str) -> Iterator[tuple[_Space, int | None]]:
        at, upto = self, None
        while True:
            if namespace in at.spaces:
                yield at.spaces[namespace], upto
            if at.base is None:
                return
            at, upto = at.base, at.upto

    def namespaces(self) -> set[str]:
        found, at = set(self.spaces), self.base
        while at is not None:
            found, at = found | at.spaces.keys(), at.base
        return found

    def is_seen(self, namespace: str, place: Place) -> bool:
        """Whether a copy sees the entry that stands there."""
        space = self.spaces.get(namespace)
        return self.clock > 0 and space is not None and space.entries.get(place, (_GONE, self.clock))[1] < self.clock


class MemoryIndex:
    """Which chunk stands under a key; whoever uses it holds the store's lock."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, str], _Owner] = {}

    def find(self, key: Key) -> Digest | None:
        """The chunk that stands under a key."""
        owner = self._owners.get((key.framework, key.native_id))
        for space, upto in owner.layers(key.namespace) if owner else ():
            found = space.entries.get((key.key, key.sub))
            if found is not None and (upto is None or found[1] <= upto):
                return found[0] or None
        return None

    def put(self, key: Key, name: Digest) -> None:
        """Let a chunk be found under a key."""
        owner = self._owners.setdefault((key.framework, key.native_id), _Owner())
        if owner.is_seen(key.namespace, (key.key, key.sub)):
            owner = self._go_on_above((key.framework, key.native_id), owner)
        owner.spaces.setdefault(key.namespace, _Space()).put((key.key, key.sub), name, owner.clock)

    def _go_on_above(self, name: tuple[str, str], owner: _Owner) -> _Owner:
        """Leave what copies see where it is."""
        self._owners[name] = _Owner(base=owner, upto=owner.clock)
        return self._owners[name]

    def scan(
        self, framework: str, native_id: str, namespace: str, before: str | None = None, exact: str | None = None,
        sub: str | None = None, limit: int | None = None,
    ) -> list[tuple[str, str, Digest]]:  # fmt: skip
        """Entries of one scope, greatest key first, then by ``sub``."""
        owner = self._owners.get((framework, native_id))
        layers = [partial(space.page, upto, before, exact, sub) for space, upto in owner.layers(namespace)] if owner else []
        found = layers[0](limit) if len(layers) == 1 else read_layers(layers, limit)
        return cast("list[tuple[str, str, Digest]]", [tuple(entry) for entry in found if entry.chunk])

    def frameworks(self) -> list[str]:
        """Every framework that something stands under."""
        return sorted({framework for framework, _ in self._owners})

    def scopes(self, framework: str, native_id: str | None = None) -> list[tuple[str, str]]:
        """``(native_id, namespace)`` of every scope in which something stands."""
        return sorted(
            (name, namespace)
            for (of, name), owner in self._owners.items()
            if of == framework and native_id in (None, name)
            for namespace in owner.namespaces()
            if self.scan(framework, name, namespace, limit=1)
        )

    def copy(self, framework: str, native_id: str, target: str) -> bool:
        """Let everything that is found under one native id be found under another one too, as it is now."""
        owner = self._owners.get((framework, native_id))
        if owner is None:
            return False
        there = self._owners.setdefault((framework, target), _Owner())
        if there is owner or there.base is not None or there.clock:
            raise NameInUseError(f"{framework} {target!r}")
        there.base, there.upto = owner, owner.clock
        owner.clock += 1
        return True

    def drop(self, framework: str, native_id: str, namespace: str | None = None, keys: Sequence[str] | None = None) -> int:
        """Let entries not be found any more; returns how many."""
        spaces = [space for _, space in self.scopes(framework, native_id) if namespace in (None, space)]
        wanted = [None] if keys is None else [*dict.fromkeys(keys)]
        gone = [
            (space, (key_, sub)) for space in spaces for key in wanted
            for key_, sub, _ in self.scan(framework, native_id, space, exact=key)
        ]  # fmt: skip
        if namespace is None and keys is None:
            self._owners.pop((framework, native_id), None)
        elif gone:
            owner = self._owners[framework, native_id]
            if any(owner.is_seen(space, place) for space, place in gone):
                owner = self._go_on_above((framework, native_id), owner)
            for space, places in {space: {p for s, p in gone if s == space} for space in spaces}.items():
                self._hide(owner, space, places)
        return len(gone)

    def _hide(self, owner: _Owner, namespace: str, places: set[Place]) -> None:
        space = owner.spaces.setdefault(namespace, _Space())
        if owner.base is not None:
            for place in places:
                space.put(place, _GONE, owner.clock)
            return
        for place in places:
            del space.entries[place]
        space.order = sorted(space.entries)
