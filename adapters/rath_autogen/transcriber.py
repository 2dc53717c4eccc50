"""Writes a run of an agent or a team as it happens."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.base import TaskResult

from rath_autogen.guard import guarded, later
from rath_autogen.handover import Handover, listed
from rath_autogen.ledger import Ledger
from rath_autogen.natives import origin, origin_text
from rath_autogen.pieces import Piece, Seen, pieces, read, taken
from rath_bridge.model.chunk import Draft
from rath_bridge.model.kinds import Message, ToolResult, body_fields
from rath_bridge.model.parts import TextPart
from rath_bridge.recorder import Recorder, RunHandle

_REASONS = {"cancelled": "cancelled", "abandoned": "stream_ended", "error": "error", "ok": "stream_ended"}


@dataclass(frozen=True, slots=True)
class Runner:
    """What the live object says of itself and the saved state does not hold."""

    name: str
    type: str
    participants: tuple[str, ...]
    humans: frozenset[str]
    """Sources that speak for a person."""
    system: str | None = None
    tools: tuple[Any, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])


def describe(runner: Any) -> Runner:
    """Read an agent or a team: participants, system message, tool schemas (AutoGen has no public attributes for these)."""
    members: Sequence[Any] = getattr(runner, "_participants", None) or ()
    agents = members or [runner]
    humans = {agent.name for agent in agents if isinstance(agent, UserProxyAgent)}
    facts: dict[str, Any] = {"class": type(runner).__name__, "description": getattr(runner, "description", None)}
    if members:
        facts["participants"] = [{"name": a.name, "class": type(a).__name__, "description": a.description} for a in members]
    elif hasattr(runner, "_team") or any(hasattr(tool, "_task_runner") for tool in getattr(runner, "_tools", None) or ()):
        facts["order"] = "member"  # agents inside of it are heard late: order counts for each of them alone
    systems: Sequence[Any] = getattr(runner, "_system_messages", None) or ()
    tools = [*(getattr(runner, "_tools", None) or ()), *(getattr(runner, "_handoff_tools", None) or ())]
    return Runner(
        name=getattr(runner, "name", type(runner).__name__),
        type="team" if members else "agent",
        participants=tuple(getattr(agent, "name", "") for agent in agents),
        humans=frozenset({"user"} | humans),
        system="\n".join(message.content for message in systems) or None,
        tools=tuple(tool.schema for tool in tools),
        facts=facts,
    )


class Transcriber:
    """Turns what a run's stream yields into chunks; keeps count of open calls and of text that was cut off."""

    def __init__(self, recorder: Recorder, runner: Runner, handover: Handover, ledger: Ledger) -> None:
        self._recorder, self._runner, self._handover, self._ledger = recorder, runner, handover, ledger
        self._run: RunHandle | None = None
        self._position = 0
        self._told: set[str] = set()
        """Ids of task messages: the stream yields them again."""
        self._open: dict[str, str] = {}
        self._partial: dict[str, list[str]] = {}
        self._stop_reason: str | None = None

    def begin(self, task: Any) -> RunHandle:
        """Record that the run begins, and its task."""
        handover, runner = self._handover, self._runner
        facts = dict(runner.facts)
        if handover.basis:
            facts["manifest_basis"] = handover.basis
        if handover.losses:
            facts["losses"] = [[loss.chunk, loss.path, loss.what] for loss in handover.losses]
        self._run = self._recorder.begin(
            runner.name, runner.type, manifest=[row.row() for row in handover.manifest],
            tools=runner.tools, system_instructions=runner.system, attributes=facts, origin=origin(),
        )  # fmt: skip
        for message in listed(task):
            self._told.add(message.id)
            if message.id not in handover.known:
                humans = runner.humans if message.source in runner.participants else {*runner.humans, message.source}
                self._write(message, humans)
        return self._run

    def came(self, item: Any) -> None:
        """Record one item of the stream."""
        with guarded(self._recorder, f"a {type(item).__name__}"):
            self._came(item)

    def _came(self, item: Any) -> None:
        if isinstance(item, TaskResult):
            self._stop_reason = item.stop_reason
            return
        kind = type(item).__name__
        if item.id in self._told:
            self._told.discard(item.id)
        elif kind == "ModelClientStreamingChunkEvent":  # the whole text follows as a message
            self._partial.setdefault(item.source, []).append(item.content)
        else:
            self._partial.pop(item.source, None)
            if kind == "ToolCallRequestEvent":
                self._open |= {call.id: call.name for call in item.content}
            elif kind == "ToolCallExecutionEvent":
                for result in item.content:
                    self._open.pop(result.call_id, None)
            self._write(item, self._runner.humans)

    def end(self, status: str, problem: str | None) -> None:
        """Record how the run ended: text that was cut off, calls without an answer, the stop reason."""
        recorder, run = self._recorder, cast(RunHandle, self._run)
        for source, said in self._partial.items():
            cut = Message(role="assistant", name=source, parts=(TextPart("".join(said)),), attributes={"partial": True})
            recorder.emit(cut, run=run, origin=origin())
        for call_id, name in self._open.items():
            closed = ToolResult(name=name, call_id=call_id, status="no_response", reason=_REASONS[status])
            recorder.emit(closed, run=run, origin=origin())
        facts = {} if self._stop_reason is None else {"stop_reason": self._stop_reason}
        recorder.end(run, status, error=problem, attributes=facts, origin=origin())

    def _write(self, message: Any, humans: Collection[str]) -> None:
        recorder, run, position = self._recorder, cast(RunHandle, self._run), self._position
        what = f"a {type(message).__name__}"
        with guarded(recorder, what):
            usage = message.models_usage is not None and not self._ledger.claims(message.models_usage)
            chunks = 1 + usage + (getattr(message, "type", None) == "HandoffMessage")
            told = _Told(taken(message), frozenset(humans), f"{run.name}[{position}]", usage, position)
            for index in range(chunks):
                later(recorder, what, partial(told.draft, recorder, run, index))
        self._position += 1


@dataclass(slots=True)
class _Told:
    """A message as it was when it came; the recorder's writer makes chunks of it."""

    held: bytes | Seen
    humans: frozenset[str]
    place: str
    usage: bool
    position: int
    _made: list[Piece] | None = None

    def draft(self, recorder: Recorder, run: RunHandle, index: int) -> Draft:
        if self._made is None:
            self._made = pieces(read(self.held), self.humans, place=self.place, usage=self.usage, position=self.position)
        body, at, native = self._made[index]
        return recorder.draft_of(body.kind, body_fields(body), run=run, origin=origin_text(), at=at, native=native)
