"""LangChain messages and LangGraph states -> chunks.

Sources: ``langchain_core.messages``, ``langgraph.checkpoint.base.CheckpointTuple``, ``langgraph.types.StateSnapshot``. This room imports
without LangGraph; the translation of one message stands in `rath_langgraph.neutral`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from rath_bridge.errors import DecodeError, EncodeError
from rath_bridge.model.chunk import Draft, draft
from rath_bridge.model.digests import new_id
from rath_bridge.model.kinds import Checkpoint, Run
from rath_langgraph.edge import room

if TYPE_CHECKING:
    from langgraph.checkpoint.base import CheckpointTuple
    from langgraph.checkpoint.serde.base import SerializerProtocol


def recognises(obj: Any, /) -> bool:
    """Tell whether `decode` reads it: LangChain messages, a state with them, a CheckpointTuple or a StateSnapshot."""
    if isinstance(obj, list):
        items = cast("list[Any]", obj)
        return bool(items) and all(_is_message(item) for item in items)
    if isinstance(obj, Mapping):
        return recognises(cast("Mapping[str, Any]", obj).get("messages"))
    return _is_message(obj) or _is_tuple(obj, "CheckpointTuple") or _is_tuple(obj, "StateSnapshot")


def _is_message(obj: Any) -> bool:
    return any(cls.__module__ == "langchain_core.messages.base" and cls.__name__ == "BaseMessage" for cls in type(obj).__mro__)


def _is_tuple(obj: Any, name: str) -> bool:
    return type(obj).__module__.startswith("langgraph.") and type(obj).__name__ == name


def decode(obj: Any, /) -> tuple[Draft, ...]:
    """Translate a list of messages, a state with ``messages``, a CheckpointTuple or a StateSnapshot into chunks.

    Raises:
        DecodeError: Not one of those, or an element is no message; the error names its place.
        EncodeError: A value cannot be kept.
        MissingExtraError: LangGraph is not installed.
    """
    room("serde", "rath_langgraph.decode")
    from rath_langgraph.serde import RathSerializer

    serde: SerializerProtocol = RathSerializer()
    if _is_tuple(obj, "CheckpointTuple"):
        return _checkpoint(obj, serde)
    if _is_tuple(obj, "StateSnapshot"):
        return _state(obj.values, serde)
    if isinstance(obj, Mapping):
        return _state(cast("Mapping[str, Any]", obj), serde)
    if isinstance(obj, list) or _is_message(obj):
        return _messages(obj, serde)
    raise DecodeError(f"a {type(obj).__name__}", "expected LangChain messages, a state, a CheckpointTuple or a StateSnapshot")


def _checkpoint(found: CheckpointTuple, serde: SerializerProtocol) -> tuple[Draft, ...]:
    """A run of the thread, its messages, the checkpoint and its pending writes."""
    from rath_langgraph.items import Encoder
    from rath_langgraph.neutral import origin
    from rath_langgraph.state import checkpoint_body, task_body

    run = new_id(8)
    configurable: Mapping[str, Any] = found.config.get("configurable") or {}
    thread, namespace = str(configurable.get("thread_id") or ""), str(configurable.get("checkpoint_ns") or "")
    begin = draft(Run(phase="begin", name="thread", type="thread", native_id=thread), run=run, origin=origin())
    said = _messages(found.checkpoint["channel_values"].get("messages") or [], serde, run=run)
    parent = (found.parent_config or {}).get("configurable", {}).get("checkpoint_id")
    encoder = Encoder(serde)
    body, _ = checkpoint_body(
        namespace, parent, found.checkpoint, cast("Mapping[str, Any]", found.metadata or {}), encoder, None, ()
    )
    state = draft(body, run=run, objects=encoder.objects, origin=origin())
    tasks: dict[str, list[tuple[str, Any]]] = {}
    for task_id, channel, value in found.pending_writes or ():
        tasks.setdefault(task_id, []).append((channel, value))
    waiting: list[Draft] = []
    for task_id, writes in tasks.items():
        encoder = Encoder(serde)
        task = task_body(namespace, found.checkpoint["id"], writes, task_id, "", encoder)
        waiting.append(draft(task, run=run, objects=encoder.objects, origin=origin()))
    return (begin, *said, state, *waiting)


def _state(values: Mapping[str, Any], serde: SerializerProtocol) -> tuple[Draft, ...]:
    """The messages of a state, and, where it has more than messages, the state itself."""
    found = _messages(values.get("messages") or [], serde)
    if values.keys() <= {"messages"}:
        return found
    from rath_langgraph.items import Encoder
    from rath_langgraph.neutral import origin
    from rath_langgraph.state import encode_state

    encoder = Encoder(serde)
    state, lists, types, _ = encode_state(values, encoder, None)
    body = Checkpoint(state=state, lists=lists, source="state", envelope={"types": types} if types else None)
    return (*found, draft(body, objects=encoder.objects, origin=origin()))


def _messages(values: Any, serde: SerializerProtocol, run: str | None = None) -> tuple[Draft, ...]:
    from langchain_core.messages import BaseMessage, RemoveMessage, convert_to_messages

    from rath_langgraph.neutral import message_draft

    drafts: list[Draft] = []
    given: list[Any] = cast("list[Any]", values) if isinstance(values, list) else [values]
    for index, value in enumerate(given):
        place = f"messages[{index}]"
        try:
            message = value if isinstance(value, BaseMessage) else convert_to_messages([value])[0]
        except (ValueError, NotImplementedError, TypeError, KeyError) as error:
            raise DecodeError(place, f"not a LangChain message ({error})") from error
        if isinstance(message, RemoveMessage):
            raise DecodeError(place, "a RemoveMessage is an update, not a message: pass the list that it leads to")
        try:
            kind, data = serde.dumps_typed([message])
        except (TypeError, ValueError) as error:
            raise EncodeError(
                place, f"a {type(message).__name__} ({error})", "keep only values that LangGraph's serde can write"
            ) from error
        if kind != "msgpack":
            raise EncodeError(place, f"a message that is written as {kind}")
        drafts.append(message_draft(message, bytes(data[1:]), run=run))
    return tuple(drafts)
