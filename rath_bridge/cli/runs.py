"""Names of runs and of calls, found where they begin, without reading a whole history."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast

from rath_bridge.errors import RathError
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.encoding import decode
from rath_bridge.model.kinds import Run
from rath_bridge.store.protocol import Reader
from rath_bridge.verbs.calling import told

REACH: Final = 4096
"""Chunks that are looked back through for the beginning of a run, or of a call."""
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


class CallNames:
    """Tools of calls by id, for answers that do not say whose they are (a chat's tool messages): found where the model asked."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def of(self, chunk: Chunk, call_id: str) -> str | None:
        """Return the tool whose call a chunk answers: that of the last such call before it; None where it is too far away."""
        stop, size = chunk.position, 8
        last = max(0, stop - REACH)
        while stop > last:
            start = max(last, stop - size)
            for one in reversed(list(self._reader.line(chunk.id, start, stop))):
                found = _asks(one, call_id)
                if found is not None:
                    return found
            stop, size = start, min(size * 2, _PAGE)
        return None


def _asks(chunk: Chunk, call_id: str) -> str | None:
    if chunk.kind not in ("message", "tool_call") or chunk.body_bytes is None:
        return None
    if chunk.kind == "message" and b'"tool_call"' not in chunk.body_bytes:
        return None
    try:
        body = decode(chunk.body_bytes)
    except RathError:
        return None
    found = (one for one in told(chunk.kind, body) if one.what in ("asked", "started") and one.id == call_id)
    return next((one.name for one in found), None)


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
