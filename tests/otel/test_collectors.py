"""A session reaches a real OTLP receiver, over HTTP and over gRPC, with its ids, times and links."""

from __future__ import annotations

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

import rath_bridge as rb
from rath_bridge.otel import export_spans
from tests.otel.receiver import Received, grpc_receiver, http_receiver, spans_of
from tests.otel.traced import T0, TRACE, scripted


def _send(exporter: SpanExporter) -> int:
    made = TracerProvider(resource=Resource.create({"service.name": "tests"}))
    made.add_span_processor(BatchSpanProcessor(exporter))
    session = scripted(rb.open_store("memory:"))
    count = export_spans(session.fork("try"), tracer_provider=made, content=True)
    made.shutdown()
    return count


def _check(received: Received, count: int) -> None:
    spans = {span.name: span for span in spans_of(received)}
    assert len(spans) == count == 10
    agent, call = spans["invoke_agent Triage"], spans["chat gpt-x"]
    assert agent.trace_id.hex() == call.trace_id.hex() == TRACE
    assert call.parent_span_id == agent.span_id == (1).to_bytes(8, "big")
    assert (agent.start_time_unix_nano, agent.end_time_unix_nano) == (T0 * 1000, (T0 + 100_000) * 1000)
    assert [link.span_id for link in spans["rath.fork ticket@try"].links] == [agent.span_id]
    first = received[0].resource_spans[0]
    assert first.scope_spans[0].scope.name == "rath_bridge"
    assert first.scope_spans[0].schema_url.startswith("https://opentelemetry.io/schemas/")


def test_over_http() -> None:
    with http_receiver() as (endpoint, received):
        count = _send(HttpExporter(endpoint=endpoint))
    _check(received, count)


def test_over_grpc() -> None:
    with grpc_receiver() as (endpoint, received):
        count = _send(GrpcExporter(endpoint=endpoint, insecure=True))
    _check(received, count)
