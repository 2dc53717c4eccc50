"""What was erased where a history comes from, and still stands where it arrives.

An import never erases: a packet could name anything, and the receiver may have reasons to keep it. It tells, and the receiver decides
(``rath-bridge redact``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from rath_bridge.errors import MissingChunkError, RathError, StoreUnavailableError
from rath_bridge.interchange.transfer import Origin
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest, is_digest
from rath_bridge.model.reaching import Fetch
from rath_bridge.store.protocol import Backend


@dataclass(frozen=True, slots=True)
class Standing:
    """Erased there, still here."""

    chunks: tuple[Digest, ...]
    """Chunks whose bodies stand here."""
    objects: tuple[Digest, ...]
    """Texts, records and items of states that a redaction there names and that can be read here."""


def still_standing(origin: Origin, backend: Backend) -> Standing:
    """Return what an origin has erased and a store still holds. The whole origin is read.

    Args:
        origin: A packet or another store.
        backend: Where it is brought to, before or after that.
    """
    chunks: list[Digest] = []
    named: set[Digest] = set()
    for chunk in origin.chunks():
        if chunk.body_bytes is None:
            if _stands(backend, chunk.id):
                chunks.append(chunk.id)
        elif chunk.kind == "redaction":
            named.update(_named(chunk))
    there = (name for name in sorted(named) if not _reads(origin.fetch, name) and _reads(backend.objects, name))
    return Standing(tuple(dict.fromkeys(chunks)), tuple(there))


def _stands(backend: Backend, name: Digest) -> bool:
    try:
        return backend.chunk(name).body_bytes is not None
    except MissingChunkError:
        return False


def _named(chunk: Chunk) -> set[Digest]:
    """The objects that a redaction names."""
    try:
        found = chunk.values.get("objects")
    except RathError:
        return set()
    return {one for one in cast("list[Digest]", found) if is_digest(one)} if isinstance(found, (list, tuple)) else set()


def _reads(fetch: Fetch, name: Digest) -> bool:
    try:
        fetch([name])
    except StoreUnavailableError:
        raise
    except RathError:
        return False
    return True
