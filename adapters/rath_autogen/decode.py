"""AutoGen -> chunks: results, responses, lists of messages, saved states; objects, or the JSON that AutoGen writes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from rath_autogen.classic import decode_classic, is_classic
from rath_autogen.natives import LLM_TYPES, is_message, origin
from rath_autogen.pieces import Seen, created_at, pieces
from rath_autogen.state import checkpoint, is_state, thread
from rath_bridge.errors import DecodeError
from rath_bridge.model.chunk import Draft, draft
from rath_bridge.model.digests import new_id
from rath_bridge.model.kinds import Run


def recognises(obj: Any, /) -> bool:
    """Tell whether `decode` reads this object; looks at shapes and module names, imports nothing."""
    if isinstance(obj, Mapping):
        data = cast("Mapping[str, Any]", obj)
        return is_message(data) or is_state(data) or _is_result(data) or is_classic(data)
    if isinstance(obj, (list, tuple)):
        items = cast("Sequence[Any]", obj)
        return bool(items) and all(recognises(item) and not _is_result_or_state(item) for item in items)
    if is_classic(obj):
        return True
    return _of_autogen(obj) and (hasattr(obj, "to_text") or type(obj).__name__ in LLM_TYPES | {"TaskResult", "Response"})


def _of_autogen(obj: Any) -> bool:
    return any(cls.__module__.startswith(("autogen_agentchat.", "autogen_core.")) for cls in type(obj).__mro__)


def _is_result(data: Mapping[str, Any]) -> bool:
    messages = data.get("messages")
    if data.keys() - {"messages", "stop_reason"} or not isinstance(messages, (list, tuple)):
        return False
    items = cast("Sequence[Any]", messages)
    return bool("stop_reason" in data or items) and all(is_message(item) or _is_custom(item) for item in items)


def _is_custom(item: Any) -> bool:
    """A message of a type that AutoGen does not bring, by the fields that all of them have."""
    return isinstance(item, Mapping) and {"id", "source", "models_usage", "metadata", "created_at"} <= item.keys()


def _is_result_or_state(obj: Any) -> bool:
    if isinstance(obj, Mapping):
        data = cast("Mapping[str, Any]", obj)
        return not is_message(data)
    return type(obj).__name__ in {"TaskResult", "Response", "ChatResult"}


def decode(obj: Any, /, *, usage: bool = True) -> Sequence[Draft]:
    """Translate a record of AutoGen into chunks.

    A ``TaskResult`` or ``Response`` becomes a run with its messages and its stop reason, a list becomes messages without a run, a saved
    state becomes its transcript and a checkpoint that holds all of it. Each message keeps AutoGen's own JSON for the trip home.

    Args:
        obj: ``TaskResult``, ``Response``, one message or a list of them (chat messages and events, or messages of a model context), or
            the JSON of a ``TaskResult``, ``AssistantAgentState`` or ``TeamState``; AG2's classic ``ChatResult``, object or JSON.
        usage: Make an ``inference`` chunk of each ``models_usage`` (observer ``message``: it knows the tokens of a model call, not its
            request). False where the calls are on record already, by `RecordingChatCompletionClient`, say (law 7).

    Raises:
        DecodeError: It is not what it seems; the error names the path.
    """
    if is_classic(obj):
        return decode_classic(obj)
    if isinstance(obj, Mapping):
        data = cast("Mapping[str, Any]", obj)
        if is_message(data):
            return _listed([data], usage)
        if is_state(data):
            return _state(data, usage)
        if _is_result(data):
            return _run(data["messages"], data.get("stop_reason"), usage)
        raise DecodeError("AutoGen JSON", "neither a TaskResult, nor a message, nor a saved state", _strange(data))
    if isinstance(obj, (list, tuple)):
        return _listed(cast("Sequence[Any]", obj), usage)
    name = type(obj).__name__
    if name == "TaskResult":
        return _run(obj.messages, obj.stop_reason, usage)
    if name == "Response":
        return _run([*(obj.inner_messages or ()), obj.chat_message], None, usage)
    return _listed([obj], usage)


def _strange(data: Mapping[str, Any]) -> str:
    """Name the first place that keeps a dumped object from being what it looks like."""
    messages = data.get("messages")
    if isinstance(messages, list):
        for index, item in enumerate(cast("list[Any]", messages)):
            if not is_message(item) and not _is_custom(item):
                return f"messages[{index}]"
    return "type"


def _listed(items: Sequence[Any], usage: bool) -> list[Draft]:
    return _messages([Seen.of(item) for item in items], None, usage, "messages")


def _messages(items: Sequence[Seen], run: str | None, usage: bool, place: str) -> list[Draft]:
    humans = humans_of(item.data for item in items)
    return [
        draft(piece.body, run=run, origin=origin(), at=piece.at, native=piece.native)
        for index, seen in enumerate(items)
        for piece in pieces(seen, humans, place=f"{place}[{index}]", usage=usage)
    ]


def humans_of(items: Iterable[Mapping[str, Any]]) -> set[str]:
    """Whose messages are a user's: ``user``, and who was asked for input (a ``UserProxyAgent``)."""
    return {"user"} | {
        str(data["source"]) for data in items if data.get("type") == "UserInputRequestedEvent" and "source" in data
    }


def _run(messages: Sequence[Any], stop_reason: str | None, usage: bool) -> list[Draft]:
    items = [Seen.of(message) for message in messages]
    run, humans = new_id(8), humans_of(item.data for item in items)
    speakers = dict.fromkeys(str(item.data.get("source")) for item in items if item.data.get("source") not in humans)
    name, kind = (next(iter(speakers)), "agent") if len(speakers) == 1 else ("team", "team")
    facts: dict[str, Any] = {"participants": list(speakers), "basis": "inferred"}
    times = [at for item in items if (at := created_at(item.data)) is not None]
    first, last = (min(times), max(times)) if times else (None, None)
    begin = Run(phase="begin", name=name, type=kind, attributes=facts)
    ended: dict[str, Any] = {} if stop_reason is None else {"stop_reason": stop_reason}
    end = Run(phase="end", name=name, type=kind, status="ok", attributes=ended)
    return [
        draft(begin, run=run, origin=origin(), at=first),
        *_messages(items, run, usage, "messages"),
        draft(end, run=run, origin=origin(), at=last),
    ]


def _state(state: Mapping[str, Any], usage: bool) -> list[Draft]:
    said = [Seen.of(message) for message in thread(state)]
    body, objects = checkpoint(state)
    return [*_messages(said, None, usage, "messages"), draft(body, origin=origin(), objects=objects)]
