"""What a person reads first: that the program raised, or made other runs than are on record; and how one of them is replayed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from agents import Agent
from autogen_agentchat.teams import RoundRobinGroupChat
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

import rath_autogen
import rath_bridge as rb
import rath_langgraph
import rath_openai_agents
from tests.autogen.test_replay import agent
from tests.openai_agents.doubles import ScriptedModel
from tests.openai_agents.scripted import say

Script = Callable[..., Any]


def of_agents(store: rb.Store, *said: str) -> None:
    clerk = Agent(name="Clerk", model=ScriptedModel([say(one) for one in said]))
    asyncio.run(rath_openai_agents.wrap(clerk, store, session="s").run("Hello?"))


def of_autogen(store: rb.Store, *said: str) -> None:
    team = RoundRobinGroupChat([agent("a", bool(said), *said)], max_turns=1)
    asyncio.run(rath_autogen.wrap(team, store, "s").run(task="Hello?"))


def talking(*said: str) -> Any:
    model = GenericFakeChatModel(messages=iter([AIMessage(one) for one in said]))

    def answer(values: Any) -> Any:
        return {"messages": [model.invoke(values["messages"])]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("n", answer)
    graph.add_edge(START, "n")
    return graph


def of_langgraph(store: rb.Store, *said: str) -> None:
    app = rath_langgraph.wrap(talking(*said).compile(checkpointer=InMemorySaver()), store, session="s")
    app.invoke({"messages": [("user", "Hello?")]}, {"configurable": {"thread_id": "t"}})


@pytest.mark.parametrize(("script", "name"), [(of_agents, "agent Clerk"), (of_autogen, "team RoundRobinGroupChat")])
def test_a_script_that_ran_twice(store: rb.Store, script: Script, name: str) -> None:
    script(store, "one")
    first = store.session("s").head
    script(store, "two")
    s = store.session("s")
    report = rb.replay(s, lambda: script(store))
    lines = report.lines()
    assert (report.equal, lines[0]) == (False, "s: diverged")
    assert lines[1].startswith("  the record holds 2 runs, the program made 1: ")
    assert f"  first divergence: beginning of the {name}, run 2 of that name" in lines
    parts: tuple[dict[str, Any], ...] = ({"until": first}, {"after": first})
    for part in parts:
        report = rb.replay(s, lambda: script(store), **part)
        assert (report.equal, report.served, report.unused, report.in_words) == (True, 1, (), None), str(report)
    assert report.result is not None
    assert report.result.messages()[-1].text == "two"
    three = rb.replay(s, lambda: [script(store) for _ in range(3)])
    assert three.as_json()["in_words"] == "the record holds 2 runs, the program made 3"


def test_runs_of_one_thread_are_counted(store: rb.Store) -> None:
    of_langgraph(store, "one")
    first = store.session("s").head
    of_langgraph(store, "two")
    report = rb.replay(store.session("s"), lambda: of_langgraph(store))
    assert (report.in_words or "").startswith("the record holds 2 runs, the program made 1: ")
    assert rb.replay(store.session("s"), lambda: of_langgraph(store), until=first).equal


@pytest.mark.parametrize("script", [of_agents, of_autogen, of_langgraph])
def test_a_program_that_raises_is_told_first(store: rb.Store, script: Script) -> None:
    script(store, "one")

    def broken() -> None:
        raise ValueError("my bug")

    report = rb.replay(store.session("s"), broken)
    lines = report.lines()
    assert lines[1] == "  the run ended with ValueError: my bug"
    assert (report.in_words, "[0]" in str(report)) == (None, False), str(report)


def test_a_session_that_ends_in_a_merge_says_how_to_replay_a_part(store: rb.Store) -> None:
    of_langgraph(store, "one")
    run = store.session("s")
    merged = run.merge(run.fork("b").append(rb.message("user", "aside")))
    report = rb.replay(merged, lambda: of_langgraph(store))
    assert report.divergence is not None
    assert report.divergence.what == "merge"
    assert (report.in_words or "").startswith("the program ended, and the record goes on: ")
    assert rb.replay(merged, lambda: of_langgraph(store), until=run.head).equal


@pytest.mark.parametrize("checkpointer", [None, "rath"])
def test_a_graph_that_was_called_on_a_session_twice(store: rb.Store, checkpointer: Any) -> None:
    def answer(state: Any) -> Any:
        return {"messages": [("ai", str(len(state["messages"])))]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("n", answer)
    graph.add_edge(START, "n")
    app = rath_langgraph.wrap(graph.compile(), store, checkpointer=checkpointer)

    def program(session: rb.Session) -> rb.Session:
        return app(app(session).append(rb.message("user", "and now?")))

    s = program(store.create("s").append(rb.message("user", "hello")))
    assert rb.replay(s, program).equal
    assert rb.replay(s, app).equal
    assert asyncio.run(rb.areplay(s, app)).equal
    once = rb.replay(s, lambda session: app(session))
    assert "give a program that makes them all" in (once.in_words or "")


def agents_wrapped(store: rb.Store, *said: str) -> Any:
    return rath_openai_agents.wrap(Agent(name="Clerk", model=ScriptedModel([say(one) for one in said])), store)


def autogen_wrapped(store: rb.Store, *said: str) -> Any:
    return rath_autogen.wrap(agent("a", bool(said), *said), store)


def langgraph_wrapped(store: rb.Store, *said: str) -> Any:
    return rath_langgraph.wrap(talking(*said).compile(), store, checkpointer="rath")


@pytest.mark.usefixtures("sync_loop")
@pytest.mark.parametrize("wrapped", [agents_wrapped, autogen_wrapped, langgraph_wrapped])
def test_a_function_that_calls_a_wrapped_runnable_twice_says_itself_what_it_runs(
    store: rb.Store, wrapped: Callable[..., Any]
) -> None:
    def twice(runnable: Any) -> Callable[[rb.Session], rb.Session]:
        return lambda session: runnable(runnable(session).append(rb.message("user", "And?")))

    done = twice(wrapped(store, "one", "two"))(store.create("s").append(rb.message("user", "Hello?")))
    assert [message.text for message in done.messages()] == ["Hello?", "one", "And?", "two"]
    report = rb.replay(done, twice(wrapped(store)))
    assert (report.equal, report.served, report.live) == (True, 2, 0), report.lines()
