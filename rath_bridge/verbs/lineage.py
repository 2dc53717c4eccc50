"""Who descends from whom: iterative walks over parents, by generation number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.store.protocol import Reader


def merge_base(ours: Digest, theirs: Digest, reader: Reader) -> Digest | None:
    """Return the nearest chunk that both histories contain.

    Walks both histories by generation number, newest first, so the cost follows the distance to the base, not the
    length of the sessions.

    Args:
        ours: Head of the receiving session.
        theirs: Head of the session to fold in.
        reader: Read access to chunks.

    Returns:
        The base's digest, or None where the two share no history (a detached copy).

    Raises:
        MissingChunkError: A parent is named that the store does not hold; run ``rath-bridge fsck``.
    """
    for chunk, sides in _walk(ours, theirs, reader):
        if sides == 3:
            return chunk.id
    return None


def apart(ours: Digest, theirs: Digest, reader: Reader) -> tuple[Digest | None, list[Chunk], list[Chunk]]:
    """Return the base and the chunks that only one side holds, oldest first on each side."""
    only: dict[int, list[Chunk]] = {1: [], 2: []}
    base = None
    for chunk, sides in _walk(ours, theirs, reader):
        if sides != 3:
            only[sides].append(chunk)
        elif base is None:
            base = chunk.id
    return base, only[1][::-1], only[2][::-1]


def _walk(ours: Digest, theirs: Digest, reader: Reader) -> Iterator[tuple[Chunk, int]]:
    """Yield chunks newest first with the sides that hold them (1, 2 or 3) until only common ones are left."""
    pages = Pages(reader)
    sides: dict[Digest, int] = {}
    queue: list[tuple[int, Digest]] = []

    def push(name: Digest, side: int) -> None:
        if name not in sides:
            heappush(queue, (-pages.chunk(name).generation, name))
        sides[name] = sides.get(name, 0) | side

    if ours == theirs:
        yield pages.chunk(ours), 3
        return
    push(ours, 1)
    push(theirs, 2)
    pending = 2  # names in the queue that not both sides hold
    while queue and pending:
        _, name = heappop(queue)
        side = sides[name]
        chunk = pages.chunk(name)
        if side != 3:
            pending -= 1
        yield chunk, side
        for parent in chunk.parents:
            before = sides.get(parent)
            push(parent, side)
            after = sides[parent]
            if before is None and after != 3:
                pending += 1
            elif before is not None and before != 3 and after == 3:
                pending -= 1
    if queue:  # the nearest common chunk still waits where both lines met
        name = heappop(queue)[1]
        yield pages.chunk(name), sides[name]


class Pages:
    """Chunks read a page of their line at a time, since walks go back along lines. Memory is bounded: old pages are let go.

    Where a walk enters a line it reads one chunk, then a page, and pages double as it goes on: a short walk reads little.
    """

    def __init__(self, reader: Reader, page: int = 32, most: int = 1024, keep: int = 8_192) -> None:
        self._reader, self._page, self._most, self._keep = reader, page, most, keep
        self._known: dict[Digest, Chunk] = {}
        self._older: dict[Digest, Chunk] = {}
        self._next: dict[Digest, int] = {}
        """Where a walk would go on, and how large a page to read there."""

    def chunk(self, name: Digest) -> Chunk:
        """One chunk; where a walk goes on, the ones before it on its line come along."""
        found = self._known.get(name) or self._older.get(name)
        if found is None:
            found = self._reader.chunk(name)
            size = self._next.pop(name, 1)
            page = list(self._reader.line(name, max(0, found.position - size + 1), found.position)) if size > 1 else []
            if len(self._known) >= self._keep:
                self._older, self._known = self._known, {}
            self._known |= {chunk.id: chunk for chunk in page}
            self._known[name] = found
            oldest = page[0] if page else found
            if oldest.parents:
                self._next[oldest.parents[0]] = min(max(size * 2, self._page), self._most)
        return found


def newest_first(head: Digest, reader: Reader) -> Iterator[Chunk]:
    """Yield the first-parent line of ``head``, newest first, read in pages from its end."""
    name: Digest | None = head
    size = 32
    while name is not None:
        last = reader.chunk(name)
        page = list(reader.line(name, max(0, last.position - size + 1), last.position))
        yield last
        yield from reversed(page)
        oldest = page[0] if page else last
        name = oldest.parents[0] if oldest.parents else None
        size = min(size * 2, 1024)


def walk(heads: Iterable[Digest], reader: Reader, *, first_parent: bool = False) -> Iterator[Chunk]:
    """Yield every chunk that any of ``heads`` descends from, each once, children before parents, greatest generation first.

    Args:
        heads: Where to begin; they come too.
        reader: Read access.
        first_parent: Follow first parents only.
    """
    pages = Pages(reader, most=512, keep=2_048)
    waiting = set(heads)
    queue = [(-pages.chunk(name).generation, name) for name in waiting]
    heapify(queue)
    while queue:
        chunk = pages.chunk(heappop(queue)[1])
        waiting.discard(chunk.id)  # all its children came before it: nobody will name it again
        yield chunk
        for parent in chunk.parents[:1] if first_parent else chunk.parents:
            if parent not in waiting:
                waiting.add(parent)
                heappush(queue, (-pages.chunk(parent).generation, parent))


def ancestors(head: Digest, reader: Reader) -> Iterator[Chunk]:
    """Yield every chunk that ``head`` descends from, itself first, each once, children before parents."""
    return walk((head,), reader)


def holds(head: Digest, wanted: Digest, reader: Reader) -> bool:
    """Tell whether ``head`` descends from ``wanted`` (or is it)."""
    target = reader.chunk(wanted)
    for chunk in ancestors(head, reader):
        if chunk.id == wanted:
            return True
        if chunk.generation < target.generation:
            return False
    return False
