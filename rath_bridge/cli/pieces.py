"""History condensed for drawing: chunks that simply follow each other become one piece.

A piece ends where another line begins (a fork point), before and after a merge, and at the tip of a ref.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.store.protocol import Reader, Ref

_PAGES: Final = (32, 4096)
"""Smallest and largest number of chunks that are read at once: short branches cost little, long lines few reads."""


@dataclass(slots=True)
class Piece:
    """Consecutive chunks of one line."""

    first: Digest
    tip: Digest
    count: int
    parents: tuple[int, ...]
    """Pieces that it follows; the first is the line that goes on."""
    trunk: int | None
    """The piece that follows it on the same stretch."""
    refs: tuple[str, ...] = ()
    said: Digest | None = None
    """Its last message."""
    marks: frozenset[str] = frozenset()
    """Origins seen in it."""
    matched: int | None = None
    """How many of its chunks were asked for; None where nothing was asked. `said` is then the last of them."""


@dataclass(slots=True)
class _Stretch:
    """What one walk along a line added, oldest first."""

    parents: tuple[Digest, ...]
    ids: list[Digest] = field(default_factory=list[Digest])
    merges: dict[int, tuple[Digest, ...]] = field(default_factory=dict[int, tuple[Digest, ...]])
    messages: list[int] = field(default_factory=list[int])
    origins: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Offsets at which the origin changes; empty text where there is none."""
    found: list[int] | None = None
    """Offsets of the chunks that are asked for."""


def condense(
    refs: Sequence[Ref],
    reader: Reader,
    progress: Callable[[int], None] = lambda _: None,
    asked: Callable[[Chunk], bool] | None = None,
) -> list[Piece]:
    """Read all that ``refs`` descend from, each chunk once, and return its pieces.

    Args:
        refs: Tips, in order of rank: shared history belongs to the line of the first.
        reader: Read access.
        progress: Told how many chunks have been read.
        asked: Tells which chunks to count, and to tell a piece by.

    Raises:
        MissingChunkError: A parent is not in the store; run ``rath-bridge fsck``.
    """
    where: dict[Digest, tuple[int, int]] = {}
    stretches: list[_Stretch] = []
    todo = [ref.head for ref in reversed(refs)]
    while todo:
        head = todo.pop()
        if head in where:
            continue
        stretch = _read(head, reader, where, len(stretches), progress, asked)
        stretches.append(stretch)
        todo += [parent for parents in stretch.merges.values() for parent in parents[1:]]
        todo += stretch.parents[1:]
    return _cut(stretches, where, refs)


def _read(
    head: Digest, reader: Reader, where: dict[Digest, tuple[int, int]], number: int, progress: Callable[[int], None],
    asked: Callable[[Chunk], bool] | None,
) -> _Stretch:  # fmt: skip
    """Walk a line back, page by page, until history that is known."""
    size, most = _PAGES
    ids: list[Digest] = []
    facts: list[tuple[str, str | None, tuple[Digest, ...], bool]] = []
    name: Digest | None = head
    while name is not None and name not in where:
        last = reader.chunk(name)
        page = list(reader.line(name, max(0, last.position + 1 - size)))
        size = min(size * 2, most)
        name = page[0].parents[0] if page[0].parents else None
        for chunk in reversed(page):
            if chunk.id in where:
                name = chunk.id
                break
            ids.append(chunk.id)
            facts.append((chunk.kind, chunk.origin, chunk.parents, asked is not None and asked(chunk)))
        progress(len(where) + len(ids))
    ids.reverse()
    facts.reverse()
    stretch = _Stretch(facts[0][2], ids, found=None if asked is None else [])
    origin = ""
    for offset, (kind, seen, parents, matches) in enumerate(facts):
        where[ids[offset]] = (number, offset)
        if offset and len(parents) > 1:
            stretch.merges[offset] = parents
        if kind == "message":
            stretch.messages.append(offset)
        if matches and stretch.found is not None:
            stretch.found.append(offset)
        if (seen or "") != origin:
            origin = seen or ""
            stretch.origins.append((offset, origin))
    return stretch


def _cut(stretches: Sequence[_Stretch], where: dict[Digest, tuple[int, int]], refs: Iterable[Ref]) -> list[Piece]:
    ends: list[set[int]] = [{len(stretch.ids) - 1} for stretch in stretches]
    names: dict[Digest, list[str]] = {}
    for ref in refs:
        names.setdefault(ref.head, []).append(ref.name)
        at, offset = where[ref.head]
        ends[at].add(offset)
    for number, stretch in enumerate(stretches):
        links = list(stretch.parents)
        for offset, parents in stretch.merges.items():
            ends[number] |= {offset - 1, offset}
            links += parents[1:]
        if len(stretch.parents) > 1:
            ends[number].add(0)
        for link in links:
            at, offset = where[link]
            ends[at].add(offset)
    index: dict[tuple[int, int], int] = {}
    for number, found in enumerate(ends):
        for offset in sorted(found):
            index[number, offset] = len(index)
    pieces: list[Piece] = []
    for number, stretch in enumerate(stretches):
        start = 0
        offsets = sorted(ends[number])
        for rank, end in enumerate(offsets):
            over = stretch.merges.get(start, stretch.parents if start == 0 else (stretch.ids[start - 1],))
            following = index[number, offsets[rank + 1]] if rank + 1 < len(offsets) else None
            said = _last(stretch.messages if stretch.found is None else stretch.found, start, end)
            matched = None if stretch.found is None else bisect_right(stretch.found, end) - bisect_left(stretch.found, start)
            pieces.append(
                Piece(
                    first=stretch.ids[start], tip=stretch.ids[end], count=end - start + 1,
                    parents=tuple(index[where[parent]] for parent in over), trunk=following,
                    refs=tuple(names.get(stretch.ids[end], ())), said=None if said is None else stretch.ids[said],
                    marks=_marks(stretch.origins, start, end), matched=matched,
                )
            )  # fmt: skip
            start = end + 1
    return pieces


def _last(messages: Sequence[int], start: int, end: int) -> int | None:
    at = bisect_right(messages, end)
    return messages[at - 1] if at and messages[at - 1] >= start else None


def _marks(origins: Sequence[tuple[int, str]], start: int, end: int) -> frozenset[str]:
    first = max(0, bisect_right(origins, (start, "\U0010ffff")) - 1)
    return frozenset(origin for _, origin in origins[first : bisect_right(origins, (end, "\U0010ffff"))] if origin)
