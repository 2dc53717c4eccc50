"""A wrapped agent or team is what a replay runs: each of its runs is made again, with the task that is on record."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from typing import Any

import pytest
from autogen_agentchat.conditions import HandoffTermination
from autogen_agentchat.messages import HandoffMessage, MultiModalMessage, StopMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat, Swarm

import rath_bridge as rb
from rath_autogen import wrap
from tests.autogen.scripted import asks
from tests.autogen.test_replay import KINDS, agent, paid, pay


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    paid.clear()


async def again(store: rb.Store, runner: Any) -> rb.ReplayReport:
    """Replay with a new object that has no model to ask."""
    done, refs = list(paid), store.backend.refs()
    report = await rb.areplay(store.session("ag"), wrap(runner, store))
    assert (report.equal, report.unused, report.live) == (True, (), 0), str(report)
    assert (paid, store.backend.refs()) == (done, refs)
    return report


@pytest.mark.parametrize("make", KINDS, ids=[make.__name__ for make in KINDS])
async def test_the_task_is_taken_from_the_record(store: rb.Store, make: Callable[[bool], Any]) -> None:
    await wrap(make(True), store, "ag").run(task="go")
    await again(store, make(False))


def two(live: bool) -> Any:
    return RoundRobinGroupChat([agent("a", live, "one", "three"), agent("b", live, "two", "four")], max_turns=2)


def test_without_a_loop(store: rb.Store) -> None:
    asyncio.run(wrap(two(True), store, "ag").run(task="go"))
    report = rb.replay(store.session("ag"), wrap(two(False), store))
    assert (report.equal, report.served) == (True, 2), str(report)


async def test_tasks_of_every_form_and_going_on(store: rb.Store) -> None:
    clerk = wrap(agent("a", True, *"1234"), store, "ag")
    await clerk.run(task="go")
    async for _ in clerk.run_stream(
        task=[TextMessage(content="x", source="ann"), MultiModalMessage(content=["y"], source="bob")]
    ):
        pass
    await clerk.run(task=StopMessage(content="z", source="ann"))
    await clerk.run()
    await again(store, agent("a", False))
    report = await rb.areplay(store.session("ag"), clerk)
    assert report.equal, f"the very object that was recorded: {report}"


async def test_a_team_that_goes_on(store: rb.Store) -> None:
    team = wrap(two(True), store, "ag")
    await team.run(task="go")
    await team.run()
    assert (await again(store, two(False))).served == 4


async def test_a_swarm_that_waits_for_a_person(store: rb.Store) -> None:
    def make(live: bool) -> Any:
        a = agent("a", live, asks("transfer_to_user"), asks("pay", '{"n": 2}', "c2"), "paid", tools=[pay], handoffs=["user"])
        return Swarm([a], termination_condition=HandoffTermination("user"), max_turns=2)

    team = wrap(make(True), store, "ag")
    await team.run(task="refund")
    await team.run(task=HandoffMessage(source="user", target="a", content="yes, do"))
    assert paid == [2]
    await again(store, make(False))


async def test_turns_on_a_session(store: rb.Store) -> None:
    """As before, now for more than one of them, and mixed with runs that have a task of their own."""
    clerk = wrap(agent("a", True, "one", "two", "three"), store, "ag")
    session = await clerk.acall(store.create("ag").append(rb.message("user", "go")))
    session = await clerk.acall(session.append(rb.message("user", "and then?")))
    await clerk.run(task="more")
    assert (await again(store, agent("a", False))).served == 3


async def test_a_team_on_a_session(store: rb.Store) -> None:
    team = wrap(two(True), store, "ag")
    session = await team.acall(store.create("ag").append(rb.message("user", "go")))
    await team.acall(session.append(rb.message("user", "and then?")))
    assert (await again(store, two(False))).served == 4


async def test_a_script_that_ran_twice(store: rb.Store) -> None:
    """The second process's team knew nothing of the first one's run."""
    await wrap(two(True), store, "ag").run(task="go")
    await wrap(two(True), store, "ag").run(task="go")
    assert (await again(store, two(False))).served == 4


async def test_a_report_of_the_history(store: rb.Store) -> None:
    await wrap(agent("a", True, "one"), store, "ag").run(task="go")
    state, report = rb.encode(store.session("ag"), "autogen", "agent_state")
    clerk = agent("a", True, "two")
    await clerk.load_state(state)
    await wrap(clerk, store, "ag", continues=report).run(task="more")
    assert (await again(store, agent("a", False))).served == 2


class Note(TextMessage):
    """A message of the user's own."""

    type: Any = "Note"
    note: str = ""


async def test_a_task_that_cannot_be_made_again_is_a_reason(store: rb.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await wrap(agent("a", True, "one"), store, "ag").run(task=Note(content="go", source="user"))
    await again(store, agent("a", False))
    monkeypatch.setattr("rath_autogen.natives.Registry._candidates", lambda *_: [])
    report = await rb.areplay(store.session("ag"), wrap(agent("a", False), store))
    assert report.equal is None
    assert any("the task of a run of a cannot be made again" in reason for reason in report.reasons), str(report)


@pytest.mark.parametrize("make", KINDS, ids=[make.__name__ for make in KINDS])
async def test_what_leaves_the_record_prints_nothing(
    store: rb.Store, make: Callable[[bool], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """AutoGen's runtime logs a traceback for every member that hears of an error."""
    await wrap(make(True), store, "ag").run(task="go")
    s = store.session("ag")

    async def other() -> None:
        await wrap(make(False), store, "ag").run(task="stop")

    with caplog.at_level(logging.ERROR):
        assert (await rb.areplay(s, other)).divergence is not None
        for place in [chunk for chunk in s if chunk.kind == "inference"][:1]:
            report = await rb.areplay(s, wrap(make(False), store), until=place)
            assert report.halted or report.equal, str(report)
        await asyncio.sleep(0.01)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_errors_of_others_are_told(store: rb.Store, caplog: pytest.LogCaptureFixture) -> None:
    """A team that runs beside a replay which has left the record."""
    await wrap(two(True), store, "ag").run(task="go")

    async def fails() -> None:
        with pytest.raises(RuntimeError):
            await two(False).run(task="go")

    async def other() -> None:
        with pytest.raises(RuntimeError):
            await wrap(two(False), store, "ag").run(task="stop")
        await asyncio.get_running_loop().create_task(fails(), context=outside)

    outside = contextvars.copy_context()
    with caplog.at_level(logging.ERROR):
        await rb.areplay(store.session("ag"), other)
    assert caplog.records
