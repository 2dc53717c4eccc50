"""What goes out is read back by a tool that knows nothing of us: MLflow's parser of OTLP spans and its GenAI translator."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

import rath_bridge as rb
from rath_bridge.otel import export_spans
from tests.otel.receiver import http_receiver, spans_of
from tests.otel.traced import scripted


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """Spans by name, as MLflow would store them."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow.entities.span import Span
    from mlflow.tracing.otel.translation import translate_span_when_storing

    provider = TracerProvider()
    with http_receiver() as (endpoint, received):
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
        export_spans(scripted(rb.open_store("memory:")), tracer_provider=provider, content=True)
        provider.shutdown()
    found = [Span.from_otel_proto(span) for span in spans_of(received)]
    return {one.name: translate_span_when_storing(one) | {"id": one.span_id, "parent": one.parent_id} for one in found}


def _told(span: dict[str, Any], name: str) -> Any:
    """An attribute; MLflow keeps JSON, and what came as JSON text once more as text."""
    value = span["attributes"].get(f"mlflow.{name}")
    while isinstance(value, str) and value[:1] in '"[{':
        value = json.loads(value)
    return value


def test_a_public_consumer_reads_kinds_and_tree(read: dict[str, dict[str, Any]]) -> None:
    assert {name: kind for name, span in read.items() if (kind := _told(span, "spanType"))} == {
        "invoke_agent Triage": "AGENT", "invoke_agent Billing": "AGENT", "chat gpt-x": "CHAT_MODEL", "execute_tool get_weather": "TOOL",
        "tools/call search": "TOOL",
    }  # fmt: skip
    agent = read["invoke_agent Triage"]
    assert agent["parent"] is None
    assert {span["parent"] for name, span in read.items() if span is not agent} == {agent["id"]}
    assert read["tools/call search"]["status"]["code"] == "STATUS_CODE_ERROR"


def test_a_public_consumer_reads_the_model_call(read: dict[str, dict[str, Any]]) -> None:
    call = read["chat gpt-x"]
    assert (_told(call, "llm.model"), _told(call, "llm.provider")) == ("gpt-x-2", "openai")
    assert _told(call, "chat.tokenUsage") == {
        "input_tokens": 10, "output_tokens": 5, "total_tokens": 15, "cache_read_input_tokens": 2
    }  # fmt: skip
    (asked,) = _told(call, "spanInputs")
    assert asked["role"] == "user"
    assert asked["parts"][0]["content"] == "Weather in Oslo?"


def test_a_public_consumer_reads_the_tool_call(read: dict[str, dict[str, Any]]) -> None:
    call = read["execute_tool get_weather"]
    assert _told(call, "spanInputs") == {"city": "Oslo"}
    assert _told(call, "spanOutputs") == "sunny"
