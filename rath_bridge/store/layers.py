"""Indices that began as a copy of another: layers that are read as one, the topmost entry of each place first.

A copy is O(1): it names its source and the stamp up to which it sees it. Whoever changes or drops an entry that a copy sees goes on in a
new layer over the old one, so neither notices the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Entry(NamedTuple):
    """One entry of a layer."""

    key: str | bytes
    sub: str | bytes
    chunk: object
    """What stands there; None or 0 where an entry of a lower layer was dropped."""


Page = Callable[[int | None], Sequence[Entry]]
"""Reads the first entries of one layer, greatest key first, then by ``sub``."""


def read_layers(layers: Sequence[Page], limit: int | None) -> list[Entry]:
    """Read layers as one index.

    Args:
        layers: The topmost first.
        limit: At most so many entries.
    """
    size = limit
    while True:
        pages = [read(size) for read in layers]
        found: dict[tuple[str | bytes, str | bytes], Entry] = {}
        for page in pages:
            for entry in page:
                found.setdefault((entry.key, entry.sub), entry)
        ordered = sorted(found.values(), key=lambda entry: entry.sub)
        ordered.sort(key=lambda entry: entry.key, reverse=True)
        ends = {(page[-1].key, page[-1].sub) for page in pages if size is not None and page and len(page) >= size}
        if ends:  # behind the first of these a layer may have more
            ordered = ordered[: next(i for i, entry in enumerate(ordered, 1) if (entry.key, entry.sub) in ends)]
        standing = [entry for entry in ordered if entry.chunk]
        if size is None or limit is None or not ends or len(standing) >= limit:
            return standing[:limit]
        size = size * 4 + 8
