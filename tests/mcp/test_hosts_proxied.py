"""Hosts that make their MCP sessions themselves, one line of their configuration changed: on record through the proxy, answered from the
record as recorded tools, and never on record twice.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rath_bridge as rb
from rath_mcp import record_clients, replay_command
from tests.mcp.servers import CLI, ROOT, SHOP, bodies, notes, settled, tool_calls

Host = Callable[[str, list[str]], Awaitable[list[str]]]


async def langchain(command: str, args: list[str]) -> list[str]:
    """LangChain tools of langchain-mcp-adapters, a new process for each call."""
    from langchain_mcp_adapters.client import MultiServerMCPClient

    server: Any = {"command": command, "args": args, "transport": "stdio", "env": dict(os.environ)}
    tools = {tool.name: tool for tool in await MultiServerMCPClient({"shop": server}).get_tools()}
    called = {"name": "greet", "args": {"name": "Ann"}, "id": "1", "type": "tool_call"}
    said = [(await tools["greet"].ainvoke(called)).content, await tools["refund"].ainvoke({"order": "A-1"})]
    return [one if isinstance(one, str) else "".join(block["text"] for block in one) for one in said]  # blocks have new ids


async def openai_agents(command: str, args: list[str]) -> list[str]:
    """Function tools of an agent of the OpenAI Agents SDK."""
    from agents import Agent, RunConfig, Runner
    from agents.items import ToolCallOutputItem
    from agents.mcp import MCPServerStdio
    from agents.testing import ScriptedModel, assistant_message, function_call

    calls = [function_call("greet", {"name": "Ann"}, call_id="c1"), function_call("refund", {"order": "A-1"}, call_id="c2")]
    model = ScriptedModel([calls, [assistant_message("done")]])
    async with MCPServerStdio(
        {"command": command, "args": args, "env": dict(os.environ)}, client_session_timeout_seconds=100
    ) as server:
        agent = Agent(name="clerk", model=model, mcp_servers=[server])
        found = await Runner.run(agent, "greet Ann", run_config=RunConfig(tracing_disabled=True))
    return [str(item.output) for item in found.new_items if isinstance(item, ToolCallOutputItem)]


async def autogen(command: str, args: list[str]) -> list[str]:
    """AutoGen's workbench."""
    from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams

    server = StdioServerParams(command=command, args=args, env=dict(os.environ), read_timeout_seconds=100)
    async with McpWorkbench(server) as bench:
        said = [await bench.call_tool("greet", {"name": "Ann"}), await bench.call_tool("refund", {"order": "A-1"})]
    return [one.to_text() for one in said]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[rb.Store]:
    monkeypatch.setenv("RATH_BRIDGE_SPOOL", str(tmp_path / "spool"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "adapters")]))
    with rb.open_store(f"sqlite:///{tmp_path / 'runs.db'}") as store:
        yield store


def proxied(store: rb.Store) -> list[str]:
    return ["-c", CLI, "mcp", "record", "--store", store.url, "--session", "desk", "--", sys.executable, *SHOP]


HOSTS = pytest.mark.parametrize("host", [langchain, openai_agents, autogen])


@HOSTS
async def test_through_the_proxy_and_back_from_the_record(store: rb.Store, tmp_path: Path, host: Host) -> None:
    first = await host(sys.executable, proxied(store))
    assert "Good morning, Ann!" in first[0]
    assert "refused" in first[1]
    settled(tmp_path)
    session = store.session("desk")
    assert sorted((call.name, call.status) for call in session.calls()) == [("greet", "ok"), ("refund", "error")]
    assert bodies(session, "tool_result")[0].result["content"]
    command, *args = replay_command(session)
    assert await host(command, args) == first


@HOSTS
async def test_a_host_that_is_recorded_in_process_and_by_the_proxy_is_on_record_once(
    store: rb.Store, tmp_path: Path, host: Host
) -> None:
    with rb.record(store, "desk") as recorder, record_clients(), recorder.run("agent") as run:
        first = await host(sys.executable, proxied(store))
    assert "Good morning, Ann!" in first[0]
    settled(tmp_path)
    session = store.session("desk")
    assert sorted((call.name, call.status) for call in session.calls()) == [("greet", "ok"), ("refund", "error")]
    assert {chunk.run for chunk in session if chunk.kind == "tool_call"} == {run.id}
    assert [call.server for call in tool_calls(session)] == ["shop", "shop"]
    assert "recorded by its client, in the same store" in notes(session)
