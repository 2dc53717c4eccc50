"""What happens in a step stands behind the checkpoint that the step was made from, whatever LangGraph puts in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt

import rath_bridge as rb
from rath_bridge.session import Session, Store
from rath_langgraph import behind, wrap
from tests.langgraph.graphs import add, asks, chat, react, scripted, thread

KINDS = {"message": "M", "inference": "I", "tool_call": "C", "tool_result": "R"}
REPEATED = 10


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Store]:
    with rb.open_store(sqlite_url) as opened:
        yield opened


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No bound is reached because the machine is busy."""
    monkeypatch.setattr(behind, "PATIENCE", 20.0)
    monkeypatch.setattr(behind, "HOLD", 20.0)


def order(session: Session) -> str:
    return "".join(KINDS.get(chunk.kind, "") for chunk in session.latest().chunks())


def wrapped(store: Store, kind: str, made: Any, **compiled: Any) -> Any:
    if kind == "own":
        return wrap(made(checkpointer=InMemorySaver(), **compiled), store)
    return wrap(made(**compiled), store, checkpointer="rath")


def run(app: Any, mode: str, given: Any, config: Any) -> None:
    if mode == "sync":
        app.invoke(given, config)
    elif mode == "stream":
        list(app.stream(given, config, stream_mode=["updates", "custom"]))
    elif mode == "inside a loop":  # a notebook

        async def cell() -> None:
            app.invoke(given, config)

        asyncio.run(cell())
    else:
        asyncio.run(app.ainvoke(given, config))


def question() -> dict[str, Any]:
    return {"messages": [HumanMessage("1 + 2?", id="q")]}


@pytest.mark.parametrize("kind", ["rath", "own"])
@pytest.mark.parametrize("mode", ["sync", "async", "stream", "inside a loop"])
def test_every_run_is_recorded_in_its_order(store: Store, kind: str, mode: str) -> None:
    seen: list[str] = []
    for number in range(REPEATED):
        app = wrapped(store, kind, lambda **more: react(scripted(asks("add", "c", a=1, b=2), "three"), **more))
        run(app, mode, question(), thread(str(number)))
        seen.append(order(store.session(f"langgraph/{number}")))
    assert seen == ["MIMCRMIM"] * REPEATED


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_fork_at_a_tools_result_holds_what_led_to_it(store: Store, mode: str) -> None:
    app = wrapped(store, "rath", lambda **more: react(scripted(asks("add", "c", a=1, b=2), "three"), **more))
    run(app, mode, question(), thread())
    session = store.session("langgraph/1")
    result = next(chunk for chunk in session.chunks() if chunk.kind == "tool_result")
    assert [m.role for m in session.fork("what-if", at=result.id).messages()] == ["user", "assistant"]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_next_turn_and_one_ambient_recorder(store: Store, mode: str) -> None:
    answers = scripted(asks("add", "c1", a=1, b=2), "three", asks("add", "c2", a=3, b=4), "seven")
    app = wrapped(store, "rath", lambda **more: react(answers, **more))
    with rb.record(store, "mixed"):
        for _ in range(2):
            run(app, mode, {"messages": [HumanMessage("what?")]}, thread())
    assert order(store.session("mixed")) == "MIMCRMIM" * 2


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_subgraph_and_one_without_a_checkpointer(store: Store, mode: str) -> None:
    def made(inner: Any, **compiled: Any) -> Any:
        outer = StateGraph(MessagesState)
        answers = asks("add", "c", a=1, b=1), AIMessage("two")
        for number, answer in enumerate(answers):
            answer.id = f"a{number}"
        outer.add_node("child", react(scripted(*answers), [add], **inner))
        outer.add_edge(START, "child")
        outer.add_edge("child", END)
        return outer.compile(**compiled)

    for number in range(3):
        run(wrapped(store, "rath", lambda **more: made({}, **more)), mode, question(), thread(str(number)))
        assert order(store.session(f"langgraph/{number}")).startswith("MIMCRMIM")
    run(wrapped(store, "rath", lambda **more: made({"checkpointer": False}, **more)), mode, question(), thread("bare"))
    assert order(store.session("langgraph/bare")) == "MICRIMMM"  # its state is on no checkpoint until it has ended


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_tools_that_were_sent_out_together(store: Store, mode: str) -> None:
    def plan(state: MessagesState) -> Command[Any]:
        return Command(goto=[Send("work", {"messages": [], "n": n}) for n in range(3)])

    def work(state: Any) -> dict[str, Any]:
        add.invoke({"a": state["n"], "b": 1})
        return {"messages": [("ai", f"done {state['n']}")]}

    def made(**compiled: Any) -> Any:
        graph = StateGraph(MessagesState)
        graph.add_node("plan", plan, destinations=("work",))
        graph.add_node("work", work)
        graph.add_edge(START, "plan")
        return graph.compile(**compiled)

    for number in range(3):
        run(wrapped(store, "rath", made), mode, question(), thread(str(number)))
        found = order(store.session(f"langgraph/{number}"))
        assert (found[0], found[-3:], sorted(found[1:-3])) == ("M", "MMM", ["C"] * 3 + ["R"] * 3)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_question_and_its_answer(store: Store, mode: str) -> None:
    model = scripted("first", "second")

    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    def review(state: MessagesState) -> dict[str, Any]:
        answer = interrupt("sure?")
        return {"messages": [model.invoke([*state["messages"], ("user", answer)])]}

    def made(**compiled: Any) -> Any:
        graph = StateGraph(MessagesState)
        graph.add_node("ask", ask)
        graph.add_node("review", review)
        graph.add_edge(START, "ask")
        graph.add_edge("ask", "review")
        return graph.compile(**compiled)

    app = wrapped(store, "rath", made)
    run(app, mode, question(), thread())
    run(app, mode, Command(resume="yes"), thread())
    assert order(store.session("langgraph/1")) == "MIMIM"


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_where_no_checkpoint_comes_nobody_waits(store: Store, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[str] = []
    monkeypatch.setattr(rb.Recorder, "hold", lambda self, key, *_: held.append(key))
    app = wrap(react(scripted(asks("add", "c", a=1, b=2), "three")), store, session="bare")
    run(app, mode, question(), {})
    app = wrap(react(scripted(asks("add", "c", a=1, b=2), "three")), store, checkpointer="rath")
    settings: Any = thread("exit")
    if mode == "sync":
        app.invoke(question(), settings, durability="exit")
    else:
        asyncio.run(app.ainvoke(question(), settings, durability="exit"))
    assert held == []


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_checkpointer_that_hangs_holds_up_no_tool(store: Store, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(behind, "PATIENCE", 0.01)
    monkeypatch.setattr(behind, "HOLD", 0.01)
    called = Event()

    class Slow(InMemorySaver):
        """Goes on when the tool has run."""

        def put(self, *args: Any) -> Any:
            called.wait(60)
            return super().put(*args)

        async def aput(self, *args: Any) -> Any:
            await asyncio.to_thread(called.wait, 60)
            return super().put(*args)

    def look(a: int) -> int:
        """Look."""
        called.set()
        return a

    app = wrap(react(scripted(asks("look", "c", a=1), "one"), [look], checkpointer=Slow()), store)
    run(app, mode, question(), thread())
    assert called.is_set()
    found = order(store.session("langgraph/1"))
    assert sorted(found) == sorted("MIMCRMIM")
    assert found.index("I") < found.index("C") < found.index("R")


def test_a_graph_that_ends_before_its_checkpoints_stand_leaves_nothing_behind(store: Store) -> None:
    for number in range(REPEATED):
        app = wrapped(store, "rath", lambda **more: chat(lambda s: {"messages": [scripted("hi").invoke(s["messages"])]}, **more))
        run(app, "async", question(), thread(str(number)))
        session = store.session(f"langgraph/{number}")
        assert order(session) == "MIM"
        runs = [chunk.body for chunk in session.chunks() if chunk.kind == "run"]
        assert sum(body.phase == "end" for body in runs) == 2  # type: ignore[union-attr]
