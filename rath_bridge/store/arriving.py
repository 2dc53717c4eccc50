"""Chunks that stand elsewhere already (in another store, in a packet), on their way into a store with the ids that they have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from rath_bridge.errors import CorruptStoreError
from rath_bridge.model.chunk import Chunk, Draft, Key
from rath_bridge.model.digests import Digest, digest

GATE: Final = Key("rath_bridge.ingest", "", "", "")
"""Two ingests wait for each other: they may bring the same chunks."""


class Arrival(NamedTuple):
    """A chunk, the objects behind its body that may be new, and its index entries."""

    chunk: Chunk
    objects: Mapping[Digest, bytes]
    keys: tuple[Key, ...] = ()
    """Under which it is found; where something stands already, that stays."""


class Landing(NamedTuple):
    """A ref that an ingest creates or moves."""

    session: str
    branch: str
    head: Digest | None
    """Where it stood when the caller looked; None creates it."""
    tip: Digest
    """Where it will stand."""

    @property
    def name(self) -> str:
        """``ticket-4711``, or ``ticket-4711@try-b`` off the main branch."""
        return self.session if self.branch == "main" else f"{self.session}@{self.branch}"


def check(arrival: Arrival) -> None:
    """See that a chunk and its objects are what their names say.

    Raises:
        CorruptStoreError: One of them is not; nothing of the ingest is kept.
    """
    chunk = arrival.chunk
    envelope = chunk.envelope
    if digest(envelope) != chunk.id:
        raise CorruptStoreError(f"chunk {chunk.id[:16]}", "its envelope does not hash to its id")
    if chunk.body_bytes is not None and chunk.raw is not None:  # else the envelope was made of the body
        told: Any = orjson.loads(envelope)
        if told.get("body") != digest(chunk.body_bytes):
            raise CorruptStoreError(f"chunk {chunk.id[:16]}", "its body is not the one that its envelope names")
    for name, data in arrival.objects.items():
        if digest(data) != name:
            raise CorruptStoreError(f"object {name[:16]}", "its bytes do not hash to its name")


def as_draft(chunk: Chunk) -> Draft:
    """Return the facts of a chunk; an erased body is empty."""
    return Draft(
        kind=chunk.kind, body=chunk.body_bytes or b"", body_digest=chunk.body_digest, objects={}, at=chunk.at, run=chunk.run,
        origin=chunk.origin, span=chunk.span,
    )  # fmt: skip
