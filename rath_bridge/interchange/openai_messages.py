"""OpenAI chat messages: the ``messages`` of Chat Completions requests and of fine-tuning files, in and out.

Source: ``ChatCompletionMessageParam`` of the ``openai`` package. A document is a list of messages, or an object that has them under
``messages`` beside ``tools``, ``model`` and the like. In a JSON lines file every line of the second kind is a session of its own.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from rath_bridge.interchange import shapes
from rath_bridge.interchange.conversation import Shape, Turn, answer_text, manifest, paired
from rath_bridge.interchange.natives import homes, json_text, lines, plain, pretty, record
from rath_bridge.model.chunk import Draft, draft
from rath_bridge.model.fitting import CALL_ID, fitting_name
from rath_bridge.model.kinds import Message, Note
from rath_bridge.model.parts import (
    BlobPart,
    FilePart,
    GenericPart,
    Part,
    TextPart,
    ToolCallPart,
    ToolCallResponsePart,
    UriPart,
    foreign_part,
)
from rath_bridge.model.report import Loss, LossReport
from rath_bridge.session import Session
from rath_bridge.verbs.transcript import TranscriptMessage, transcript

name: Final = "openai_messages"
VERSION: Final = "1"
ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_ORIGIN: Final = {"adapter": "rath_bridge.interchange", "framework": name, "version": VERSION}
_PLACE: Final = "OpenAI messages"
_AUDIO: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


# ------------------------------------------------------------------ in


def recognises(obj: Any, /) -> bool:
    """Tell a list of chat messages, an object that holds one, or lines of such objects."""
    if isinstance(obj, Mapping):
        found = cast("Mapping[str, Any]", obj)
        return _are_messages(found.get("messages"))
    if not isinstance(obj, list) or not obj:
        return False
    entries = cast("list[Any]", obj)
    return _are_messages(entries) or all(isinstance(one, Mapping) and recognises(one) for one in entries)


def _are_messages(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return all(_is_message(one) for one in cast("list[Any]", value))


def _is_message(one: Any) -> bool:
    if not isinstance(one, Mapping):
        return False
    found = cast("Mapping[str, Any]", one)
    if "type" in found or "parts" in found or not isinstance(found.get("role"), str) or found["role"] not in ROLES:
        return False
    return "content" in found or "tool_calls" in found or "function_call" in found


def documents(obj: Any) -> Iterable[tuple[str | None, Any]]:
    """Split lines of ``{"messages": […]}`` objects: each is a session."""
    entries: list[Any] = cast("list[Any]", obj) if isinstance(obj, list) else [obj]
    whole: Any = entries if isinstance(obj, list) else obj
    return [(None, whole)] if _are_messages(entries) else [(None, one) for one in entries]


def decode(obj: Any, /) -> Sequence[Draft]:
    """Translate a list of messages, or an object that holds one; what stands beside the messages becomes a ``note``.

    Raises:
        DecodeError: A message is not what it should be; the error names the path.
    """
    drafts: list[Draft] = []
    path = ""
    if isinstance(obj, Mapping):
        found = cast("Mapping[str, Any]", obj)
        head: dict[str, Any] = {key: [] if key == "messages" else value for key, value in found.items()}
        facts = {key: value for key, value in found.items() if key != "messages"}
        body = Note(text="the request around these messages", attributes=facts)
        drafts.append(draft(body, origin=_ORIGIN, native=record(name, VERSION, "head", head, _PLACE)))
        obj, path = found.get("messages"), "messages"
    entries = shapes.rows(obj, _PLACE, path)
    return [*drafts, *(_draft(one, f"{path}[{number}]") for number, one in enumerate(entries))]


def _draft(one: Any, path: str) -> Draft:
    body = message(shapes.table(one, _PLACE, path), _PLACE, path)
    return draft(body, origin=_ORIGIN, native=record(name, VERSION, "json", one, _PLACE))


def message(found: Mapping[str, Any], place: str, path: str) -> Message:
    """Return a chat message in neutral form.

    Args:
        found: One message.
        place: Where it was found, for errors.
        path: And in what place there.

    Raises:
        DecodeError: Something in it is not of the type that the API gives it.
    """
    role = shapes.text(found.get("role"), place, f"{path}.role")
    if role in ("tool", "function"):
        call_id = shapes.text_or_none(found.get("tool_call_id"), place, f"{path}.tool_call_id")
        speaker = shapes.text_or_none(found.get("name"), place, f"{path}.name")
        return Message(role="tool", parts=(ToolCallResponsePart(call_id, found.get("content")),), name=speaker)
    parts = shapes.content(found.get("content"), place, f"{path}.content", _part)
    if isinstance(found.get("refusal"), str):
        parts.append(GenericPart("refusal", {"content": found["refusal"]}))
    for number, call in enumerate(shapes.rows(found.get("tool_calls"), place, f"{path}.tool_calls")):
        parts.append(_call(call, place, f"{path}.tool_calls[{number}]"))
    if found.get("function_call") is not None:
        function = shapes.table(found["function_call"], place, f"{path}.function_call")
        parts.append(_called(None, function, place, f"{path}.function_call"))
    return Message(role=role, parts=tuple(parts), name=shapes.text_or_none(found.get("name"), place, f"{path}.name"))


def _part(one: Any, place: str, path: str) -> Part:
    found = shapes.table(one, place, path)
    kind = shapes.text(found.get("type"), place, f"{path}.type")
    inner = found.get(kind)
    values: Mapping[str, Any] = cast("Mapping[str, Any]", inner) if isinstance(inner, Mapping) else {}
    if kind == "text":
        return TextPart(shapes.text(found.get("text"), place, f"{path}.text"))
    if kind == "image_url" and isinstance(values.get("url"), str):
        extra = {"detail": values["detail"]} if "detail" in values else {}
        return shapes.media("image", values["url"], extra)
    if kind == "input_audio" and isinstance(values.get("data"), str):
        data = shapes.decoded(values["data"])
        if data is not None:
            return BlobPart("audio", data, {"wav": "audio/wav", "mp3": "audio/mpeg"}.get(str(values.get("format"))))
    if kind == "file" and isinstance(values.get("file_id"), str):
        return FilePart("document", values["file_id"])
    if kind == "file" and isinstance(values.get("file_data"), str):
        extra = {"filename": values["filename"]} if "filename" in values else {}
        return shapes.media("document", values["file_data"], extra)
    if kind == "refusal" and isinstance(found.get("refusal"), str):
        return GenericPart(kind, {"content": found["refusal"]})
    return foreign_part(found)


def _call(call: Any, place: str, path: str) -> Part:
    found = shapes.table(call, place, path)
    call_id = shapes.text_or_none(found.get("id"), place, f"{path}.id")
    if found.get("type") == "custom":
        custom = shapes.table(found.get("custom"), place, f"{path}.custom")
        return ToolCallPart(call_id, shapes.text(custom.get("name"), place, f"{path}.custom.name"), custom.get("input"))
    return _called(call_id, shapes.table(found.get("function"), place, f"{path}.function"), place, f"{path}.function")


def _called(call_id: str | None, function: Mapping[str, Any], place: str, path: str) -> ToolCallPart:
    called = shapes.text(function.get("name"), place, f"{path}.name")
    return ToolCallPart(call_id, called, shapes.arguments(function.get("arguments")))


# ------------------------------------------------------------------ out


def encode(session: Session, /) -> tuple[Any, LossReport]:
    """Translate a session's transcript: a list of messages, or the object around it, where one came in."""
    chunks = list(session.chunks())
    messages = transcript(chunks)
    notes = [chunk for chunk in chunks if chunk.kind == "note"]
    home = homes(session, [*(one.chunk for one in messages), *notes], name)
    losses: list[Loss] = []
    turns: list[Turn] = []
    for one in messages:
        item = home.get(one.id)
        turns += translate(one, losses) if item is None else [_turn(one.id, item[1])]
    turns = paired(turns, chunks, losses, SHAPE)
    items = [turn.item for turn in turns]
    head = next((home[chunk.id][1] for chunk in reversed(notes) if chunk.id in home), None)
    report = LossReport(tuple(losses), manifest(turns))
    return (items if head is None else {**head, "messages": items}), report


def dumps(native: Any, /) -> bytes:
    """One document: indented JSON."""
    return pretty(native)


def dump_lines(natives: Iterable[Any]) -> bytes:
    """Several documents: one line each, as fine-tuning takes them."""
    return lines(natives)


def _turn(chunk: str, item: Any) -> Turn:
    calls = [call.get("id") for call in item.get("tool_calls") or ()]
    answers = item.get("tool_call_id") if item.get("role") == "tool" else None
    return Turn(chunk, item, tuple(call for call in calls if isinstance(call, str)), answers)


def translate(one: TranscriptMessage, losses: list[Loss]) -> list[Turn]:
    """Return a foreign message as chat messages; what they cannot hold is added to the losses."""
    role = _role(one, losses)
    content: list[Any] = []
    calls: list[Any] = []
    turns: list[Turn] = []
    for number, part in enumerate(one.parts):
        path = f"parts[{number}]"
        if isinstance(part, ToolCallResponsePart):
            turns.append(_answer(one, part, path, losses))
        elif isinstance(part, ToolCallPart):
            calls.append(_asked(one, part, path, number, losses))
        else:
            item = _item(part, role)
            if item is None:
                losses.append(Loss(one.id, path, f"a part of type {part.type!r} in a message of role {role!r}: left out"))
                continue
            content.append(item)
            if part.extra and not isinstance(part, BlobPart | UriPart | GenericPart):
                losses.append(Loss(one.id, path, f"what stands beside the {part.type}: {', '.join(sorted(part.extra))}"))
            if calls:
                losses.append(Loss(one.id, path, "it stood behind a tool call, and stands before it now"))
    if calls and role != "assistant":
        losses.append(Loss(one.id, "role", f"a message of role {role!r} that calls tools is handed over as 'assistant'"))
        role = "assistant"
    if content or calls or not one.parts:
        turns.insert(0, _said(one, role, content, calls, losses))
    return turns


def _role(one: TranscriptMessage, losses: list[Loss]) -> str:
    if one.role == "tool":
        if any(not isinstance(part, ToolCallResponsePart) for part in one.parts) or not one.parts:
            losses.append(Loss(one.id, "role", "what a tool says that answers no call is handed over as a user's message"))
        return "user"
    if one.role in ROLES and one.role != "function":
        return one.role
    losses.append(Loss(one.id, "role", f"the role {one.role!r} is handed over as 'user'"))
    return "user"


def _said(one: TranscriptMessage, role: str, content: list[Any], calls: list[Any], losses: list[Loss]) -> Turn:
    said: Any = content
    if len(content) == 1 and content[0]["type"] == "text":
        said = content[0]["text"]
    elif not content:
        said = None if calls else ""
    item: dict[str, Any] = {"role": role, "content": said}
    if one.name is not None:
        item["name"] = fitting_name(one.name)
        if item["name"] != one.name:
            losses.append(Loss(one.id, "name", f"the name {one.name!r} has other characters than are allowed: {item['name']!r}"))
    if calls:
        item["tool_calls"] = calls
    return Turn(one.id, item, tuple(call["id"] for call in calls), limit=CALL_ID)


def _answer(one: TranscriptMessage, part: ToolCallResponsePart, path: str, losses: list[Loss]) -> Turn:
    if part.id is None:
        losses.append(Loss(one.id, f"{path}.id", "an answer that names no call: left out"))
    if part.extra:
        losses.append(Loss(one.id, path, f"what stands beside the answer: {', '.join(sorted(part.extra))}"))
    if not isinstance(part.response, str):
        losses.append(Loss(one.id, f"{path}.response", "a result that is no text: it stands as JSON"))
    if one.name is not None and one.role == "tool":
        losses.append(Loss(one.id, "name", f"the answer's name {one.name!r}: an answer names the call only"))
    return Turn(one.id, {"role": "tool", "tool_call_id": part.id, "content": answer_text(part.response)}, answers=part.id or "")


def _asked(one: TranscriptMessage, part: ToolCallPart, path: str, number: int, losses: list[Loss]) -> dict[str, Any]:
    call_id = part.id
    if not call_id:
        call_id = f"call_{one.id[:16]}_{number}"
        losses.append(Loss(one.id, f"{path}.id", f"a call without an id was given {call_id}"))
    if part.extra:
        losses.append(Loss(one.id, path, f"what stands beside the call: {', '.join(sorted(part.extra))}"))
    arguments = part.arguments if isinstance(part.arguments, str) else json_text({} if part.arguments is None else part.arguments)
    called = fitting_name(part.name)
    if called != part.name:
        losses.append(Loss(one.id, f"{path}.name", f"the tool {part.name!r} has a name that is not allowed: {called!r}"))
    return {"id": call_id, "type": "function", "function": {"name": called, "arguments": arguments}}


def _item(part: Part, role: str) -> dict[str, Any] | None:
    """Return a content part, or None where messages of this role have none such."""
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.content}
    if isinstance(part, GenericPart) and part.type == "refusal" and role == "assistant" and "content" in part.extra:
        return {"type": "refusal", "refusal": plain(part.extra["content"])}
    if role != "user":
        return None
    if isinstance(part, FilePart) and part.modality == "document":
        return {"type": "file", "file": {"file_id": part.file_id}}
    if isinstance(part, UriPart) and part.modality == "image":
        return {"type": "image_url", "image_url": {"url": part.uri, **_detail(part)}}
    if isinstance(part, BlobPart):
        data = b64encode(part.content).decode()
        if part.modality == "image":
            url = f"data:{part.mime_type or 'image/png'};base64,{data}"
            return {"type": "image_url", "image_url": {"url": url, **_detail(part)}}
        if part.modality == "audio" and part.mime_type in _AUDIO:
            return {"type": "input_audio", "input_audio": {"data": data, "format": _AUDIO[part.mime_type]}}
        if part.modality == "document":
            url = f"data:{part.mime_type or 'application/pdf'};base64,{data}"
            file = {"filename": plain(part.extra.get("filename", "document")), "file_data": url}
            return {"type": "file", "file": file}
    return None


def _detail(part: BlobPart | UriPart) -> dict[str, Any]:
    return {"detail": plain(part.extra["detail"])} if "detail" in part.extra else {}


def _rename_call(item: Any, number: int, fresh: str) -> Any:
    calls = [{**call, "id": fresh} if at == number else call for at, call in enumerate(item["tool_calls"])]
    return {**item, "tool_calls": calls}


def _rename_answer(item: Any, fresh: str) -> Any:
    return {**item, "tool_call_id": fresh}


def _closing(call_id: str, _: Any, value: Any) -> Any:
    return {"role": "tool", "tool_call_id": call_id, "content": answer_text(value)}


SHAPE: Final = Shape(_rename_call, _rename_answer, _closing)
