"""Two live runs of the same graph have equal replay forms (law 5)."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages
from langgraph.types import Command, Send

import rath_bridge as rb
from rath_bridge.verbs.replay_form import replay_form
from rath_langgraph import RathSaver, wrap
from tests.langgraph.graphs import add, asking, asks, chat, react, scripted, thread


class Work(TypedDict):
    """Messages, work that is sent out, and sets."""

    messages: Annotated[list[AnyMessage], add_messages]
    done: Annotated[list[Any], operator.add]
    seen: set[str]


def mapped(word: str = "x") -> Any:
    """Send three times to one node that calls a model, and gather."""

    def work(state: Any) -> dict[str, Any]:
        answer = scripted(f"{word}{state['i']}").invoke([HumanMessage(f"do {state['i']}")])
        return {"done": [answer], "seen": {"a", "b", "c", f"{state['i']}"} if state["i"] == 9 else {"a", "b", "c"}}

    graph = StateGraph(Work)
    graph.add_node("plan", lambda state: {"messages": [("ai", "three things")]})
    graph.add_node("work", lambda state: {"done": work(state)["done"]})
    graph.add_node("join", lambda state: {"seen": {"c", "b", "a"}})
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", lambda state: [Send("work", {"i": i}) for i in range(3)], ["work"])
    graph.add_edge("work", "join")
    graph.add_edge("join", END)
    return graph.compile()


def nested() -> Any:
    inner = react(scripted(asks("add", "c", a=1, b=1), "two"), [add])
    return StateGraph(MessagesState).add_node("child", inner).add_edge(START, "child").compile()


def run(make: Any, inputs: Any, *, wrapped: bool = True) -> Any:
    store = rb.open_store("memory:")
    app = wrap(make(), store, checkpointer="rath") if wrapped else make().copy({"checkpointer": RathSaver(store)})
    for one in inputs:
        app.invoke(one, thread())
    return store.session("langgraph/1")


CASES: dict[str, Any] = {
    "react": (lambda: react(scripted(asks("add", "c1", a=1, b=2), asks("fail", "c2", reason="x"), "three")), [{"messages": ["1 + 2?"]}]),
    "map-reduce": (mapped, [{"messages": ["go"], "done": [], "seen": set()}]),
    "subgraph": (nested, [{"messages": ["1 + 1"]}]),
    "human": (asking, [{"messages": ["w"], "note": ""}, Command(resume="yes")]),
    "turns": (lambda: chat(lambda s: {"messages": [("ai", "ok")]}), [{"messages": ["a"]}, {"messages": ["b"]}]),
}  # fmt: skip


@pytest.mark.parametrize("wrapped", [True, False], ids=["wrapped", "saver"])
@pytest.mark.parametrize("name", CASES)
def test_two_live_runs_are_equal(name: str, wrapped: bool) -> None:
    make, inputs = CASES[name]
    one, other = (replay_form(run(make, inputs, wrapped=wrapped).chunks()) for _ in range(2))
    assert [step.key for step in one] == [step.key for step in other]


def test_a_state_that_differs_shows() -> None:
    inputs = CASES["map-reduce"][1]
    one, other = (replay_form(run(lambda word=word: mapped(word), inputs).chunks()) for word in ("x", "y"))
    assert {step.kind for step, same in zip(one, other, strict=True) if step.key != same.key} == {"inference", "checkpoint"}
