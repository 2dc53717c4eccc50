"""Paused runs: ``RunState`` out and in, of every version, and never carried out twice without a word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, MaxTurnsExceeded, RunState, function_tool
from agents.run_state import SUPPORTED_SCHEMA_VERSIONS

import rath_bridge as rb
from rath_bridge.errors import DecodeError, UnsupportedError
from rath_openai_agents import StateResumedError, checkpoint, wrap
from tests.cli_store import run as cli
from tests.openai_agents.scripted import bodies, call, get_weather, go, said, say, solo, step, whole

PAID: list[int] = []


@pytest.fixture(autouse=True)
def nobody_paid() -> None:
    PAID.clear()


@function_tool(needs_approval=True)
def pay(amount: int) -> str:
    PAID.append(amount)
    return f"paid {amount}"


@function_tool
def look(number: int) -> str:
    return f"invoice {number}"


def payer() -> Agent[Any]:
    return solo([step(call("pay", {"amount": 5}, "p1")), say("done")], tools=[pay])


def resumed_payer() -> Agent[Any]:
    return solo([say("done")], tools=[pay])


async def paused() -> dict[str, Any]:
    return (await go(payer(), "pay")).to_state().to_json()


async def test_state_goes_home_exactly(store: rb.Store) -> None:
    state = await paused()
    s = whole(store.create("s").append(*rb.decode(state)))
    home, report = rb.encode(s, "openai_agents", "state")
    assert json.dumps(home) == json.dumps(state)
    assert report.exact
    assert said(s) == [("user", "pay"), ("assistant", "pay#p1")]
    assert [m.name for m in s.messages()] == [None, "Solo"]
    assert [one.call_id for one in s.pending()] == ["p1"]
    (asked,) = bodies(s, "approval")
    assert (asked.phase, asked.call_id, asked.subject["arguments"]) == ("asked", "p1", {"amount": 5})
    restored = await RunState.from_json(resumed_payer(), home)
    restored.approve(restored.get_interruptions()[0])
    result = await go(resumed_payer(), restored)
    assert (result.final_output, PAID) == ("done", [5])


async def test_the_live_state_is_read_like_its_json(store: rb.Store) -> None:
    state = (await go(payer(), "pay")).to_state()
    s = store.create("s").append(*rb.decode(state))
    assert rb.encode(s, "openai_agents", "state")[0] == state.to_json()


async def test_a_newer_version_is_kept_and_shown(store: rb.Store) -> None:
    state = {**await paused(), "$schemaVersion": "9.7", "something_new": {"deep": [1, 2.5, None]}}
    s = whole(store.create("s").append(*rb.decode(state)))
    assert rb.encode(s, "openai_agents", "state")[0] == state
    (kept,) = bodies(s, "checkpoint")
    assert kept.envelope["schema_version"] == "9.7"


STATES = {file.stem: json.loads(file.read_text()) for file in sorted((Path(__file__).parent / "run_states").glob("v*.json"))}


@pytest.mark.parametrize("version", STATES)
async def test_states_of_old_releases_are_kept_shown_and_resumed(store: rb.Store, version: str) -> None:
    """Snapshots as releases 0.8.4 to 0.24.0 wrote them (``run_states/make.py``)."""
    state = STATES[version]
    s = whole(store.create("s").append(*rb.decode(state)))
    home, report = rb.encode(s, "openai_agents", "state")
    assert json.dumps(home) == json.dumps(state)
    assert report.exact
    assert said(s) == [
        ("user", "pay invoice 4711"), ("assistant", "look#c1"), ("tool", "=invoice 4711#c1"), ("assistant", "pay#c2"),
    ]  # fmt: skip
    assert [(one.phase, one.call_id, one.subject["arguments"]) for one in bodies(s, "approval")] == [
        ("asked", "c2", {"amount": 5})
    ]
    assert bodies(s, "checkpoint")[0].envelope["schema_version"] == version[1:].replace("_", ".")
    if version[1:].replace("_", ".") not in SUPPORTED_SCHEMA_VERSIONS:
        return  # from a later release than this one, which cannot resume it
    agent: Any = Agent(name="Payer", instructions="pay", model=solo([say("done")]).model, tools=[look, pay])
    restored: Any = await RunState.from_json(agent, home)
    restored.approve(restored.get_interruptions()[0])
    result = await wrap(agent, store, "s").run(restored)
    assert (result.final_output, PAID) == ("done", [5])
    assert [one.phase for one in bodies(whole(store.session("s")), "approval")] == ["asked", "granted"]


async def test_a_newer_state_is_shown_by_the_command_line(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    file = tmp_path / "paused.json"
    file.write_text(json.dumps({**await paused(), "$schemaVersion": "9.7", "something_new": {"deep": [1]}}))
    done = cli("import", "--from", "openai_agents", str(file), "--as", "s", store=url)
    assert done.exit_code == 0, done.output
    with rb.open_store(url) as store:
        (chunk,) = [chunk for chunk in store.session("s") if chunk.kind == "checkpoint"]
        assert rb.encode(store.session("s"), "openai_agents", "state")[0]["something_new"] == {"deep": [1]}
    shown = cli("show", chunk.id, store=url).output
    assert "run_state" in shown
    assert "9.7" in shown


async def test_damaged_and_missing_states_are_named(store: rb.Store) -> None:
    with pytest.raises(DecodeError, match=r"\$schemaVersion"):
        rb.decode({**await paused(), "$schemaVersion": 3})
    with pytest.raises(UnsupportedError, match="no RunState"):
        rb.encode(store.create("s"), "openai_agents", "state")


async def test_two_snapshots_share_what_did_not_change(store: rb.Store) -> None:
    big = "x" * 20_000
    state = (await go(payer(), big)).to_state()
    first = checkpoint(state)
    state.approve(state.get_interruptions()[0])
    second = checkpoint(state)
    new = {name: data for name, data in second[0].objects.items() if name not in first[0].objects}
    assert sum(map(len, new.values())) < 6_000
    assert [one.kind for one in second] == ["checkpoint", "approval", "approval"]


async def test_a_wrapped_run_that_pauses_is_kept_and_goes_on_once(store: rb.Store) -> None:
    """Facts, section 3: resuming one snapshot twice ran the side effect twice."""
    await wrap(payer(), store, "s").run("pay")
    home, _ = rb.encode(store.session("s"), "openai_agents", "state")

    async def restored() -> Any:
        state: Any = await RunState.from_json(resumed_payer(), home)
        state.approve(state.get_interruptions()[0])
        return state

    result = await wrap(resumed_payer(), store, "s").run(await restored())
    assert (result.final_output, PAID) == ("done", [5])
    s = whole(store.session("s"))
    assert [one.phase for one in bodies(s, "approval")] == ["asked", "granted"]
    with pytest.raises(StateResumedError, match="resumed before") as caught:
        await wrap(resumed_payer(), store, "s").run(await restored())
    assert PAID == [5]
    assert caught.value.session == "s"
    await wrap(resumed_payer(), store, "s").run(await restored(), again=True)
    assert PAID == [5, 5]
    assert "resumed again" in bodies(store.session("s"), "note")[0].text


async def test_what_an_error_carries_is_read(store: rb.Store) -> None:
    """``RunErrorDetails``: what was said before the run failed."""
    agent = solo([step(call("get_weather", {"city": "Oslo"}))] * 2, tools=[get_weather])
    with pytest.raises(MaxTurnsExceeded) as caught:
        await go(agent, "hi", max_turns=1)
    s = whole(store.create("s").append(*rb.decode(caught.value.run_data)))
    assert said(s) == [("user", "hi"), ("assistant", "get_weather#call_1"), ("tool", "=sunny in Oslo#call_1")]


async def test_a_streamed_result_is_read_like_a_plain_one(store: rb.Store) -> None:
    shown: list[Any] = []
    for streamed in (False, True):
        agent = solo([step(call("get_weather", {"city": "Oslo"})), say("Sunny.")], tools=[get_weather])
        result = await go(agent, "hi", streamed=streamed)
        s = store.create(f"s-{streamed}").append(*rb.decode(result))
        shown.append((said(s), rb.encode(s, "openai_agents")[0]))
        assert shown[-1][1] == result.to_input_list()
    assert shown[0] == shown[1]
