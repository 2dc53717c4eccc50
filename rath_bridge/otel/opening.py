"""Spans that begin and end: their ids, what each says of where it stands, their links; pure and without OpenTelemetry.

Ids are those of the envelope. Where an envelope has none, or another span has taken its id, the id is the beginning of the chunk's
digest: the same at every export. Times are the chunks' own; a chunk that tells a duration began that long before it was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from rath_bridge.model.chunk import Chunk, SpanContext
from rath_bridge.model.digests import Digest, digest
from rath_bridge.otel import attributes as make
from rath_bridge.otel import names as n
from rath_bridge.otel.records import SpanEvent, SpanKind, SpanLink, SpanRecord, attribute, clean

_HEX: Final = {16: re.compile(r"(?!0+\Z)[0-9a-f]{16}\Z"), 32: re.compile(r"(?!0+\Z)[0-9a-f]{32}\Z")}

Linked = Callable[[Digest], SpanContext | None]
"""Finds the span under which a chunk of another line stands."""


@dataclass(slots=True)
class OpenSpan:
    """A span that has begun."""

    chunk: Chunk
    context: SpanContext
    name: str
    kind: SpanKind
    found: dict[str, Any]
    run: str | None = None
    above: OpenSpan | None = None
    type: str | None = None
    replayed: bool = False
    elsewhere: bool = False
    """It began on the line that this one forked off."""
    last: int = 0
    position: int = 0
    checkpoints: int = 0
    events: list[SpanEvent] = field(default_factory=list[SpanEvent])
    links: tuple[SpanLink, ...] = ()
    said: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


class OpenSpans:
    """Begins and ends the spans of a line."""

    def __init__(self, linked: Linked | None) -> None:
        """Begin a line.

        Args:
            linked: Finds spans of other lines.
        """
        self._linked = linked
        self._taken: set[tuple[str, str]] = set()
        self._conversation, self._line, self._trace = "", "", ""
        self._stands: dict[Digest, SpanContext] = {}

    def stands(self, chunk: Digest) -> SpanContext | None:
        """Return the span of a chunk of this line that a link may point at."""
        return self._stands.get(chunk)

    def _context(self, chunk: Chunk, run: OpenSpan | None, *, own: bool) -> SpanContext:
        given = chunk.span if own else None
        if given is not None:
            given = SpanContext(
                hex_id(given.trace_id, 32), hex_id(given.span_id, 16), given.parent_id and hex_id(given.parent_id, 16)
            )
            if (given.trace_id, given.span_id) in self._taken:
                given = SpanContext(given.trace_id, hex_id(chunk.id[:16], 16), given.span_id)
        elif run is not None:
            given = SpanContext(run.context.trace_id, hex_id(chunk.id[:16], 16), run.context.span_id)
        else:
            given = SpanContext(self._trace or hex_id(chunk.id[:32], 32), hex_id(chunk.id[:16], 16))
        while (given.trace_id, given.span_id) in self._taken:  # two answers in one message
            given = SpanContext(given.trace_id, digest(given.span_id.encode())[:16], given.parent_id)
        self._taken.add((given.trace_id, given.span_id))
        return given

    def _begin(
        self, chunk: Chunk, under: OpenSpan | None, name: str, kind: SpanKind, found: dict[str, Any], *,
        own: bool = True, **more: Any,
    ) -> OpenSpan:  # fmt: skip
        found[n.CONVERSATION], found[n.SESSION], found[n.CHUNK] = self._conversation, self._line, chunk.id
        if chunk.run is not None:
            found[n.RUN] = chunk.run
        if chunk.origin is not None:
            make.put(found, n.FRAMEWORK, orjson.loads(chunk.origin).get("framework"))
        if chunk.body_bytes is None:
            found[n.ERASED] = True
        opened = OpenSpan(
            chunk, self._context(chunk, under, own=own), name, kind, found, last=chunk.at, position=chunk.position, **more
        )
        self._stands[chunk.id] = opened.context
        return opened

    def _close(self, span: OpenSpan, end: int, position: int, error: str | None, start: int | None = None) -> SpanRecord:
        start = span.chunk.at if start is None else start
        if span.checkpoints:
            span.found["rath.checkpoints"] = span.checkpoints
        return SpanRecord(
            context=span.context, name=attribute(span.name), kind=span.kind, start=min(start, end), end=max(start, end),
            attributes=clean(span.found), events=tuple(span.events), links=span.links, error=error and attribute(error),
            chunk=span.chunk.id, position=position,
        )  # fmt: skip

    def _moment(
        self, chunk: Chunk, run: OpenSpan | None, made: tuple[str, SpanKind, dict[str, Any]], duration: float | None = None,
        error: str | None = None, links: tuple[SpanLink, ...] = (),
    ) -> list[SpanRecord]:  # fmt: skip
        span = self._begin(chunk, run, *made, links=links)
        began = chunk.at - round(duration * 1e6) if isinstance(duration, int | float) and 0 <= duration < 1e9 else chunk.at
        return [self._close(span, chunk.at, chunk.position, error, began)]

    def _mark(self, span: OpenSpan, replayed: bool) -> None:
        """What is served from the record is never shown as executed: it has no operation, and another name."""
        if replayed:
            span.found[n.REPLAYED] = True
            operation = span.found.pop(n.OPERATION, None)
            if operation is not None:
                span.found["rath.replayed.operation"] = operation
            for name in (n.INPUT_TOKENS, n.OUTPUT_TOKENS, n.CACHE_READ, n.CACHE_CREATION, n.REASONING_TOKENS, n.COST):
                span.found.pop(name, None)
            span.name, span.kind = f"replay {span.name}", "internal"

    def _link(self, what: str, target: Digest | None, session: str | None) -> tuple[SpanLink, ...]:
        """A link to the span under which a chunk stands: on this line, else on another."""
        context = None if target is None else self._stands.get(target) or (self._linked(target) if self._linked else None)
        if context is None:
            return ()
        found: dict[str, Any] = {n.LINK: what, n.CHUNK: target}
        make.put(found, n.LINKED_SESSION, session)
        return (SpanLink(hex_id(context.trace_id, 32), hex_id(context.span_id, 16), found),)


def hex_id(text: str, size: int) -> str:
    """Return an id that OpenTelemetry takes: ``text`` itself where it is one."""
    return text if _HEX[size].match(text) else digest(text.encode())[:size]
