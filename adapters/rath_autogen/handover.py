"""How a session's history reaches an agent or a team, and which messages of a task are on record already (law 12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import BaseChatMessage, HandoffMessage, TextMessage
from autogen_agentchat.teams import MagenticOneGroupChat, Swarm

from rath_autogen.capture import captured, members
from rath_autogen.chat import chat_messages
from rath_autogen.context import llm_messages
from rath_autogen.encode import agent_state
from rath_autogen.items import History, Item, history
from rath_autogen.natives import dump, from_bytes, message_key, to_bytes
from rath_autogen.restore import restored
from rath_autogen.viewpoints import seated
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Handoff
from rath_bridge.model.parts import TextPart
from rath_bridge.model.report import Loss, LossReport, ManifestEntry, align
from rath_bridge.recorder import Recorder
from rath_bridge.session import Session

CONTINUE: Final = "Continue."
"""What a swarm is told where the session does not end with a user's words: a handoff must say something."""


@dataclass(frozen=True, slots=True)
class Handover:
    """What a run starts with."""

    manifest: tuple[ManifestEntry, ...] = ()
    losses: tuple[Loss, ...] = ()
    basis: str | None = None
    """``inferred`` where the known messages were found by comparison alone."""
    known: Mapping[str, Digest] = field(default_factory=dict[str, Digest])
    """Ids of task messages that are on record, with the chunk that each one is."""
    task: Any = None


def task_messages(task: Any) -> Any:
    """Return a task as AutoGen takes it, a text as the message that AutoGen would make of it, so that its id is known."""
    return TextMessage(content=task, source="user") if isinstance(task, str) else task


def listed(task: Any) -> list[BaseChatMessage]:
    """The messages of a task; what is no message is for AutoGen to refuse."""
    items = cast(
        "Sequence[Any]", [task] if isinstance(task, BaseChatMessage) else task if isinstance(task, (list, tuple)) else []
    )
    return [item for item in items if isinstance(item, BaseChatMessage)]


def known(task: Any, recorder: Recorder, continues: LossReport | None) -> Handover:
    """Find the messages of a task that the session holds.

    With a manifest they are aligned against it. Without one, a task list that is longer than the transcript and begins with all of it
    (as ``encode(session, as_="messages")`` writes it) is history and something new; every other task is new.
    """
    messages = listed(task)
    keys = [message_key(dump(message)) for message in messages]
    if continues is not None:
        found = align(continues.manifest, keys)
        pairs = {m.id: chunk for m, chunk in zip(messages, found, strict=True) if chunk is not None}
        return Handover(continues.manifest, continues.losses, known=pairs)
    if len(messages) < 2:
        return Handover()
    manifest = chat_messages(history(recorder.session))[1].manifest
    if not manifest or len(keys) <= len(manifest) or [row.digest for row in manifest] != keys[: len(manifest)]:
        return Handover()
    pairs = {message.id: row.chunk for message, row in zip(messages, manifest, strict=False)}
    return Handover(manifest, basis="inferred", known=pairs)


async def prepare(runner: Any, session: Session, since: int | None) -> Handover:
    """Hand a session's history to a runner and return the task to run with.

    Args:
        runner: An agent or a team.
        session: What it continues.
        since: Position of the last chunk that a stateful team knows; None where it knows nothing.
    """
    held = history(session)
    if isinstance(runner, AssistantAgent):  # the whole transcript is its context: nothing is left to be told as a task
        messages, report = llm_messages(held)
        await runner.load_state(agent_state(messages))
        return Handover(report.manifest, report.losses)
    if since is not None:
        held = replace(held, items=tuple(item for item in held.items if item.chunk.position > since))
    if isinstance(runner, Swarm):
        return _to_swarm(runner, session, held)
    if held.items and members(runner) and not isinstance(runner, MagenticOneGroupChat):
        return await _to_team(runner, held)
    messages, report = chat_messages(held, plain=True)
    pairs = {message.id: row.chunk for message, row in zip(messages, report.manifest, strict=True)}
    return Handover(report.manifest, report.losses, known=pairs, task=messages or None)


async def _to_team(team: Any, held: History) -> Handover:
    """The transcript as the participants' model contexts; the team goes on without a task, as it does after a run of its own."""
    state, report = seated(from_bytes(to_bytes(await captured(team))), team, held)
    losses = list(report.losses)
    await restored(team, state, lambda path, what: losses.append(Loss(None, path, what)), own=True)
    return Handover(report.manifest, tuple(losses))


def _to_swarm(swarm: Any, session: Session, held: History) -> Handover:
    """The transcript as the context of a handoff: inserted as it is, roles and calls kept (``HandoffMessage.context``)."""
    last = held.messages[-1] if held.messages else None
    text = _user_text(last)
    if last is not None and text is not None:
        held = replace(held, items=tuple(item for item in held.items if item is not last))
    context, report = llm_messages(held)
    if last is None and not context:
        return Handover(losses=report.losses)
    source = (last.message.name if last is not None and last.message is not None and text is not None else None) or "user"
    handoff = HandoffMessage(source=source, target=_target(swarm, session), content=text or CONTINUE, context=context)
    if text is None or last is None:
        return Handover(report.manifest, report.losses, task=[handoff])
    row = ManifestEntry(len(context), last.chunk.id, message_key(dump(handoff)))
    return Handover((*report.manifest, row), report.losses, known={handoff.id: last.chunk.id}, task=[handoff])


def _user_text(item: Item | None) -> str | None:
    if item is None or item.message is None or item.message.role != "user" or not item.message.parts:
        return None
    texts = [part.content for part in item.message.parts if isinstance(part, TextPart)]
    return "".join(texts) if len(texts) == len(item.message.parts) else None


def _target(swarm: Any, session: Session) -> str:
    """Who works on: the last handoff's target, or who gave the work out of the team; else the swarm's first agent."""
    names: list[str] = [agent.name for agent in swarm._participants]
    for chunk in reversed(list(session.chunks())):
        if chunk.kind == "handoff" and chunk.body_bytes is not None:
            body = cast(Handoff, chunk.body)
            return next((name for name in (body.to_agent, body.from_agent) if name in names), names[0])
    return names[0]
