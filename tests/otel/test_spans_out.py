"""Spans out: names, kinds, attributes, ids, times and links, as a real SDK provider sees them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, TraceIdRatioBased
from opentelemetry.semconv._incubating.attributes import error_attributes, gen_ai_attributes
from opentelemetry.trace import NoOpTracerProvider, SpanKind, StatusCode

import rath_bridge as rb
from rath_bridge.errors import MissingExtraError, UnsupportedError
from rath_bridge.model.kinds import Inference, Run, ToolCall, ToolResult, Usage
from rath_bridge.otel import export_spans, names
from tests.otel.traced import T0, TRACE, exported, named, provider, scripted, span_id, trace_id
from tests.rich_session import rich_session

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


@pytest.fixture
def session() -> rb.Session:
    return scripted(rb.open_store("memory:"))


def test_names_and_kinds(session: rb.Session) -> None:
    found = {span.name: span.kind for span in exported(session)}
    assert found == {
        "invoke_agent Triage": SpanKind.INTERNAL, "invoke_agent Billing": SpanKind.INTERNAL, "chat gpt-x": SpanKind.CLIENT,
        "execute_tool get_weather": SpanKind.INTERNAL, "tools/call search": SpanKind.CLIENT, "guardrail polite": SpanKind.INTERNAL,
        "search_memory notes": SpanKind.CLIENT, "retrieval docs": SpanKind.CLIENT, "handoff Billing": SpanKind.INTERNAL,
    }  # fmt: skip


def test_a_model_call_carries_what_the_conventions_ask_for(session: rb.Session) -> None:
    found = dict(named(exported(session), "chat gpt-x").attributes or {})
    ours = {name: found.pop(name) for name in list(found) if name.startswith("rath.")}
    assert found == {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.conversation.id": "ticket",
        "gen_ai.request.model": "gpt-x", "gen_ai.response.model": "gpt-x-2", "gen_ai.response.id": "resp_1",
        "gen_ai.request.temperature": 0.5, "gen_ai.request.max_tokens": 9, "gen_ai.request.stop_sequences": ("END",),
        "gen_ai.request.stream": True, "gen_ai.response.finish_reasons": ("tool_call",), "gen_ai.response.time_to_first_chunk": 0.01,
        "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 5, "gen_ai.usage.cache_read.input_tokens": 2,
        "gen_ai.usage.reasoning.output_tokens": 1, "gen_ai.agent.name": "Triage",
    }  # fmt: skip
    assert ours["rath.session"] == "ticket"
    assert ours["rath.usage.cost_usd"] == 0.01
    assert ours["rath.chunk"] == session[3].id


def test_every_written_name_is_the_conventions_or_ours(session: rb.Session) -> None:
    known = {
        v for module in (gen_ai_attributes, error_attributes) for k, v in vars(module).items() if k.isupper() and type(v) is str
    }
    written = {name for span in exported(session, content=True) for name in span.attributes or {}}
    strangers = {name for name in written - known - names.NEWER if not name.startswith("rath.")}
    assert not strangers


def test_every_name_in_the_table_is_the_conventions_or_newer() -> None:
    known = {
        v for module in (gen_ai_attributes, error_attributes) for k, v in vars(module).items() if k.isupper() and type(v) is str
    }
    table = {v for k, v in vars(names).items() if k.isupper() and type(v) is str and v.startswith(("gen_ai.", "mcp.", "rpc."))}
    assert table | set(names.REQUEST.values()) <= known | names.NEWER
    assert set(names.RENAMES) <= known
    assert set(names.OPENINFERENCE.values()) <= known | {names.COST}


def test_ids_and_times_are_the_envelopes(session: rb.Session) -> None:
    spans = exported(session)
    agent, call, tool = (named(spans, name) for name in ("invoke_agent Triage", "chat gpt-x", "execute_tool get_weather"))
    assert [span_id(one) for one in (agent, call, tool)] == [f"{n:016x}" for n in (1, 2, 3)]
    assert {trace_id(one) for one in spans} == {TRACE}
    assert agent.parent is None
    assert call.parent is not None
    assert call.parent.span_id == 1
    assert (agent.start_time, agent.end_time) == (T0 * 1000, (T0 + 100_000) * 1000)
    assert (call.start_time, call.end_time) == ((T0 + 10_000) * 1000, (T0 + 60_000) * 1000)
    assert (tool.start_time, tool.end_time) == ((T0 + 61_000) * 1000, (T0 + 80_000) * 1000)


def test_the_same_ids_at_every_export() -> None:
    session = rich_session(rb.open_store("memory:"))

    def seen() -> list[tuple[Any, ...]]:
        return [
            (span.name, span_id(span), trace_id(span), span.parent and span.parent.span_id, span.start_time, span.end_time)
            for span in exported(session)
        ]

    first = seen()
    assert first == seen()
    assert len({one[1] for one in first}) == len(first)


def test_content_is_off_by_default_and_follows_the_standard_variable(
    session: rb.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in (None, "NO_CONTENT", "EVENT_ONLY", "false"):
        monkeypatch.setenv(CAPTURE, value) if value else monkeypatch.delenv(CAPTURE, raising=False)
        told = json.dumps([[span.name, dict(span.attributes or {}), span.status.description] for span in exported(session)])
        assert not any(word in told for word in ("Oslo", "sunny", "be brief", "no such page", "secret plan"))
    for value in ("SPAN_ONLY", "SPAN_AND_EVENT", "true"):
        monkeypatch.setenv(CAPTURE, value)
        spans = exported(session)
        call = dict(named(spans, "chat gpt-x").attributes or {})
        assert json.loads(str(call["gen_ai.input.messages"])) == [
            {"role": "user", "parts": [{"type": "text", "content": "Weather in Oslo?"}]}
        ]
        assert json.loads(str(call["gen_ai.system_instructions"])) == [{"type": "text", "content": "be brief"}]
        tool = dict(named(spans, "execute_tool get_weather").attributes or {})
        assert json.loads(str(tool["gen_ai.tool.call.arguments"])) == {"city": "Oslo"}
        assert json.loads(str(tool["gen_ai.tool.call.result"])) == "sunny"
        assert named(spans, "invoke_agent Triage").status.description == "ValueError: the secret plan failed"


def test_content_on_events_alone(session: rb.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor

    logs = InMemoryLogRecordExporter()
    logger_provider = LoggerProvider()
    logger_provider.add_log_record_processor(SimpleLogRecordProcessor(logs))
    exported(session, logger_provider=logger_provider)
    assert logs.get_finished_logs() == ()
    monkeypatch.setenv(CAPTURE, "EVENT_ONLY")
    told = json.dumps(
        [[dict(span.attributes or {}), span.status.description] for span in exported(session, logger_provider=logger_provider)]
    )
    assert not any(word in told for word in ("Oslo", "sunny", "be brief", "no such page", "secret plan"))
    (event,) = [data.log_record for data in logs.get_finished_logs()]
    assert event.event_name == "gen_ai.client.inference.operation.details"
    assert (event.trace_id, event.span_id, event.timestamp) == (int(TRACE, 16), 2, (T0 + 60_000) * 1000)
    assert "Weather in Oslo?" in str((event.attributes or {})["gen_ai.input.messages"])
    monkeypatch.setenv(CAPTURE, "NO_CONTENT")
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_EMIT_EVENT", "true")
    exported(session, logger_provider=logger_provider)
    assert "gen_ai.input.messages" not in (logs.get_finished_logs()[-1].log_record.attributes or {})


def test_errors_and_an_interrupt_that_is_none(session: rb.Session) -> None:
    spans = exported(session)
    failed = named(spans, "invoke_agent Triage")
    assert (failed.status.status_code, failed.attributes["error.type"]) == (StatusCode.ERROR, "ValueError")  # type: ignore[index]
    mcp = named(spans, "tools/call search")
    assert (mcp.status.status_code, mcp.attributes["error.type"]) == (StatusCode.ERROR, "tool_error")  # type: ignore[index]
    paused = named(spans, "invoke_agent Billing")
    assert (paused.status.status_code, paused.attributes["rath.run.status"]) == (StatusCode.UNSET, "interrupted")  # type: ignore[index]
    assert "error.type" not in (paused.attributes or {})


def test_an_mcp_request_by_the_mcp_conventions(session: rb.Session) -> None:
    found = dict(named(exported(session), "tools/call search").attributes or {})
    assert found["mcp.method.name"] == "tools/call"
    assert found["gen_ai.operation.name"] == "execute_tool"
    assert found["gen_ai.tool.name"] == "search"
    assert found["jsonrpc.request.id"] == "7"
    assert found["mcp.protocol.version"] == "2025-06-18"


def test_an_approval_is_an_event_of_its_run(session: rb.Session) -> None:
    event = named(exported(session), "invoke_agent Triage").events[0]
    assert (event.name, event.timestamp) == ("rath.approval", (T0 + 92_000) * 1000)
    assert (event.attributes or {})["rath.approval.phase"] == "asked"


def test_forks_and_merges_are_links() -> None:
    store = rb.open_store("memory:")
    s = scripted(store)
    b = s.fork("try").append(
        rb.draft(Run(phase="begin", name="Again"), run="r3"), rb.draft(Run(phase="end", name="Again", status="ok"), run="r3")
    )
    spans = exported(b)
    top = named(spans, "invoke_agent Triage")
    fork, again = named(spans, "rath.fork ticket@try"), named(spans, "invoke_agent Again")
    for one in (fork, again):
        link = one.links[0]
        assert (f"{link.context.span_id:016x}", (link.attributes or {})["rath.link"]) == (span_id(top), "fork")
        assert (link.attributes or {})["rath.link.session"] == "ticket"
    assert (again.attributes or {})["rath.session"] == "ticket@try"
    assert {str((span.attributes or {})["gen_ai.conversation.id"]) for span in spans} == {"ticket"}
    assert [span_id(span) for span in exported(s)] == [span_id(span) for span in spans][: len(exported(s))]

    merged = s.append(rb.message("user", "meanwhile")).merge(b)
    merge = named(exported(merged), "rath.merge ticket")
    links = [(f"{link.context.span_id:016x}", (link.attributes or {})["rath.link"]) for link in merge.links]
    assert links == [(span_id(top), "merge"), (span_id(again), "merge"), (span_id(top), "merge.base")]


def test_a_replayed_effect_is_never_shown_as_executed() -> None:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    marks = {"replayed": True}
    session = rb.open_store("memory:").create("again").append(
        rb.draft(Run(phase="begin", name="a", attributes=marks), run="r"),
        rb.draft(Inference(model="m", usage=Usage(input_tokens=3)), run="r"),
        rb.draft(ToolCall(name="pay", call_id="1", attributes=marks), run="r"), rb.draft(ToolResult(call_id="1"), run="r"),
        rb.draft(Run(phase="end", name="a", status="ok"), run="r"),
    )  # fmt: skip
    reader = InMemoryMetricReader()
    spans = exported(session, meter_provider=MeterProvider([reader]))
    assert {span.name for span in spans} == {"replay invoke_agent a", "replay chat m", "replay execute_tool pay"}
    for span in spans:
        found = span.attributes or {}
        assert found["rath.replayed"] is True
        assert "gen_ai.operation.name" not in found
        assert "gen_ai.usage.input_tokens" not in found
    assert reader.get_metrics_data() is None


def test_metrics_of_a_session(session: rb.Session) -> None:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    exported(session, meter_provider=MeterProvider([reader]))
    data = reader.get_metrics_data()
    assert data is not None
    points = {
        (metric.name, (point.attributes or {}).get("gen_ai.token.type")): point
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
        if (point.attributes or {}).get("gen_ai.operation.name") in (None, "chat")
    }
    assert points["gen_ai.client.token.usage", "input"].sum == 10  # type: ignore[union-attr]
    assert points["gen_ai.client.token.usage", "output"].sum == 5  # type: ignore[union-attr]
    assert points["gen_ai.client.operation.duration", None].sum == 0.05  # type: ignore[union-attr]
    assert points["mcp.client.operation.duration", None].sum == 0.009  # type: ignore[union-attr]


def test_what_has_not_ended_is_marked_and_since_leaves_out_what_was_exported() -> None:
    s = rb.open_store("memory:").create("open").append(
        rb.draft(Run(phase="begin", name="a"), run="r"), rb.draft(ToolCall(name="t", call_id="1"), run="r")
    )  # fmt: skip
    found = exported(s)
    assert (named(found, "invoke_agent a").attributes or {})["rath.run.status"] == "open"
    assert (named(found, "execute_tool t").attributes or {})["rath.call.status"] == "pending"
    done = s.append(rb.draft(ToolResult(call_id="1"), run="r"), rb.draft(Run(phase="end", name="a", status="ok"), run="r"))
    assert exported(done, since=done.head) == []
    assert [span.name for span in exported(done, since=s.head)] == ["execute_tool t", "invoke_agent a"]


def test_the_providers_sampler_decides_whole_traces(session: rb.Session) -> None:
    made, exporter = provider(sampler=ALWAYS_OFF)
    assert export_spans(session, tracer_provider=made) == 0
    made, exporter = provider(sampler=TraceIdRatioBased(0.5))
    sessions = [rich_session(rb.open_store("memory:"), turns=1) for _ in range(8)]
    for one in sessions:
        export_spans(one, tracer_provider=made)
    spans = list(exporter.get_finished_spans())
    known = {span_id(span) for span in spans}
    assert all(span.parent is None or f"{span.parent.span_id:016x}" in known for span in spans)


def test_a_providers_own_spans_keep_their_own_ids(session: rb.Session) -> None:
    made, exporter = provider()
    export_spans(session, tracer_provider=made)
    exporter.clear()
    with made.get_tracer("somebody").start_as_current_span("theirs"), made.get_tracer(names.SCOPE).start_as_current_span("ours"):
        pass
    spans = exporter.get_finished_spans()
    assert len({trace_id(span) for span in spans}) == 1
    assert {trace_id(span) for span in spans} != {TRACE}


def test_erased_content_leaves_a_span() -> None:
    """A chunk whose body is gone still has its place and time."""
    from dataclasses import replace

    from rath_bridge.otel.fold import spans

    chunks = [replace(chunk, body_bytes=None, erased_digest=chunk.body_digest) if chunk.kind in ("inference", "tool_call") else chunk
              for chunk in scripted(rb.open_store("memory:"))]  # fmt: skip
    found = {record.name: record for record in spans(chunks, content=True)}
    assert found["chat"].attributes["rath.erased"] is True
    assert "gen_ai.usage.input_tokens" not in found["chat"].attributes


def test_what_is_missing_is_said(session: rb.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsupportedError, match="TracerProvider"):
        export_spans(session, tracer_provider=NoOpTracerProvider())
    import sys

    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(MissingExtraError, match=r'pip install "rath-bridge\[otel\]"'):
        export_spans(session)
