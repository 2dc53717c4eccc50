"""`RathSaver`: a LangGraph checkpointer whose threads are sessions, and which stores what is said once.

Source of the contract: ``langgraph.checkpoint.base.BaseCheckpointSaver`` (langgraph-checkpoint 4.3). One class for sync and async
(`rath_langgraph.twins`); what it reads is in `rath_langgraph.reading`, what it writes in `rath_langgraph.puts`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from copy import copy
from hashlib import sha256
from heapq import merge
from typing import Any, Final, Literal, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.base import Checkpoint as LangGraphCheckpoint
from langgraph.checkpoint.serde.base import SerializerProtocol

from rath_bridge.aio import in_thread
from rath_bridge.given import check_store
from rath_bridge.model.chunk import Key, draft
from rath_bridge.session import Store, open_store
from rath_langgraph import upkeep
from rath_langgraph.cleaning import StateCleaner, state_cleaner
from rath_langgraph.configs import config_of, configurable, place_name, place_of
from rath_langgraph.deltas import Reads
from rath_langgraph.flight import Flight, landings
from rath_langgraph.forgetting import forget_thread
from rath_langgraph.items import Encoder, is_open
from rath_langgraph.neutral import origin
from rath_langgraph.puts import Put
from rath_langgraph.reading import Reading
from rath_langgraph.serde import RathSerializer
from rath_langgraph.stages import Stages
from rath_langgraph.state import load_writes, task_body
from rath_langgraph.threads import FRAMEWORK, Line, Threads, above, settle
from rath_langgraph.twins import AsyncTwins

_guard: ContextVar[bool] = ContextVar("rath_langgraph_fetching", default=False)


class RathSaver(AsyncTwins):
    """Keeps LangGraph checkpoints in a rath_bridge store: sync and async, any thread, any event loop."""

    lands: Final = True
    """It tells which checkpoints stand (`rath_langgraph.flight.landings`)."""

    def __init__(
        self,
        store: Store | None = None,
        *,
        session: str | None = None,
        serde: SerializerProtocol | None = None,
        allow: Iterable[type] = (),
        on_conflict: Literal["branch", "raise"] = "branch",
        fallback: BaseCheckpointSaver[Any] | None = None,
        redact_state: bool = False,
    ) -> None:
        """Use a store as a checkpointer.

        Args:
            store: From ``rath_bridge.open_store``; the default store when absent.
            session: Record every thread in this session; otherwise the ambient recorder's, else ``langgraph/<thread_id>``.
            serde: One of LangGraph's serializers in place of `RathSerializer`; with one that encrypts, nothing of the values is kept
                in clear.
            allow: Classes that may be constructed although no imported module leads to them (those that do need no mention).
            on_conflict: What a put does whose parent is not the newest of its line (two runs on one thread): open a branch, or raise
                `ConflictError`. Time travel and ``update_state`` always open a branch.
            fallback: The saver that was used so far: its threads are read through, and go on in this store from where they are.
            redact_state: Take known secrets out of what the graph loads again, too (as ``rb.record(redact_state=True)`` does): what is
                loaded is then not what was given. Where a secret cannot be taken out, ``put`` raises. Not with a serde that encrypts.
        """
        check_store(store, "RathSaver", session, optional=True)
        super().__init__(serde=serde if serde is not None else RathSerializer(allow))
        self.store = store if store is not None else open_store()
        self.on_conflict = on_conflict
        self.fallback = fallback
        self.redact_state = redact_state
        self._stages = Stages(self.store, session)

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> RathSaver:
        """Open a store by its address (``sqlite:///runs.db``); works as a plain constructor and in a ``with`` block."""
        return cls(open_store(conn_string), **options)

    def setup(self) -> None:
        """Nothing to do: a store sets itself up when it is opened."""

    def __enter__(self) -> RathSaver:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    async def __aenter__(self) -> RathSaver:
        return self

    async def __aexit__(self, *_: object) -> None:
        await in_thread(self.store.close)

    @property
    def _threads(self) -> Threads:
        return self._stages.here()

    @property
    def _reading(self) -> Reading:
        return Reading(self._threads, self.serde)

    @property
    def flight(self) -> Flight:
        """What is on its way to the store."""
        return self._threads.flight

    def bound(self) -> RathSaver:
        """This saver, leading where it leads here whatever the context: LangGraph saves outside of it what parallel tasks wrote."""
        made = copy(self)
        made.store, made._stages = self.store.bound(), self._stages.bound()
        return made

    # ---------------------------------------------------------------- read

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that the config names, or the newest of its namespace."""
        self._threads.refresh()
        thread_id, namespace = place_of(config)
        backend, reading = self.store.backend, self._reading
        wanted = configurable(config).get("checkpoint_id")
        if wanted:
            found = reading.tuple_of(thread_id, namespace, backend.scan(FRAMEWORK, thread_id, namespace, exact=str(wanted)))
            newest = backend.scan(FRAMEWORK, thread_id, namespace, sub="", limit=1)
            if found is not None and newest and newest[0][0].key != wanted:
                self._threads.travel(thread_id, namespace, str(wanted))
        else:
            groups = reading.groups(thread_id, namespace, size=6)
            found = next((reading.tuple_of(name, ns, entries) for _, name, ns, entries in groups), None)
        found = self.fallback.get_tuple(config) if found is None and self.fallback is not None else found
        landings.read(thread_id, namespace, found)
        return found

    def place(self, thread_id: str) -> tuple[str, str]:
        """Session and branch that a thread goes on in, or would begin in."""
        return self._threads.place(thread_id)

    def holds(self, config: RunnableConfig) -> bool:
        """Tell whether the checkpoint that the config names stands in this store itself."""
        name = str(configurable(config)["checkpoint_id"])
        return self.store.backend.lookup(Key(FRAMEWORK, *place_of(config), name)) is not None

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the contract's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Iterate over checkpoints, newest first."""
        if self.fallback is None:
            yield from self._reading.tuples(config, filter, before, limit)
            return
        lists = (
            self._reading.tuples(config, filter, before, limit),
            self.fallback.list(config, filter=filter, before=before, limit=limit),
        )
        told: set[tuple[str, ...]] = set()
        for found in merge(*lists, key=lambda one: one.checkpoint["id"], reverse=True):  # of two that are equal, ours comes first
            name = (*place_of(found.config), found.checkpoint["id"])
            if name not in told and (limit is None or len(told) < limit):
                told.add(name)
                yield found

    # ---------------------------------------------------------------- write

    def put(
        self, config: RunnableConfig, checkpoint: LangGraphCheckpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """Store a checkpoint and the messages that it adds; durable when it returns.

        Raises:
            ConflictError: Another run has moved this thread on, and ``on_conflict`` is ``raise``.
            StoreUnavailableError: Nothing was written.
        """
        thread_id, namespace = place_of(config)
        with self._threads.flight.of((thread_id, namespace, checkpoint["id"], "put")):
            try:
                self._put(thread_id, namespace, config, checkpoint, metadata, new_versions)
            finally:
                landings.land(checkpoint["id"])
        return config_of(thread_id, namespace, checkpoint["id"])

    def _put(
        self, thread_id: str, namespace: str, config: RunnableConfig, checkpoint: LangGraphCheckpoint, metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> None:  # fmt: skip
        parent_id: str | None = configurable(config).get("checkpoint_id") or None
        self._fetch(thread_id, namespace, parent_id)
        facts = cast("dict[str, Any]", get_checkpoint_metadata(config, metadata))
        for kind in ((), ("put",)):
            self._threads.flight.wait((thread_id, namespace, parent_id, *kind))
        parents: dict[str, Any] = facts.get("parents") or {}
        begun = parents.get(above(namespace)) if namespace and facts.get("source") == "input" else None
        if begun is not None:
            self._threads.expect(thread_id, above(namespace), begun)
        self._threads.refresh()
        line = self._threads.to_put(thread_id, namespace, parent_id)
        with line.lock:
            clean, reads = self._cleaner(line), self._reads(thread_id, namespace, parent_id or "")
            Put(
                self._threads, self.serde, line, parent_id, checkpoint, facts, new_versions, self.on_conflict, reads, clean
            ).write()

    def _reads(self, thread_id: str, namespace: str, parent_id: str) -> Reads:
        """How a put reads what its delta channels hold."""
        config, scan, shelf = config_of(thread_id, namespace, parent_id), self.store.backend.scan, self._threads.shelf

        def find() -> CheckpointTuple | None:
            found = (
                self._reading.tuple_of(thread_id, namespace, scan(FRAMEWORK, thread_id, namespace, exact=parent_id))
                if parent_id
                else None
            )
            return self.fallback.get_tuple(config) if found is None and self.fallback is not None and parent_id else found

        def writes(channels: set[str]) -> Sequence[PendingWrite]:
            entries = scan(FRAMEWORK, thread_id, namespace, exact=parent_id) if parent_id else []
            if not entries and self.fallback is not None and (found := find()) is not None:
                return [write for write in found.pending_writes or () if write[1] in channels]
            return load_writes([c for key, c in entries if key.sub.startswith("w")], self.serde, shelf, channels=channels)

        return Reads(find, lambda channels: self.get_delta_channel_history(config=config, channels=channels), writes, shelf)

    def put_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        """Store the writes of a task; its checkpoint may come later. Durable when it returns, and before one that follows."""
        thread_id, namespace = place_of(config)
        checkpoint_id = str(configurable(config).get("checkpoint_id") or "")
        with self._threads.flight.of((thread_id, namespace, checkpoint_id)):
            self._put_writes(thread_id, namespace, checkpoint_id, writes, task_id, task_path)

    def _put_writes(
        self, thread_id: str, namespace: str, checkpoint_id: str, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        self._fetch(thread_id, namespace, checkpoint_id)
        line = self._threads.line(thread_id, namespace)
        encoder = Encoder(self.serde, clean=self._cleaner(line))
        body = task_body(namespace, checkpoint_id, writes, task_id, task_path, encoder)
        key = Key(FRAMEWORK, thread_id, namespace, checkpoint_id, _task_sub(task_id, [row[0] for row in body.writes]))
        special = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        item = draft(
            body,
            run=line.run,
            objects=encoder.objects,
            origin=origin(),
            keys=(key,) if special else (),
            once=None if special else key,
        )
        with line.lock:
            where = line.tips.get(checkpoint_id) or self._threads.home(line)
            settle(self.store, where[0], place_name(thread_id, namespace))
            self._threads.append(line, where, [item])
            line.seen.remember(encoder)
        self._threads.shelf.keep({name.hex(): data for name, data in encoder.bytes.items()})

    def _cleaner(self, line: Line) -> StateCleaner | None:
        """What takes secrets out of the state, if that is wanted; what was encoded otherwise before is not taken for the same."""
        found = state_cleaner(self.store, self.redact_state) if is_open(self.serde) else None
        if line.redacted != (found is not None):
            with line.lock:
                line.forget_content()
                line.redacted = found is not None
        return found

    def _fetch(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> None:
        """Bring a checkpoint that is to be continued over from the saver that was used so far."""
        old = self.fallback
        if old is None or not checkpoint_id or _guard.get():
            return
        if self.holds(config_of(thread_id, namespace, checkpoint_id)):
            return
        found = old.get_tuple(config_of(thread_id, namespace, checkpoint_id))
        if found is not None:
            from rath_langgraph.moving import write_tuple

            token = _guard.set(True)
            try:
                write_tuple(self, found, thread_id)
            finally:
                _guard.reset(token)

    def delete_thread(self, thread_id: str) -> None:
        """Forget a thread: its checkpoints are not found any more, and what nothing else stands on is erased.

        Its session keeps one boundary chunk that tells so; a copied thread stays whole.
        """
        forget_thread(self._threads, thread_id)
        if self.fallback is not None:
            self.fallback.delete_thread(thread_id)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Forget the checkpoints whose metadata has one of these ``run_id``, in all threads and namespaces; see `delete_thread`."""
        upkeep.delete_for_runs(self._threads, run_ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Fork a thread: all its checkpoints are found under the target too, and it goes on in a session of its own.

        Raises:
            NameInUseError: The target has checkpoints already.
        """
        if self.fallback is not None and next(iter(self.fallback.list({"configurable": {"thread_id": source_thread_id}})), None):
            from rath_langgraph.moving import import_thread

            import_thread(self.fallback, self, source_thread_id)
        upkeep.copy_thread(self._threads, source_thread_id, target_thread_id)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the newest checkpoint of every namespace, with what its delta channels need; or nothing (``delete``)."""
        upkeep.prune(self._threads, self.serde, thread_ids, strategy)

    def get_delta_channel_history(self, *, config: RunnableConfig, channels: Sequence[str]) -> Mapping[str, DeltaChannelHistory]:
        """Writes to delta channels since they were last stored whole; only those are read."""
        if self.fallback is not None:
            return super().get_delta_channel_history(config=config, channels=channels)
        self._threads.refresh()
        thread_id, namespace = place_of(config)
        wanted = configurable(config).get("checkpoint_id") or None
        return cast(Any, upkeep.delta_history(self._threads, self.serde, thread_id, namespace, wanted, channels))

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Count up: small ints for a new thread; threads that came with text versions go on with those."""
        if current is None:
            return 1
        if isinstance(current, str):
            number = int(current.partition(".")[0]) + 1
            return f"{number:032}.{random.random():016}"  # the form of the savers that ship with LangGraph
        return int(current) + 1 if isinstance(current, int) else current + 1


def _task_sub(task_id: str, indices: Sequence[int]) -> str:
    """A short name for (task, indices): the index row of one ``put_writes`` call."""
    text = f"{task_id}\0{','.join(map(str, indices))}".encode("utf-8", "surrogatepass")
    return f"w{sha256(text).hexdigest()[:24]}"
