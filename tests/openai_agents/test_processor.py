"""The processor as an observer: it uploads nothing, needs no key, never raises, forgets nothing, counts once."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, RunConfig, custom_span, trace
from agents.tracing import add_trace_processor, get_trace_provider, set_trace_processors
from agents.tracing.processor_interface import TracingExporter
from agents.tracing.processors import BatchTraceProcessor, default_processor
from openai import AsyncOpenAI

import rath_bridge as rb
from rath_bridge.errors import StoreUnavailableError
from rath_openai_agents import RathTracingProcessor, RecordingModel, install
from tests.openai_agents.doubles import httpx
from tests.openai_agents.scripted import (
    bodies,
    call,
    exact,
    get_weather,
    go,
    said,
    say,
    session,
    solo,
    step,
    triage,
    watch,
    whole,
)


def registered() -> tuple[Any, ...]:
    return get_trace_provider()._multi_processor._processors  # type: ignore[attr-defined]


# ------------------------------------------------------------------ install


async def test_install_takes_away_the_upload_and_nothing_else(store: rb.Store, caplog: pytest.LogCaptureFixture) -> None:
    """openai-agents-python issues 1387, 97, 190, 31: no key, no warning, no data leaving; others stay."""

    class Others(RathTracingProcessor):
        """Somebody else's processor."""

    batch = BatchTraceProcessor(exporter=_Collected())
    others = Others(rb.open_store("memory:"))
    set_trace_processors([default_processor(), others, batch])
    with caplog.at_level(logging.WARNING):
        ours = install(store)
        assert install(store) is ours
        assert registered() == (others, batch, ours)
        await go(triage())
        get_trace_provider().force_flush()
    assert [record.message for record in caplog.records] == []
    assert whole(session(store)).usage().input_tokens == 30
    batch.shutdown()


class _Collected(TracingExporter):
    def export(self, items: list[Any]) -> None:
        """Keep nothing."""


def test_install_may_leave_the_upload(store: rb.Store) -> None:
    set_trace_processors([default_processor()])
    ours = install(store, replace=False, session="one")
    assert registered() == (default_processor(), ours)


# ------------------------------------------------------------------ an observer's manners


async def test_double_registration_is_harmless(store: rb.Store) -> None:
    processor = watch(store)
    add_trace_processor(processor)
    watch(store)
    await go(triage())
    s = whole(session(store))
    assert (s.usage().input_tokens, len(bodies(s, "run")), len(bodies(s, "tool_call"))) == (30, 6, 1)


async def test_a_processor_that_is_added_late_marks_what_it_missed(store: rb.Store) -> None:
    with trace("outer", group_id="g"):
        span = custom_span("early")
        span.start(mark_as_current=True)
        watch(store)
        span.finish(reset_current=True)
        await go(solo([say("ok")]))
    s = whole(session(store))
    assert bodies(s, "run")[0].attributes["late"] is True
    early = next(b for b in bodies(s, "span") if b.name == "early")
    assert early.attributes["late"] is True
    assert s.usage().input_tokens == 10


async def test_a_span_that_ends_after_its_trace_is_kept(store: rb.Store) -> None:
    watch(store)
    with trace("outer", group_id="g"):
        span = custom_span("slow", {"q": 1})
        span.start()
    span.finish()
    s = session(store)
    found = [(b.status, b.attributes.get("late")) for b in bodies(s, "span")]
    assert found == [("abandoned", None), ("ok", True)]
    assert s.fsck() == []


async def test_state_is_freed_at_the_end_of_a_trace(store: rb.Store) -> None:
    """wandb/weave pull 5795: a processor kept every item."""
    from rath_openai_agents import book

    processor = watch(store)
    for n in range(3):
        await go(triage(), group=f"g{n}")
    assert not processor._open
    assert not book._books
    assert book.current_recorder() is None


async def test_spans_from_other_threads(store: rb.Store) -> None:
    import contextvars

    watch(store)
    with trace("outer", group_id="g"):

        def work(n: int) -> None:
            for i in range(20):
                with custom_span(f"{n}.{i}"):
                    pass

        threads = [threading.Thread(target=contextvars.copy_context().run, args=(work, n)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    s = whole(session(store))
    assert {b.name for b in bodies(s, "span")} == {f"{n}.{i}" for n in range(4) for i in range(20)}


class _Down:
    """A store that is down for writing, once it is told to be."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.down = inner, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def append(self, *args: Any, **kwargs: Any) -> Any:
        if self.down:
            raise StoreUnavailableError("test:", "down")
        return self._inner.append(*args, **kwargs)


@pytest.mark.parametrize("when", ["before", "during"])
async def test_a_store_that_is_down_never_breaks_the_run(when: str, caplog: pytest.LogCaptureFixture) -> None:
    backend: Any = _Down(rb.open_store("memory:").backend)
    store = rb.Store(backend)
    watch(store)
    wrap, hooks = exact(store)
    backend.down = when == "before"
    if when == "during":
        store.create("openai_agents/g")
        backend.down = True
    with caplog.at_level(logging.WARNING, "rath_bridge"):
        result = await go(triage(wrap), hooks=hooks)
    assert result.final_output == "done"
    assert [record for record in caplog.records if record.name == "rath_bridge"], "and it says so"


async def test_a_value_that_cannot_be_kept_is_a_gap(store: rb.Store, caplog: pytest.LogCaptureFixture) -> None:
    class Odd:
        def __str__(self) -> str:
            raise ValueError("no text")

    watch(store)
    with caplog.at_level(logging.WARNING, "rath_bridge"), trace("outer", group_id="g"), custom_span("odd", {"x": Odd()}):
        pass
    assert [b.count for b in bodies(whole(session(store)), "gap")] == [1]


async def test_without_content_structure_stays(store: rb.Store) -> None:
    watch(store, record_content=False)
    wrap, hooks = exact(store)
    await go(triage(wrap), "a secret thing", hooks=hooks)
    s = whole(session(store))
    assert s.usage().input_tokens == 30
    assert [c.name for c in bodies(s, "tool_call")] == ["get_weather"]
    assert [m.role for m in s.messages()] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    for chunk in s:
        text = (chunk.body_bytes or b"") + (chunk.native.data if chunk.native else b"")
        assert b"secret thing" not in text
        assert b"Oslo" not in text


async def test_sensitive_data_that_the_run_withholds_is_withheld_everywhere(store: rb.Store) -> None:
    watch(store)
    wrap, hooks = exact(store)
    await go(triage(wrap), "a secret thing", hooks=hooks, run_config=RunConfig(group_id="g", trace_include_sensitive_data=False))
    s = whole(session(store))
    assert s.usage().input_tokens == 30
    assert all(b"secret thing" not in (c.body_bytes or b"") and b"Oslo" not in (c.body_bytes or b"") for c in s)


async def test_secrets_are_redacted_before_anything_is_hashed(store: rb.Store) -> None:
    key = "sk-" + "a1" * 20
    watch(store)
    wrap, hooks = exact(store)
    steps = [step(call("get_weather", {"city": key})), say(f"your key is {key}")]
    await go(solo(steps, wrap, tools=[get_weather]), f"my key is {key}", hooks=hooks)
    s = whole(session(store))
    assert said(s)[0] == ("user", "my key is [redacted:openai-key]")
    backend = s.store.backend
    for chunk in s:
        held = [chunk.body_bytes or b"", *backend.objects(chunk.references).values()]
        assert not any(key.encode() in data for data in held)


async def test_a_long_input_costs_what_is_new_in_it(store: rb.Store) -> None:
    watch(store)
    wrap, hooks = exact(store)
    history = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"{n} " + "word " * 200} for n in range(40)]
    steps = [*(step(call("get_weather", {"city": "Oslo"}, f"c{n}")) for n in range(5)), say("done")]
    await go(solo(steps, wrap, tools=[get_weather]), history, hooks=hooks)
    s = whole(session(store))
    calls = [c for c in s if c.kind == "inference"]
    assert [c.body.input.count for c in calls] == [40, 42, 44, 46, 48, 50]  # type: ignore[attr-defined]
    assert all(c.size < 1500 for c in calls)


# ------------------------------------------------------------------ the SDK's own models, over a mock transport

USAGE = {
    "input_tokens": 11, "output_tokens": 3, "total_tokens": 14,
    "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 1},
}  # fmt: skip
FUNCTION = {"name": "get_weather", "arguments": '{"city":"Oslo"}'}
TEXT = {"type": "output_text", "text": "hello", "annotations": []}


def response(*output: dict[str, Any], number: int) -> dict[str, Any]:
    return {
        "id": f"resp_{number}", "object": "response", "created_at": 1, "model": "gpt-x", "status": "completed", "output": list(output),
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "instructions": "sys!", "temperature": 1, "usage": USAGE,
    }  # fmt: skip


RESPONSES = [
    response(
        {"id": "rs_1", "type": "reasoning", "summary": []},
        {"id": "fc_1", "type": "function_call", "call_id": "call_1", "status": "completed", **FUNCTION},
        number=1,
    ),
    response({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [TEXT]}, number=2),
]  # fmt: skip


def chat(message: dict[str, Any], reason: str) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-x",
        "choices": [{"index": 0, "finish_reason": reason, "message": {"role": "assistant", **message}}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14},
    }  # fmt: skip


CHATS = [
    chat({"content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": FUNCTION}]}, "tool_calls"),
    chat({"content": "hello"}, "stop"),
]


def events(data: dict[str, Any]) -> Iterator[bytes]:
    for number, item in enumerate(data["output"]):
        done = {"type": "response.output_item.done", "item": item, "output_index": number, "sequence_number": number}
        yield f"event: {done['type']}\ndata: {json.dumps(done)}\n\n".encode()
    last = {"type": "response.completed", "response": data, "sequence_number": 99}
    yield f"event: response.completed\ndata: {json.dumps(last)}\n\n".encode()


def chunks(data: dict[str, Any]) -> Iterator[bytes]:
    choice = data["choices"][0]
    delta = {name: value for name, value in choice["message"].items() if value is not None}
    if "tool_calls" in delta:
        delta["tool_calls"] = [{**one, "index": n} for n, one in enumerate(delta["tool_calls"])]
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-x"}
    for part in (
        {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]},
        {**base, "choices": [], "usage": data["usage"]},
    ):
        yield f"data: {json.dumps(part)}\n\n".encode()
    yield b"data: [DONE]\n\n"


def client() -> AsyncOpenAI:
    left = {"responses": list(RESPONSES), "completions": list(CHATS)}

    def answer(request: Any) -> Any:
        data = left[request.url.path.rsplit("/", 1)[-1]].pop(0)
        if b'"stream":true' in request.content.replace(b" ", b""):
            parts = events(data) if "output" in data else chunks(data)
            return httpx.Response(200, content=b"".join(parts), headers={"content-type": "text/event-stream"})
        return httpx.Response(200, json=data, headers={"x-request-id": "req_1"})

    transport = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    return AsyncOpenAI(api_key="test", base_url="http://mock.invalid/v1", http_client=transport)


def real(kind: str, store: rb.Store | None = None) -> Agent[Any]:
    made = OpenAIResponsesModel if kind == "responses" else OpenAIChatCompletionsModel
    model = made(model="gpt-x", openai_client=client())
    settings = ModelSettings(temperature=0.5)
    return Agent(
        name="Real", instructions="sys!", model=RecordingModel(model, store) if store else model, tools=[get_weather],
        model_settings=settings,
    )  # fmt: skip


@pytest.mark.parametrize(("kind", "streamed"), [("responses", False), ("responses", True), ("chat", False), ("chat", True)])
@pytest.mark.parametrize("recorded", [False, True], ids=["spans", "model"])
async def test_the_sdks_own_models(store: rb.Store, kind: str, streamed: bool, recorded: bool) -> None:
    """openai-agents-python issues 222, 2444: texts, tool data and usage are on record with the processor alone."""
    watch(store)
    hooks = exact(store)[1]
    result = await go(real(kind, store if recorded else None), "weather?", hooks=hooks if recorded else None, streamed=streamed)
    s = whole(session(store))
    assert said(s) == [
        ("user", "weather?"), ("assistant", said(s)[1][1]), ("tool", "=sunny in Oslo#call_1"), ("assistant", "hello"),
    ]  # fmt: skip
    assert (s.usage().input_tokens, s.usage().output_tokens) == (22, 6)
    assert s.usage().cache_read_input_tokens == (4 if kind == "responses" else 0)
    first, last = bodies(s, "inference")
    assert first.request["system"] == "sys!"
    assert (first.model, first.observer, last.finish_reasons) == ("gpt-x", "model" if recorded else "span", ("stop",))
    assert first.input.count == 1
    assert [c.call_id for c in bodies(s, "tool_call")] == ["call_1"]
    assert s.pending() == ()
    if kind == "responses" or recorded:
        from rath_openai_agents import encode

        assert encode(s)[0] == result.to_input_list()
    if recorded:
        assert first.request["params"]["temperature"] == 0.5


@pytest.mark.parametrize("kind", ["responses", "chat"])
async def test_what_the_run_withholds_is_visible(store: rb.Store, kind: str) -> None:
    watch(store)
    await go(real(kind), "weather?", run_config=RunConfig(group_id="g", trace_include_sensitive_data=False))
    s = whole(session(store))
    assert said(s) == []
    assert s.usage().input_tokens == 22
    assert [i.attributes["content"] for i in bodies(s, "inference")] == ["withheld", "withheld"]
    assert [c.attributes["content"] for c in bodies(s, "tool_call")] == ["withheld"]
    assert all(b"Oslo" not in (c.body_bytes or b"") for c in s)


async def test_a_span_s_values_are_those_of_its_end(store: rb.Store) -> None:
    """Spans are written up by the recorder's thread: what the user's code changes afterwards changes nothing."""
    watch(store)
    data = {"rows": [1, 2], "where": {"id": "a"}}
    with trace("t", group_id="g"), custom_span("query", data):
        pass
    data["rows"].append(3)  # type: ignore[attr-defined]
    data["where"]["id"] = "b"  # type: ignore[index]
    (kept,) = [body for body in bodies(session(store), "span") if body.name == "query"]
    assert kept.attributes["data"] == {"rows": [1, 2], "where": {"id": "a"}}
    assert kept.duration is not None


async def test_span_that_cannot_be_written_up_is_a_counted_gap(store: rb.Store) -> None:
    watch(store)
    deep: list[object] = []
    for _ in range(300):
        deep = [deep]
    with trace("t", group_id="g"):
        with custom_span("deep", {"value": deep}):
            pass
        with custom_span("query", {"rows": 1}):
            pass
    s = whole(session(store))
    assert [gap.count for gap in bodies(s, "gap")] == [1]
    assert [body.name for body in bodies(s, "span")] == ["query"]


def test_a_span_of_any_id_keeps_its_place_in_the_tree(store: rb.Store) -> None:
    """Ids in the envelope follow from the SDK's own, also where somebody names spans otherwise."""
    set_trace_processors([RathTracingProcessor(store, session="s")])
    with trace("ids"), custom_span("outer") as outer, custom_span("inner", span_id="mine/\ud800"):
        pass
    chunks = {chunk.values["name"]: chunk for chunk in store.session("s") if chunk.kind == "span"}
    spans = {name: chunk.span for name, chunk in chunks.items()}
    assert spans["outer"] is not None
    assert spans["inner"] is not None
    assert spans["outer"].span_id == outer.span_id.removeprefix("span_")[:16]
    assert spans["inner"].parent_id == spans["outer"].span_id
    assert len(spans["inner"].span_id) == 16
    assert chunks["inner"].values["attributes"]["span_id"] == "mine/\ud800"


def test_spans_of_a_recorder_without_content_keep_names_and_times_only(store: rb.Store) -> None:
    with rb.record(store, "s", record_content=False):
        set_trace_processors([RathTracingProcessor(store)])
        with trace("quiet"), custom_span("query", {"sql": "select 1"}):
            pass
    (found,) = [chunk.values for chunk in store.session("s") if chunk.kind == "span" and chunk.values["name"] == "query"]
    assert found.keys() == {"name", "status", "duration", "scope"}
