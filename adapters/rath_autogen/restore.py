"""A saved state -> a live agent or team: AutoGen's own ``load_state``, and what it would lose."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, cast

from autogen_agentchat.agents import BaseChatAgent, UserProxyAgent
from autogen_core import SingleThreadedAgentRuntime
from autogen_core.memory import ListMemory, MemoryContent

from rath_autogen.capture import conditions, manager, members, wrapped
from rath_autogen.mend import Lose, beside, closed, cursor, cut_off, graph_cursor, unheard
from rath_autogen.natives import Registry, unplain
from rath_autogen.viewpoints import heard


async def restored(runner: Any, state: Mapping[str, Any], lose: Lose, path: str = "", *, own: bool = False) -> None:
    """Load a state that `rath_autogen.shape.fits` has passed; calls without a result are closed, a cursor that ran ahead is put back.

    Args:
        runner: An agent or a team.
        state: What to load.
        lose: Names what could not be restored.
        path: Place of the state in a larger one.
        own: The state was taken from this very runner: what no state holds is still there.
    """
    if members(runner):
        await _team(runner, state, lose, path, own)
    else:
        await _agent(runner, state, lose, path, own)


async def _team(team: Any, state: Mapping[str, Any], lose: Lose, path: str, own: bool) -> None:
    extra = beside(state)
    active = cast("Sequence[str]", extra.get("active", ()))
    agents = cast("dict[str, Any]", deepcopy(state["agent_states"]))
    prefix = f"{path}agent_states."
    for member in members(team):
        box = agents[member.name]
        context = _context(box["agent_state"])
        if box["message_buffer"] and (member.name in active if "active" in extra else cut_off(context)):
            box["message_buffer"] = unheard(box["message_buffer"], [heard(item) for item in box["message_buffer"]], context)
    chief_state = agents[team._group_chat_manager_name]
    triggered: dict[str, set[str]] | None = None
    if chief_state.get("ready") == [] and "active" not in extra:  # a graph that has ended is ready to begin again
        active = [member.name for member in members(team) if cut_off(_context(agents[member.name]["agent_state"]))]
        who = " and ".join(active)
        told = f"{who} goes on, as its context says" if who else "who had been asked is not on record"
        lose(f"{prefix}{team._group_chat_manager_name}.ready", f"saved by AutoGen in the middle of a turn: {told}")
    if "ready" in chief_state:
        triggered = graph_cursor(chief_state, active, extra.get("triggered"))
    else:
        cursor(chief_state, active, [member.name for member in members(team)])
    _register(team, agents, lose, prefix)
    chief = await _ready(team)
    if chief is None:
        lose(path or "team", "the team's manager lives in another process: only AutoGen's own state was loaded")
    elif hasattr(chief, "_model_context"):  # load_state adds to it
        await chief._model_context.clear()
    while not team._output_message_queue.empty():
        team._output_message_queue.get_nowait()
    await team.load_state({"type": "TeamState", "version": state["version"], "agent_states": agents})
    if chief is not None and triggered is not None:
        chief._triggered_activation_groups = triggered
    await _conditions(team, extra, lose, path)
    for member in members(team):
        await restored(member, agents[member.name]["agent_state"], lose, f"{prefix}{member.name}.agent_state.", own=own)


async def _ready(team: Any) -> Any:
    """Return the team's manager, none of whose turns is under way.

    A turn that was cut off holds its agent's lock for ever, and the runtime waits for it (issue 7956): such a team gets a new runtime.
    """
    chief = await manager(team)
    if chief is None or not chief._active_speakers:
        return chief
    if not team._embedded_runtime:
        chief._active_speakers.clear()
        return chief
    stuck: Sequence[asyncio.Task[Any]] = tuple(team._runtime._background_tasks)
    for task in stuck:
        task.cancel()
    team._runtime = SingleThreadedAgentRuntime(ignore_unhandled_exceptions=False)
    team._initialized = False
    return await manager(team)


async def _conditions(team: Any, extra: Mapping[str, Any], lose: Lose, path: str) -> None:
    if team._termination_condition is None:
        return
    await team._termination_condition.reset()
    rows = cast("Sequence[Mapping[str, Any]] | None", extra.get("conditions"))
    found = conditions(team)
    if rows is None or [row["class"] for row in rows] != [type(one).__name__ for one in found]:
        if rows is None or any(row["counters"] for row in rows):
            lose(f"{path}conditions", "the counters of the termination conditions are not on record: they begin anew")
        return
    for one, row in zip(found, rows, strict=True):
        for name, value in row["counters"].items():
            setattr(one, name, value)


async def _agent(agent: Any, state: Mapping[str, Any], lose: Lose, path: str, own: bool) -> None:
    extra = beside(state)
    await agent.load_state(_mended(state, lose, path))
    inner, team = wrapped(agent), getattr(agent, "_team", None)
    if inner is not None and "wrapped" in extra:
        await restored(inner, extra["wrapped"], lose, f"{path}wrapped.", own=own)
    elif inner is not None:
        lose(f"{path}wrapped", f"what {inner.name} knew is not on record: AutoGen does not save a wrapped agent")
    if team is not None and "inner_team_state" in state:
        await restored(team, state["inner_team_state"], lose, f"{path}inner_team_state.", own=own)
    context = getattr(agent, "_model_context", None)
    if context is not None and "llm_context" in extra:
        await context.load_state(_mended(extra, lose, path)["llm_context"])
    cls = cast("type[Any]", type(agent))
    stateless = isinstance(agent, UserProxyAgent) or cls.save_state is not BaseChatAgent.save_state
    if not own and inner is None and not stateless and "llm_context" not in extra:
        lose(path.removesuffix(".") or "agent_state", f"a {cls.__name__} saves no state: what it knew is not on record")
    benches: Sequence[Any] = getattr(agent, "_workbench", None) or ()
    for bench, kept in zip(benches, extra.get("workbenches", ()), strict=False):
        await bench.load_state(kept)
    memories = cast("Mapping[str, Sequence[Any]]", extra.get("memories", {}))
    for memory in getattr(agent, "_memory", None) or ():
        if isinstance(memory, ListMemory) and memory.name in memories:
            memory.content = [MemoryContent.model_validate(unplain(item)) for item in memories[memory.name]]


def _mended(state: Mapping[str, Any], lose: Lose, path: str) -> dict[str, Any]:
    """The state with a model context in which every call has a result."""
    context = state.get("llm_context")
    if context is None:
        return dict(state)
    messages = closed(context["messages"], f"{path}llm_context.messages", lose)
    return {**state, "llm_context": {**context, "messages": messages}}


def _context(state: Mapping[str, Any]) -> Sequence[Any]:
    """The model context of an agent's state, or of the agent inside it."""
    while True:
        extra = beside(state)
        held = state.get("llm_context", extra.get("llm_context"))
        if held is not None or "wrapped" not in extra:
            return held["messages"] if held else ()
        state = extra["wrapped"]


def _register(team: Any, agents: Mapping[str, Any], lose: Lose, path: str) -> None:
    """Make the team know the types of all messages in its state: AutoGen refuses structured and custom ones that it was not told of."""
    registry, known = Registry(), team._message_factory._message_types
    for name, state in agents.items():
        for field in ("message_thread", "message_buffer"):
            for index, data in enumerate(state.get(field) or ()):
                if data["type"] not in known:
                    message, loss = registry.load(data)
                    known[data["type"]] = cast("type[Any]", type(message))
                    if loss is not None:
                        lose(f"{path}{name}.{field}[{index}]", loss)
