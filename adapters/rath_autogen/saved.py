"""`save_team_state` and `load_team_state`: an agent or a team that goes on where another one stopped, in another process, too."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

from rath_autogen.capture import captured, members
from rath_autogen.chat import chat_messages
from rath_autogen.context import llm_messages
from rath_autogen.encode import agent_state
from rath_autogen.items import History, history
from rath_autogen.natives import FRAMEWORK, dump, from_bytes, origin, to_bytes
from rath_autogen.restore import restored
from rath_autogen.runner import Wrapped
from rath_autogen.shape import fits
from rath_autogen.state import checkpoint, join
from rath_autogen.structured import register_structured
from rath_autogen.viewpoints import seated
from rath_bridge.aio import in_thread
from rath_bridge.errors import DecodeError, UnsupportedError
from rath_bridge.given import check_store
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.chunk import draft as new_draft
from rath_bridge.model.kinds import Checkpoint
from rath_bridge.model.report import Loss, LossReport
from rath_bridge.recorder import recorder_for
from rath_bridge.session import Session, Store, open_store


async def save_team_state(runner: Any, store: Store | Session | None = None, session: str | None = None) -> Session:
    """Save an agent or a team of any kind into a session, with what AutoGen's own ``save_state`` leaves out.

    Beside AutoGen's state stand: a graph's triggered groups, who was asked and has not answered, the counters of termination
    conditions, the history of wrapped agents and of agents without a state of their own, workbenches, list memories, nested teams, and
    system prompt, tools and model as the live objects say them. Save between runs, or after one was cancelled.

    Args:
        runner: An agent or a team, wrapped or not.
        store: Where: a store, or a session to append to. By default where the wrapped runner or the ambient recorder writes.
        session: Name of the session in the store.

    Returns:
        The session as it stands afterwards; its last chunk is the checkpoint.

    Raises:
        UnsupportedError: It has no ``save_state``.
    """
    inner = runner.runner if isinstance(runner, Wrapped) else runner
    if not callable(getattr(inner, "save_state", None)):
        raise UnsupportedError(f"cannot save a {type(inner).__name__}: it has no save_state; pass an AutoGen agent or team")
    if not isinstance(store, Session):
        check_store(store, "save_team_state", session, optional=True)
    state = from_bytes(to_bytes(await captured(inner)))
    if isinstance(store, Session):
        return await store.aappend(_draft(state), on_conflict="serialise")
    if isinstance(runner, Wrapped) and store is None and session is None:
        recorder, owned = runner.recorder()
    else:
        recorder, owned = recorder_for(store or open_store(), FRAMEWORK, getattr(inner, "name", None), session)
    try:
        if recorder.redact_state and recorder.redactor is not None:
            state = recorder.redactor.apply(state)
        await in_thread(recorder.append, _draft(state))
        return recorder.session
    finally:
        if owned:
            recorder.close()


def _draft(state: Mapping[str, Any]) -> Any:
    body, objects = checkpoint(state)
    return new_draft(body, origin=origin(), objects=objects)


async def load_team_state(runner: Any, source: Session | Mapping[str, Any]) -> LossReport:
    """Make an agent or a team go on where the saved one stopped.

    Takes the latest state of a session that fits (`save_team_state`, or a state of AutoGen's own that was imported); what was said after
    it, by whomever, reaches every participant as received messages. A session without a state is handed over as its transcript: as
    the model context of an agent, or of each agent of a team. Calls that were cut off are closed, and who was cut off is asked again.

    Args:
        runner: An agent or a team with the same participants, fresh or used, that is not running. Termination conditions, tools and
            model clients are its own.
        source: A session, or the JSON that ``save_state()`` of AutoGen returned.

    Returns:
        What could not be restored, with the field.

    Raises:
        DecodeError: The state is of another version or team, or damaged; the error names the field, and the runner is as it was.
    """
    inner = runner.runner if isinstance(runner, Wrapped) else runner
    register_structured(inner)
    if not isinstance(source, Session):
        return await _load(inner, source, None, ())
    held = await in_thread(history, source)
    chunk = _latest(held, inner)
    since = held
    if chunk is not None:
        since = replace(held, items=tuple(item for item in held.items if item.chunk.position > chunk.position))
        state = await in_thread(join, chunk, source.store.backend.objects)
    elif members(inner):
        state, report = seated(from_bytes(to_bytes(await captured(inner))), inner, held)
        losses = (await _load(inner, state, None, report.losses)).losses
        return LossReport(losses, report.manifest)
    else:
        messages, report = llm_messages(held)
        losses = (await _load(inner, agent_state(messages), None, report.losses)).losses
        return LossReport(losses, report.manifest)
    added, report = _added(state, since, inner)
    losses = (await _load(inner, added, chunk, report.losses)).losses
    return LossReport(losses, report.manifest)


async def _load(runner: Any, state: Mapping[str, Any], chunk: Chunk | None, losses: tuple[Loss, ...]) -> LossReport:
    fits(state, runner)
    found: list[Loss] = list(losses)
    before = await captured(runner)
    try:
        await restored(runner, state, lambda path, what: found.append(Loss(chunk.id if chunk else None, path, what)))
    except Exception as error:
        await restored(runner, before, lambda path, what: None, own=True)
        raise DecodeError(
            "AutoGen state", f"AutoGen refuses it, nothing was changed ({type(error).__name__}: {error})"
        ) from error
    return LossReport(tuple(found))


def _latest(held: History, runner: Any) -> Chunk | None:
    """The last checkpoint that is of a runner like this one; with none, the last of its kind, for the error to say what differs."""
    wanted = "TeamState" if members(runner) else None
    kept = [
        chunk for chunk in held.chunks if chunk.kind == "checkpoint" and chunk.body_bytes is not None and _is_of(chunk, wanted)
    ]
    fitting = [chunk for chunk in kept if _fits(chunk, runner)]
    return (fitting or kept or [None])[-1]


def _is_of(chunk: Chunk, wanted: str | None) -> bool:
    body = cast(Checkpoint, chunk.body)
    return body.namespace == FRAMEWORK and (body.source == wanted if wanted else body.source != "TeamState")


def _fits(chunk: Chunk, runner: Any) -> bool:
    envelope = cast("Mapping[str, Any]", cast(Checkpoint, chunk.body).envelope)
    if members(runner):
        names = {member.name for member in members(runner)} | {runner._group_chat_manager_name}
        return names == set(cast("Mapping[str, Any]", envelope["agent_states"]))
    return cast("Mapping[str, Any]", envelope.get("rath", {})).get("name", runner.name) == runner.name


def _added(state: Mapping[str, Any], since: History, runner: Any) -> tuple[Mapping[str, Any], LossReport]:
    """The state, and what was said after it: in an agent's context, in a team's buffers and thread."""
    if not since.items:
        return state, LossReport()
    if not members(runner):
        if "llm_context" not in state:
            return state, LossReport(
                tuple(Loss(item.chunk.id, "message", f"{runner.name} has no context to put it in") for item in since.messages)
            )
        messages, report = llm_messages(since)
        context = [*state["llm_context"]["messages"], *(message.model_dump(mode="json") for message in messages)]
        return {**state, "llm_context": {**state["llm_context"], "messages": context}}, report
    messages, report = chat_messages(since, plain=True)
    said = [dump(message) for message in messages]
    state = deepcopy(dict(state))
    for name, box in state["agent_states"].items():
        box["message_thread" if name == runner._group_chat_manager_name else "message_buffer"].extend(said)
    return state, report
