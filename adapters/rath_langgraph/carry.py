"""A graph's state goes where its session goes: a fork, a merge, a copy under another name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from rath_bridge.errors import NotFoundError, RathError
from rath_bridge.model.chunk import Chunk, Key, draft
from rath_bridge.model.kinds import Checkpoint
from rath_bridge.session import Session
from rath_langgraph.deltas import away, whole
from rath_langgraph.followed import FollowedSaver
from rath_langgraph.items import Encoder
from rath_langgraph.neutral import origin
from rath_langgraph.saved import last_checkpoint
from rath_langgraph.serde import RathSerializer
from rath_langgraph.state import checkpoint_body, read_state
from rath_langgraph.threads import FRAMEWORK, Threads
from rath_langgraph.upkeep import delta_history


@dataclass(frozen=True, slots=True)
class Carried:
    """What a thread's checkpointer has to be told before the graph runs on a line whose state it does not have."""

    config: RunnableConfig
    """Of the put."""
    found: CheckpointTuple
    after: RunnableConfig
    """Of the writes."""
    writes: Mapping[str, Sequence[tuple[str, Any]]]
    own: BaseCheckpointSaver[Any] | None
    """The graph's own checkpointer; None where ours is in charge, and has it already."""

    def tell(self, saver: BaseCheckpointSaver[Any]) -> None:
        """Tell the checkpointers."""
        if self.own is not None:
            self.own.put(self.config, self.found.checkpoint, self._metadata(), self.found.checkpoint["channel_versions"])
        for task_id, writes in self.writes.items():
            saver.put_writes(self.after, writes, task_id)

    async def atell(self, saver: BaseCheckpointSaver[Any]) -> None:
        """Async twin of `tell`."""
        if self.own is not None:
            await self.own.aput(self.config, self.found.checkpoint, self._metadata(), self.found.checkpoint["channel_versions"])
        for task_id, writes in self.writes.items():
            await saver.aput_writes(self.after, writes, task_id)

    def _metadata(self) -> Any:
        return {**cast(Any, self.found.metadata), "source": "fork"}


def carried(
    session: Session, saver: BaseCheckpointSaver[Any], thread_id: str, known: CheckpointTuple | None, channels: Mapping[str, Any]
) -> Carried | None:
    """Let a thread begin, or go on, at the newest checkpoint of a line: no value is stored again.

    Args:
        session: The line.
        saver: The graph's checkpointer.
        thread_id: The thread in which the graph will run on it.
        known: The thread's newest checkpoint so far.
        channels: The graph's.

    Returns:
        What is left to do, or None where the thread has the line's state, or the line has none.
    """
    chunks = list(session.chunks())
    chunk = next((c for c in reversed(chunks) if _is_root(c)), None)
    if chunk is None:
        return None
    body = cast(Checkpoint, chunk.body)
    before = known.checkpoint["id"] if known is not None else None
    if body.checkpoint_id is None or (before is not None and before >= body.checkpoint_id):
        return None
    try:
        last = last_checkpoint(session, chunks)
        names = away(last, channels)
        found = whole(last, channels, _histories(session, last, names)) if names else last
    except RathError:  # under another serde (encrypted, say): what was said is handed over, no more
        return None
    where = {"thread_id": thread_id, "checkpoint_ns": ""}
    if session.store.backend.lookup(Key(FRAMEWORK, thread_id, "", body.checkpoint_id)) is None:
        _adopt(session, chunk, thread_id, before, found if found is not last else None)
    writes: dict[str, list[tuple[str, Any]]] = {}
    for task_id, channel, value in found.pending_writes or ():
        writes.setdefault(task_id, []).append((channel, value))
    return Carried(
        {"configurable": {**where, **({"checkpoint_id": before} if before else {})}}, found,
        {"configurable": {**where, "checkpoint_id": body.checkpoint_id}}, writes,
        saver.own if isinstance(saver, FollowedSaver) and saver.charge is saver.own else None,
    )  # fmt: skip


def _is_root(chunk: Chunk) -> bool:
    if chunk.kind != "checkpoint" or chunk.body_bytes is None or '"langgraph"' not in (chunk.origin or ""):
        return False
    body = cast(Checkpoint, chunk.body)
    return not body.namespace and body.state is not None


def _histories(session: Session, found: CheckpointTuple, names: Sequence[str]) -> Mapping[str, Any]:
    """What leads to a checkpoint's delta channels, read in the thread that it was put in."""
    place = (found.config.get("configurable") or {})["thread_id"], "", found.checkpoint["id"]
    if session.store.backend.lookup(Key(FRAMEWORK, *place)) is None:
        raise NotFoundError(f"checkpoint {place[2]} of thread {place[0]!r} is not there any more")
    return delta_history(Threads(session.store), RathSerializer(), *place, names)


def _adopt(session: Session, chunk: Chunk, thread_id: str, before: str | None, changed: CheckpointTuple | None) -> None:
    """The same checkpoint in another thread: its values stand in the store already, its messages on the line."""
    threads = Threads(session.store, session.name)
    line = threads.line(thread_id, "")
    body, encoder = cast(Checkpoint, chunk.body), Encoder(RathSerializer())
    if changed is None:
        body = replace(body, parent_checkpoint_id=before, source="fork")
    else:  # the writes that its delta channels are made of stay with the other thread
        facts = {**cast(Any, changed.metadata), "source": "fork"}
        body, _ = checkpoint_body(
            "", before, changed.checkpoint, facts, encoder, read_state(body, session.store.backend.objects), ()
        )
    key = Key(FRAMEWORK, thread_id, "", body.checkpoint_id or "")
    with line.lock:
        made = draft(body, run=line.run, objects=encoder.objects, origin=origin(), keys=(key,))
        threads.append(line, threads.home(line), [made])
