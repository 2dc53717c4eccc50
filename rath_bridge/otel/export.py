"""Spans out: a stored session through anybody's ``TracerProvider``, with its sampler, limits, resource and processors."""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from rath_bridge.errors import UnsupportedError
from rath_bridge.given import check_session
from rath_bridge.model.chunk import SpanContext
from rath_bridge.model.digests import Digest
from rath_bridge.otel import names as n
from rath_bridge.otel import switches
from rath_bridge.otel.events import InferenceEvents, without_content
from rath_bridge.otel.fold import SpanFold, spans
from rath_bridge.otel.metrics import Instruments
from rath_bridge.otel.records import SpanRecord, nanoseconds
from rath_bridge.plugins import require
from rath_bridge.session import Session

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

_ids: ContextVar[tuple[int, int] | None] = ContextVar("rath_bridge_otel_ids", default=None)


class _GivenIds:
    """An ``IdGenerator`` that hands out the envelope's ids while one of our spans starts."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def generate_trace_id(self) -> int:
        given = _ids.get()
        return self._inner.generate_trace_id() if given is None else given[0]

    def generate_span_id(self) -> int:
        given = _ids.get()
        return self._inner.generate_span_id() if given is None else given[1]

    def is_trace_id_random(self) -> bool:
        return False


class SpanWriter:
    """Hands finished spans to a provider. Times and ids are the records'."""

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        """Write to a provider.

        Args:
            tracer_provider: An SDK provider; the process's own by default.

        Raises:
            MissingExtraError: OpenTelemetry is not installed.
            UnsupportedError: The provider is not the SDK's (none was set, say): it cannot take given ids.
        """
        self._trace: Any = require("opentelemetry.trace", "writing spans", "otel")
        provider: Any = tracer_provider if tracer_provider is not None else self._trace.get_tracer_provider()
        from rath_bridge import __version__

        tracer = provider.get_tracer(n.SCOPE, __version__, schema_url=n.SCHEMA_URL)
        tracer = getattr(tracer, "_tracer", tracer)  # a proxy's own
        if not hasattr(tracer, "id_generator") or not hasattr(tracer, "sampler"):
            raise UnsupportedError(
                f"a {type(provider).__name__} cannot take spans with given ids: pass tracer_provider=opentelemetry.sdk.trace."
                f"TracerProvider(...), or set one with opentelemetry.trace.set_tracer_provider"
            )
        if not isinstance(tracer.id_generator, _GivenIds):
            tracer.id_generator = _GivenIds(tracer.id_generator)
        self._tracer = tracer
        self._kinds = {kind.name.lower(): kind for kind in self._trace.SpanKind}
        self._parents: dict[tuple[str, str], Any] = {}
        self._flags: dict[str, Any] = {}

    def write(self, record: SpanRecord) -> bool:
        """Start and end one span; False where the provider's sampler left it out."""
        trace, given = self._trace, record.context
        ids = (int(given.trace_id, 16), int(given.span_id, 16))
        links = [
            trace.Link(trace.SpanContext(int(link.trace_id, 16), int(link.span_id, 16), is_remote=True), link.attributes)
            for link in record.links
        ]
        token = _ids.set(ids)
        try:
            span = self._tracer.start_span(
                record.name, self._parent(given, record), self._kinds[record.kind], record.attributes, links,
                nanoseconds(record.start),
            )  # fmt: skip
        finally:
            _ids.reset(token)
        for event in record.events:
            span.add_event(event.name, event.attributes, nanoseconds(event.at))
        if record.error is not None:
            span.set_status(trace.Status(trace.StatusCode.ERROR, record.error))
        span.end(nanoseconds(record.end))
        return span.get_span_context().trace_flags.sampled

    def _parent(self, given: SpanContext, record: SpanRecord) -> Any:
        """The context with the parent in it; one decision of the sampler holds for a whole trace, whatever ends first."""
        trace = self._trace
        key = (given.trace_id, given.parent_id or "")
        found = self._parents.get(key)
        if found is None:
            if len(self._parents) > 10_000:
                self._parents.clear()
            if given.parent_id is None:
                parent = trace.INVALID_SPAN
            else:
                parent = trace.NonRecordingSpan(
                    trace.SpanContext(
                        int(given.trace_id, 16), int(given.parent_id, 16), True, self._sampled(given.trace_id, record)
                    )
                )
            found = self._parents[key] = trace.set_span_in_context(parent)
        return found

    def _sampled(self, trace_id: str, record: SpanRecord) -> Any:
        flags = self._flags.get(trace_id)
        if flags is None:
            root = self._trace.set_span_in_context(self._trace.INVALID_SPAN)
            decided = self._tracer.sampler.should_sample(
                root, int(trace_id, 16), record.name, self._kinds[record.kind], record.attributes, []
            )
            sampled = decided.decision.is_sampled()
            flags = self._flags[trace_id] = self._trace.TraceFlags(0x01 if sampled else 0x00)
        return flags


def export_spans(
    session: Session,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    logger_provider: LoggerProvider | None = None,
    content: bool | None = None,
    since: Digest | None = None,
) -> int:
    """Write a session's line as spans: GenAI and MCP conventions, original times, the ids of the envelopes.

    The same session gives the same ids every time, so that a backend that was told twice keeps one. Fork, merge and replay
    are span links with ``rath.*`` attributes. What a provider's own tracer made already (``span`` chunks of
    `SessionSpanProcessor`) is not written again.

    Args:
        session: What to write. The line is followed to its root, forks included: shared history has the ids of the line that made it.
        tracer_provider: An OpenTelemetry SDK provider; the process's own by default. Its sampler, limits and processors apply.
        meter_provider: Also record token and duration metrics there. They are counted now, whenever the work was done,
            so they are left out unless asked for.
        logger_provider: Also write ``gen_ai.client.inference.operation.details`` events there, where
            ``OTEL_INSTRUMENTATION_GENAI_EMIT_EVENT`` is true or content is to go on events.
        content: Put messages, arguments and results into attributes; by default as
            ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`` says (``SPAN_ONLY``, ``SPAN_AND_EVENT``), and it is off.
        since: Only spans that ended behind this chunk (a head that was exported before).

    Returns:
        How many spans were handed to the provider.

    Raises:
        MissingExtraError: OpenTelemetry is not installed.
        UnsupportedError: The provider is not the SDK's.
        MissingChunkError: ``since`` is not in the store.
    """
    check_session(session, "export_spans")
    writer = SpanWriter(tracer_provider)
    meters = Instruments(meter_provider) if meter_provider is not None else None
    events = InferenceEvents(logger_provider) if logger_provider is not None and switches.events_wanted() else None
    on_spans = switches.content_on_spans() if content is None else content
    on_events = events is not None and switches.content_on_events()
    after = -1 if since is None else session.store.backend.chunk(since).position
    written = 0
    for record in session_spans(session, content=on_spans or on_events):
        if record.position <= after:
            continue
        if events is not None:
            events.write(record)
        if on_events and not on_spans:
            record = without_content(record)
        written += writer.write(record)
        if meters is not None:
            meters.record(record)
    return written


def session_spans(session: Session, *, content: bool = False) -> Iterable[SpanRecord]:
    """Yield a session's spans as values; needs no OpenTelemetry."""
    return spans(session.chunks(), content=content, linked=OtherLines(session).find)


class OtherLines:
    """Finds the spans of lines that were merged in or detached from."""

    def __init__(self, session: Session) -> None:
        """Look in the session's store."""
        self._backend = session.store.backend
        self._found: dict[Digest, SpanContext | None] = {}

    def find(self, chunk: Digest) -> SpanContext | None:
        """Return the span under which a chunk stands on the line that ends with it; None where the store does not hold it."""
        if chunk not in self._found:
            fold = SpanFold()
            try:
                for one in self._backend.line(chunk):
                    fold.feed(one)
            except LookupError:
                return None
            self._found[chunk] = fold.stands(chunk)
        return self._found[chunk]


__all__: Final = ["OtherLines", "SpanWriter", "export_spans", "session_spans"]
