"""The mixed stack replays as one: one tape, zero live calls, nothing leaves the process."""

from __future__ import annotations

import asyncio
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import rath_bridge as rb
from tests.openai_agents.scripted import say
from tests.replay.mixed import RAN, Answers, program
from tests.replay.programs import state
from tests.replay.sealed import SealedError, sealed

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def nothing_ran() -> Iterator[None]:
    RAN.clear()
    yield
    RAN.clear()


@pytest.fixture
def store(sqlite_url: str) -> Iterator[rb.Store]:
    """A file: what else holds of stores is tested where there is less to start."""
    with rb.open_store(sqlite_url) as opened:
        yield opened


@pytest.fixture(params=["seen by the agent", "on the wire"])
def wire(request: pytest.FixtureRequest) -> bool:
    """Whether the MCP server's own frames are on record as well."""
    return request.param == "on the wire"


async def recorded(store: rb.Store, wire: bool) -> tuple[rb.Session, str]:
    said = await program(store, Answers(), wire=wire)()
    assert said == "And it is true."
    assert RAN == ["find_export", "set_filter"]
    RAN.clear()
    return store.session("ticket"), said


async def test_a_mixed_stack_is_replayed_as_one(store: rb.Store, wire: bool) -> None:
    s, said = await recorded(store, wire)
    adapters = {(chunk.origin or "").partition('"adapter":"')[2].partition('"')[0] for chunk in s} - {""}
    assert adapters == {"rath_langgraph", "rath_openai_agents", "rath_autogen"} | ({"rath_mcp"} if wire else set())
    before = state(store)
    with sealed() as tried:
        report = await rb.areplay(s, program(store, Answers(silent=True), wire=wire))
    assert (report.equal, report.live, report.misses, report.unused) == (True, 0, (), ()), str(report)
    assert (report.value, RAN, tried) == (said, [], [])
    assert report.served == 9, "LangGraph: a model, a tool; the agent: three model calls, two tools; the team: two model calls"
    assert state(store) == before


@pytest.mark.usefixtures("sync_loop")
def test_the_example_of_the_mixed_stack_is_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``examples/mixed_stack.py``, the recorded half: LangGraph, two MCP servers, two agents with a handoff, a team."""
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "0")
    example = runpy.run_path(str(ROOT / "examples" / "mixed_stack.py"))

    def told(store: rb.Store) -> None:
        with rb.record(store, "ticket-4711") as recorder:
            example["with_langgraph"](store)
            asyncio.run(example["with_mcp"](store))
            asyncio.run(example["with_openai_agents"](store, recorder.session))
            asyncio.run(example["with_autogen"](store, recorder.session, ["Polite.", "And true."], "Review it."))

    with rb.open_store(f"sqlite:///{tmp_path / 'runs.db'}") as store:
        told(store)
        s, before = store.session("ticket-4711"), state(store)
        with sealed() as tried:
            report = rb.replay(s, lambda: told(store))
        assert (report.equal, report.live, report.unused, report.misses, tried) == (True, 0, (), (), []), str(report)
        assert report.served >= 13
        assert state(store) == before


def test_the_seal_holds() -> None:
    """What proves that nothing leaves the process would notice."""
    import socket
    import subprocess
    import sys

    with sealed() as tried:
        with pytest.raises(SealedError):
            subprocess.run([sys.executable, "-V"], check=False)
        with socket.socket() as one, pytest.raises(SealedError):
            one.connect(("127.0.0.1", 9))
    assert len(tried) == 2


@pytest.mark.parametrize("where", ["langgraph", "openai_agents", "autogen"])
async def test_a_change_in_one_framework_is_named(store: rb.Store, where: str) -> None:
    s, _ = await recorded(store, False)
    before = state(store)
    changed: dict[str, Any] = {
        "langgraph": {"said": "Ada's import is empty."},
        "openai_agents": {"instructions": "Leave it."},
        "autogen": {"task": "Praise this"},
    }[where]
    with sealed() as tried:
        report = await rb.areplay(s, program(store, Answers(silent=True), **changed))
    assert (report.equal, report.live, RAN, tried) == (False, 0, [], []), str(report)
    assert report.divergence is not None
    assert report.served == {"langgraph": 0, "openai_agents": 2, "autogen": 7}[where], str(report)
    chunk = next(chunk for chunk in s if chunk.id == report.divergence.chunk)
    assert f"rath_{where}" in (chunk.origin or ""), str(report)
    assert state(store) == before


async def test_a_what_if_across_frameworks(store: rb.Store) -> None:
    """Another result of the MCP tool: the agent and the team behind it go on live, the graph before it is served."""
    s, _ = await recorded(store, False)
    result = next(c for c in s if c.kind == "tool_result" and cast(Any, c.body).name == "find_order")
    answers = Answers(review="A different letter.")
    answers.agents = [say("There is no such order, Ada.")]
    report = await rb.areplay(s, program(store, answers), overrides={result.id: "no such order"}, then="live", branch="lost")
    assert report.equal, str(report)
    assert report.made == ("model call of Fixer", "model call of reviewer_1", "model call of reviewer_2"), str(report)
    assert (report.served, RAN) == (5, [])
    branch = report.result
    assert branch is not None
    assert branch.name == "ticket@lost"
    assert branch.fsck() == []
    assert "no such order" in [cast(Any, c.body).result for c in branch if c.kind == "tool_result"]
    assert "A different letter." in [m.text for m in branch.messages()]
    assert branch.pending() == ()
    assert store.session("ticket").head == s.head
