"""OTLP's protobuf form to its JSON form and back, without a protobuf library (source: opentelemetry-proto, ``trace.proto`` v1).

Only what a trace needs: the schema is a table, fields of later versions are passed over.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from rath_bridge.errors import DecodeError

MAX_DEPTH: Final = 100
_PLACE: Final = "an OTLP protobuf file"

_Field = tuple[str, str, bool]
"""JSON name; type (a message's name, or ``str hex bytes bool uint int enum fixed64 fixed32 double``); repeated."""

SCHEMA: Final[Mapping[str, Mapping[int, _Field]]] = {
    "TracesData": {1: ("resourceSpans", "ResourceSpans", True)},
    "ResourceSpans": {1: ("resource", "Resource", False), 2: ("scopeSpans", "ScopeSpans", True), 3: ("schemaUrl", "str", False)},
    "Resource": {1: ("attributes", "KeyValue", True), 2: ("droppedAttributesCount", "uint", False)},
    "ScopeSpans": {1: ("scope", "Scope", False), 2: ("spans", "Span", True), 3: ("schemaUrl", "str", False)},
    "Scope": {
        1: ("name", "str", False), 2: ("version", "str", False), 3: ("attributes", "KeyValue", True),
        4: ("droppedAttributesCount", "uint", False),
    },
    "Span": {
        1: ("traceId", "hex", False), 2: ("spanId", "hex", False), 3: ("traceState", "str", False), 4: ("parentSpanId", "hex", False),
        5: ("name", "str", False), 6: ("kind", "enum", False), 7: ("startTimeUnixNano", "fixed64", False),
        8: ("endTimeUnixNano", "fixed64", False), 9: ("attributes", "KeyValue", True), 10: ("droppedAttributesCount", "uint", False),
        11: ("events", "Event", True), 12: ("droppedEventsCount", "uint", False), 13: ("links", "Link", True),
        14: ("droppedLinksCount", "uint", False), 15: ("status", "Status", False), 16: ("flags", "fixed32", False),
    },
    "Event": {
        1: ("timeUnixNano", "fixed64", False), 2: ("name", "str", False), 3: ("attributes", "KeyValue", True),
        4: ("droppedAttributesCount", "uint", False),
    },
    "Link": {
        1: ("traceId", "hex", False), 2: ("spanId", "hex", False), 3: ("traceState", "str", False), 4: ("attributes", "KeyValue", True),
        5: ("droppedAttributesCount", "uint", False), 6: ("flags", "fixed32", False),
    },
    "Status": {2: ("message", "str", False), 3: ("code", "enum", False)},
    "KeyValue": {1: ("key", "str", False), 2: ("value", "AnyValue", False)},
    "AnyValue": {
        1: ("stringValue", "str", False), 2: ("boolValue", "bool", False), 3: ("intValue", "int", False),
        4: ("doubleValue", "double", False), 5: ("arrayValue", "ArrayValue", False), 6: ("kvlistValue", "KeyValueList", False),
        7: ("bytesValue", "bytes", False),
    },
    "ArrayValue": {1: ("values", "AnyValue", True)},
    "KeyValueList": {1: ("values", "KeyValue", True)},
}  # fmt: skip
_WIRE: Final = {"bool": 0, "uint": 0, "int": 0, "enum": 0, "fixed64": 1, "double": 1, "fixed32": 5}


def from_protobuf(data: bytes) -> dict[str, Any]:
    """Read an ``ExportTraceServiceRequest`` (or ``TracesData``) into OTLP's JSON form.

    Raises:
        DecodeError: It is none; the error names the path.
    """
    return _read(data, "TracesData", "", 0)


def to_protobuf(document: Mapping[str, Any]) -> bytes:
    """Write OTLP's JSON form as protobuf; keys that the schema does not have are left out.

    Raises:
        DecodeError: A value is not of its field's type.
    """
    return _write(document, "TracesData", "", 0)


def frames(data: bytes) -> Iterator[bytes]:
    """Yield the messages of a collector's file exporter (``format: proto``): each behind its length, 4 bytes, big-endian.

    Raises:
        DecodeError: The lengths do not fit.
    """
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        at += 4
        if at + size > len(data):
            raise DecodeError(_PLACE, f"a message of {size} bytes at {at} goes beyond the end")
        yield data[at : at + size]
        at += size


# ------------------------------------------------------------------ reading


def _read(data: bytes, kind: str, path: str, depth: int) -> dict[str, Any]:
    if depth > MAX_DEPTH:
        raise DecodeError(_PLACE, f"nested deeper than {MAX_DEPTH} levels", path)
    found: dict[str, Any] = {}
    for number, wire, value in _fields(data, path):
        field = SCHEMA[kind].get(number)
        if field is None:
            continue
        name, what, repeated = field
        here = f"{path}.{name}" if path else name
        if wire != _WIRE.get(what, 2):
            raise DecodeError(_PLACE, f"wire type {wire} where {what} is expected", here)
        read = _read(value, what, here, depth + 1) if what in SCHEMA else _scalar(value, what, here)
        if repeated:
            found.setdefault(name, []).append(read)
        else:
            found[name] = read
    return found


def _fields(data: bytes, path: str) -> Iterator[tuple[int, int, Any]]:
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at, path)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise DecodeError(_PLACE, "a field without a number", path)
        if wire == 0:
            value, at = _varint(data, at, path)
            yield number, wire, value
            continue
        size = 8 if wire == 1 else 4 if wire == 5 else None
        if wire == 2:
            size, at = _varint(data, at, path)
        if size is None or at + size > end:
            raise DecodeError(_PLACE, f"wire type {wire} or its length does not fit", path)
        yield number, wire, data[at : at + size]
        at += size


def _varint(data: bytes, at: int, path: str) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
    raise DecodeError(_PLACE, "a number that does not end", path)


def _scalar(value: Any, what: str, path: str) -> Any:
    if what == "str":
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise DecodeError(_PLACE, "text that is not UTF-8", path) from error
    if what == "hex":
        return value.hex()
    if what == "bytes":
        return b64encode(value).decode()
    if what == "bool":
        return value != 0
    if what == "int":
        return str(value - (1 << 64) if value >> 63 else value)
    if what == "fixed64":
        return str(int.from_bytes(value, "little"))
    if what == "fixed32":
        return int.from_bytes(value, "little")
    return struct.unpack("<d", value)[0] if what == "double" else value


# ------------------------------------------------------------------ writing


def _write(value: Any, kind: str, path: str, depth: int) -> bytes:
    if depth > MAX_DEPTH:
        raise DecodeError("an OTLP document", f"nested deeper than {MAX_DEPTH} levels", path)
    if not isinstance(value, Mapping):
        raise DecodeError("an OTLP document", f"an object stands here, not {value!r:.40}", path)
    out = bytearray()
    for number, (name, what, repeated) in SCHEMA[kind].items():
        given: Any = cast("Mapping[str, Any]", value).get(name)
        if given is None:
            continue
        here = f"{path}.{name}" if path else name
        if repeated and not isinstance(given, list):
            raise DecodeError("an OTLP document", f"a list stands here, not {given!r:.40}", here)
        ones: list[Any] = [*given] if repeated else [given]  # pyright: ignore[reportUnknownArgumentType]
        for one in ones:
            try:
                data = _write(one, what, here, depth + 1) if what in SCHEMA else _packed(one, what)
            except (TypeError, ValueError, AttributeError, struct.error, OverflowError) as error:
                if isinstance(error, DecodeError):
                    raise
                raise DecodeError("an OTLP document", f"{one!r:.40} is no {what}", here) from error
            wire = _WIRE.get(what, 2)
            out += _number(number << 3 | wire) + (_number(len(data)) if wire == 2 else b"") + data
    return bytes(out)


def _packed(value: Any, what: str) -> bytes:
    if what == "str":
        return value.encode()
    if what == "hex":
        return bytes.fromhex(value)
    if what == "bytes":
        return b64decode(value, validate=True)
    if what == "double":
        return struct.pack("<d", value)
    number = int(value)
    if what == "fixed64":
        return number.to_bytes(8, "little")
    return number.to_bytes(4, "little") if what == "fixed32" else _number(number & 0xFFFF_FFFF_FFFF_FFFF)


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
