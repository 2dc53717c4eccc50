"""Repairs of a saved state, pure: what a cancel left half done, and where the team goes on.

Sources: issues 7956 (a call without a result in the saved context), 7043 and pull 7916 (GraphFlow), facts section 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from rath_autogen.capture import BESIDE
from rath_autogen.items import NO_RESPONSE

Lose = Callable[[str, str], None]
"""Names something: path in the state, and what became of it."""
RESULTS: Final = "FunctionExecutionResultMessage"


def closed(messages: Sequence[Any], path: str, lose: Lose) -> list[Any]:
    """Return a model context in which every call has its result; one that was never answered says so, as an error."""
    out: list[Any] = []
    for index, message in enumerate(messages):
        out.append(message)
        calls = message.get("content") if message.get("type") == "AssistantMessage" else None
        if not isinstance(calls, list):
            continue
        after: Any = messages[index + 1] if index + 1 < len(messages) else {}
        given = after["content"] if after.get("type") == RESULTS else ()
        answered = {result["call_id"] for result in given}
        missing = [call for call in cast("list[Mapping[str, Any]]", calls) if call["id"] not in answered]
        if missing:
            results = [
                {"content": NO_RESPONSE, "name": call["name"], "call_id": call["id"], "is_error": True} for call in missing
            ]
            out.append({"content": results, "type": RESULTS})
            for call in missing:
                lose(f"{path}[{index}]", f"call {call['id']} of {call['name']} was never answered: closed with {NO_RESPONSE!r}")
    return out


def unheard(buffer: Sequence[Any], told: Sequence[Sequence[Any]], context: Sequence[Any]) -> list[Any]:
    """Return those messages of a buffer that the agent's context does not hold yet.

    A turn that was cut off has put its messages into the context and has not emptied the buffer: loaded as it is, the agent would be
    told twice.

    Args:
        buffer: Messages that the agent received.
        told: What each one is in a model context (a handoff is several messages), dumped.
        context: The agent's context.
    """
    for count in range(len(told), 0, -1):
        wanted = [_said(message) for messages in told[:count] for message in messages]
        for start in range(len(context) - len(wanted), -1, -1):
            if [_said(message) for message in context[start : start + len(wanted)]] == wanted:
                rest = context[start + len(wanted) :]
                if all(message.get("type") in ("AssistantMessage", RESULTS, "SystemMessage") for message in rest):
                    return list(buffer[count:])
    return list(buffer)


def _said(message: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    return message.get("type"), message.get("source"), message.get("content")


def cut_off(context: Sequence[Any]) -> bool:
    """Tell whether a context ends in the middle of its agent's turn: told and not answered, or a call without a result."""
    last: Any = context[-1] if context else {}
    return last.get("type") == "UserMessage" or (last.get("type") == "AssistantMessage" and isinstance(last.get("content"), list))


def graph_cursor(
    state: dict[str, Any], active: Sequence[str], triggered: Mapping[str, Sequence[str]] | None
) -> dict[str, set[str]]:
    """Put a graph's cursor right, in place, and return the triggered groups that AutoGen does not save.

    Who was asked and has not answered is ready again. Without a record of the groups they follow from the rest: a group has been
    triggered when its node is ready and it has no parent left to wait for.
    """
    ready: list[str] = list(state["ready"])
    if triggered is None:
        found: dict[str, set[str]] = {}
        for node in ready:
            groups = {name for name, queued in state["enqueued_any"].get(node, {}).items() if queued}
            groups |= {name for name, left in state["remaining"].get(node, {}).items() if left == 0}
            if groups:
                found[node] = groups
    else:
        found = {node: set(names) for node, names in triggered.items()}
    state["ready"] = [*(name for name in dict.fromkeys(active) if name not in ready), *ready]
    return found


def cursor(state: dict[str, Any], active: Sequence[str], participants: Sequence[str]) -> None:
    """Let the manager of another team ask whom it had asked: AutoGen moves on before there is an answer."""
    if not active:
        return
    if "next_speaker_index" in state:
        state["next_speaker_index"] = participants.index(active[0])
    if "previous_speaker" in state:
        speakers = (message.get("source") for message in reversed(state["message_thread"]))
        state["previous_speaker"] = next((name for name in speakers if name in participants), None)


def beside(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """What stands beside AutoGen's own state; empty where AutoGen alone saved it."""
    found = state.get(BESIDE)
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}
