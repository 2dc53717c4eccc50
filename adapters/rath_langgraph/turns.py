"""A wrapped graph that is itself what a replay runs: every recorded invocation is made again, with the input that is on record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.runnables import RunnableConfig

from rath_bridge.errors import UnsupportedError
from rath_bridge.model.chunk import Chunk, Draft
from rath_bridge.model.kinds import Checkpoint, Inference, Run
from rath_bridge.replay import Tape, said, tape_of
from rath_bridge.session import Session
from rath_langgraph.inputs import INSTEAD, recorded_context, recorded_input
from rath_langgraph.threads import FRAMEWORK
from rath_langgraph.unsaved import is_unsaved


@dataclass(frozen=True, slots=True)
class Turn:
    """One invocation."""

    config: RunnableConfig
    input: Any
    context: dict[str, Any] | None
    streamed: bool
    called: bool = False
    """The graph was called on the session: what it is given stands there."""


@dataclass(frozen=True, slots=True)
class Turns:
    """What happened on a record, in order: what others wrote between the runs, and the runs."""

    session: Session
    steps: Sequence[Turn | Draft]

    def again(self, graph: Any) -> Session:
        """Do all of it again."""
        for step in self.steps:
            if isinstance(step, Draft):
                self.session.latest().append(step, on_conflict="serialise")
            elif step.called:
                graph.go_on(self.session.latest(), step.config)
            elif step.streamed:
                for _ in graph.stream(step.input, step.config, context=step.context, stream_mode=["values", "messages"]):
                    pass
            else:
                graph.invoke(step.input, step.config, context=step.context)
        return self.session.latest()

    async def aagain(self, graph: Any) -> Session:
        """Async twin of `again`."""
        for step in self.steps:
            if isinstance(step, Draft):
                await self.session.latest().aappend(step, on_conflict="serialise")
            elif step.called:
                await graph.ago_on(self.session.latest(), step.config)
            elif step.streamed:
                async for _ in graph.astream(step.input, step.config, context=step.context, stream_mode=["values", "messages"]):
                    pass
            else:
                await graph.ainvoke(step.input, step.config, context=step.context)
        return self.session.latest()


def recorded_turns(graph: Any, session: Session) -> Turns | None:
    """The invocations of the record that a replay runs on; None where it is not what a replay runs, or has none on record.

    Args:
        graph: The wrapped graph.
        session: The scratch to begin with.

    Raises:
        UnsupportedError: Something that was done is not on record as it was given.
    """
    tape = tape_of(graph, session)
    if tape is None:
        return None
    chunks = [chunk for chunk in tape.held.chunks if chunk.position > session.position]
    roots = [chunk for chunk in chunks if _is_invocation(chunk, tape)]
    kept = any(chunk.kind == "checkpoint" for chunk in chunks)
    if not roots or not (kept or any(map(is_unsaved, roots))):
        return None
    try:
        if not kept and not all(cast(Run, root.body).manifest for root in roots):
            raise UnsupportedError(f"the input of a run is not on record (its graph had no checkpointer): {INSTEAD}")
        steps = sorted(_steps(tape, chunks, {chunk.id for chunk in roots}), key=lambda found: found[0])
        return Turns(session, [step for _, step in steps])
    except UnsupportedError as error:
        tape.player(FRAMEWORK).tape.reasons.append(str(error))
        raise


def _is_invocation(chunk: Chunk, tape: Tape) -> bool:
    if chunk.kind != "run" or f'"{FRAMEWORK}"' not in (chunk.origin or ""):
        return False
    body = cast(Run, chunk.body)
    if body.phase != "begin" or body.type != "graph" or "blind_spots" not in body.attributes:
        return False
    above = next((one for one in tape.held.chunks if one.kind == "run" and one.run == body.parent), None)
    return above is None or cast(Run, above.body).native_id == body.native_id


def _steps(tape: Tape, chunks: Sequence[Chunk], roots: set[str]) -> Iterator[tuple[int, Turn | Draft]]:
    """Each step with its place: of several threads that began at the same time, the runs follow in the threads' order."""
    over = written = 0
    begun = {chunk.run: chunk.position for chunk in reversed(chunks) if chunk.kind == "run"}
    for index, chunk in enumerate(chunks):
        if chunk.id in roots:
            body = cast(Run, chunk.body)
            end = next(
                (i for i in range(index + 1, len(chunks)) if chunks[i].kind == "run" and chunks[i].run == chunk.run), len(chunks)
            )
            inside, over = chunks[index:end], max(over, end)
            config: RunnableConfig = {"configurable": {"thread_id": body.native_id}} if body.native_id is not None else {}
            place = max(written, begun.pop(body.parent, chunk.position))
            if body.manifest:
                yield place, Turn(config, None, None, streamed=False, called=True)
                continue
            streamed = any(c.kind == "inference" and cast(Inference, c.body).streamed for c in inside)
            given, context = recorded_input(tape, chunk, inside), recorded_context(chunk, inside)
            yield place, Turn(config, given, context, streamed)
        elif index >= over and chunk.kind == "checkpoint" and cast(Checkpoint, chunk.body).source == "update":
            raise UnsupportedError(f"the state was changed between two runs (update_state): {INSTEAD}")
        elif (one := said(tape, chunk)) is not None:
            written = chunk.position
            yield written, one
