"""The order of chunks in a packet: parents before children, line after line, the same whenever it is asked for."""

from __future__ import annotations

from collections.abc import Iterator

from rath_bridge.errors import CorruptStoreError
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.store.protocol import Reader


def parents_first(head: Digest, reader: Reader, done: set[Digest]) -> Iterator[Chunk]:
    """Yield all that ``head`` descends from and that is not in ``done``; read in pages, whatever the depth.

    A line is followed from the first chunk that is not done; where something was merged in, its line comes first.

    Args:
        head: The last chunk to come.
        reader: Read access.
        done: What came already; grows with what is yielded. All ancestors of what it holds are in it.

    Raises:
        CorruptStoreError: A line does not hang together.
        MissingChunkError: A parent is not in the store.
    """
    stack: list[tuple[Digest, Iterator[Chunk], Chunk | None]] = [(head, _rest(head, reader, done), None)]
    while stack:
        name, line, held = stack[-1]
        chunk = held or next(line, None)
        if chunk is None:
            stack.pop()
            continue
        waiting = next((parent for parent in chunk.parents if parent not in done), None)
        if waiting is None:
            stack[-1] = (name, line, None)
            if chunk.id not in done:
                done.add(chunk.id)
                yield chunk
        elif waiting == chunk.parents[0] or any(waiting == open_head for open_head, _, _ in stack):
            raise CorruptStoreError(f"chunk {chunk.id[:16]}", f"its parent {waiting[:16]} does not stand before it")
        else:
            stack[-1] = (name, line, chunk)
            stack.append((waiting, _rest(waiting, reader, done), None))


def _rest(head: Digest, reader: Reader, done: set[Digest]) -> Iterator[Chunk]:
    """The line of ``head`` from the first chunk that is not done: what is done is its front."""
    if head in done:
        return iter(())
    low, high = 0, reader.chunk(head).position
    if not done:
        high = 0
    while low < high:
        middle = (low + high) // 2
        standing = next(reader.line(head, middle, middle + 1), None)
        if standing is not None and standing.id in done:
            low = middle + 1
        else:
            high = middle
    return reader.line(head, low)
