"""Checkpoints as they stand in a session, read without the index: what ``encode`` hands over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from langgraph.checkpoint.base import CheckpointTuple

from rath_bridge.errors import UnsupportedError
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.kinds import Checkpoint, Run, Task
from rath_bridge.model.report import Loss
from rath_bridge.session import Session
from rath_langgraph.deltas import COUNTERS, unwrapped
from rath_langgraph.serde import RathSerializer
from rath_langgraph.state import load_values, load_writes, read_metadata, read_state


def _newest(chunks: Sequence[Chunk]) -> tuple[Chunk, Checkpoint] | None:
    for chunk in reversed(chunks):
        if chunk.kind == "checkpoint" and chunk.body_bytes is not None:
            body = cast(Checkpoint, chunk.body)
            if not body.namespace and body.state is not None:
                return chunk, body
    return None


def channels_of(session: Session, chunks: Sequence[Chunk]) -> tuple[dict[str, Any], list[Loss]]:
    """The channels of the newest root checkpoint that belong to the user's state, and those that it does not hold."""
    found = _newest(chunks)
    if found is None or not _is_ours(found[0]):
        return {}, []
    backend = session.store.backend
    values = load_values(read_state(found[1], backend.objects), RathSerializer(), backend.objects, f"chunk {found[0].id[:16]}")
    _, facts = read_metadata(found[1], RathSerializer(), f"chunk {found[0].id[:16]}")
    away = "a delta channel whose value stands in the writes of older checkpoints, which its graph puts together: left out"
    missing = [Loss(found[0].id, f"state[{name!r}]", away) for name in facts.get(COUNTERS) or () if name not in values]
    return {name: unwrapped(value) for name, value in values.items() if not name.startswith(("__", "branch:", "join:"))}, missing


def last_checkpoint(session: Session, chunks: Sequence[Chunk]) -> CheckpointTuple:
    """The newest root checkpoint of a line, with its pending writes.

    Raises:
        UnsupportedError: There is none.
        CorruptStoreError: It cannot be read without its own serde (an encrypted one, say).
    """
    found = _newest(chunks)
    if found is None or found[1].checkpoint_id is None or not _is_ours(found[0]):
        raise UnsupportedError(f"{session.name} has no LangGraph checkpoint: encode it as 'messages' or 'state'")
    chunk, body = found
    backend, serde = session.store.backend, RathSerializer()
    place = f"checkpoint {body.checkpoint_id}"
    rest, metadata = read_metadata(body, serde, place)
    values = load_values(read_state(body, backend.objects), serde, backend.objects, place)
    tasks = [c for c in chunks if c.kind == "task" and c.run == chunk.run and c.body_bytes is not None]
    tasks = [c for c in tasks if cast(Task, c.body).checkpoint_id == body.checkpoint_id]
    ordered = any(cast(Task, c.body).path for c in tasks)  # a decoded tuple has no paths: its order is kept
    writes = load_writes(tasks, serde, backend.objects, ordered=ordered)
    where: dict[str, Any] = {"thread_id": _thread_of(session, chunk, chunks), "checkpoint_ns": ""}
    parent = body.parent_checkpoint_id
    return CheckpointTuple(
        {"configurable": {**where, "checkpoint_id": body.checkpoint_id}},
        cast(Any, {**rest, "channel_values": values}),
        cast(Any, metadata),
        {"configurable": {**where, "checkpoint_id": parent}} if parent else None,
        writes,
    )


def _is_ours(chunk: Chunk) -> bool:
    return '"langgraph"' in (chunk.origin or "")


def _thread_of(session: Session, chunk: Chunk, chunks: Sequence[Chunk]) -> str:
    for one in chunks:
        if one.kind == "run" and one.run == chunk.run and one.body_bytes is not None:
            name = cast(Run, one.body).native_id
            if name is not None:
                return name
    return session.name
