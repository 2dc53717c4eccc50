"""A provider whose spans stay in memory, and a session of every kind of span."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rath_bridge as rb
from rath_bridge.model.chunk import SpanContext
from rath_bridge.model.kinds import (
    Approval,
    Body,
    Guardrail,
    Handoff,
    Inference,
    Memory,
    Message,
    Run,
    ToolCall,
    ToolResult,
    Usage,
)  # fmt: skip
from rath_bridge.model.parts import TextPart, ToolCallPart

T0 = 1_790_000_000_000_000
TRACE = "0af7651916cd43dd8448eb211c80319c"


def provider(**options: Any) -> tuple[TracerProvider, InMemorySpanExporter]:
    """A real SDK provider."""
    exporter = InMemorySpanExporter()
    made = TracerProvider(**options)
    made.add_span_processor(SimpleSpanProcessor(exporter))
    return made, exporter


def exported(session: rb.Session, **options: Any) -> list[ReadableSpan]:
    """What `export_spans` gives an SDK provider."""
    from rath_bridge.otel import export_spans

    made, exporter = provider()
    export_spans(session, tracer_provider=made, **options)
    return list(exporter.get_finished_spans())


def named(spans: list[ReadableSpan], name: str) -> ReadableSpan:
    """The one span of a name."""
    found = [span for span in spans if span.name == name]
    assert len(found) == 1, [span.name for span in spans]
    return found[0]


def span_id(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.span_id:016x}"


def trace_id(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


def ids(number: int, parent: int | None = None) -> SpanContext:
    return SpanContext(TRACE, f"{number:016x}", None if parent is None else f"{parent:016x}")


def scripted(store: rb.Store, name: str = "ticket") -> rb.Session:
    """One agent run with a model call, a tool, an MCP tool, a hand-over, a guardrail, an approval, a memory and a retrieval."""

    def at(ms: int, body: Body, span: SpanContext | None = None, run: str = "r1") -> rb.Draft:
        return rb.draft(
            body, run=run, at=T0 + ms * 1000, span=span, origin={"adapter": "made", "framework": "made", "version": "1"}
        )

    call = Inference(
        provider="openai", model="gpt-x", response_model="gpt-x-2", streamed=True, response_id="resp_1", agent="Triage",
        request={"system": "be brief", "params": {"temperature": 0.5, "max_completion_tokens": 9, "stop": "END"}},
        input=({"role": "user", "content": "Weather in Oslo?"},), output=(ToolCallPart("call_1", "get_weather", {"city": "Oslo"}).type,),
        finish_reasons=("tool_calls",), time_to_first_chunk=0.01, duration=0.05,
        usage=Usage(input_tokens=10, output_tokens=5, cache_read_input_tokens=2, reasoning_output_tokens=1, cost_usd=0.01),
    )  # fmt: skip
    mcp = {"jsonrpc.request.id": "7", "mcp.protocol.version": "2025-06-18"}
    return store.create(name).append(
        at(0, Run(phase="begin", name="Triage", type="agent"), ids(1)),
        at(1, Message(role="user", parts=(TextPart("Weather in Oslo?"),))),
        at(60, call, ids(2, 1)),
        at(61, ToolCall(name="get_weather", arguments={"city": "Oslo"}, call_id="call_1", type="function"), ids(3, 1)),
        at(80, ToolResult(name="get_weather", call_id="call_1", result="sunny"), ids(3, 1)),
        at(81, ToolCall(name="search", arguments={"q": "x"}, call_id="m:7", type="mcp", server="web", attributes=mcp), ids(4, 1)),
        at(90, ToolResult(name="search", call_id="m:7", status="error", error="no such page"), ids(4, 1)),
        at(91, Guardrail(name="polite", stage="output", triggered=False)),
        at(92, Approval(phase="asked", call_id="call_9", subject="rm -rf")),
        at(93, Memory(op="recall", store="notes", query="Oslo", items=("rainy city",))),
        at(94, Memory(op="recall", store="docs", query="Oslo", attributes={"gen_ai.operation.name": "retrieval"})),
        at(95, Handoff(from_agent="Triage", to_agent="Billing")),
        at(96, Run(phase="begin", name="Billing", type="agent", parent="r1"), ids(5, 1), "r2"),
        at(97, Run(phase="end", name="Billing", status="interrupted"), ids(5, 1), "r2"),
        at(100, Run(phase="end", name="Triage", status="error", error="ValueError: the secret plan failed"), ids(1)),
    )
