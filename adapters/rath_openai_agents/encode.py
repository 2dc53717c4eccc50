"""Sessions -> input items for ``Runner.run``.

What came from this SDK goes home exactly (its native record); all else is translated, and what an item cannot hold is named.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from rath_bridge.errors import MissingObjectError, UnsupportedError
from rath_bridge.model.digests import Digest
from rath_bridge.model.fitting import RESPONSES_CALL_ID, fitting_id, fitting_name
from rath_bridge.model.kinds import ToolResult
from rath_bridge.model.parts import BlobPart, FilePart, Part, TextPart, ToolCallPart, ToolCallResponsePart, UriPart
from rath_bridge.model.report import Loss, LossReport, ManifestEntry
from rath_bridge.session import Session
from rath_bridge.verbs.transcript import TranscriptMessage
from rath_openai_agents.decode import native_items
from rath_openai_agents.items import FRAMEWORK, OUTPUTS, PAIRS, Item, key, plain
from rath_openai_agents.state import saved_state

FORMS: Final = ("items", "state", "trace")
_ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
_ANSWERABLE: Final = frozenset({"function_call", "custom_tool_call"})
NO_RESPONSE: Final = "no response: this call was never answered"


@dataclass(frozen=True, slots=True)
class Row:
    """An item on its way out, with the message that it came from."""

    chunk: Digest
    item: Item
    asked_as: str = ""
    """A call's id on record, where it was handed over under another one."""
    foreign: bool = False
    """Translated: its ids must be of the target's form."""


@dataclass(slots=True)
class _Away:
    """One foreign message being translated."""

    chunk: Digest
    losses: list[Loss]
    rows: list[Row] = field(default_factory=list[Row])
    content: list[Item] = field(default_factory=list[Item])

    def lost(self, path: str, what: str) -> None:
        self.losses.append(Loss(self.chunk, path, what))

    def flush(self, role: str) -> None:
        """Close the message item that is being filled, so that calls keep their place between texts."""
        if not self.content:
            return
        content: Any = self.content
        if len(content) == 1 and content[0]["type"] == "input_text":
            content = content[0]["text"]
        elif role == "assistant":  # an assistant's easy message takes a text only
            content = "\n".join(part["text"] for part in content)
        self.rows.append(Row(self.chunk, {"role": role, "content": content}))
        self.content = []


def encode(session: Session, /, as_: str = "items") -> tuple[Any, LossReport]:
    """Translate a session's transcript into input items; pure.

    Args:
        session: What to hand over.
        as_: ``items``: the list that ``Runner.run(agent, items)`` takes; ``state``: the JSON of the last paused run, for
            ``RunState.from_json(agent, ...)``; ``trace``: the entries of the trace export that it was read from.

    Returns:
        The items (or the JSON), and the report: losses, and the manifest of what each item stands for.

    Raises:
        UnsupportedError: Another form was asked for, or there is no paused run.
    """
    if as_ not in FORMS:
        raise UnsupportedError(f"openai_agents cannot encode a session as {as_!r}: use one of {', '.join(FORMS)}")
    if as_ == "state":
        return saved_state(session), LossReport()
    if as_ == "trace":
        from rath_openai_agents.export import home

        return home(session)
    losses: list[Loss] = []
    rows = _paired(rows_of(session, losses), session, losses)
    return [row.item for row in rows], LossReport(tuple(losses), _manifest(rows))


def dumps(native: Any, /) -> bytes:
    """Return items, a state or a trace as a file has them: with it, this adapter is a format (``rath-bridge import``, ``export``)."""
    from rath_bridge.interchange.natives import pretty

    return pretty(native)


def standing(session: Session) -> Iterator[tuple[ManifestEntry, ...]]:
    """Yield the lists that the whole transcript may look like when somebody hands it back: as recorded, and as it is encoded.

    They differ where a call is pending, or its id was used twice: a run that is resumed brings the answer itself.
    """
    rows = rows_of(session, [])
    yield _manifest(rows)
    yield _manifest(_paired(rows, session, []))


def rows_of(session: Session, losses: list[Loss], messages: Sequence[TranscriptMessage] | None = None) -> list[Row]:
    """Return every item of a transcript as it was recorded, with the message that it came from.

    Args:
        session: Whose transcript.
        losses: What cannot be held is added here.
        messages: The transcript, where the caller has it.
    """
    messages = session.messages() if messages is None else messages
    natives = _natives(session, messages)
    rows: list[Row] = []
    for one in messages:
        home = natives.get(one.id)
        rows += _translate(one, losses) if home is None else [Row(one.id, item) for item in home]
    return rows


def _manifest(rows: Sequence[Row]) -> tuple[ManifestEntry, ...]:
    return tuple(ManifestEntry(i, row.chunk, key(row.item)) for i, row in enumerate(rows))


def _natives(session: Session, messages: Sequence[TranscriptMessage]) -> dict[Digest, list[Item]]:
    """Read the native records of this SDK in one go."""
    wanted: dict[Digest, Digest] = {}
    for one in messages:
        ref = one.chunk.native_ref
        if ref is not None and ref["framework"] == FRAMEWORK and ref["codec"] == "json":
            wanted[one.id] = ref["digest"]
    if not wanted:
        return {}
    try:
        found = session.store.backend.objects(set(wanted.values()))
    except MissingObjectError:  # one was erased: read them one by one, and translate what is gone
        found = _those_left(session, set(wanted.values()))
    return {name: native_items(found[ref], f"chunk {name[:16]}") for name, ref in wanted.items() if ref in found}


def _those_left(session: Session, names: set[Digest]) -> dict[Digest, bytes]:
    left: dict[Digest, bytes] = {}
    for name in names:
        try:
            left.update(session.store.backend.objects([name]))
        except MissingObjectError:
            continue
    return left


# ------------------------------------------------------------------ foreign messages


def _translate(one: TranscriptMessage, losses: list[Loss]) -> list[Row]:
    away = _Away(one.id, losses)
    role = one.role
    if role == "tool":
        role = "user" if any(type(part) is TextPart for part in one.parts) else "tool"
        if role == "user":
            away.lost("role", "a tool's text that answers no call is handed over as a user message")
    elif role not in _ROLES:
        away.lost("role", f"the role {one.role!r} is handed over as 'user'")
        role = "user"
    if one.name is not None:
        away.lost("name", f"the speaker's name {one.name!r}: an item has no place for it")
    for i, part in enumerate(one.parts):
        _part(away, role, f"parts[{i}]", part)
    away.flush(role)
    if not away.rows and not one.parts:
        away.lost("parts", "an empty message: there is nothing to hand over")
    return away.rows


def _part(away: _Away, role: str, path: str, part: Part) -> None:
    if isinstance(part, TextPart):
        away.content.append({"type": "input_text", "text": part.content})
        if part.extra:
            away.lost(path, f"what stands beside the text: {', '.join(sorted(part.extra))}")
    elif isinstance(part, ToolCallPart):
        away.flush(role)
        call_id = part.id or f"call_{away.chunk[:16]}_{path[6:-1]}"
        if part.id is None:
            away.lost(f"{path}.id", f"a call without an id was given {call_id}")
        arguments = part.arguments if isinstance(part.arguments, str) else _json({} if part.arguments is None else part.arguments)
        name = fitting_name(part.name)
        if name != part.name:
            away.lost(f"{path}.name", f"the tool {part.name!r} has a name that is not allowed: {name!r}")
        call = {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
        away.rows.append(Row(away.chunk, call, foreign=True))
    elif isinstance(part, ToolCallResponsePart):
        away.flush(role)
        output = part.response if isinstance(part.response, str) else _json(part.response)
        if output is not part.response:
            away.lost(f"{path}.response", "a result that is no text: it stands as JSON")
        if part.extra.get("is_error") or part.extra.get("status") == "error":
            away.lost(path, "that the call failed: an output has no place for it")
        away.rows.append(Row(away.chunk, {"type": "function_call_output", "call_id": part.id, "output": output}))
    elif isinstance(part, BlobPart | FilePart | UriPart) and role in ("user", "system", "developer"):
        item = _media(part)
        if item is None:
            away.lost(path, f"{part.modality} as {part.type}: not an input of the Responses API")
        else:
            away.content.append(item)
    elif part.type == "reasoning":
        away.lost(path, "reasoning of another model or framework is not accepted as input")
    else:
        away.lost(path, f"a part of type {part.type!r} in a message of role {role!r}")


def _media(part: BlobPart | FilePart | UriPart) -> Item | None:
    kind, url = {"image": ("input_image", "image_url"), "document": ("input_file", "file_url")}.get(part.modality, ("", ""))
    if not kind:
        return None
    extra: Item = {"detail": part.extra.get("detail", "auto")} if kind == "input_image" else {}
    if isinstance(part, FilePart):
        return {"type": kind, "file_id": part.file_id, **extra}
    if isinstance(part, UriPart):
        return {"type": kind, url: part.uri, **extra}
    data = f"data:{part.mime_type or 'application/octet-stream'};base64,{b64encode(part.content).decode()}"
    if kind == "input_image":
        return {"type": kind, url: data, **extra}
    return {"type": kind, "file_data": data, "filename": str(part.extra.get("filename", "document"))}


def _json(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"), default=str)


# ------------------------------------------------------------------ calls


def _paired(rows: list[Row], session: Session, losses: list[Loss]) -> list[Row]:
    """Return the rows with every call answered once and every answer called for (law 8); call ids are unique."""
    kept: list[Row] = []
    open_calls: dict[str, int] = {}
    used: dict[str, str] = {}
    """Call id as it came to the id it has now."""
    taken: set[str] = set()
    for row in rows:
        kind = str(row.item.get("type"))
        call_id = row.item.get("call_id") or (row.item.get("id") if kind == "local_shell_call_output" else None)
        if kind in PAIRS:
            name = str(call_id or f"call_{row.chunk[:16]}_{len(kept)}")
            fit = fitting_id(name, RESPONSES_CALL_ID) if row.foreign else name
            fresh = _fresh(fit, taken)
            if fresh != call_id:
                why = "is in use" if fit == name else "is not one that the API takes"
                losses.append(Loss(row.chunk, "call_id", f"the call id {call_id!r} {why}; it is handed over as {fresh!r}"))
            used[name] = fresh
            taken.add(fresh)
            open_calls[fresh] = len(kept)
            kept.append(
                row if fresh == call_id else replace(row, item={**row.item, "call_id": fresh}, asked_as=str(call_id or ""))
            )
        elif kind in OUTPUTS and kind in PAIRS.values():
            name = used.get(str(call_id), str(call_id)) if call_id is not None else next(iter(open_calls), "")
            at = open_calls.get(name)
            if at is None or PAIRS[kept[at].item["type"]] != kind:
                losses.append(Loss(row.chunk, "call_id", f"an answer to {call_id!r}, which nobody called: left out"))
                continue
            del open_calls[name]
            same = call_id == name
            kept.append(row if same else replace(row, item={**row.item, "call_id": name}))
        else:
            kept.append(row)
    return _closed(kept, open_calls, session, losses) if open_calls else kept


def _fresh(name: str, taken: set[str]) -> str:
    fresh, number = name, 2
    while fresh in taken:
        fresh = f"{name}_{number}"
        number += 1
    return fresh


def _closed(rows: list[Row], open_calls: Mapping[str, int], session: Session, losses: list[Loss]) -> list[Row]:
    """Answer the open calls: with the result on record, else with a plain "no response"; other kinds of call are left out."""
    results = _results(session)
    waiting = {at: call_id for call_id, at in open_calls.items()}
    kept: list[Row] = []
    answers: list[Row] = []
    for at, row in enumerate(rows):
        if answers and row.chunk != answers[-1].chunk and row.item.get("type") not in OUTPUTS:
            kept += answers
            answers = []
        call_id = waiting.get(at)
        kind = row.item.get("type")
        if call_id is not None and kind not in _ANSWERABLE:
            losses.append(Loss(row.chunk, "call_id", f"the {kind} {call_id!r} has no answer: left out"))
            continue
        kept.append(row)
        if call_id is None:
            continue
        output = results.get((row.chunk, row.asked_as or call_id))
        if output is None:
            losses.append(Loss(row.chunk, "call_id", f"the call {call_id!r} is pending: closed with {NO_RESPONSE!r}"))
        answer = {"type": PAIRS[str(kind)], "call_id": call_id, "output": NO_RESPONSE if output is None else output}
        answers.append(replace(row, item=answer))
    return kept + answers


def _results(session: Session) -> dict[tuple[Digest, str], str]:
    """Return what ``tool_result`` chunks answer, by the message that asked and the call id."""
    chunks = {chunk.id: chunk for chunk in session.chunks() if chunk.kind == "tool_result"}
    found: dict[tuple[Digest, str], str] = {}
    for call in session.calls():
        if call.asked is None or call.result is None or call.status == "no_response":
            continue
        body = cast(ToolResult, chunks[call.result].body)
        value = body.error if body.result is None and body.error is not None else body.result
        found[call.asked, call.call_id] = value if isinstance(value, str) else _json(value)
    return found
