"""What-if: fork at any step, change one thing, go on; the branch tells where it came from, and what was written is not written again."""

from __future__ import annotations

from typing import Any, cast

import pytest

import rath_bridge as rb
from rath_bridge.model.kinds import SessionStart
from rath_bridge.replay import ToolPolicy
from tests.openai_agents.scripted import call, say, step
from tests.replay.programs import RAN, at, never, program, recorded, refund, scripted, state, steps, weather


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


def texts(session: rb.Session) -> list[str]:
    return [message.text for message in session.messages() if message.text]


async def test_another_result_of_a_tool_and_the_rest_is_live(store: rb.Store) -> None:
    s = await recorded(store)
    result = at(s, "tool_result", "weather")
    model = scripted(step(call("weather", {"city": "Bergen"}, "c9")), say("Stay at home."))
    report = await rb.areplay(s, program(store, model), overrides={result.id: "rain"}, then="live", branch="rain")
    assert report.equal, str(report)
    assert (report.served, report.live, RAN) == (1, 3, ["weather Bergen"]), str(report)
    branch = report.result
    assert branch is not None
    assert branch.name == "ticket@rain"
    assert branch.fsck() == []
    start = cast(SessionStart, next(c for c in branch if c.kind == "session" and c.position).body)
    assert (start.op, start.of, start.source) == ("replay", "ticket", s.head)
    fork = next(c for c in branch if c.kind == "session" and c.position)
    assert fork.parents == (s[result.position - 1].id,), "the fork point is the chunk before the one that was changed"
    changed = next(c for c in branch if c.kind == "tool_result" and c.position > fork.position)
    assert cast(Any, changed.body).result == "rain"
    assert texts(branch) == ["hi", "Stay at home."]
    assert texts(store.session("ticket")) == texts(s)
    assert store.session("ticket").head == s.head
    found = s.diff(branch)
    assert found.base == fork.parents[0]
    assert "rain" in next(str(change.to_json()) for change in found.changes if change.kind != "same"), "it shows where and why"
    assert {call.name: call.status for call in branch.calls()} == {"weather": "ok"}
    assert branch.pending() == ()
    runs = {c.run for c in branch if c.run is not None}
    assert runs == {c.run for c in s if c.run is not None}, "it goes on in the runs of the record"


async def test_a_path_into_the_body(store: rb.Store) -> None:
    s = await recorded(store)
    position = at(s, "tool_result", "weather").position
    report = await rb.areplay(
        s, program(store, scripted(say("ok"))), overrides={position: {"body.response": "fog"}}, then="live"
    )  # fmt: skip
    assert report.result is not None
    assert "fog" in [getattr(c.body, "result", None) for c in report.result if c.kind == "tool_result"]
    assert report.result.branch.startswith("replay-")


async def test_until_a_chunk_then_live_with_other_code(store: rb.Store) -> None:
    """The record is served up to a step; what is asked behind it may be asked otherwise."""
    s = await recorded(store)
    until = at(s, "tool_result", "weather")
    report = await rb.areplay(s, program(store, scripted(say("Done."))), until=until, then="live")
    assert report.equal, str(report)
    assert (report.served, report.live, report.value, RAN) == (2, 1, "Done.", [])
    assert report.result is not None
    assert texts(report.result) == ["hi", "Done."]


async def test_halt_writes_nothing(store: rb.Store) -> None:
    s = await recorded(store)
    before = state(store)
    report = await rb.areplay(s, program(store, never()), until=at(s, "tool_result", "weather"))
    assert (report.equal, report.served, report.live, report.halted) == (True, 2, 0, "model call of Solo"), str(report)
    assert state(store) == before


async def test_a_model_for_one_agent(store: rb.Store) -> None:
    s = await recorded(store)
    model = scripted(say("Another model speaks."))
    report = await rb.areplay(s, program(store, never()), overrides={"model:Solo": model}, then="live", branch="other")
    assert (report.value, report.live, report.served) == ("Another model speaks.", 1, 0), str(report)
    assert report.result is not None
    assert texts(report.result) == ["hi", "Another model speaks."]


async def test_another_prompt_for_one_agent(store: rb.Store) -> None:
    s = await recorded(store)
    model = scripted(say("At length."))
    report = await rb.areplay(
        s, program(store, model), overrides={"prompt:Solo": lambda old: f"{old}, no: be long"}, then="live"
    )  # fmt: skip
    assert report.value == "At length.", str(report)
    assert report.result is not None
    requests = [c.body for c in report.result if c.kind == "inference"]
    assert len(requests) == 1


async def test_another_tool(store: rb.Store) -> None:
    s = await recorded(store)
    report = await rb.areplay(
        s, program(store, scripted(say("Snow!"))), overrides={"tool:weather": lambda asked: f"snow in {asked['city']}"}, then="live"
    )  # fmt: skip
    assert report.value == "Snow!", str(report)
    assert report.result is not None
    assert "snow in Oslo" in [getattr(c.body, "result", None) for c in report.result if c.kind == "tool_result"]
    assert RAN == []


async def test_a_changed_answer_of_a_model(store: rb.Store) -> None:
    s = await recorded(store)
    report = await rb.areplay(s, program(store, never()), overrides={at(s, "inference").id: "No."}, then="live")
    assert (report.value, report.live) == ("No.", 0), str(report)
    assert report.result is not None
    assert texts(report.result) == ["hi", "No."]


async def test_what_cannot_be_changed_is_said(store: rb.Store) -> None:
    s = await recorded(store)
    for overrides, words in (
        ({at(s, "message").id: "hello"}, "changed in its code"),
        ({"nothing": 1}, "names no chunk"),
        ({at(s, "tool_result").id: {"body.arguments.x": 1}}, "no path into this answer"),
    ):
        with pytest.raises(ValueError, match=words):
            await rb.areplay(s, program(store, never()), overrides=overrides, then="live")
    with pytest.raises(ValueError, match="there is no number"):
        rb.replay(s, lambda: None, until=4711)
    with pytest.raises(ValueError, match="then="):
        rb.replay(s, lambda: None, then="go")


# ------------------------------------------------------------------ side effects once


async def test_a_recorded_write_is_never_executed_again(store: rb.Store) -> None:
    """Behind the fork the model asks for the same refund once more, and twice: the record answers."""
    s = await recorded(store)
    changed = at(s, "tool_result", "weather")
    again = [step(call("refund", {"order": "A-1"}, "c7")), step(call("refund", {"order": "A-1"}, "c8")), say("Done.")]
    report = await rb.areplay(s, program(store, scripted(*again)), overrides={changed.id: "rain"}, then="live")
    assert (report.value, RAN) == ("Done.", []), str(report)
    assert report.notes == ("tool refund was answered from the record, not done again",)
    assert report.result is not None
    paid = at(s, "tool_result", "refund").id
    told = [cast(Any, c.body) for c in report.result if c.position > changed.position and c.kind == "tool_result"]
    assert [(one.name, one.attributes.get("replayed")) for one in told] == [
        ("weather", changed.id), ("refund", paid), ("refund", paid),
    ], "what was not done is not on record as done"  # fmt: skip
    RAN.clear()
    allowed = await rb.areplay(
        s, program(store, scripted(*again)), overrides={changed.id: "rain"}, then="live", allow_effects=True
    )  # fmt: skip
    assert RAN == ["refund A-1", "refund A-1"], str(allowed)


@pytest.mark.parametrize("until", [None, 0], ids=["overridden", "overridden behind until"])
async def test_a_write_that_comes_again_is_answered_as_changed(store: rb.Store, until: int | None) -> None:
    """The bank refuses; the live model tries again, twice: it is never told that what was refused was done."""
    s = await recorded(store)
    paid = at(s, "tool_result", "refund")
    told = "the bank refused"
    again = [step(call("refund", {"order": "A-1"}, f"c{number}")) for number in (7, 8)]
    first = steps()[:2] if until is not None else []
    report = await rb.areplay(
        s, program(store, scripted(*first, *again, say("Refused."))), until=until, overrides={paid.id: told}, then="live",
        policy={"weather": "reads"},
    )  # fmt: skip
    assert (report.value, report.unasked) == ("Refused.", ()), str(report)
    assert [one for one in RAN if one.startswith("refund")] == []
    assert "tool refund came again and was answered as changed, not done" in report.notes
    assert not any("from the record" in note for note in report.notes)
    assert report.result is not None
    results = [cast(Any, c.body) for c in report.result if c.kind == "tool_result" and cast(Any, c.body).name == "refund"]
    assert [(one.result, one.attributes.get("replayed")) for one in results] == [(told, paid.id)] * 3
    assert report.result.fsck() == []
    RAN.clear()
    allowed = await rb.areplay(
        s, program(store, scripted(*first, *again, say("Paid."))), until=until, overrides={paid.id: told}, then="live",
        policy={"weather": "reads"}, allow_effects=True,
    )  # fmt: skip
    assert [one for one in RAN if one.startswith("refund")] == ["refund A-1", "refund A-1"], str(allowed)


async def test_an_equal_write_of_the_record_behind_the_fork_is_answered_as_changed(store: rb.Store) -> None:
    """The record holds the write twice, and one of them is changed: where it would be done again, the other answer contradicts it."""
    twice = [step(call("refund", {"order": "A-1"}, f"c{number}")) for number in (1, 2)]
    s = await recorded(store, scripted(*twice, say("Refunded.")))
    first = at(s, "tool_result", "refund")
    model = scripted(*[step(call("refund", {"order": "A-1"}, f"c{number}")) for number in (2, 3)], say("Refused."))
    report = await rb.areplay(s, program(store, model), overrides={first.id: "refused"}, until=first, then="live")
    assert (report.value, RAN) == ("Refused.", []), str(report)
    assert report.result is not None
    assert [cast(Any, c.body).result for c in report.result if c.kind == "tool_result"] == ["refused"] * 3


async def test_behind_the_fork_reads_are_made_and_writes_are_served(store: rb.Store) -> None:
    s = await recorded(store)
    report = await rb.areplay(
        s, program(store, scripted(*steps())), until=at(s, "message"), then="live", policy={"weather": "reads"}
    )  # fmt: skip
    assert RAN == ["weather Oslo"], str(report)
    assert (report.live, report.served) == (4, 1)


@pytest.mark.parametrize(
    ("policy", "ran", "told"),
    [
        ({"weather": "live"}, ["weather Rome"], "sunny in Rome"),
        ({"*": ToolPolicy(on_miss="error")}, [], "not on record: tool call weather"),
    ],
    ids=["live", "error"],
)
async def test_what_is_not_on_record_by_policy(store: rb.Store, policy: Any, ran: list[str], told: str) -> None:
    """Behind the fork a tool is called as it never was."""
    s = await recorded(store)
    model = scripted(step(call("weather", {"city": "Rome"}, "c9")), say("ok"))
    report = await rb.areplay(s, program(store, model), until=1, then="live", policy=policy)
    assert ran == RAN, str(report)
    assert report.result is not None
    results = [str(getattr(c.body, "result", "")) for c in report.result if c.kind == "tool_result"]
    assert results[0].startswith(told)


async def test_tokens_that_were_spent_then_are_not_counted_again(store: rb.Store) -> None:
    """Law 7: a model call that is served behind the fork carries no usage; one that is made does."""
    s = await recorded(store)
    report = await rb.areplay(
        s, program(store, never()), overrides={at(s, "tool_result", "refund").id: "refunded A-1"}, then="live"
    )
    assert (report.value, report.live) == ("It is sunny, and A-1 is refunded.", 0), str(report)
    branch = report.result
    assert branch is not None
    assert (s.usage().total_tokens, branch.usage().total_tokens) == (45, 30)
    last = [c for c in branch if c.kind == "inference"][-1]
    assert cast(Any, last.body).attributes["replayed"] == [c.id for c in s if c.kind == "inference"][-1]


async def test_an_intent_without_a_result_is_unknown(store: rb.Store) -> None:
    """The process died while it paid: nobody knows, so nobody pays again."""
    whole = await recorded(store)
    asked = at(whole, "tool_call", "refund")
    s = whole.fork("cut", at=asked.id)
    report = await rb.areplay(s, program(store, never()))
    assert (report.equal, report.unknown, RAN) == (False, (asked.id,), []), str(report)
    assert report.divergence is not None
    assert "nobody knows whether it was done" in report.divergence.expected
    resumed = await rb.areplay(s, program(store, scripted(say("paid"))), then="live", until=asked, allow_effects=True)
    assert RAN == ["refund A-1"], str(resumed)


async def test_a_resume_goes_on_where_the_record_ends(store: rb.Store) -> None:
    """The process died behind the refund: the record is served to its end, nothing is paid twice, the rest is live."""
    whole = await recorded(store)
    s = whole.fork("died", at=at(whole, "tool_result", "refund").id)
    report = await rb.areplay(s, program(store, scripted(say("It is refunded."))), until=-1, then="live", branch="resumed")
    assert (report.equal, report.value, report.served, report.live, RAN) == (True, "It is refunded.", 4, 1, []), str(report)
    assert report.result is not None
    assert report.result.name == "ticket@resumed"
    assert texts(report.result) == ["hi", "It is refunded."]
    assert report.result.pending() == ()


def test_effects_are_declared(store: rb.Store) -> None:
    from rath_bridge.replay import effect
    from rath_bridge.replay.effects import Rules, from_annotations

    @effect("pure")
    def double_of(x: int) -> int:
        return 2 * x

    rules = Rules.read({"find_*": "reads"})
    assert [rules.effect(n) for n in ("double_of", "find_order", "refund")] == ["pure", "reads", "writes"]
    assert rules.effect("elsewhere", "reads") == "reads"
    assert (from_annotations({"readOnlyHint": True}), from_annotations({"readOnlyHint": False}), from_annotations({})) == (
        "reads", "writes", None,
    )  # fmt: skip
    assert effect("reads")(weather) is weather
    assert Rules.read(None).effect("weather") == "reads"
    with pytest.raises(ValueError, match="none of"):
        effect(cast(Any, "deletes"))
    with pytest.raises(ValueError, match="no name"):
        effect("pure")(object())
    with pytest.raises(ValueError, match="the policy of 'x'"):
        Rules.read({"x": "perhaps"})
    effect("writes")(weather)
    assert refund.name == "refund"


async def test_what_should_be_changed_and_was_not_asked_for_is_named(store: rb.Store) -> None:
    s = await recorded(store)
    report = await rb.areplay(s, program(store, never()), overrides={"tool:nothing": "x", "model:Nobody": never()}, then="live")
    assert (report.equal, report.unasked, report.unchanged) == (True, ("the tool nothing", "the model of Nobody"), True)
    assert report.exit_status == 1, "it was no what-if"
    assert "not changed: the tool nothing (the run did not come to it)" in str(report)
    assert report.as_json()["unasked"] == ["the tool nothing", "the model of Nobody"]
    result = at(s, "tool_result", "weather")
    model = scripted(say("ok"))
    report = await rb.areplay(s, program(store, model), overrides={result.id: "rain", "tool:nothing": "x"}, then="live")
    assert (report.unasked, report.unchanged, report.exit_status) == (("the tool nothing",), False, 0), str(report)
