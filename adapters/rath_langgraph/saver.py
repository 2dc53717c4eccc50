"""`RathSaver`: a LangGraph checkpointer whose threads are sessions, and which stores what is said once.

Source of the contract: ``langgraph.checkpoint.base.BaseCheckpointSaver`` (langgraph-checkpoint 4.3). One class for sync and async:
the ``a*`` methods run the same bodies on our own thread pool.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from heapq import merge
from itertools import islice
from typing import Any, Final, Literal, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.base import Checkpoint as LangGraphCheckpoint
from langgraph.checkpoint.serde.base import SerializerProtocol

from rath_bridge.aio import in_thread
from rath_bridge.errors import ConflictError, NameInUseError
from rath_bridge.model.chunk import Chunk, Draft, Key, draft
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Checkpoint, Compaction, SessionStart
from rath_bridge.session import Store, open_store
from rath_bridge.store.protocol import Appended, Ref
from rath_bridge.verbs.transcript import transcript
from rath_langgraph.items import Encoder
from rath_langgraph.messages import Lifted, lift
from rath_langgraph.neutral import origin
from rath_langgraph.state import checkpoint_body, load_values, load_writes, read_metadata, read_state, task_body
from rath_langgraph.threads import FRAMEWORK, RUN, Known, Line, Threads, Where, above, settle

_PAGE: Final = 128
"""Index entries read at once while listing."""
_ATTEMPTS: Final = 50


class RathSaver(BaseCheckpointSaver[Any]):
    """Keeps LangGraph checkpoints in a rath_bridge store: sync and async, any thread, any event loop."""

    def __init__(
        self,
        store: Store | None = None,
        *,
        session: str | None = None,
        serde: SerializerProtocol | None = None,
        on_conflict: Literal["branch", "raise"] = "branch",
    ) -> None:
        """Use a store as a checkpointer.

        Args:
            store: From ``rath_bridge.open_store``; the default store when absent.
            session: Record every thread in this session; otherwise the ambient recorder's, else ``langgraph/<thread_id>``.
            serde: LangGraph's serializer; with one that encrypts, nothing of the values is kept in clear.
            on_conflict: What a put does whose parent is not the newest of its line (two runs on one thread): open a branch, or raise
                `ConflictError`. Time travel and ``update_state`` always open a branch.
        """
        super().__init__(serde=serde)
        self.store = store if store is not None else open_store()
        self.on_conflict = on_conflict
        self._threads = Threads(self.store, session)

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

    # ---------------------------------------------------------------- read

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that the config names, or the newest of its namespace."""
        thread_id, namespace = _place(config)
        backend = self.store.backend
        wanted = config["configurable"].get("checkpoint_id")
        if not wanted:
            newest = backend.scan(FRAMEWORK, thread_id, namespace, sub="", limit=1)
            if not newest:
                return None
            wanted = newest[0][0].key
        entries = backend.scan(FRAMEWORK, thread_id, namespace, exact=str(wanted))
        return self._tuple(thread_id, namespace, entries)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the contract's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Iterate over checkpoints, newest first."""
        configurable = config["configurable"] if config else {}
        thread_id, namespace = configurable.get("thread_id"), configurable.get("checkpoint_ns")
        scopes = [
            (found, ns)
            for found, ns in self.store.backend.scopes(FRAMEWORK, None if thread_id is None else str(thread_id))
            if namespace in (None, ns)
        ]
        edge = before["configurable"].get("checkpoint_id") if before else None
        exact = configurable.get("checkpoint_id")
        size = None if limit is None or filter else limit * 6 + 8
        groups = merge(*(self._groups(*scope, edge, exact, size) for scope in scopes), key=lambda g: g[0], reverse=True)
        count = 0
        for _, found, ns, entries in groups:
            if limit is not None and count >= limit:
                return
            if filter and not self._matches(entries, filter):
                continue
            made = self._tuple(found, ns, entries)
            if made is not None:
                count += 1
                yield made

    def _groups(
        self, thread_id: str, namespace: str, before: str | None, exact: str | None, size: int | None
    ) -> Iterator[tuple[str, str, str, list[tuple[Key, Chunk]]]]:
        """Index entries of one namespace, a checkpoint with its tasks at a time, newest first, read in pages."""
        page = size or _PAGE
        while True:
            entries = self.store.backend.scan(FRAMEWORK, thread_id, namespace, before=before, exact=exact, limit=page)
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

    def _tuple(self, thread_id: str, namespace: str, entries: Sequence[tuple[Key, Chunk]]) -> CheckpointTuple | None:
        chunk = next((chunk for key, chunk in entries if key.sub == ""), None)
        if chunk is None:
            return None
        body, backend = cast(Checkpoint, chunk.body), self.store.backend
        place = f"checkpoint {body.checkpoint_id} of thread {thread_id!r}"
        state = self._threads.state_of(thread_id, namespace, chunk) or read_state(body, backend.objects)
        rest, metadata = read_metadata(body, self.serde, place)
        values = load_values(state, self.serde, backend.objects, place)
        writes = load_writes([c for key, c in entries if key.sub.startswith("w")], self.serde, backend.objects)
        parent = body.parent_checkpoint_id
        return CheckpointTuple(
            _config(thread_id, namespace, body.checkpoint_id or ""), cast(Any, {**rest, "channel_values": values}), cast(Any, metadata),
            _config(thread_id, namespace, parent) if parent else None, writes,
        )  # fmt: skip

    # ---------------------------------------------------------------- write

    def put(
        self, config: RunnableConfig, checkpoint: LangGraphCheckpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """Store a checkpoint and the messages that it adds; durable when it returns.

        Raises:
            ConflictError: Another run has moved this thread on, and ``on_conflict`` is ``raise``.
            StoreUnavailableError: Nothing was written.
        """
        thread_id, namespace = _place(config)
        parent_id: str | None = config["configurable"].get("checkpoint_id") or None
        facts = cast("dict[str, Any]", get_checkpoint_metadata(config, metadata))
        line = self._threads.line(thread_id, namespace)
        with line.lock:
            _Put(self, line, parent_id, checkpoint, facts, new_versions).write()
        return _config(thread_id, namespace, checkpoint["id"])

    def put_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        """Store the writes of a task; its checkpoint may come later. Durable when it returns."""
        thread_id, namespace = _place(config)
        checkpoint_id = str(config["configurable"].get("checkpoint_id") or "")
        encoder = Encoder(self.serde)
        body = task_body(namespace, checkpoint_id, writes, task_id, task_path, encoder)
        key = Key(FRAMEWORK, thread_id, namespace, checkpoint_id, _task_sub(task_id, [row[0] for row in body.writes]))
        special = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        line = self._threads.line(thread_id, namespace)
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
            settle(self.store, where[0])
            self._append(line, where, [item])
            line.seen.remember(encoder)

    def _append(self, line: Line, where: Where, drafts: Sequence[Draft]) -> Appended:
        """Append behind whatever stands there."""
        session, branch = where
        place = self.store.session(Ref(session, branch, "", 0).name, create=True) if where not in line.marks else None
        head = place.head if place is not None else line.marks[where][0]
        done = self.store.backend.append(session, branch, drafts, head=head, on_conflict="serialise")
        mark = line.marks.get(where)
        if mark is not None and done.ref.position - done.written == mark[1]:
            line.marks[where] = (done.ref.head, done.ref.position)
        return done

    def delete_thread(self, thread_id: str) -> None:
        """Forget a thread: its checkpoints are not found any more, and its messages leave the transcript."""
        backend = self.store.backend
        chunk = backend.lookup(Key(FRAMEWORK, thread_id, "", "", RUN))
        if chunk is not None:
            line = self._threads.line(thread_id, "")
            session = self.store.session(Ref(*line.where, "", 0).name)
            said = tuple(entry.id for entry in transcript(list(session.chunks()), line.run))
            if said:
                gone = draft(Compaction(dropped=said, reason="deleted"), run=line.run, origin=origin())
                session.append(gone, on_conflict="serialise")
        backend.drop_keys(FRAMEWORK, thread_id)
        self._threads.forget(thread_id)

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Count up: small ints for a new thread; threads that came with text versions go on with those."""
        if current is None:
            return 1
        if isinstance(current, str):
            number = int(current.partition(".")[0]) + 1
            return f"{number:032}.{random.random():016}"  # the form of the savers that ship with LangGraph
        return int(current) + 1 if isinstance(current, int) else current + 1

    # ---------------------------------------------------------------- async twins

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Async twin of `get_tuple`."""
        return await in_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the contract's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Async twin of `list`; read a few at a time."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        while True:
            page = await in_thread(lambda: [*islice(found, 8)])
            for item in page:
                yield item
            if len(page) < 8:
                return

    async def aput(
        self, config: RunnableConfig, checkpoint: LangGraphCheckpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """Async twin of `put`."""
        return await in_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Async twin of `put_writes`."""
        await in_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """Async twin of `delete_thread`."""
        await in_thread(self.delete_thread, thread_id)


class _Put:
    """One put: where it goes, what it says, and the append, repeated while others move the branch."""

    def __init__(
        self, saver: RathSaver, line: Line, parent_id: str | None, checkpoint: LangGraphCheckpoint, facts: dict[str, Any],
        new_versions: ChannelVersions,
    ) -> None:  # fmt: skip
        self.saver, self.line, self.parent_id, self.checkpoint = saver, line, parent_id, checkpoint
        self.facts, self.new_versions = facts, new_versions
        self.threads, self.backend = saver._threads, saver.store.backend
        self.key = Key(FRAMEWORK, line.thread_id, line.namespace, checkpoint["id"])
        self.parent = self.threads.known(line, parent_id)

    def write(self) -> None:
        """Store it.

        Raises:
            ConflictError: See `RathSaver.put`.
        """
        settle(self.saver.store, self.threads.home(self.line)[0])
        for attempt in range(_ATTEMPTS):
            where, foreign = self._where()
            if where is None:
                again = self.backend.lookup(self.key)
                if again is None:
                    return self._fork()
                return self._again()
            session, branch = where
            ref = self.backend.ref(session, branch)
            assert ref is not None
            if foreign is None:  # somebody wrote between two looks
                continue
            drafts, lifted, known, encoder = self._drafts(self.parent, ref.head, foreign)
            last = attempt == _ATTEMPTS - 1
            try:
                done = self.backend.append(
                    session, branch, drafts, head=self.line.marks[where][0], on_conflict="serialise" if last else "raise"
                )
            except ConflictError:
                continue
            return self._stored(done, 0, where, lifted, known, encoder)
        raise AssertionError("unreachable")  # the last attempt serialises

    def _where(self) -> tuple[Where | None, list[Chunk] | None]:
        """The branch that the parent is the tip of, and what others wrote to it since; None where the put is a fork."""
        line, home = self.line, self.threads.home(self.line)
        if self.parent_id is None:
            if line.tips or line.passed:
                return None, None
            where: Where | None = home
        elif self.parent is None:
            where = home  # a parent that is not on record
        else:
            where = self.threads.is_tip(line, self.parent_id)
            if where is not None and where[0] != home[0]:
                where = home  # the thread goes on in another session
        if where is None:
            return None, None
        place = self.saver.store.session(Ref(*where, "", 0).name, create=True)
        mark = line.marks.get(where)
        if mark is None:
            start = self._start(where)
        elif mark[0] == place.head:
            return where, []
        else:
            start = mark[1] + 1
        foreign = list(self.backend.line(place.head, start))
        line.marks[where] = (place.head, place.position)
        for chunk in foreign:
            if chunk.kind == "checkpoint" and chunk.run == line.run:
                body = cast(Checkpoint, chunk.body)
                if body.checkpoint_id != self.checkpoint["id"] and body.checkpoint_id is not None:
                    self._pass(where, body.checkpoint_id)
                    return None, None
        return where, foreign

    def _start(self, where: Where) -> int:
        """From where on a branch that was not read yet has to be looked at."""
        first = self.parent.chunk if self.parent is not None else self.line.run_chunk
        chunk = self.backend.chunk(first)
        ref = self.backend.ref(*where)
        if ref is None or ref.position < chunk.position:
            return 0 if ref is None else ref.position + 1
        standing = next(self.backend.line(ref.head, chunk.position, chunk.position + 1))
        return chunk.position + 1 if standing.id == chunk.id else ref.position + 1

    def _pass(self, where: Where, checkpoint_id: str) -> None:
        """Another process has moved this branch on."""
        if self.parent_id is not None:
            self.line.tips.pop(self.parent_id, None)
            self.line.passed.add(self.parent_id)
        self.line.tips[checkpoint_id] = where

    def _drafts(self, base: Known | None, head: Digest, foreign: Sequence[Chunk]) -> tuple[list[Draft], Lifted, Known, Encoder]:
        """Messages first, so that a fork at the checkpoint holds them; then the checkpoint."""
        line = self.line
        encoder = Encoder(self.saver.serde, line.seen)
        body, state = checkpoint_body(
            line.namespace, self.parent_id, self.checkpoint, self.facts, encoder, base.state if base else None, self.new_versions
        )
        lifted = lift(
            line,
            self.checkpoint["channel_values"],
            state.values,
            base,
            encoder,
            self.backend,
            head,
            foreign,
            self._around(encoder),
        )
        drafts = [*lifted.drafts, draft(body, run=line.run, objects=encoder.objects, origin=origin(), keys=(self.key,))]
        return drafts, lifted, Known("", state, lifted.feed, lifted.ids), encoder

    def _around(self, encoder: Encoder) -> list[Known]:
        """The enclosing graph's checkpoint, whose messages a subgraph starts from."""
        if not self.line.namespace or not encoder.open:
            return []
        namespace = above(self.line.namespace)
        name = (self.facts.get("parents") or {}).get(namespace)
        line = self.threads.line(self.line.thread_id, namespace)
        known = self.threads.known(line, name)
        return [known] if known is not None else []

    def _stored(self, done: Appended, first: int, where: Where, lifted: Lifted, known: Known, encoder: Encoder) -> None:
        """Remember what is durable now."""
        line, name = self.line, self.checkpoint["id"]
        ids = lifted.named(done.chunks[first:]) if lifted.places else lifted.ids
        line.remember(name, Known(done.ref.head, known.state, known.feed, ids))  # the checkpoint is written last
        if self.parent_id is not None:
            line.tips.pop(self.parent_id, None)
            line.passed.add(self.parent_id)
        line.tips[name] = line.where = where
        line.marks[where] = (done.ref.head, done.ref.position)
        line.seen.remember(encoder)

    def _again(self) -> None:
        """The same checkpoint once more: it supersedes itself by key."""
        line, name = self.line, self.checkpoint["id"]
        where = line.tips.get(name) or self.threads.home(line)
        base = self.threads.known(line, name)
        drafts, lifted, known, encoder = self._drafts(base, base.chunk if base else "", [])
        done = self.saver._append(line, where, drafts)
        ids = lifted.named(done.chunks) if lifted.places else lifted.ids
        line.remember(name, Known(done.ref.head, known.state, known.feed, ids))
        line.seen.remember(encoder)

    def _fork(self) -> None:
        """Open a branch at the parent's chunk: nobody's answer is lost (law 11)."""
        line = self.line
        session = self.threads.home(line)[0]
        travel = self.facts.get("source") in ("fork", "update")
        if self.saver.on_conflict == "raise" and not travel:
            tip = next(iter(line.tips), None)
            raise ConflictError(f"thread {line.thread_id!r}", self.parent_id, tip)
        point = self.parent.chunk if self.parent is not None else line.run_chunk
        drafts, lifted, known, encoder = self._drafts(self.parent, point, [])
        base = f"{'fork' if travel else 'race'}-{drafts[-1].body_digest[:8]}"
        for suffix in ("", "-2", "-3", "-4"):
            branch = base + suffix
            start = draft(
                SessionStart(op="fork", name=session, branch=branch, of=session, reason="time travel" if travel else "race"),
                origin=origin(),
            )
            with suppress(NameInUseError):
                done = self.backend.append(
                    session, branch, [start, *drafts], head=None, parents=(point,), reason="fork" if travel else "race"
                )
                return self._stored(done, 1, (session, branch), lifted, known, encoder)
        raise NameInUseError(f"{session}@{base}")


def _place(config: RunnableConfig) -> tuple[str, str]:
    configurable = config["configurable"]
    return str(configurable["thread_id"]), str(configurable.get("checkpoint_ns") or "")


def _config(thread_id: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}}


def _task_sub(task_id: str, indices: Sequence[int]) -> str:
    """A short name for (task, indices): the index row of one ``put_writes`` call."""
    text = f"{task_id}\0{','.join(map(str, indices))}".encode("utf-8", "surrogatepass")
    return f"w{sha256(text).hexdigest()[:24]}"
