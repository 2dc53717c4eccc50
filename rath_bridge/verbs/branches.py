"""Branches: on which line of a session a chunk was written, and how many chunks there are on all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.model.encoding import parsed
from rath_bridge.model.kinds import SessionStart
from rath_bridge.store.protocol import Reader, Ref


class Lines:
    """Which branch each chunk was written on: the nearest ``session`` chunk before it along its own line."""

    def __init__(self) -> None:
        self._group: dict[Digest, int] = {}
        """Chunks that are still to come, by the line that goes on with them."""
        self._same: list[int] = []
        self._name: dict[int, str] = {}
        self._places: dict[Digest, int] = {}

    def see(self, chunk: Chunk, *, wanted: bool) -> None:
        """Take the next chunk of a walk in which children come first."""
        line = self._group.pop(chunk.id, None)
        if line is None:
            line = self._new()
        if wanted:
            self._places[chunk.id] = line
        if chunk.kind == "session":
            body = chunk.body if chunk.body_bytes is not None else None
            if isinstance(body, SessionStart):
                self._name[self._find(line)] = body.name if body.branch == "main" else f"{body.name}@{body.branch}"
            return
        before = chunk.parents[0] if chunk.parents else None
        if chunk.kind == "merge" and chunk.body_bytes is not None:
            ours = parsed(chunk.body_bytes).get("ours")
            before = ours if ours in chunk.parents else before
        if before is None:
            return
        known = self._group.get(before)
        if known is None:
            self._group[before] = line
        else:
            self._same[self._find(known)] = self._find(line)

    def names(self, wanted: Iterable[Digest]) -> dict[Digest, str | None]:
        """Return the branch of each chunk that was asked for."""
        names: dict[int, str] = {}
        for line, name in self._name.items():
            names[self._find(line)] = name
        return {name: names.get(self._find(self._places[name])) for name in wanted if name in self._places}

    def _new(self) -> int:
        self._same.append(len(self._same))
        return len(self._same) - 1

    def _find(self, line: int) -> int:
        while self._same[line] != line:
            line = self._same[line]
        return line


COUNTED: Final = 24
"""Branches of which each is compared with all before it."""


def count(refs: Sequence[Ref], reader: Reader) -> int | None:
    """Count the chunks on some lines, each once. The cost follows the number of lines, not their length.

    Args:
        refs: Their tips.
        reader: Read access.

    Returns:
        How many there are; None where there are more lines than `COUNTED`.
    """
    if len(refs) > COUNTED:
        return None
    total = 0
    for index, ref in enumerate(refs):
        shared = max((_shared(ref, other, reader) for other in refs[:index]), default=0)
        total += ref.position + 1 - shared
    return total


def _shared(one: Ref, other: Ref, reader: Reader) -> int:
    """How many chunks two lines have in common at their beginning, found by halving."""
    low, high = 0, min(one.position, other.position) + 1
    while low < high:
        middle = (low + high) // 2
        if _at(one, middle, reader) == _at(other, middle, reader):
            low = middle + 1
        else:
            high = middle
    return low


def _at(ref: Ref, position: int, reader: Reader) -> Digest:
    return next(iter(reader.line(ref.head, position, position + 1))).id
