"""What LangGraph or the OpenAI Agents SDK began goes on in AutoGen: in an agent exactly, in a team by its agents' contexts."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from agents import Agent, Runner, function_tool
from agents.testing import ScriptedModel
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_core.models import AssistantMessage, FunctionExecutionResultMessage
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from typing_extensions import TypedDict

import rath_autogen
import rath_bridge as rb
import rath_langgraph
import rath_openai_agents
from rath_autogen import load_team_state, wrap
from rath_bridge.model.kinds import Run
from tests.autogen.scripted import asks, client
from tests.openai_agents.scripted import call, say, step


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


@tool
def look(city: str) -> str:
    """Look."""
    return f"rain in {city}"


async def from_langgraph(store: rb.Store) -> rb.Session:
    asks = AIMessage("", tool_calls=[{"id": "c1", "name": "look", "args": {"city": "Oslo"}}])
    model = GenericFakeChatModel(messages=iter([asks, AIMessage("It rains.")]))

    async def bot(state: State) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(State).add_node("bot", bot).add_node("tools", ToolNode([look])).add_edge(START, "bot")
    graph.add_conditional_edges("bot", lambda s: "tools" if s["messages"][-1].tool_calls else END).add_edge("tools", "bot")
    given: Any = {"messages": [("user", "Weather in Oslo?")]}
    running = rath_langgraph.wrap(graph.compile(), store, session="ticket", checkpointer="rath")
    await running.ainvoke(given, {"configurable": {"thread_id": "1"}})
    return store.session("ticket")


@function_tool(name_override="look")
def looks(city: str) -> str:
    return f"rain in {city}"


async def from_the_agents_sdk(store: rb.Store) -> rb.Session:
    model = ScriptedModel([step(call("look", {"city": "Oslo"}, "c1")), say("It rains.")])
    agent = Agent(name="guide", model=model, tools=[looks])
    with rb.record(store, "ticket"):
        session = rath_openai_agents.RathSession("1", store)
        await Runner.run(agent, "Weather in Oslo?", session=session)
    return store.session("ticket")


SOURCES = [from_langgraph, from_the_agents_sdk]
KNOWN = [
    ("UserMessage", "Weather in Oslo?"), ("AssistantMessage", "look"), ("FunctionExecutionResultMessage", "rain in Oslo"),
    ("AssistantMessage", "It rains."), ("UserMessage", "And tomorrow?"),
]  # fmt: skip


def said(message: Any) -> tuple[str, str]:
    content = message.content
    if isinstance(message, AssistantMessage) and not isinstance(content, str):
        assert content[0].id == "c1"
        content = content[0].name
    elif isinstance(message, FunctionExecutionResultMessage):
        assert (message.content[0].call_id, message.content[0].name) == ("c1", "look")
        content = message.content[0].content
    return type(message).__name__, content


async def known(agent: Any) -> list[tuple[str, str]]:
    return [said(message) for message in await agent.model_context.get_messages()]


def agent(name: str, *answers: str, **options: Any) -> AssistantAgent:
    return AssistantAgent(name, client(*answers), **options)


def round_robin(a: Any, b: Any) -> Any:
    return RoundRobinGroupChat([a, b], max_turns=2)


def selector(a: Any, b: Any) -> Any:
    return SelectorGroupChat([a, b], client("a", "b"), max_turns=2)


def graph(a: Any, b: Any) -> Any:
    return GraphFlow([a, b], DiGraphBuilder().add_node(a).add_node(b).add_edge(a, b).build())


@pytest.mark.parametrize("source", SOURCES)
async def test_a_single_agent_goes_on_exactly(store: rb.Store, source: Any) -> None:
    one = agent("a", "sun")
    session = (await source(store)).append(rb.message("user", "And tomorrow?"))
    after = await wrap(one).acall(session)
    assert await known(one) == [*KNOWN, ("AssistantMessage", "sun")]
    assert [m.text for m in after.messages()][-2:] == ["And tomorrow?", "sun"]
    assert len(after.messages()) == len(session.messages()) + 1  # each message once
    assert not rath_autogen.encode(session, "llm_messages")[1].losses


@pytest.mark.parametrize("make", [round_robin, selector, graph])
@pytest.mark.parametrize("source", SOURCES)
async def test_a_team_goes_on_with_roles_calls_and_results(store: rb.Store, source: Any, make: Any) -> None:
    a, b = agent("a", "sun"), agent("b", "sure")
    session = (await source(store)).append(rb.message("user", "And tomorrow?"))
    after = await wrap(make(a, b)).acall(session)
    assert await known(a) == [*KNOWN, ("AssistantMessage", "sun")]
    assert await known(b) == [*KNOWN, ("UserMessage", "sun"), ("AssistantMessage", "sure")]
    assert [m.text for m in after.messages()][-3:] == ["And tomorrow?", "sun", "sure"]
    assert len(after.messages()) == len(session.messages()) + 2
    begin = next(c.body for c in reversed(list(after)) if isinstance(c.body, Run) and c.body.phase == "begin")
    assert "losses" not in begin.attributes
    assert [row[1] for row in begin.manifest] == [m.id for m in session.messages()]


@pytest.mark.parametrize("source", SOURCES)
async def test_a_swarm_goes_on_with_a_handoff(store: rb.Store, source: Any) -> None:
    a = agent("a", "sun", handoffs=["b"])
    await wrap(Swarm([a, agent("b", "never")], max_turns=1)).acall(
        (await source(store)).append(rb.message("user", "And tomorrow?"))
    )
    assert await known(a) == [*KNOWN, ("AssistantMessage", "sun")]


@pytest.mark.parametrize("source", SOURCES)
async def test_who_has_no_context_is_told_and_what_is_lost_is_named(store: rb.Store, source: Any) -> None:
    session = (await source(store)).append(rb.message("user", "And tomorrow?"))
    bob = UserProxyAgent("bob", input_func=lambda _: "sun, I think")
    one = agent("a", "never")
    report = await load_team_state(RoundRobinGroupChat([bob, one]), session)
    assert await known(one) == KNOWN
    assert {loss.what for loss in report.losses} == {
        "no chat message of AutoGen holds a tool_call: left out",
        "no chat message of AutoGen holds a tool_call_response: left out",
        "stands as a user's message in AutoGen's model contexts",
    }


async def test_a_teams_own_history_is_each_ones_own(store: rb.Store) -> None:
    """A session without a saved state, as a crash leaves it: each knows its own calls, and the others' words."""

    async def pay(n: int) -> str:
        """Pay."""
        return f"paid {n}"

    first = RoundRobinGroupChat(
        [AssistantAgent("a", client(asks("pay", '{"n": 3}'), "done"), tools=[pay], reflect_on_tool_use=True), agent("b", "good")],
        max_turns=2,
    )
    await wrap(first, store, "ticket").run(task="go")
    a, b, c = agent("a", "three"), agent("b", "never"), agent("c", "never")
    team = RoundRobinGroupChat([a, b, c], max_turns=2)
    report = await load_team_state(team, store.session("ticket"))
    assert report.exact, str(report)
    kinds = [[type(m).__name__ for m in await one.model_context.get_messages()] for one in (a, b, c)]
    mine = ["UserMessage", "AssistantMessage", "FunctionExecutionResultMessage", "AssistantMessage", "UserMessage"]
    assert kinds == [mine, ["UserMessage", "UserMessage", "AssistantMessage"], ["UserMessage"] * 3]
    assert [m.source for m in (await team.run()).messages] == ["c", "a"]  # b spoke last


@pytest.mark.parametrize("make", [round_robin, selector])
async def test_a_team_that_worked_before_takes_up_what_another_framework_did_since(store: rb.Store, make: Any) -> None:
    """AutoGen, then LangGraph, then the same team again: nothing is told twice, and calls stay calls."""
    a, b = agent("a", "one", "three"), agent("b", "two", "four")
    team = wrap(SelectorGroupChat([a, b], client("a", "b", "a", "b"), max_turns=2) if make is selector else make(a, b))
    session = await team.acall(store.create("ticket").append(rb.message("user", "hello")))
    asked = AIMessage("", tool_calls=[{"id": "c1", "name": "look", "args": {"city": "Oslo"}}])
    between = [asked, ToolMessage("rain in Oslo", tool_call_id="c1", name="look"), AIMessage("It rains.")]
    session = session.append(*rb.decode(between), rb.message("user", "And tomorrow?"))
    after = await team.acall(session)
    assert [m.text for m in after.messages()][-2:] == ["three", "four"]
    mine = [
        ("UserMessage", "hello"),
        ("AssistantMessage", "one"),
        ("UserMessage", "two"),
        *KNOWN[1:],
        ("AssistantMessage", "three"),
    ]
    assert await known(a) == mine
    begin = next(c.body for c in reversed(list(after)) if isinstance(c.body, Run) and c.body.phase == "begin")
    assert "losses" not in begin.attributes
