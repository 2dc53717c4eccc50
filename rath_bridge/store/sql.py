"""The store over SQL: one body for SQLite and PostgreSQL. Subclasses bring connections and transactions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from rath_bridge.errors import ConflictError, MissingChunkError, NameInUseError
from rath_bridge.model.chunk import Chunk, Draft, Key, now
from rath_bridge.model.digests import Digest, digest
from rath_bridge.store import rows, schema
from rath_bridge.store.arriving import GATE, Arrival, Landing, check
from rath_bridge.store.columns import merged_column, raw_id, span_column
from rath_bridge.store.objects import put_objects
from rath_bridge.store.protocol import Ref
from rath_bridge.store.sql_appending import Place
from rath_bridge.store.sql_chunks import PAGE
from rath_bridge.store.sql_erasing import SqlEraser
from rath_bridge.store.tx import Tx, text_bytes


class SqlBackend(SqlEraser):
    """All of `Backend`; see `rath_bridge.store.protocol` for what each method promises."""

    @abstractmethod
    def close(self) -> None:
        """Release connections."""

    def copy(self, session: str, branch: str, source: Digest, first: Draft, *, reason: str = "detach") -> Ref:
        words = {first.kind, reason} | {text for text in (first.run, first.origin) if text is not None}
        with self.writing() as tx:
            terms = dict(self._intern(tx, words))
            if tx.all(schema.REF, (text_bytes(session), text_bytes(branch))):
                raise NameInUseError(Ref(session, branch, "", 0).name)
            number, _, written = self._add(tx, [first], [], None, terms)
            above = written[0].id
            position = 0
            for page in self._pages(tx, source, 0, None):
                out: list[tuple[Any, ...]] = []
                raw = {row[0]: row for row in tx.among(schema.CHUNKS_AMONG, [n for n, _ in page])}
                for old, chunk in page:
                    number, position = number + 1, position + 1
                    if number & schema.MAX_OFFSET == 0:
                        number = tx.all(schema.PUT_LINE, (number - 1, position))[0][0] << schema.SHIFT
                    envelope = replace(chunk, parents=(above,), raw=None).envelope
                    moved = digest(envelope)
                    row = raw[old]
                    form, body = (
                        (row[9], bytes(row[10])) if row[9] in (rows.SHARED, rows.ERASED) else (rows.SHARED, rows.varint(old))
                    )
                    told = envelope if chunk.span is not None and row[6] is None else None
                    out.append((number, bytes.fromhex(moved), *row[2:7], None, None, form, body, told))
                    above = moved
                tx.many(schema.PUT_CHUNK, out)
            self._put_ref(tx, session, branch, number, above, None, terms[reason])
        self._remember(terms)
        return Ref(session, branch, above, position)

    def ingest(self, arrivals: Iterable[Arrival], landings: Sequence[Landing], *, reason: str = "import") -> int:
        known: dict[Digest, Place] = {}
        ends: set[int] = set()
        written = 0
        with self.writing() as tx:
            self.claim(tx, [GATE])
            terms = dict(self._intern(tx, {reason}))
            waiting = iter(arrivals)
            while page := list(islice(waiting, PAGE)):
                words = {text for one in page for text in (one.chunk.kind, one.chunk.run, one.chunk.origin) if text is not None}
                terms.update(self._intern(tx, words))
                named = {name for one in page for name in (one.chunk.id, *one.chunk.parents) if name not in known}
                standing = tx.among(schema.PLACES_AMONG, sorted(map(raw_id, named)))
                known.update({bytes(row[1]).hex(): self._place(tx, *row) for row in standing})
                fresh: list[Arrival] = []
                out: list[tuple[Any, ...]] = []
                keys: list[tuple[Key, int]] = []
                indexed = self._index(tx).standing([key for one in page for key in one.keys])
                for one in page:
                    check(one)
                    if one.chunk.id not in known:
                        place = self._arrive(tx, one.chunk, known, ends)
                        known[one.chunk.id] = place
                        fresh.append(one)
                        out.append(_arrived_row(one.chunk, place, terms))
                    keys += [(key, known[one.chunk.id].number) for key in one.keys if key not in indexed]
                put_objects(tx, [one.objects for one in fresh if one.objects], self.dialect)
                tx.many(schema.PUT_CHUNK, out)
                if keys:
                    self._index(tx).put(keys)
                written += len(out)
            for landing in landings:
                self._land(tx, landing, known.get(landing.tip) or self._parents(tx, [landing.tip])[0], terms[reason])
        self._remember(terms)
        return written

    def _arrive(self, tx: Tx, chunk: Chunk, known: Mapping[Digest, Place], ends: set[int]) -> Place:
        """Find the row of a chunk: behind its parent, where an ingest's own line ends there, else at the head of a new line."""
        gone = next((name for name in chunk.parents if name not in known), None)
        if gone is not None:
            raise MissingChunkError(gone, "named as a parent")
        above = [known[name] for name in chunk.parents]
        position = above[0].position + 1 if above else 0
        parent = above[0].number if above else None
        if parent is not None and parent in ends and parent & schema.MAX_OFFSET != schema.MAX_OFFSET:
            ends.discard(parent)
            number = parent + 1
        else:
            number = tx.all(schema.PUT_LINE, (parent, position))[0][0] << schema.SHIFT
        ends.add(number)
        return Place(number, chunk.id, position, max((place.generation for place in above), default=-1) + 1)

    def _land(self, tx: Tx, landing: Landing, place: Place, reason: int) -> None:
        found = tx.all(schema.REF + self.dialect.lock, (text_bytes(landing.session), text_bytes(landing.branch)))
        generation = None if place.generation == place.position else place.generation
        if landing.head is None:
            self._put_ref(tx, landing.session, landing.branch, place.number, place.id, generation, reason)
            found = tx.all(schema.REF, (text_bytes(landing.session), text_bytes(landing.branch)))
        elif not found or bytes(found[0][3]).hex() != landing.head:
            raise ConflictError(landing.name, landing.head, bytes(found[0][3]).hex() if found else None)
        else:
            tx.run(schema.PUT_MOVE, (found[0][0], now(), found[0][1], place.number, reason))
        tx.run(schema.LAND_REF, (place.number, bytes.fromhex(place.id), generation, found[0][0]))

    def drop_keys(self, framework: str, native_id: str, namespace: str | None = None, keys: Sequence[str] | None = None) -> int:
        with self.writing() as tx:
            return self._index(tx).drop(framework, native_id, namespace, keys)

    def copy_keys(self, framework: str, native_id: str, target: str) -> bool:
        with self.writing() as tx:
            return self._index(tx).copy(framework, native_id, target)


def _arrived_row(chunk: Chunk, place: Place, terms: Mapping[str, int]) -> tuple[Any, ...]:
    """The row of a chunk that arrived; where the columns cannot hold its span, its envelope is kept whole."""
    raw, span = chunk.raw, None
    if chunk.span is not None:
        span = span_column(chunk.span)
        if span is None:
            raw = chunk.envelope
    if chunk.body_bytes is None:
        form, body = rows.ERASED, bytes.fromhex(chunk.body_digest) + rows.varint(chunk.size)
    else:
        form, body = rows.pack(chunk.body_bytes)
    merged = merged_column(chunk.parents) if len(chunk.parents) > 1 else None
    generation = None if place.generation == place.position else place.generation
    return (
        place.number, bytes.fromhex(chunk.id), terms[chunk.kind], chunk.at, None if chunk.run is None else terms[chunk.run],
        None if chunk.origin is None else terms[chunk.origin], span, merged, generation, form, body, raw,
    )  # fmt: skip
