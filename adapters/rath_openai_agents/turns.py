"""A wrapped agent that is itself what a replay runs: every run that it made is made again, with the input that is on record.

What else a run was given (``context``, ``max_turns``, ``run_config``, an SDK session) is not on record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

from agents import RunState

from rath_bridge.errors import RathError, UnsupportedError
from rath_bridge.model.chunk import Chunk, Draft, draft
from rath_bridge.model.encoding import TreeRef
from rath_bridge.model.kinds import Checkpoint, Inference, Note, Run
from rath_bridge.model.report import LossReport
from rath_bridge.model.trees import read_list
from rath_bridge.replay import Tape, current_tape
from rath_bridge.session import Session
from rath_bridge.verbs.transcript import by_top_run
from rath_openai_agents.decode import native_items
from rath_openai_agents.encode import encode
from rath_openai_agents.items import FRAMEWORK, from_bytes
from rath_openai_agents.state import AGAIN, NAMESPACE, state_at

if TYPE_CHECKING:
    from rath_openai_agents.run import WrappedAgent

_SAID: Final = frozenset({"message", "note", "placement"})
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
            await wrapped.run(given)
            return
        result = wrapped.run_streamed(given)
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
            try:
                await step.run(wrapped, self.session.latest())
            except Exception as error:  # noqa: BLE001 - what a run raises is its own
                self._failed(step, error)

    def _failed(self, turn: Turn, error: Exception) -> None:
        """A run that failed then fails again; the next one began all the same.

        Raises:
            Exception: What was raised now, where it ends the replay.
        """
        tape = current_tape()
        expected = turn.failed and turn is not self.steps[-1] and not isinstance(error, UnsupportedError)
        if not expected or tape is None or tape.misses or tape.halted:
            raise error


def recorded_turns(session: Session, name: str) -> Turns | None:
    """The runs of the record that a replay makes again; None where no replay runs, or the record holds none of a wrapped agent.

    Args:
        session: The scratch to begin with.
        name: Of the agent: where the record holds runs of it, those alone.

    Raises:
        UnsupportedError: An input is not on record as it was given.
    """
    tape = current_tape()
    if tape is None or session.name != tape.session.name:
        return None
    chunks = [c for c in tape.held.chunks if c.position > session.position and c.id not in tape.held.unreadable]
    begun = [chunk for chunk in chunks if _is_run(chunk)]
    own = [chunk for chunk in begun if cast(Run, chunk.body).name == name] or begun
    if not own:
        return None
    try:
        return Turns(session, list(_steps(tape, chunks, {chunk.id for chunk in own})))
    except RathError as error:
        reason = str(error) if isinstance(error, UnsupportedError) else f"the input of a run cannot be read ({error}): {_INSTEAD}"
        tape.player(FRAMEWORK).tape.unread.append(reason)
        raise


def _is_run(chunk: Chunk) -> bool:
    if chunk.kind != "run" or "rath_openai_agents" not in (chunk.origin or ""):
        return False
    body = cast(Run, chunk.body)
    return body.phase == "begin" and body.type == "agent" and body.parent is None


def _steps(tape: Tape, chunks: Sequence[Chunk], own: set[str]) -> Iterator[Turn | Draft]:
    inside = by_top_run(chunks)
    resumed: Chunk | None = None
    again = False
    for chunk in chunks:
        if chunk.id in own:
            if again:
                raise UnsupportedError(
                    f"a RunState was resumed a second time, and what was answered then is not on record: {_INSTEAD}"
                )
            yield _turn(tape, cast(Run, chunk.body), inside[cast(str, chunk.run)], resumed)
            resumed = None
        elif chunk.kind == "checkpoint" and _is_resumed(cast(Checkpoint, chunk.body)):
            resumed = chunk
        elif chunk.kind == "note" and AGAIN in (cast(Note, chunk.body).text or ""):
            again = True
        elif chunk.run is None and chunk.kind in _SAID:
            yield draft(chunk.body, native=chunk.native, objects=tape.session.store.backend.objects(chunk.references))


def _is_resumed(body: Checkpoint) -> bool:
    return body.namespace == NAMESPACE and body.source == "resumed"


def _turn(tape: Tape, begin: Run, inside: Sequence[Chunk], resumed: Chunk | None) -> Turn:
    asked = [chunk for chunk in inside if chunk.kind == "inference"]
    first = asked[0].position if asked else 1 << 62
    status = next((cast(Run, c.body).status for c in reversed(inside) if c.kind == "run" and c.run == inside[0].run), None)
    streamed = any(cast(Inference, chunk.body).streamed for chunk in asked)
    backend = tape.session.store.backend
    if resumed is not None:
        return Turn(begin.name, [], None, state_at(resumed, backend.objects), streamed, status == "error")
    new: list[Any] = []
    for chunk in inside:
        if chunk.kind == "message" and chunk.run == inside[0].run and chunk.position < first:
            if chunk.native is None:
                raise UnsupportedError(f"the input of a run of {begin.name} is not on record as it was given: {_INSTEAD}")
            new += native_items(chunk.native.data, f"the input of {begin.name}")
    if not asked and not new and not begin.manifest:
        raise UnsupportedError(f"the input of a run of {begin.name} is not on record, since no model was asked: {_INSTEAD}")
    given = cast(Inference, asked[0].body).input if asked and not begin.manifest else None
    whole: list[Any] | None = None
    if isinstance(given, TreeRef):
        names = [raw.hex() for raw in read_list(given, backend.objects)]
        held = backend.objects(set(names))
        whole = [from_bytes(held[name], f"the input of {begin.name}") for name in names]
    return Turn(begin.name, new, whole, None, streamed, status == "error")


__all__ = ["Turn", "Turns", "recorded_turns"]
