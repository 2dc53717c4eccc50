"""What lies beside the record: its index entries, and its spans. Both are for other programs; both follow from chunks and store."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import astuple
from itertools import islice
from typing import Any, Final, cast

import orjson

from rath_bridge.model.chunk import Key
from rath_bridge.model.digests import Digest, is_digest
from rath_bridge.session import Session
from rath_bridge.store.protocol import Reader

FIELDS: Final = ("framework", "native_id", "namespace", "key", "sub")
_SPANS: Final = 256
"""Spans on one line: one ``ExportTraceServiceRequest``, as a collector's file exporter writes them."""
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
    from rath_bridge.interchange.otlp import resource_spans
    from rath_bridge.otel.export import OtherLines
    from rath_bridge.otel.fold import spans

    seen: set[tuple[str, str]] = set()
    for number, line in enumerate(lines):
        start = 0 if number < _WHOLE else _own(line, lines[0])
        chunks = line.store.backend.line(line.head, start)
        records = (
            record for record in spans(chunks, linked=OtherLines(line).find)
            if (place := (record.context.trace_id, record.context.span_id)) not in seen and not seen.add(place)
        )  # fmt: skip
        while batch := list(islice(records, _SPANS)):
            yield orjson.dumps({"resourceSpans": [resource_spans(batch)]})


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
