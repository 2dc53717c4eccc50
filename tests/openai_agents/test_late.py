"""MCP servers in a what-if: served from the agents' own record until a call is to be live, and connected then."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, RunConfig, Runner
from agents.mcp import MCPServerStdio

import rath_bridge as rb
from rath_openai_agents import RathRunHooks, RecordingModel
from tests.openai_agents import builds
from tests.openai_agents.doubles import ScriptedModel
from tests.openai_agents.scripted import call, say, step
from tests.waiting import soon

SHOP = Path(__file__).parents[2] / "examples" / "mcp_server.py"
LIVE: dict[str, Any] = {"until": 1, "then": "live", "policy": {"*": "live"}}


class Shop(MCPServerStdio):
    """A real server, that counts its processes."""

    started, stopped = 0, 0

    @asynccontextmanager
    async def create_streams(self) -> AsyncIterator[Any]:
        Shop.started += 1
        try:
            async with super().create_streams() as streams:
                yield streams
        finally:
            Shop.stopped += 1


@pytest.fixture(autouse=True)
def nothing_started() -> None:
    Shop.started = Shop.stopped = 0
    builds.RAN.clear()


def shop() -> Shop:
    return Shop({"command": sys.executable, "args": [str(SHOP)]}, name="shop")


def asks(order: str, call_id: str = "m1") -> list[Any]:
    return [step(call("find_order", {"order": order}, call_id)), say("There it is.")]


def program(store: rb.Store, steps: list[Any], *, tidy: bool = True) -> Callable[[], Any]:
    async def run() -> str:
        with rb.record(store, "ticket"):
            server = shop()
            await server.connect()
            agent = Agent(name="Solo", model=RecordingModel(ScriptedModel(steps), store), mcp_servers=[server])
            config = RunConfig(tracing_disabled=True)
            result = await Runner.run(agent, "Where is it?", hooks=RathRunHooks(store), run_config=config)
            if tidy:
                await server.cleanup()
            return str(result.final_output)

    return run


def results(session: rb.Session | None) -> list[str]:
    assert session is not None
    return [str(chunk.values.get("result")) for chunk in session if chunk.kind == "tool_result"]


async def recorded(store: rb.Store) -> rb.Session:
    await program(store, asks("A-1"))()
    assert (Shop.started, Shop.stopped) == (1, 1)
    Shop.started = Shop.stopped = 0
    return store.session("ticket")


@pytest.mark.parametrize("tidy", [True, False], ids=["disconnected", "left"])
async def test_a_tool_of_a_server_is_called_live_and_its_process_ends(store: rb.Store, tidy: bool) -> None:
    s = await recorded(store)
    report = await rb.areplay(s, program(store, asks("B-2", "m9"), tidy=tidy), **LIVE)
    assert report.value == "There it is.", str(report)
    assert "tool find_order" in report.made, str(report)
    assert "paid" in results(report.result)[-1]
    await soon(lambda: Shop.stopped)
    assert (Shop.started, Shop.stopped) == (1, 1)
    assert store.session("ticket").head == s.head


async def test_what_is_served_starts_nothing(store: rb.Store) -> None:
    s = await recorded(store)
    report = await rb.areplay(s, program(store, [RuntimeError("a model was asked")]))
    assert (report.equal, report.live, Shop.started) == (True, 0, 0), str(report)


async def test_two_calls_at_once_share_one_connection(store: rb.Store) -> None:
    s = await recorded(store)
    both = [
        step(call("find_order", {"order": "A-1"}, "m8"), call("find_order", {"order": "B-2"}, "m9")),
        step(call("greet", {"name": "Ada"}, "m10")), say("Both."),
    ]  # fmt: skip
    report = await rb.areplay(s, program(store, both), **LIVE)
    assert report.value == "Both.", str(report)
    assert (Shop.started, Shop.stopped) == (1, 1)
    assert ["shipped" in one for one in results(report.result)][:2] == [True, False]


def test_a_program_without_a_loop_of_its_own_leaves_nothing(store: rb.Store) -> None:
    s = asyncio.run(recorded(store))
    report = rb.replay(s, lambda: asyncio.run(program(store, asks("B-2", "m9"), tidy=False)()), **LIVE)
    assert report.value == "There it is.", str(report)
    assert (Shop.started, Shop.stopped) == (1, 1)


async def test_a_server_that_is_the_program_s_own_is_asked_as_it_is(store: rb.Store) -> None:
    """It was connected, since only the SDK's own classes are kept from it; and it may offer something else by now."""

    def served(steps: list[Any], server: Any) -> Callable[[], Any]:
        async def run() -> str:
            with rb.record(store, "sums"):
                model = RecordingModel(ScriptedModel(steps), store)
                agent = Agent(name="Solo", model=model, mcp_servers=[server])
                return str((await Runner.run(agent, "Add.", hooks=RathRunHooks(store))).final_output)

        return run

    await served([step(call("add", {"a": 1}, "m1")), say("42")], builds.Adder())()
    s = store.session("sums")
    builds.RAN.clear()
    again = [step(call("add", {"a": 2}, "m7")), say("43")]
    report = await rb.areplay(s, served(again, builds.Adder()), **LIVE)
    assert (report.value, builds.RAN) == ("43", ["list_tools", "call_tool"]), str(report)

    class Emptied(builds.Adder):
        async def list_tools(self, run_context: Any = None, agent: Any = None) -> Any:
            return []

    report = await rb.areplay(s, served(again, Emptied()), **LIVE)
    assert "'add' was to be called live, and adder offers none of that name now" in str(report.error), str(report)
