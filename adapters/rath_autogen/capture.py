"""A live agent or team -> its saved state, with what AutoGen's own ``save_state`` leaves out.

The state stays one that ``load_state`` of AutoGen takes. What AutoGen forgets stands beside it, under the key ``rath``, at the agent or
team that it belongs to (facts, section 1, "Lost between"): a graph's triggered groups, who was asked and has not answered, counters of
termination conditions, what a wrapped agent knows, workbenches, list memories, and what only the live object says of itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from autogen_core import AgentId, AgentRuntime
from autogen_core.memory import ListMemory

from rath_autogen.natives import dump

BESIDE: Final = "rath"
"""Key in a saved state under which stands what AutoGen's own lacks; AutoGen ignores it."""
FORM: Final = 1
"""Version of what stands there."""
COUNTERS: Final = (
    "_terminated",
    "_message_count",
    "_total_token_count",
    "_prompt_token_count",
    "_completion_token_count",
    "_setted",
)
"""What the conditions of ``autogen_agentchat.conditions`` count (0.7)."""


def members(runner: Any) -> Sequence[Any]:
    """The participants of a team; empty for an agent."""
    return getattr(runner, "_participants", None) or ()


async def seat(team: Any, agent_type: str) -> Any:
    """Return the object that takes part in the team's runtime under a type; None where it lives in another process."""
    runtime: AgentRuntime = team._runtime
    try:
        return await runtime.try_get_underlying_agent_instance(AgentId(agent_type, team._team_id))
    except (NotImplementedError, TypeError):
        return None


async def manager(team: Any) -> Any:
    """Return a team's group chat manager."""
    if not team._initialized:
        await team._init(team._runtime)
    return await seat(team, team._group_chat_manager_topic_type)


async def captured(runner: Any) -> dict[str, Any]:
    """Return the whole state of an agent or a team, nested ones included."""
    state = dict(await runner.save_state())
    state[BESIDE] = await (_team(runner, state) if members(runner) else _agent(runner, state))
    return state


async def _team(team: Any, state: dict[str, Any]) -> dict[str, Any]:
    agents = state["agent_states"] = dict(state["agent_states"])
    for member in members(team):
        agents[member.name] = {**agents[member.name], "agent_state": await captured(member)}
    chief = await manager(team)
    found: dict[str, Any] = {
        "form": FORM,
        "name": team.name,
        "class": type(team).__name__,
        "participants": {member.name: type(member).__name__ for member in members(team)},
        "conditions": [_counted(one) for one in conditions(team)],
    }
    if chief is not None:
        found["active"] = list(chief._active_speakers)
        groups: Mapping[str, set[str]] | None = getattr(chief, "_triggered_activation_groups", None)
        if groups is not None:
            found["triggered"] = {node: sorted(names) for node, names in groups.items() if names}
    return found


async def _agent(agent: Any, state: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"form": FORM, "name": agent.name, "class": type(agent).__name__, "live": live(agent)}
    inner = wrapped(agent)
    if inner is not None:
        found["wrapped"] = await captured(inner)
    team = getattr(agent, "_team", None)
    if team is not None and "inner_team_state" in state:
        state["inner_team_state"] = await captured(team)
    context = getattr(agent, "_model_context", None)
    if context is not None and "llm_context" not in state:
        found["llm_context"] = dict(await context.save_state())
    benches = getattr(agent, "_workbench", None) or ()
    if benches:
        found["workbenches"] = [dict(await bench.save_state()) for bench in benches]
    memories = [one for one in getattr(agent, "_memory", None) or () if isinstance(one, ListMemory)]
    if memories:
        found["memories"] = {one.name: [dump(item) for item in one.content] for one in memories}
    return found


def wrapped(agent: Any) -> Any:
    """The agent inside another one (``MessageFilterAgent``)."""
    return getattr(agent, "_wrapped_agent", None)


def live(agent: Any) -> dict[str, Any]:
    """What the object says of itself and no state of AutoGen holds: system prompt, tool schemas, model."""
    systems: Sequence[Any] = getattr(agent, "_system_messages", None) or ()
    tools = [*(getattr(agent, "_tools", None) or ()), *(getattr(agent, "_handoff_tools", None) or ())]
    given = getattr(getattr(agent, "_model_client", None), "_create_args", None)
    model: Any = given.get("model") if isinstance(given, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    found: dict[str, Any] = {
        "description": agent.description,
        "system": "\n".join(str(message.content) for message in systems) or None,
        "tools": [tool.schema for tool in tools],
        "model": model if isinstance(model, str) else None,
    }
    return {key: value for key, value in found.items() if value}


def conditions(team: Any) -> list[Any]:
    """A team's termination conditions, those of ``&`` and ``|`` unfolded, in order."""
    found: list[Any] = []
    stack = [getattr(team, "_termination_condition", None)]
    while stack:
        one = stack.pop()
        if one is not None:
            found.append(one)
            stack.extend(reversed(getattr(one, "_conditions", ())))
    return found


def _counted(condition: Any) -> dict[str, Any]:
    return {
        "class": type(condition).__name__,
        "counters": {name: getattr(condition, name) for name in COUNTERS if hasattr(condition, name)},
    }
