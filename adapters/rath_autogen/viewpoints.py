"""A transcript as each participant of a team knows it: a model context each, with roles, calls and results kept.

Source: facts section 2, "Team, exact": a ``TeamState`` that is built by hand is the one way by which a team takes history up with its
roles; as a task, every message becomes a user's. AutoGen's own convention holds for what participants said: each knows its own calls and
results, and the others' words as a user's. What nobody here said (another framework's assistant, say) stands in every context as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

from rath_autogen.capture import members
from rath_autogen.chat import chat_messages
from rath_autogen.context import llm_messages
from rath_autogen.items import History, Item
from rath_autogen.natives import CHAT_TYPES, Registry, dump, is_structured
from rath_bridge.model.kinds import Message
from rath_bridge.model.parts import BlobPart, TextPart, ToolCallPart, ToolCallResponsePart, UriPart
from rath_bridge.model.report import Loss, LossReport, ManifestEntry


def seated(state: Mapping[str, Any], team: Any, held: History) -> tuple[dict[str, Any], LossReport]:
    """Return a team's saved state with a history put into it, behind what it holds.

    Args:
        state: From `rath_autogen.capture.captured`, of a team that has said nothing yet, or has ended its run.
        team: The team.
        held: What it does not know yet.

    Returns:
        The state to load, and what no participant's context holds; participants that have no context (people, code executors, nested
        teams) get the history as received messages.
    """
    found = deepcopy(dict(state))
    names = [member.name for member in members(team)]
    owners = _owners(held)
    told, chat = chat_messages(held, plain=True)
    said = [dump(message) for message in told]
    reports: list[LossReport] = []
    for name in names:
        box = found["agent_states"][name]
        if "llm_context" in box["agent_state"]:
            messages, report = llm_messages(replace(held, items=tuple(_seen(held.items, owners, name, names))))
            context = box["agent_state"]["llm_context"]["messages"]
            context += [message for data in box["message_buffer"] for message in heard(data)]  # what it had not read yet
            context += [message.model_dump(mode="json") for message in messages]
            box["message_buffer"] = []
        else:
            box["message_buffer"] += said
            report = chat
        reports.append(report)
    chief = found["agent_states"][team._group_chat_manager_name]
    if not chief["message_thread"]:
        _cursor(chief, held, names)
    chief["message_thread"] += said
    return found, _together(reports)


def heard(data: Mapping[str, Any]) -> list[Any]:
    """What a chat message becomes in the context of an agent that receives it."""
    message = Registry().load(data)[0]
    context = [each.model_dump(mode="json") for each in getattr(message, "context", ())]
    return [*context, message.to_model_message().model_dump(mode="json")]


def _owners(held: History) -> dict[str, str | None]:
    """Who speaks, by message chunk; a result belongs to whoever asked (many frameworks give it the tool's name)."""
    found: dict[str, str | None] = {}
    asked: dict[str | None, str | None] = {}
    for item in held.messages:
        message = cast(Message, item.message)
        owner = message.name
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                asked[part.id] = owner
            elif isinstance(part, ToolCallResponsePart):
                owner = asked.get(part.id, owner)
        found[item.chunk.id] = owner
    return found


def _seen(items: Sequence[Item], owners: Mapping[str, str | None], me: str, names: Sequence[str]) -> list[Item]:
    """The items as one participant knows them."""
    found: list[Item] = []
    for item in items:
        message = item.message
        owner = owners.get(item.chunk.id)
        if message is None or owner == me or owner not in names or message.role not in ("assistant", "tool"):
            found.append(item)
        elif _told(item):  # another participant's words
            words = tuple(part for part in message.parts if isinstance(part, (TextPart, BlobPart, UriPart)))
            found.append(replace(item, message=replace(message, role="user", parts=words), data=None, cls=None))
    return found


def _told(item: Item) -> bool:
    """Tell whether a participant's message is one that a team passes on to the others."""
    message, kind = cast(Message, item.message), item.data.get("type") if item.data else None
    if message.role == "tool":
        return False
    if kind is not None:
        return kind in CHAT_TYPES or is_structured(kind) or item.cls is not None
    calls = any(isinstance(part, ToolCallPart) for part in message.parts)
    return not calls and any(isinstance(part, (TextPart, BlobPart, UriPart)) for part in message.parts)


def _cursor(chief: dict[str, Any], held: History, names: Sequence[str]) -> None:
    """Who is next: in a round, whoever follows the participant that spoke last."""
    speakers = (cast(Message, item.message).name for item in reversed(held.messages))
    last = next((name for name in speakers if name in names), None)
    if last is None:
        return
    if "next_speaker_index" in chief:
        chief["next_speaker_index"] = (names.index(last) + 1) % len(names)
    for field in ("previous_speaker", "current_speaker"):
        if field in chief:
            chief[field] = last


def _together(reports: Sequence[LossReport]) -> LossReport:
    """One report: each loss once, each message at the first place where it went."""
    losses: dict[Loss, None] = {}
    rows: dict[str, ManifestEntry] = {}
    for report in reports:
        losses |= dict.fromkeys(report.losses)
        for row in report.manifest:
            rows.setdefault(row.chunk, row)
    return LossReport(tuple(losses), tuple(replace(row, position=index) for index, row in enumerate(rows.values())))
