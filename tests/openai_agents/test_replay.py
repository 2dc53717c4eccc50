"""The matrix: plain and streamed, each kind of run recorded, given home, and replayed without running anything (law 5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    ModelSettings,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    Runner,
    ToolGuardrailFunctionOutput,
    ToolOutputText,
    function_tool,
    handoff,
    input_guardrail,
    output_guardrail,
    tool_input_guardrail,
)
from agents.mcp import MCPServer
from mcp.types import CallToolResult, TextContent
from mcp.types import Tool as McpTool
from pydantic import BaseModel

import rath_bridge as rb
from rath_openai_agents import RathRunHooks, RecordingModel, ReplayDivergenceError, ReplayModel, replayable, replaying
from rath_openai_agents.replay import RecordedError
from tests.openai_agents.doubles import ScriptedModel
from tests.openai_agents.scripted import call, go, say, session, step, watch, whole

RAN: list[str] = []
"""What was really run."""


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


@function_tool
def weather(city: str) -> str:
    RAN.append(f"weather {city}")
    return f"sunny in {city}"


@function_tool
def lookup(key: str) -> dict[str, str]:
    RAN.append(f"lookup {key}")
    return {"key": key}


@function_tool
def show() -> list[ToolOutputText]:
    RAN.append("show")
    return [ToolOutputText(text="a"), ToolOutputText(text="b")]


@function_tool
def fails() -> str:
    RAN.append("fails")
    raise ValueError("broken")


@tool_input_guardrail
def not_there(data: Any) -> ToolGuardrailFunctionOutput:
    RAN.append("tool guardrail")
    return ToolGuardrailFunctionOutput.reject_content("not there")


@function_tool(tool_input_guardrails=[not_there])
def guarded(city: str) -> str:
    RAN.append("guarded")
    return city


@input_guardrail
async def polite(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
    RAN.append("input guardrail")
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered="SECRET" in str(given))


@output_guardrail
async def short(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
    RAN.append("output guardrail")
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered="LONG" in str(output))


class Adder(MCPServer):
    """A server whose every use is noted."""

    def __init__(self) -> None:
        super().__init__(use_structured_content=False)

    @property
    def name(self) -> str:
        return "adder"

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[McpTool]:
        RAN.append("list_tools")
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
        return [McpTool(name="add", description="Add.", inputSchema=schema)]

    async def call_tool(self, tool_name: str, arguments: Any, meta: Any = None) -> CallToolResult:
        RAN.append("call_tool")
        return CallToolResult(content=[TextContent(type="text", text="42")])

    async def list_prompts(self) -> Any: ...

    async def get_prompt(self, name: str, arguments: Any = None) -> Any: ...


class City(BaseModel):
    name: str


Model = Callable[[list[Any]], Any]


def texts(model: Model) -> Agent[Any]:
    return Agent(name="Solo", instructions="be brief", model=model([say("hello")]))


def tools(model: Model) -> Agent[Any]:
    steps = [
        step(call("weather", {"city": "Oslo"}, "c1"), call("weather", {"city": "Oslo"}, "c2"), call("lookup", {"key": "k"}, "c3")),
        step(call("show", {}, "c4"), call("fails", {}, "c5"), call("guarded", {"city": "x"}, "c6")),
        say("done"),
    ]  # fmt: skip
    return Agent(name="Solo", model=model(steps), tools=[weather, lookup, show, fails, guarded])


def handed_off(model: Model) -> Agent[Any]:
    billing = Agent(name="Billing", model=model([say("billed")]), tools=[weather])
    first = Agent(name="Front", model=model([step(call("transfer_to_billing", {}, "h1"))]))
    first.handoffs = [handoff(billing, on_handoff=lambda context: RAN.append("on_handoff"))]
    KEPT.append(billing)
    return first


KEPT: list[Any] = []
"""A handoff holds its agent weakly."""


def agent_as_tool(model: Model) -> Agent[Any]:
    helper = Agent(name="Helper", model=model([step(call("weather", {"city": "Rome"}, "n1")), say("helped")]), tools=[weather])
    steps = [step(call("help", {"input": "please"}, "c1")), say("done")]
    return Agent(name="Solo", model=model(steps), tools=[helper.as_tool("help", "Helps.")])


def checked(model: Model) -> Agent[Any]:
    return Agent(name="Solo", model=model([say("fine")]), input_guardrails=[polite], output_guardrails=[short])


def served(model: Model) -> Agent[Any]:
    return Agent(name="Solo", model=model([step(call("add", {"a": 1}, "m1")), say("42")]), mcp_servers=[Adder()], tools=[weather])


def structured(model: Model) -> Agent[Any]:
    return Agent(
        name="Solo", model=model([say('{"name":"Oslo"}')]), output_type=City, model_settings=ModelSettings(temperature=0.5)
    )


def stops_at_tool(model: Model) -> Agent[Any]:
    return Agent(
        name="Solo", model=model([step(call("weather", {"city": "Oslo"}, "c1"))]), tools=[weather],
        tool_use_behavior="stop_on_first_tool",
    )  # fmt: skip


RUNS = [texts, tools, handed_off, agent_as_tool, checked, served, structured, stops_at_tool]


def scripted(store: rb.Store) -> Model:
    return lambda steps: RecordingModel(ScriptedModel(steps, emit_traces=True), store)


def unused(steps: list[Any]) -> Any:
    return ScriptedModel([RuntimeError("a model was asked")])


@pytest.mark.parametrize("replayed_streamed", [False, True], ids=["replay-plain", "replay-streamed"])
@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("build", RUNS, ids=[build.__name__ for build in RUNS])
async def test_a_run_is_replayed_without_running_anything(build: Any, streamed: bool, replayed_streamed: bool) -> None:
    with rb.open_store("memory:") as store:
        watch(store)
        first = await go(build(scripted(store)), "hi", streamed=streamed, hooks=RathRunHooks(store))
        s = whole(session(store))
        assert replayable(s) == ()
        RAN.clear()
        again = replaying(build(unused), s)
        second = await go(again.agent, "hi", streamed=replayed_streamed, run_config=again.run_config())
        assert second.to_input_list() == first.to_input_list()
        assert second.final_output == first.final_output
        assert [type(item) for item in second.new_items] == [type(item) for item in first.new_items]
        assert RAN == []
        assert (again.misses, again.unused) == ((), ())
        assert session(store).head == s.head, "a replay is not recorded as newly done"


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize(
    ("given", "said", "error"),
    [("SECRET", "fine", InputGuardrailTripwireTriggered), ("hi", "LONG", OutputGuardrailTripwireTriggered)],
    ids=["input", "output"],
)
async def test_a_tripwire_trips_again(given: str, said: str, error: type[Exception], streamed: bool) -> None:
    def build(model: Model) -> Agent[Any]:
        return Agent(name="Solo", model=model([say(said)]), input_guardrails=[polite], output_guardrails=[short])

    with rb.open_store("memory:") as store:
        watch(store)
        with pytest.raises(error):
            await go(build(scripted(store)), given, streamed=streamed)
        RAN.clear()
        again = replaying(build(unused), whole(session(store)))
        with pytest.raises(error):
            await go(again.agent, given, run_config=again.run_config(), streamed=streamed)
        assert RAN == []


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
async def test_max_turns_and_model_errors_come_again(streamed: bool) -> None:
    def looping(model: Model) -> Agent[Any]:
        return Agent(
            name="Solo", model=model([step(call("weather", {"city": "Oslo"}, f"c{n}")) for n in range(3)]), tools=[weather]
        )

    def broken(model: Model) -> Agent[Any]:
        return Agent(name="Solo", model=model([RuntimeError("the provider is down")]))

    cases: tuple[tuple[Any, type[Exception], str, dict[str, Any]], ...] = (
        (looping, MaxTurnsExceeded, "Max turns", {"max_turns": 2}),
        (broken, RecordedError, "the provider is down", {}),
    )
    for build, error, words, options in cases:
        with rb.open_store("memory:") as store:
            watch(store)
            with pytest.raises(Exception, match=words):
                await go(build(scripted(store)), streamed=streamed, hooks=RathRunHooks(store), **options)
            RAN.clear()
            again = replaying(build(unused), whole(session(store)))
            with pytest.raises(error, match=words):
                await go(again.agent, streamed=streamed, run_config=again.run_config(), **options)
            assert RAN == []
            assert again.misses == ()


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


async def test_one_line_alone_says_why_it_is_not_replayable(store: rb.Store) -> None:
    """The promise, stated: one line records; a second makes it replayable."""
    watch(store)
    await go(tools(lambda steps: ScriptedModel(steps, emit_traces=True)))
    reasons = replayable(session(store))
    assert any("RecordingModel" in reason for reason in reasons)
    assert any("RathRunHooks" in reason for reason in reasons)
    assert replayable(store.create("empty")) == ("no model call is on record",)
