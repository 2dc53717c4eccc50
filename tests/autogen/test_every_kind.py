"""Each kind of team, once through everything: recorded, forked, merged, replayed, saved, resumed in a fresh process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, MagenticOneGroupChat, RoundRobinGroupChat, SelectorGroupChat, Swarm

import rath_bridge as rb
from rath_autogen import load_team_state, save_team_state, wrap
from rath_bridge.aio import in_thread
from tests.autogen.scripted import DONE, LEDGER, asks
from tests.autogen.test_replay import agent, model, paid, pay
from tests.autogen.test_team_state import texts

Part = str
"""``first``: the team that begins; ``rest``: the one that goes on; ``replayed``: one whose models must not be asked."""


def of(part: Part, first: list[Any], rest: list[Any]) -> list[Any]:
    return {"first": first, "rest": rest, "replayed": []}[part]


def one(part: Part, name: str, first: list[Any], rest: list[Any], **options: Any) -> Any:
    return agent(name, True, *of(part, first, rest), **options)


def round_robin(part: Part) -> Any:
    a = one(part, "a", [asks("pay", '{"n": 3}')], ["four"], tools=[pay])
    return RoundRobinGroupChat([a, one(part, "b", ["two"], []), one(part, "c", [], ["three"])], max_turns=2)


def selector(part: Part) -> Any:
    a = one(part, "a", [asks("pay", '{"n": 3}')], ["three"], tools=[pay])
    return SelectorGroupChat([a, one(part, "b", ["two"], ["four"])], model(True, *of(part, ["a", "b"], ["a", "b"])), max_turns=2)


def swarm(part: Part) -> Any:
    a = one(part, "a", [asks("transfer_to_b")], [], handoffs=["b"])
    b = one(part, "b", [asks("pay", '{"n": 3}', "c2")], ["three", "four"], tools=[pay], handoffs=["a"])
    return Swarm([a, b], max_turns=2)


def graph(part: Part) -> Any:
    """A loop from b back to a, until b says done."""
    a = one(part, "a", [asks("pay", '{"n": 3}')], ["two"], tools=[pay])
    b, c = one(part, "b", ["again"], ["done"]), one(part, "c", [], ["end"])
    build = DiGraphBuilder().add_node(a).add_node(b).add_node(c).add_edge(a, b)
    build.add_edge(b, a, condition="again").add_edge(b, c, condition="done").set_entry_point(a)
    return GraphFlow([a, b, c], build.build(), max_turns=2)


def magentic(part: Part) -> Any:
    chief = model(True, *of(part, ["facts", "plan", LEDGER, DONE, "the answer"], ["new facts", "new plan", DONE, "another"]))
    return MagenticOneGroupChat([one(part, "a", [asks("pay", '{"n": 3}')], [], tools=[pay])], chief)


def nested(part: Part) -> Any:
    inner = RoundRobinGroupChat([one(part, "a", [asks("pay", '{"n": 3}')], ["three"], tools=[pay])], max_turns=1)
    return RoundRobinGroupChat([inner, one(part, "z", ["two"], ["four"])], max_turns=2)


KINDS: dict[str, tuple[Callable[[Part], Any], str | None, list[str]]] = {
    "RoundRobin": (round_robin, None, ["three", "four"]),
    "Selector": (selector, None, ["three", "four"]),
    "Swarm": (swarm, None, ["three", "four"]),
    "GraphFlow": (graph, None, ["two", "done"]),
    "MagenticOne": (magentic, "more", ["another"]),
    "nested": (nested, None, ["three", "four"]),
}
"""Kind -> how it is made, the task that it goes on with, and what is said last."""


async def begun(kind: str, store: rb.Store, name: str = "ticket") -> tuple[rb.Session, Any]:
    """Record the first half and save the team."""
    team = wrap(KINDS[kind][0]("first"), store, name)
    result = await team.run(task="go")
    return await save_team_state(team), result


async def gone_on(kind: str, session: rb.Session) -> list[str]:
    """What a fresh team says that goes on with a session."""
    make, task, rest = KINDS[kind]
    team = make("rest")
    report = await load_team_state(team, session)
    assert report.exact, str(report)
    result = await wrap(team, session.store, session.name).run(task=task)
    return [text for _, text in texts(result)][-len(rest) :]


@pytest.mark.parametrize("kind", KINDS)
async def test_it_is_recorded_forked_merged_and_replayed(store: rb.Store, kind: str) -> None:
    make, _, rest = KINDS[kind]
    paid.clear()
    saved, recorded = await begun(kind, store)
    assert not saved.pending()

    first_call = next(c for c in saved if c.kind == "inference")
    early = saved.fork("early", at=first_call.id)
    assert [c.id for c in early][: len(early) - 1] == [c.id for c in saved][: len(early) - 1]

    left, right = saved.fork("left"), saved.fork("right")
    assert await gone_on(kind, left) == await gone_on(kind, right) == rest
    ours, theirs = store.session("ticket@left"), store.session("ticket@right")
    spent = [side.usage().output_tokens or 0 for side in (saved, ours, theirs)]
    merged = ours.merge(theirs)
    assert merged.messages()[-2].text == ours.messages()[-1].text  # the other line stands behind, as one block
    assert merged.usage().output_tokens == spent[1] + spent[2] - spent[0]  # the base is counted once
    assert not merged.fsck()

    async def again() -> Any:
        team = wrap(make("replayed"), store, "ticket")
        result = await team.run(task="go")
        await save_team_state(team)
        return result

    before = [ref.head for ref in store.backend.refs()]
    report = await rb.areplay(saved, again)
    assert (report.equal, report.live, report.unused) == (True, 0, ()), str(report)
    assert texts(report.value) == texts(recorded)
    assert paid == [3]
    assert [ref.head for ref in store.backend.refs()] == before


FRESH = """
import asyncio, sys
import rath_bridge as rb
from tests.autogen.test_every_kind import KINDS, gone_on

async def main():
    store = rb.open_store(sys.argv[1])
    for kind in KINDS:
        print(kind, await gone_on(kind, store.session(kind)))
        assert not store.session(kind).fsck()

asyncio.run(main())
"""


async def test_it_is_saved_and_resumed_in_a_fresh_process(sqlite_url: str) -> None:
    with rb.open_store(sqlite_url) as store:
        for kind in KINDS:
            await begun(kind, store, kind)
    done = await in_thread(subprocess.run, [sys.executable, "-c", FRESH, sqlite_url], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{kind} {rest}" for kind, (_, _, rest) in KINDS.items()]
