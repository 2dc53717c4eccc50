"""Log: what happened, newest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.store.protocol import Reader


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line of a log."""

    chunk: Chunk
    refs: tuple[str, ...]
    """Names of the refs whose tip it is."""


def log(heads: Sequence[Digest], reader: Reader, *, first_parent: bool = True) -> Iterator[LogEntry]:
    """Iterate over history, newest first."""
    raise NotImplementedError
