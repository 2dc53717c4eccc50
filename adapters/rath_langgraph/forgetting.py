"""What a deleted thread or checkpoint leaves behind: one boundary chunk, and nothing that nobody else uses.

Threads that were copied from one another share chunks; what one of them still stands on stays. The boundary is written first, then
content is erased, index entries go last: a process that dies in between leaves a thread that can be deleted again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from rath_bridge.model.chunk import Chunk, Draft, Key, draft
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Checkpoint, Compaction, Redaction, Run
from rath_bridge.store.protocol import Ref
from rath_bridge.verbs.transcript import transcript
from rath_langgraph.neutral import origin
from rath_langgraph.threads import FRAMEWORK, HOME, RUN, Threads

COPIES: Final = "langgraph-copy"
"""Index of copied threads by the run that they share: where each begins."""


@dataclass(slots=True)
class Held:
    """What threads that share a run stand on."""

    runs: set[str] = field(default_factory=set[str])
    """Runs of the thread's namespaces, and those that nest in them."""
    chunks: dict[Digest, Chunk] = field(default_factory=dict[Digest, Chunk])
    """Chunks of those runs, on every line that leads to one of its checkpoints."""


def forget_thread(threads: Threads, thread_id: str) -> None:
    """Erase what only this thread said, tell so in its session, and drop its index entries."""
    backend = threads.store.backend
    begun = backend.lookup(Key(FRAMEWORK, thread_id, "", "", RUN))
    if begun is not None:
        held = _held(threads, thread_id)
        kept = _kept(threads, thread_id, begun)
        gone = [name for name, chunk in held.chunks.items() if name not in kept and chunk.body_bytes is not None]
        said = [name for name, chunk in held.chunks.items() if name in kept and chunk.kind == "message"]
        _forget(threads, thread_id, gone, said, f"thread {thread_id!r} was deleted")
        backend.drop_keys(COPIES, begun.run or "", "", [thread_id])
    backend.drop_keys(FRAMEWORK, thread_id)
    threads.forget(thread_id)


def forget_checkpoints(threads: Threads, thread_id: str, namespace: str, names: Sequence[str], reason: str) -> None:
    """Erase some checkpoints with their writes, and messages that no checkpoint follows any more; drop their index entries.

    Args:
        threads: The saver's.
        thread_id: The thread.
        namespace: Theirs.
        names: Ids of checkpoints.
        reason: For the record.
    """
    backend = threads.store.backend
    begun = backend.lookup(Key(FRAMEWORK, thread_id, "", "", RUN))
    entries = [(key, chunk) for name in names for key, chunk in backend.scan(FRAMEWORK, thread_id, namespace, exact=name)]
    if begun is not None and entries:
        kept = _kept(threads, thread_id, begun)
        left = _left(threads, thread_id, namespace, set(names))
        said = [c for key, chunk in entries if not key.sub for c in _lifted(threads, chunk) if c.id not in left]
        gone = [c.id for c in (*(chunk for _, chunk in entries), *said) if c.id not in kept and c.body_bytes is not None]
        _forget(threads, thread_id, gone, [c.id for c in said if c.id in kept], reason)
    backend.drop_keys(FRAMEWORK, thread_id, namespace, names)
    threads.forget(thread_id)


def _forget(threads: Threads, thread_id: str, gone: Sequence[Digest], said: Iterable[Digest], reason: str) -> None:
    """Tell and erase; messages that others still stand on only leave the transcript."""
    backend = threads.store.backend
    line = threads.line(thread_id, "")
    erasure = backend.erase(gone, later=True, dry_run=True)
    shown = {entry.id for entry in transcript(list(threads.store.session(Ref(*line.where, "", 0).name).chunks()), line.run)}
    left = tuple(name for name in dict.fromkeys((*said, *erasure.left)) if name in shown)
    boundary: list[Draft] = []
    if erasure.chunks:
        boundary.append(draft(Redaction(targets=erasure.chunks, rule="langgraph", reason=reason), run=line.run, origin=origin()))
    if left:
        boundary.append(draft(Compaction(dropped=left, reason="deleted"), run=line.run, origin=origin()))
    if boundary:
        threads.append(line, line.where, boundary)
    if erasure.chunks:
        backend.erase(erasure.chunks, later=True)


def _held(threads: Threads, thread_id: str) -> Held:
    """What a thread stands on: its runs, on the lines to its checkpoints and on the branches that nobody else began."""
    backend = threads.store.backend
    found, heads, seen = Held(), list[Chunk](), set[Digest]()
    for _, namespace in backend.scopes(FRAMEWORK, thread_id):
        for key, chunk in backend.scan(FRAMEWORK, thread_id, namespace):
            if key.sub == RUN and chunk.run is not None:
                found.runs.add(chunk.run)
            if key.sub != HOME:
                heads.append(chunk)
    heads += _tips(threads, thread_id)
    heads.sort(key=lambda chunk: chunk.position, reverse=True)
    for head in heads:
        if head.id in seen:
            continue
        for chunk in backend.line(head.id):
            seen.add(chunk.id)
            if chunk.kind == "run" and chunk.body_bytes is not None and chunk.run is not None:
                body = cast(Run, chunk.body)
                if body.phase == "begin" and body.parent in found.runs:
                    found.runs.add(chunk.run)
            if chunk.run in found.runs:
                found.chunks[chunk.id] = chunk
    return found


def _tips(threads: Threads, thread_id: str) -> Iterator[Chunk]:
    """The tips of the branches that are the thread's own: what stands behind its last checkpoints is its, too."""
    backend = threads.store.backend
    line = threads.line(thread_id, "")
    copies = {key.key: chunk for key, chunk in backend.scan(COPIES, line.run, "")}
    for session in {line.where[0], *(where[0] for where in line.tips.values())}:
        for ref in backend.refs(session):
            begun = [(c.position, name) for name, c in copies.items() if threads.stands_on(ref, c)]
            owner = max(begun, default=(0, None))[1]
            if owner == thread_id or (owner is None and thread_id not in copies):
                yield backend.chunk(ref.head)


def _kept(threads: Threads, thread_id: str, begun: Chunk) -> Mapping[Digest, Chunk]:
    """What the threads stand on that were copied from this one, or that it was copied from."""
    backend = threads.store.backend
    names = {key.key for key, _ in backend.scan(COPIES, begun.run or "", "")}
    if begun.body_bytes is not None:
        names.add(cast(Run, begun.body).native_id or "")
    found: dict[Digest, Chunk] = {}
    for name in sorted(names - {thread_id}):
        root = backend.lookup(Key(FRAMEWORK, name, "", "", RUN))
        if root is not None and root.id == begun.id:
            found.update(_held(threads, name).chunks)
    return found


def _lifted(threads: Threads, checkpoint: Chunk) -> list[Chunk]:
    """The messages that were written with a checkpoint: they stand directly before it."""
    found: list[Chunk] = []
    start = max(checkpoint.position - 64, 0)
    for chunk in reversed(list(threads.store.backend.line(checkpoint.id, start, checkpoint.position))):
        if chunk.kind not in ("message", "compaction") or chunk.run != checkpoint.run:
            break
        if chunk.kind == "message":
            found.append(chunk)
    return found


def _left(threads: Threads, thread_id: str, namespace: str, names: set[str]) -> set[Digest]:
    """What the checkpoints that are left stand on."""
    entries = threads.store.backend.scan(FRAMEWORK, thread_id, namespace, sub="")
    chunks = [chunk for key, chunk in entries if key.key and key.key not in names]
    followed = {cast(Checkpoint, chunk.body).parent_checkpoint_id for chunk in chunks}
    found: set[Digest] = set()
    for chunk in chunks:
        if cast(Checkpoint, chunk.body).checkpoint_id not in followed and chunk.id not in found:
            found.update(one.id for one in threads.store.backend.line(chunk.id))
    return found
