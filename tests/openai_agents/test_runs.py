"""What a run leaves on record, by who watched it: the processor alone, or with the recording model and hooks."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    ModelSettings,
    RunConfig,
    Runner,
    custom_span,
    function_tool,
    input_guardrail,
    output_guardrail,
    trace,
)

import rath_bridge as rb
from rath_openai_agents import RathRunHooks, RecordingModel, encode
from tests.openai_agents.doubles import ModelStep, ScriptedModel, assistant_message
from tests.openai_agents.scripted import (
    bodies,
    call,
    exact,
    get_weather,
    go,
    plain,
    said,
    say,
    session,
    solo,
    step,
    triage,
    watch,
    whole,
)

BOTH = pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
TRIAGE = [
    ("user", "hi"),
    ("assistant", "get_weather#call_1"),
    ("tool", "=sunny in Oslo#call_1"),
    ("assistant", "transfer_to_billing#call_2"),
    ("tool", '={"assistant": "Billing"}#call_2'),
    ("assistant", "done"),
]


# ------------------------------------------------------------------ processor alone


@BOTH
@pytest.mark.parametrize("traces", [True, False], ids=["spans", "no-model-spans"])
async def test_the_processor_alone_records_structure_and_usage(store: rb.Store, streamed: bool, traces: bool) -> None:
    watch(store)
    await go(triage(traces=traces), streamed=streamed)
    s = whole(session(store))
    runs = [(body.name, body.type) for body in bodies(s, "run") if body.phase == "begin"]
    assert runs == [("Agent workflow", "workflow"), ("Triage", "agent"), ("Billing", "agent")]
    assert [body.status for body in bodies(s, "run") if body.phase == "end"] == ["ok", "ok", "ok"]
    assert s.usage().input_tokens == 30
    assert s.usage().output_tokens == 15
    assert [(i.observer, i.agent) for i in bodies(s, "inference")] == [
        ("span", "Triage"),
        ("span", "Triage"),
        ("span", "Billing"),
    ]
    assert bodies(s, "tool_call")[0].arguments == {"city": "Oslo"}
    assert bodies(s, "tool_result")[0].result == "sunny in Oslo"
    assert [(h.from_agent, h.to_agent) for h in bodies(s, "handoff")] == [("Triage", "Billing")]
    assert [b.attributes["turn"] for b in bodies(s, "span") if b.name == "turn"] == [1, 2, 3]
    assert s.messages() == (), "a scripted model's spans hold no texts, and none are made up"


async def test_ids_are_opentelemetrys_and_the_sdks_are_kept(store: rb.Store) -> None:
    watch(store)
    with trace("outer", group_id="g", metadata={"tenant": "t1"}) as live:
        await go(solo([say("hello")]))
    s = whole(session(store))
    chunks = [chunk for chunk in s if chunk.span is not None]
    assert {chunk.span.trace_id for chunk in chunks} == {live.trace_id.removeprefix("trace_")}  # type: ignore[union-attr]
    root = bodies(s, "run")[0]
    assert (root.native_id, root.attributes) == (
        live.trace_id,
        {"workflow_name": "outer", "group_id": "g", "metadata": {"tenant": "t1"}},
    )
    known = {chunk.span.span_id for chunk in chunks}  # type: ignore[union-attr]
    parents = {chunk.span.parent_id for chunk in chunks} - {None}  # type: ignore[union-attr]
    assert parents <= known | {c.span.parent_id for c in chunks if c.kind == "span"}  # type: ignore[union-attr]
    assert all(b.attributes["span_id"].startswith("span_") for b in bodies(s, "span"))


# ------------------------------------------------------------------ all three observers


@BOTH
async def test_with_model_and_hooks_nothing_is_written_twice(store: rb.Store, streamed: bool) -> None:
    watch(store)
    wrap, hooks = exact(store)
    result = await go(triage(wrap), streamed=streamed, hooks=hooks)
    s = whole(session(store))
    assert said(s) == TRIAGE
    assert s.usage().input_tokens == 30
    assert [i.observer for i in bodies(s, "inference")] == ["model"] * 3
    assert [i.streamed for i in bodies(s, "inference")] == [streamed] * 3
    assert [(c.name, c.call_id, c.basis) for c in bodies(s, "tool_call")] == [("get_weather", "call_1", None)]
    assert [(r.call_id, r.status, r.result, r.basis) for r in bodies(s, "tool_result")] == [
        ("call_1", "ok", "sunny in Oslo", None),
        ("call_2", "ok", '{"assistant": "Billing"}', "inferred"),
    ]
    assert [(h.to_agent, h.call_id, h.basis) for h in bodies(s, "handoff")] == [("Billing", "call_2", None)]
    assert s.pending() == ()
    items, report = encode(s)
    assert items == result.to_input_list()
    assert report.exact
    assert [m.name for m in s.messages()] == [None, "Triage", None, "Triage", None, "Billing"]


@pytest.mark.parametrize("hooked", [False, True])
async def test_any_two_observers_pair_the_calls(store: rb.Store, hooked: bool) -> None:
    watch(store)
    wrap, hooks = exact(store)
    await go(triage(plain if hooked else wrap), hooks=hooks if hooked else None)
    s = whole(session(store))
    assert [(c.call_id, c.basis) for c in bodies(s, "tool_call")] == [("call_1", None if hooked else "inferred")]
    assert [r.call_id for r in bodies(s, "tool_result") if r.name == "get_weather"] == ["call_1"]
    assert s.usage().input_tokens == 30


async def test_identical_parallel_calls_keep_their_ids(store: rb.Store) -> None:
    watch(store)
    started: list[str] = []

    @function_tool
    async def slow(n: int) -> str:
        """Answer in the other order."""
        started.append(str(n))
        mine = len(started)
        await asyncio.sleep(0.02 if mine == 1 else 0)
        return f"answer {mine}"

    steps = [step(call("slow", {"n": 1}, "a"), call("slow", {"n": 1}, "b")), say("ok")]
    wrap, hooks = exact(store)
    await go(solo(steps, wrap, tools=[slow]), hooks=hooks)
    steps = [step(call("slow", {"n": 1}, "a"), call("slow", {"n": 1}, "b")), say("ok")]
    started.clear()
    await go(solo(steps, wrap, tools=[slow]), group="inferred")
    for group, basis in (("g", None), ("inferred", "inferred")):
        s = whole(session(store, group))
        results = {r.call_id: (r.result, r.basis) for r in bodies(s, "tool_result")}
        assert results == {"a": ("answer 1", basis), "b": ("answer 2", basis)}
        assert s.pending() == ()


async def test_the_request_is_kept_once(store: rb.Store) -> None:
    watch(store)
    wrap, hooks = exact(store)
    settings = ModelSettings(temperature=0.5, extra_headers={"Authorization": "Bearer secret"})
    await go(triage(wrap, model_settings=settings), hooks=hooks)
    s = session(store)
    first, second, third = bodies(s, "inference")
    assert first.request["system"] == "triage"
    assert first.request["params"] == {"temperature": 0.5, "extra_headers": ["Authorization"]}
    assert first.request["tools"] == second.request["tools"]
    from rath_bridge.model.trees import read_list

    backend = s.store.backend
    (tool,) = [
        json.loads(data)
        for data in backend.objects([raw.hex() for raw in read_list(first.request["tools"], backend.objects)]).values()
    ]
    assert (tool["name"], tool["description"]) == ("get_weather", "Tell the weather.")
    items = [json.loads(backend.objects([raw.hex()])[raw.hex()]) for raw in read_list(third.input, backend.objects)]
    assert [item.get("type", item.get("role")) for item in items] == [
        "user", "function_call", "function_call_output", "function_call", "function_call_output",
    ]  # fmt: skip


async def test_a_recorded_answer_reads_back_as_the_sdks_own(store: rb.Store) -> None:
    from agents.items import ModelResponse
    from pydantic import TypeAdapter

    watch(store)
    wrap, hooks = exact(store)
    result = await go(triage(wrap), hooks=hooks)
    natives = [json.loads(c.native.data) for c in session(store) if c.kind == "inference" and c.native]
    again = [TypeAdapter(ModelResponse).validate_python(native) for native in natives]
    assert [r.to_input_items() for r in again] == [r.to_input_items() for r in result.raw_responses]
    assert [r.usage for r in again] == [r.usage for r in result.raw_responses]


# ------------------------------------------------------------------ nesting


async def test_an_agent_used_as_a_tool_keeps_its_own_transcript(store: rb.Store) -> None:
    watch(store)
    wrap, hooks = exact(store)
    helper = Agent(name="Helper", model=wrap(ScriptedModel([say("inner answer")])))
    tool = helper.as_tool("ask_helper", "Ask.")
    agent = solo([step(call("ask_helper", {"input": "inner question"})), say("outer answer")], wrap, tools=[tool])
    await go(agent, hooks=hooks)
    s = whole(session(store))
    assert said(s) == [
        ("user", "hi"), ("assistant", "ask_helper#call_1"), ("tool", "=inner answer#call_1"), ("assistant", "outer answer"),
    ]  # fmt: skip
    (inner,) = [c.run for c in s if c.kind == "run" and c.body.type == "workflow" and c.body.parent]  # type: ignore[attr-defined]
    assert said(s, inner) == [("user", "inner question"), ("assistant", "inner answer")]
    assert s.usage().input_tokens == 30


@pytest.mark.parametrize("traces", [True, False])
async def test_a_tools_tokens_are_not_counted_twice_from_spans(store: rb.Store, traces: bool) -> None:
    watch(store)
    helper = Agent(name="Helper", model=ScriptedModel([say("inner answer")], emit_traces=traces))
    tool = helper.as_tool("ask_helper", "Ask.")
    await go(solo([step(call("ask_helper", {"input": "q"})), say("outer")], traces=traces, tools=[tool]))
    s = whole(session(store))
    assert (s.usage().input_tokens, len(bodies(s, "inference"))) == (30, 3)


async def test_a_run_inside_an_ambient_run_nests_in_it(store: rb.Store) -> None:
    watch(store)
    wrap, hooks = exact(store)
    with rb.record(store, "mixed") as recorder, recorder.run("node", "node") as node:
        await go(triage(wrap), hooks=hooks)
    s = whole(store.session("mixed"))
    root = next(body for body in bodies(s, "run") if body.name == "Agent workflow" and body.phase == "begin")
    assert root.parent == node.id
    assert s.messages() == (), "a nested run's messages are its own"
    (inner,) = [c.run for c in s if c.kind == "run" and c.body.name == "Agent workflow" and c.body.phase == "begin"]  # type: ignore[attr-defined]
    assert said(s, inner) == TRIAGE
    assert [name for name in store.backend.refs() if name.session != "mixed"] == []


async def test_what_runs_inside_a_tool_nests_under_the_agent(store: rb.Store) -> None:
    watch(store)

    @function_tool
    def work() -> str:
        """Work with another framework."""
        from rath_bridge.recorder import current_recorder

        recorder = current_recorder()
        assert recorder is not None
        with recorder.run("other framework", "team"):
            return "worked"

    await go(solo([step(call("work")), say("ok")], tools=[work]))
    s = whole(session(store))
    begun = {body.name: (chunk.run, body.parent) for chunk in s if chunk.kind == "run" and (body := chunk.body).phase == "begin"}  # type: ignore[attr-defined]
    assert begun["other framework"][1] == begun["Solo"][0]
    from rath_bridge.recorder import current_recorder

    assert current_recorder() is None


# ------------------------------------------------------------------ failures


@input_guardrail
async def no_secrets(ctx: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered="SECRET" in json.dumps(given))


@output_guardrail
async def out_ok(ctx: Any, agent: Any, out: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)


@BOTH
async def test_guardrails_pass(store: rb.Store, streamed: bool) -> None:
    watch(store)
    await go(solo([say("fine")], input_guardrails=[no_secrets], output_guardrails=[out_ok]), streamed=streamed)
    s = whole(session(store))
    found = [(g.name, g.stage, g.triggered, g.agent) for g in bodies(s, "guardrail")]
    assert found == [("no_secrets", "input", False, "Solo"), ("out_ok", "output", False, "Solo")]


@BOTH
async def test_a_tripwire_ends_the_run_with_its_error(store: rb.Store, streamed: bool) -> None:
    watch(store)
    wrap, hooks = exact(store)
    with pytest.raises(InputGuardrailTripwireTriggered):
        await go(solo([say("never")], wrap, input_guardrails=[no_secrets]), "SECRET", streamed=streamed, hooks=hooks)
    s = whole(session(store))
    assert [(g.name, g.triggered) for g in bodies(s, "guardrail")] == [("no_secrets", True)]
    assert {body.status for body in bodies(s, "run") if body.phase == "end"} == {"error"}
    assert all("Tripwire" in body.error or "tripwire" in body.error for body in bodies(s, "run") if body.phase == "end")


@BOTH
@pytest.mark.parametrize("recorded", [False, True], ids=["spans", "model"])
async def test_a_model_error_is_the_same_plain_and_streamed(store: rb.Store, streamed: bool, recorded: bool) -> None:
    """openai-agents-python issue 4070: plain runs left the agent's error empty."""
    watch(store)
    wrap, hooks = exact(store)
    steps = [step(call("get_weather", {"city": "Oslo"})), ModelStep.raise_error(RuntimeError("the model is down"))]
    agent = solo(steps, wrap if recorded else plain, tools=[get_weather])
    with pytest.raises(RuntimeError):
        await go(agent, streamed=streamed, hooks=hooks)
    s = whole(session(store))
    assert [b.status for b in bodies(s, "run") if b.phase == "end"] == ["error", "error"]
    assert ["the model is down" in b.error for b in bodies(s, "run") if b.phase == "end"] == [True, True]
    assert "the model is down" in bodies(s, "inference")[-1].error
    assert s.usage().input_tokens == 10
    if recorded:
        assert said(s) == [("user", "hi"), ("assistant", "get_weather#call_1"), ("tool", "=sunny in Oslo#call_1")]


@BOTH
async def test_max_turns_is_an_error_of_the_run(store: rb.Store, streamed: bool) -> None:
    watch(store)
    wrap, hooks = exact(store)
    steps = [step(call("get_weather", {"city": "Oslo"}, f"c{i}")) for i in range(3)]
    with pytest.raises(MaxTurnsExceeded):
        await go(solo(steps, wrap, tools=[get_weather]), streamed=streamed, hooks=hooks, max_turns=2)
    s = whole(session(store))
    assert bodies(s, "run")[-1].status == "error"
    assert re.search("(?i)max ?turns", bodies(s, "run")[-1].error)
    items, report = encode(s)
    assert [i.get("output") for i in items if i.get("type") == "function_call_output"] == ["sunny in Oslo"] * 2
    assert report.exact, "the last answer was recorded, though no model was handed it"


@pytest.mark.parametrize("hooked", [True, False])
async def test_a_tool_that_fails(store: rb.Store, hooked: bool) -> None:
    watch(store)

    @function_tool(failure_error_function=None)
    def broken() -> str:
        """Fail."""
        raise ValueError("no such city")

    @function_tool
    def soft() -> str:
        """Fail softly."""
        raise ValueError("no such city")

    wrap, hooks = exact(store)
    await go(solo([step(call("soft")), say("ok")], wrap, tools=[soft]), hooks=hooks if hooked else None, group="soft")
    with pytest.raises(Exception, match="no such city"):
        await go(solo([step(call("broken")), say("ok")], wrap, tools=[broken]), hooks=hooks if hooked else None)
    s = whole(session(store))
    (result,) = bodies(s, "tool_result")
    assert (result.call_id, result.status) == ("call_1", "error")
    assert "no such city" in result.error
    (result,) = bodies(whole(session(store, "soft")), "tool_result")
    assert (result.call_id, result.status) == ("call_1", "error")
    assert "An error occurred" in result.result


async def test_a_cancelled_stream_is_closed_and_marked(store: rb.Store) -> None:
    watch(store)
    wrap, hooks = exact(store)
    result = Runner.run_streamed(triage(wrap), "hi", run_config=RunConfig(group_id="g"), hooks=hooks)
    async for event in result.stream_events():
        if event.type == "raw_response_event":
            result.cancel()
    s = whole(session(store))
    assert said(s)[0] == ("user", "hi")
    assert {b.status for b in bodies(s, "run") if b.phase == "end"} <= {"ok", "cancelled"}


async def test_a_model_stream_that_is_closed_early_is_recorded_and_marked(store: rb.Store) -> None:
    from agents.models.interface import ModelTracing

    with rb.record(store, "x"):
        model = RecordingModel(ScriptedModel([say("hello there")]))
        stream = model.stream_response(
            None, "hi", ModelSettings(), [], None, [], ModelTracing.DISABLED,
            previous_response_id=None, conversation_id=None, prompt=None,
        )  # fmt: skip
        async for event in stream:
            if event.type == "response.output_text.delta":
                break
        await stream.aclose()  # type: ignore[attr-defined]
    s = store.session("x")
    (inference,) = bodies(s, "inference")
    assert (inference.error, inference.finish_reasons) == ("the stream was closed before it ended", ("incomplete",))
    assert inference.attributes["closed_early"] is True
    assert inference.attributes["partial_text"]
    assert said(s) == [("user", "hi")], "half an answer is no message"
    assert s.fsck() == []


async def test_an_abandoned_stream_leaves_a_closed_marked_record(store: rb.Store) -> None:
    processor = watch(store)
    wrap, hooks = exact(store)
    result = Runner.run_streamed(triage(wrap), "hi", run_config=RunConfig(group_id="g"), hooks=hooks)
    stream = result.stream_events()
    async for _ in stream:
        break
    processor.shutdown()
    s = whole(session(store))
    assert "abandoned" in {b.status for b in bodies(s, "run") if b.phase == "end"}
    result.cancel()
    await stream.aclose()  # type: ignore[attr-defined]
    await asyncio.sleep(0)


# ------------------------------------------------------------------ other spans


async def test_custom_and_voice_spans_are_kept_as_they_are(store: rb.Store) -> None:
    from agents.tracing import speech_group_span, speech_span, transcription_span

    watch(store)
    with trace("manual", group_id="g"):
        with custom_span("db", {"q": 1}) as span:
            span.set_error({"message": "boom", "data": {"x": 1}})
        with transcription_span(model="whisper", input="b64", output="text", model_config={"l": "en"}):
            pass
        with speech_group_span(input="hello"), speech_span(model="tts", input="hello", output="b64audio"):
            pass
    s = whole(session(store))
    found = {b.name: (b.status, b.attributes) for b in bodies(s, "span")}
    assert set(found) == {"db", "transcription", "speech_group", "speech"}
    assert found["db"][0] == "error"
    assert found["db"][1]["data"] == {"q": 1}
    assert found["transcription"][1]["model"] == "whisper"
    assert found["speech"][1]["parent_id"] == found["speech_group"][1]["span_id"]


async def test_hooks_alone_record_under_an_ambient_run(store: rb.Store) -> None:
    with rb.record(store, "x") as recorder, recorder.run("job"):
        await go(triage(), hooks=RathRunHooks(), run_config=RunConfig(tracing_disabled=True))
    s = whole(store.session("x"))
    assert [(c.name, c.call_id) for c in bodies(s, "tool_call")] == [("get_weather", "call_1")]
    assert [(h.from_agent, h.to_agent) for h in bodies(s, "handoff")] == [("Triage", "Billing")]


async def test_a_call_that_waits_for_approval_is_pending_until_it_runs(store: rb.Store) -> None:
    ran: list[str] = []

    @function_tool(needs_approval=True)
    def delete(path: str) -> None:
        """Delete."""
        ran.append(path)

    watch(store)
    wrap, hooks = exact(store)
    agent = solo([step(call("delete", {"path": "/x"})), say("gone")], wrap, tools=[delete])
    result = await go(agent, hooks=hooks)
    assert [c.call_id for c in session(store).pending()] == ["call_1"]
    assert bodies(session(store), "tool_result") == []
    state = result.to_state()
    state.approve(state.get_interruptions()[0])
    again = await go(agent, state, hooks=hooks)
    assert (again.final_output, ran) == ("gone", ["/x"])
    s = session(store)
    assert s.fsck() == []
    assert [(r.call_id, r.status, r.result) for r in bodies(s, "tool_result")] == [("call_1", "ok", None)]
    assert said(whole(s)) == [("user", "hi"), ("assistant", "delete#call_1"), ("tool", "=None#call_1"), ("assistant", "gone")]
    assert encode(s)[0] == again.to_input_list()


async def test_other_hooks_go_on(store: rb.Store) -> None:
    from agents import RunHooks

    class Seen(RunHooks[Any]):
        def __init__(self) -> None:
            self.names: list[str] = []

        async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
            self.names.append("tool_start")

        async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
            self.names.append("handoff")

        async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
            self.names.append("llm_end")

    seen = Seen()
    watch(store)
    await go(triage(), hooks=RathRunHooks(also=seen))
    assert seen.names == ["llm_end", "tool_start", "llm_end", "handoff", "llm_end"]
    assert assistant_message("x").type == "message"
