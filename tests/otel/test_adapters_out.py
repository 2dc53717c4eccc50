"""What each adapter records goes out as one well-formed tree of spans; frameworks run for real, on their own scripted models."""

from __future__ import annotations

import json
from typing import Annotated, Any, TypedDict

import pytest
from agents import set_trace_processors
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolCall
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt
from opentelemetry.sdk.trace import ReadableSpan

import rath_autogen
import rath_bridge as rb
import rath_langgraph
from rath_openai_agents import RathTracingProcessor
from tests.openai_agents.scripted import go, triage
from tests.otel.traced import exported, named, span_id, trace_id


@pytest.fixture
def store() -> rb.Store:
    return rb.open_store("memory:")


def well_formed(spans: list[ReadableSpan], traces: int = 1) -> None:
    """One root for each trace; every child lies within its parent; every id once."""
    by_id = {span_id(span): span for span in spans}
    assert len(by_id) == len(spans)
    assert len({trace_id(span) for span in spans}) == traces
    assert len([span for span in spans if span.parent is None]) == traces
    for span in spans:
        if span.parent is not None:
            parent = by_id[f"{span.parent.span_id:016x}"]
            assert parent.start_time is not None
            assert span.start_time is not None
            assert span.end_time is not None
            assert parent.end_time is not None
            # a duration is measured by another clock than the time of day
            assert parent.start_time - 5_000_000 <= span.start_time <= span.end_time <= parent.end_time
        assert (span.attributes or {})["gen_ai.conversation.id"] == "ticket"


def get_weather(city: str) -> str:
    """Tell the weather."""
    return f"sunny in {city}"


async def test_autogen(store: rb.Store) -> None:
    usage = RequestUsage(prompt_tokens=10, completion_tokens=5)
    asks = CreateResult(
        finish_reason="function_calls", content=[FunctionCall("c1", '{"city": "Oslo"}', "get_weather")], usage=usage, cached=False
    )
    client = ReplayChatCompletionClient([asks, "It is sunny."])
    client._model_info["function_calling"] = True
    agent = AssistantAgent(
        "helper", rath_autogen.RecordingChatCompletionClient(client), tools=[get_weather], reflect_on_tool_use=True
    )
    team = rath_autogen.wrap(RoundRobinGroupChat([agent], max_turns=1), store, session="ticket")
    await team.run(task="Weather?")
    spans = exported(store.session("ticket"), content=True)
    well_formed(spans)
    calls = [span for span in spans if (span.attributes or {}).get("gen_ai.operation.name") == "chat"]
    assert len(calls) == 2
    given = json.loads(str((calls[1].attributes or {})["gen_ai.input.messages"]))
    assert [message["role"] for message in given] == ["system", "user", "assistant", "tool"][-len(given) :]
    assert {"type": "text", "content": "Weather?"} in [part for message in given for part in message["parts"]]
    tool_span = named(spans, "execute_tool get_weather")
    assert json.loads(str((tool_span.attributes or {})["gen_ai.tool.call.arguments"])) == {"city": "Oslo"}


class State(TypedDict):
    messages: Annotated[list[Any], add_messages]


@tool("get_weather")
def weather(city: str) -> str:
    """Tell the weather."""
    return f"sunny in {city}"


def _next(state: Any) -> str:
    return "tools" if state["messages"][-1].tool_calls else END


def test_langgraph(store: rb.Store) -> None:
    asked = AIMessage("", tool_calls=[ToolCall(name="get_weather", args={"city": "Oslo"}, id="c1")])
    model = GenericFakeChatModel(messages=iter([asked, AIMessage("It is sunny.")]))
    graph: Any = StateGraph(State)
    graph.add_node("bot", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([weather]))
    graph.add_edge(START, "bot")
    graph.add_conditional_edges("bot", _next)
    graph.add_edge("tools", "bot")
    app = rath_langgraph.wrap(graph.compile(), store, session="ticket")
    app.invoke({"messages": [("user", "Weather?")]})
    spans = exported(store.session("ticket"))
    well_formed(spans)
    operations = [(span.attributes or {}).get("gen_ai.operation.name") for span in spans]
    assert operations.count("chat") == 2
    assert operations.count("execute_tool") == 1
    assert operations.count("invoke_workflow") == 1


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
async def test_openai_agents(store: rb.Store, streamed: bool) -> None:
    """The one-line processor alone: a tool call, a hand-over, an answer."""
    set_trace_processors([RathTracingProcessor(store)])
    try:
        with rb.record(store, "ticket"):
            await go(triage(), streamed=streamed)
    finally:
        set_trace_processors([])
    spans = exported(store.session("ticket"))
    well_formed(spans)
    names = [span.name for span in spans]
    assert {"invoke_agent Triage", "invoke_agent Billing", "execute_tool get_weather", "handoff Billing"} <= set(names)
    assert [(span.attributes or {}).get("gen_ai.operation.name") for span in spans].count("chat") == 3


def test_an_interrupt_of_langgraph_is_no_error(store: rb.Store) -> None:
    graph: Any = StateGraph(State)
    graph.add_node("ask", lambda state: {"messages": [("user", interrupt("may I?"))]})
    graph.add_edge(START, "ask")
    app = rath_langgraph.wrap(graph.compile(checkpointer=rath_langgraph.RathSaver(store)), store, session="ticket")
    app.invoke({"messages": [("user", "go")]}, {"configurable": {"thread_id": "1"}})
    spans = exported(store.session("ticket"))
    well_formed(spans, traces=2)
    turn, thread = named(spans, "invoke_workflow LangGraph"), named(spans, "thread")
    assert (turn.attributes or {})["rath.run.status"] == "interrupted"
    assert [event.name for event in turn.events] == ["rath.approval"]
    assert f"{turn.links[0].context.span_id:016x}" == span_id(thread)
    assert all(span.status.is_unset for span in spans)
