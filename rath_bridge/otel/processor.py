"""Spans in: every span that anybody's instrumentation makes becomes a ``span`` chunk of the current session."""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextvars import copy_context
from threading import Lock, Thread, current_thread
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakSet

from rath_bridge.errors import MissingExtraError
from rath_bridge.given import check_store
from rath_bridge.model.chunk import FIRST, LAST, SpanContext
from rath_bridge.model.kinds import Span
from rath_bridge.otel import names as n
from rath_bridge.otel.fold import OWN_TRACER
from rath_bridge.otel.records import attribute
from rath_bridge.recorder import Recorder, RunHandle, current_recorder, current_run, recorder_for
from rath_bridge.session import Store

try:
    from opentelemetry.sdk.trace import SpanProcessor
except ImportError as error:
    raise MissingExtraError("SessionSpanProcessor", "otel") from error

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace import Span as SdkSpan

_log: Final = logging.getLogger("rath_bridge")
_OPEN: Final = 32
"""Sessions of conversations whose recorders are kept open."""
LONGEST: Final = 30_000
"""Milliseconds that a flush waits for a store, when nothing else is said."""
_WRITER: Final = "rath_bridge-recorder"
"""The thread in which recorders write: a traced database driver must not make spans of that."""

_all: Final[WeakSet[SessionSpanProcessor]] = WeakSet()
_Place = tuple[Recorder, RunHandle | None]


class SessionSpanProcessor(SpanProcessor):
    """Attaches spans to sessions (source: ``opentelemetry.sdk.trace.SpanProcessor``); add it to any ``TracerProvider``.

    A span goes to the session that is named here, else to the ambient recorder's when it starts, under the run that is current
    then; else where its parent went; else to the session ``otel/<id>`` of its ``gen_ai.conversation.id`` (or ``session.id``). A span
    that belongs to none of them is left to its exporters, and counted in `unplaced`.

    Spans that rath_bridge itself made are not taken in again. A ``span`` chunk never counts as usage: that stays with ``inference``.
    """

    def __init__(self, store: Store, *, session: str | None = None, **options: Any) -> None:
        """Attach spans to sessions.

        Args:
            store: Where sessions live, for spans outside of any recorder.
            session: One session for all spans; by default each goes where it belongs.
            **options: Of `Recorder`, for the recorders that this processor opens.
        """
        check_store(store, "SessionSpanProcessor", session)
        self._store, self._session, self._options = store, session, options
        self._places: dict[int, _Place] = {}
        self._own: OrderedDict[str, Recorder] = OrderedDict()
        self._used: WeakSet[Recorder] = WeakSet()
        self._lock = Lock()
        _all.add(self)
        self.unplaced = 0
        """Spans that belong to no session."""

    def on_start(self, span: SdkSpan, parent_context: Context | None = None) -> None:
        """Find the session and the run that are current now."""
        try:
            if _ours(span):
                return
            place = self._place(span)
            if place is not None and span.context is not None:
                self._places[span.context.span_id] = place
        except Exception:  # noqa: BLE001 - an observer never breaks the user's run
            _log.warning("rath_bridge: a span could not be placed", exc_info=True)

    def on_end(self, span: ReadableSpan) -> None:
        """Write the span."""
        try:
            if _ours(span) or span.context is None:
                return
            place = self._places.pop(span.context.span_id, None) or self._by_conversation(span)
            if place is None:
                self.unplaced += 1
                return
            recorder, run = place
            at = _micros(span.end_time or span.start_time)
            recorder.emit(span_body(span), run=run, origin=_origin(span), span=context_of(span), at=at)
        except Exception:  # noqa: BLE001 - an observer never breaks the user's run
            _log.warning("rath_bridge: a span could not be recorded", exc_info=True)

    def force_flush(self, timeout_millis: int = LONGEST) -> bool:
        """Make durable what was taken in so far; False where that failed, or took longer."""
        return _within(timeout_millis, self._flush)

    def shutdown(self) -> None:
        """Write what was taken in, and close the recorders that were opened here; wait for a store 30 seconds at most."""
        with self._lock:
            own = list(self._own.values())
            self._own.clear()

        def close() -> bool:
            done = self._flush()
            for recorder in own:
                recorder.close()
            return done

        if not _within(LONGEST, close):
            _log.warning("rath_bridge: spans are not written yet, or could not be, when their processor was shut down")

    def after_fork(self) -> None:
        """In a forked child: a lock that another thread held is never released there."""
        self._lock = Lock()

    # ---------------------------------------------------------------- inside

    def _flush(self) -> bool:
        done = [recorder.flush() for recorder in list(self._used)]  # each, also where one fails
        return all(done)

    def _place(self, span: SdkSpan) -> _Place | None:
        if current_thread().name == _WRITER:
            return None
        recorder = current_recorder()
        if recorder is not None and self._session in (None, recorder.name):
            return self._use(recorder, current_run())
        parent = self._places.get(span.parent.span_id) if span.parent is not None else None
        if parent is not None:
            return parent
        if self._session is not None:
            return self._use(self._named(self._session, self._session), None)
        return self._by_conversation(span)

    def _by_conversation(self, span: ReadableSpan | SdkSpan) -> _Place | None:
        if self._session is not None:
            return None
        found = n.renamed(dict(span.attributes or {})).get(n.CONVERSATION)
        return self._use(self._named(found, None), None) if isinstance(found, str) and found else None

    def _use(self, recorder: Recorder, run: RunHandle | None) -> _Place:
        self._used.add(recorder)
        return recorder, run

    def _named(self, native_id: str, session: str | None) -> Recorder:
        with self._lock:
            found = self._own.pop(native_id, None)
            if found is None or found.closed:
                found, _ = recorder_for(self._store, "otel", native_id, session, **self._options)
            self._own[native_id] = found
            old = self._own.popitem(last=False)[1] if len(self._own) > _OPEN else None
        if old is not None:
            old.close()
        return found


def _after_fork() -> None:
    for one in list(_all):
        one.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _within(millis: int, work: Callable[[], bool]) -> bool:
    """Do something that may wait for a store, and wait for it so long at most; it goes on beyond that, as long as the process does."""
    done: list[bool | Exception] = []

    def run() -> None:
        try:
            done.append(work())
        except Exception as error:  # noqa: BLE001 - raised where it was asked for
            done.append(error)

    thread = Thread(target=copy_context().run, args=(run,), name=_WRITER, daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the interpreter is going down
        run()
    else:
        thread.join(millis / 1000)
    if done and isinstance(done[0], Exception):
        raise done[0]
    return bool(done and done[0])


def _ours(span: ReadableSpan | SdkSpan) -> bool:
    scope = span.instrumentation_scope
    return scope is not None and scope.name == n.SCOPE


def _micros(at: float | None) -> int:
    """Microseconds of a time in nanoseconds; one that no chunk holds is told as the nearest that it holds."""
    return min(max(FIRST, int(at or 0) // 1000), LAST)


def _origin(span: ReadableSpan) -> dict[str, str]:
    scope = span.instrumentation_scope
    found = {"adapter": OWN_TRACER, "framework": scope.name if scope else "", "version": (scope.version if scope else None) or ""}
    return {name: attribute(value) for name, value in found.items() if value}


def context_of(span: ReadableSpan) -> SpanContext | None:
    """Return a span's ids as an envelope has them."""
    if span.context is None:
        return None
    parent = None if span.parent is None else f"{span.parent.span_id:016x}"
    return SpanContext(f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}", parent)


def span_body(span: ReadableSpan) -> Span:
    """Return an SDK span as a body; nothing of it is interpreted."""
    events = [
        {"name": event.name, "at": _micros(event.timestamp), "attributes": _plain(event.attributes)} for event in span.events
    ]
    links = [
        {
            "trace_id": f"{link.context.trace_id:032x}",
            "span_id": f"{link.context.span_id:016x}",
            "attributes": _plain(link.attributes),
        }
        for link in span.links
    ]
    status = span.status.status_code.name.lower()
    attributes = _plain(span.attributes)
    if span.status.description:
        attributes["rath.status.description"] = span.status.description
    return Span(
        name=span.name, span_kind=span.kind.name.lower(), status=None if status == "unset" else status,
        duration=((span.end_time or 0) - (span.start_time or 0)) / 1e9, attributes=attributes, events=tuple(events),
        links=tuple(links), scope=span.instrumentation_scope.name if span.instrumentation_scope else None,
        resource=_plain(span.resource.attributes),
    )  # fmt: skip


def _plain(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        name: list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value
        for name, value in (attributes or {}).items()
    }
