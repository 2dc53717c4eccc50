"""A span as a value: what the fold makes of chunks, and what the SDK, OTLP files and metrics take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rath_bridge.model.chunk import SpanContext
from rath_bridge.model.digests import Digest
from rath_bridge.model.encoding import BlobRef

SpanKind = Literal["internal", "server", "client", "producer", "consumer"]
Attributes = Mapping[str, Any]
"""Texts, booleans, numbers, and lists of one of them: what an OpenTelemetry attribute holds."""


@dataclass(frozen=True, slots=True)
class SpanLink:
    """A causal tie to a span of another line; what it is stands in ``rath.link``."""

    trace_id: str
    span_id: str
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened at a moment inside a span."""

    name: str
    at: int
    """Microseconds since 1970."""
    attributes: Attributes = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRecord:
    """One finished span."""

    context: SpanContext
    """Ids of the envelope; where it has none, made from the chunk's own digest: the same at every export."""
    name: str
    kind: SpanKind = "internal"
    start: int
    """Microseconds since 1970."""
    end: int
    attributes: Attributes
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanLink, ...] = ()
    error: str | None = None
    """What went wrong; None is no error (an interrupt or a cancelled run is none)."""
    chunk: Digest
    """The chunk that began it."""
    position: int
    """Where on the line the chunk stands that ended it."""


def nanoseconds(at: int) -> int:
    """Return a moment (microseconds since 1970) as OpenTelemetry holds it: nanoseconds without a sign, in 64 bits.

    One span outside of that costs an exporter the whole batch, so the years before 1970 and behind 2554 are told as the nearest moment.
    """
    return min(max(0, at) * 1000, 2**64 - 1)


def clean(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return attributes with nothing in them that no exporter can write (halves of surrogate pairs, references to long texts)."""
    for name, value in found.items():
        kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
        if not name.isascii() or (not value.isascii() if kind is str else kind not in (bool, int, float, list)):
            return {attribute(name): attribute(value) for name, value in found.items()}
    return found


def attribute(value: Any) -> Any:
    """Return a value as an attribute holds it; what it cannot hold becomes JSON text."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, float | bool):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)
    if isinstance(value, list | tuple):
        items: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        kinds: set[Any] = {type(item) for item in items}
        if len(kinds) <= 1 and kinds <= {str, bool, int, float} and all(attribute(item) == item for item in items):
            return items
    if isinstance(value, BlobRef):
        return value.digest[:16]
    from rath_bridge.otel.content import json_text

    return json_text(value)
