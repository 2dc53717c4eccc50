"""OTLP traces, in and out: JSON, a collector's file exporter (one document a line), protobuf.

In: both the GenAI and the OpenInference vocabulary (`rath_bridge.otel.vocabulary`), old and new names. Agents and workflows become runs,
model calls ``inference`` with the messages that are new, tools ``tool_call`` and ``tool_result``; any other span stays a ``span``. Each
chunk keeps its span as it stood, so that the file goes home exactly. Out: what `rath_bridge.otel` writes, content included.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

import orjson

from rath_bridge.errors import DecodeError
from rath_bridge.interchange.formats import CUT
from rath_bridge.interchange.natives import from_bytes, to_bytes
from rath_bridge.interchange.otlp_chunks import FRAMEWORK, drafts
from rath_bridge.interchange.otlp_spans import PLACE, Raw, given, pairs, raw_spans, span_json
from rath_bridge.interchange.otlp_wire import frames, from_protobuf, to_protobuf
from rath_bridge.model.chunk import Chunk, Draft
from rath_bridge.model.kinds import Gap, Message, SessionStart
from rath_bridge.model.report import Loss, LossReport
from rath_bridge.otel import content as words
from rath_bridge.otel import names as n
from rath_bridge.otel.export import session_spans
from rath_bridge.otel.records import SpanRecord
from rath_bridge.otel.values import listed, mapping
from rath_bridge.session import Session

name: Final = "otlp"
suffix: Final = ".json"
_SPANLESS: Final = frozenset({"task", "placement", "workspace", "redaction", "note", "checkpoint", "compaction"})
"""Kinds of which a trace tells nothing, or only that they happened."""


def recognises(obj: Any, /) -> bool:
    """Tell a document (or a list of them) by its ``resourceSpans``; a collector may have written logs and metrics before it."""
    if isinstance(obj, bytes):
        return loads(obj) is not None
    return any(isinstance(given(mapping(one), "resourceSpans"), list) for one in listed(obj) or (obj,))


def loads(data: bytes) -> Any:
    """Read protobuf: one request, or the framed ones of a file exporter; None where the bytes are no spans."""
    if data[:1] in (b"", b"{", b"[") or data[:3] == b"\xef\xbb\xbf":
        return None
    try:
        found = from_protobuf(data)
        return found if _holds_spans(found) else None
    except DecodeError:
        pass
    try:
        many = [from_protobuf(one) for one in frames(data)]
    except DecodeError:
        return None
    return many if many and all(map(_holds_spans, many)) else None


def _holds_spans(document: Mapping[str, Any]) -> bool:
    ids = [
        span.get("traceId", "")
        for resource in document.get("resourceSpans", ())
        for scope in resource.get("scopeSpans", ())
        for span in scope.get("spans", ())
    ]
    return bool(ids) and all(len(one) == 32 for one in ids)


def documents(obj: Any) -> Iterable[tuple[str | None, Any]]:
    """Split by conversation: traces of one ``gen_ai.conversation.id`` belong together; any other trace of an agent is alone.

    Traces that tell of no agent at all are one document.
    """
    spans = list(raw_spans(obj))
    names: dict[str, str | None] = {}
    for raw in spans:
        told = raw.operation.conversation if raw.operation is not None else None
        told = told or _conversation(raw)
        if told is not None:
            names[raw.trace_id] = names.get(raw.trace_id) or told
        elif raw.operation is not None:
            names.setdefault(raw.trace_id, None)
    groups: dict[str | None, set[str]] = {}
    for raw in spans:
        group = (names[raw.trace_id] or raw.trace_id) if raw.trace_id in names else None
        groups.setdefault(group, set()).add(raw.trace_id)
    if len(groups) <= 1:
        return [(next(iter(groups), None), obj)]
    return [(group, _rebuilt([_row(raw) for raw in spans if raw.trace_id in traces])) for group, traces in groups.items()]


def _conversation(raw: Raw) -> str | None:
    found = n.renamed(raw.attributes).get(n.CONVERSATION)
    return found if isinstance(found, str) and found else None


def decode(obj: Any, /) -> Sequence[Draft]:
    """Translate a document into chunks, in the order in which things happened; pure.

    Args:
        obj: Parsed JSON, a list of documents, or protobuf bytes.

    Raises:
        DecodeError: Something is not what OTLP says; the error names the path.
    """
    if isinstance(obj, bytes):
        found = loads(obj)
        if found is None:
            raise DecodeError(PLACE, "these bytes are no OTLP spans")
        obj = found
    try:
        return drafts(list(raw_spans(obj)))
    except RecursionError as error:
        raise DecodeError(PLACE, "nested too deeply") from error


_Row = tuple[tuple[int, int, int, int], Mapping[str, Any], Mapping[str, Any] | None, Mapping[str, Any] | None]
"""Place, span, resource, scope."""


def _row(raw: Raw) -> _Row:
    return raw.place, raw.span, raw.around[0], raw.around[1]


def _rebuilt(rows: Iterable[_Row]) -> Any:
    """Put spans back where they stood, under the resources and scopes that they stood under."""
    files: dict[int, dict[int, dict[str, Any]]] = {}
    scopes: dict[tuple[int, int, int], dict[str, Any]] = {}
    heads: dict[tuple[int, ...], Mapping[str, Any]] = {}
    rows = sorted(rows, key=lambda row: row[0])
    for (d, r, s, _), _, resource, scope in rows:
        if resource is not None:
            heads.setdefault((d, r), resource)
        if scope is not None:
            heads.setdefault((d, r, s), scope)
    for (d, r, s, _), span, _, _ in rows:
        resources = files.setdefault(d, {})
        if r not in resources:
            resources[r] = {**heads.get((d, r), {}), "scopeSpans": []}
        if (d, r, s) not in scopes:
            scopes[d, r, s] = {**heads.get((d, r, s), {}), "spans": []}
            resources[r]["scopeSpans"].append(scopes[d, r, s])
        scopes[d, r, s]["spans"].append(span)
    found = [{"resourceSpans": list(resources.values())} for _, resources in sorted(files.items())]
    return found[0] if set(files) == {-1} else found


def encode(session: Session, /) -> tuple[Any, LossReport]:
    """Translate a session into one document; spans that came from OTLP go home as they stood, in their place.

    Returns:
        The document (a list of them, where the file was one), and which chunks a trace cannot hold.
    """
    rows: list[_Row] = []
    others: list[Chunk] = []
    for chunk in session.chunks():
        ref = chunk.native_ref if chunk.body_bytes is not None else None
        native = chunk.native if ref is not None and ref["framework"] == FRAMEWORK else None
        if native is not None:
            kept = from_bytes(native.data)
            rows += [
                (tuple(one["at"]), one["span"], one.get("resource"), one.get("scope")) for one in (kept, *kept.get("again", ()))
            ]
        elif not _from_otlp(chunk):
            others.append(chunk)
    ours = {chunk.id for chunk in others if not (rows and _of_import(chunk))}
    records = [record for record in session_spans(session, content=True) if record.chunk in ours]
    document: Any = _rebuilt(rows) if rows else {"resourceSpans": []}
    if records:
        target: Any = (listed(document) or [document])[-1]
        target["resourceSpans"].append(resource_spans(records))
    return document, LossReport(tuple(_losses(others, records)))


def _of_import(chunk: Chunk) -> bool:
    """Whether a chunk only tells that a file came in: it is no part of what the file says."""
    if chunk.body_bytes is None:
        return False
    if chunk.kind == "gap":
        return cast(Gap, chunk.body).reason == CUT
    if chunk.kind != "session":
        return False
    body = cast(SessionStart, chunk.body)
    return body.op == "import" or (body.op == "fork" and str(body.reason).startswith("import of "))


def _from_otlp(chunk: Chunk) -> bool:
    return chunk.origin is not None and orjson.loads(chunk.origin).get("adapter") == FRAMEWORK


def resource_spans(records: Sequence[SpanRecord]) -> dict[str, Any]:
    """Return spans of ours as one ``ResourceSpans`` of OTLP."""
    from rath_bridge import __version__

    scope = {
        "scope": {"name": n.SCOPE, "version": __version__},
        "spans": [span_json(one) for one in records],
        "schemaUrl": n.SCHEMA_URL,
    }
    return {"resource": {"attributes": pairs({"service.name": n.SCOPE})}, "scopeSpans": [scope]}


def _losses(chunks: Sequence[Chunk], records: Sequence[SpanRecord]) -> Iterable[Loss]:
    """What no span tells: kinds without one, and messages that no model call read or said."""
    told: set[str] = set()
    for record in records:
        for key in (n.INPUT_MESSAGES, n.OUTPUT_MESSAGES):
            for message in json.loads(record.attributes.get(key, "[]")):  # halves of surrogate pairs are escaped in it
                told.add(words.json_text([message.get("role"), message.get("parts")]))
    for chunk in chunks:
        if chunk.kind in _SPANLESS:
            yield Loss(chunk.id, chunk.kind, "a trace has no place for its content")
        elif chunk.kind == "message" and chunk.body_bytes is not None:
            body = cast(Message, chunk.body)
            found = words.message(body)
            if words.json_text([found["role"], found["parts"]]) not in told:
                yield Loss(chunk.id, "parts", "no model call on record read or said this message")


def dumps(native: Any, /) -> bytes:
    """JSON; a list of documents is one a line, as a collector's file exporter writes them."""
    if isinstance(native, list):
        return b"".join(to_bytes(one) + b"\n" for one in cast("list[Any]", native))
    return to_bytes(native) + b"\n"


def dumps_protobuf(native: Any, /) -> bytes:
    """Protobuf, as an OTLP endpoint takes it (``ExportTraceServiceRequest``)."""
    many = cast("list[Any]", native) if isinstance(native, list) else [native]
    return b"".join(to_protobuf(one) for one in many)  # messages of one type, put together, are one message
