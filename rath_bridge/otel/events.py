"""The event ``gen_ai.client.inference.operation.details``: a model call's content on the log signal, apart from its span."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rath_bridge.otel import names as n
from rath_bridge.otel import switches
from rath_bridge.otel.records import SpanRecord, nanoseconds
from rath_bridge.plugins import require

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider

DETAILS: Final = "gen_ai.client.inference.operation.details"


class InferenceEvents:
    """Writes one event for each model call, in the context of its span."""

    def __init__(self, logger_provider: LoggerProvider) -> None:
        """Write to a provider; content as ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`` says (``EVENT_ONLY``, ``SPAN_AND_EVENT``).

        Raises:
            MissingExtraError: OpenTelemetry is not installed.
        """
        self._logs: Any = require("opentelemetry._logs", "writing events", "otel")
        self._trace: Any = require("opentelemetry.trace", "writing events", "otel")
        from rath_bridge import __version__

        self._logger = logger_provider.get_logger(n.SCOPE, __version__, schema_url=n.SCHEMA_URL)
        self._content = switches.content_on_events()

    def write(self, record: SpanRecord) -> None:
        """Write a model call's event; any other span has none."""
        if n.PROVIDER not in record.attributes or n.OBSERVER not in record.attributes or n.REPLAYED in record.attributes:
            return
        trace, ids = self._trace, record.context
        about = trace.SpanContext(
            int(ids.trace_id, 16), int(ids.span_id, 16), is_remote=False, trace_flags=trace.TraceFlags(0x01)
        )
        attributes = {
            name: value for name, value in record.attributes.items()
            if name.startswith(("gen_ai.", "error.")) and (self._content or name not in n.CONTENT)
        }  # fmt: skip
        self._logger.emit(
            self._logs.LogRecord(
                timestamp=nanoseconds(record.end), context=trace.set_span_in_context(trace.NonRecordingSpan(about)),
                event_name=DETAILS, attributes=attributes,
            )
        )  # fmt: skip


def without_content(record: SpanRecord) -> SpanRecord:
    """Return a span without content: it goes on the event alone."""
    from dataclasses import replace

    kept = {name: value for name, value in record.attributes.items() if name not in n.CONTENT}
    error = None if record.error is None else str(kept.get(n.ERROR_TYPE, n.OTHER))
    return replace(record, attributes=kept, error=error)
