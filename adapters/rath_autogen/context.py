"""A transcript as a model context: what ``UnboundedChatCompletionContext(initial_messages=...)`` and an agent's state hold.

AutoGen's rules (``autogen_core.models``, facts section 2): an assistant's content is text *or* calls, never both, so text beside calls goes
to ``thought``; every call is followed by its results; an agent puts its own system prompt in front, so none stands in the context.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from rath_autogen.convert import Converter
from rath_autogen.items import History, Item
from rath_autogen.natives import LLM_TYPES, Registry, message_key
from rath_bridge.model.kinds import Message
from rath_bridge.model.parts import ReasoningPart, TextPart, ToolCallPart, ToolCallResponsePart
from rath_bridge.model.report import LossReport, ManifestEntry


@dataclass(slots=True)
class _Entry:
    """One message of the context, before calls and results are paired."""

    item: Item
    said: Any = None
    """The finished message; for results, None until they are paired."""
    calls: list[Any] = field(default_factory=list[Any])
    results: list[Any] = field(default_factory=list[Any])
    thought: str | None = None
    """Reasoning that AutoGen showed by itself, before the message that it belongs to."""


def llm_messages(history: History) -> tuple[list[Any], LossReport]:
    """Return the transcript as ``list[LLMMessage]``; items that came from a model context go home exactly.

    A call that nobody answered is closed (a dangling call makes model providers refuse the whole context); an answer without a call
    is left out. Both are named.
    """
    made = Converter()
    entries = list(_with_thoughts(_entries(history, made), made))
    out: list[Any] = []
    rows: list[ManifestEntry] = []

    def add(message: Any, *entries: _Entry) -> None:
        key = message_key(message.model_dump(mode="json"))
        rows.extend(ManifestEntry(len(out), entry.item.chunk.id, key) for entry in entries)
        out.append(message)

    answers = made.models.FunctionExecutionResultMessage
    index = 0
    while index < len(entries):
        entry = entries[index]
        index += 1
        if entry.results:  # behind no call: those that answer one were taken with it
            for result in entry.results:
                made.lose(entry.item.chunk, f"call {result.call_id}", "a result without its call: left out")
            continue
        if entry.said is None:
            continue
        add(entry.said, entry)
        open_calls = list(entry.calls)
        while open_calls and index < len(entries) and entries[index].results:
            following = entries[index]
            mine = [result for result in following.results if _take(open_calls, result.call_id)]
            following.results = [result for result in following.results if not any(result is taken for taken in mine)]
            if mine:
                exact = following.said is not None and not following.results
                add(following.said if exact else answers(content=mine), following)
            if following.results:
                break
            index += 1
        late = [_answer(call, entry, entries[index:], history, made) for call in open_calls]
        if late:
            add(answers(content=late))
    return out, LossReport(tuple(made.losses), tuple(rows))


def _take(calls: list[Any], call_id: str) -> bool:
    """Remove the first call of an id (ids may be empty, and so equal, says AutoGen)."""
    index = next((index for index, call in enumerate(calls) if call.id == call_id), None)
    if index is not None:
        del calls[index]
    return index is not None


def _answer(call: Any, asked: _Entry, ahead: list[_Entry], history: History, made: Converter) -> Any:
    """Find the answer of a call further down (until the id is asked again), else in a ``tool_result`` chunk, else close it."""
    for entry in ahead:
        if any(again.id == call.id for again in entry.calls):
            break
        for result in entry.results:
            if result.call_id == call.id:
                entry.results = [other for other in entry.results if other is not result]
                made.lose(entry.item.chunk, f"call {call.id}", "results follow their call in AutoGen: moved up to it")
                return result
    return made.closing(
        asked.item.chunk, call, history.closed.get((asked.item.chunk.id, made.asked_as.get(call.id) or str(call.id)))
    )


def _entries(history: History, made: Converter) -> Iterator[_Entry]:
    registry = Registry()
    names: dict[str, str] = {}
    for item in history.messages:
        kind = item.data.get("type") if item.data else None
        exact = registry.load(cast("Mapping[str, Any]", item.data))[0] if kind in LLM_TYPES else None
        role = made.role(item)
        if kind == "HandoffMessage" and not names.keys() >= _context_calls(cast("Mapping[str, Any]", item.data)):
            made.lose(
                item.chunk, "native.context", "what a handoff carried that this session does not hold as messages: left out"
            )
        if kind == "ToolCallSummaryMessage":
            made.lose(item.chunk, "parts", "a summary of results that stand before it: no part of an agent's context")
            continue
        if kind == "CodeExecutionEvent":
            result = cast("Mapping[str, Any]", cast("Mapping[str, Any]", item.data)["result"])
            yield _Entry(item, made.models.UserMessage(content=str(result["output"]), source=made.source(item)))
        elif role == "tool" or (exact is None and _answers(item)):
            if exact is None and not cast(Message, item.message).parts:
                made.lose(item.chunk, "parts", "an empty message: left out")
            yield _Entry(item, exact, results=made.results(item, names))
            for index, part in enumerate(cast(Message, item.message).parts):
                if not isinstance(part, ToolCallResponsePart):
                    made.lose(item.chunk, f"parts[{index}]", f"stands beside a tool's answer: {part.type!r} left out")
        elif role == "assistant":
            found = _assistant(item, exact, made)
            names |= {call.id: call.name for call in found.calls}
            yield found
        elif role == "system" and exact is None:
            made.lose(item.chunk, "role", "an agent puts its own system message in front: left out")
        else:
            yield _Entry(item, exact or _user(item, made))


def _context_calls(data: Mapping[str, Any]) -> set[str]:
    """Ids of the calls that a handoff carries; an agent's own are on record as events. Anything else counts as unknown."""
    found: set[str] = set()
    for message in cast("list[Mapping[str, Any]]", data.get("context") or []):
        content = message["content"]
        if message["type"] not in ("AssistantMessage", "FunctionExecutionResultMessage") or isinstance(content, str):
            return {f"a {message['type']}"}
        found |= {str(item.get("id", item.get("call_id"))) for item in cast("list[Mapping[str, Any]]", content)}
    return found


def _answers(item: Item) -> bool:
    return any(isinstance(part, ToolCallResponsePart) for part in cast(Message, item.message).parts)


def _user(item: Item, made: Converter) -> Any:
    parts = list(enumerate(cast(Message, item.message).parts))
    return made.models.UserMessage(content=made.media(item, parts), source=made.source(item))


def _assistant(item: Item, exact: Any, made: Converter) -> _Entry:
    message = cast(Message, item.message)
    calls = made.calls(item)
    if exact is not None:
        return _Entry(item, exact, calls)
    texts = [part.content for part in message.parts if isinstance(part, TextPart)]
    thoughts = [part.content for part in message.parts if isinstance(part, ReasoningPart)]
    for index, part in enumerate(message.parts):
        if not isinstance(part, (TextPart, ReasoningPart, ToolCallPart)):
            made.lose(item.chunk, f"parts[{index}]", f"an assistant of AutoGen says text or calls: {part.type!r} left out")
        elif isinstance(part, TextPart) and calls:
            made.lose(item.chunk, f"parts[{index}]", "AutoGen has no text beside calls: it stands in `thought`")
        if isinstance(part, (TextPart, ReasoningPart)):
            made.beside(item, index, part)
    thought = "\n".join([*thoughts, *(texts if calls else [])]) or None
    source = made.source(item)
    if calls:
        return _Entry(item, made.models.AssistantMessage(content=calls, thought=thought, source=source), calls)
    if not texts:
        if thought is None:
            made.lose(item.chunk, "parts", "nothing that an assistant of AutoGen says: left out")
        return _Entry(item, thought=thought)
    return _Entry(item, made.models.AssistantMessage(content="".join(texts), thought=thought, source=source))


def _with_thoughts(entries: Iterator[_Entry], made: Converter) -> Iterator[_Entry]:
    """Put reasoning that was shown by itself (a ``ThoughtEvent``) into the answer that follows it."""
    waiting: list[_Entry] = []
    for entry in entries:
        if entry.said is None and not entry.results:
            if entry.thought is not None:
                waiting.append(entry)
            continue
        if waiting and _takes_thought(entry, made) and made.source(entry.item) == made.source(waiting[-1].item):
            answer: Any = entry.said
            for before in waiting:
                made.lose(
                    before.item.chunk, "parts", "reasoning that was shown by itself: it stands in the next answer's `thought`"
                )
            told = [before.thought or "" for before in waiting] + ([answer.thought] if answer.thought else [])
            entry.said = answer.model_copy(update={"thought": "\n".join(told)})
            waiting = []
        _left_out(waiting, made)
        waiting = []
        yield entry
    _left_out(waiting, made)


def _takes_thought(entry: _Entry, made: Converter) -> bool:
    own = entry.item.data.get("type") if entry.item.data else None
    return own not in LLM_TYPES and isinstance(entry.said, made.models.AssistantMessage)


def _left_out(waiting: list[_Entry], made: Converter) -> None:
    for entry in waiting:
        made.lose(entry.item.chunk, "parts", "reasoning without the answer that it belongs to: left out")
