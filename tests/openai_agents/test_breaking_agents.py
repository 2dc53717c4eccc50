"""What broke under daily use: cancelled tools, agents as tools of models that reuse ids."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import Agent, function_tool

import rath_bridge as rb
from rath_bridge.errors import DecodeError
from tests.openai_agents.doubles import ScriptedModel, assistant_message
from tests.openai_agents.scripted import call, exact, get_weather, go, plain, say, session, solo, step, watch, whole
from tests.waiting import soon

# ------------------------------------------------------------------ cancelled runs


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("recorded", [False, True])
async def test_a_tool_that_a_cancelled_run_leaves_behind_is_closed(store: rb.Store, streamed: bool, recorded: bool) -> None:
    """The SDK ends the trace of a cancelled run while its tools are still being cancelled."""
    begun = asyncio.Event()

    @function_tool
    async def slow() -> str:
        begun.set()
        await asyncio.sleep(300)
        return "late"

    watch(store)
    wrap, hooks = exact(store)
    agent = solo([step(call("slow")), say("done")], wrap if recorded else plain, tools=[slow])
    options: dict[str, Any] = {"hooks": hooks} if recorded else {}
    task = asyncio.ensure_future(go(agent, streamed=streamed, **options))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await soon(lambda: any(chunk.kind == "tool_result" for chunk in session(store)) and not session(store).pending())
    s = whole(session(store))
    assert s.pending() == ()
    results = [chunk.body for chunk in s if chunk.kind == "tool_result"]
    assert [(one.name, one.status, one.reason) for one in results] == [("slow", "no_response", "cancelled")]  # type: ignore[attr-defined]


# ------------------------------------------------------------------ ids that models reuse


@pytest.mark.parametrize("streamed", [False, True])
async def test_agents_as_tools_whose_models_reuse_ids_are_replayed(store: rb.Store, streamed: bool) -> None:
    """Every message of a Chat Completions model has the id ``__fake_id__``; small models count their calls from 0 again and again."""

    def says(text: str) -> Any:
        message = assistant_message(text)
        message.id = "__fake_id__"
        return step(message)

    watch(store)

    def outer() -> Agent[Any]:
        wrap, _ = exact(store)
        inner = Agent(
            name="Inner", tools=[get_weather],
            model=wrap(ScriptedModel([step(call("get_weather", {"city": "Oslo"}, "c2")), says("Sunny.")], emit_traces=True)),
        )  # fmt: skip
        asks = step(call("ask", {"input": "what"}, "c1"))
        again = step(call("get_weather", {"city": "Rome"}, "c2"))
        tools: list[Any] = [inner.as_tool("ask", "Ask."), get_weather]
        return Agent(name="Outer", model=wrap(ScriptedModel([asks, again, says("Yes.")], emit_traces=True)), tools=tools)

    async def program() -> Any:
        return await go(outer(), streamed=streamed, hooks=exact(store)[1])

    await program()
    s = whole(session(store))
    report = await asyncio.to_thread(rb.replay, s, lambda: asyncio.run(program()))
    assert report.divergence is None
    assert report.equal
    assert report.live == 0
    assert report.unused == ()


# ------------------------------------------------------------------ damaged states and items

STATE: dict[str, Any] = {
    "$schemaVersion": "1.21", "original_input": "hi", "session_items": [], "generated_items": [],
    "context": {"approvals": {}, "function_tool_approvals": []}, "current_step": {"data": {"interruptions": []}},
}  # fmt: skip


@pytest.mark.parametrize("value", [5, True, {"x": 1}])
@pytest.mark.parametrize("field", ["original_input", "session_items", "generated_items"])
def test_a_damaged_state_is_refused_with_its_field(field: str, value: Any) -> None:
    with pytest.raises(DecodeError, match=field):
        rb.decode({**STATE, field: value})


@pytest.mark.parametrize("value", [5, True, None, {"x": 1}])
def test_what_a_state_says_in_another_form_is_kept(value: Any) -> None:
    """A later version may."""
    for change in ({"context": {"function_tool_approvals": value}}, {"current_step": {"data": {"interruptions": value}}}):
        assert [one.kind for one in rb.decode({**STATE, **change})] == ["message", "checkpoint"]


@pytest.mark.parametrize("value", [[], {"x": 1}, 5])
def test_items_with_odd_fields_are_kept_and_go_home(value: Any) -> None:
    user = {"role": "user", "content": "hi"}
    store = rb.open_store("memory:")
    for n, odd in enumerate([
        {"type": "reasoning", "id": "rs_1", "summary": value}, {"role": "user", "content": [{"type": value, "text": "x"}]},
    ]):  # fmt: skip
        s = store.create(f"odd-{n}").append(*rb.decode([user, odd, {"type": "message", **user}]))
        assert s.fsck() == []
        assert len(s.messages()) == 3
        rb.encode(s, "openai_agents")
    kept = rb.decode({**STATE, "session_items": [{"raw_item": {"type": value, "call_id": "c"}, "agent": {"name": "a"}}]})
    s = store.create("state").append(*kept)
    assert s.fsck() == []
    rb.encode(s, "openai_agents")
