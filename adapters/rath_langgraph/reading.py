"""Reading checkpoints: pages of index entries first, values of a whole page in a few queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from typing import Any, Final, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.base import SerializerProtocol

from rath_bridge.model.chunk import Chunk, Key
from rath_bridge.model.kinds import Checkpoint
from rath_langgraph.configs import config_of, configurable
from rath_langgraph.state import load_values, load_writes, read_metadata, read_state
from rath_langgraph.threads import FRAMEWORK, Threads

_PAGE: Final = 128
"""Index entries read at once while listing."""
_AHEAD: Final = 32
"""Checkpoints whose values are read at once while listing."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The checkpoints of a store, as one serde reads them."""

    threads: Threads
    serde: SerializerProtocol

    def tuples(
        self, config: RunnableConfig | None, wanted: dict[str, Any] | None, before: RunnableConfig | None, limit: int | None
    ) -> Iterator[CheckpointTuple]:
        """Iterate over checkpoints, newest first; see ``BaseCheckpointSaver.list``."""
        threads = self.threads
        threads.refresh()
        place: dict[str, Any] = configurable(config) if config else {}
        thread_id, namespace = place.get("thread_id"), place.get("checkpoint_ns")
        scopes = [
            (found, ns)
            for found, ns in self.threads.store.backend.scopes(FRAMEWORK, None if thread_id is None else str(thread_id))
            if namespace in (None, ns)
        ]
        edge = configurable(before).get("checkpoint_id") if before else None
        exact = place.get("checkpoint_id")
        size = None if limit is None or wanted else limit * 6 + 8
        groups = merge(*(self.groups(*scope, edge, exact, size) for scope in scopes), key=lambda g: g[0], reverse=True)
        count = 0
        while page := list(islice(groups, _AHEAD if limit is None else min(_AHEAD, limit - count))):
            chosen = [group for group in page if not wanted or self._matches(group[3], wanted)]
            if len(chosen) > 1:
                bodies = (c.body_bytes for _, _, _, entries in chosen for _, c in entries if c.body_bytes is not None)
                threads.shelf.warm(bodies, threads.copies.holds)
            for _, found, ns, entries in chosen:
                made = self.tuple_of(found, ns, entries)
                if made is not None:
                    count += 1
                    yield made

    def groups(
        self, thread_id: str, namespace: str, before: str | None = None, exact: str | None = None, size: int | None = None
    ) -> Iterator[tuple[str, str, str, list[tuple[Key, Chunk]]]]:
        """Index entries of one namespace, a checkpoint with its tasks at a time, newest first, read in pages."""
        page = size or _PAGE
        while True:
            entries = self.threads.store.backend.scan(FRAMEWORK, thread_id, namespace, before=before, exact=exact, limit=page)
            full = len(entries) >= page
            groups: dict[str, list[tuple[Key, Chunk]]] = {}
            for key, chunk in entries:
                groups.setdefault(key.key, []).append((key, chunk))
            if full and len(groups) == 1:  # one checkpoint with very many tasks
                page *= 4
                continue
            if full:
                groups.popitem()  # perhaps cut short
            for name, found in groups.items():
                if found[0][0].sub == "" and name:
                    yield name, thread_id, namespace, found
            if not full:
                return
            before, exact = list(groups)[-1], None

    def _matches(self, entries: Sequence[tuple[Key, Chunk]], wanted: dict[str, Any]) -> bool:
        body = cast(Checkpoint, entries[0][1].body)
        _, metadata = read_metadata(body, self.serde, f"checkpoint {body.checkpoint_id}")
        return all(key in metadata and metadata[key] == value for key, value in wanted.items())

    def tuple_of(self, thread_id: str, namespace: str, entries: Sequence[tuple[Key, Chunk]]) -> CheckpointTuple | None:
        """The checkpoint that some index entries are of, with its pending writes."""
        chunk = next((chunk for key, chunk in entries if key.sub == ""), None)
        if chunk is None:
            return None
        body, shelf = cast(Checkpoint, chunk.body), self.threads.shelf
        place = f"checkpoint {body.checkpoint_id} of thread {thread_id!r}"
        known, seen = self.threads.state_of(thread_id, namespace, chunk)
        state = known or read_state(body, shelf)
        rest, metadata = read_metadata(body, self.serde, place)
        values = load_values(state, self.serde, shelf, place, self.threads.copies, seen)
        writes = load_writes([c for key, c in entries if key.sub.startswith("w")], self.serde, shelf)
        parent = body.parent_checkpoint_id
        return CheckpointTuple(
            config_of(thread_id, namespace, body.checkpoint_id or ""), cast(Any, {**rest, "channel_values": values}), cast(Any, metadata),
            config_of(thread_id, namespace, parent) if parent else None, writes,
        )  # fmt: skip
