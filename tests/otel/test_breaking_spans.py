"""What nobody should put into a span: a bad one never costs an exporter its batch, a fork never stops what is recorded."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

import rath_bridge as rb
from rath_bridge.interchange import otlp
from rath_bridge.model.chunk import FIRST, LAST, draft
from rath_bridge.model.kinds import Handoff, Inference, Run, Span, ToolCall, ToolResult, Usage
from rath_bridge.otel import LiveSpans, SessionSpanProcessor, export_spans
from rath_bridge.otel import processor as processor_module
from tests.forked import forked
from tests.otel.traced import exported, provider

ODD = ("\ud800", "\udcff tail", "a\0b", "\u202e", "\u2028", "x" * 100_000)


@pytest.mark.parametrize("content", [False, True])
@pytest.mark.parametrize("odd", ODD)
def test_odd_text_anywhere_in_a_session_is_written_by_an_otlp_exporter(odd: str, content: bool) -> None:
    told = {f"rath.{odd[:20]}": odd, "rath.list": [odd]}
    session = rb.open_store("memory:").create("s")
    session = session.append(
        draft(Run(phase="begin", name=odd, type="agent"), run="r1"),
        draft(Inference(provider=odd, model=odd, error=odd, response_id=odd, finish_reasons=(odd,)), run="r1"),
        draft(ToolCall(name=odd, call_id=odd, arguments={"uri": odd, "name": odd}, agent=odd, attributes=told), run="r1"),
        draft(ToolResult(call_id=odd, status="error", reason=odd, error=odd, result=odd), run="r1"),
        draft(ToolCall(name=odd, call_id="2", type="mcp.request", arguments={"uri": odd}), run="r1"),
        draft(ToolCall(name="prompts/get", call_id="3", type="mcp.request", arguments={"name": odd}), run="r1"),
        draft(Handoff(from_agent=odd, to_agent=odd), run="r1"),
        draft(Span(name=odd, status="error", attributes={"error.type": odd}), run="r1"),
        draft(Run(phase="end", name=odd, status=odd, error=odd), run="r1"),
    )
    spans = exported(session, content=content)
    assert len(spans) == 7
    encoded = encode_spans(spans)
    assert sum(len(scope.spans) for resource in encoded.resource_spans for scope in resource.scope_spans) == 7
    for span in spans:
        for name, value in (span.attributes or {}).items():
            name.encode()
            assert not isinstance(value, str) or value.encode()
            assert "BlobRef" not in str(value)
    otlp.dumps_protobuf(otlp.encode(session)[0])


def test_years_that_nanoseconds_cannot_hold_are_told_as_the_nearest_moment() -> None:
    session = rb.open_store("memory:").create("s")
    session = session.append(*(draft(Inference(model="m"), at=at) for at in (FIRST, -1, 0, LAST)))
    spans = exported(session)
    assert [span.end_time for span in spans] == [0, 0, 0, 2**64 - 1]
    assert len(encode_spans(spans).resource_spans[0].scope_spans[0].spans) == 4
    assert len(otlp.dumps_protobuf(otlp.encode(session)[0])) > 100


def test_a_count_of_tokens_beyond_64_bits_ends_no_export() -> None:
    session = rb.open_store("memory:").create("s")
    session = session.append(
        draft(Inference(model="m", usage=Usage(input_tokens=2**70, output_tokens=2))), draft(Inference(model="n"))
    )
    reader = InMemoryMetricReader()
    made, exporter = provider()
    assert export_spans(session, tracer_provider=made, meter_provider=MeterProvider([reader])) == 2
    assert [span.name for span in exporter.get_finished_spans()] == ["chat m", "chat n"]
    assert reader.get_metrics_data() is not None


def test_a_span_with_odd_names_and_times_comes_in_all_the_same() -> None:
    store = rb.open_store("memory:")
    made = TracerProvider()
    made.add_span_processor(SessionSpanProcessor(store, session="all"))
    for scope in ("x\ud800", "\0", "\u202e"):
        tracer = made.get_tracer(scope, scope)
        for start, end in ((1, 5), (-5, -10), (2**70, 2**80), (-(2**80), 0)):
            span = tracer.start_span("n\ud800", attributes={"a": "\ud800", "b": 2**70, "\ud800": "c"}, start_time=start)
            span.add_event("e\ud800", {"k": "\ud800"}, timestamp=2**90)
            span.end(end)
    made.force_flush()
    session = store.session("all")
    chunks = [chunk for chunk in session if chunk.kind == "span"]
    assert len(chunks) == 12
    assert all(FIRST <= chunk.at <= LAST for chunk in chunks)
    assert session.fsck() == []
    made.shutdown()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_writes_its_own_spans_and_ends_at_once(tmp_path: Path) -> None:
    store = rb.open_store(f"sqlite:///{tmp_path / 'runs.db'}")
    made, exporter = provider()
    told = tmp_path / "told"
    with LiveSpans(made) as live, rb.record(store, "a") as recorder, recorder.run("Parent"):
        recorder.emit(Inference(model="before"))
        recorder.flush()

        def child() -> None:
            exporter.clear()
            with rb.record(store, "b") as inner, inner.run("Child"):
                inner.emit(Inference(model="child"))
            live.close()
            told.write_text(",".join(span.name for span in exporter.get_finished_spans()))

        assert os.waitpid(forked(child), 0)[1] == 0  # by itself: who waits for a thread of the parent's is ended by a signal
    assert told.read_text() == "chat child,invoke_agent Child"
    assert [span.name for span in exporter.get_finished_spans()] == ["chat before", "invoke_agent Parent"]
    assert list(store.fsck()) == []


def test_a_store_that_does_not_answer_holds_nobody_longer_than_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    store = rb.open_store("memory:")
    go_on = Event()
    processor = SessionSpanProcessor(store, session="t")
    provider = TracerProvider()
    provider.add_span_processor(processor)
    append = type(store.kept).append

    def slow(*args: Any, **kwargs: Any) -> Any:
        assert go_on.wait(60)
        return append(*args, **kwargs)

    monkeypatch.setattr(type(store.kept), "append", slow)
    provider.get_tracer("t").start_span("one").end()
    assert not processor.force_flush(50)
    monkeypatch.setattr(processor_module, "LONGEST", 50)
    processor.shutdown()
    go_on.set()
    assert processor.force_flush()
    assert [chunk.body.name for chunk in store.session("t") if isinstance(chunk.body, Span)] == ["one"]
