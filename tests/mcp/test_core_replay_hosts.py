"""``rb.replay`` of hosts that call MCP servers: one tape for the framework and the wire, no server started, nothing served twice."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Runner, function_tool
from agents.mcp import MCPServerStdio
from agents.testing import ScriptedModel
from mcp import ClientSession, StdioServerParameters, stdio_client

import rath_bridge as rb
from rath_mcp import record_client, record_clients
from rath_openai_agents import RathRunHooks, RecordingModel
from tests.mcp.servers import ROOT
from tests.openai_agents.scripted import call, say, step


@pytest.fixture
def store() -> rb.Store:
    return rb.open_store("memory:")


@pytest.fixture
def args(tmp_path: Path) -> list[str]:
    """A server that leaves a trace in ``started``."""
    code = "import runpy, sys; open(sys.argv.pop(1), 'a').write('x'); runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    return ["-c", code, str(tmp_path / "started"), str(ROOT / "examples" / "mcp_server.py")]


@asynccontextmanager
async def shop(args: list[str]) -> AsyncIterator[ClientSession]:
    async with (
        stdio_client(StdioServerParameters(command=sys.executable, args=args)) as streams,
        ClientSession(*streams) as client,
    ):
        record_client(client)
        await client.initialize()
        yield client


def never() -> ScriptedModel:
    return ScriptedModel([RuntimeError("a model was asked")])


def scripted() -> ScriptedModel:
    return ScriptedModel([step(call("greet", {"name": "Ann"}, "c1")), say("Greeted.")])


async def agent_with_servers(store: rb.Store, model: Any, args: list[str]) -> str:
    with rb.record(store, "ticket"), record_clients():
        async with MCPServerStdio({"command": sys.executable, "args": args}, client_session_timeout_seconds=100) as server:
            clerk = Agent(name="clerk", model=RecordingModel(model, store), mcp_servers=[server])
            return (await Runner.run(clerk, "greet Ann", hooks=RathRunHooks(store))).final_output


async def agent_with_a_function_that_asks_a_server(store: rb.Store, model: Any, args: list[str]) -> str:
    @function_tool
    async def greet(name: str) -> str:
        async with shop(args) as client:
            return (await client.call_tool("greet", {"name": name})).content[0].text  # type: ignore[union-attr]

    with rb.record(store, "ticket"):
        clerk = Agent(name="clerk", model=RecordingModel(model, store), tools=[greet])
        return (await Runner.run(clerk, "greet Ann", hooks=RathRunHooks(store))).final_output


async def agent_with_a_function_over_an_open_connection(store: rb.Store, model: Any, args: list[str]) -> str:
    with rb.record(store, "ticket"):
        async with shop(args) as client:

            @function_tool
            async def greet(name: str) -> str:
                return (await client.call_tool("greet", {"name": name})).content[0].text  # type: ignore[union-attr]

            clerk = Agent(name="clerk", model=RecordingModel(model, store), tools=[greet])
            return (await Runner.run(clerk, "greet Ann", hooks=RathRunHooks(store))).final_output


@pytest.mark.parametrize("program", [
    agent_with_servers, agent_with_a_function_that_asks_a_server, agent_with_a_function_over_an_open_connection,
])  # fmt: skip
async def test_an_agent_is_replayed_with_its_servers(store: rb.Store, args: list[str], tmp_path: Path, program: Any) -> None:
    assert await program(store, scripted(), args) == "Greeted."
    report = await rb.areplay(store.session("ticket"), lambda: program(store, never(), args))
    assert (report.equal, report.live, report.unused, report.value) == (True, 0, (), "Greeted."), str(report)
    assert (tmp_path / "started").read_text() == "x"


async def test_a_graphs_node_that_asks_a_server_is_replayed(store: rb.Store, args: list[str], tmp_path: Path) -> None:
    from langchain_mcp_adapters.client import MultiServerMCPClient
    from langgraph.graph import END, START, MessagesState, StateGraph

    from rath_langgraph import RathCallbackHandler

    async def run() -> Any:
        with rb.record(store, "ticket"), record_clients():
            server: Any = {"command": sys.executable, "args": args, "transport": "stdio"}
            client = MultiServerMCPClient({"shop": server})

            async def node(state: MessagesState) -> Any:
                async with client.session("shop") as session:
                    found = await session.call_tool("find_order", {"order": "A-1"})
                return {"messages": [("ai", found.content[0].text)]}  # type: ignore[union-attr]

            graph: Any = StateGraph(MessagesState).add_node("look", node).add_edge(START, "look").add_edge("look", END).compile()
            config: Any = {"callbacks": [RathCallbackHandler(store)]}
            return (await graph.ainvoke({"messages": [("user", "where is it?")]}, config))["messages"][-1].content

    first = await run()
    starts = (tmp_path / "started").read_text()
    report = await rb.areplay(store.session("ticket"), run)
    assert (report.value, report.live, report.unused) == (first, 0, ()), str(report)
    assert report.equal, str(report)
    assert (tmp_path / "started").read_text() == starts


async def test_autogens_workbench_is_replayed_with_its_agent(store: rb.Store, args: list[str], tmp_path: Path) -> None:
    from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams

    from rath_autogen import wrap
    from tests.autogen.scripted import asks
    from tests.autogen.test_replay import agent

    def program(live: bool) -> Any:
        async def run() -> Any:
            server = StdioServerParams(command=sys.executable, args=args, read_timeout_seconds=100)
            with rb.record(store, "ticket"), record_clients():
                async with McpWorkbench(server) as bench:
                    clerk = agent(
                        "a", live, asks("greet", '{"name": "Ann"}'), "done", workbench=[bench], reflect_on_tool_use=True
                    )
                    said: Any = (await wrap(clerk, store).run(task="go")).messages[-1]
                    return said.content

        return run

    first = await program(True)()
    assert "greet" in {call.name for call in store.session("ticket").calls()}
    report = await rb.areplay(store.session("ticket"), program(False))
    assert (report.equal, report.value, report.live, report.unused) == (True, first, 0, ()), str(report)
    assert (tmp_path / "started").read_text() == "x"


async def test_a_graph_with_tools_of_a_server_is_replayed(store: rb.Store, args: list[str], tmp_path: Path) -> None:
    """LangChain gives the blocks of a result new ids each time: they are no difference, neither in a prompt nor on record."""
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage, ToolCall
    from langchain_mcp_adapters.client import MultiServerMCPClient
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode

    from rath_langgraph import wrap

    def program(said: list[AIMessage]) -> Any:
        async def run() -> Any:
            model = GenericFakeChatModel(messages=iter(said))
            with rb.record(store, "ticket"), record_clients():
                client = MultiServerMCPClient({"shop": {"command": sys.executable, "args": args, "transport": "stdio"}})
                tools = await client.get_tools()
                graph: Any = StateGraph(MessagesState)
                graph.add_node("bot", lambda state: {"messages": [model.invoke(state["messages"])]})
                graph.add_node("tools", ToolNode(tools)).add_edge(START, "bot").add_edge("tools", "bot")
                graph.add_conditional_edges("bot", lambda state: "tools" if state["messages"][-1].tool_calls else END)
                app = wrap(graph.compile(), store, checkpointer="rath")
                config: Any = {"configurable": {"thread_id": "t"}}
                return (await app.ainvoke({"messages": [("user", "where is it?")]}, config))["messages"][-1].content

        return run

    call = ToolCall(name="find_order", args={"order": "A-1"}, id="c1")
    assert await program([AIMessage("", tool_calls=[call]), AIMessage("on its way")])() == "on its way"
    starts = (tmp_path / "started").read_text()
    report = await rb.areplay(store.session("ticket"), program([]))
    assert (report.value, report.live, report.unused) == ("on its way", 0, ()), str(report)
    assert report.equal, str(report)
    assert (tmp_path / "started").read_text() == starts
