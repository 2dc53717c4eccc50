"""Blame: which chunk, run and agent brought a text or a path in."""

from __future__ import annotations

from dataclasses import dataclass

from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.store.protocol import Reader


@dataclass(frozen=True, slots=True)
class BlameLine:
    """One place where it stands."""

    chunk: Chunk


def blame(head: Digest, wanted: str, reader: Reader) -> list[BlameLine]:
    """Find where a text came from."""
    raise NotImplementedError
