"""Log: what happened, newest first. History is read from the end, a page at a time, and never held whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.store.protocol import Reader
from rath_bridge.verbs.lineage import newest_first, walk


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line of a log."""

    chunk: Chunk
    refs: tuple[str, ...]
    """Names of the refs whose tip it is."""


def log(heads: Sequence[Digest], reader: Reader, *, first_parent: bool = True) -> Iterator[LogEntry]:
    """Iterate over history, newest first.

    Args:
        heads: Where to begin; shared history comes once.
        reader: Read access.
        first_parent: Follow the line of each head only; False follows every parent, so that what was merged in comes too.

    Yields:
        Each chunk once, children before their parents, by generation.

    Raises:
        MissingChunkError: A head or a parent is not in the store.
    """
    names: dict[Digest, list[str]] = {}
    for ref in reader.refs():
        names.setdefault(ref.head, []).append(ref.name)
    one_line = first_parent and len(set(heads)) == 1
    chunks = newest_first(heads[0], reader) if one_line else walk(heads, reader, first_parent=first_parent)
    for chunk in chunks:
        yield LogEntry(chunk, tuple(names.get(chunk.id, ())))
