"""Diff: where two lines part, and how."""

from __future__ import annotations

from dataclasses import dataclass

from rath_bridge.model.digests import Digest
from rath_bridge.store.protocol import Reader


@dataclass(frozen=True, slots=True)
class Diff:
    """What two lines do not share."""

    base: Digest | None


def diff(ours: Digest, theirs: Digest, reader: Reader) -> Diff:
    """Compare two lines."""
    raise NotImplementedError
