"""Fsck: check all that a store or a session stands on; yields every fault and never stops at the first."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import orjson

from rath_bridge.errors import CorruptStoreError, DecodeError, MissingChunkError, RathError, StoreUnavailableError, in_words
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest, digest
from rath_bridge.model.encoding import decode
from rath_bridge.model.kinds import body_of
from rath_bridge.model.reaching import ABSENT, Memo, Reference, body_references, reach
from rath_bridge.store.protocol import Reader, Ref
from rath_bridge.verbs.pairing import CallEvent, Pairing, call_events

PAGE: Final = 512
_LOOKS: Final = 5
"""How often to look at a ref that moves while it is looked at."""
"""Chunks that are read at once."""

_TARGETS: Final = {
    "message": ("replaces", "same_as", "after", "stands_for"),
    "compaction": ("dropped", "stands"),
    "merge": ("base",),
}
"""Fields that name other chunks."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault."""

    object: str
    """Digest, ref or file."""
    problem: str
    path: str = ""
    """Where: ref and position, or file and line."""
    because: str = field(default="", compare=False)
    """``object`` of another finding that explains this one; empty where none does."""

    def __str__(self) -> str:
        return f"{self.object}: {self.problem}{f' ({self.path})' if self.path else ''}"


def fsck(reader: Reader, *, heads: Sequence[Digest] | None = None, head: Digest | None = None) -> Iterator[Finding]:
    """Check a store or some of its lines. Shared history is checked once, in memory that does not grow with bodies.

    Args:
        reader: Read access.
        heads: Lines to check, with all that was merged into them; every ref when absent.
        head: A head that is known from elsewhere; it must be in the history of what is checked (law 10).

    Yields:
        Every fault: envelopes and bodies that do not hash to their names, missing or misplaced parents, objects that are gone,
        altered or malformed, refs and reflogs that point elsewhere, second results of a call, targets that do not exist.

    Raises:
        StoreUnavailableError: The store cannot be read at all.
    """
    check = _Check(reader)
    refs: list[Ref] = []
    try:
        refs = [ref for ref in reader.refs() if heads is None or ref.head in heads]
    except CorruptStoreError as error:
        yield Finding(error.what, error.problem, "refs")
    names = {ref.head: ref.name for ref in reversed(refs)}
    for start in dict.fromkeys([ref.head for ref in refs] if heads is None else heads):
        yield from check.history(start, names.get(start, start[:12]))
    yield from check.absent()
    for ref in refs:
        yield from check.ref(ref)
    if head is not None and head not in check.seen:
        yield Finding(head, "the known head is not in the history that was checked", ", ".join(names.values()))


class _Check:
    """One pass. A stretch is the part of a line that was not checked before; it is walked from its head back."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.seen: dict[Digest, int] = {}
        """Every checked chunk, with its stretch."""
        self._objects = Memo()
        self._pairing = Pairing()
        self._told: set[str] = set()
        """Objects that a redaction on record names as erased."""
        self._absent: list[Finding] = []

    def absent(self) -> Iterator[Finding]:
        """Objects that are not there, unless a redaction tells why; once everything was walked."""
        yield from (finding for finding in self._absent if finding.object not in self._told)

    def history(self, head: Digest, where: str) -> Iterator[Finding]:
        """Check a line and all that was merged into it."""
        todo = [(head, where)]
        while todo:
            start, name = todo.pop()
            if start not in self.seen:
                yield from self._stretch(start, name, todo)

    def _stretch(self, head: Digest, where: str, todo: list[tuple[Digest, str]]) -> Iterator[Finding]:
        try:
            last = self._reader.chunk(head)
        except StoreUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - damage may raise anything
            yield Finding(head, _unreadable(error), where)
            return
        stretch = self._pairing.stretch()
        events: list[CallEvent] = []
        targets: dict[Digest, tuple[Digest, str]] = {}
        renamed: set[Digest] = set()
        expected: Digest | None = head
        child: Chunk | None = None
        joined: tuple[int, int] | None = None
        stop = last.position + 1
        while stop > 0 and joined is None:
            start = max(0, stop - PAGE)
            page, problems = self._page(head, start, stop)
            references: list[tuple[Chunk, str, list[Reference]]] = []
            for position in range(stop - 1, start - 1, -1):
                place = f"{where}[{position}]"
                chunk = page.get(position)
                if chunk is None:
                    yield Finding(expected or place, problems.get(position, "the chunk is missing from its line"), place)
                    expected, child = None, None
                    continue
                if position in problems:
                    yield Finding(chunk.id, problems[position], place)
                if expected is not None and chunk.id != expected:
                    yield Finding(expected, f"it belongs here, but {chunk.id} stands in its place", place)
                if self.seen.get(chunk.id) == stretch:
                    yield Finding(chunk.id, "it stands twice on one line", place)
                    expected, child = None, None
                    continue
                if chunk.id in self.seen:
                    joined = (self.seen[chunk.id], position)
                    yield from self._generation(child, chunk, where)
                    break
                yield from self._generation(child, chunk, where)
                body = yield from self._chunk(chunk, place)
                if chunk.body_bytes is not None:
                    references.append((chunk, place, list(_references(body))))
                    events += reversed(call_events(chunk, body))
                    _targets(chunk, body, place, targets)
                    self._told |= _erased(chunk, body)
                    renamed |= _renamed(chunk, body)
                self.seen[chunk.id] = stretch
                todo += [(parent, f"{where}[{position}], merged") for parent in chunk.parents[1:]]
                if position and not chunk.parents:
                    yield Finding(chunk.id, f"it has no parent, but stands at position {position}", place)
                if not position and chunk.parents:
                    yield Finding(chunk.id, "it stands at the beginning, but has a parent", place)
                expected, child = (chunk.parents[0] if chunk.parents else None), chunk
            yield from self._reached(references)
            stop = start
        self._pairing.join(stretch, joined)
        for event, first in self._pairing.feed(stretch, reversed(events)):
            yield Finding(event.chunk, f"a second result of call {event.id!r}: {first} answered it", f"{where}[{event.position}]")
        for target, (source, place) in targets.items():
            if target not in self.seen and target not in renamed and not self._exists(target):
                yield Finding(target, f"chunk {source} refers to it, but it does not exist", place)

    def _page(self, head: Digest, start: int, stop: int) -> tuple[dict[int, Chunk], dict[int, str]]:
        """Read part of a line; where that fails, piece by piece down to the chunks that cannot be read."""
        found: dict[int, Chunk] = {}
        problems: dict[int, str] = {}
        parts = [(start, stop)]
        while parts:
            first, end = parts.pop()
            try:
                page = list(self._reader.line(head, first, end))
            except StoreUnavailableError:
                raise
            except Exception as error:  # noqa: BLE001 - damage may raise anything
                page, problems[first] = [], _unreadable(error)
            sound = [chunk.position for chunk in page] == list(range(first, end))
            if not sound and end - first > 1:
                middle = (first + end) // 2
                parts += [(first, middle), (middle, end)]
                problems.pop(first, None)
                continue
            found |= dict(zip(range(first, end), page, strict=False))
            if page and not sound:
                problems[first] = f"it says that it stands at position {page[0].position}"
        return found, problems

    def _chunk(self, chunk: Chunk, place: str) -> Generator[Finding, None, Any]:
        """Check one chunk by itself; returns its parsed body."""
        try:
            sound = digest(chunk.envelope) == chunk.id
        except Exception as error:  # noqa: BLE001 - damage may raise anything
            yield Finding(chunk.id, f"its envelope cannot be written ({error})", place)
            sound = True
        if not sound:
            yield Finding(chunk.id, "its envelope does not hash to its id: a field or the body was changed", place)
        if chunk.raw is not None:
            yield from _raw(chunk, place)
        if chunk.body_bytes is None:
            return None
        if chunk.size != len(chunk.body_bytes):
            yield Finding(chunk.id, f"its body has {len(chunk.body_bytes)} bytes where {chunk.size} are written", place)
        try:
            body = orjson.loads(chunk.body_bytes)
            body_of(chunk.kind, decode(chunk.body_bytes, _unread))
        except (DecodeError, ValueError, TypeError, AttributeError) as error:
            yield Finding(chunk.id, f"its body cannot be read ({error})", place)
            return None
        return body

    def _generation(self, child: Chunk | None, chunk: Chunk, where: str) -> Iterator[Finding]:
        if child is None:
            return
        greatest = chunk.generation
        place = f"{where}[{child.position}]"
        for name in child.parents[1:]:
            try:
                greatest = max(greatest, self._reader.chunk(name).generation)
            except StoreUnavailableError:
                raise
            except Exception:  # noqa: BLE001 - the walk into that parent names it
                return
        if child.generation != greatest + 1:
            yield Finding(child.id, f"its generation is {child.generation}, its parents' greatest is {greatest}", place)

    def _reached(self, references: list[tuple[Chunk, str, list[Reference]]]) -> Iterator[Finding]:
        """Check the objects of a page; where one is at fault, name the chunks that stand on it."""
        every = [reference for _, _, found in references for reference in found]
        for reached in reach(every, self._reader.objects, self._objects):
            if reached.problem is not None:
                name = reached.reference.digest
                at = next((place for _, place, found in references if any(r.digest == name for r in found)), None)
                finding = Finding(name, reached.problem, at or f"in a tree of {references[-1][1]} to {references[0][1]}")
                if reached.problem == ABSENT:
                    self._absent.append(finding)
                else:
                    yield finding

    def _exists(self, name: Digest) -> bool:
        try:
            return self._reader.chunk(name).id == name
        except StoreUnavailableError:
            raise
        except Exception:  # noqa: BLE001 - damage may raise anything; the caller names it
            return False

    def _goes_on(self, ref: Ref) -> bool:
        """Tell whether somebody writes to a ref at this moment: it stood here, and has moved since in step with its reflog."""
        stood = ref.head
        for _ in range(_LOOKS):
            moves = self._reader.reflog(ref.session, ref.branch)
            there = self._reader.ref(ref.session, ref.branch)
            if there is None or not moves:
                return False
            if moves[-1].new in (stood, there.head):
                return any(move.new == ref.head for move in moves)
            if there.head == stood:
                return False
            stood = there.head
        return True

    def ref(self, ref: Ref) -> Iterator[Finding]:
        """Check that a ref and its reflog point to chunks and agree with each other."""
        try:
            position = self._reader.chunk(ref.head).position if ref.head in self.seen else ref.position
            moves = self._reader.reflog(ref.session, ref.branch)
        except CorruptStoreError as error:
            yield Finding(error.what, error.problem, f"reflog of {ref.name}")
            return
        if position != ref.position:
            yield Finding(ref.name, f"it gives position {ref.position}, its head stands at {position}", ref.name)
        before: Digest | None = None
        for number, move in enumerate(moves):
            place = f"reflog of {ref.name}, line {number + 1}"
            if move.old != before:
                yield Finding(ref.name, f"the move starts from {move.old}, but the ref stood at {before}", place)
            if move.new not in self.seen and not self._exists(move.new):
                yield Finding(move.new, "the reflog names it, but it does not exist", place)
            before = move.new
        if before != ref.head and not self._goes_on(ref):
            yield Finding(ref.name, f"it stands at {ref.head}, its reflog ends at {before}", f"reflog of {ref.name}")


def _unreadable(error: Exception) -> str:
    return "the chunk is missing" if isinstance(error, MissingChunkError) else f"the chunk cannot be read ({error})"


def _unread(names: Iterable[Digest]) -> dict[Digest, bytes]:
    """Stand in for long texts: whether a body is well formed does not depend on them, and they are checked on their own."""
    return dict.fromkeys(names, b"")


def _references(body: Any) -> Iterator[Reference]:
    try:
        yield from body_references(body)
    except (RathError, TypeError, ValueError):
        return  # a malformed body; `_chunk` has named it


def _targets(chunk: Chunk, body: Any, place: str, targets: dict[Digest, tuple[Digest, str]]) -> None:
    """Collect the chunks that a body names."""
    if chunk.kind not in _TARGETS or type(body) is not dict:
        return
    for named in _TARGETS[chunk.kind]:
        value: Any = cast("dict[str, Any]", body).get(named)
        for name in cast("list[Any]", value) if isinstance(value, list) else [value]:
            if isinstance(name, str):
                targets.setdefault(name, (chunk.id, place))


def _renamed(chunk: Chunk, body: Any) -> set[Digest]:
    """Old digests under which the bodies of a detached line name chunks of their own line."""
    value: Any = cast("dict[str, Any]", body).get("renamed") if chunk.kind == "session" and type(body) is dict else None
    return set(cast("dict[str, Any]", value)) if isinstance(value, dict) else set()


def _erased(chunk: Chunk, body: Any) -> set[str]:
    """Objects that a redaction names."""
    value: Any = cast("dict[str, Any]", body).get("objects") if chunk.kind == "redaction" and type(body) is dict else None
    return {name for name in cast("list[Any]", value) if isinstance(name, str)} if isinstance(value, list) else set()


def _raw(chunk: Chunk, place: str) -> Iterator[Finding]:
    """Check an envelope that is kept as bytes against what was read from it."""
    try:
        fields = orjson.loads(chunk.raw or b"")
        told = (fields["kind"], tuple(fields.get("parents", ())), fields["body"], fields["size"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        yield Finding(chunk.id, f"its envelope cannot be read ({in_words(error)})", place)
        return
    if told != (chunk.kind, chunk.parents, chunk.body_digest, chunk.size):
        yield Finding(chunk.id, "its envelope and its fields or body do not agree", place)
