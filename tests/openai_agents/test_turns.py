"""A wrapped agent is what a replay runs: each of its runs is made again, with the input that is on record."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailTripwireTriggered,
    ModelSettings,
    Runner,
    RunState,
    SQLiteSession,
    function_tool,
)
from agents.exceptions import ModelBehaviorError
from agents.models.interface import ModelTracing
from agents.tracing import add_trace_processor

import rath_bridge as rb
from rath_openai_agents import RathTracingProcessor, RecordingModel, wrap
from tests.openai_agents.doubles import ScriptedModel
from tests.openai_agents.scripted import call, say, step
from tests.waiting import soon

DONE: list[int] = []
USER = {"role": "user", "content": "and Rome?"}


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DONE.clear()


@function_tool(needs_approval=True)
def pay(n: int) -> str:
    DONE.append(n)
    return f"paid {n}"


def agent(*steps: Any, **fields: Any) -> Agent[Any]:
    return Agent(name="Clerk", instructions="Help.", model=ScriptedModel(list(steps)), tools=[pay], **fields)


async def again(store: rb.Store, served: int, **fields: Any) -> rb.ReplayReport:
    """Replay with a new agent that has no model to ask."""
    done, heads = list(DONE), store.backend.refs()
    report = await rb.areplay(store.session("oa"), wrap(agent(**fields), store))
    assert (report.equal, report.served, report.unused, report.live) == (True, served, (), 0), str(report)
    assert (DONE, store.backend.refs()) == (done, heads)
    return report


def phases(store: rb.Store) -> list[str]:
    return [chunk.values["phase"] for chunk in store.session("oa") if chunk.kind == "run"]


@pytest.mark.usefixtures("sync_loop")
def test_what_run_sync_was_given(store: rb.Store) -> None:
    clerk = wrap(agent(say("hi"), say("sunny"), say("more")), store, session="oa")
    clerk.run_sync("Hello?")
    clerk.run_sync([{"role": "user", "content": "Oslo?"}, USER])
    clerk.run_sync()
    report = rb.replay(store.session("oa"), wrap(agent(), store))
    assert (report.equal, report.served, report.unused, report.error) == (True, 3, (), None), str(report)
    assert rb.replay(store.session("oa"), clerk).equal, "the very object that was recorded"


async def test_streams_and_runs_in_turn(store: rb.Store) -> None:
    clerk = wrap(agent(say("hi"), say("sunny")), store, session="oa")
    await clerk.run("Hello?")
    result = clerk.run_streamed("Oslo?")
    async for _ in result.stream_events():
        pass
    await soon(lambda: Counter(phases(store)) == {"begin": 4, "end": 4})  # the record of a stream ends with its task
    await again(store, 2)
    report = await asyncio.to_thread(rb.replay, store.session("oa"), wrap(agent(), store))
    assert report.equal, str(report)


async def test_a_paused_run_goes_on_from_its_state(store: rb.Store) -> None:
    steps = [step(call("pay", {"n": 1}, "c1")), say("done")]
    paused = await wrap(agent(*steps), store, session="oa").run("Pay 1.")
    state = await RunState.from_json(agent(*steps[1:]), paused.to_state().to_json())
    state.approve(state.get_interruptions()[0])
    result = await wrap(agent(*steps[1:]), store, session="oa").run(state)
    assert (result.final_output, DONE) == ("done", [1])
    await again(store, 3)

    async def by_hand() -> None:
        """The states of a program have new trace ids."""
        paused = await wrap(agent(), store, session="oa").run("Pay 1.")
        state = paused.to_state()
        state.approve(state.get_interruptions()[0])
        await wrap(agent(), store, session="oa").run(state)

    report = await rb.areplay(store.session("oa"), by_hand)
    assert (report.equal, DONE) == (True, [1]), str(report)


async def test_turns_on_a_session(store: rb.Store) -> None:
    """As before, now for more than one of them, and mixed with runs that have an input of their own."""
    clerk = wrap(agent(say("hi"), say("sunny"), say("hot")), store, session="oa")
    session = await clerk.acall(store.create("oa").append(rb.message("user", "Hello?")))
    await clerk.acall(session.append(rb.message("user", "Oslo?")))
    await clerk.run([USER])
    await again(store, 3)


async def test_an_sdk_session_held_the_history(store: rb.Store) -> None:
    clerk = wrap(agent(say("hi"), say("sunny")), store, session="oa")
    memory = SQLiteSession("m")
    await clerk.run("Hello?", session=memory)
    await clerk.run("Oslo?", session=memory)
    await again(store, 2)


async def test_a_list_with_the_history_and_a_report_of_it(store: rb.Store) -> None:
    await wrap(agent(say("hi")), store, session="oa").run("Hello?")
    items, report = rb.encode(store.session("oa"), "openai_agents")
    await wrap(agent(say("sunny")), store, session="oa", continues=report).run([*items, USER])
    items, _ = rb.encode(store.session("oa"), "openai_agents")
    await wrap(agent(say("hot")), store, session="oa").run([*items, USER])
    await again(store, 3)


async def test_a_run_that_failed_does_not_end_the_others(store: rb.Store) -> None:
    with pytest.raises(ModelBehaviorError):
        await wrap(agent(ModelBehaviorError("bad")), store, session="oa").run("Hello?")
    await wrap(agent(say("hi")), store, session="oa").run("Hello again?")
    report = await again(store, 2)
    assert report.error is None


async def test_other_agents_runs_are_not_its_own(store: rb.Store) -> None:
    await wrap(agent(say("hi")).clone(name="Other"), store, session="oa").run("Hello?")
    report = await rb.areplay(store.session("oa"), wrap(agent(), store))
    assert report.equal is False
    assert (report.live, report.reasons) == (0, ())


async def test_an_input_that_is_not_on_record_is_a_reason(store: rb.Store) -> None:
    async def refuse(*_: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(None, tripwire_triggered=True)

    gate = InputGuardrail(refuse, run_in_parallel=False)
    with pytest.raises(InputGuardrailTripwireTriggered):
        await wrap(agent(say("hi"), input_guardrails=[gate]), store, session="oa").run("Hello?")
    report = await rb.areplay(store.session("oa"), wrap(agent(input_guardrails=[gate]), store))
    assert report.equal is None
    assert report.reasons == (
        "the input of a run of Clerk is not on record, since no model was asked: give rb.replay a function that runs the agent",
    )


async def test_what_died_in_its_second_run_is_gone_on_with(store: rb.Store) -> None:
    clerk = wrap(agent(say("hi"), RuntimeError("the network is down")), store, session="oa")
    await clerk.run("Hello?")
    with pytest.raises(RuntimeError):
        await clerk.run("Oslo?")
    s = store.session("oa")
    last = next(chunk for chunk in reversed(list(s)) if chunk.kind == "message")
    report = await rb.areplay(s, wrap(agent(say("sunny")), store), until=last, then="live")
    assert (report.served, report.live) == (1, 1), str(report)
    assert report.result is not None
    assert [m.text for m in report.result.messages()] == ["Hello?", "hi", "Oslo?", "sunny"]


# ------------------------------------------------------------------ records of observers alone


def asked(store: rb.Store, *steps: Any, times: int = 2) -> Any:
    """A program of one argument that asks a recording model by itself, and through a runner; no trace is recorded."""

    async def program(session: rb.Session) -> list[Any]:
        with rb.record(session.store, session.name):
            model = RecordingModel(ScriptedModel(list(steps)))
            said = [(await Runner.run(Agent(name="Clerk", model=model), f"Hello {n}?")).final_output for n in range(times)]
            settings = (ModelSettings(), [], None, [], ModelTracing.DISABLED)
            ids: dict[str, Any] = {"previous_response_id": None, "conversation_id": None, "prompt": None}
            whole: Any = await model.get_response("Be short.", "Alone?", *settings, **ids)
            events: list[Any] = [event async for event in model.stream_response("Be short.", "A stream?", *settings, **ids)]
            return [*said, whole.output[0].content[0].text, events[-1].response.output[0].content[0].text]

    return program


@pytest.mark.parametrize("before", [(), ("Before?",)], ids=["new", "begun"])
async def test_a_recording_model_alone_is_replayed_by_its_program(store: rb.Store, before: tuple[str, ...]) -> None:
    session = store.create("oa").append(*(rb.message("user", text) for text in before)) if before else store.create("oa")
    said = await asked(store, say("a"), say("b"), say("c"), say("d"))(session)
    assert said == ["a", "b", "c", "d"]
    heads = store.backend.refs()
    report = await rb.areplay(store.session("oa"), asked(store))
    assert (report.equal, report.served, report.live, report.value) == (True, 4, 0, said), str(report)
    assert store.backend.refs() == heads


async def test_what_a_recording_model_alone_saw_is_no_run_of_a_wrapped_agent(store: rb.Store) -> None:
    await asked(store, say("a"), say("b"), say("c"), say("d"))(store.create("oa"))
    report = await rb.areplay(store.session("oa"), wrap(agent(), store))
    assert report.reasons == (
        "its model calls are on record, and no run: give rb.replay the program that made it (docs/replay.md)",
    )
    assert (report.equal, str(report).count("give rb.replay")) == (None, 1)


async def test_what_a_processor_saw_is_no_run_of_a_wrapped_agent(store: rb.Store) -> None:
    add_trace_processor(RathTracingProcessor(store, session="oa"))
    await Runner.run(agent(say("hi")), "Hello?")
    report = await rb.areplay(store.session("oa"), wrap(agent(), store))
    assert (report.equal, report.live) == (None, 0)
    assert "a trace of its runs is on record, not a wrapped agent" in str(report)


async def test_a_wrapped_agent_inside_of_a_program_goes_on_from_the_session_it_is_given(store: rb.Store) -> None:
    def program(*steps: Any) -> Any:
        async def run() -> Any:
            with rb.record(store, "oa") as recorder, recorder.run("flow"):
                await wrap(agent(*steps), store).run("Hello?")
                return await wrap(agent(*steps[1:]), store).acall(recorder.session)

        return run

    await program(say("hi"), say("more"))()
    report = await rb.areplay(store.session("oa"), program())
    assert (report.equal, report.served) == (True, 2), str(report)
