"""Facts of a chunk as their columns have them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from rath_bridge.errors import DecodeError, MissingChunkError
from rath_bridge.model.chunk import SpanContext, parse_envelope
from rath_bridge.model.digests import Digest

_HEX: Final = re.compile(r"[0-9a-f]{48}(?:[0-9a-f]{16})?\Z")


def raw_id(name: Digest) -> bytes:
    try:
        return bytes.fromhex(name)
    except (ValueError, TypeError):
        raise MissingChunkError(str(name)) from None


def merged_column(parents: Sequence[Digest]) -> bytes:
    """The parents behind the first one, as their column has them."""
    return bytes.fromhex("".join(parents[1:]))


def span_column(span: SpanContext) -> bytes | None:
    """The ids of a span as their column has them; None where it cannot hold them, and the envelope is kept whole."""
    text = f"{span.trace_id}{span.span_id}{span.parent_id or ''}"
    if _HEX.match(text) and len(span.trace_id) == 32 and len(span.span_id) == 16:
        return bytes.fromhex(text)
    return None


def span_of(data: Any) -> SpanContext | None:
    if data is None:
        return None
    text = bytes(data).hex()
    return SpanContext(text[:32], text[32:48], text[48:64] or None)


def span_told(data: Any, raw: bytes) -> SpanContext | None:
    """The span of a chunk whose envelope is kept whole: where the column holds none, as the envelope says."""
    if data is not None:
        return span_of(data)
    try:
        return parse_envelope(raw, None).span
    except DecodeError:
        return None  # damaged: it does not hash to its name either
