"""A wrapped agent that is itself what a replay runs: every run that it made is made again, as the record says it was called."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

from agents import RunState

from rath_bridge.errors import UnsupportedError
from rath_bridge.model.chunk import Chunk, Draft
from rath_bridge.model.encoding import TreeRef
from rath_bridge.model.kinds import Checkpoint, Inference, Note, Run
from rath_bridge.model.report import LossReport
from rath_bridge.model.trees import read_list
from rath_bridge.replay import Recorded, current_tape, may_go_on, recorded, said, tape_of
from rath_bridge.session import Session
from rath_openai_agents.decode import native_items
from rath_openai_agents.encode import encode
from rath_openai_agents.items import from_bytes
from rath_openai_agents.options import again
from rath_openai_agents.state import AGAIN, NAMESPACE, state_at

if TYPE_CHECKING:
    from rath_openai_agents.run import WrappedAgent

_INSTEAD: Final = "give rb.replay a function that runs the agent"


@dataclass(frozen=True, slots=True)
class Turn:
    """One run."""

    name: str
    new: list[Any]
    """Items that were given to it."""
    whole: list[Any] | None
    """All that its model was handed first, where the session's history was not handed over: somebody else held it."""
    state: dict[str, Any] | None
    """The JSON of the paused run that it went on from."""
    streamed: bool
    failed: bool
    options: dict[str, Any]
    """What else it was told: ``max_turns``, ``context``, ``run_config`` ..."""
    missing: tuple[str, ...]
    """Options that are not on record as they were given."""

    def given(self, session: Session) -> tuple[Any, LossReport | None]:
        """What to run on, and ``continues``."""
        if self.whole is not None and encode(session)[1].manifest:
            return self.whole, LossReport()
        return self.new or None, None

    async def run(self, wrapped: WrappedAgent, session: Session) -> None:
        """Make the run again."""
        given, continues = self.given(session)
        if self.state is not None:
            given = await RunState.from_json(wrapped.agent, self.state)
        wrapped = replace(wrapped, continues=continues)
        if not self.streamed:
            await wrapped.run(given, **self.options)
            return
        result = wrapped.run_streamed(given, **self.options)
        try:
            async for _ in result.stream_events():
                pass
        finally:
            await asyncio.wait({result.run_loop_task})  # its record ends with it


@dataclass(frozen=True, slots=True)
class Turns:
    """What happened on a record, in order: what others wrote between the runs, and the runs."""

    session: Session
    steps: Sequence[Turn | Draft]

    def again(self, wrapped: WrappedAgent) -> None:
        """Do all of it again, whether a loop runs here or not: a stream, and a state, need one."""
        with ThreadPoolExecutor(1) as thread:
            thread.submit(copy_context().run, asyncio.run, self.aagain(wrapped)).result()

    async def aagain(self, wrapped: WrappedAgent) -> None:
        """Async twin of `again`."""
        for step in self.steps:
            if isinstance(step, Draft):
                await self.session.latest().aappend(step, on_conflict="serialise")
                continue
            tape = current_tape()
            if step.missing and tape is not None:
                what = f"{', '.join(step.missing)} of a run of {step.name}"
                tape.lacking.append(f"{what} could not be given again (no plain data, or a secret): {_INSTEAD}")
            try:
                await step.run(wrapped, self.session.latest())
            except Exception as error:
                if not may_go_on(error, failed=step.failed, last=step is self.steps[-1]):
                    raise


def recorded_turns(wrapped: WrappedAgent, session: Session) -> Turns | None:
    """The runs that a replay makes again; None where it is not what a replay runs, or none of a wrapped agent is on record.

    Args:
        wrapped: The agent: where the record holds runs of it, those alone.
        session: The scratch to begin with.

    Raises:
        UnsupportedError: An input is not on record as it was given, or all of it was seen by observers alone.
    """
    found = recorded(wrapped, session, wrapped.agent.name, _is_run)
    if found is None:
        _seen_only(wrapped, session)
        return None
    with found.reading("the input of a run", _INSTEAD):
        return Turns(session, list(_steps(found)))


def _is_run(chunk: Chunk, run: Run) -> bool:
    return "rath_openai_agents" in (chunk.origin or "") and run.type == "agent"


def _seen_only(wrapped: WrappedAgent, session: Session) -> None:
    """Refuse a record that holds model calls, and no run of a wrapped agent: where its runs began, and with what, only their program knows.

    Raises:
        UnsupportedError: It is one.
    """
    tape = tape_of(wrapped, session)
    if tape is None:
        return
    chunks = [one for one in tape.held.chunks if one.position > session.position and "rath_openai_agents" in (one.origin or "")]
    begun = [cast(Run, one.body) for one in chunks if one.kind == "run" and one.id not in tape.held.unreadable]
    kept = any(run.phase == "begin" and run.type == "agent" and not (run.native_id or "").startswith("span_") for run in begun)
    if kept or not any(one.kind == "inference" for one in chunks):
        return
    what = "a trace of its runs is on record, not a wrapped agent" if begun else "its model calls are on record, and no run"
    tape.reasons.append(f"{what}: give rb.replay the program that made it (docs/replay.md)")
    raise UnsupportedError(tape.reasons[-1])


def _steps(found: Recorded) -> Iterator[Turn | Draft]:
    resumed: Chunk | None = None
    twice = False
    for chunk in found.chunks:
        if chunk.id in found.own:
            if twice:
                raise UnsupportedError(
                    f"a RunState was resumed a second time, and what was answered then is not on record: {_INSTEAD}"
                )
            yield _turn(found, chunk, resumed)
            resumed = None
        elif chunk.kind == "checkpoint" and _is_resumed(cast(Checkpoint, chunk.body)):
            resumed = chunk
        elif chunk.kind == "note" and AGAIN in (cast(Note, chunk.body).text or ""):
            twice = True
        elif (one := said(found.tape, chunk)) is not None:
            yield one


def _is_resumed(body: Checkpoint) -> bool:
    return body.namespace == NAMESPACE and body.source == "resumed"


def _turn(found: Recorded, chunk: Chunk, resumed: Chunk | None) -> Turn:
    begin, inside = cast(Run, chunk.body), found.inside(chunk)
    asked = [one for one in inside if one.kind == "inference"]
    first = asked[0].position if asked else 1 << 62
    streamed = any(cast(Inference, one.body).streamed for one in asked)
    backend = found.tape.session.store.backend
    told = again(begin.attributes)
    if resumed is not None:
        return Turn(begin.name, [], None, state_at(resumed, backend.objects), streamed, found.failed(chunk), *told)
    new: list[Any] = []
    for one in inside:
        if one.kind == "message" and one.run == chunk.run and one.position < first:
            if one.native is None:
                raise UnsupportedError(f"the input of a run of {begin.name} is not on record as it was given: {_INSTEAD}")
            new += native_items(one.native.data, f"the input of {begin.name}")
    if not asked and not new and not begin.manifest:
        raise UnsupportedError(f"the input of a run of {begin.name} is not on record, since no model was asked: {_INSTEAD}")
    given = cast(Inference, asked[0].body).input if asked and not begin.manifest else None
    whole: list[Any] | None = None
    if isinstance(given, TreeRef):
        names = [raw.hex() for raw in read_list(given, backend.objects)]
        held = backend.objects(set(names))
        whole = [from_bytes(held[name], f"the input of {begin.name}") for name in names]
    return Turn(begin.name, new, whole, None, streamed, found.failed(chunk), *told)


__all__ = ["Turn", "Turns", "recorded_turns"]
