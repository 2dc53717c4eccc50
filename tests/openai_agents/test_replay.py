"""Replay: what diverges is named with both sides; the models alone; several turns (law 5). The rows of runs are in the matrix."""

from __future__ import annotations

from typing import Any

import pytest
from agents import Agent, ModelSettings, RunConfig, Runner

import rath_bridge as rb
from rath_openai_agents import RathRunHooks, RecordingModel, ReplayDivergenceError, ReplayModel, replayable, replaying
from tests.openai_agents.builds import RAN, City, Model, scripted, texts, tools, unused, weather
from tests.openai_agents.doubles import ScriptedModel
from tests.openai_agents.scripted import call, go, say, session, step, watch


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


async def test_a_conversation_of_several_turns(store: rb.Store) -> None:
    """Call ids and texts that come again are served in their order."""
    watch(store)

    def build(model: Model) -> Agent[Any]:
        steps = [
            step(call("weather", {"city": "Oslo"}, "c1")),
            say("sunny"),
            step(call("weather", {"city": "Oslo"}, "c1")),
            say("yes"),
        ]
        return Agent(name="Solo", model=model(steps), tools=[weather])

    async def converse(agent: Agent[Any], **options: Any) -> Any:
        first = await go(agent, "yes", **options)
        return await go(agent, [*first.to_input_list(), {"role": "user", "content": "yes"}], **options)

    recorded = await converse(build(scripted(store)), hooks=RathRunHooks(store))
    RAN.clear()
    again = replaying(build(unused), session(store))
    replayed = await converse(again.agent, run_config=again.run_config())
    assert replayed.to_input_list() == recorded.to_input_list()
    assert (again.unused, RAN) == ((), [])


# ------------------------------------------------------------------ divergence


async def _recorded(store: rb.Store, build: Any = tools) -> rb.Session:
    watch(store)
    await go(build(scripted(store)), "hi", hooks=RathRunHooks(store))
    return session(store)


async def test_a_miss_names_both_sides(store: rb.Store) -> None:
    again = replaying(texts(unused), await _recorded(store, texts))
    with pytest.raises(ReplayDivergenceError) as caught:
        await go(again.agent, "something else", run_config=again.run_config())
    found = caught.value.divergence
    assert found is again.divergence
    assert (found.what, found.chunk is not None) == ("model call of Solo: input[0]", True)
    assert "something else" in found.found
    assert "hi" in found.expected
    assert len(again.unused) == 1


async def test_a_changed_agent_is_a_divergence(store: rb.Store) -> None:
    s = await _recorded(store, texts)
    for changed, name in (
        ({"instructions": "be long"}, "system"),
        ({"tools": [weather]}, "tools"),
        ({"model_settings": ModelSettings(temperature=1.0)}, "params"),
        ({"output_type": City}, "output_schema"),
    ):
        again = replaying(texts(unused).clone(**changed), s)
        with pytest.raises(ReplayDivergenceError, match=f"model call of Solo: {name}"):
            await go(again.agent, "hi", run_config=again.run_config())


async def test_more_than_was_recorded_is_a_divergence(store: rb.Store) -> None:
    again = replaying(texts(unused), await _recorded(store, texts))
    await go(again.agent, "hi", run_config=again.run_config())
    with pytest.raises(ReplayDivergenceError, match="nothing left"):
        await go(again.agent, "hi", run_config=again.run_config())


async def test_the_model_alone_asks_nobody(store: rb.Store) -> None:
    """`ReplayModel` by ``RunConfig``: tools run, models do not."""
    s = await _recorded(store, texts)
    model = ReplayModel(s)
    result = await Runner.run(texts(unused), "hi", run_config=RunConfig(model=model))
    assert result.final_output == "hello"
    assert model.divergence is None


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
async def test_both_models_are_installed_by_the_run_s_configuration(store: rb.Store, streamed: bool) -> None:
    """``RunConfig(model=...)`` stands for the models of all agents; what was recorded plain is replayed as a stream, and back."""
    config = RunConfig(
        group_id="g", model=RecordingModel(ScriptedModel([step(call("weather", {"city": "Oslo"}, "c1")), say("ok")]), store)
    )
    agent = Agent(name="Solo", instructions="be brief", tools=[weather])
    watch(store)
    first = await go(agent, "hi", streamed=streamed, run_config=config, hooks=RathRunHooks(store))
    model = ReplayModel(session(store))
    again = await go(agent, "hi", streamed=not streamed, run_config=RunConfig(model=model))
    assert again.to_input_list() == first.to_input_list()
    assert (model.divergence, model.tape.unused) == (None, ())
    with pytest.raises(ReplayDivergenceError):
        await go(agent, "something else", run_config=RunConfig(model=ReplayModel(session(store))))


async def test_one_line_alone_says_why_it_is_not_replayable(store: rb.Store) -> None:
    """The promise, stated: one line records; a second makes it replayable."""
    watch(store)
    await go(tools(lambda steps: ScriptedModel(steps, emit_traces=True)))
    reasons = replayable(session(store))
    assert any("RecordingModel" in reason for reason in reasons)
    assert any("RathRunHooks" in reason for reason in reasons)
    assert replayable(store.create("empty")) == (
        "no model call is on record: wrap the model in RecordingModel, and run with RathRunHooks",
    )
