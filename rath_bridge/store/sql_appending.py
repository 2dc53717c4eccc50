"""Appending over SQL: the ref is locked, then the batch is hashed and written."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

from rath_bridge.errors import ConflictError, MissingChunkError, MissingSessionError, NameInUseError
from rath_bridge.model.chunk import Chunk, Draft, Key, now, render_envelope
from rath_bridge.model.digests import Digest, digest
from rath_bridge.model.encoding import Loader
from rath_bridge.store import rows, schema
from rath_bridge.store.columns import merged_column, raw_id, span_column
from rath_bridge.store.objects import put_objects
from rath_bridge.store.protocol import Appended, OnConflict, Ref
from rath_bridge.store.sql_reading import SqlReader
from rath_bridge.store.tx import Tx, text_bytes


@dataclass(frozen=True, slots=True)
class Place:
    """Where a chunk stands: all that its children need to know."""

    number: int
    id: Digest
    position: int
    generation: int


class Made(NamedTuple):
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


class SqlAppender(SqlReader):
    """`rath_bridge.store.protocol.Backend.append` over SQL."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[Tx]:
        """A transaction that may write; commits at the end of the block, rolls back on an error."""

    def gate(self, session: str, branch: str) -> AbstractContextManager[object]:
        """Where this process's own writers of a ref queue up before they ask the database for the row."""
        return nullcontext()

    def claim(self, tx: Tx, keys: Sequence[Key]) -> None:
        """Make writers of other refs wait, until this transaction ends, before they ask whether these ``once`` keys stand."""

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
        tx.run(schema.MOVE_REF, (last, bytes.fromhex(tail.id), generation_column(tail), ref))
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
        again: list[Place] = []
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
        self._put_ref(tx, session, name, last, tail.id, generation_column(tail), terms[reason])
        return Appended(Ref(session, name, tail.id, tail.position), len(written), chunks)

    def _put_ref(self, tx: Tx, session: str, branch: str, tip: int, head: Digest, generation: int | None, reason: int) -> None:
        made = tx.all(schema.PUT_REF, (text_bytes(session), text_bytes(branch), tip, bytes.fromhex(head), generation))
        if not made:
            raise NameInUseError(Ref(session, branch, "", 0).name)
        tx.run(schema.PUT_MOVE, (made[0][0], now(), None, tip, reason))

    def _place(self, tx: Tx, number: int, name: Any, generation: int | None) -> Place:
        position = self._position(tx, number)
        return Place(number, bytes(name).hex(), position, position if generation is None else generation)

    def _parents(self, tx: Tx, names: Sequence[Digest]) -> list[Place]:
        found: list[Place] = []
        for name in names:
            row = tx.all(schema.PARENT, (raw_id(name),))
            if not row:
                raise MissingChunkError(name, "named as a parent")
            found.append(self._place(tx, *row[0]))
        return found

    def _add(
        self, tx: Tx, drafts: Sequence[Draft], above: list[Place], tip: int | None, terms: Mapping[str, int]
    ) -> tuple[int, Callable[[], tuple[Chunk, ...]], list[Made]]:
        """Hash and write a batch behind ``above``; ``tip`` is the row to go on from, or None for a new line.

        Returns:
            The last row, what makes the chunks (one for each draft), and what is new.
        """
        position = above[0].position if above else -1
        generation = max((place.generation for place in above), default=-1)
        parents = tuple(place.id for place in above)
        number = tip
        found: list[Made | int] = []
        written: list[Made] = []
        out: list[tuple[Any, ...]] = []
        entries: list[tuple[Key, int]] = []
        batch_keys: dict[Key, Made] = {}
        for item in drafts:
            if item.once is not None:
                standing: Made | int | None = batch_keys.get(item.once)
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
            made = Made(name, item, parents, position, generation)
            form, body = rows.pack(item.body)
            span, told = None, None
            if item.span is not None:
                span = span_column(item.span)
                if span is None:
                    told = envelope
            run, origin = item.run, item.origin
            out.append((
                number, bytes.fromhex(name), terms[item.kind], item.at, None if run is None else terms[run],
                None if origin is None else terms[origin], span, merged_column(parents) if len(parents) > 1 else None,
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


def generation_column(chunk: Chunk | Made) -> int | None:
    """As stored: absent where it equals the position, which is nearly always."""
    return None if chunk.generation == chunk.position else chunk.generation
