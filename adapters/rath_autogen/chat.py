"""A transcript as messages of ``autogen_agentchat``: a ``TaskResult`` again, or a list for ``run(task=[...])``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from rath_autogen.convert import ROLES, Converter
from rath_autogen.items import History, Item
from rath_autogen.natives import EVENT_TYPES, FRAMEWORK, LLM_TYPES, Registry, dump, message_key
from rath_bridge.model.fitting import fitting_id, fitting_name
from rath_bridge.model.kinds import Message, Run
from rath_bridge.model.parts import BlobPart, ReasoningPart, TextPart, ToolCallPart, ToolCallResponsePart, UriPart
from rath_bridge.model.report import LossReport, ManifestEntry
from rath_bridge.plugins import require

Rows = list[ManifestEntry]


def task_result(history: History) -> tuple[Any, LossReport]:
    """Return everything as one ``TaskResult``; what AutoGen made goes home exactly, events among it.

    Messages of other frameworks become the messages and events that an agent would have shown. Their calls without an answer are
    closed, and so is a call of AutoGen's whose ``no_response`` is on record; a result that AutoGen itself left open stays as it was.
    """
    base = require("autogen_agentchat.base", "encoding for AutoGen", FRAMEWORK)
    made, registry = Converter(), Registry()
    out: list[Any] = []
    rows: Rows = []
    names: dict[str, str] = {}
    pairs = _pair(history)
    for item in history.items:
        names |= _names(item)
        for message in _home(item, registry, made) or _shown(item, made, names, pairs):
            _add(message, item, out, rows)
        missing = list(_open(item, history, pairs, made))
        if missing:
            messages = require("autogen_agentchat.messages", "encoding for AutoGen", FRAMEWORK)
            results = [
                made.closing(item.chunk, call, history.closed.get((item.chunk.id, made.asked_as.get(call.id) or str(call.id))))
                for call in missing
            ]
            out.append(messages.ToolCallExecutionEvent(content=results, source=made.source(item), **_stamp(item, "closed")))
    return base.TaskResult(messages=out, stop_reason=_stop_reason(history)), LossReport(tuple(made.losses), tuple(rows))


def chat_messages(history: History, *, plain: bool = False) -> tuple[list[Any], LossReport]:
    """Return the transcript as chat messages for ``run(task=[...])``.

    Every one of them becomes a user's message in the receivers' model contexts, whoever said it; calls, results, reasoning and events
    cannot be passed this way. Each is named.

    Args:
        history: From `rath_autogen.items.history`.
        plain: Write structured and custom messages as text: a team refuses types that it does not know.
    """
    made, registry = Converter(), Registry()
    out: list[Any] = []
    rows: Rows = []
    for item in history.messages:
        role, kind = made.role(item), item.data.get("type") if item.data else None
        if role == "system":
            made.lose(item.chunk, "role", "agents bring their own system message: left out")
            continue
        if role == "tool" or kind in EVENT_TYPES:
            made.lose(item.chunk, "parts", f"no chat message of AutoGen holds {_what(item)}: left out")
            continue
        message = None
        if kind is not None and kind not in LLM_TYPES and not (plain and item.message and _is_special(item)):
            message = (_home(item, registry, made) or [None])[0]
        message = message or _chat(item, made)
        if message is None:
            continue
        if role == "assistant":
            made.lose(item.chunk, "role", "stands as a user's message in AutoGen's model contexts")
        _add(message, item, out, rows)
    return out, LossReport(tuple(made.losses), tuple(rows))


def _is_special(item: Item) -> bool:
    return item.cls is not None or str((item.data or {}).get("type", "")).startswith("StructuredMessage")


def _what(item: Item) -> str:
    kinds = dict.fromkeys(part.type for part in cast(Message, item.message).parts)
    return " and ".join(f"a {kind}" for kind in kinds) or "an empty message"


def _add(message: Any, item: Item, out: list[Any], rows: Rows) -> None:
    rows.append(ManifestEntry(len(out), item.chunk.id, message_key(dump(message))))
    out.append(message)


def _home(item: Item, registry: Registry, made: Converter) -> list[Any]:
    """The message as AutoGen made it; empty where it did not, or where it stands in a model context."""
    if item.data is None or item.data.get("type") in LLM_TYPES:
        return []
    message, loss = registry.load(item.data, item.cls)
    if loss is not None:
        made.lose(item.chunk, "native", loss)
    return [message]


def _names(item: Item) -> dict[str, str]:
    if item.message is None:
        return {}
    calls = [part for part in item.message.parts if isinstance(part, ToolCallPart)]
    if item.data is None:
        return {fitting_id(part.id): fitting_name(part.name) for part in calls if part.id}
    return {part.id: part.name for part in calls if part.id}


def _stamp(item: Item, suffix: str = "") -> dict[str, Any]:
    """Id and time of a message that AutoGen did not make: the chunk's, so that encoding twice gives the same."""
    given = item.message.id if item.message else None
    name = given or item.chunk.id[:32]
    return {"id": f"{name}-{suffix}" if suffix else name, "created_at": datetime.fromtimestamp(item.chunk.at / 1e6, UTC)}


def _chat(item: Item, made: Converter) -> Any:
    """Text and images as a chat message; None where nothing of either is in it."""
    messages = require("autogen_agentchat.messages", "encoding for AutoGen", FRAMEWORK)
    parts = cast(Message, item.message).parts
    wanted = [(i, part) for i, part in enumerate(parts) if isinstance(part, (TextPart, BlobPart, UriPart))]
    for index, part in enumerate(parts):
        if not isinstance(part, (TextPart, BlobPart, UriPart)):
            made.lose(item.chunk, f"parts[{index}]", f"no chat message of AutoGen holds a {part.type}: left out")
    content = made.media(item, wanted)
    if not parts:
        made.lose(item.chunk, "parts", "an empty message: left out")
    if not content and not any(isinstance(part, TextPart) for _, part in wanted):
        return None
    if isinstance(content, list) and all(isinstance(each, str) for each in content):
        content = "".join(content)
    kind = messages.TextMessage if isinstance(content, str) else messages.MultiModalMessage
    return kind(content=content, source=made.source(item), **_stamp(item))


def _shown(item: Item, made: Converter, names: Mapping[str, str], pairs: _Pairs) -> Iterator[Any]:
    """A foreign message as what an agent would have shown: thought, request, results, text."""
    messages = require("autogen_agentchat.messages", "encoding for AutoGen", FRAMEWORK)
    message = cast(Message, item.message)
    source, role = made.source(item), made.role(item)
    if role == "system":
        made.lose(item.chunk, "role", "AutoGen's chat has no system messages: left out")
        return
    calls = made.calls(item)
    texts = [(i, part) for i, part in enumerate(message.parts) if isinstance(part, (TextPart, BlobPart, UriPart))]
    thoughts = [part.content for part in message.parts if isinstance(part, ReasoningPart)]
    others = (TextPart, BlobPart, UriPart, ReasoningPart, ToolCallPart, ToolCallResponsePart)
    for index, part in enumerate(message.parts):
        if not isinstance(part, others):
            made.lose(item.chunk, f"parts[{index}]", f"AutoGen has no {part.type!r} part: left out")
        elif calls and isinstance(part, (BlobPart, UriPart)):
            made.lose(item.chunk, f"parts[{index}]", f"AutoGen has no {part.type} beside calls: left out")
    if calls:  # AutoGen shows text beside calls as a thought
        thoughts += [part.content for _, part in texts if isinstance(part, TextPart)]
    if thoughts:
        yield messages.ThoughtEvent(content="\n".join(thoughts), source=source, **_stamp(item, "thought"))
    if calls:
        yield messages.ToolCallRequestEvent(content=calls, source=source, **_stamp(item))
    results = _answers(item, pairs, names, made)
    if results:
        yield messages.ToolCallExecutionEvent(content=results, source=source, **_stamp(item, "results" if texts else ""))
    answers = any(isinstance(part, ToolCallResponsePart) for part in message.parts)
    if not calls and (texts or not (thoughts or answers)):
        content = made.media(item, texts)
        if isinstance(content, list) and all(isinstance(each, str) for each in content):
            content = "".join(content)
        kind = messages.TextMessage if isinstance(content, str) else messages.MultiModalMessage
        yield kind(content=content, source=source, **_stamp(item))


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Parts that have no partner, as (message chunk, place in it)."""

    calls: frozenset[tuple[str, int]]
    answers: frozenset[tuple[str, int]]


def _pair(history: History) -> _Pairs:
    """Pair calls with answers along the transcript: an answer belongs to the latest open call of its id."""
    waiting: dict[str | None, list[tuple[str, int]]] = {}
    orphans: set[tuple[str, int]] = set()
    for item in history.messages:
        if _is_system(item):  # left out, whatever it holds
            continue
        for index, part in enumerate(cast(Message, item.message).parts):
            place = (item.chunk.id, index)
            if isinstance(part, ToolCallPart):
                waiting.setdefault(part.id, []).append(place)
            elif isinstance(part, ToolCallResponsePart):
                asked = waiting.get(part.id) if part.id is not None else None
                if asked:
                    asked.pop()
                else:
                    orphans.add(place)
    return _Pairs(frozenset(place for places in waiting.values() for place in places), frozenset(orphans))


def _is_system(item: Item) -> bool:
    return ROLES.get(cast(Message, item.message).role) == "system"


def _open(item: Item, history: History, pairs: _Pairs, made: Converter) -> list[Any]:
    """Calls to be closed: a foreign one without an answer, one of AutoGen's where its end is on record."""
    if item.message is None or _is_system(item):
        return []
    asked = [index for index, part in enumerate(item.message.parts) if isinstance(part, ToolCallPart)]
    if not any((item.chunk.id, index) in pairs.calls for index in asked):
        return []
    return [
        call
        for index, call in zip(asked, made.calls(item), strict=True)
        if (item.chunk.id, index) in pairs.calls and (item.data is None or (item.chunk.id, call.id) in history.closed)
    ]


def _answers(item: Item, pairs: _Pairs, names: Mapping[str, str], made: Converter) -> list[Any]:
    """The results that a foreign message holds, without those that answer no call."""
    places = [index for index, part in enumerate(cast(Message, item.message).parts) if isinstance(part, ToolCallResponsePart)]
    found: list[Any] = []
    for index, result in zip(places, made.results(item, names), strict=True):
        if (item.chunk.id, index) in pairs.answers:
            made.lose(item.chunk, f"parts[{index}]", "a result without its call: left out")
        else:
            found.append(result)
    return found


def _stop_reason(history: History) -> str | None:
    """Why the last run ended."""
    for chunk in reversed(history.chunks):
        if chunk.kind == "run" and chunk.body_bytes is not None:
            body = cast(Run, chunk.body)
            if body.phase == "end":
                return body.attributes.get("stop_reason")
    return None
