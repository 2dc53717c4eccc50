"""The mixed stack: a LangGraph node that runs an OpenAI agent that calls an MCP tool, then an AutoGen team. All on one record."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from agents import Agent, RunConfig, Runner, function_tool
from agents.mcp import MCPServerStdio
from agents.testing import ScriptedModel
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.replay import ReplayChatCompletionClient
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph

import rath_autogen
import rath_bridge as rb
from rath_langgraph import RathCallbackHandler, RathSaver
from rath_mcp import record_clients
from rath_openai_agents import RathRunHooks, RecordingModel
from tests.openai_agents.scripted import call, say, step

SHOP = Path(__file__).parents[2] / "examples" / "mcp_server.py"
RAN: list[str] = []
"""What was really run."""


@tool
def find_export(customer: str) -> str:
    """Find a customer's last export."""
    RAN.append("find_export")
    return f"{customer}: 0 rows, filter month=13"


@function_tool
def set_filter(month: int) -> str:
    """Set the month of the export."""
    RAN.append("set_filter")
    return f"the filter is month={month}"


class Answers:
    """What the models say, in order; when a replay runs, they say nothing."""

    def __init__(self, *, silent: bool = False, order: str = "A-1", review: str = "The letter is polite.") -> None:
        self.langchain = (
            []
            if silent
            else [AIMessage("", tool_calls=[{"name": "find_export", "args": {"customer": "Ada"}, "id": "call_export"}])]
        )
        self.agents = [RuntimeError("a model was asked")] if silent else [
            step(call("set_filter", {"month": 10}, "call_filter")),
            step(call("find_order", {"order": order}, "call_order")),
            say("Dear Ada, order A-1 is repaired."),
        ]  # fmt: skip
        self.autogen = [] if silent else [[review], ["And it is true."]]
        self.silent = silent


def program(
    store: rb.Store, answers: Answers, *, said: str = "Ada's export is empty.", instructions: str = "Repair it.",
    task: str = "Review this", wire: bool = False,
) -> Callable[[], Any]:  # fmt: skip
    """What a user has: four frameworks in one program, recorded to one session (with the frames of the MCP server, where told)."""

    async def repair(state: MessagesState) -> dict[str, Any]:
        """The node that runs an agent of another framework."""
        parameters: Any = {"command": sys.executable, "args": [str(SHOP)]}
        async with MCPServerStdio(parameters, cache_tools_list=True) as server:
            model = RecordingModel(ScriptedModel(answers.agents), store)
            fixer = Agent(name="Fixer", instructions=instructions, model=model, tools=[set_filter], mcp_servers=[server])
            found = str(state["messages"][-1].content)
            result = await Runner.run(fixer, found, hooks=RathRunHooks(store), run_config=RunConfig(tracing_disabled=True))
        return {"messages": [AIMessage(str(result.final_output))]}

    async def triage(state: MessagesState) -> dict[str, Any]:
        model = FakeMessagesListChatModel(responses=list(answers.langchain) or [AIMessage("a model was asked")])
        asked = await model.ainvoke(state["messages"])
        export = await find_export.ainvoke(asked.tool_calls[0] if isinstance(asked, AIMessage) and asked.tool_calls else {})
        return {"messages": [asked, export]}

    async def run() -> str:
        with rb.record(store, "ticket") as recorder, record_clients(store) if wire else nullcontext():
            graph = StateGraph(MessagesState).add_node("triage", triage).add_node("repair", repair)
            graph = graph.add_edge(START, "triage").add_edge("triage", "repair").add_edge("repair", END)
            app = graph.compile(checkpointer=RathSaver(store))
            config: Any = {"configurable": {"thread_id": "4711"}, "callbacks": [RathCallbackHandler(store)]}
            state = await app.ainvoke({"messages": [HumanMessage(said)]}, config)
            reviews = answers.autogen or [["a model was asked"]] * 2
            agents: list[Any] = [
                AssistantAgent(f"reviewer_{i}", rath_autogen.RecordingChatCompletionClient(ReplayChatCompletionClient(lines)))
                for i, lines in enumerate(reviews, 1)
            ]
            team = rath_autogen.wrap(RoundRobinGroupChat(agents, max_turns=2), store, session=recorder.name)
            result = await team.run(task=f"{task}: {state['messages'][-1].content}")
            return str(getattr(result.messages[-1], "content", ""))

    return run
