"""A transcript as messages of ``autogen_agentchat``: a ``TaskResult`` again, or a list for ``run(task=[...])``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, cast

from rath_autogen.convert import Converter
from rath_autogen.items import History, Item
from rath_autogen.natives import EVENT_TYPES, FRAMEWORK, LLM_TYPES, Registry, dump, message_key
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
    answered = _answered(history)
    for item in history.items:
        names |= _names(item)
        for message in _home(item, registry, made) or _shown(item, made, names):
            _add(message, item, out, rows)
        missing = list(_open(item, history, answered, made))
        if missing:
            messages = require("autogen_agentchat.messages", "encoding for AutoGen", FRAMEWORK)
            results = [made.closing(item.chunk, call, history.closed.get((item.chunk.id, call.id))) for call in missing]
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
    return {part.id: part.name for part in item.message.parts if isinstance(part, ToolCallPart) and part.id}


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
    if not wanted or (isinstance(content, list) and not content):
        return None
    if isinstance(content, list) and all(isinstance(each, str) for each in content):
        content = "".join(content)
    kind = messages.TextMessage if isinstance(content, str) else messages.MultiModalMessage
    return kind(content=content, source=made.source(item), **_stamp(item))


def _shown(item: Item, made: Converter, names: Mapping[str, str]) -> Iterator[Any]:
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
    results = made.results(item, names)
    if results:
        yield messages.ToolCallExecutionEvent(content=results, source=source, **_stamp(item, "results" if texts else ""))
    if not calls and (texts or not (thoughts or results)):
        content = made.media(item, texts)
        if isinstance(content, list) and all(isinstance(each, str) for each in content):
            content = "".join(content)
        kind = messages.TextMessage if isinstance(content, str) else messages.MultiModalMessage
        yield kind(content=content, source=source, **_stamp(item))


def _answered(history: History) -> set[tuple[str, str]]:
    """(asking chunk, call id) of every call that a later message answers, until its id is asked again."""
    found: set[tuple[str, str]] = set()
    asked: dict[str, str] = {}
    for item in history.messages:
        for part in cast(Message, item.message).parts:
            if isinstance(part, ToolCallPart) and part.id:
                asked[part.id] = item.chunk.id
            elif isinstance(part, ToolCallResponsePart) and part.id in asked:
                found.add((asked[part.id], part.id))
    return found


def _open(item: Item, history: History, answered: set[tuple[str, str]], made: Converter) -> list[Any]:
    if item.message is None or not any(isinstance(part, ToolCallPart) for part in item.message.parts):
        return []
    own = item.data is not None
    return [
        call
        for call in made.calls(item)
        if (item.chunk.id, call.id) not in answered and (not own or (item.chunk.id, call.id) in history.closed)
    ]


def _stop_reason(history: History) -> str | None:
    """Why the last run ended."""
    for chunk in reversed(history.chunks):
        if chunk.kind == "run" and chunk.body_bytes is not None:
            body = cast(Run, chunk.body)
            if body.phase == "end":
                return body.attributes.get("stop_reason")
    return None
