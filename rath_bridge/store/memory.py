"""A store in memory: for tests, notebooks and short runs. Same laws as the others; gone when the process ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from rath_bridge.errors import (
    ConflictError,
    ErasedError,
    MissingChunkError,
    MissingObjectError,
    MissingSessionError,
    NameInUseError,
    StoreUnavailableError,
)
from rath_bridge.model.chunk import Chunk, Draft, Key, now, render_envelope
from rath_bridge.model.digests import Digest, digest
from rath_bridge.store.arriving import Arrival, Landing, as_draft, check
from rath_bridge.store.erasing import Erasure, Plan, bodies_alone, many, plan
from rath_bridge.store.forking import StoreLock, register
from rath_bridge.store.memory_index import MemoryIndex
from rath_bridge.store.protocol import Appended, OnConflict, Ref, RefMove

_numbers = count(1)


class _Row(NamedTuple):
    """A chunk as it is kept; the `Chunk` is built when somebody reads it."""

    id: Digest
    draft: Draft
    parents: tuple[Digest, ...]
    position: int
    generation: int
    line: _Line
    arrived: Chunk | None = None
    """What an ingest brought, where the draft does not tell it all: an erased body, unknown fields."""


@dataclass(slots=True)
class _Line:
    """A run of chunks that follow each other; a fork opens a new one."""

    parent: _Row | None
    """The chunk that the first one follows."""
    start: int
    rows: list[_Row] = field(default_factory=list[_Row])


@dataclass(slots=True)
class _Tip:
    row: _Row
    owns: bool
    """Whether this ref alone appends to the line of its tip."""
    moves: list[RefMove]


class _Torn:
    """Stands in a forked child for what a thread of the parent was changing, and did not finish."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __getattr__(self, name: str) -> Any:
        raise StoreUnavailableError(
            self._url,
            "this process was forked while another thread was writing it for long; fork first, or make a store of its own",
        )

    def __enter__(self) -> Any:
        return self.anything

    def __exit__(self, *_: object) -> None: ...

    def __getitem__(self, key: object) -> Any:
        return self.anything

    def __setitem__(self, key: object, value: object) -> None:
        return self.anything

    def __iter__(self) -> Any:
        return self.anything

    def __contains__(self, key: object) -> Any:
        return self.anything


class MemoryBackend:
    """Dictionaries and lists under one lock."""

    def __init__(self) -> None:
        self.url = f"memory:{next(_numbers)}"
        self._lock = StoreLock()
        self._rows: dict[Digest, _Row] = {}
        self._tips: dict[tuple[str, str], _Tip] = {}
        self._objects: dict[Digest, bytes] = {}
        self._erased: set[Digest] = set()
        """Objects that were erased and that somebody still names."""
        self._unswept = 0
        self._erasures = 0
        """Bodies that went without a look at what only they stood on."""
        self._entries = MemoryIndex()
        register(self)

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
            tip = self._tips.get((session, branch))
            if head is None:
                if tip is not None:
                    raise NameInUseError(Ref(session, branch, "", 0).name)
                return self._create(session, branch, drafts, tuple(parents or ()), reason)
            if tip is None:
                raise MissingSessionError(Ref(session, branch, "", 0).name, [name for name, _ in self._tips])
            if tip.row.id != head and not (on_conflict == "serialise" and (parents is None or head in parents)):
                if on_conflict != "branch":
                    raise ConflictError(Ref(session, branch, "", 0).name, head, tip.row.id)
                if not all(item.once and self._standing(item.once) for item in drafts):
                    return self._race(tip, session, branch, drafts, tuple(parents or (head,)))
            above = [tip.row] if parents is None else [tip.row if name == head else self._need(name) for name in parents]
            rows, last, written = self._add(drafts, above, tip.row.line if tip.owns and parents is None else None)
            if last is not None:
                tip.moves.append(RefMove(now(), tip.row.id, last.id, reason))
                tip.row, tip.owns = last, True
            return self._appended(session, branch, tip.row, rows, written)

    def _race(self, tip: _Tip, session: str, branch: str, drafts: Sequence[Draft], parents: tuple[Digest, ...]) -> Appended:
        """Open a branch for a batch that came late; drafts that stand there already are the same chunks."""
        again: list[_Row] = []
        for item in drafts:
            row = self._rows.get(digest(render_envelope(item, (again[-1].id,) if again else parents)))
            if item.once is not None or row is None:
                break
            again.append(row)
        if not again:
            return self._create(session, None, drafts, parents, "race")
        last = again[-1]
        if len(again) < len(drafts):
            done = self._create(session, None, drafts[len(again) :], (last.id,), "race")
            return done._replace(make=lambda: (*map(self._chunk, again), *done.chunks))
        on_line = [row.id for row in self._line(tip.row.id, last.position, last.position + 1)] == [last.id]
        name = branch if on_line else f"race-{last.id[:8]}"
        if (session, name) not in self._tips:
            raise ConflictError(Ref(session, branch, "", 0).name, parents[0], last.id)
        return self._appended(session, name, last, again, 0)

    def _create(
        self, session: str, branch: str | None, drafts: Sequence[Draft], parents: tuple[Digest, ...], reason: str
    ) -> Appended:
        rows, last, written = self._add(drafts, [self._need(name) for name in parents], None)
        if last is None:  # every draft stands already: there is nothing that a new ref could be the tip of
            raise ConflictError(Ref(session, branch or "race", "", 0).name, None, rows[-1].id)
        name = branch or f"race-{last.id[:8]}"
        self._tips[session, name] = _Tip(last, True, [RefMove(now(), None, last.id, reason)])
        return self._appended(session, name, last, rows, written)

    def _appended(self, session: str, branch: str, tip: _Row, rows: list[_Row], written: int) -> Appended:
        return Appended(Ref(session, branch, tip.id, tip.position), written, partial(self._build, rows))

    def _build(self, rows: list[_Row]) -> tuple[Chunk, ...]:
        return tuple(map(self._chunk, rows))

    def _need(self, name: Digest) -> _Row:
        found = self._rows.get(name)
        if found is None:
            raise MissingChunkError(name, "named as a parent")
        return found

    def _add(self, drafts: Sequence[Draft], above: list[_Row], line: _Line | None) -> tuple[list[_Row], _Row | None, int]:
        """Hash and keep a batch; returns a row for each draft, the last new one, and how many are new."""
        if line is None:
            line = _Line(above[0], above[0].position + 1, []) if above else _Line(None, 0, [])
        parents = (above[0].id,) if len(above) == 1 else tuple([row.id for row in above])
        generation = above[0].generation if len(above) == 1 else max([row.generation for row in above], default=-1)
        found: list[_Row] = []
        last: _Row | None = None
        kept = line.rows
        start, before = line.start, len(kept)
        for item in drafts:  # what is no draft fails here, before anything is kept
            if type(item) is not Draft:
                raise TypeError(f"a store keeps drafts, not {type(item).__name__}")
        for item in drafts:
            if item.once is not None and (standing := self._standing(item.once)) is not None:
                found.append(standing)
                continue
            generation += 1
            name = digest(render_envelope(item, parents))
            last = _Row(name, item, parents, start + len(kept), generation, line)
            if item.objects:
                self._objects.update(item.objects)
            self._rows[name] = last
            kept.append(last)
            if item.keys or item.once is not None:
                for key in item.keys if item.once is None else (*item.keys, item.once):
                    self._index(key, name)
            parents = (name,)
            found.append(last)
        return found, last, len(kept) - before

    def _chunk(self, row: _Row) -> Chunk:
        item = row.draft
        if row.arrived is not None:
            return replace(row.arrived, position=row.position, generation=row.generation, load=self.objects)
        return Chunk(
            id=row.id, kind=item.kind, parents=row.parents, at=item.at, run=item.run, origin=item.origin, span=item.span,
            size=len(item.body), body_bytes=item.body, position=row.position, generation=row.generation, load=self.objects,
        )  # fmt: skip

    def _standing(self, key: Key) -> _Row | None:
        name = self._entries.find(key)
        return None if name is None else self._rows[name]

    def _index(self, key: Key, name: Digest) -> None:
        self._entries.put(key, name)

    def copy(self, session: str, branch: str, source: Digest, first: Draft, *, reason: str = "detach") -> Ref:
        with self._lock:
            if (session, branch) in self._tips:
                raise NameInUseError(Ref(session, branch, "", 0).name)
            line = _Line(None, 0)
            self._add([first], [], line)
            for row in list(self._line(source, 0, None)):
                above = line.rows[-1]
                arrived = row.arrived and replace(row.arrived, parents=(above.id,), raw=None)
                name = digest(render_envelope(row.draft, (above.id,)) if arrived is None else arrived.envelope)
                arrived = arrived and replace(arrived, id=name)
                moved = _Row(name, row.draft, (above.id,), len(line.rows), len(line.rows), line, arrived)
                self._rows[name] = moved
                line.rows.append(moved)
            last = line.rows[-1]
            self._tips[session, branch] = _Tip(last, True, [RefMove(now(), None, last.id, reason)])
            return Ref(session, branch, last.id, last.position)

    def ingest(self, arrivals: Iterable[Arrival], landings: Sequence[Landing], *, reason: str = "import") -> int:
        with self._lock:
            fresh: dict[Digest, _Row] = {}
            objects: dict[Digest, bytes] = {}
            keys: list[tuple[Key, Digest]] = []
            for arrival in arrivals:
                chunk = arrival.chunk
                check(arrival)
                keys += [(key, chunk.id) for key in arrival.keys]
                if chunk.id in self._rows or chunk.id in fresh:
                    continue
                objects.update(arrival.objects)
                above = [fresh.get(name) or self._need(name) for name in chunk.parents]
                line = above[0].line if above else _Line(None, 0)
                if above and (above[0].id not in fresh or line.rows[-1] is not above[0]):
                    line = _Line(above[0], above[0].position + 1)
                odd = chunk if chunk.body_bytes is None or chunk.raw is not None else None
                generation = max([row.generation for row in above], default=-1) + 1
                row = _Row(chunk.id, as_draft(chunk), chunk.parents, line.start + len(line.rows), generation, line, odd)
                line.rows.append(row)
                fresh[chunk.id] = row
            tips = [fresh.get(landing.tip) or self._need(landing.tip) for landing in landings]
            for landing in landings:
                tip = self._tips.get((landing.session, landing.branch))
                if landing.head is None and tip is not None:
                    raise NameInUseError(landing.name)
                if landing.head is not None and (tip is None or tip.row.id != landing.head):
                    raise ConflictError(landing.name, landing.head, tip and tip.row.id)
            self._rows.update(fresh)
            self._objects.update(objects)
            for key, name in keys:
                if self._entries.find(key) is None:
                    self._entries.put(key, name)
            for landing, row in zip(landings, tips, strict=True):
                tip = self._tips.setdefault((landing.session, landing.branch), _Tip(row, False, []))
                tip.moves.append(RefMove(now(), landing.head, row.id, reason))
                tip.row, tip.owns = row, False
            return len(fresh)

    def drop_keys(self, framework: str, native_id: str, namespace: str | None = None, keys: Sequence[str] | None = None) -> int:
        with self._lock:
            return self._entries.drop(framework, native_id, namespace, keys)

    def copy_keys(self, framework: str, native_id: str, target: str) -> bool:
        with self._lock:
            return self._entries.copy(framework, native_id, target)

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
        with self._lock:
            chunks = set(chunks)
            if later and many(self._unswept + len(chunks), len(self._objects)):
                later, copies, unused = False, False, True
            found = {name: self._chunk(self._need(name)).body_bytes for name in chunks}
            wanted = {name: body for name, body in found.items() if body is not None}
            spare = list(self._objects) if unused else []
            if later:
                done = bodies_alone(wanted, self._had_outside(wanted))
            else:
                done = plan(wanted, set(objects), self._bodies, self._there, copies=copies, unused=spare)
            if not dry_run:
                self._erase(done)
                self._unswept = self._unswept + len(done.erasure.chunks) if later else 0 if unused else self._unswept
            return done.erasure

    def _bodies(self) -> Iterator[tuple[Digest, bytes]]:
        for row in self._rows.values():
            body = row.draft.body if row.arrived is None else row.arrived.body_bytes
            if body is not None:
                yield row.id, body

    def _there(self, names: list[Digest]) -> dict[Digest, bytes]:
        return {name: self._objects[name] for name in names if name in self._objects}

    def _erase(self, done: Plan) -> None:
        swapped: dict[Digest, _Row] = {}
        for name in done.erasure.chunks:
            row = self._rows[name]
            bare = replace(self._chunk(row), body_bytes=None, erased_digest=done.stubs[name][0], load=None)
            swapped[name] = self._rows[name] = row._replace(draft=as_draft(bare), arrived=bare)
            row.line.rows[row.position - row.line.start] = swapped[name]
        for line in {id(row.line): row.line for row in self._rows.values()}.values() if swapped else ():
            if line.parent is not None:
                line.parent = swapped.get(line.parent.id, line.parent)
        for tip in self._tips.values():
            tip.row = swapped.get(tip.row.id, tip.row)
        for name in done.erasure.objects:
            self._objects.pop(name, None)
        self._erased.update(done.erasure.named)
        self._erasures += bool(done.erasure.objects)

    def _had_outside(self, wanted: Mapping[Digest, bytes]) -> set[Digest]:
        """Chunks whose bodies others have, too: detached lines share them."""
        mine = {id(body): name for name, body in wanted.items()}
        return {mine[id(body)] for name, body in self._bodies() if id(body) in mine and name not in wanted}

    def erasures(self) -> int:
        return self._erasures

    def scrub(self) -> None:
        """Drop what nothing stands on; there are no files."""
        if self._unswept:
            self.erase((), unused=True)

    def locks(self) -> Iterable[StoreLock]:
        """A fork lets writers finish: a child goes on with its own copy."""
        return (self._lock,)

    def after_fork(self, held: Sequence[StoreLock], *, child: bool) -> None:
        """In a child, a copy that a writer had half changed is not gone on with."""
        if child and not held:
            torn: Any = _Torn(self.url)
            self._lock = self._rows = self._tips = self._objects = self._entries = torn

    def close(self) -> None:
        """Nothing to release."""

    # ---------------------------------------------------------------- read

    def refs(self, session: str | None = None) -> list[Ref]:
        with self._lock:
            found = [
                Ref(name, branch, tip.row.id, tip.row.position)
                for (name, branch), tip in self._tips.items()
                if session in (None, name)
            ]
        return sorted(found, key=lambda ref: (ref.session, ref.branch != "main", ref.branch))

    def ref(self, session: str, branch: str) -> Ref | None:
        tip = self._tips.get((session, branch))
        return tip and Ref(session, branch, tip.row.id, tip.row.position)

    def reflog(self, session: str, branch: str) -> list[RefMove]:
        tip = self._tips.get((session, branch))
        return list(tip.moves) if tip else []

    def chunk(self, name: Digest) -> Chunk:
        found = self._rows.get(name)
        if found is None:
            raise MissingChunkError(name)
        return self._chunk(found)

    def line(self, head: Digest, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        return map(self._chunk, self._line(head, start, stop))

    def _line(self, head: Digest, start: int, stop: int | None) -> Iterator[_Row]:
        last = self._need(head)
        end = last.position + 1 if stop is None else min(stop, last.position + 1)
        line = last.line
        parts: list[tuple[_Line, int, int]] = []
        while end > start:
            if end > line.start:
                parts.append((line, max(start, line.start) - line.start, end - line.start))
                end = line.start
            if line.parent is None:
                break
            line = line.parent.line
        for line, first, stop_at in reversed(parts):
            yield from line.rows[first:stop_at]

    def find(self, prefix: str) -> list[Digest]:
        with self._lock:
            return sorted(name for name in self._rows if name.startswith(prefix))[:10]

    def find_objects(self, prefix: str) -> list[Digest]:
        """Up to ten digests of blobs, native records and tree nodes that begin with these hexadecimal characters."""
        with self._lock:
            return sorted(name for name in self._objects if name.startswith(prefix))[:10]

    def objects(self, names: Iterable[Digest]) -> Mapping[Digest, bytes]:
        try:
            return {name: self._objects[name] for name in names}
        except KeyError as error:
            gone = str(error.args[0])
            raise ErasedError(gone) if gone in self._erased else MissingObjectError(gone) from None

    def lookup(self, key: Key) -> Chunk | None:
        row = self._standing(key)
        return None if row is None else self._chunk(row)

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
        with self._lock:
            found = self._entries.scan(framework, native_id, namespace, before, exact, sub, limit)
            return [(Key(framework, native_id, namespace, key, sub_), self.chunk(name)) for key, sub_, name in found]

    def entries(self) -> Iterator[tuple[Key, Digest]]:
        with self._lock:
            frameworks = self._entries.frameworks()
        for framework in frameworks:
            for native_id, namespace in self.scopes(framework):
                with self._lock:
                    found = self._entries.scan(framework, native_id, namespace)
                yield from ((Key(framework, native_id, namespace, key, sub), name) for key, sub, name in found)

    def scopes(self, framework: str, native_id: str | None = None) -> list[tuple[str, str]]:
        with self._lock:
            return self._entries.scopes(framework, native_id)
