"""Spans in: anybody's instrumentation, attached to the session and the run that it happened in."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Link, SpanKind, StatusCode

import rath_bridge as rb
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.kinds import Inference, Span, Usage
from rath_bridge.otel import LiveSpans, SessionSpanProcessor, export_spans
from tests.otel.traced import exported, named, provider, scripted, span_id, trace_id


@pytest.fixture
def store() -> rb.Store:
    return rb.open_store("memory:")


def processed(store: rb.Store, **options: Any) -> tuple[TracerProvider, SessionSpanProcessor]:
    made = TracerProvider()
    processor = SessionSpanProcessor(store, **options)
    made.add_span_processor(processor)
    return made, processor


def spans_in(session: rb.Session) -> list[tuple[Chunk, Span]]:
    return [(chunk, cast(Span, chunk.body)) for chunk in session if chunk.kind == "span"]


def test_a_span_is_kept_whole_and_under_its_run(store: rb.Store) -> None:
    made, _ = processed(store)
    tracer = made.get_tracer("somebody", "1.2")
    with rb.record(store, "ticket") as recorder:
        with tracer.start_as_current_span("outside"):
            pass
        with recorder.run("agent") as run, tracer.start_as_current_span("GET /x", kind=SpanKind.CLIENT) as span:
            span.set_attribute("http.request.method", "GET")
            span.add_event("retry", {"n": 1})
            span.add_link(span.get_span_context(), {"why": "test"})
            span.set_status(StatusCode.ERROR, "no answer")
            given = span.get_span_context()
    (outside, _), (chunk, body) = spans_in(store.session("ticket"))
    assert outside.run is None
    assert (chunk.run, body.name, body.span_kind, body.status) == (run.id, "GET /x", "client", "error")
    assert body.attributes == {"http.request.method": "GET", "rath.status.description": "no answer"}
    assert body.events[0]["name"] == "retry"
    assert body.links[0]["attributes"] == {"why": "test"}
    assert body.scope == "somebody"
    assert chunk.span is not None
    assert (chunk.span.trace_id, chunk.span.span_id) == (f"{given.trace_id:032x}", f"{given.span_id:016x}")


def test_which_session(store: rb.Store) -> None:
    made, processor = processed(store)
    tracer = made.get_tracer("somebody")
    with tracer.start_as_current_span("a web request"):
        pass
    assert (processor.unplaced, store.sessions()) == (1, [])
    with (
        tracer.start_as_current_span("chat", attributes={"gen_ai.conversation.id": "c 1"}),
        tracer.start_as_current_span("child"),
    ):
        pass
    late = tracer.start_span("late")
    late.set_attribute("session.id", "c2")
    late.end()
    processor.force_flush()
    assert {s.name: [b.name for _, b in spans_in(s)] for s in store.sessions()} == {
        "otel/c%201": ["child", "chat"], "otel/c2": ["late"]
    }  # fmt: skip
    processor.shutdown()

    made, processor = processed(store, session="all")
    with rb.record(store, "ticket"), made.get_tracer("somebody").start_as_current_span("x"):
        pass
    processor.shutdown()
    assert [b.name for _, b in spans_in(store.session("all"))] == ["x"]
    assert spans_in(store.session("ticket")) == []


def test_a_span_of_an_unbound_thread_follows_its_parent(store: rb.Store) -> None:
    from opentelemetry.trace import set_span_in_context

    made, _ = processed(store)
    tracer = made.get_tracer("somebody")
    with rb.record(store, "ticket") as recorder, recorder.run("agent") as run:  # noqa: SIM117
        with tracer.start_as_current_span("parent") as parent, ThreadPoolExecutor(1) as pool:
            context = set_span_in_context(parent)
            pool.submit(lambda: tracer.start_span("child", context).end()).result()
    assert [(chunk.run, body.name) for chunk, body in spans_in(store.session("ticket"))] == [
        (run.id, "child"),
        (run.id, "parent"),
    ]


def test_ours_are_not_doubled_and_theirs_are_not_exported_again(store: rb.Store) -> None:
    made, _ = processed(store)
    with rb.record(store, "ticket") as recorder, LiveSpans(made) as live:
        with recorder.run("agent"), made.get_tracer("somebody").start_as_current_span("theirs"):
            recorder.emit(Inference(model="m"))
        recorder.flush()
        assert live.flush()
    s = store.session("ticket")
    assert [body.name for _, body in spans_in(s)] == ["theirs"]
    with rb.record(store, "ticket"):
        export_spans(s, tracer_provider=made)
    assert len(spans_in(store.session("ticket"))) == 1
    assert {span.name for span in exported(s)} == {"chat m", "invoke_agent agent"}


def test_usage_stays_with_inference(store: rb.Store) -> None:
    made, _ = processed(store)
    with rb.record(store, "ticket") as recorder, recorder.run("agent"):  # noqa: SIM117
        with made.get_tracer("x").start_as_current_span("chat m", attributes={"gen_ai.usage.input_tokens": 10}):
            recorder.emit(Inference(model="m", usage=Usage(input_tokens=10)))
    assert store.session("ticket").usage() == Usage(input_tokens=10)


def test_content_and_secrets_are_the_recorders_to_keep(store: rb.Store) -> None:
    made, _ = processed(store)
    key = "sk-proj-" + "a1B2" * 12
    with rb.record(store, "ticket"), made.get_tracer("x").start_as_current_span("call", attributes={"input.value": f"use {key}"}):
        pass
    assert key not in str(spans_in(store.session("ticket"))[0][1].attributes)
    with (
        rb.record(store, "bare", record_content=False),
        made.get_tracer("x").start_as_current_span("call", attributes={"a": "b"}),
    ):
        pass
    assert spans_in(store.session("bare"))[0][1].attributes == {}


def test_a_runs_trace_is_the_callers(store: rb.Store) -> None:
    made, _ = provider()
    with made.get_tracer("app").start_as_current_span("request") as request, rb.record(store, "ticket") as recorder:  # noqa: SIM117
        with recorder.run("agent") as run, recorder.run("inner") as inner:
            pass
    caller = request.get_span_context()
    assert run.span.trace_id == inner.span.trace_id == f"{caller.trace_id:032x}"
    assert (run.span.parent_id, inner.span.parent_id) == (f"{caller.span_id:016x}", run.span.span_id)
    span = named(exported(store.session("ticket")), "invoke_agent agent")
    assert (trace_id(span), span.parent and span.parent.span_id) == (run.span.trace_id, caller.span_id)


def test_live_and_later_are_the_same_spans(store: rb.Store) -> None:
    scripted(store)
    made, exporter = provider()
    with LiveSpans(made) as live, rb.record(store, "ticket") as recorder:
        with recorder.run("agent"):
            recorder.emit(Inference(model="m", usage=Usage(input_tokens=1)))
        assert live.flush()
    seen = [(span.name, span_id(span), span.start_time, span.end_time) for span in exporter.get_finished_spans()]
    assert [name for name, *_ in seen] == ["chat m", "invoke_agent agent"], "what stood there before is not told again"
    later = [(span.name, span_id(span), span.start_time, span.end_time) for span in exported(store.session("ticket"))]
    assert set(seen) <= set(later)


async def test_openinference_beside_our_processor(store: rb.Store) -> None:
    """A public instrumentation of the OpenAI Agents SDK: its spans hang on the run that our recorder knows."""
    from agents import add_trace_processor, set_trace_processors

    from rath_openai_agents import RathTracingProcessor
    from tests.openai_agents.scripted import go, say, solo

    made, _ = processed(store)
    instrumentor = OpenAIAgentsInstrumentor()
    instrumentor.instrument(tracer_provider=made)
    try:
        add_trace_processor(RathTracingProcessor(store))
        with rb.record(store, "ticket"):
            await go(solo([say("done")]))
    finally:
        instrumentor.uninstrument()
        set_trace_processors([])
    s = store.session("ticket")
    kinds = {str(body.attributes.get("openinference.span.kind")) for _, body in spans_in(s)}
    assert {"AGENT", "LLM"} <= kinds
    assert len([chunk for chunk in s if chunk.kind == "inference"]) == 1
    assert s.usage().total_tokens == 15
    assert {"invoke_agent Solo", "chat"} <= {span.name for span in exported(s)}


async def test_autogens_own_spans(store: rb.Store) -> None:
    """AutoGen traces itself by the GenAI conventions, through the global provider's tracers."""
    from autogen_agentchat.agents import AssistantAgent
    from autogen_ext.models.replay import ReplayChatCompletionClient
    from opentelemetry import trace

    made, _ = processed(store)
    before, trace._TRACER_PROVIDER = trace._TRACER_PROVIDER, made
    try:
        with rb.record(store, "ticket") as recorder, recorder.run("team") as run:
            await AssistantAgent("helper", ReplayChatCompletionClient(["hello"])).run(task="hi")
    finally:
        trace._TRACER_PROVIDER = before
    found = spans_in(store.session("ticket"))
    assert [body.attributes["gen_ai.operation.name"] for _, body in found] == ["create_agent", "invoke_agent"]
    assert {chunk.run for chunk, _ in found} == {run.id}


def test_links_of_the_api_are_understood() -> None:
    """`Link` without attributes."""
    store = rb.open_store("memory:")
    made, _ = processed(store)
    tracer = made.get_tracer("x")
    first = tracer.start_span("first")
    first.end()
    with rb.record(store, "ticket"):
        tracer.start_span("second", links=[Link(first.get_span_context())]).end()
    assert spans_in(store.session("ticket"))[0][1].links[0]["span_id"] == f"{first.get_span_context().span_id:016x}"
