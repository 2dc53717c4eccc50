"""Hosts that make their MCP sessions themselves, recorded by one line around them, each with its own scripted model or tool call."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

import rath_bridge as rb
from rath_mcp import encode, record_client, record_clients
from tests.mcp.servers import SHOP, bodies, body, notes, tool_calls


@pytest.fixture
def store() -> rb.Store:
    return rb.open_store("memory:")


def callers(session: rb.Session) -> dict[str, str]:
    """Which run made which call: the ``name`` argument of greet to the run's name."""
    runs = {chunk.run: body(chunk).name for chunk in session if chunk.kind == "run"}
    calls = [chunk for chunk in session if chunk.kind == "tool_call"]
    return {body(chunk).arguments["name"]: runs[chunk.run] for chunk in calls}


async def test_langchain_adapters_with_a_new_process_for_each_call(store: rb.Store) -> None:
    from langchain_mcp_adapters.client import MultiServerMCPClient

    client = MultiServerMCPClient({"shop": {"command": sys.executable, "args": SHOP, "transport": "stdio"}})
    with rb.record(store, "ticket") as recorder, record_clients():
        tools = {tool.name: tool for tool in await client.get_tools()}
        with recorder.run("agent"):
            text = await tools["greet"].ainvoke({"name": "Ann"})
            said = await tools["refund"].ainvoke({"order": "A-1"})
    assert "Good morning, Ann!" in str(text)
    assert "refused" in str(said)
    session = store.session("ticket")
    greet, refund = bodies(session, "tool_result")
    assert (greet.status, refund.status) == ("ok", "error")
    runs = {chunk.run: body(chunk).name for chunk in session if chunk.kind == "run"}
    assert {runs[chunk.run] for chunk in session if chunk.kind == "tool_call"} == {"agent"}
    servers = [body for body in bodies(session, "run") if body.type == "server"]
    assert [body.phase for body in servers].count("begin") == 3  # one process lists the tools, one for each call
    assert [body.phase for body in servers].count("end") == 3
    assert encode(session, "frames")[1].exact


async def test_langchain_adapters_over_one_session(store: rb.Store) -> None:
    from langchain_mcp_adapters.client import MultiServerMCPClient
    from langchain_mcp_adapters.tools import load_mcp_tools

    client = MultiServerMCPClient({"shop": {"command": sys.executable, "args": SHOP, "transport": "stdio"}})
    async with client.session("shop", auto_initialize=False) as session:
        record_client(session, store, "ticket")
        await session.initialize()
        tools = {tool.name: tool for tool in await load_mcp_tools(session)}
        await tools["find_order"].ainvoke({"order": "A-1"})
    (result,) = bodies(store.session("ticket"), "tool_result")
    assert result.result["structuredContent"]["state"] == "shipped"  # which the adapter's text does not show


async def test_the_openai_agents_sdk(store: rb.Store) -> None:
    from agents import Agent, RunConfig, Runner
    from agents.mcp import MCPServerStdio
    from agents.testing import ScriptedModel, assistant_message, function_call

    model = ScriptedModel([[function_call("greet", {"name": "Ann"}, call_id="call_1")], [assistant_message("done")]])
    with rb.record(store, "ticket") as recorder, record_clients(), recorder.run("agent") as run:
        async with MCPServerStdio({"command": sys.executable, "args": SHOP}) as server:
            agent = Agent(name="clerk", model=model, mcp_servers=[server])
            found = await Runner.run(agent, "greet Ann", run_config=RunConfig(tracing_disabled=True))
    assert found.final_output == "done"
    session = store.session("ticket")
    (call,) = [chunk for chunk in session if chunk.kind == "tool_call"]
    assert call.run == run.id
    assert tool_calls(session)[0].arguments == {"name": "Ann"}
    assert bodies(session, "tool_result")[0].result["content"] == [{"type": "text", "content": "Good morning, Ann!"}]
    assert "tools/list" in notes(session)


async def test_autogens_workbench_whose_actor_sends_for_others(store: rb.Store) -> None:
    from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams

    with rb.record(store, "ticket") as recorder, record_clients():
        async with McpWorkbench(StdioServerParams(command=sys.executable, args=SHOP)) as bench:

            async def work(name: str) -> Any:
                with recorder.run(name):
                    return await bench.call_tool("greet", {"name": name})

            said = await asyncio.gather(work("anna"), work("bert"))
    assert [one.to_text() for one in said] == ["Good morning, anna!", "Good morning, bert!"]
    session = store.session("ticket")
    assert callers(session) == {"anna": "anna", "bert": "bert"}
    assert session.pending() == ()


def test_the_block_leaves_the_sdk_as_it_was(store: rb.Store) -> None:
    from mcp import ClientSession

    before = ClientSession.__init__
    with record_clients(store, "ticket"):
        assert ClientSession.__init__ is not before
    assert ClientSession.__init__ is before
