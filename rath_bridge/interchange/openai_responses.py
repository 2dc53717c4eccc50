"""OpenAI Responses items: the ``input`` of a request, the ``output`` of a response, and lists of both, in and out.

Source: ``ResponseInputItemParam`` and ``Response`` of the ``openai`` package. Each item is one message chunk; an item that no neutral
part can tell is a generic part of its own type. What stands around the items (model, usage, ids) is a ``note``, or an ``inference``
where it is a response with usage.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from rath_bridge.interchange import shapes
from rath_bridge.interchange.conversation import Shape, Turn, answer_text, manifest, paired
from rath_bridge.interchange.natives import homes, json_text, plain, pretty, record
from rath_bridge.model.chunk import Draft, draft
from rath_bridge.model.kinds import Inference, Message, Note, Usage
from rath_bridge.model.parts import (
    BlobPart,
    FilePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolCallResponsePart,
    UriPart,
    foreign_part,
)
from rath_bridge.model.report import Loss, LossReport
from rath_bridge.session import Session
from rath_bridge.verbs.transcript import TranscriptMessage, transcript

name: Final = "openai_responses"
VERSION: Final = "1"
_ORIGIN: Final = {"adapter": "rath_bridge.interchange", "framework": name, "version": VERSION}
_PLACE: Final = "OpenAI Responses"
_CALLS: Final = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
_ANSWERS: Final = frozenset(_CALLS.values())
_MARKS: Final = frozenset({
    *_CALLS, *_ANSWERS, "message", "reasoning", "item_reference", "web_search_call", "file_search_call", "computer_call",
    "computer_call_output", "code_interpreter_call", "image_generation_call", "local_shell_call", "local_shell_call_output",
    "shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output", "mcp_call", "mcp_list_tools",
    "mcp_approval_request", "mcp_approval_response", "tool_search_call", "tool_search_output", "compaction",
})  # fmt: skip
_ROLES: Final = ("user", "assistant", "system", "developer")
_TEXTS: Final = frozenset({"input_text", "output_text", "text"})
_OURS: Final = frozenset({"input_text", "output_text", "input_image", "input_file"})
"""Content parts that no chat message has."""


# ------------------------------------------------------------------ in


def recognises(obj: Any, /) -> bool:
    """Tell items by their types, and objects that hold items under ``output`` or ``input``."""
    if isinstance(obj, Mapping):
        found = cast("Mapping[str, Any]", obj)
        return _around(found) is not None
    return _are_items(obj)


def _around(found: Mapping[str, Any]) -> str | None:
    """The field that holds the items of an object."""
    if found.get("object") == "response" and isinstance(found.get("output"), list):
        return "output"
    return "input" if _are_items(found.get("input")) else None


def _are_items(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    items = cast("list[Any]", value)
    return all(_is_item(one) for one in items) and any(_is_marked(one) for one in items)


def _is_item(one: Any) -> bool:
    if not isinstance(one, Mapping):
        return False
    found = cast("Mapping[str, Any]", one)
    kind = found.get("type", "message")
    return isinstance(kind, str) and kind in _MARKS and (kind != "message" or found.get("role") in _ROLES)


def _is_marked(one: Mapping[str, Any]) -> bool:
    """Whether an item is none of a chat message's forms."""
    content = one.get("content")
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    kinds = [cast("Mapping[str, Any]", part).get("type") for part in parts if isinstance(part, Mapping)]
    return "type" in one or any(isinstance(kind, str) and kind in _OURS for kind in kinds)


def documents(obj: Any) -> Iterable[tuple[str | None, Any]]:
    """One document is one session; a response's id names it."""
    found = cast("Mapping[str, Any]", obj).get("id") if isinstance(obj, Mapping) else None
    return [(found if isinstance(found, str) and found else None, cast(Any, obj))]


def decode(obj: Any, /) -> Sequence[Draft]:
    """Translate items, a request or a response.

    Raises:
        DecodeError: An item is not what it should be; the error names the path.
    """
    drafts: list[Draft] = []
    path = ""
    if isinstance(obj, Mapping):
        found = cast("Mapping[str, Any]", obj)
        path = _around(found) or "input"
        head: dict[str, Any] = {key: [] if key == path else value for key, value in found.items()}
        facts = {key: value for key, value in found.items() if key != path and value is not None}
        usage = found.get("usage")
        body: Any = Note(text="the request or response around these items", attributes=facts)
        if path == "output" and isinstance(usage, Mapping):
            body = _inference(found, cast("Mapping[str, Any]", usage), facts)
        drafts.append(draft(body, origin=_ORIGIN, native=record(name, VERSION, "head", head, _PLACE)))
        obj = found.get(path)
    for number, one in enumerate(shapes.rows(obj, _PLACE, path)):
        here = f"{path}[{number}]"
        body = message(shapes.table(one, _PLACE, here), _PLACE, here)
        drafts.append(draft(body, origin=_ORIGIN, native=record(name, VERSION, "json", one, _PLACE)))
    return drafts


def _inference(found: Mapping[str, Any], usage: Mapping[str, Any], facts: Mapping[str, Any]) -> Inference:
    def inner(field: str, name: str) -> int | None:
        value = usage.get(field)
        return shapes.number(cast("Mapping[str, Any]", value).get(name)) if isinstance(value, Mapping) else None

    counts = Usage(
        input_tokens=shapes.number(usage.get("input_tokens")), output_tokens=shapes.number(usage.get("output_tokens")),
        cache_read_input_tokens=inner("input_tokens_details", "cached_tokens"),
        reasoning_output_tokens=inner("output_tokens_details", "reasoning_tokens"),
    )  # fmt: skip
    model, response = found.get("model"), found.get("id")
    return Inference(
        provider="openai", model=model if isinstance(model, str) else None, observer="callback", usage=counts,
        response_id=response if isinstance(response, str) else None, attributes=facts,
    )  # fmt: skip


def message(item: Mapping[str, Any], place: str, path: str) -> Message:
    """Return an item in neutral form.

    Args:
        item: One item.
        place: Where it was found, for errors.
        path: And in what place there.

    Raises:
        DecodeError: Something in it is not of the type that the API gives it.
    """
    kind = shapes.text(item.get("type", "message"), place, f"{path}.type")
    if kind == "message":
        role = shapes.text(item.get("role"), place, f"{path}.role")
        identity = shapes.text_or_none(item.get("id"), place, f"{path}.id")
        return Message(role=role, parts=tuple(shapes.content(item.get("content"), place, f"{path}.content", _part)), id=identity)
    if kind in _CALLS:
        call_id = shapes.text_or_none(item.get("call_id"), place, f"{path}.call_id")
        called = shapes.text(item.get("name"), place, f"{path}.name")
        given = shapes.arguments(item.get("arguments")) if kind == "function_call" else item.get("input")
        return Message(role="assistant", parts=(ToolCallPart(call_id, called, given),))
    if kind in _ANSWERS:
        call_id = shapes.text_or_none(item.get("call_id"), place, f"{path}.call_id")
        return Message(role="tool", parts=(ToolCallResponsePart(call_id, item.get("output")),))
    if kind == "reasoning":
        return Message(role="assistant", parts=_reasoning(item, place, path))
    return Message(role="tool" if kind.endswith("_output") else "assistant", parts=(foreign_part(item),))


def _reasoning(item: Mapping[str, Any], place: str, path: str) -> tuple[Part, ...]:
    found: list[Part] = []
    for field in ("summary", "content"):
        for number, one in enumerate(shapes.rows(item.get(field), place, f"{path}.{field}")):
            here = f"{path}.{field}[{number}]"
            found.append(ReasoningPart(shapes.text(shapes.table(one, place, here).get("text"), place, f"{here}.text")))
    return tuple(found) or (foreign_part({**item, "type": "reasoning_encrypted"}),)


def _part(one: Any, place: str, path: str) -> Part:
    found = shapes.table(one, place, path)
    kind = shapes.text(found.get("type"), place, f"{path}.type")
    if kind in _TEXTS:
        extra = {"annotations": found["annotations"]} if found.get("annotations") else {}
        return TextPart(shapes.text(found.get("text"), place, f"{path}.text"), extra)
    if kind in ("input_image", "input_file"):
        modality = "image" if kind == "input_image" else "document"
        extra = {key: found[key] for key in ("detail", "filename") if found.get(key) is not None}
        for field in ("image_url", "file_url", "file_data"):
            if isinstance(found.get(field), str):
                return shapes.media(modality, found[field], extra)
        if isinstance(found.get("file_id"), str):
            return FilePart(modality, found["file_id"], None, extra)
    return foreign_part(found)


def encode(session: Session, /) -> tuple[Any, LossReport]:
    """Translate a session's transcript: a list of items, or the object around them, where one came in."""
    chunks = list(session.chunks())
    messages = transcript(chunks)
    heads = [chunk for chunk in chunks if chunk.kind in ("note", "inference")]
    home = homes(session, [*(one.chunk for one in messages), *heads], name)
    losses: list[Loss] = []
    turns: list[Turn] = []
    for one in messages:
        native = home.get(one.id)
        turns += _translate(one, losses) if native is None else [_home(one.id, native[1])]
    turns = paired(turns, chunks, losses, _SHAPE)
    items = [turn.item for turn in turns]
    head = next((home[chunk.id][1] for chunk in reversed(heads) if chunk.id in home), None)
    if head is None:
        return items, LossReport(tuple(losses), manifest(turns))
    field = "output" if head.get("object") == "response" and "output" in head else "input"
    return {**head, field: items}, LossReport(tuple(losses), manifest(turns))


def dumps(native: Any, /) -> bytes:
    """Indented JSON."""
    return pretty(native)


def _home(chunk: str, item: Any) -> Turn:
    kind, call_id = item.get("type"), item.get("call_id")
    if kind in _CALLS and isinstance(call_id, str):
        return Turn(chunk, item, (call_id,))
    return Turn(chunk, item, answers=call_id if kind in _ANSWERS else None)


def _translate(one: TranscriptMessage, losses: list[Loss]) -> list[Turn]:
    role = one.role
    if role not in _ROLES:
        role = "user"
        if one.role != "tool" or any(not isinstance(part, ToolCallResponsePart) for part in one.parts):
            losses.append(Loss(one.id, "role", f"the role {one.role!r} is handed over as 'user'"))
    if one.name is not None:
        losses.append(Loss(one.id, "name", f"the speaker's name {one.name!r}: an item has no place for it"))
    turns: list[Turn] = []
    content: list[Any] = []

    def flush() -> None:
        if content:
            turns.append(Turn(one.id, {"type": "message", "role": role, "content": list(content)}))
            content.clear()

    for number, part in enumerate(one.parts):
        path = f"parts[{number}]"
        if isinstance(part, ToolCallPart):
            flush()
            turns.append(_asked(one, part, path, number, losses))
        elif isinstance(part, ToolCallResponsePart):
            flush()
            if part.id is None:
                losses.append(Loss(one.id, f"{path}.id", "an answer that names no call: left out"))
            item = {"type": "function_call_output", "call_id": part.id, "output": answer_text(part.response)}
            turns.append(Turn(one.id, item, answers=part.id or ""))
        else:
            item = _item(part, role)
            if item is None:
                losses.append(Loss(one.id, path, f"a part of type {part.type!r} in a message of role {role!r}: left out"))
                continue
            content.append(item)
        if part.extra and not isinstance(part, BlobPart | UriPart | FilePart):
            losses.append(Loss(one.id, path, f"what stands beside the {part.type}: {', '.join(sorted(part.extra))}"))
    flush()
    if not turns and not one.parts:
        turns.append(Turn(one.id, {"type": "message", "role": role, "content": ""}))
    return turns


def _asked(one: TranscriptMessage, part: ToolCallPart, path: str, number: int, losses: list[Loss]) -> Turn:
    call_id = part.id
    if not call_id:
        call_id = f"call_{one.id[:16]}_{number}"
        losses.append(Loss(one.id, f"{path}.id", f"a call without an id was given {call_id}"))
    arguments = part.arguments if isinstance(part.arguments, str) else json_text({} if part.arguments is None else part.arguments)
    return Turn(one.id, {"type": "function_call", "call_id": call_id, "name": part.name, "arguments": arguments}, (call_id,))


def _item(part: Part, role: str) -> dict[str, Any] | None:
    if isinstance(part, TextPart):
        return {"type": "output_text" if role == "assistant" else "input_text", "text": part.content}
    kinds = {"image": ("input_image", "image_url"), "document": ("input_file", "file_url")}
    if role == "assistant" or not isinstance(part, BlobPart | UriPart | FilePart) or part.modality not in kinds:
        return None
    kind, url = kinds[part.modality]
    extra = {key: plain(part.extra[key]) for key in ("detail", "filename") if key in part.extra}
    if isinstance(part, FilePart):
        return {"type": kind, "file_id": part.file_id, **extra}
    if isinstance(part, UriPart):
        return {"type": kind, url: part.uri, **extra}
    data = f"data:{part.mime_type or 'application/octet-stream'};base64,{b64encode(part.content).decode()}"
    return {"type": kind, "image_url" if kind == "input_image" else "file_data": data, **extra}


def _closing(call_id: str, item: Any, value: Any) -> Any:
    return {"type": _CALLS[item["type"]], "call_id": call_id, "output": answer_text(value)}


_SHAPE: Final = Shape(lambda item, _, fresh: {**item, "call_id": fresh}, lambda item, fresh: {**item, "call_id": fresh}, _closing)
