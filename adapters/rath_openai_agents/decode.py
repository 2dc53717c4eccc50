"""Runs and item lists of the OpenAI Agents SDK -> chunks.

Each message keeps its items' exact JSON as its native record (codec ``json``: an array), so that they go home as they came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from rath_bridge.errors import DecodeError
from rath_bridge.model.chunk import Draft, Native, draft
from rath_openai_agents.items import (
    FRAMEWORK,
    MODEL_SIDE,
    OUTPUTS,
    Known,
    dump,
    from_bytes,
    grouped,
    item_list,
    kind_of,
    known,
    long_texts,
    of_model,
    table,
)
from rath_openai_agents.messages import message
from rath_openai_agents.state import asked_for, checkpoint, is_state, state_json
from rath_openai_agents.who import origin

_RESULTS: Final = frozenset(
    {("agents.result", "RunResult"), ("agents.result", "RunResultStreaming"), ("agents.exceptions", "RunErrorDetails")}
)
_OTHERS: Final = frozenset(
    {
        "message", "item_reference", "compaction", "compaction_trigger", "additional_tools", "configuration_update",
        "mcp_approval_response",
    }
)  # fmt: skip
_ROLES: Final = frozenset({"user", "assistant", "system", "developer"})


def recognises(obj: Any, /) -> bool:
    """Tell a run's result, or a list of Responses-API items, from the rest; imports nothing."""
    if (type(obj).__module__, type(obj).__name__) in _RESULTS or is_state(obj) or _is_export(obj):
        return True
    if not isinstance(obj, list) or not obj:
        return False
    return all(_is_item(item) for item in cast("list[Any]", obj))


def _is_export(obj: Any) -> bool:
    """Tell a trace export from the rest; most values are told by a look."""
    from rath_openai_agents.export import is_export

    return isinstance(obj, list | Mapping) and is_export(cast(Any, obj))


def _is_item(item: Any) -> bool:
    if not isinstance(item, Mapping):
        return False
    found = cast("Mapping[Any, Any]", item)
    kind = kind_of(found)
    if kind == "message":
        # OpenAI chat messages look alike, but carry these keys, or content parts of these types
        return str(found.get("role")) in _ROLES and "tool_calls" not in found and not _chat_content(found.get("content"))
    if kind == "item_reference":
        return isinstance(found.get("id"), str) and found.keys() <= {"id", "type"}
    return kind in MODEL_SIDE or kind in OUTPUTS or kind in _OTHERS


def _chat_content(content: Any) -> bool:
    if not isinstance(content, list):
        return content is None
    parts = [cast("Mapping[str, Any]", part).get("type") for part in cast("list[Any]", content) if isinstance(part, Mapping)]
    return any(kind in ("text", "image_url", "file") for kind in parts)


def decode(obj: Any, /) -> tuple[Draft, ...]:
    """Translate a run's result, a paused run or a list of input items into chunks to append.

    A result gives its input and its new items, each reply with the name of the agent that gave it, and what a person is asked where
    it waits; a list knows no agents. A paused run gives its state as well, and what was answered.

    Args:
        obj: ``RunResult``, ``RunResultStreaming``, ``RunErrorDetails`` (an error's ``run_data``), ``RunState`` or its JSON of any
            schema version, a trace export (what an exporter of the SDK wrote: a list, JSON lines or batches of traces and spans),
            or a list of items (dicts, or the SDK's own values).

    Raises:
        DecodeError: An item is no JSON object; the error names its place.
    """
    if _is_export(obj):
        from rath_openai_agents.export import decode_export

        return decode_export(obj)
    if is_state(obj):
        found = state_json(obj)
        for name in ("original_input", "session_items", "generated_items"):
            kinds = (str, list) if name == "original_input" else (list, type(None))
            if not isinstance(found.get(name), kinds):
                raise DecodeError(f"RunState.{name}", f"a list is expected, not a {type(found.get(name)).__name__}")
        said = [entry for entry in found.get("session_items") or found.get("generated_items") or () if _said(entry)]
        names = [_agent_of(entry) for entry in said]
        return (
            *drafts(item_list(found["original_input"]), place="RunState.original_input"),
            *drafts([entry["raw_item"] for entry in said], names, place="RunState.session_items"),
            *checkpoint(found),
        )
    if (type(obj).__module__, type(obj).__name__) in _RESULTS:
        given: Any = obj.input
        said = [_item_of(run_item) for run_item in obj.new_items if run_item.type != "tool_approval_item"]
        agents = [getattr(run_item.agent, "name", None) for run_item in obj.new_items if run_item.type != "tool_approval_item"]
        items = item_list(given)
        return (*drafts(items, place="input"), *drafts(said, agents, place="new_items"), *_questions(obj))
    if not isinstance(obj, list | tuple):
        raise DecodeError(type(obj).__name__, "expected a RunResult or a list of input items")
    return tuple(drafts([_item_of(item) for item in cast("Sequence[Any]", obj)], place="items"))


def _questions(result: Any) -> Iterable[Draft]:
    """Yield what a run that waits asks for."""
    waiting: Sequence[Any] = getattr(result, "interruptions", None) or ()
    for one in waiting or [item for item in result.new_items if item.type == "tool_approval_item"]:
        item = one.raw_item
        call = dump(item) if hasattr(item, "model_dump") else item
        yield draft(asked_for(call, getattr(one, "tool_name", None), getattr(one.agent, "name", None)), origin=origin())


def documents(obj: Any, /) -> Iterable[tuple[str | None, Any]]:
    """Split what a file holds into what becomes one session each: the traces of an export by group id, all else as it is.

    Raises:
        DecodeError: An entry of an export names no trace.
    """
    from rath_openai_agents import export

    return export.documents(obj)


def _said(entry: Any) -> bool:
    found = table(entry)
    return found.get("type") != "tool_approval_item" and isinstance(found.get("raw_item"), Mapping)


def _agent_of(entry: Mapping[str, Any]) -> str | None:
    return table(entry.get("agent")).get("name")


def _item_of(item: Any) -> Any:
    if hasattr(item, "to_input_item"):
        return item.to_input_item()
    return dump(item) if hasattr(item, "model_dump") else item


def drafts(items: Sequence[Any], agents: Sequence[str | None] = (), *, place: str) -> list[Draft]:
    """Return one message for each item or reply in a list."""
    found = [known(item, f"{place}[{i}]") for i, item in enumerate(items)]
    names = list(agents) or [None] * len(found)
    rows: list[Draft] = []
    for start, stop in grouped([one.value for one in found]):
        for first, last in _same_agent(names, start, stop):
            group = found[first:last]
            body = message([one.value for one in group], name=names[first] if of_model(group[0].value) else None)
            rows.append(draft(body, origin=origin(), native=native(group), objects=texts(group)))
    return rows


def _same_agent(names: Sequence[str | None], start: int, stop: int) -> Iterable[tuple[int, int]]:
    first = start
    for i in range(start + 1, stop + 1):
        if i == stop or names[i] != names[first]:
            yield first, i
            first = i


def native(group: Sequence[Known]) -> Native:
    """Return the native record of a message: a JSON array of its items."""
    return Native(FRAMEWORK, origin()["version"], "json", b"[" + b",".join(one.data for one in group) + b"]")


def texts(group: Sequence[Known]) -> dict[str, bytes]:
    """Return the long texts of a message's items: their blobs are what the native record is kept around."""
    return long_texts([one.value for one in group])


def native_items(data: bytes, place: str) -> list[dict[str, Any]]:
    """Read a message's native record.

    Raises:
        DecodeError: It is no array of objects.
    """
    found = from_bytes(data, place)
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in cast("list[Any]", found)):
        raise DecodeError(place, "a native record of openai_agents is a JSON array of items")
    return cast("list[dict[str, Any]]", found)
