"""`RathTracingProcessor`: one line records every run of this process; `install` also takes the upload to OpenAI away."""

from __future__ import annotations

import os
from collections import OrderedDict
from threading import RLock
from typing import Any, Final
from weakref import WeakSet

from agents.tracing import (
    Span,
    Trace,
    TracingProcessor,
    add_trace_processor,
    get_current_trace,
    get_trace_provider,
    set_trace_processors,
)

from rath_bridge.given import check_store
from rath_bridge.recorder import Recorder, current_recorder, recorder_for
from rath_bridge.session import Store
from rath_openai_agents import spans
from rath_openai_agents.book import Book, adopted, drop_book, open_book
from rath_openai_agents.faults import guard
from rath_openai_agents.functions import abandon
from rath_openai_agents.items import FRAMEWORK
from rath_openai_agents.others import late

_REMEMBERED: Final = 1024
"""Ended traces whose session is remembered for spans that end after them."""


_living: Final[WeakSet[RathTracingProcessor]] = WeakSet()


class RathTracingProcessor(TracingProcessor):
    """Records traces into sessions (source: ``agents.tracing.TracingProcessor``).

    A trace goes to the session that is named here, else to the ambient recorder's, else to ``openai_agents/<group_id>``, else to one
    named by its trace id. Structure and timing are exact; texts are recorded where the SDK's own models put them into their spans.
    What no span holds (a scripted or third-party model's texts, call ids) takes `RecordingModel` and `RathRunHooks`, or `wrap`.
    """

    def __init__(self, store: Store, *, session: str | None = None, strict: bool = False, record_content: bool = True) -> None:
        """Record to a store.

        Args:
            store: From ``rath_bridge.open_store``.
            session: One session for all traces; by default each goes where its group or trace id says.
            strict: Raise `RecorderError` when recording fails. The SDK logs what a processor raises and goes on.
            record_content: False keeps names, times and usage only.
        """
        check_store(store, "RathTracingProcessor", session)
        self._store, self._session, self._strict, self._content = store, session, strict, record_content
        self._open: dict[str, list[Book]] = {}
        self._ended: OrderedDict[str, str] = OrderedDict()
        self._lock = RLock()
        _living.add(self)

    # ---------------------------------------------------------------- the SDK's side

    def on_trace_start(self, trace: Trace) -> None:
        """Open the trace's book."""
        with guard(None, "a trace", strict=self._strict):
            self._begin(trace)

    def on_trace_end(self, trace: Trace) -> None:
        """Close the book; all of it is durable when this returns."""
        for book in self._take(trace.trace_id):
            with guard(book.recorder, "the end of a trace", strict=self._strict):
                self._close(book)

    def on_span_start(self, span: Span[Any]) -> None:
        """Note that a span has begun."""
        for book in self._open.get(span.trace_id) or self._books(span):
            try:
                spans.start(book, span)
            except Exception:
                with guard(book.recorder, f"the start of a {span.span_data.type} span", strict=self._strict):
                    raise

    def on_span_end(self, span: Span[Any]) -> None:
        """Write what a span became."""
        found = self._open.get(span.trace_id) or self._books(span)
        for book in found:
            try:
                spans.end(book, span)
                if book.resumed and not book.nodes:
                    self._take(span.trace_id)
                    self._close(book)
            except Exception:
                with guard(book.recorder, f"a {span.span_data.type} span", strict=self._strict):
                    raise
        if not found:
            with guard(None, f"a {span.span_data.type} span that ended after its trace", strict=self._strict):
                self._after_the_end(span)

    def shutdown(self, timeout: float | None = None) -> None:
        """Close every open book; what never ended is marked ``abandoned``."""
        with self._lock:
            left = [book for group in self._open.values() for book in group]
            self._open.clear()
        for book in left:
            with guard(book.recorder, "an open trace", strict=self._strict):
                self._close(book, "abandoned")

    def force_flush(self) -> None:
        """Make durable what was seen so far."""
        with self._lock:
            left = [book for group in self._open.values() for book in group]
        for book in left:
            book.recorder.flush()

    def after_fork(self) -> None:
        """In a forked child: a thread that held the lock when the process was forked is not there to release it."""
        self._lock = RLock()

    def records(self, store: Store, session: str | None) -> bool:
        """Tell whether this processor records to a store and session."""
        return self._store == store and self._session == session

    # ---------------------------------------------------------------- inside

    def _begin(self, trace: Trace, *, late: bool = False, resumed: bool = False) -> list[Book]:
        known = self._ended.get(trace.trace_id) if resumed else None
        recorder, owned = self._recorder(getattr(trace, "group_id", None) or trace.trace_id, known)
        book, new = open_book(trace, recorder, owned=owned, content=self._content, late=late)
        book.resumed = book.resumed or resumed
        if owned and not new:
            recorder.close()
        with self._lock:
            group = self._open.setdefault(trace.trace_id, [])
            if book not in group:
                group.append(book)
            return list(group)

    def _recorder(self, native_id: str, session: str | None = None) -> tuple[Recorder, bool]:
        return recorder_for(
            self._store, FRAMEWORK, native_id, self._session or session, strict=self._strict, record_content=self._content
        )

    def _books(self, span: Span[Any]) -> list[Book]:
        """The books of a span's trace; a trace that began before this processor was added is opened now."""
        found = self._open.get(span.trace_id)
        if found:
            return found
        trace = get_current_trace()
        if trace is None or trace.trace_id != span.trace_id:
            return []
        # a run that goes on after an approval goes on in its trace, which neither starts nor ends again
        resumed = type(trace).__name__ == "ReattachedTrace"
        if span.trace_id in self._ended and not resumed:
            return []
        with guard(None, "a trace that began earlier", strict=self._strict):
            return self._begin(trace, late=not resumed, resumed=resumed)
        return []

    def _take(self, trace_id: str) -> list[Book]:
        with self._lock:
            return self._open.pop(trace_id, [])

    def _close(self, book: Book, status: str | None = None) -> None:
        try:
            abandon(book)
            book.finish(status)
        finally:
            drop_book(book)
            with self._lock:
                self._ended[book.trace_id] = book.recorder.name
                if len(self._ended) > _REMEMBERED:
                    self._ended.popitem(last=False)

    def _after_the_end(self, span: Span[Any]) -> None:
        """Keep a span that ends after its trace (an abandoned stream), or whose trace nobody knows: marked, and durable at once."""
        recorder, owned = self._recorder(span.trace_id, self._ended.get(span.trace_id))
        with self._lock:
            late(recorder, span, content=self._content)
            recorder.flush()
            if owned:
                recorder.close()


class WrappedRuns(RathTracingProcessor):
    """Records only the traces of runs that `wrap` has begun; present beside any other processor."""

    def __init__(self) -> None:
        """Nothing of its own: the recorder comes with the run."""
        self._strict, self._content, self._session = False, True, None
        self._open, self._ended, self._lock = {}, OrderedDict(), RLock()
        _living.add(self)

    def on_trace_start(self, trace: Trace) -> None:
        """Open the book of a wrapped run's trace."""
        if adopted.get() is not None:
            super().on_trace_start(trace)

    def _recorder(self, native_id: str, session: str | None = None) -> tuple[Recorder, bool]:
        recorder = current_recorder()
        assert recorder is not None
        return recorder, False

    def _books(self, span: Span[Any]) -> list[Book]:
        return self._open.get(span.trace_id, [])

    def _after_the_end(self, span: Span[Any]) -> None:
        """Not ours."""


_wrapped: Final = WrappedRuns()


def watch_wrapped() -> None:
    """See to it that wrapped runs are watched; somebody may have replaced the processors since."""
    if _wrapped not in _registered():
        add_trace_processor(_wrapped)


def _registered() -> tuple[TracingProcessor, ...]:
    # there is no public way to list processors; an own trace provider may keep them elsewhere
    multi = getattr(get_trace_provider(), "_multi_processor", None)
    return tuple(getattr(multi, "_processors", ()))


def _uploads(processor: TracingProcessor) -> bool:
    """Tell the SDK's own upload to OpenAI (``BatchTraceProcessor`` over ``BackendSpanExporter``) from everything else."""
    from agents.tracing.processors import BackendSpanExporter

    return isinstance(getattr(processor, "_exporter", None), BackendSpanExporter)


def install(store: Store, replace: bool = True, session: str | None = None) -> RathTracingProcessor:
    """Record every run of this process, and (``replace``) stop the upload to OpenAI: no key, no warning, no data leaving.

    Other processors stay. Calling it again for the same store and session changes nothing.

    Args:
        store: From ``rath_bridge.open_store``.
        replace: Take away the SDK's own uploading processor.
        session: One session for all traces.

    Returns:
        The processor at work.
    """
    check_store(store, "install", session)
    present = _registered()
    ours = next((one for one in present if type(one) is RathTracingProcessor and one.records(store, session)), None)
    processor = ours or RathTracingProcessor(store, session=session)
    kept = [one for one in present if not (replace and _uploads(one))]
    set_trace_processors(kept if ours else [*kept, processor])
    return processor


def _after_fork() -> None:
    for processor in list(_living):
        processor.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

__all__ = ["RathTracingProcessor", "install", "watch_wrapped"]
