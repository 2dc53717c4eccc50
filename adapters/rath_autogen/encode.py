"""Session -> AutoGen: a ``TaskResult``, a model context, a task, an agent's state; what does not fit is named."""

from __future__ import annotations

from typing import Any, Final, cast

from rath_autogen.chat import chat_messages, task_result
from rath_autogen.context import llm_messages
from rath_autogen.items import History, history
from rath_autogen.natives import FRAMEWORK, dump, to_bytes
from rath_autogen.state import join
from rath_bridge.errors import UnsupportedError
from rath_bridge.model.report import LossReport
from rath_bridge.session import Session

FORMS: Final = ("task_result", "llm_messages", "messages", "agent_state", "team_state")


def encode(session: Session, /, as_: str = "task_result", *, run: str | None = None) -> tuple[Any, LossReport]:
    """Translate a session into what AutoGen takes. Pure; what came from AutoGen goes home exactly.

    Args:
        session: What to hand over.
        as_: ``task_result`` (a ``TaskResult``, events included), ``llm_messages`` (``list[LLMMessage]`` for
            ``UnboundedChatCompletionContext(initial_messages=...)``), ``messages`` (chat messages for ``run(task=[...])``), ``agent_state``
            (the JSON for ``AssistantAgent.load_state``) or ``team_state`` (the JSON that was saved, where nothing was said since).
        run: Only the messages of this run; by default those outside of runs and of top-level runs.

    Returns:
        The native value, and what it could not hold, with the manifest of what was handed over.

    Raises:
        UnsupportedError: An unknown form, or no team state is on record that still holds.
        MissingExtraError: AutoGen is not installed.
    """
    if as_ not in FORMS:
        raise UnsupportedError(f"AutoGen has no form {as_!r}: use one of {', '.join(FORMS)}")
    held = history(session, run)
    if as_ == "task_result":
        return task_result(held)
    if as_ == "messages":
        return chat_messages(held)
    if as_ == "team_state":
        return _team_state(session, held)
    found, report = llm_messages(held)
    if as_ == "llm_messages":
        return found, report
    return agent_state(found), report


def dumps(native: Any, /) -> bytes:
    """Return what `encode` gave as a file has it: JSON."""
    return to_bytes(_dumped(native))


def _dumped(native: Any) -> Any:
    if isinstance(native, list):
        return [_dumped(item) for item in cast("list[Any]", native)]
    if hasattr(native, "messages"):  # a TaskResult
        return {"messages": [_dumped(message) for message in native.messages], "stop_reason": native.stop_reason}
    return dump(native) if hasattr(native, "model_dump") else native


def agent_state(messages: list[Any]) -> dict[str, Any]:
    """Return messages as ``AssistantAgent.load_state`` takes them (``autogen_agentchat.state.AssistantAgentState``)."""
    dumped = [message.model_dump(mode="json") for message in messages]
    return {"type": "AssistantAgentState", "version": "1.0.0", "llm_context": {"messages": dumped}}


def _team_state(session: Session, held: History) -> tuple[Any, LossReport]:
    chunk = next((c for c in reversed(held.chunks) if _is_team_state(c)), None)
    if chunk is None or any(item.chunk.position > chunk.position for item in held.items):
        found = "none is on record" if chunk is None else "something was said since the last one was saved"
        raise UnsupportedError(
            f"{session.name} has no team state to hand over ({found}): continue with as_='messages' or 'llm_messages', or wrap the team"
        )
    return join(chunk, session.store.backend.objects), LossReport()


def _is_team_state(chunk: Any) -> bool:
    if chunk.kind != "checkpoint" or chunk.body_bytes is None:
        return False
    body = chunk.body
    return body.namespace == FRAMEWORK and body.source != "AssistantAgentState"
