"""The standard environment variables that ask for content (source: ``opentelemetry-util-genai``)."""

from __future__ import annotations

import os
from typing import Final

CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
EMIT_EVENT: Final = "OTEL_INSTRUMENTATION_GENAI_EMIT_EVENT"
_TRUE: Final = ("true", "1", "yes")


def content_on_spans() -> bool:
    """Tell whether spans carry messages, arguments and results; ``NO_CONTENT`` is the default, ``true`` the older spelling."""
    return os.environ.get(CAPTURE, "").strip().lower() in ("span_only", "span_and_event", *_TRUE)


def content_on_events() -> bool:
    """Tell whether events carry content."""
    return os.environ.get(CAPTURE, "").strip().lower() in ("event_only", "span_and_event")


def events_wanted() -> bool:
    """Tell whether events are emitted: asked for, or implied by content on them."""
    asked = os.environ.get(EMIT_EVENT, "").strip().lower()
    return asked in _TRUE or (asked == "" and content_on_events())
