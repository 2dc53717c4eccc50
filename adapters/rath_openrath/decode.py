"""OpenRath's session files, lineage exports and live sessions -> chunks.

A header is a ``note`` (and a ``placement``, where it names a sandbox), a chunk row a ``message``, a trailer with usage one
``inference`` that stands for all calls of the session: OpenRath keeps no more of them. Every record goes along as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any, Final, cast

from rath_bridge.interchange import shapes
from rath_bridge.interchange.natives import record
from rath_bridge.interchange.openai_messages import message
from rath_bridge.model.chunk import Draft, draft
from rath_bridge.model.kinds import Body, Inference, Message, Note, Placement, Usage
from rath_bridge.model.parts import ToolCallResponsePart
from rath_openrath.records import FRAMEWORK, KINDS, are_records, are_rows, attempts, is_live, live_records

_PLACE: Final = "OpenRath session"


def version() -> str:
    """Return the installed version of OpenRath; ``unknown`` without it (files can be read all the same)."""
    try:
        return metadata.version("openrath")
    except metadata.PackageNotFoundError:
        return "unknown"


def recognises(obj: Any, /) -> bool:
    """Tell a live session, the records of a session file, or the rows of a lineage export; imports nothing."""
    return is_live(obj) or are_records(obj) or are_rows(obj)


def documents(obj: Any) -> Iterable[tuple[str | None, Any]]:
    """A session file is one session, named by its id; a lineage export is one session of notes."""
    if are_records(obj):
        first, _ = attempts(obj)
        found = obj[first].get("id")
        return [(found if isinstance(found, str) else None, obj)]
    return [(str(obj.id) if is_live(obj) else None, obj)]


def decode(obj: Any, /) -> Sequence[Draft]:
    """Translate a session file's records, a lineage export's rows, or a live ``rath.Session``.

    Raises:
        DecodeError: A record is not what OpenRath writes; the error names the path.
    """
    if is_live(obj):
        return list(_session(live_records(obj), "live"))
    records = shapes.rows(obj, _PLACE, "")
    if are_rows(records):
        return [_row(one, f"[{number}]") for number, one in enumerate(records)]
    for number, one in enumerate(records):
        shapes.text(shapes.table(one, _PLACE, f"[{number}]").get("record_type"), _PLACE, f"[{number}].record_type")
    return list(_session(records, "file"))


def _draft(body: Body, codec: str | None = None, value: Any = None, at: int | None = None) -> Draft:
    known = version()
    origin = {"adapter": "rath_openrath", "framework": FRAMEWORK, "version": known}
    return draft(body, origin=origin, at=at, native=None if codec is None else record(FRAMEWORK, known, codec, value, _PLACE))


def _row(one: Any, path: str) -> Draft:
    found = shapes.table(one, _PLACE, path)
    text = f"OpenRath session {found.get('id')}: {found.get('lineage_operator')}, {found.get('chunk_count')} chunks"
    return _draft(Note(text=text, attributes=dict(found)), "lineage", one)


def _session(records: Sequence[Any], source: str) -> Iterator[Draft]:
    entries = [shapes.table(one, _PLACE, f"[{number}]") for number, one in enumerate(records)]
    start, end = attempts(entries)
    at = shapes.moment(entries[start].get("created_at")) if entries else None
    for number, one in enumerate(entries):
        path = f"[{number}]"
        kind = one.get("record_type")
        if not start <= number < end:
            text = f"an abandoned attempt to write this session: {kind} {one.get('index', '')}".rstrip()
            yield _draft(Note(text=text), "abandoned", one, at)
        elif kind == "header":
            yield from _header(one, path, source, at)
        elif kind == "chunk":
            yield _chunk(one, path, at)
        else:
            yield _trailer(one, path)


def _header(one: Mapping[str, Any], path: str, source: str, at: int | None) -> Iterator[Draft]:
    facts = {
        name: value for name, value in one.items() if name not in ("record_type", "schema_version") and value not in (None, [])
    }
    yield _draft(Note(text=f"OpenRath session ({source})", attributes=facts), "header", one, at)
    backend = shapes.text_or_none(one.get("sandbox_backend"), _PLACE, f"{path}.sandbox_backend")
    if backend is not None:
        spec = shapes.table(one.get("sandbox_spec") or {}, _PLACE, f"{path}.sandbox_spec")
        root = shapes.text_or_none(spec.get("working_dir"), _PLACE, f"{path}.sandbox_spec.working_dir")
        yield _draft(Placement(backend=backend, root=root, spec={k: v for k, v in spec.items() if v is not None}), at=at)


def _chunk(one: Mapping[str, Any], path: str, at: int | None) -> Draft:
    kind = shapes.text(one.get("kind"), _PLACE, f"{path}.kind")
    payload = shapes.table(one.get("payload"), _PLACE, f"{path}.payload")
    role = KINDS.get(kind)
    if role is None:
        return _draft(Note(text=f"a chunk of the kind {kind!r}", attributes=dict(payload)), "row", one, at)
    if role == "tool":
        call_id = shapes.text_or_none(payload.get("tool_call_id"), _PLACE, f"{path}.payload.tool_call_id")
        called = shapes.text_or_none(payload.get("name"), _PLACE, f"{path}.payload.name")
        answer = Message(role=role, parts=(ToolCallResponsePart(call_id, payload.get("content")),), name=called)
        return _draft(answer, "row", one, at)
    return _draft(message({**payload, "role": role}, _PLACE, f"{path}.payload"), "row", one, at)


def _trailer(one: Mapping[str, Any], path: str) -> Draft:
    at = shapes.moment(one.get("closed_at"))
    usage = one.get("cumulative_usage")
    if usage is None:
        return _draft(Note(text="OpenRath closed this session"), "trailer", one, at)
    found = shapes.table(usage, _PLACE, f"{path}.cumulative_usage")
    details: Any = found.get("prompt_tokens_details")
    cached = cast("Mapping[str, Any]", details).get("cached_tokens") if isinstance(details, Mapping) else None
    total = Usage(
        input_tokens=shapes.number(found.get("prompt_tokens")), output_tokens=shapes.number(found.get("completion_tokens")),
        cache_read_input_tokens=shapes.number(cached),
    )  # fmt: skip
    return _draft(
        Inference(observer="callback", usage=total, attributes={"stands_for": "every call of the session"}), "trailer", one, at
    )
