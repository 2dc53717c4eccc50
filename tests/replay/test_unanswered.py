"""Calls on record that no player answers are told before anything is run: a program would make them for real."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Runner, function_tool
from agents.testing import ScriptedModel

import rath_bridge as rb
from rath_bridge.evidence import Claim, claim_draft, replay_draft
from rath_bridge.evidence.judging import check_session
from rath_bridge.model.kinds import Inference, Message, ToolCall, ToolResult
from rath_bridge.model.parts import TextPart
from rath_bridge.recorder import current_recorder
from rath_bridge.replay import ToolPolicy
from rath_openai_agents import RathRunHooks, RecordingModel
from tests.openai_agents.scripted import call, say, step

DONE: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DONE.clear()


def refund(order: int, recorder: Any, effect: Any = "writes") -> None:
    """A payment that the program itself puts on record."""
    recorder.emit(ToolCall(name="refund", call_id=f"c{order}", arguments={"order": order}, effect=effect))
    DONE.append(f"refund {order}")
    recorder.emit(ToolResult(name="refund", call_id=f"c{order}", result="done"))


def by_hand(store: rb.Store, *orders: int, effect: Any = "writes", model: bool = False) -> Callable[[], None]:
    def run() -> None:
        with rb.record(store, "hand") as recorder, recorder.run("bot"):
            if model:
                DONE.append("asked")
                recorder.emit(
                    Inference(agent="bot", request={"prompt": "x"}, output=({"type": "text", "content": "y"},), usage=None)
                )
            for order in orders:
                refund(order, recorder, effect)

    return run


def test_nothing_is_run(store: rb.Store) -> None:
    run = by_hand(store, 1, 2, model=True)
    run()
    s = store.session("hand")
    DONE.clear()
    report = rb.replay(s, run)
    assert (report.equal, report.exit_status, report.live, report.value, DONE) == (None, 125, 0, None, [])
    (told,) = report.reasons
    assert told.startswith(
        "1 model call and 2 tool calls on record are answered by no player (tool refund, 2 times; model call of bot)"
    )
    assert "policy={'model:bot': 'live', 'refund': 'live'}, allow_effects=True" in told
    assert "--on-miss model:bot=live --on-miss refund=live --allow-effects" in told


async def test_nothing_is_run_in_async_code(store: rb.Store) -> None:
    run = by_hand(store, 1)
    run()
    DONE.clear()
    report = await rb.areplay(store.session("hand"), run)
    assert (report.exit_status, DONE) == (125, [])


@pytest.mark.parametrize("effect", ["pure", "reads", None])
def test_what_is_only_noted_is_not_answered_either(store: rb.Store, effect: str | None) -> None:
    run = by_hand(store, 1, effect=effect)
    run()
    assert rb.replay(store.session("hand"), run).exit_status == 125


def test_a_result_alone(store: rb.Store) -> None:
    def run() -> None:
        with rb.record(store, "hand") as recorder:
            recorder.emit(ToolResult(name="refund", call_id="c1", result="done"))

    run()
    assert "1 tool call on record is answered by no player (tool refund)" in str(rb.replay(store.session("hand"), run))


def test_it_is_run_where_the_policy_says_so_and_counts_as_live(store: rb.Store) -> None:
    run = by_hand(store, 1, 2, model=True)
    run()
    s = store.session("hand")
    policy = {"refund": "live", "model:*": "live"}
    DONE.clear()
    assert rb.replay(s, run, policy=policy).exit_status == 125, "a write is not done again without allow_effects"
    assert DONE == []
    report = rb.replay(s, run, policy=policy, allow_effects=True)
    assert (report.equal, report.live, report.itself) == (True, 3, ("model call of bot", "tool refund", "tool refund"))
    assert DONE == ["asked", "refund 1", "refund 2"]
    assert str(report).startswith("hand: equal\n")
    assert "made by the program itself: tool refund" in str(report)
    assert store.session("hand").head == s.head
    other = rb.replay(s, by_hand(store, 1, 3, model=True), policy=policy, allow_effects=True)
    assert (other.equal, other.exit_status) == (False, 1)


def test_reads_need_no_more_than_the_policy(store: rb.Store) -> None:
    run = by_hand(store, 1)
    run()
    report = rb.replay(store.session("hand"), run, policy={"refund": ToolPolicy(effect="reads", on_miss="live")})
    assert (report.equal, report.live) == (True, 1)


def test_no_claim_rests_on_it(store: rb.Store) -> None:
    run = by_hand(store, 1)
    run()
    for options in ({}, {"policy": {"refund": "live"}, "allow_effects": True}):
        s = store.session("hand")
        s = s.append(replay_draft(rb.replay(s, run, **options)))
        s = s.append(claim_draft(Claim(id="again", sentence="Same.", status="supported", basis="replay", evidence=(s.head,))))
        (verdict,) = check_session(s)
        assert not verdict.holds
    assert "answered by no player" in check_session(s.append(), replay=rb.replay(s, run))[0].reasons[-1]


def test_other_runs_of_the_record(store: rb.Store) -> None:
    """What stands before ``after``, and runs that began behind ``until``, are none of this replay's."""

    def noted() -> None:
        with rb.record(store, "hand") as recorder, recorder.run("noted"):
            recorder.emit(Message(role="user", parts=(TextPart("hello"),)))

    run = by_hand(store, 1)
    noted()
    first = store.session("hand").head
    run()
    second = store.session("hand").head
    noted()
    s = store.session("hand")
    report = rb.replay(s, noted, until=first)
    assert report.equal, str(report)
    assert rb.replay(s, noted, after=second).equal
    assert rb.replay(s, run, after=first, until=second).exit_status == 125
    inside = next(chunk for chunk in s if chunk.kind == "run" and chunk.position > len(store.session("hand")[:0] or ()) + 3)
    assert rb.replay(s, run, after=first, until=inside.id).exit_status == 125, "the run that has begun would go on to it"


async def test_beside_calls_that_are_answered(store: rb.Store) -> None:
    """One framework of a mixed program has a player, the program's own calls have none."""

    async def run() -> Any:
        with rb.record(store, "mixed") as recorder, recorder.run("job"):
            model = RecordingModel(ScriptedModel([say("done")]), store)
            found = (await Runner.run(Agent(name="A", model=model), "go", hooks=RathRunHooks(store))).final_output
            refund(1, recorder)
            return found

    await run()
    s = store.session("mixed")
    DONE.clear()
    report = await rb.areplay(s, run)
    assert (report.exit_status, report.served, DONE) == (125, 0, [])
    assert "1 tool call on record is answered by no player (tool refund)" in report.reasons[0]
    report = await rb.areplay(s, run, policy={"refund": "live"}, allow_effects=True)
    assert (report.equal, report.served, report.made, DONE) == (True, 1, ("tool refund",), ["refund 1"])


async def test_inside_of_a_tool_that_is_answered(store: rb.Store) -> None:
    """A run that began within a served tool is not made again, whoever wrote it."""

    @function_tool
    async def pay(order: int) -> str:
        recorder = current_recorder()
        assert recorder is not None
        with recorder.run("bank"):
            refund(order, recorder)
        return "paid"

    async def run() -> Any:
        with rb.record(store, "mixed") as outer, outer.run("job"):
            model = RecordingModel(ScriptedModel([step(call("pay", {"order": 7}, "c1")), say("done")]), store)
            return (await Runner.run(Agent(name="A", model=model, tools=[pay]), "go", hooks=RathRunHooks(store))).final_output

    await run()
    assert DONE == ["refund 7"]
    DONE.clear()
    report = await rb.areplay(store.session("mixed"), run)
    assert (report.equal, report.live, DONE) == (True, 0, []), str(report)


PROGRAM = """
import rath_bridge as rb
from rath_bridge.model.kinds import ToolCall, ToolResult
with rb.record(rb.open_store(), "hand") as recorder, recorder.run("bot"):
    recorder.emit(ToolCall(name="refund", call_id="c1", arguments={"order": 17}, effect="writes"))
    open("effects.txt", "a").write("REFUND\\n")
    recorder.emit(ToolResult(name="refund", call_id="c1", result="done"))
"""


def test_from_the_command_line(tmp_path: Path) -> None:
    def told(*words: str) -> tuple[int, str]:
        environment = {"RATH_BRIDGE_STORE": "sqlite:///runs.db", "PATH": "/usr/bin:/bin", "COLUMNS": "400"}
        command = [sys.executable, *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr

    (tmp_path / "hand.py").write_text(PROGRAM)
    cli = ("-m", "rath_bridge")
    assert told("hand.py") == (0, "")
    code, text = told(*cli, "replay", "hand", "--", "python", "hand.py")
    assert (code, "1 tool call on record is answered by no player (tool refund)" in text) == (125, True), text
    code, text = told(*cli, "claim", "add", "hand", "again", "Same.", "--status", "supported", "--", "python", "hand.py")
    assert (code, "partial (not supported)" in text) == (1, True), text
    assert (tmp_path / "effects.txt").read_text() == "REFUND\n"
    code, text = told(
        *cli, "replay", "hand", "--until", "4", "--on-miss", "refund=live", "--allow-effects", "--", "python", "hand.py"
    )
    assert (code, "1 live" in text) == (0, True), text
    assert (tmp_path / "effects.txt").read_text() == "REFUND\nREFUND\n"
