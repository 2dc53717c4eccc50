"""A store in memory over other stores that are only read: where a replay writes.

What is written stays in memory; what is read and is not there comes from the stores below, with the record that is being replayed
left out: its names are free, and its index entries are not seen, as if it had not happened yet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rath_bridge.errors import MissingChunkError, MissingObjectError
from rath_bridge.model.chunk import Chunk, Draft, Key
from rath_bridge.model.digests import Digest
from rath_bridge.store.arriving import Arrival, as_draft
from rath_bridge.store.memory import (
    MemoryBackend,
    _Line,  # pyright: ignore[reportPrivateUsage]
    _Row,  # pyright: ignore[reportPrivateUsage]
    _Tip,  # pyright: ignore[reportPrivateUsage]
)
from rath_bridge.store.protocol import Appended, Backend, OnConflict, Ref, RefMove


class OverlayBackend(MemoryBackend):
    """Writes in memory, reads from below (the rest is `MemoryBackend`)."""

    def __init__(self, below: Backend, *, session: str, hidden: Collection[Digest]) -> None:
        """Lay a store over another.

        Args:
            below: Read, never written.
            session: A session whose refs are not seen.
            hidden: Chunks whose index entries are not seen.
        """
        super().__init__()
        self._below = [below]
        self._session, self._hidden = session, hidden
        self._brought: set[tuple[str, str, str]] = set()
        self.follower: Callable[[Ref, int], None] | None = None
        """Called after each append with the ref as it stands, and the first position that is new."""

    def over(self, backend: Backend) -> None:
        """Read from one more store, behind those that are known."""
        with self._lock:
            if all(one is not backend and one.url != backend.url for one in (*self._below, self)):
                self._below.append(backend)

    def lies_over(self, other: Backend) -> bool:
        """Tell whether another store is read through this one."""
        return any(one is other or (isinstance(one, OverlayBackend) and one.lies_over(other)) for one in self._below)

    def stand(self, session: str, branch: str, head: Digest) -> Ref:
        """Let a ref stand at a chunk of a store below; nothing is written there."""
        with self._lock:
            row = self._need(head)
            self._tips[session, branch] = _Tip(row, False, [])
            return Ref(session, branch, row.id, row.position)

    def holds(self, name: Digest) -> bool:
        """Tell whether an object was written here (the stores below may have it as well)."""
        return name in self._objects

    def own(self) -> list[Ref]:
        """The refs that were made or moved here."""
        return super().refs()

    # ---------------------------------------------------------------- write

    def append(
        self,
        session: str,
        branch: str,
        drafts: Sequence[Draft],
        *,
        head: Digest | None,
        parents: Sequence[Digest] | None = None,
        on_conflict: OnConflict = "raise",
        reason: str = "append",
    ) -> Appended:
        with self._lock:
            if (session, branch) not in self._tips:
                below = self.ref(session, branch)
                if below is not None:
                    self.stand(session, branch, below.head)
                elif head is not None:  # a session that the caller had read before the replay began
                    self.stand(session, branch, head)
            done = super().append(session, branch, drafts, head=head, parents=parents, on_conflict=on_conflict, reason=reason)
            if self.follower is not None and done.written:
                self.follower(done.ref, done.ref.position + 1 - done.written)
            return done

    def copy(self, session: str, branch: str, source: Digest, first: Draft, *, reason: str = "detach") -> Ref:
        with self._lock:
            self._need(source)
            return super().copy(session, branch, source, first, reason=reason)

    def ingest(self, arrivals: Iterable[Arrival], landings: Sequence[Any], *, reason: str = "import") -> int:
        with self._lock:
            for landing in landings:
                below = None if (landing.session, landing.branch) in self._tips else self.ref(landing.session, landing.branch)
                if below is not None:
                    self.stand(landing.session, landing.branch, below.head)
            return super().ingest(arrivals, landings, reason=reason)

    def drop_keys(self, framework: str, native_id: str, namespace: str | None = None, keys: Sequence[str] | None = None) -> int:
        self.scopes(framework, native_id)
        return super().drop_keys(framework, native_id, namespace, keys)

    def copy_keys(self, framework: str, native_id: str, target: str) -> bool:
        self.scopes(framework, native_id)
        self.scopes(framework, target)
        return super().copy_keys(framework, native_id, target)

    def erasures(self) -> int:
        return super().erasures() + sum(below.erasures() for below in self._below)

    def close(self) -> None:
        """Nothing to release: the stores below are not ours."""

    # ---------------------------------------------------------------- read

    def refs(self, session: str | None = None) -> list[Ref]:
        own = super().refs(session)
        known = {(one.session, one.branch) for one in own}
        for below in self._below:
            for one in below.refs(session):
                if one.session != self._session and (one.session, one.branch) not in known:
                    known.add((one.session, one.branch))
                    own.append(one)
        return sorted(own, key=lambda ref: (ref.session, ref.branch != "main", ref.branch))

    def ref(self, session: str, branch: str) -> Ref | None:
        own = super().ref(session, branch)
        if own is not None or session == self._session:
            return own
        return next((found for one in self._below if (found := one.ref(session, branch)) is not None), None)

    def reflog(self, session: str, branch: str) -> list[RefMove]:
        below = [] if session == self._session else [move for one in self._below for move in one.reflog(session, branch)]
        return [*below, *super().reflog(session, branch)]

    def chunk(self, name: Digest) -> Chunk:
        row = self._rows.get(name)
        return self._from_below(name)[1] if row is None else self._chunk(row)

    def line(self, head: Digest, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        if head in self._rows:
            return super().line(head, start, stop)
        return self._from_below(head)[0].line(head, start, stop)

    def find(self, prefix: str) -> list[Digest]:
        found = set(super().find(prefix)).union(*(one.find(prefix) for one in self._below))
        return sorted(found)[:10]

    def objects(self, names: Iterable[Digest]) -> Mapping[Digest, bytes]:
        wanted = list(dict.fromkeys(names))
        found = {name: self._objects[name] for name in wanted if name in self._objects}
        missing = [name for name in wanted if name not in found]
        for one in self._below if missing else ():
            try:
                return {**found, **one.objects(missing)}
            except MissingObjectError:
                for name in list(missing):
                    try:
                        found[name] = one.objects([name])[name]
                    except MissingObjectError:
                        continue
                    missing.remove(name)
        if missing:
            raise MissingObjectError(missing[0])
        return found

    def lookup(self, key: Key) -> Chunk | None:
        self._bring_scope((key.framework, key.native_id, key.namespace))
        name = self._entries.find(key)
        return None if name is None else self.chunk(name)

    def scan(self, framework: str, native_id: str, namespace: str, **options: Any) -> list[tuple[Key, Chunk]]:
        self._bring_scope((framework, native_id, namespace))
        return super().scan(framework, native_id, namespace, **options)

    def scopes(self, framework: str, native_id: str | None = None) -> list[tuple[str, str]]:
        for one in self._below:
            for scope in one.scopes(framework, native_id):
                self._bring_scope((framework, *scope))
        return super().scopes(framework, native_id)

    # ---------------------------------------------------------------- inside

    def _standing(self, key: Key) -> _Row | None:
        self._bring_scope((key.framework, key.native_id, key.namespace))
        name = self._entries.find(key)
        return None if name is None else self._need(name)

    def _index(self, key: Key, name: Digest) -> None:
        self._bring_scope((key.framework, key.native_id, key.namespace))
        super()._index(key, name)

    def _bring_scope(self, scope: tuple[str, str, str]) -> None:
        """Take over the index entries of a scope that the stores below have, once; those of the record are not seen."""
        if scope in self._brought:
            return
        with self._lock:
            if scope in self._brought:
                return
            self._brought.add(scope)
            for key, chunk in (entry for one in self._below for entry in one.scan(*scope)):
                if chunk.id not in self._hidden and self._entries.find(key) is None:
                    self._entries.put(key, chunk.id)

    def _need(self, name: Digest) -> _Row:
        found = self._rows.get(name)
        return self._bring(name) if found is None else found

    def _bring(self, name: Digest) -> _Row:
        """Take over the line of a chunk: what is appended behind it needs its place."""
        backend, _ = self._from_below(name)
        row: _Row | None = None
        line: _Line | None = None
        for chunk in backend.line(name):
            known = self._rows.get(chunk.id)
            if known is not None:
                row, line = known, None
                continue
            line = line or _Line(row, 0 if row is None else row.position + 1)
            row = _Row(chunk.id, as_draft(chunk), chunk.parents, chunk.position, chunk.generation, line, chunk)
            line.rows.append(row)
            self._rows[chunk.id] = row
        if row is None or row.id != name:
            raise MissingChunkError(name)
        return row

    def _from_below(self, name: Digest) -> tuple[Backend, Chunk]:
        for one in self._below:
            try:
                return one, one.chunk(name)
            except MissingChunkError:
                continue
        raise MissingChunkError(name)
