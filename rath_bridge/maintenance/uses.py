"""Where content is used: every session, branch and index entry that an erasure would touch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from rath_bridge.errors import MissingObjectError, RathError
from rath_bridge.model.chunk import Chunk, Key
from rath_bridge.model.digests import Digest
from rath_bridge.model.reaching import Reference, body_references, check_object
from rath_bridge.store.protocol import Reader, Ref
from rath_bridge.verbs.lineage import walk

_REFS: Final = 100
"""Branches that are looked at for one session; a chunk on none of them is said to be in the session."""


@dataclass(frozen=True, slots=True)
class Use:
    """One place where content stands."""

    session: str
    ref: str
    """The branch on whose line it is: ``ticket``, ``ticket@try-b``; of several the first."""
    chunk: Digest
    kind: str
    position: int
    objects: tuple[Digest, ...] = ()
    """Objects among those asked for that the chunk stands on; empty where the chunk itself is asked for."""


@dataclass(frozen=True, slots=True)
class Uses:
    """Every place."""

    places: tuple[Use, ...]
    entries: tuple[tuple[Key, Digest], ...]
    """Index entries that lead to them."""

    def by_session(self) -> dict[str, tuple[Use, ...]]:
        """Places of each session, in the order of sessions."""
        found: dict[str, list[Use]] = {}
        for place in self.places:
            found.setdefault(place.session, []).append(place)
        return {name: tuple(places) for name, places in found.items()}


def where_used(reader: Reader, chunks: Collection[Digest], objects: Collection[Digest] = ()) -> Uses:
    """List every session that holds these chunks or stands on these objects, and every index entry that leads to the chunks.

    The whole store is read, each session with all that it descends from.

    Args:
        reader: The store.
        chunks: Ids.
        objects: Digests of blobs, native records and items of trees.
    """
    wanted, below = set(chunks), _Below(set(objects), reader.objects)
    refs: dict[str, list[Ref]] = {}
    for ref in reader.refs():
        refs.setdefault(ref.session, []).append(ref)
    places: list[Use] = []
    for session, tips in refs.items():
        found: list[tuple[Chunk, tuple[Digest, ...]]] = []
        for chunk in walk([ref.head for ref in tips], reader):
            stands_on = below.of(chunk) if objects else ()
            if chunk.id in wanted or stands_on:
                found.append((chunk, () if chunk.id in wanted else stands_on))
        found.sort(key=lambda pair: (pair[0].generation, pair[0].id))
        places += [Use(session, _ref_of(one, tips, reader), one.id, one.kind, one.position, names) for one, names in found]
    standing = wanted | {place.chunk for place in places}
    entries = tuple(sorted(((key, name) for key, name in reader.entries() if name in standing), key=lambda pair: repr(pair[0])))
    return Uses(tuple(places), entries)


def _ref_of(chunk: Chunk, tips: Iterable[Ref], reader: Reader) -> str:
    """The first branch on whose line a chunk stands; the session where it was only merged in."""
    known = list(tips)
    for ref in known[:_REFS]:
        if ref.position >= chunk.position:
            there = next(reader.line(ref.head, chunk.position, chunk.position + 1), None)
            if there is not None and there.id == chunk.id:
                return ref.name
    return known[0].session


class _Below:
    """Which of some objects a chunk stands on; what a tree node holds is worked out once."""

    def __init__(self, wanted: set[Digest], fetch: Callable[[Iterable[Digest]], Mapping[Digest, bytes]]) -> None:
        self._wanted, self._fetch = wanted, fetch
        self._nodes: dict[Reference, frozenset[Digest]] = {}

    def of(self, chunk: Chunk) -> tuple[Digest, ...]:
        """Those that a chunk's body reaches."""
        if chunk.body_bytes is None or b'"digest"' not in chunk.body_bytes:
            return ()
        try:
            body: Any = orjson.loads(chunk.body_bytes)
            return tuple(sorted({name for one in body_references(body) for name in self._reach(one)}))
        except (RathError, TypeError, ValueError):
            return ()  # malformed: fsck names it

    def _reach(self, reference: Reference) -> frozenset[Digest]:
        own = frozenset((reference.digest,)) & self._wanted
        if not reference.tree:
            return own
        known = self._nodes.get(reference)
        if known is None:  # as deep as the tree is high: a few levels
            try:
                data = self._fetch([reference.digest])[reference.digest]
            except (RathError, MissingObjectError):
                return own
            below = check_object(reference, data)[1]
            known = self._nodes[reference] = own.union(*(self._reach(child) for child in below))
        return known
