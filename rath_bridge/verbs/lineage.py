"""Who descends from whom: iterative walks over parents, by generation number."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

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
    """Chunks read a page of their line at a time, since walks go back along lines."""

    def __init__(self, reader: Reader, page: int = 64) -> None:
        self._reader, self._page = reader, page
        self._known: dict[Digest, Chunk] = {}

    def chunk(self, name: Digest) -> Chunk:
        """One chunk; the ones before it on its line come along once a walk goes back."""
        found = self._known.get(name)
        if found is None:
            found = self._reader.chunk(name)
            start = max(0, found.position - self._page + 1)
            for chunk in self._reader.line(name, start):
                self._known[chunk.id] = chunk
            self._page = min(self._page * 2, 4096)
        return found


def ancestors(head: Digest, reader: Reader) -> Iterator[Chunk]:
    """Yield every chunk that ``head`` descends from, itself first, each once, children before parents."""
    pages = Pages(reader)
    queue = [(-pages.chunk(head).generation, head)]
    seen = {head}
    while queue:
        chunk = pages.chunk(heappop(queue)[1])
        yield chunk
        for parent in chunk.parents:
            if parent not in seen:
                seen.add(parent)
                heappush(queue, (-pages.chunk(parent).generation, parent))


def holds(head: Digest, wanted: Digest, reader: Reader) -> bool:
    """Tell whether ``head`` descends from ``wanted`` (or is it)."""
    target = reader.chunk(wanted)
    for chunk in ancestors(head, reader):
        if chunk.id == wanted:
            return True
        if chunk.generation < target.generation:
            return False
    return False
