"""What one span costs: in line, on the thread of the run, and in all, with the writing; beside two other processors."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from time import process_time, thread_time
from typing import Any

from agents.tracing import TracingProcessor, custom_span, get_trace_provider, set_trace_processors, trace

import rath_bridge as rb
from benchmarks.table import Row, micro, workspace
from rath_openai_agents import RathTracingProcessor

_BURST = 200
"""Spans between two flushes: a run has tens of them, and a flood would measure how threads take turns."""


def _span_cost(processor: TracingProcessor | None, flush: Callable[[], object]) -> tuple[float, float]:
    """CPU seconds of one span: on the calling thread, and of the whole process with all written."""
    watching: list[TracingProcessor] = [] if processor is None else [processor]
    set_trace_processors(watching)
    in_line = in_all = float("inf")
    for turn in range(5):
        with trace("benchmark", group_id=f"group-{turn}"):
            for _ in range(8):
                flush()
                gc.collect()
                whole, mine = process_time(), thread_time()
                for _ in range(_BURST):
                    with custom_span("query", {"rows": 1}):
                        pass
                in_line = min(in_line, (thread_time() - mine) / _BURST)
                flush()
                in_all = min(in_all, (process_time() - whole) / _BURST)
    return in_line, in_all


def _openinference() -> TracingProcessor:
    from openinference.instrumentation.openai_agents._processor import OpenInferenceTracingProcessor

    return OpenInferenceTracingProcessor(_tracer())


def _opentelemetry() -> TracingProcessor:
    import opentelemetry.trace
    from openai_agents_opentelemetry import OpenTelemetryTracingProcessor

    opentelemetry.trace.set_tracer_provider(_tracer_provider())  # it takes its tracer from the global provider
    return OpenTelemetryTracingProcessor()


def _tracer_provider() -> Any:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    return provider


def _tracer() -> Any:
    return _tracer_provider().get_tracer("benchmark")


def rows() -> Iterator[Row]:
    """One custom span."""
    before: list[Any] = list(getattr(getattr(get_trace_provider(), "_multi_processor", None), "_processors", ()))
    try:
        with workspace() as folder:
            alone = _span_cost(None, lambda: None)[0]
            memory = RathTracingProcessor(rb.open_store("memory:"))
            kept = _span_cost(memory, memory.force_flush)
            with rb.open_store(f"sqlite:///{folder / 'runs.db'}") as store:
                ours = RathTracingProcessor(store)
                written = _span_cost(ours, ours.force_flush)
            one, other = (_span_cost(make(), lambda: None)[1] for make in (_openinference, _opentelemetry))
    finally:
        set_trace_processors(before)
    peers = f"to memory: openinference {micro(one)}, openai-agents-opentelemetry {micro(other)}"
    yield Row(
        "one span, in line", micro(written[0]), "<= 25 µs CPU", f"the SDK alone {micro(alone)}; {peers}", written[0] <= 25e-6
    )
    yield Row("one span, in all, with SQLite", micro(written[1]), "<= 60 µs CPU", peers, written[1] <= 60e-6)
    yield Row("one span, in all, to memory", micro(kept[1]), "", peers)
