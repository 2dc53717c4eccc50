"""One message, once: histories handed over by hand, by the SDK's own sessions, by `wrap`; two turns of "yes" stay two."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import (
    Agent,
    HandoffInputData,
    RunConfig,
    RunContextWrapper,
    RunHooks,
    Runner,
    SQLiteSession,
    function_tool,
    handoff,
    trace,
)
from agents.models.interface import ModelProvider
from agents.tracing import set_trace_processors

import rath_bridge as rb
from rath_openai_agents import RecordingModel, encode, wrap
from tests.openai_agents.doubles import ModelStep, ScriptedModel
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

YES = [("user", "yes"), ("assistant", "ok"), ("user", "yes"), ("assistant", "ok")]


# ------------------------------------------------------------------ by hand


@pytest.mark.parametrize("watched", [True, False], ids=["processor", "model-only"])
async def test_two_runs_of_yes_stay_two(store: rb.Store, watched: bool) -> None:
    if watched:
        watch(store)
    wrap_, hooks = exact(store)
    agent = solo([say("ok"), say("ok")], wrap_)
    for _ in range(2):
        await go(agent, "yes", hooks=hooks)
    assert said(session(store)) == YES


async def test_two_runs_of_yes_in_one_outer_trace_stay_two(store: rb.Store) -> None:
    watch(store)
    wrap_, hooks = exact(store)
    agent = solo([say("ok"), say("ok")], wrap_)
    with trace("outer", group_id="g"):
        for _ in range(2):
            await go(agent, "yes", hooks=hooks)
    assert said(whole(session(store))) == YES


@pytest.mark.parametrize("tracing", [True, False], ids=["traced", "untraced"])
async def test_two_runs_of_yes_under_one_recorder_stay_two(store: rb.Store, tracing: bool) -> None:
    wrap_, hooks = exact(store)
    agent = solo([say("ok"), say("ok")], wrap_)
    with rb.record(store, "x"):
        for _ in range(2):
            await go(agent, "yes", hooks=hooks, run_config=RunConfig(tracing_disabled=not tracing))
    assert said(store.session("x")) == YES


@pytest.mark.parametrize("watched", [True, False], ids=["processor", "model-only"])
@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
async def test_a_history_that_is_passed_on_by_hand_is_known(store: rb.Store, watched: bool, streamed: bool) -> None:
    if watched:
        watch(store)
    wrap_, hooks = exact(store)
    agent = solo([step(call("get_weather", {"city": "Oslo"})), say("sunny"), say("bye")], wrap_, tools=[get_weather])
    first = await go(agent, "weather?", hooks=hooks, streamed=streamed)
    second = await go(agent, [*first.to_input_list(), {"role": "user", "content": "thanks"}], hooks=hooks, streamed=streamed)
    s = session(store)
    assert said(s) == [
        ("user", "weather?"), ("assistant", "get_weather#call_1"), ("tool", "=sunny in Oslo#call_1"), ("assistant", "sunny"),
        ("user", "thanks"), ("assistant", "bye"),
    ]  # fmt: skip
    assert encode(s)[0] == second.to_input_list()
    assert [m.body.basis for m in s.messages()] == [None, None, None, None, "inferred", None]


async def test_the_sdks_own_session_hands_the_history_over(store: rb.Store) -> None:
    watch(store)
    wrap_, hooks = exact(store)
    kept = SQLiteSession("s1")
    agent = solo([say("ok"), say("ok")], wrap_)
    for _ in range(2):
        await go(agent, "yes", hooks=hooks, session=kept)
    s = session(store)
    assert said(s) == YES
    assert encode(s)[0] == await kept.get_items()
    kept.close()


async def test_a_retried_call_is_handed_the_same_list(store: rb.Store) -> None:
    from agents import ModelSettings
    from agents.retry import ModelRetrySettings

    watch(store)
    wrap_, hooks = exact(store)
    steps = [ModelStep.raise_error(ConnectionError("down")), say("ok")]
    settings = ModelSettings(retry=ModelRetrySettings(max_retries=1, policy=lambda context: True))
    await go(solo(steps, wrap_, model_settings=settings), "yes", hooks=hooks)
    s = whole(session(store))
    assert said(s) == YES[:2]
    assert [bool(i.error) for i in bodies(s, "inference")] == [True, False]
    assert s.usage().input_tokens == 10


# ------------------------------------------------------------------ rewritten inputs


async def test_a_nested_history_puts_no_words_into_the_models_mouth(store: rb.Store) -> None:
    """openai-agents-python issue 2171: the summary stood beside the raw items."""
    watch(store)
    wrap_, hooks = exact(store)
    await go(triage(wrap_), hooks=hooks, run_config=RunConfig(group_id="g", nest_handoff_history=True))
    s = whole(session(store))
    assert not any("CONVERSATION HISTORY" in text for _, text in said(s))
    assert said(s)[-1] == ("assistant", "done")
    assert s.pending() == ()
    assert encode(s)[1].exact


async def test_a_handoff_filter_that_drops_items_adds_none(store: rb.Store) -> None:
    watch(store)
    wrap_, hooks = exact(store)

    def only_input(data: HandoffInputData) -> HandoffInputData:
        return data.clone(pre_handoff_items=(), new_items=())

    billing = Agent(name="Billing", model=wrap_(ScriptedModel([say("done")])))
    agent = solo([step(call("transfer_to_billing"))], wrap_, handoffs=[handoff(billing, input_filter=only_input)])
    await go(agent, hooks=hooks)
    s = whole(session(store))
    assert said(s) == [("user", "hi"), ("assistant", "transfer_to_billing#call_1"), ("assistant", "done")]
    native, report = encode(s)
    assert [item.get("type") for item in native if "call_id" in item] == ["function_call", "function_call_output"]
    assert native[2]["output"] == '{"assistant": "Billing"}', "what the SDK answers, though no model was handed it"
    assert report.exact


# ------------------------------------------------------------------ sessions of their own


async def test_concurrent_runs_land_in_their_own_sessions(store: rb.Store) -> None:
    watch(store)
    wrap_, hooks = exact(store)
    await asyncio.gather(*(go(triage(wrap_), f"hi {n}", group=f"g{n}", hooks=hooks, streamed=n % 2 == 0) for n in range(6)))
    for n in range(6):
        s = whole(session(store, f"g{n}"))
        assert said(s)[0] == ("user", f"hi {n}")
        assert len(said(s)) == 6
        assert s.usage().input_tokens == 30
    assert len(store.sessions()) == 6


async def test_which_session(store: rb.Store) -> None:
    watch(store)
    result = await Runner.run(solo([say("ok")]), "hi")
    assert result.final_output == "ok"
    (by_trace,) = [s.name for s in store.sessions()]
    assert by_trace.startswith("openai_agents/trace_")
    with rb.record(store, "ambient"):
        await go(solo([say("ok")]))
    watch(store, session="explicit")
    with rb.record(store, "ambient"):
        await go(solo([say("ok")]))
    assert {s.name for s in store.sessions()} == {by_trace, "ambient", "explicit"}
    assert [len(bodies(store.session(name), "inference")) for name in ("ambient", "explicit")] == [2, 1]


# ------------------------------------------------------------------ wrap


async def test_a_wrapped_agent_continues_a_session(store: rb.Store) -> None:
    s = store.create("ticket").append(rb.message("system", "be brief"), rb.message("user", "hi"))
    agent = triage()
    wrapped = wrap(agent, store, "ticket")
    s = await wrapped.acall(s)
    assert [role for role, _ in said(whole(s))] == ["system", "user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert len(bodies(s, "run")[0].manifest) == 2
    assert agent.model.calls[0].input == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]  # type: ignore[union-attr]
    assert s.usage().input_tokens == 30
    assert [i.observer for i in bodies(s, "inference")] == ["model"] * 3
    assert [(c.call_id, c.basis) for c in bodies(s, "tool_call")] == [("call_1", None)]
    assert isinstance(agent.model, ScriptedModel), "the agent itself is left as it is"


async def test_a_wrapped_agent_says_what_is_new(store: rb.Store) -> None:
    wrapped = wrap(solo([say("ok"), say("ok"), say("bye")]), store, "s")
    await wrapped.run("yes")
    await wrapped.run("yes")
    result = await wrapped.run([{"role": "user", "content": "done"}])
    s = whole(store.session("s"))
    assert said(s) == [*YES, ("user", "done"), ("assistant", "bye")]
    assert encode(s)[0] == result.to_input_list()
    again = await wrap(solo([say("really")]), store, "s").run([*result.to_input_list(), {"role": "user", "content": "sure?"}])
    assert said(store.session("s"))[-2:] == [("user", "sure?"), ("assistant", "really")]
    assert encode(store.session("s"))[0] == again.to_input_list()


async def test_items_that_were_encoded_by_hand_are_known(store: rb.Store) -> None:
    s = store.create("s").append(rb.message("user", "yes"), rb.message("assistant", "ok"))
    items, report = encode(s)
    await wrap(solo([say("ok")]), store, "s", continues=report).run([*items, {"role": "user", "content": "yes"}])
    assert said(store.session("s")) == YES


@pytest.mark.parametrize("present", [True, False], ids=["with-processor", "alone"])
async def test_a_wrapped_run_is_watched_once(store: rb.Store, present: bool) -> None:
    if present:
        watch(store)
    await wrap(triage(), store, "s").run("hi", run_config=RunConfig(group_id="g"))
    s = whole(store.session("s"))
    assert len(said(s)) == 6
    begun = [(b.name, b.type) for b in bodies(s, "run") if b.phase == "begin"]
    assert begun == [("Triage", "agent"), ("Triage", "agent"), ("Billing", "agent")]
    assert [one.name for one in store.sessions()] == ["s"]


async def test_a_wrapped_run_needs_no_tracing(store: rb.Store) -> None:
    await wrap(triage(), store, "s").run("hi", run_config=RunConfig(tracing_disabled=True))
    s = whole(store.session("s"))
    assert len(said(s)) == 6
    assert s.usage().input_tokens == 30
    assert [h.call_id for h in bodies(s, "handoff")] == ["call_2"]


async def test_other_runs_are_not_watched(store: rb.Store) -> None:
    await wrap(solo([say("ok")]), store, "s").run("hi")
    await go(solo([say("ok")]))
    assert [one.name for one in store.sessions()] == ["s"]


async def test_models_by_name_and_handoffs_in_circles(store: rb.Store) -> None:
    model = ScriptedModel([step(call("transfer_to_b")), step(call("transfer_to_a", call_id="call_2")), say("done")])

    class Named(ModelProvider):
        def get_model(self, model_name: str | None) -> Any:
            return model

    a = Agent(name="A", model="one")
    b = Agent(name="B", model="two", handoffs=[a])
    a.handoffs = [handoff(b)]
    result = await wrap(a, store, "s").run("hi", run_config=RunConfig(model_provider=Named()))
    assert (result.final_output, result.last_agent.name) == ("done", "A")
    s = whole(store.session("s"))
    assert [i.observer for i in bodies(s, "inference")] == ["model"] * 3
    assert [(h.from_agent, h.to_agent, h.basis) for h in bodies(s, "handoff")] == [("A", "B", None), ("B", "A", None)]


async def test_a_last_tool_answer_is_a_message_too(store: rb.Store) -> None:
    agent = solo([step(call("get_weather", {"city": "Oslo"}))], tools=[get_weather], tool_use_behavior="stop_on_first_tool")
    await wrap(agent, store, "s").run("hi")
    assert said(whole(store.session("s")))[-1] == ("tool", "=sunny in Oslo#call_1")


async def test_a_wrapped_run_that_fails_is_on_record(store: rb.Store) -> None:
    agent = solo([ModelStep.raise_error(RuntimeError("down"))])
    with pytest.raises(RuntimeError):
        await wrap(agent, store, "s").run("hi")
    s = whole(store.session("s"))
    assert [(b.status, "down" in b.error) for b in bodies(s, "run") if b.phase == "end"] == [("error", True)] * 2
    assert said(s) == [("user", "hi")]


def test_a_wrapped_agent_is_a_transform(store: rb.Store, sync_loop: None) -> None:
    from rath_bridge.transform import AsyncTransform, Transform

    set_trace_processors([])
    wrapped = wrap(solo([say("ok")]), store)
    assert isinstance(wrapped, Transform)
    assert isinstance(wrapped, AsyncTransform)
    s = wrapped(store.create("s").append(rb.message("user", "hi")))
    assert said(s) == [("user", "hi"), ("assistant", "ok")]
    assert wrap(solo([say("ok")]), store, "t").run_sync("hi").final_output == "ok"


class Tenant:
    """Nothing that could be copied or written as JSON."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise AssertionError("it was copied")


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
async def test_context_objects_reach_tools_hooks_and_instructions_as_they_are(store: rb.Store, streamed: bool) -> None:
    """``wrap`` works on clones of agents; the user's own context is passed on, never copied."""
    seen: list[Any] = []

    @function_tool
    def note(context: RunContextWrapper[Tenant], text: str) -> str:
        seen.append(context.context)
        return text

    def instructions(context: RunContextWrapper[Tenant], agent: Agent[Tenant]) -> str:
        seen.append(context.context)
        return "be brief"

    class Hooks(RunHooks[Tenant]):
        """The user's own."""

        async def on_agent_start(self, context: Any, agent: Any) -> None:
            seen.append(context.context)

    tenant = Tenant()
    steps = [step(call("note", {"text": "x"})), say("ok")]
    agent: Agent[Tenant] = Agent(name="Solo", model=ScriptedModel(steps), tools=[note], instructions=instructions)
    wrapped = wrap(agent, store, "s")
    if streamed:
        result = wrapped.run_streamed("hi", context=tenant, hooks=Hooks())
        async for _ in result.stream_events():
            pass
    else:
        result = await wrapped.run("hi", context=tenant, hooks=Hooks())
    assert seen == [tenant] * 4, "the hook, the instructions of two turns, the tool"
    assert result.context_wrapper.context is tenant
    assert [call_.name for call_ in whole(store.session("s")).calls()] == ["note"]


async def test_a_double_wrapped_model_is_recorded_once(store: rb.Store) -> None:
    watch(store)
    model = RecordingModel(RecordingModel(ScriptedModel([say("ok")], emit_traces=True), store), store)
    await go(Agent(name="Solo", model=model))
    s = whole(session(store))
    assert (s.usage().input_tokens, len(bodies(s, "inference")), len(said(s))) == (10, 1, 2)
