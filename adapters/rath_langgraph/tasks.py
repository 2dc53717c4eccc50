"""Tasks of a thread, joined to what was observed of them: open questions, and how long every node took."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from rath_bridge.errors import RathError
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Run, Task
from rath_bridge.session import Session
from rath_langgraph.serde import RathSerializer
from rath_langgraph.state import load_writes
from rath_langgraph.threads import FRAMEWORK, Threads


@dataclass(frozen=True, slots=True)
class NodeTiming:
    """One time that a node ran."""

    node: str
    step: int | None
    task_id: str
    checkpoint_id: str | None
    """The checkpoint that it started from; None where no checkpointer kept its writes."""
    namespace: str
    """Of the graph that the node stands in."""
    attempt: int
    status: str | None
    """How it ended; None while it runs."""
    started: int
    """Microseconds since 1970."""
    seconds: float | None
    run: str
    task: Digest | None
    """The chunk that holds what it wrote."""


def node_timings(session: Session) -> Iterator[NodeTiming]:
    """Tell how long every node ran, joined to its task and its checkpoint, in the order in which they began.

    Args:
        session: A session in which wrapped graphs, or a `RathCallbackHandler`, were recorded.
    """
    begun: dict[str, tuple[int, Run]] = {}
    ended: dict[str, tuple[int, Run]] = {}
    wrote: dict[str, tuple[Digest, Task]] = {}
    for chunk in session.chunks():
        if chunk.body_bytes is None:
            continue
        if chunk.kind == "run" and chunk.run is not None:
            body = cast(Run, chunk.body)
            (begun if body.phase == "begin" else ended).setdefault(chunk.run, (chunk.at, body))
        elif chunk.kind == "task":
            task = cast(Task, chunk.body)
            if task.task_id is not None:
                wrote[task.task_id] = chunk.id, task
    for run, (at, body) in begun.items():
        if body.type != "node" or body.native_id is None:
            continue
        namespace, _, task_id = body.native_id.rpartition(":")
        over = ended.get(run)
        known = wrote.get(task_id)
        yield NodeTiming(
            node=body.name, step=body.attributes.get("step"), task_id=task_id,
            checkpoint_id=known[1].checkpoint_id if known else None, namespace=namespace.rpartition("|")[0],
            attempt=body.attributes.get("attempt", 1), status=over[1].status if over else None, started=at,
            seconds=(over[0] - at) / 1e6 if over else None, run=run, task=known[0] if known else None,
        )  # fmt: skip


def waiting(threads: Threads, thread_id: str) -> list[str]:
    """Ids of the interrupts that a thread's newest checkpoint waits for; empty where they cannot be told."""
    backend = threads.store.backend
    try:
        newest = backend.scan(FRAMEWORK, thread_id, "", sub="", limit=1)
        if not newest:
            return []
        entries = backend.scan(FRAMEWORK, thread_id, "", exact=newest[0][0].key)
        tasks = [chunk for key, chunk in entries if key.sub.startswith("w")]
        writes = load_writes(tasks, RathSerializer(), threads.shelf, channels={"__interrupt__"})
    except RathError:
        return []
    return [one.id for _, _, value in writes for one in cast("list[Any]", value if isinstance(value, (list, tuple)) else [value])]
