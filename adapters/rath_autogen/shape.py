"""Does a saved state fit the agent or team that is to load it? Looked at whole before anything is changed; errors name the field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from rath_autogen.capture import BESIDE, FORM, members
from rath_autogen.natives import CHAT_TYPES, EVENT_TYPES, LLM_TYPES, Registry
from rath_bridge.errors import DecodeError

PLACE: Final = "AutoGen state"
VERSION: Final = "1.0.0"
"""``version`` in every state of autogen-agentchat 0.7."""
MANAGERS: Final = {
    "RoundRobinGroupChatManager": ("RoundRobinManagerState", ("message_thread", "current_turn", "next_speaker_index")),
    "SelectorGroupChatManager": ("SelectorManagerState", ("message_thread", "current_turn", "previous_speaker")),
    "SwarmGroupChatManager": ("SwarmManagerState", ("message_thread", "current_turn", "current_speaker")),
    "GraphManager": (None, ("message_thread", "current_turn", "remaining", "enqueued_any", "ready")),
    "MagenticOneOrchestrator": ("MagenticOneOrchestratorState", ("message_thread", "task", "facts", "plan", "n_rounds", "n_stalls")),
}  # fmt: skip
"""Manager -> type of its state (a graph's has none) and its fields."""


def fits(state: Any, runner: Any, path: str = "") -> None:
    """Check a state against the runner that is to load it.

    Raises:
        DecodeError: Another version, another team, a field that is missing or of another shape, an unknown message type.
    """
    held = _object(state, path)
    _version(held, path)
    extra = held.get(BESIDE)
    if extra is not None:
        form = _object(extra, _at(path, BESIDE)).get("form")
        if form != FORM:
            raise DecodeError(PLACE, f"form {form!r} is not known, this version reads {FORM}", _at(path, f"{BESIDE}.form"))
    if not members(runner):
        _agent(held, path)
        return
    if held.get("type") != "TeamState":
        raise DecodeError(PLACE, f"a TeamState was expected for {runner.name}, not a {held.get('type')!r}", _at(path, "type"))
    agents = _object(held.get("agent_states"), _at(path, "agent_states"))
    for member in members(runner):
        below = _at(path, f"agent_states.{member.name}")
        if member.name not in agents:
            raise DecodeError(
                PLACE, f"{runner.name} has a participant that the state does not hold; it has {_names(agents)}", below
            )
        box = _object(agents[member.name], below)
        _version(box, below)
        _messages(box.get("message_buffer"), f"{below}.message_buffer", CHAT_TYPES)
        fits(box.get("agent_state"), member, f"{below}.agent_state")
    chief = runner._group_chat_manager_name
    below = _at(path, f"agent_states.{chief}")
    if chief not in agents:
        raise DecodeError(PLACE, f"the state is of another kind of team: it has {_names(agents)}", below)
    _manager(chief, _object(agents[chief], below), below)
    strange = agents.keys() - {member.name for member in members(runner)} - {chief}
    if strange:
        name = min(strange)
        raise DecodeError(PLACE, f"{runner.name} has no participant of that name", _at(path, f"agent_states.{name}"))


def _manager(name: str, state: Mapping[str, Any], path: str) -> None:
    kind, fields = MANAGERS.get(name, (None, ("message_thread",)))
    if kind is not None:
        _version(state, path)
        if state.get("type") != kind:
            raise DecodeError(PLACE, f"a {kind} was expected, not a {state.get('type')!r}", f"{path}.type")
    for field in fields:
        if field not in state:
            raise DecodeError(PLACE, "the field is missing", f"{path}.{field}")
    _messages(state["message_thread"], f"{path}.message_thread", CHAT_TYPES | EVENT_TYPES)


def _agent(state: Mapping[str, Any], path: str) -> None:
    if state.get("type") == "AssistantAgentState":
        context = _object(state.get("llm_context"), _at(path, "llm_context"))
        _messages(context.get("messages"), _at(path, "llm_context.messages"), LLM_TYPES, strict=True)


def _messages(value: Any, path: str, known: frozenset[str], *, strict: bool = False) -> None:
    if not isinstance(value, list):
        raise DecodeError(PLACE, "a list of messages was expected", path)
    registry = Registry()
    for index, item in enumerate(cast("list[Any]", value)):
        place = f"{path}[{index}]"
        message = _object(item, place)
        kind = message.get("type")
        if not isinstance(kind, str) or (strict and kind not in known):
            raise DecodeError(PLACE, f"{kind!r} is no type of a message that may stand here", f"{place}.type")
        try:
            registry.load(message)
        except (ValueError, TypeError, KeyError) as error:
            raise DecodeError(PLACE, f"not a {kind} ({type(error).__name__}: {_first(error)})", _field(error, place)) from error


def _first(error: Exception) -> str:
    problems = getattr(error, "errors", None)
    return str(problems()[0]["msg"]) if callable(problems) else str(error)  # pyright: ignore[reportIndexIssue, reportUnknownArgumentType]


def _field(error: Exception, place: str) -> str:
    problems = getattr(error, "errors", None)
    where = problems()[0]["loc"] if callable(problems) else ()  # pyright: ignore[reportIndexIssue, reportUnknownVariableType]
    return ".".join([place, *(str(part) for part in where)])  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _version(state: Mapping[str, Any], path: str) -> None:
    found = state.get("version")
    if found != VERSION:
        raise DecodeError(PLACE, f"version {found!r} is not known, this adapter reads {VERSION}", _at(path, "version"))


def _object(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise DecodeError(PLACE, f"an object was expected, not {type(value).__name__}", path)
    return cast("Mapping[str, Any]", value)


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _names(agents: Mapping[str, Any]) -> str:
    return ", ".join(agents) or "nobody"
