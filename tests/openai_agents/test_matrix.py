"""The matrix: plain and streamed, every kind of run, each recorded, given home, and replayed without running anything (law 5).

A run is replayed twice: by `replaying` (a graph of clones), and by ``rb.areplay`` (the same program as it was). Both give the same
items, the same errors, and zero executions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from agents import (
    Agent,
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    Runner,
    RunState,
    function_tool,
)
from agents.exceptions import AgentsException

import rath_bridge as rb
from rath_openai_agents import RathRunHooks, replayable, replaying, wrap
from tests.openai_agents import builds
from tests.openai_agents.builds import RAN, RUNS, Model, polite, scripted, short, unused, weather
from tests.openai_agents.scripted import bodies, call, go, say, session, step, watch, whole


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


@dataclass
class Outcome:
    """What a run came to."""

    items: list[Any] = field(default_factory=list[Any])
    final: Any = None
    error: str = ""


Perform = Callable[..., Awaitable[Outcome]]


async def perform(agent: Agent[Any], given: Any, *, streamed: bool, **options: Any) -> Outcome:
    """Run to the end."""
    result = await go(agent, given, streamed=streamed, **options)
    return Outcome(result.to_input_list(), result.final_output)


async def approve(agent: Agent[Any], given: Any, *, streamed: bool, **options: Any) -> Outcome:
    """Run until it asks, approve, go on: as another process would, from the state's JSON."""
    paused = await go(agent, given, streamed=streamed, **options)
    assert [one.name for one in paused.interruptions] == ["pay"]
    state: Any = await RunState.from_json(agent, paused.to_state().to_json())
    state.approve(state.get_interruptions()[0])
    result = await go(agent, state, streamed=streamed, **options)
    return Outcome(result.to_input_list(), result.final_output)


async def cancel(agent: Agent[Any], given: Any, *, streamed: bool, group: str = "g", **options: Any) -> Outcome:
    """Cancel a stream when the first tool has answered: the turn is finished, and nothing after it."""
    config = options.pop("run_config", None) or RunConfig(group_id=group)
    result = Runner.run_streamed(agent, given, run_config=config, **options)
    async for event in result.stream_events():
        if event.type == "run_item_stream_event" and event.name == "tool_output":
            result.cancel(mode="after_turn")
    return Outcome(result.to_input_list(), result.final_output)


@function_tool(needs_approval=True)
def pay(amount: int) -> str:
    RAN.append(f"paid {amount}")
    return f"paid {amount}"


def approved(model: Model) -> Agent[Any]:
    return Agent(name="Payer", model=model([step(call("pay", {"amount": 5}, "p1")), say("done")]), tools=[pay])


def looping(model: Model) -> Agent[Any]:
    return Agent(name="Solo", model=model([step(call("weather", {"city": "Oslo"}, f"c{n}")) for n in range(3)]), tools=[weather])


def broken(model: Model) -> Agent[Any]:
    steps = [step(call("weather", {"city": "Oslo"}, "c1")), RuntimeError("the provider is down")]
    return Agent(name="Solo", model=model(steps), tools=[weather])


def tripping_in(model: Model) -> Agent[Any]:
    guard = polite if not hasattr(polite, "run_in_parallel") else _before(polite)
    return Agent(name="Solo", model=model([say("fine")]), input_guardrails=[guard])


def _before(guardrail: Any) -> Any:
    """Checked before the model is asked, so that two runs of it are the same."""
    import copy

    again = copy.copy(guardrail)
    again.run_in_parallel = False
    return again


def tripping_out(model: Model) -> Agent[Any]:
    return Agent(name="Solo", model=model([say("LONG")]), output_guardrails=[short])


@dataclass(frozen=True)
class Row:
    """One kind of run."""

    name: str
    build: Callable[[Model], Agent[Any]]
    perform: Perform = perform
    given: str = "hi"
    error: str = ""
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    plain: bool = True

    def __str__(self) -> str:
        return self.name


ROWS = [
    *(Row(build.__name__, build) for build in RUNS),
    Row("input-tripwire", tripping_in, given="SECRET", error=InputGuardrailTripwireTriggered.__name__),
    Row("output-tripwire", tripping_out, error=OutputGuardrailTripwireTriggered.__name__),
    Row("hitl", approved, approve),
    Row("max-turns", looping, error=MaxTurnsExceeded.__name__, options={"max_turns": 2}),
    Row("model-error", broken, error="the provider is down"),
    Row("cancelled-stream", looping, cancel, plain=False),
]
CASES = [(row, streamed) for row in ROWS for streamed in (False, True) if streamed or row.plain]
IDS = [f"{row}-{'streamed' if streamed else 'plain'}" for row, streamed in CASES]


async def _ran(row: Row, agent: Agent[Any], streamed: bool, **options: Any) -> Outcome:
    """Perform a row; an error is part of what it came to."""
    try:
        return await row.perform(agent, row.given, streamed=streamed, **row.options, **options)
    except (AgentsException, RuntimeError) as error:
        return Outcome(error=str(error))


@pytest.mark.parametrize(("row", "streamed"), CASES, ids=IDS)
async def test_recorded_given_home_and_replayed(row: Row, streamed: bool) -> None:
    with rb.open_store("memory:") as store:
        watch(store)
        first = await _ran(row, row.build(scripted(store)), streamed, hooks=RathRunHooks(store))
        assert bool(first.error) == bool(row.error)
        assert RAN or row.build in (builds.texts, builds.structured)
        s = whole(session(store))
        assert replayable(s) == ()
        if first.items and not first.error:
            items, report = rb.encode(s, "openai_agents")
            assert items == first.items, "given home"
            assert report.exact
            copy = store.create("copy").append(*rb.decode(items))
            assert rb.encode(copy, "openai_agents")[0] == items

        RAN.clear()
        again = replaying(row.build(unused), s)
        second = await _ran(row, again.agent, streamed, run_config=again.run_config())
        assert (second, RAN) == (first, [])
        assert (again.misses, again.unused) == ((), ())
        assert session(store).head == s.head, "a replay is not recorded as newly done"


@pytest.mark.parametrize(("row", "streamed"), CASES, ids=IDS)
async def test_recorded_and_replayed_by_the_core(row: Row, streamed: bool) -> None:
    with rb.open_store("memory:") as store:

        async def program(model: Model) -> Outcome:
            with rb.record(store, "ticket"):
                return await _ran(row, row.build(model), streamed, hooks=RathRunHooks(store))

        watch(store)
        first = await program(scripted(store))
        s = whole(store.session("ticket"))
        before, RAN[:] = (store.backend.refs(), len(s)), []
        report = await rb.areplay(s, lambda: program(lambda steps: scripted(store)([RuntimeError("a model was asked")])))
        assert report.equal, str(report)
        assert (report.live, report.unused, report.misses, RAN) == (0, (), (), [])
        assert report.value == first
        assert (store.backend.refs(), len(store.session("ticket"))) == before


WRAPPED = [row for row in ROWS if row.perform is perform]


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("row", WRAPPED, ids=str)
async def test_wrapped_recorded_and_replayed_by_the_core(row: Row, streamed: bool) -> None:
    with rb.open_store("memory:") as store:

        async def program(model: Model) -> str:
            wrapped = wrap(row.build(model), store, "ticket")
            try:
                if not streamed:
                    return str((await wrapped.run(row.given, **row.options)).final_output)
                result = wrapped.run_streamed(row.given, **row.options)
                async for _ in result.stream_events():
                    pass
                return str(result.final_output)
            except (AgentsException, RuntimeError) as error:
                return f"error: {error}"
            finally:
                await asyncio.sleep(0)  # the record of a stream ends with its task

        first = await program(builds.real)
        s = whole(store.session("ticket"))
        before, RAN[:] = (store.backend.refs(), len(s)), []
        report = await rb.areplay(s, lambda: program(unused))
        assert report.equal, str(report)
        assert (report.live, report.unused, report.misses, RAN, report.value) == (0, (), (), [], first)
        assert before[1] == len(store.session("ticket"))


async def test_what_a_guardrail_told_is_on_record_and_comes_again(store: rb.Store) -> None:
    """``output_info``, which no span holds: a wrapped run puts it on record."""

    def build(model: Model) -> Agent[Any]:
        return Agent(name="Solo", model=model([say("fine")]), input_guardrails=[polite], output_guardrails=[short])

    from tests.openai_agents.doubles import ScriptedModel

    result = await wrap(build(ScriptedModel), store, "s").run("hi")
    told = [one.output.output_info for one in (*result.input_guardrail_results, *result.output_guardrail_results)]
    s = whole(store.session("s"))
    assert [(one.stage, one.output) for one in bodies(s, "guardrail")] == [("input", told[0]), ("output", told[1])]
    assert told[0] == {"checked": "hi"}
    again = replaying(build(unused), s)
    RAN.clear()
    replayed = await go(again.agent, "hi", run_config=again.run_config())
    found = [one.output.output_info for one in (*replayed.input_guardrail_results, *replayed.output_guardrail_results)]
    assert (found, RAN) == (told, [])


@pytest.mark.parametrize("build", [builds.shells, builds.patches, builds.computers], ids=["shell", "patch", "computer"])
async def test_what_is_done_to_the_machine_is_compared(store: rb.Store, build: Any) -> None:
    """A changed command, operation or action is a divergence, and nothing is done."""
    watch(store)
    await go(build(scripted(store)), "hi", hooks=RathRunHooks(store))
    RAN.clear()
    again = replaying(build(unused), session(store))
    (tool,) = again.agent.tools
    other = SimpleNamespace(path="other.txt", diff=None, data=SimpleNamespace(call_id="other", action="rm"))
    does: dict[Any, Any] = {
        builds.patches: lambda: tool.editor.delete_file(other),  # type: ignore[union-attr]
        builds.computers: lambda: tool.computer.click(99, 2, "left"),  # type: ignore[union-attr]
        builds.shells: lambda: tool.executor(other),  # type: ignore[union-attr]
    }
    with pytest.raises(AgentsException, match="diverged"):
        await does[build]()
    assert RAN == []


STEPS = {
    "patches": ["create a.txt", "update b.txt", "delete c.txt", "create a.txt", "create d"],
    "gestures": [
        "move 1 2", "drag [(1, 2), (30, 40)]", "scroll 5 6 0 70", "double click 8 9", "keys ['CTRL', 'A']", "type hello", "wait",
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("build", "name"), [(builds.patches_at_once, "patches"), (builds.gestures, "gestures")], ids=["patches", "gestures"]
)
async def test_a_call_of_several_steps_is_live_as_a_whole(store: rb.Store, build: Any, name: str) -> None:
    """A what-if that lets the machine's tools be live carries out every step of a call, not the one that gives its answer alone."""

    async def program(model: Model) -> Any:
        with rb.record(store, "ticket"):
            return (await go(build(model), "hi", hooks=RathRunHooks(store))).final_output

    await program(scripted(store))
    assert RAN[: len(STEPS[name])] == STEPS[name]
    whole_run, RAN[:] = list(RAN), []
    report = await rb.areplay(store.session("ticket"), lambda: program(scripted(store)), until=1, then="live", allow_effects=True)
    assert (report.value, RAN) == ("done", whole_run), str(report)
    RAN.clear()
    kept = await rb.areplay(store.session("ticket"), lambda: program(scripted(store)), until=1, then="live")
    assert (kept.value, RAN) == ("done", []), "what writes was written: it is answered from the record"


async def test_every_call_of_the_sdks_own_tools_is_paired(store: rb.Store) -> None:
    """Their hooks are told no call id: it is concluded from the order, and says so."""
    watch(store)
    for build, ids in ((builds.shells, ["s1", "s2"]), (builds.patches, ["p1", "p2", "p3"]), (builds.computers, ["u1", "u2"])):
        for hooks in (RathRunHooks(store), None):
            name = f"{build.__name__}-{hooks is None}"
            await go(build(scripted(store)), "hi", hooks=hooks, group=name)
            s = whole(session(store, name))
            assert [(one.call_id, one.basis) for one in bodies(s, "tool_call")] == [(name, "inferred") for name in ids]
            assert [one.call_id for one in bodies(s, "tool_result")] == ids
            assert s.pending() == ()
