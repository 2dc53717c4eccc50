"""What keeps threads in order: copies, pruning, deletes by run, and the history that a delta channel is rebuilt from.

Source: ``BaseCheckpointSaver.copy_thread``, ``prune``, ``delete_for_runs``, ``get_delta_channel_history`` (langgraph-checkpoint 4.3).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final, cast

from langgraph.checkpoint.serde.base import SerializerProtocol

from rath_bridge.errors import ErasedError, MissingObjectError, NameInUseError
from rath_bridge.model.chunk import Chunk, Key, draft
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Checkpoint, SessionStart, Task
from rath_bridge.session import Store, native_name
from rath_bridge.store.protocol import Backend
from rath_langgraph.deltas import COUNTERS
from rath_langgraph.forgetting import COPIES, forget_checkpoints, forget_thread
from rath_langgraph.neutral import origin
from rath_langgraph.serde import RathSerializer
from rath_langgraph.state import State, load_values, load_writes, read_metadata, read_state, references
from rath_langgraph.threads import FRAMEWORK, HOME, RUN, Line, Threads, Where, named

RUNS: Final = "langgraph-run"
"""Index of checkpoints by the ``run_id`` of their metadata; hashed, since metadata may be meant to be secret."""
_PAGE: Final = 512
_FIRST: Final = 16
"""Index entries behind a checkpoint that are read at once, for a start."""


def run_key(facts: Mapping[str, Any], line: Line, checkpoint_id: str) -> tuple[Key, ...]:
    """The entry under which ``delete_for_runs`` finds a checkpoint."""
    run = facts.get("run_id")
    if not isinstance(run, str):
        return ()
    return (Key(RUNS, _hashed(run), "", checkpoint_id, json.dumps([line.thread_id, line.namespace])),)


def _hashed(run: str) -> str:
    return sha256(run.encode("utf-8", "surrogatepass")).hexdigest()


def copy_thread(threads: Threads, source: str, target: str) -> None:
    """Fork a thread: a branch at its newest checkpoint, over the same chunks.

    O(1), whatever its size: one chunk is written, nothing is copied.

    Raises:
        NameInUseError: The target has checkpoints already.
    """
    backend = threads.store.backend
    if source == target or backend.lookup(Key(FRAMEWORK, source, "", "", RUN)) is None:
        return
    if backend.scopes(FRAMEWORK, target):
        raise NameInUseError(f"thread {target!r}")
    line = threads.line(source, "")
    where = next(reversed(line.tips.values()), line.where)
    ref = backend.ref(*where) or backend.ref(*line.where)
    if ref is None:
        return
    first: Where = named(threads.store, threads.session) or (native_name(FRAMEWORK, target), "main")
    if first[1] != "main" or backend.ref(*first) is not None:  # a session that is there already gets a branch
        first = (first[0], f"copy-{sha256(f'{ref.head}/{target}'.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}")
    start = draft(
        SessionStart(op="fork", name=first[0], branch=first[1], of=ref.name, reason=f"copy of thread {source}"),
        origin=origin(),
        keys=(Key(FRAMEWORK, target, "", "", HOME), Key(COPIES, line.run, "", target)),
    )
    backend.append(*first, [start], head=None, parents=(ref.head,), reason="copy_thread")
    backend.copy_keys(FRAMEWORK, source, target)
    threads.forget(target)


def delete_for_runs(threads: Threads, run_ids: Sequence[str]) -> None:
    """Drop the checkpoints, with their writes, whose metadata name one of these runs."""
    backend = threads.store.backend
    for run in run_ids:
        found: dict[tuple[str, str], list[str]] = {}
        for key, _ in backend.scan(RUNS, _hashed(run), ""):
            thread_id, namespace = json.loads(key.sub)
            found.setdefault((thread_id, namespace), []).append(key.key)
        for (thread_id, namespace), keys in found.items():
            forget_checkpoints(threads, thread_id, namespace, keys, f"run {run} was deleted")
        backend.drop_keys(RUNS, _hashed(run))


def prune(threads: Threads, serde: SerializerProtocol, thread_ids: Sequence[str], strategy: str) -> None:
    """Keep the newest checkpoint of every namespace, and the ancestors that its delta channels are rebuilt from; or nothing.

    A subgraph call's namespace goes with the root checkpoint that it belongs to.

    Raises:
        ValueError: Another strategy.
    """
    if strategy not in ("keep_latest", "delete"):
        raise ValueError(f"prune(strategy={strategy!r}): use 'keep_latest' or 'delete'")
    for thread_id in thread_ids:
        if strategy == "delete":
            forget_thread(threads, thread_id)
        else:
            _keep_latest(threads, serde, thread_id)


def _keep_latest(threads: Threads, serde: SerializerProtocol, thread_id: str) -> None:
    backend = threads.store.backend
    kept: set[str] = set()
    for namespace in sorted(ns for _, ns in backend.scopes(FRAMEWORK, thread_id)):  # the root first
        names = [key.key for key, _ in _entries(threads, thread_id, namespace)]
        newest = backend.scan(FRAMEWORK, thread_id, namespace, sub="", limit=1)
        if not newest or not newest[0][0].key:
            continue
        body = cast(Checkpoint, newest[0][1].body)
        _, facts = read_metadata(body, serde, f"checkpoint {body.checkpoint_id} of thread {thread_id!r}")
        parents: dict[str, Any] = facts.get("parents") or {}
        root = parents.get("")
        if ":" in namespace and root is not None and root not in kept:
            keep = set[str]()
        else:
            keep = {body.checkpoint_id or "", *_ancestors(threads, thread_id, namespace, body, facts)}
        if not namespace:
            kept = keep
        gone = sorted({name for name in names if name and name not in keep})
        if gone:
            forget_checkpoints(threads, thread_id, namespace, gone, "pruned")
    threads.forget(thread_id)


def needed(backend: Backend, before: int) -> Iterator[Digest]:
    """What a boundary must leave: older checkpoints, with their tasks, that the delta channels of younger ones are rebuilt from.

    Args:
        backend: The store.
        before: Microseconds since 1970.
    """
    threads, serde = Threads(Store(backend)), RathSerializer()
    for thread_id, namespace in backend.scopes(FRAMEWORK):
        entries = list(_entries(threads, thread_id, namespace))
        wanted: set[str] = set()
        for key, chunk in entries:
            if key.sub or not key.key or chunk.kind != "checkpoint" or chunk.at < before or chunk.body_bytes is None:
                continue
            body = cast(Checkpoint, chunk.body)
            try:
                _, facts = read_metadata(body, serde, f"checkpoint {body.checkpoint_id} of thread {thread_id!r}")
                wanted.update(_ancestors(threads, thread_id, namespace, body, facts))
            except Exception:  # noqa: BLE001 - encrypted with a key that is not here, say: then all of the thread stays
                wanted.update(key.key for key, _ in entries)
                break
        yield from (chunk.id for key, chunk in entries if key.key in wanted)


def _entries(threads: Threads, thread_id: str, namespace: str) -> Iterator[tuple[Key, Chunk]]:
    """Checkpoint entries of a namespace and the writes that came without one, a page at a time."""
    before: str | None = None
    while True:
        page = threads.store.backend.scan(FRAMEWORK, thread_id, namespace, before=before, limit=_PAGE)
        yield from page
        if len(page) < _PAGE:
            return
        last = page[-1][0].key
        before = last if last != before and page[0][0].key != last else None
        if before is None:  # one checkpoint with more tasks than a page
            yield from threads.store.backend.scan(FRAMEWORK, thread_id, namespace, before=last)
            return


def _ancestors(threads: Threads, thread_id: str, namespace: str, body: Checkpoint, facts: Mapping[str, Any]) -> list[str]:
    """The checkpoints behind one that its delta channels need: back to where each of them was last written whole."""
    counters: Mapping[str, Any] = facts.get(COUNTERS) or {}
    state = read_state(body, threads.shelf)
    missing = {channel for channel in counters if channel not in state.values}
    found: list[str] = []
    for older, held, _ in _lineage(threads, thread_id, namespace, body.parent_checkpoint_id):
        if not missing:
            break
        found.append(older.checkpoint_id or "")
        missing -= held.values.keys()
    return found


def _lineage(
    threads: Threads, thread_id: str, namespace: str, name: str | None, channels: Sequence[str] = ()
) -> Iterator[tuple[Checkpoint, State, list[Chunk]]]:
    """A checkpoint and those behind it, by LangGraph's own parents, with their tasks; read a page at a time.

    Args:
        threads: The saver's.
        thread_id: The thread.
        namespace: Its namespace.
        name: The checkpoint.
        channels: Whose writes will be loaded.
    """
    backend, size, held = threads.store.backend, _FIRST, dict[str, list[tuple[Key, Chunk]]]()
    while name is not None:
        if name not in held:
            held = _page(backend.scan(FRAMEWORK, thread_id, namespace, exact=name))
            if name in held and size > _FIRST:  # it is not the last that is asked for
                held |= _page(backend.scan(FRAMEWORK, thread_id, namespace, before=name, limit=size), size)
            size = min(size * 4, _PAGE)
            _warm(threads, held, channels)
        entries = held.get(name)
        if not entries or entries[0][0].sub:
            return
        chunk = entries[0][1]
        body = cast(Checkpoint, chunk.body)
        known, _ = threads.state_of(thread_id, namespace, chunk)
        yield body, known or read_state(body, threads.shelf), [c for key, c in entries if key.sub.startswith("w")]
        name = body.parent_checkpoint_id


def _page(entries: Sequence[tuple[Key, Chunk]], size: int = 0) -> dict[str, list[tuple[Key, Chunk]]]:
    """Index entries by checkpoint; the last of a full page may be cut short."""
    found: dict[str, list[tuple[Key, Chunk]]] = {}
    for key, chunk in entries:
        found.setdefault(key.key, []).append((key, chunk))
    if size and len(entries) >= size:
        found.popitem()
    return found


def _warm(threads: Threads, page: Mapping[str, Sequence[tuple[Key, Chunk]]], channels: Sequence[str]) -> None:
    """Bring the states of a page of checkpoints, and what was written to some channels, in one query."""
    wanted: list[Digest] = []
    for entries in page.values():
        for key, chunk in entries:
            if chunk.body_bytes is None:
                continue
            if key.sub == "" and key.key:
                state = cast(Checkpoint, chunk.body).state
                wanted += [state.digest] if state is not None else []
            elif key.sub.startswith("w"):
                wanted += [ref.digest for row in cast(Task, chunk.body).writes if row[1] in channels for ref in references(row)]
    with suppress(ErasedError, MissingObjectError):  # who reads it is told where
        threads.shelf(dict.fromkeys(wanted))


def delta_history(
    threads: Threads,
    serde: SerializerProtocol,
    thread_id: str,
    namespace: str,
    checkpoint_id: str | None,
    channels: Sequence[str],
) -> dict[str, dict[str, Any]]:
    """The writes to channels since they were last stored whole, oldest first, with that value as ``seed``; nothing else is loaded."""
    found: dict[str, list[list[Any]]] = {channel: [] for channel in channels}
    seeds: dict[str, Any] = {}
    remaining = set(channels)
    if checkpoint_id is None:
        newest = threads.store.backend.scan(FRAMEWORK, thread_id, namespace, sub="", limit=1)
        checkpoint_id = newest[0][0].key if newest else None
    line = _lineage(threads, thread_id, namespace, checkpoint_id, channels)
    next(line, None)  # its own writes are not part of it
    for body, state, tasks in line:
        if not remaining:
            break
        place = f"checkpoint {body.checkpoint_id} of thread {thread_id!r}"
        writes = load_writes(tasks, serde, threads.shelf, channels=remaining)
        for channel in remaining:
            found[channel].append([write for write in writes if write[1] == channel])
        here = {channel: state.values[channel] for channel in remaining if channel in state.values}
        if here:
            seeds.update(load_values(State({}, here), serde, threads.shelf, place, threads.copies))
            remaining -= here.keys()
    told: dict[str, dict[str, Any]] = {}
    for channel in channels:
        told[channel] = {"writes": [write for part in reversed(found[channel]) for write in part]}
        if channel in seeds:
            told[channel]["seed"] = seeds[channel]
    return told
