"""The store over SQL: one body for SQLite and PostgreSQL. Subclasses bring connections and transactions."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from types import NoneType
from typing import Any, Final, NamedTuple, Protocol

import orjson

from rath_bridge.errors import (
    ConflictError,
    CorruptStoreError,
    DecodeError,
    MissingChunkError,
    MissingSessionError,
    NameInUseError,
)
from rath_bridge.model.chunk import FIRST, LAST, Chunk, Draft, Key, SpanContext, now, parse_envelope, render_envelope
from rath_bridge.model.digests import Digest, digest
from rath_bridge.model.encoding import Loader, references
from rath_bridge.store import rows, schema
from rath_bridge.store.arriving import GATE, Arrival, Landing, check
from rath_bridge.store.erasing import Erasure, bodies_alone, many, plan
from rath_bridge.store.objects import drop_objects, every_object, put_objects, read_objects
from rath_bridge.store.protocol import Appended, OnConflict, Ref, RefMove
from rath_bridge.store.sql_index import SqlIndex

DAMAGE: Final = (TypeError, ValueError, IndexError, KeyError, OverflowError, MemoryError)
"""What decoding a damaged row may raise: no row that we wrote does."""

PAGE: Final = 512
_TERMS: Final = 50_000
_HEX: Final = re.compile(r"[0-9a-f]{48}(?:[0-9a-f]{16})?\Z")


class Tx(Protocol):
    """An open transaction."""

    def all(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        ...

    def run(self, sql: str, params: Sequence[Any] = ()) -> None:
        """Run one statement that returns nothing."""
        ...

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run one statement for many rows."""
        ...

    def among(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Run a statement with ``IN (...)`` over any number of values."""
        ...


def text_bytes(text: str) -> bytes:
    """A text as it is stored: every str has a form, and the forms sort like the texts."""
    return text.encode("utf-8", "surrogatepass")


def bytes_text(data: Any) -> str:
    """Inverse of `text_bytes`."""
    return bytes(data).decode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a chunk stands: all that its children need to know."""

    number: int
    id: Digest
    position: int
    generation: int


class _Made(NamedTuple):
    """A chunk that was written just now; most callers never look at it, so it is built when they do."""

    id: Digest
    draft: Draft
    parents: tuple[Digest, ...]
    position: int
    generation: int

    def chunk(self, load: Loader) -> Chunk:
        item = self.draft
        return Chunk(
            id=self.id, kind=item.kind, parents=self.parents, at=item.at, run=item.run, origin=item.origin, span=item.span,
            size=len(item.body), body_bytes=item.body, position=self.position, generation=self.generation, load=load,
        )  # fmt: skip


class SqlBackend(ABC):
    """All of `Backend`; see `rath_bridge.store.protocol` for what each method promises."""

    dialect: schema.Dialect
    url: str

    def __init__(self) -> None:
        self._terms: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._lines: dict[int, tuple[int | None, int]] = {}

    @abstractmethod
    def writing(self) -> AbstractContextManager[Tx]:
        """A transaction that may write; commits at the end of the block, rolls back on an error."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[Tx]:
        """A consistent view."""

    def gate(self, session: str, branch: str) -> AbstractContextManager[object]:
        """Where this process's own writers of a ref queue up before they ask the database for the row."""
        return nullcontext()

    def claim(self, tx: Tx, keys: Sequence[Key]) -> None:
        """Make writers of other refs wait, until this transaction ends, before they ask whether these ``once`` keys stand."""

    @abstractmethod
    def close(self) -> None:
        """Release connections."""

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
        words = {draft.kind for draft in drafts} | {reason, "race"}
        words |= {text for draft in drafts for text in (draft.run, draft.origin) if text is not None}
        name = Ref(session, branch, "", 0).name
        with self.gate(session, branch), self.writing() as tx:
            terms = self._intern(tx, words)
            found = tx.all(schema.REF + self.dialect.lock, (text_bytes(session), text_bytes(branch)))
            if once := [draft.once for draft in drafts if draft.once is not None]:
                self.claim(tx, once)
            if head is None:
                if found:
                    raise NameInUseError(name)
                done = self._create(tx, session, branch, drafts, list(parents or ()), reason, terms)
            elif not found:
                raise MissingSessionError(name, [ref.name for ref in self._refs(tx, None)])
            else:
                done = self._append(tx, found[0], session, branch, drafts, head, parents, on_conflict, reason, terms)
        self._remember(terms)
        return done

    def _append(
        self, tx: Tx, row: tuple[Any, ...], session: str, branch: str, drafts: Sequence[Draft], head: Digest,
        parents: Sequence[Digest] | None, on_conflict: OnConflict, reason: str, terms: Mapping[str, int],
    ) -> Appended:  # fmt: skip
        ref, tip, owns, name, generation = row
        standing = self._place(tx, tip, name, generation)
        if standing.id != head and not (on_conflict == "serialise" and (parents is None or head in parents)):
            if on_conflict != "branch":
                raise ConflictError(Ref(session, branch, "", 0).name, head, standing.id)
            if not all(item.once is not None and self._index(tx).find(item.once) is not None for item in drafts):
                return self._race(tx, tip, session, branch, drafts, list(parents or (head,)), terms)
        above = self._parents(tx, [standing.id if name == head else name for name in parents]) if parents else [standing]
        last, chunks, written = self._add(tx, drafts, above, tip if owns and parents is None else None, terms)
        if not written:
            return Appended(Ref(session, branch, standing.id, standing.position), 0, chunks)
        tail = written[-1]
        tx.run(schema.MOVE_REF, (last, bytes.fromhex(tail.id), _generation(tail), ref))
        tx.run(schema.PUT_MOVE, (ref, now(), tip, last, terms[reason]))
        return Appended(Ref(session, branch, tail.id, tail.position), len(written), chunks)

    def _race(
        self,
        tx: Tx,
        tip: int,
        session: str,
        branch: str,
        drafts: Sequence[Draft],
        parents: list[Digest],
        terms: Mapping[str, int],
    ) -> Appended:
        """Open a branch for a batch that came late. Drafts that stand behind these parents already, since the same ones were
        appended before, are the same chunks: they are not written again, and where all of them stand, nothing is.
        """
        again: list[_Place] = []
        for item in drafts:
            name = digest(render_envelope(item, (again[-1].id,) if again else parents))
            row = [] if item.once is not None else tx.all(schema.PARENT, (bytes.fromhex(name),))
            if not row:
                break
            again.append(self._place(tx, *row[0]))
        if not again:
            return self._create(tx, session, None, drafts, parents, "race", terms)
        known = tuple(self._chunks(tx, [place.number for place in again]))
        last = again[-1]
        if len(again) < len(drafts):
            done = self._create(tx, session, None, drafts[len(again) :], [last.id], "race", terms)
            return done._replace(make=lambda: known + done.chunks)
        line = self._spans(tx, known[-1].id, last.position, last.position + 1)
        name = branch if line == self._spans_of(tx, tip, last.position, last.position + 1) else f"race-{last.id[:8]}"
        if name != branch and not tx.all(schema.REF, (text_bytes(session), text_bytes(name))):
            raise ConflictError(Ref(session, branch, "", 0).name, parents[0], last.id)
        return Appended(Ref(session, name, last.id, last.position), 0, lambda: known)

    def _create(
        self, tx: Tx, session: str, branch: str | None, drafts: Sequence[Draft], parents: list[Digest], reason: str,
        terms: Mapping[str, int],
    ) -> Appended:  # fmt: skip
        last, chunks, written = self._add(tx, drafts, self._parents(tx, parents), None, terms)
        if not written:  # every draft stands already: there is nothing that a new ref could be the tip of
            raise ConflictError(Ref(session, branch or "race", "", 0).name, None, chunks()[-1].id)
        tail = written[-1]
        name = branch or f"race-{tail.id[:8]}"
        self._put_ref(tx, session, name, last, tail.id, _generation(tail), terms[reason])
        return Appended(Ref(session, name, tail.id, tail.position), len(written), chunks)

    def _put_ref(self, tx: Tx, session: str, branch: str, tip: int, head: Digest, generation: int | None, reason: int) -> None:
        made = tx.all(schema.PUT_REF, (text_bytes(session), text_bytes(branch), tip, bytes.fromhex(head), generation))
        if not made:
            raise NameInUseError(Ref(session, branch, "", 0).name)
        tx.run(schema.PUT_MOVE, (made[0][0], now(), None, tip, reason))

    def _place(self, tx: Tx, number: int, name: Any, generation: int | None) -> _Place:
        position = self._position(tx, number)
        return _Place(number, bytes(name).hex(), position, position if generation is None else generation)

    def _parents(self, tx: Tx, names: Sequence[Digest]) -> list[_Place]:
        found: list[_Place] = []
        for name in names:
            row = tx.all(schema.PARENT, (_raw(name),))
            if not row:
                raise MissingChunkError(name, "named as a parent")
            found.append(self._place(tx, *row[0]))
        return found

    def _add(
        self, tx: Tx, drafts: Sequence[Draft], above: list[_Place], tip: int | None, terms: Mapping[str, int]
    ) -> tuple[int, Callable[[], tuple[Chunk, ...]], list[_Made]]:
        """Hash and write a batch behind ``above``; ``tip`` is the row to go on from, or None for a new line.

        Returns:
            The last row, what makes the chunks (one for each draft), and what is new.
        """
        position = above[0].position if above else -1
        generation = max((place.generation for place in above), default=-1)
        parents = tuple(place.id for place in above)
        number = tip
        found: list[_Made | int] = []
        written: list[_Made] = []
        out: list[tuple[Any, ...]] = []
        entries: list[tuple[Key, int]] = []
        batch_keys: dict[Key, _Made] = {}
        for item in drafts:
            if item.once is not None:
                standing: _Made | int | None = batch_keys.get(item.once)
                if standing is None:
                    standing = self._index(tx).find(item.once)
                if standing is not None:
                    found.append(standing)
                    continue
            position += 1
            generation += 1
            if number is None or number & schema.MAX_OFFSET == schema.MAX_OFFSET:
                parent = number if number is not None else (above[0].number if above else None)
                line = tx.all(schema.PUT_LINE, (parent, position))[0][0]
                number = line << schema.SHIFT
            else:
                number += 1
            envelope = render_envelope(item, parents)
            name = digest(envelope)
            made = _Made(name, item, parents, position, generation)
            form, body = rows.pack(item.body)
            span, told = None, None
            if item.span is not None:
                span = _pack_span(item.span)
                if span is None:
                    told = envelope
            run, origin = item.run, item.origin
            out.append((
                number, bytes.fromhex(name), terms[item.kind], item.at, None if run is None else terms[run],
                None if origin is None else terms[origin], span, _merged(parents) if len(parents) > 1 else None,
                None if generation == position else generation, form, body, told,
            ))  # fmt: skip
            if item.keys or item.once is not None:
                for key in item.keys if item.once is None else (*item.keys, item.once):
                    entries.append((key, number))
                    batch_keys[key] = made
            parents = (name,)
            found.append(made)
            written.append(made)
        put_objects(tx, [item.objects for item in drafts if item.objects], self.dialect)
        tx.many(schema.PUT_CHUNK, out)
        if entries:
            self._index(tx).put(entries)
        standing_rows = [item for item in found if isinstance(item, int)]
        known = dict(zip(standing_rows, self._chunks(tx, standing_rows), strict=True)) if standing_rows else {}
        load = self.objects
        return number or 0, lambda: tuple(known[one] if isinstance(one, int) else one.chunk(load) for one in found), written

    def _index(self, tx: Tx) -> SqlIndex:
        return SqlIndex(tx, self.dialect)

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
        known: dict[Digest, _Place] = {}
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
                standing = tx.among(schema.PLACES_AMONG, sorted(map(_raw, named)))
                known.update({bytes(row[1]).hex(): self._place(tx, *row) for row in standing})
                fresh: list[Arrival] = []
                out: list[tuple[Any, ...]] = []
                keys: list[tuple[Key, int]] = []
                for one in page:
                    check(one)
                    if one.chunk.id not in known:
                        place = self._arrive(tx, one.chunk, known, ends)
                        known[one.chunk.id] = place
                        fresh.append(one)
                        out.append(_arrived_row(one.chunk, place, terms))
                    keys += [(key, known[one.chunk.id].number) for key in one.keys if self._index(tx).find(key) is None]
                put_objects(tx, [one.objects for one in fresh if one.objects], self.dialect)
                tx.many(schema.PUT_CHUNK, out)
                if keys:
                    self._index(tx).put(keys)
                written += len(out)
            for landing in landings:
                self._land(tx, landing, known.get(landing.tip) or self._parents(tx, [landing.tip])[0], terms[reason])
        self._remember(terms)
        return written

    def _arrive(self, tx: Tx, chunk: Chunk, known: Mapping[Digest, _Place], ends: set[int]) -> _Place:
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
        return _Place(number, chunk.id, position, max((place.generation for place in above), default=-1) + 1)

    def _land(self, tx: Tx, landing: Landing, place: _Place, reason: int) -> None:
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

    @abstractmethod
    def alone(self, tx: Tx) -> None:
        """Wait until nobody else writes, and let nobody else write until this transaction ends."""

    def scrub(self) -> None:
        with self.reading() as tx:
            waiting = tx.all(schema.UNSWEPT)
        if waiting and waiting[0][0] != "0":
            self.erase((), unused=True)
        self.rewrite()

    @abstractmethod
    def rewrite(self) -> None:
        """Write the store's files anew."""

    def erase(
        self,
        chunks: Iterable[Digest],
        *,
        objects: Iterable[Digest] = (),
        copies: bool = True,
        unused: bool = False,
        later: bool = False,
        dry_run: bool = False,
    ) -> Erasure:
        names = sorted(set(chunks))
        with self.writing() as tx:
            self.alone(tx)
            waiting = int(next(iter(tx.all(schema.UNSWEPT)), ("0",))[0])
            if later and many(waiting + len(names), tx.all(schema.LAST_OBJECT)[0][0] or 0):
                later, copies, unused = False, False, True
            found = self._built(tx, tx.among(schema.CHUNKS_NAMED, [_raw(name) for name in names]))
            if len(found) != len(names):
                raise MissingChunkError(min(set(names) - {chunk.id for chunk in found}))
            wanted = {chunk.id: chunk.body_bytes for chunk in found if chunk.body_bytes is not None}
            done = bodies_alone(wanted, self._had_outside(tx, wanted)) if later else plan(
                wanted, set(objects), lambda: self._bodies(tx), lambda some: read_objects(tx, some, missing_ok=True),
                copies=copies, unused=every_object(tx) if unused else (),
            )  # fmt: skip
            if not dry_run:
                left = waiting + len(done.erasure.chunks) if later else 0 if unused else waiting
                if left != waiting:
                    tx.run(schema.PUT_UNSWEPT, (str(left),))
                stubs = [(bytes.fromhex(total) + rows.varint(size), _raw(name)) for name, (total, size) in done.stubs.items()]
                tx.many(schema.ERASE_BODY, stubs)
                drop_objects(tx, done.erasure.objects, done.erasure.named)
                if done.erasure.objects:
                    tx.run(schema.COUNT_ERASURE)
        return done.erasure

    def erasures(self) -> int:
        with self.reading() as tx:
            return int(next(iter(tx.all(schema.ERASURES)), ("0",))[0])

    def _had_outside(self, tx: Tx, wanted: Collection[Digest]) -> set[Digest]:
        """Chunks whose bodies others have, too: detached lines share them."""
        groups: dict[int, list[tuple[int, Digest]]] = {}
        for number, name, body in tx.all(schema.SHARED_BODIES):
            source = rows.Cursor(bytes(body), f"row {number}").number()
            groups.setdefault(source, []).append((number, bytes(name).hex()))
        if not groups:
            return set()
        sources = {number: bytes(name).hex() for number, name in tx.among(schema.IDS_AMONG, sorted(groups))}
        found: set[Digest] = set()
        for source, group in groups.items():
            names = {name for _, name in group} | ({sources[source]} if source in sources else set[Digest]())
            if not names <= set(wanted):
                found |= names.intersection(wanted)
        return found

    def _bodies(self, tx: Tx) -> Iterator[tuple[Digest, bytes]]:
        """Every chunk's body, a page at a time, inside of a transaction."""
        at = -1
        while found := tx.all(schema.BODIES_AFTER, (at,)):
            at = found[-1][0]
            targets = {row[0]: rows.Cursor(bytes(row[3]), f"row {row[0]}").number() for row in found if row[2] == rows.SHARED}
            held = {row[0]: row for row in tx.among(schema.CHUNKS_AMONG, sorted(set(targets.values())))} if targets else {}
            for number, name, form, data in found:
                if number in targets:
                    row = held[targets[number]]
                    form, data = row[9], row[10]
                if form != rows.ERASED:
                    yield bytes(name).hex(), rows.unpack(form, data, "chunk", bytes(name).hex())

    # ---------------------------------------------------------------- read

    def refs(self, session: str | None = None) -> list[Ref]:
        with self.reading() as tx:
            return self._refs(tx, session)

    def _refs(self, tx: Tx, session: str | None) -> list[Ref]:
        found = tx.all(schema.REFS) if session is None else tx.all(schema.REFS + " WHERE r.session = ?", (text_bytes(session),))
        refs = [
            Ref(bytes_text(name), bytes_text(branch), bytes(head).hex(), self._position(tx, tip))
            for name, branch, tip, head in found
        ]
        return sorted(refs, key=lambda ref: (ref.session, ref.branch != "main", ref.branch))

    def ref(self, session: str, branch: str) -> Ref | None:
        with self.reading() as tx:
            sql = schema.REFS + " WHERE r.session = ? AND r.branch = ?"
            found = tx.all(sql, (text_bytes(session), text_bytes(branch)))
            return Ref(session, branch, bytes(found[0][3]).hex(), self._position(tx, found[0][2])) if found else None

    def reflog(self, session: str, branch: str) -> list[RefMove]:
        with self.reading() as tx:
            found = tx.all(schema.REF, (text_bytes(session), text_bytes(branch)))
            moves = tx.all(schema.MOVES, (found[0][0],)) if found else []
            ids = self._ids(tx, [n for _, old, new, _ in moves for n in (old, new) if n is not None])
            return [
                RefMove(at, None if old is None else ids[old], ids[new], self._term(tx, reason)) for at, old, new, reason in moves
            ]

    def chunk(self, name: Digest) -> Chunk:
        with self.reading() as tx:
            found = tx.all(schema.CHUNK_BY_ID, (_raw(name),))
            if not found:
                raise MissingChunkError(name)
            (chunk,) = self._built(tx, found)
        if chunk.id != name.lower():  # the database's index and its table do not agree
            raise CorruptStoreError(f"chunk {name[:16]}", f"{chunk.id} stands in its place")
        return chunk

    def line(self, head: Digest, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        with self.reading() as tx:
            spans = self._spans(tx, head, start, stop)
        for first, last in spans:
            for at in range(first, last + 1, PAGE):
                with self.reading() as tx:
                    page = self._built(tx, tx.all(schema.CHUNKS_BETWEEN, (at, min(last, at + PAGE - 1))))
                yield from page

    def _pages(self, tx: Tx, head: Digest, start: int, stop: int | None) -> Iterator[list[tuple[int, Chunk]]]:
        """Like `line`, inside a transaction, with row numbers."""
        for first, last in self._spans(tx, head, start, stop):
            for at in range(first, last + 1, PAGE):
                found = tx.all(schema.CHUNKS_BETWEEN, (at, min(last, at + PAGE - 1)))
                yield list(zip([row[0] for row in found], self._built(tx, found), strict=True))

    def _spans(self, tx: Tx, head: Digest, start: int, stop: int | None) -> list[tuple[int, int]]:
        """Row ranges (inclusive) of a first-parent line, oldest first."""
        found = tx.all(schema.PARENT, (_raw(head),))
        if not found:
            raise MissingChunkError(head)
        return self._spans_of(tx, found[0][0], start, stop)

    def _spans_of(self, tx: Tx, row: int, start: int, stop: int | None) -> list[tuple[int, int]]:
        at: int | None = row
        spans: list[tuple[int, int]] = []
        while at is not None:
            line = at >> schema.SHIFT
            parent, first = self._line(tx, line)
            end = first + (at & schema.MAX_OFFSET)
            if stop is not None:
                end = min(end, stop - 1)
            if end >= max(first, start):
                base = line << schema.SHIFT
                spans.append((base + max(first, start) - first, base + end - first))
            if first <= start:
                break
            at = parent
        return spans[::-1]

    def find(self, prefix: str) -> list[Digest]:
        low, high = bytes.fromhex(prefix.ljust(64, "0")), bytes.fromhex(prefix.ljust(64, "f"))
        with self.reading() as tx:
            return [bytes(row[0]).hex() for row in tx.all(schema.FIND, (low, high))]

    def objects(self, names: Iterable[Digest]) -> Mapping[Digest, bytes]:
        with self.reading() as tx:
            return read_objects(tx, list(names))

    def lookup(self, key: Key) -> Chunk | None:
        with self.reading() as tx:
            number = self._index(tx).find(key)
            return None if number is None else self._chunks(tx, [number])[0]

    def scan(
        self,
        framework: str,
        native_id: str,
        namespace: str,
        *,
        before: str | None = None,
        exact: str | None = None,
        sub: str | None = None,
        limit: int | None = None,
    ) -> list[tuple[Key, Chunk]]:
        with self.reading() as tx:
            found = self._index(tx).scan(framework, native_id, namespace, before, exact, sub, limit)
            chunks = self._chunks(tx, [row[2] for row in found])
            return [
                (Key(framework, native_id, namespace, key, sub_), chunk)
                for (key, sub_, _), chunk in zip(found, chunks, strict=True)
            ]

    def entries(self) -> Iterator[tuple[Key, Digest]]:
        with self.reading() as tx:
            frameworks = self._index(tx).frameworks()
        for framework in frameworks:
            for native_id, namespace in self.scopes(framework):
                with self.reading() as tx:
                    found = self._index(tx).scan(framework, native_id, namespace)
                    ids = self._ids(tx, [row[2] for row in found])
                yield from ((Key(framework, native_id, namespace, key, sub), ids[number]) for key, sub, number in found)

    def scopes(self, framework: str, native_id: str | None = None) -> list[tuple[str, str]]:
        with self.reading() as tx:
            return self._index(tx).scopes(framework, native_id)

    # ---------------------------------------------------------------- rows to chunks

    def _chunks(self, tx: Tx, numbers: Sequence[int]) -> list[Chunk]:
        """Chunks by row number, in the order asked for."""
        if not numbers:
            return []
        found = tx.among(schema.CHUNKS_AMONG, sorted(set(numbers)))
        by_number = dict(zip([row[0] for row in found], self._built(tx, found), strict=True))
        try:
            return [by_number[number] for number in numbers]
        except KeyError as error:
            raise CorruptStoreError(f"row {error.args[0]}", "an index or a ref names a chunk that is not there") from None

    def _built(self, tx: Tx, found: Sequence[tuple[Any, ...]]) -> list[Chunk]:
        above = {row[0]: self._parent_row(tx, row[0]) for row in found}
        here = {row[0]: bytes(row[1]).hex() for row in found}
        ids = {**self._ids(tx, [n for n in above.values() if n is not None and n not in here]), **here}
        self._load_terms(tx, {n for row in found for n in (row[2], row[4], row[5]) if n is not None})
        shared = self._shared(tx, [row for row in found if row[9] == rows.SHARED])
        page = _Page(self)
        built: list[Chunk] = []
        for row in found:
            number, _, kind, at, run, origin, span, merged, generation, form, data, raw = row
            parent = above[number]
            parents = () if parent is None else (ids[parent],)
            if merged is not None:
                more = bytes(merged)
                parents += tuple(more[i : i + 32].hex() for i in range(0, len(more), 32))
            if form == rows.SHARED:
                form, data = shared[number]
            erased, size, body = None, 0, None
            if form == rows.ERASED:
                cursor = rows.Cursor(bytes(data), f"chunk {here[number][:16]}")
                erased, size = cursor.take(32).hex(), cursor.number()
            else:
                body = rows.unpack(form, data, "chunk", here[number])
                size = len(body)
                page.bodies.append(body)
            position = self._line(tx, number >> schema.SHIFT)[1] + (number & schema.MAX_OFFSET)
            if type(at) is not int or not FIRST <= at <= LAST or type(generation) not in (int, NoneType):
                raise CorruptStoreError(f"chunk {here[number][:16]}", "its time or generation cannot be")
            built.append(Chunk(
                id=here[number], kind=self._terms[kind], parents=parents, at=at,
                run=None if run is None else self._terms[run], origin=None if origin is None else self._terms[origin],
                span=_unpack_span(span) if raw is None else _told_span(span, bytes(raw)), size=size, body_bytes=body, position=position,
                generation=position if generation is None else generation, raw=None if raw is None else bytes(raw),
                erased_digest=erased, load=page,
            ))  # fmt: skip
        return built

    def _shared(self, tx: Tx, found: Sequence[tuple[Any, ...]]) -> dict[int, tuple[int, bytes]]:
        """Bodies of detached chunks: they stand in the rows that they were copied from."""
        if not found:
            return {}
        targets = {row[0]: rows.Cursor(bytes(row[10]), f"row {row[0]}").number() for row in found}
        bodies = {row[0]: (row[9], bytes(row[10])) for row in tx.among(schema.CHUNKS_AMONG, sorted(set(targets.values())))}
        try:
            return {number: bodies[target] for number, target in targets.items()}
        except KeyError as error:
            raise CorruptStoreError(f"row {error.args[0]}", "a detached copy names a body that is not there") from None

    def _parent_row(self, tx: Tx, number: int) -> int | None:
        return number - 1 if number & schema.MAX_OFFSET else self._line(tx, number >> schema.SHIFT)[0]

    def _position(self, tx: Tx, number: int) -> int:
        return self._line(tx, number >> schema.SHIFT)[1] + (number & schema.MAX_OFFSET)

    def _ids(self, tx: Tx, numbers: Sequence[int]) -> dict[int, Digest]:
        wanted = sorted(set(numbers))
        found = {n: bytes(name).hex() for n, name in tx.among(schema.IDS_AMONG, wanted)} if wanted else {}
        if len(found) != len(wanted):
            gone = next(n for n in wanted if n not in found)
            raise CorruptStoreError(f"row {gone}", "it is named as a parent or in a reflog and is not there")
        return found

    def _line(self, tx: Tx, line: int) -> tuple[int | None, int]:
        known = self._lines.get(line)
        if known is None:
            known = self._read_line(tx, line)
            parent, start = known
            above = -1
            if parent is not None:
                above = (self._lines.get(parent >> schema.SHIFT) or self._read_line(tx, parent >> schema.SHIFT))[1]
                above += parent & schema.MAX_OFFSET
            if start != above + 1:  # also what keeps walks from going in circles
                raise CorruptStoreError(f"line {line}", f"it begins at {start}, what it follows stands at {above}")
            if len(self._lines) > _TERMS:
                self._lines.clear()
            self._lines[line] = known
        return known

    def _read_line(self, tx: Tx, line: int) -> tuple[int | None, int]:
        found = tx.all(schema.LINE, (line,))
        if not found:
            raise CorruptStoreError(f"line {line}", "it is not there although chunks stand on it")
        return found[0][0], found[0][1]

    # ---------------------------------------------------------------- terms

    def _intern(self, tx: Tx, words: Iterable[str]) -> Mapping[str, int]:
        """Numbers for repeated texts (kinds, runs, origins); remembered only after the commit."""
        found = {word: self._numbers[word] for word in words if word in self._numbers}
        missing = {text_bytes(word): word for word in words if word not in found}
        if missing:
            known = tx.among(schema.TERMS_AMONG, sorted(missing))
            new = sorted(set(missing) - {bytes(text) for _, text in known})
            if new:
                tx.many(schema.PUT_TERM, [(text,) for text in new])
                known = tx.among(schema.TERMS_AMONG, sorted(missing))
            found.update({missing[bytes(text)]: n for n, text in known})
        return found

    def _remember(self, terms: Mapping[str, int]) -> None:
        if len(self._terms) > _TERMS:
            self._terms, self._numbers = {}, {}
        for word, number in terms.items():
            self._terms[number] = word
            self._numbers[word] = number

    def _load_terms(self, tx: Tx, numbers: Iterable[int]) -> None:
        missing = sorted(n for n in numbers if n not in self._terms)
        if missing:
            found = tx.among(schema.TERMS_BY_NUMBER, missing)
            if len(found) != len(missing):
                raise CorruptStoreError("rath_term", "a kind, run or origin is named that is not there")
            self._terms.update({n: bytes(text).decode() for n, text in found})

    def _term(self, tx: Tx, number: int) -> str:
        self._load_terms(tx, [number])
        return self._terms[number]


class _Page:
    """Loads the blobs of a page of chunks in one query, when the first of them is wanted."""

    def __init__(self, backend: SqlBackend) -> None:
        self._backend = backend
        self.bodies: list[bytes] = []
        self._loaded: Mapping[Digest, bytes] | None = None

    def __call__(self, names: Iterable[Digest]) -> Mapping[Digest, bytes]:
        wanted = list(names)
        if self._loaded is None:
            found = {name for body in self.bodies if b'"$rath":' in body for name in _loadable(body)}
            self.bodies = []
            self._loaded = {}
            if len(found) > 1 and not found.isdisjoint(wanted):
                with self._backend.reading() as tx:
                    self._loaded = read_objects(tx, sorted(found), missing_ok=True)
        missing = [name for name in wanted if name not in self._loaded]
        more: Mapping[Digest, bytes] = self._backend.objects(missing) if missing else {}
        return {name: more[name] if name in more else self._loaded[name] for name in wanted}


def _loadable(body: bytes) -> list[Digest]:
    try:
        return list(references(orjson.loads(body), loadable=True))
    except orjson.JSONDecodeError:
        return []  # damaged: who reads this body is told so


def _generation(chunk: Chunk | _Made) -> int | None:
    """As stored: absent where it equals the position, which is nearly always."""
    return None if chunk.generation == chunk.position else chunk.generation


def _arrived_row(chunk: Chunk, place: _Place, terms: Mapping[str, int]) -> tuple[Any, ...]:
    """The row of a chunk that arrived; where the columns cannot hold its span, its envelope is kept whole."""
    raw, span = chunk.raw, None
    if chunk.span is not None:
        span = _pack_span(chunk.span)
        if span is None:
            raw = chunk.envelope
    if chunk.body_bytes is None:
        form, body = rows.ERASED, bytes.fromhex(chunk.body_digest) + rows.varint(chunk.size)
    else:
        form, body = rows.pack(chunk.body_bytes)
    merged = _merged(chunk.parents) if len(chunk.parents) > 1 else None
    generation = None if place.generation == place.position else place.generation
    return (
        place.number, bytes.fromhex(chunk.id), terms[chunk.kind], chunk.at, None if chunk.run is None else terms[chunk.run],
        None if chunk.origin is None else terms[chunk.origin], span, merged, generation, form, body, raw,
    )  # fmt: skip


def _raw(name: Digest) -> bytes:
    try:
        return bytes.fromhex(name)
    except (ValueError, TypeError):
        raise MissingChunkError(str(name)) from None


def _merged(parents: Sequence[Digest]) -> bytes:
    """The parents behind the first one, as their column has them."""
    return bytes.fromhex("".join(parents[1:]))


def _pack_span(span: SpanContext) -> bytes | None:
    """The ids of a span as their column has them; None where it cannot hold them, and the envelope is kept whole."""
    text = f"{span.trace_id}{span.span_id}{span.parent_id or ''}"
    if _HEX.match(text) and len(span.trace_id) == 32 and len(span.span_id) == 16:
        return bytes.fromhex(text)
    return None


def _unpack_span(data: Any) -> SpanContext | None:
    if data is None:
        return None
    text = bytes(data).hex()
    return SpanContext(text[:32], text[32:48], text[48:64] or None)


def _told_span(data: Any, raw: bytes) -> SpanContext | None:
    """The span of a chunk whose envelope is kept whole: where the column holds none, as the envelope says."""
    if data is not None:
        return _unpack_span(data)
    try:
        return parse_envelope(raw, None).span
    except DecodeError:
        return None  # damaged: it does not hash to its name either
