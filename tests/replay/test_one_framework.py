"""A plain program with agents is replayed: nothing runs, nothing is written, and what changed is named."""

from __future__ import annotations

from typing import Any

import pytest
from agents import Agent, RunConfig, Runner, function_tool
from agents.testing import ScriptedModel

import rath_bridge as rb
from rath_bridge.store.protocol import Ref
from rath_openai_agents import RathRunHooks, RecordingModel, install, wrap
from tests.openai_agents.scripted import call, say, step

RAN: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


@function_tool
def weather(city: str) -> str:
    RAN.append(city)
    return f"sunny in {city}"


def steps() -> list[Any]:
    return [step(call("weather", {"city": "Oslo"}, "c1")), say("It is sunny.")]


def agent(model: Any, **fields: Any) -> Agent[Any]:
    return Agent(name="Solo", instructions="be brief", model=model, tools=[weather], **fields)


def never() -> ScriptedModel:
    return ScriptedModel([RuntimeError("a model was asked")])


def state(store: rb.Store) -> tuple[list[Ref], int]:
    return store.backend.refs(), sum(len(s) for s in store.sessions())


def program(store: rb.Store, model: Any, said: str = "hi", **fields: Any) -> Any:
    """What a user has: code that records itself."""

    async def run() -> Any:
        with rb.record(store, "ticket"):
            solo = agent(RecordingModel(model, store), **fields)
            return (await Runner.run(solo, said, hooks=RathRunHooks(store))).final_output

    return run


async def test_a_program_is_replayed_and_nothing_is_written(store: rb.Store) -> None:
    assert await program(store, ScriptedModel(steps()))() == "It is sunny."
    before, RAN[:] = state(store), []
    report = await rb.areplay(store.session("ticket"), program(store, never()))
    assert str(report) == "ticket: equal\n  3 served, 0 live, 0 unused, 0 misses; 30 tokens not spent again"
    assert (report.equal, report.exit_status, report.value, RAN) == (True, 0, "It is sunny.", [])
    assert state(store) == before


@pytest.mark.usefixtures("sync_loop")
def test_a_wrapped_agent_is_replayed(store: rb.Store) -> None:
    session = store.create("ticket").append(rb.message("user", "hi"))
    session = wrap(agent(ScriptedModel(steps())), store, session="ticket")(session)
    before, RAN[:] = state(store), []
    report = rb.replay(session, wrap(agent(never()), store))
    assert (report.equal, report.served, report.unused, RAN) == (True, 3, (), []), str(report)
    assert state(store) == before


async def test_a_changed_prompt_is_named(store: rb.Store) -> None:
    await program(store, ScriptedModel(steps()))()
    before = state(store)
    report = await rb.areplay(store.session("ticket"), program(store, never(), said="hello"))
    assert (report.equal, report.exit_status, report.served) == (False, 1, 0)
    assert report.divergence is not None
    assert report.divergence.what == "model call of Solo: input[0]"
    assert "hello" in report.divergence.found
    assert "hi" in report.divergence.expected
    assert state(store) == before


@pytest.mark.parametrize("group", ["trip-1", None], ids=["named by the program", "named by chance"])
async def test_a_program_that_names_no_session_is_replayed(store: rb.Store, group: str | None) -> None:
    """Its session is named after the framework's own id, which may be another one in each run."""

    def run(model: Any) -> Any:
        async def go() -> Any:
            install(store, replace=True)
            solo = agent(RecordingModel(model, store))
            return (await Runner.run(solo, "hi", hooks=RathRunHooks(store), run_config=RunConfig(group_id=group))).final_output

        return go

    await run(ScriptedModel(steps(), emit_traces=True))()
    (s,) = store.sessions()
    before, RAN[:] = state(store), []
    report = await rb.areplay(s.latest(), run(never()))
    assert (report.equal, report.served, report.value, RAN) == (True, 3, "It is sunny.", []), str(report)
    assert state(store) == before


async def test_a_replay_inside_of_a_recording_writes_nothing_there(store: rb.Store) -> None:
    """A person replays in the middle of something that is recorded: neither session hears of it."""
    await program(store, ScriptedModel(steps()))()
    with rb.record(store, "mine") as recorder, recorder.run("work"):
        before, RAN[:] = state(store), []
        model = RecordingModel(never(), recorder)  # it holds the recorder itself

        async def run() -> Any:
            with rb.record(store, "ticket"):
                return (await Runner.run(agent(model), "hi", hooks=RathRunHooks(store))).final_output

        report = await rb.areplay(store.session("ticket"), run)
        assert (report.served, report.live, RAN) == (3, 0, []), str(report)
        recorder.flush()
        assert {ref.session: ref.head for ref in state(store)[0] if ref.session == "ticket"} == {
            ref.session: ref.head for ref in before[0] if ref.session == "ticket"
        }
        assert [c.kind for c in store.session("mine")] == ["session", "run"]


def test_other_sessions_can_be_read_and_not_written(store: rb.Store) -> None:
    """The overlay: what a program reads beside its record is there, and what it writes stays in memory."""
    notes = store.create("notes").append(rb.message("user", "be kind"))
    lines: list[int] = []

    def run() -> str:
        with rb.record(store, "job") as recorder:
            kept = store.session("notes")
            recorder.append(rb.message("user", kept.messages()[0].text))
            kept.append(rb.message("user", "and quick"))
            lines.append(len(store.session("notes")))
            assert "job" in store
            assert {s.name for s in store.sessions()} == {"job", "notes"}
            return kept.fork("x").name

    assert run() == "notes@x"
    head = store.session("notes").head
    report = rb.replay(store.session("job"), run)
    assert report.error is not None, "the branch notes@x exists by now, in the store below as well"
    assert "NameInUseError" in report.error
    assert (store.session("notes").head, lines) == (head, [3, 4])
    assert notes.head != head
