"""What lies beside the record: its index entries, and its spans. Both are for other programs; both follow from chunks and store."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import astuple
from itertools import chain, islice
from typing import Any, Final, cast

import orjson

from rath_bridge.errors import RathError
from rath_bridge.model.chunk import Chunk, Key
from rath_bridge.model.digests import Digest, is_digest
from rath_bridge.session import Session
from rath_bridge.store.protocol import Reader

FIELDS: Final = ("framework", "native_id", "namespace", "key", "sub")
_SPANS: Final = 256
"""Spans on one line: one ``ExportTraceServiceRequest``, as a collector's file exporter writes them."""
_ODD: Final = (RathError, TypeError, ValueError, AttributeError, LookupError)
_WHOLE: Final = 20
"""Lines that are followed to their root; of further ones, only what is theirs alone."""


def index_lines(readers: Iterable[Reader], chunks: Collection[Digest]) -> Iterator[bytes]:
    """Yield every index entry that leads to one of these chunks: without them, a framework does not find its threads again."""
    for reader in readers:
        for key, name in reader.entries():
            if name in chunks:
                found = {field: _written(value) for field, value in zip(FIELDS, astuple(key), strict=True) if value}
                yield orjson.dumps({**found, "chunk": name}, option=orjson.OPT_SORT_KEYS)


def index_entry(line: bytes) -> tuple[Key, Digest]:
    """Read one line back.

    Raises:
        ValueError: It is no index entry.
    """
    value: Any = orjson.loads(line)
    fields = cast("dict[str, Any]", value) if type(value) is dict else {}
    found: list[Any] = [_read(fields.get(field, "")) for field in FIELDS]
    if not all(isinstance(one, str) for one in found) or not is_digest(fields.get("chunk")):
        raise ValueError("it is no index entry")
    return Key(*found), str(fields["chunk"])


def _written(text: str) -> Any:
    """A text as JSON holds it; one with surrogates as the format's own escape (``docs/format``)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return {"$rath": "surrogates", "v": b64encode(text.encode("utf-8", "surrogatepass")).decode()}
    return text


def _read(value: Any) -> Any:
    if type(value) is not dict:
        return value
    return b64decode(str(cast("dict[str, Any]", value).get("v")), validate=True).decode("utf-8", "surrogatepass")


def span_lines(lines: Sequence[Session]) -> Iterator[bytes]:
    """Yield the spans of some lines, without content, a batch on each line; what several lines share comes once."""
    from rath_bridge.interchange.natives import to_bytes
    from rath_bridge.interchange.otlp import resource_spans

    seen: set[tuple[str, str]] = set()
    for number, line in enumerate(lines):
        start = 0 if number < _WHOLE else _own(line, lines[0])
        found = _spans(line.store.backend.line(line.head, start), line, seen)
        while batch := list(islice(found, _SPANS)):
            group = resource_spans(())
            group["scopeSpans"][0]["spans"] = batch
            yield to_bytes({"resourceSpans": [group]})


def _spans(chunks: Iterable[Chunk], line: Session, seen: set[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """A line's spans as OTLP writes them. What a chunk holds that no span can is left out: the chunk itself is in the packet."""
    from rath_bridge.interchange.otlp_spans import span_json
    from rath_bridge.otel.export import OtherLines
    from rath_bridge.otel.fold import SpanFold

    fold = SpanFold(linked=OtherLines(line).find)
    for chunk in chain(chunks, (None,)):
        try:
            records = fold.rest() if chunk is None else fold.feed(chunk)
            found = [((one.context.trace_id, one.context.span_id), span_json(one)) for one in records]
        except _ODD:
            continue
        for place, span in found:
            if place not in seen:
                seen.add(place)
                yield span


def _own(line: Session, first: Session) -> int:
    """Where a line leaves the first one."""
    if line.store != first.store:
        return 0
    low, high = 0, min(line.position, first.position) + 1
    while low < high:
        middle = (low + high) // 2
        if [c.id for c in line[middle : middle + 1]] == [c.id for c in first[middle : middle + 1]]:
            low = middle + 1
        else:
            high = middle
    return low
