"""Spans out, beside the OpenTelemetry SDK making as many spans by itself."""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

import rath_bridge as rb
from benchmarks.table import Row, per_call
from rath_bridge.model.kinds import Inference, Run, ToolCall, ToolResult, Usage
from rath_bridge.otel import export_spans

RUNS = 2_500
SPANS = 4 * RUNS


class _Nowhere(SpanExporter):
    def export(self, spans: object) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def _provider() -> TracerProvider:
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(_Nowhere()))
    return made


def _session() -> rb.Session:
    call = Inference(
        model="m", provider="made", usage=Usage(input_tokens=3, output_tokens=4), finish_reasons=("stop",), duration=0.1,
        request={"params": {"temperature": 0.1}},
    )  # fmt: skip
    bodies = (
        Run(phase="begin", name="a", type="agent"), call, call, ToolCall(name="t", call_id="1", arguments={"a": 1}),
        ToolResult(call_id="1", result="ok"), Run(phase="end", name="a", status="ok"),
    )  # fmt: skip
    drafts = [rb.draft(body, run=f"r{number}") for number in range(RUNS) for body in bodies]
    return rb.open_store("memory:").create("spans").append(*drafts)


def rows() -> Iterator[Row]:
    """10 000 spans from a stored session to an exporter that throws them away."""
    session = _session()
    ours = per_call(lambda _: export_spans(session, tracer_provider=_provider()), 1, clock=process_time)
    tracer = _provider().get_tracer("peer")
    found: dict[str, str | int] = {f"name.{number}": number for number in range(6)} | {
        f"text.{number}": "value" for number in range(6)
    }
    peer = per_call(lambda _: tracer.start_span("chat m", attributes=found).end(), SPANS, clock=process_time) * SPANS
    yield Row(
        f"{SPANS:,} spans out of a session".replace(",", " "), f"{ours:.2f} s CPU", "<= 1 s CPU",
        f"the SDK alone, 12 attributes: {peer:.2f} s", ours <= 1,
    )  # fmt: skip
