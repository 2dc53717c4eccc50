"""Every shape of graph, run on LangGraph's own saver and on ours: the same states, histories and tasks, forked and gone on with."""

from __future__ import annotations

import dataclasses
import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel

import rath_bridge as rb
from rath_langgraph import RathSaver
from tests.langgraph.graphs import asking, asks, echo, react, scripted, thread
from tests.langgraph.test_upkeep import delta


class Count(BaseModel):
    n: int = 0
    seen: tuple[str, ...] = ()


@dataclasses.dataclass
class Plan:
    steps: list[str] = dataclasses.field(default_factory=list)
    best: Count | None = None


class Items(TypedDict):
    items: Annotated[list[str], operator.add]


def supervisor(saver: Any) -> Any:
    """A supervisor that sends work to two workers by `Command`."""

    def lead(state: MessagesState) -> Command[Any]:
        turn = len(state["messages"])
        goto = END if turn >= 5 else "writer" if turn % 4 == 1 else "critic"
        return Command(goto=goto, update={"messages": [("ai", f"{turn}: {goto}")]} if goto is not END else {})

    graph: Any = StateGraph(MessagesState).add_node("lead", lead, destinations=("writer", "critic", END))
    for name in ("writer", "critic"):
        graph.add_node(name, lambda state, name=name: {"messages": [("ai", f"{name} after {len(state['messages'])}")]})
        graph.add_edge(name, "lead")
    return graph.add_edge(START, "lead").compile(checkpointer=saver)


def map_reduce(saver: Any) -> Any:
    """One `Send` for each item."""
    graph: Any = StateGraph(Items)
    graph.add_node("split", lambda state: {"items": ["split"]})
    graph.add_node("work", lambda item: {"items": [f"done {item['x']}"]})
    graph.add_node("join", lambda state: {"items": [f"joined {len(state['items'])}"]})
    graph.add_edge(START, "split").add_edge("work", "join")
    graph.add_conditional_edges("split", lambda state: [Send("work", {"x": i}) for i in range(6)], ["work"])
    return graph.compile(checkpointer=saver)


def nested(mode: Any) -> Any:
    """A graph in a graph in a graph, of which the innermost asks."""

    def made(saver: Any) -> Any:
        def ask(state: Any) -> Any:
            return {"items": [f"answer {interrupt('which?')}"]}

        inner: Any = StateGraph(Items).add_node("say", lambda state: {"items": ["inner"]}).add_node("ask", ask)
        inner.add_edge(START, "say").add_edge("say", "ask")
        middle: Any = StateGraph(Items).add_node("inner", inner.compile(checkpointer=mode)).add_edge(START, "inner")
        outer: Any = StateGraph(Items).add_node("middle", middle.compile(checkpointer=mode)).add_edge(START, "middle")
        return outer.compile(checkpointer=saver)

    return made


def typed(state: Any) -> Any:
    """Pydantic or dataclass states."""

    def made(saver: Any) -> Any:
        def grow(value: Any) -> Any:
            if isinstance(value, Count):
                return {"n": value.n + 1, "seen": (*value.seen, f"{value.n}")}
            return {"steps": [*value.steps, "more"], "best": Count(n=len(value.steps), seen=("a",))}

        graph: Any = StateGraph(state)
        return graph.add_node("grow", grow).add_edge(START, "grow").compile(checkpointer=saver)

    return made


def chats(saver: Any) -> Any:
    return StateGraph(MessagesState).add_node("bot", echo).add_edge(START, "bot").compile(checkpointer=saver)


SHAPES: dict[str, tuple[Any, list[Any]]] = {
    "chat": (chats, [{"messages": [("user", "a")]}, {"messages": [("user", "b")]}]),
    "react": (
        lambda saver: react(scripted(asks("add", "c1", a=1, b=2), "three", *map(str, range(9))), checkpointer=saver),
        [{"messages": [("user", "1 + 2?")]}, {"messages": [("user", "thanks")]}],
    ),
    "supervisor": (supervisor, [{"messages": [("user", "write")]}]),
    "map_reduce": (map_reduce, [{"items": ["in"]}, {"items": ["again"]}]),
    "person": (lambda saver: asking(checkpointer=saver), [{"messages": [("user", "go")]}, Command(resume="yes")]),
    "nested": (nested(None), [{"items": ["in"]}, Command(resume="this"), {"items": ["again"]}, Command(resume="that")]),
    "nested, kept": (nested(True), [{"items": ["in"]}, Command(resume="this"), {"items": ["again"]}, Command(resume="that")]),
    "delta": (lambda saver: delta(checkpointer=saver), [{"items": [f"{n}"]} for n in range(4)]),
    "pydantic": (typed(Count), [Count(n=1), {"n": 5}]),
    "dataclass": (typed(Plan), [Plan(steps=["one"]), {"steps": ["two"]}]),
}


def plain(value: Any) -> Any:
    """A value without what is new in each run: ids of messages and interrupts."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return (value.type, value.content) if hasattr(value, "content") and hasattr(value, "type") else value


def told(app: Any, subgraphs: bool = False) -> list[Any]:
    """All that a history shows, in order."""
    return [
        (
            plain(s.values), s.next, s.metadata["source"], s.metadata["step"], sorted(t.name for t in s.tasks),
            [i.value for t in s.tasks for i in t.interrupts], s.parent_config is None,
        )
        for s in ([app.get_state(thread(), subgraphs=True)] if subgraphs else app.get_state_history(thread()))
    ]  # fmt: skip


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_shape_runs_as_on_langgraphs_own_saver(shape: str, asynchronous: bool) -> None:
    make, steps = SHAPES[shape]
    store = rb.open_store("memory:")
    ours, theirs = make(RathSaver(store)), make(InMemorySaver())
    for step in steps:
        results = [
            plain(await app.ainvoke(step, thread()) if asynchronous else app.invoke(step, thread())) for app in (ours, theirs)
        ]
        asked = [bool(result.pop("__interrupt__", None)) for result in results]
        assert asked[0] == asked[1]
        assert results[0] == results[1]
        assert told(ours) == told(theirs)
        assert told(ours, subgraphs=True) == told(theirs, subgraphs=True)
    for app in (ours, theirs):  # forked: once more from the first checkpoint that has something to do
        old = [s for s in app.get_state_history(thread()) if s.next and not s.interrupts][-2]
        await app.ainvoke(None, old.config) if asynchronous else app.invoke(None, old.config)
    assert told(ours) == told(theirs)
    assert list(store.session("langgraph/1").fsck()) == []
    assert any(name.startswith("fork-") for name in store.session("langgraph/1").heads())
    ours.checkpointer.copy_thread("1", "copy")
    assert [t.checkpoint for t in ours.checkpointer.list(thread("copy"))] == [
        t.checkpoint for t in ours.checkpointer.list(thread())
    ]
