"""A store in memory: for tests, notebooks and short runs. Same laws as the others; gone when the process ends."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from threading import RLock

from rath_bridge.errors import ConflictError, MissingChunkError, MissingObjectError, MissingSessionError, NameInUseError
from rath_bridge.model.chunk import Chunk, Draft, Key, now, render_envelope
from rath_bridge.model.digests import Digest, digest
from rath_bridge.store.protocol import Appended, OnConflict, Ref, RefMove

_Scope = tuple[str, str, str]
_numbers = count(1)


@dataclass(slots=True)
class _Line:
    """A run of chunks that follow each other; a fork opens a new one."""

    parent: tuple[_Line, int] | None
    """Line and position of the chunk that the first one follows."""
    start: int
    chunks: list[Chunk] = field(default_factory=list[Chunk])


@dataclass(slots=True)
class _Tip:
    line: _Line
    head: Chunk
    owns: bool = True
    """Whether this ref alone appends to the line."""
    moves: list[RefMove] = field(default_factory=list[RefMove])


class MemoryBackend:
    """Dictionaries and lists under one lock."""

    def __init__(self) -> None:
        self.url = f"memory:{next(_numbers)}"
        self._lock = RLock()
        self._chunks: dict[Digest, tuple[Chunk, _Line]] = {}
        self._tips: dict[tuple[str, str], _Tip] = {}
        self._objects: dict[Digest, bytes] = {}
        self._keys: dict[_Scope, dict[tuple[str, str], Digest]] = {}
        self._order: dict[_Scope, list[tuple[str, str]]] = {}

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
            if tip.head.id != head and on_conflict != "serialise":
                if on_conflict == "raise":
                    raise ConflictError(Ref(session, branch, "", 0).name, head, tip.head.id)
                if all(item.once and self.lookup(item.once) for item in drafts):
                    head = tip.head.id  # nothing to add: stand where the ref stands
                else:
                    return self._create(session, None, drafts, tuple(parents or (head,)), "race")
            line, chunks, written = self._add(
                drafts, tuple(parents or (tip.head.id,)), tip.line if tip.owns and parents is None else None
            )
            if written:
                old, tip.head, tip.line, tip.owns = tip.head.id, line.chunks[-1], line, True
                tip.moves.append(RefMove(now(), old, tip.head.id, reason))
            return Appended(Ref(session, branch, tip.head.id, tip.head.position), chunks, written)

    def _create(
        self, session: str, branch: str | None, drafts: Sequence[Draft], parents: tuple[Digest, ...], reason: str
    ) -> Appended:
        line, chunks, written = self._add(drafts, parents, None)
        last = line.chunks[-1] if line.chunks else self._need(parents[0])[0]
        name = branch or f"race-{last.id[:8]}"
        self._tips[session, name] = _Tip(line, last, bool(line.chunks), [RefMove(now(), None, last.id, reason)])
        return Appended(Ref(session, name, last.id, last.position), chunks, written)

    def _need(self, name: Digest) -> tuple[Chunk, _Line]:
        found = self._chunks.get(name)
        if found is None:
            raise MissingChunkError(name, "named as a parent")
        return found

    def _add(
        self, drafts: Sequence[Draft], parents: tuple[Digest, ...], line: _Line | None
    ) -> tuple[_Line, tuple[Chunk, ...], int]:
        known = [self._need(name) for name in parents]
        if line is None:
            above, above_line = known[0] if known else (None, None)
            line = _Line(
                (above_line, above.position) if above and above_line else None, above.position + 1 if above else 0
            )
        generation = max((chunk.generation for chunk, _ in known), default=-1)
        found: list[Chunk] = []
        written = 0
        for item in drafts:
            if item.once is not None and (standing := self.lookup(item.once)) is not None:
                found.append(standing)
                continue
            envelope = render_envelope(item, parents)
            name = digest(envelope)
            generation += 1
            chunk = Chunk(
                id=name, kind=item.kind, parents=parents, at=item.at, run=item.run, origin=item.origin, span=item.span,
                size=len(item.body), body_bytes=item.body, position=line.start + len(line.chunks), generation=generation,
                load=self.objects,
            )  # fmt: skip
            if item.objects:
                self._objects.update(item.objects)
            self._chunks[name] = (chunk, line)
            line.chunks.append(chunk)
            for key in item.keys if item.once is None else (*item.keys, item.once):
                self._index(key, name)
            parents = (name,)
            found.append(chunk)
            written += 1
        return line, tuple(found), written

    def _index(self, key: Key, name: Digest) -> None:
        scope = (key.framework, key.native_id, key.namespace)
        entries = self._keys.setdefault(scope, {})
        place = (key.key, key.sub)
        if place not in entries:
            insort(self._order.setdefault(scope, []), place)
        entries[place] = name

    def copy(self, session: str, branch: str, source: Digest, first: Draft, *, reason: str = "detach") -> Ref:
        with self._lock:
            if (session, branch) in self._tips:
                raise NameInUseError(Ref(session, branch, "", 0).name)
            line = _Line(None, 0)
            _, chunks, _ = self._add([first], (), line)
            above = chunks[0].id
            for chunk in list(self.line(source)):
                moved = replace(chunk, parents=(above,), raw=None, position=len(line.chunks), generation=len(line.chunks))
                moved = replace(moved, id=digest(moved.envelope))
                self._chunks[moved.id] = (moved, line)
                line.chunks.append(moved)
                above = moved.id
            last = line.chunks[-1]
            self._tips[session, branch] = _Tip(line, last, True, [RefMove(now(), None, last.id, reason)])
            return Ref(session, branch, last.id, last.position)

    def drop_keys(self, framework: str, native_id: str, namespace: str | None = None, keys: Sequence[str] | None = None) -> int:
        with self._lock:
            dropped = 0
            for scope in [s for s in self._keys if s[:2] == (framework, native_id) and namespace in (None, s[2])]:
                entries, wanted = self._keys[scope], None if keys is None else set(keys)
                gone = [place for place in entries if wanted is None or place[0] in wanted]
                for place in gone:
                    del entries[place]
                dropped += len(gone)
                self._order[scope] = sorted(entries)
                if not entries:
                    del self._keys[scope], self._order[scope]
            return dropped

    def close(self) -> None:
        """Nothing to release."""

    # ---------------------------------------------------------------- read

    def refs(self, session: str | None = None) -> list[Ref]:
        with self._lock:
            found = [
                Ref(name, branch, tip.head.id, tip.head.position)
                for (name, branch), tip in self._tips.items()
                if session in (None, name)
            ]
        return sorted(found, key=lambda ref: (ref.session, ref.branch != "main", ref.branch))

    def ref(self, session: str, branch: str) -> Ref | None:
        tip = self._tips.get((session, branch))
        return tip and Ref(session, branch, tip.head.id, tip.head.position)

    def reflog(self, session: str, branch: str) -> list[RefMove]:
        tip = self._tips.get((session, branch))
        return list(tip.moves) if tip else []

    def chunk(self, name: Digest) -> Chunk:
        found = self._chunks.get(name)
        if found is None:
            raise MissingChunkError(name)
        return found[0]

    def line(self, head: Digest, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        last, line = self._chunks.get(head) or self._need(head)
        end = last.position + 1 if stop is None else min(stop, last.position + 1)
        parts: list[tuple[_Line, int, int]] = []
        while end > start:
            if end > line.start:
                parts.append((line, max(start, line.start) - line.start, end - line.start))
                end = line.start
            if line.parent is None:
                break
            line = line.parent[0]
        for line, first, stop_at in reversed(parts):
            yield from line.chunks[first:stop_at]

    def find(self, prefix: str) -> list[Digest]:
        return sorted(name for name in self._chunks if name.startswith(prefix))[:10]

    def objects(self, names: Iterable[Digest]) -> Mapping[Digest, bytes]:
        try:
            return {name: self._objects[name] for name in names}
        except KeyError as error:
            raise MissingObjectError(str(error.args[0])) from None

    def lookup(self, key: Key) -> Chunk | None:
        name = self._keys.get((key.framework, key.native_id, key.namespace), {}).get((key.key, key.sub))
        return None if name is None else self.chunk(name)

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
            scope = (framework, native_id, namespace)
            order, entries = self._order.get(scope, []), self._keys.get(scope, {})
            end = len(order) if before is None else bisect_left(order, (before, ""))
            first = 0
            if exact is not None:
                first, end = bisect_left(order, (exact, "")), min(end, bisect_left(order, (exact + "\0", "")))
            found: list[tuple[str, str]] = []
            while end > first and (limit is None or len(found) < limit):
                group = end
                while group > first and order[group - 1][0] == order[end - 1][0]:
                    group -= 1
                found += [place for place in order[group:end] if sub in (None, place[1])]
                end = group
            return [(Key(*scope, *place), self.chunk(entries[place])) for place in found[:limit]]

    def scopes(self, framework: str, native_id: str | None = None) -> list[tuple[str, str]]:
        with self._lock:
            return sorted(scope[1:] for scope in self._keys if scope[0] == framework and native_id in (None, scope[1]))
