"""OTLP's JSON form to spans as values, with a path in every error; and spans back to OTLP's JSON form."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from rath_bridge.errors import DecodeError
from rath_bridge.otel.records import SpanRecord, nanoseconds
from rath_bridge.otel.vocabulary import Operation, read

PLACE: Final = "OTLP document"
KINDS: Final = ("", "internal", "server", "client", "producer", "consumer")
_HEX: Final = re.compile(r"[0-9a-fA-F]+\Z")
_MAX_DEPTH: Final = 100
_SIGNALS: Final = frozenset(
    f"resource{tail}" for tail in ("Spans", "Logs", "Metrics", "Profiles", "_spans", "_logs", "_metrics", "_profiles")
)
"""What a file of a collector may hold; of another signal than spans nothing is taken."""

Object = Mapping[str, Any]
Place = tuple[int, int, int, int]
"""Which document of the file, resource, scope and span."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """One span of a file."""

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    kind: str | None
    start: int
    """Microseconds since 1970."""
    end: int
    attributes: Mapping[str, Any]
    events: tuple[tuple[str, int, Mapping[str, Any]], ...]
    links: tuple[Mapping[str, Any], ...]
    error: str | None
    scope: str
    version: str
    resource: Mapping[str, Any]
    operation: Operation | None
    place: Place
    span: Object
    """As it stands in the file."""
    around: tuple[Object, Object]
    """Resource and scope as they stand in the file, without what they hold."""

    @property
    def key(self) -> tuple[str, str]:
        return self.trace_id, self.span_id


def given(obj: Object, name: str) -> Any:
    """A field by its JSON name, or by the name that protobuf has for it."""
    value = obj.get(name)
    return obj.get(re.sub(r"([A-Z])", lambda found: f"_{found[1].lower()}", name)) if value is None else value


def raw_spans(obj: Any) -> Iterator[Raw]:
    """Yield every span of a document, or of a list of documents, in file order.

    Raises:
        DecodeError: Something is not what OTLP says; the error names the path.
    """
    many = isinstance(obj, list)
    first = 0 if many and len(cast("list[Any]", obj)) == 1 else -1  # a file of one line may grow: its first stays where it stands
    for d, document in enumerate(cast("list[Any]", obj) if many else [obj]):
        top = f"[{d}]." if many else ""
        if isinstance(document, Mapping) and document and not any(map(_SIGNALS.__contains__, cast(Object, document))):
            raise DecodeError(
                PLACE,
                "an OTLP document has resourceSpans, and this is none: take it out, or leave --from out",
                f"[{d}]" if many else "",
            )
        for r, resource in enumerate(_list(given(_map(document, top or "."), "resourceSpans"), f"{top}resourceSpans")):
            path = f"{top}resourceSpans[{r}]"
            resource = _map(resource, path)
            about = attributes(given(_map(resource.get("resource") or {}, f"{path}.resource"), "attributes"), f"{path}.resource")
            for s, scope in enumerate(_list(given(resource, "scopeSpans"), f"{path}.scopeSpans")):
                here = f"{path}.scopeSpans[{s}]"
                scope = _map(scope, here)
                around = (_without(resource, "scopeSpans"), _without(scope, "spans"))
                named = _map(scope.get("scope") or {}, f"{here}.scope")
                for i, span in enumerate(_list(scope.get("spans"), f"{here}.spans")):
                    where = f"{here}.spans[{i}]"
                    try:
                        yield _raw(_map(span, where), where, named, about, (d or first, r, s, i), around)
                    except (TypeError, ValueError, KeyError, AttributeError, RecursionError, OverflowError) as error:
                        if isinstance(error, DecodeError):
                            raise
                        raise DecodeError(PLACE, f"not a span ({error!r:.120})", where) from error


def _without(obj: Object, name: str) -> Object:
    other = re.sub(r"([A-Z])", lambda found: f"_{found[1].lower()}", name)
    return {key: value for key, value in obj.items() if key not in (name, other)}


def _raw(span: Object, path: str, scope: Object, resource: Mapping[str, Any], place: Place, around: tuple[Object, Object]) -> Raw:
    start = _time(given(span, "startTimeUnixNano"), f"{path}.startTimeUnixNano")
    end = _time(given(span, "endTimeUnixNano"), f"{path}.endTimeUnixNano") or start
    name = _str(span.get("name"), f"{path}.name")
    found = attributes(span.get("attributes"), f"{path}.attributes")
    events = tuple(
        (
            _str(event.get("name"), f"{path}.events[{i}].name"), _time(given(event, "timeUnixNano"), f"{path}.events[{i}].timeUnixNano"),
            attributes(event.get("attributes"), f"{path}.events[{i}]"),
        )
        for i, event in enumerate(_map(one, f"{path}.events") for one in _list(span.get("events"), f"{path}.events"))
    )  # fmt: skip
    links = tuple(
        {
            "trace_id": _id(given(link, "traceId"), 32, f"{path}.links[{i}].traceId"),
            "span_id": _id(given(link, "spanId"), 16, f"{path}.links[{i}].spanId"),
            "attributes": attributes(link.get("attributes"), f"{path}.links[{i}]"),
        }
        for i, link in enumerate(_map(one, f"{path}.links") for one in _list(span.get("links"), f"{path}.links"))
    )
    status = _map(span.get("status") or {}, f"{path}.status")
    error = None
    if status.get("code") in (2, "2", "STATUS_CODE_ERROR"):
        error = str(status.get("message") or found.get("error.type") or "error")
    trace_id, span_id = _id(given(span, "traceId"), 32, f"{path}.traceId"), _id(given(span, "spanId"), 16, f"{path}.spanId")
    if trace_id is None or span_id is None:
        raise DecodeError(PLACE, "a span has a trace id and a span id", path)
    return Raw(
        trace_id=trace_id, span_id=span_id, parent_id=_id(given(span, "parentSpanId"), 16, f"{path}.parentSpanId"), name=name,
        kind=_kind(span.get("kind")), start=start, end=end, attributes=found, events=events, links=links, error=error,
        scope=_str(scope.get("name"), f"{path}.scope"), version=_str(scope.get("version"), f"{path}.scope"), resource=resource,
        operation=read(found, name, [(one, about) for one, _, about in events]), place=place, span=span, around=around,
    )  # fmt: skip


def _map(value: Any, path: str) -> Object:
    if not isinstance(value, Mapping):
        raise DecodeError(PLACE, f"an object stands here, not {value!r:.60}", path)
    return cast(Object, value)


def _list(value: Any, path: str) -> Sequence[Any]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise DecodeError(PLACE, f"a list stands here, not {value!r:.60}", path)
    return cast("list[Any]", value)


def _str(value: Any, path: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DecodeError(PLACE, f"text stands here, not {value!r:.60}", path)
    return value


def _time(value: Any, path: str) -> int:
    if value is None:
        return 0
    if isinstance(value, str) and len(value) < 21 and value.isascii() and value.isdecimal():
        value = int(value)
    if type(value) is not int or not 0 <= value < 2**64:
        raise DecodeError(PLACE, f"nanoseconds since 1970 stand here, not {value!r:.60}", path)
    return value // 1000


def _id(value: Any, size: int, path: str) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, str):
        if len(value) == size and _HEX.match(value):
            return value.lower() if int(value, 16) else None
        try:  # what protobuf's own JSON printer makes of bytes
            raw = b64decode(value, validate=True)
        except ValueError:
            raw = b""
        if len(raw) * 2 == size:
            return raw.hex() if any(raw) else None
    raise DecodeError(PLACE, f"{size} hexadecimal characters stand here, not {value!r:.60}", path)


def _kind(value: Any) -> str | None:
    if isinstance(value, str):
        name = value.removeprefix("SPAN_KIND_").lower()
        return name if name in KINDS[1:] else None
    return KINDS[value] or None if type(value) is int and 0 <= value < len(KINDS) else None


def attributes(value: Any, path: str) -> dict[str, Any]:
    """Return a list of key-value pairs as a map of plain values."""
    found: dict[str, Any] = {}
    for i, one in enumerate(_list(value, path)):
        pair = _map(one, f"{path}[{i}]")
        key = pair.get("key")
        if not isinstance(key, str):
            raise DecodeError(PLACE, f"a key is text, not {key!r:.60}", f"{path}[{i}].key")
        found[key] = _value(pair.get("value"), f"{path}[{i}].value", 0)
    return found


def _value(value: Any, path: str, depth: int) -> Any:
    if value is None:
        return None
    found = _map(value, path)
    if depth > _MAX_DEPTH:
        raise DecodeError(PLACE, f"nested deeper than {_MAX_DEPTH} levels", path)
    for name, content in found.items():
        if name in ("stringValue", "string_value"):
            return _str(content, path)
        if name in ("boolValue", "bool_value") and isinstance(content, bool):
            return content
        if name in ("intValue", "int_value") and not isinstance(content, bool | float):
            return int(content)
        if name in ("doubleValue", "double_value") and not isinstance(content, bool):
            return float(content)
        if name in ("bytesValue", "bytes_value"):
            return b64decode(str(content))
        if name in ("arrayValue", "array_value"):
            values = _list(_map(content, path).get("values"), path)
            return [_value(one, f"{path}[{i}]", depth + 1) for i, one in enumerate(values)]
        if name in ("kvlistValue", "kvlist_value"):
            pairs = [_map(one, path) for one in _list(_map(content, path).get("values"), path)]
            return {str(one.get("key")): _value(one.get("value"), path, depth + 1) for one in pairs}
        raise DecodeError(PLACE, f"not an attribute's value: {name}", path)
    return None


# ------------------------------------------------------------------ out


def any_value(value: Any) -> dict[str, Any]:
    """Return an attribute's value as OTLP writes it."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, str):
        return {"stringValue": value}
    return {"arrayValue": {"values": [any_value(one) for one in value]}}


def pairs(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return attributes as OTLP writes them."""
    return [{"key": name, "value": any_value(value)} for name, value in found.items()]


def span_json(record: SpanRecord) -> dict[str, Any]:
    """Return one of our spans as OTLP writes it."""
    found: dict[str, Any] = {"traceId": record.context.trace_id, "spanId": record.context.span_id}
    if record.context.parent_id is not None:
        found["parentSpanId"] = record.context.parent_id
    found |= {
        "name": record.name, "kind": KINDS.index(record.kind), "startTimeUnixNano": str(nanoseconds(record.start)),
        "endTimeUnixNano": str(nanoseconds(record.end)), "attributes": pairs(record.attributes),
    }  # fmt: skip
    if record.events:
        found["events"] = [
            {"timeUnixNano": str(nanoseconds(event.at)), "name": event.name, "attributes": pairs(event.attributes)}
            for event in record.events
        ]
    if record.links:
        found["links"] = [
            {"traceId": link.trace_id, "spanId": link.span_id, "attributes": pairs(link.attributes)} for link in record.links
        ]
    found["status"] = {} if record.error is None else {"code": 2, "message": record.error}
    return found
