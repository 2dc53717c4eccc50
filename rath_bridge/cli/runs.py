"""Names of runs, found where they begin or end, without reading a whole history."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast

from rath_bridge.errors import RathError
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.kinds import Run
from rath_bridge.store.protocol import Reader

REACH: Final = 4096
"""Chunks that are looked back through for the beginning of a run."""
_PAGE: Final = 256


class RunNames:
    """Names of runs by id. Feed it chunks newest first; it looks ahead as far as `REACH` where a run began earlier."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._names: dict[str, str] = {}

    def of(self, chunk: Chunk) -> str | None:
        """Return the name of the run that a chunk belongs to; the start of its id where the beginning is too far away."""
        if chunk.run is None:
            return None
        found = self._names.get(chunk.run)
        if found is None:
            self._learn([chunk])
            stop = chunk.position
            last = max(0, stop - REACH)
            while chunk.run not in self._names and stop > last:
                start = max(last, stop - _PAGE)
                self._learn(self._reader.line(chunk.id, start, stop))
                stop = start
            found = self._names.setdefault(chunk.run, chunk.run[:8])
        return found

    def _learn(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            if chunk.kind == "run" and chunk.run is not None and chunk.run not in self._names and chunk.body_bytes is not None:
                body = run_body(chunk)
                if body is not None and body.name:
                    self._names[chunk.run] = body.name


def run_body(chunk: Chunk) -> Run | None:
    """Return the body of a ``run`` chunk; None where it cannot be read."""
    try:
        return cast(Run, chunk.body)
    except RathError:
        return None


def runs_named(chunks: Iterable[Chunk], wanted: str) -> frozenset[str]:
    """Return the ids of the runs that are called ``wanted``, or whose id begins so, and of all that nest in them.

    Args:
        chunks: In any order.
        wanted: A run's name, or at least four characters of its id.
    """
    found: set[str] = set()
    parents: dict[str, str] = {}
    for chunk in chunks:
        if chunk.run is None:
            continue
        if len(wanted) >= 4 and chunk.run.startswith(wanted):
            found.add(chunk.run)
        elif chunk.kind == "run" and chunk.body_bytes is not None and (body := run_body(chunk)) is not None:
            if body.name == wanted:
                found.add(chunk.run)
            if body.parent is not None:
                parents[chunk.run] = body.parent
    for run in parents:
        path: list[str] = []
        at: str | None = run
        while at is not None and at not in found and at not in path:
            path.append(at)
            at = parents.get(at)
        if at in found:
            found.update(path)
    return frozenset(found)
