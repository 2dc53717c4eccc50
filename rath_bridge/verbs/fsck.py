"""Fsck: check all that a store or a session stands on; yields every fault and never stops at the first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rath_bridge.model.digests import Digest
from rath_bridge.store.protocol import Reader


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault."""

    object: str
    """Digest, ref or file."""
    problem: str
    path: str = ""
    """Where: ref and position, or file and line."""


def fsck(reader: Reader, *, heads: Sequence[Digest] | None = None, head: Digest | None = None) -> Iterator[Finding]:
    """Check a store or some of its lines."""
    raise NotImplementedError
