"""Prune: erase what is older than a time, and leave the boundary on record.

The frame of a line stays, whatever its age: where sessions begin, runs that are still at work, placements, earlier redactions, counted
gaps, and what adapters say that newer chunks stand on. All envelopes stay: the chain verifies to its root.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from rath_bridge.given import check_store
from rath_bridge.maintenance.redact import drop_entries, notice
from rath_bridge.model.chunk import Chunk, format_time, now
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Redaction
from rath_bridge.session import Store
from rath_bridge.store.erasing import Erasure
from rath_bridge.store.protocol import Backend, Ref
from rath_bridge.verbs.lineage import walk

FRAME: Final = frozenset({"session", "placement", "redaction", "gap"})
"""Kinds that a boundary does not touch."""

Needed = Callable[[Backend, int], Iterable[Digest]]
"""What an adapter says: chunks older than a time (microseconds since 1970) that newer ones stand on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What a prune did, or would do."""

    before: int
    """Microseconds since 1970: what is older is gone."""
    erasure: Erasure
    sessions: Mapping[str, int]
    """Session to how many of its chunks."""
    entries: int = 0
    """Index entries that led to them, dropped: frameworks see a shorter history, and none that cannot be read."""
    notices: Mapping[str, Digest] = field(default_factory=dict[str, Digest])
    """Session to its ``redaction`` chunk."""


def prune(
    store: Store,
    keep: timedelta,
    *,
    reason: str | None = None,
    by: str | None = None,
    needed: Sequence[Needed] = (),
    dry_run: bool = False,
    scrub: bool = True,
) -> Pruned:
    """Erase the bodies of all chunks that are older than ``keep``, with what only they stand on, in the whole store.

    Args:
        store: The store.
        keep: How long content is kept.
        reason: Why, for the record; ``older than 180 days``, when absent.
        by: Who asked for it.
        needed: One function for each adapter that has chunks on which newer ones stand.
        dry_run: Only tell.
        scrub: Rewrite the store's files afterwards.

    Raises:
        StoreUnavailableError: The store could not be written, or others read it while its files should be rewritten.
        ValueError: ``keep`` is no time.
    """
    check_store(store, "prune")
    if keep < timedelta(0):
        raise ValueError(f"prune needs the time to keep, it was given {keep}: use timedelta(days=180)")
    backend = store.backend
    before = now() - keep // timedelta(microseconds=1)
    stays = {name for one in needed for name in one(backend, before)}
    refs: dict[str, list[Ref]] = {}
    for ref in backend.refs():
        refs.setdefault(ref.session, []).append(ref)
    working: set[str] = set()
    found = {name: _old(backend, tips, before, stays, working) for name, tips in refs.items()}
    old = {
        name: {chunk.id for chunk in chunks if chunk.kind != "run" or chunk.run not in working} for name, chunks in found.items()
    }  # a run that still works in one session keeps its beginning in all: forks share it
    counts = {name: len(chunks) for name, chunks in old.items() if chunks}
    gone = {chunk for chunks in old.values() for chunk in chunks}
    told = backend.erase(gone, dry_run=True, copies=False)
    if not gone and scrub and not dry_run:  # an earlier time may have been cut short before the files were written anew
        backend.scrub()
    if dry_run or not gone:
        return Pruned(before=before, erasure=told, sessions=counts)
    why = reason or f"older than {f'{keep.days} days' if keep.days else keep}"
    notices: dict[str, Digest] = {}
    for name, chunks in old.items():
        if chunks:
            body = Redaction(rule="prune", reason=why, by=by, before=format_time(before), count=len(chunks))
            notices[name] = notice(store, name, body, [ref.name for ref in refs[name]])
    dropped = drop_entries(backend, [key for key, name in backend.entries() if name in gone])
    done = backend.erase(gone, copies=False)
    if scrub:
        backend.scrub()
    return Pruned(before=before, erasure=done, sessions=counts, entries=dropped, notices=notices)


def _old(backend: Backend, tips: Iterable[Ref], before: int, stays: Collection[Digest], working: set[str]) -> list[Chunk]:
    """What may go of a session: older than the boundary, not in its frame, and not erased yet; runs that still work are noted."""
    found: list[Chunk] = []
    for chunk in walk([ref.head for ref in tips], backend):
        if chunk.at >= before or chunk.id in stays:
            if chunk.run is not None:
                working.add(chunk.run)
        elif chunk.body_bytes is not None and chunk.kind not in FRAME:
            found.append(chunk)
    return found
