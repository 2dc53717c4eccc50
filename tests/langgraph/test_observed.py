"""What a wrapped graph records beside calls: routes, questions and answers, retries, custom output, timings; whatever the checkpointer."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, cast

import pytest
from langchain_core.callbacks import dispatch_custom_event
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, RetryPolicy, Send, interrupt

import rath_bridge as rb
from rath_bridge.errors import UnsupportedError
from rath_bridge.model.kinds import Approval, Note, Route
from rath_bridge.session import Session, Store
from rath_langgraph import RathCallbackHandler, RathSaver, node_timings, wrap
from rath_langgraph.decisions import verdict
from rath_langgraph.record import BLIND_SPOTS
from rath_langgraph.unsaved import WITH_MESSAGES
from tests.langgraph.graphs import add, asking, asks, chat, echo, react, scripted, thread


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Store]:
    with rb.open_store(sqlite_url) as opened:
        yield opened


def of(session: Session, kind: str) -> list[Any]:
    return [chunk.body for chunk in session.latest().chunks() if chunk.kind == kind]


class Work(TypedDict):
    """Work that is sent out."""

    done: Annotated[list[int], operator.add]
    count: int


def fanned(tries: list[int] | None = None) -> StateGraph[Any]:
    """plan -> work (once for each) -> join -> again or end."""

    def plan(state: Work) -> dict[str, Any]:
        return {"count": 3}

    def fan(state: Work) -> list[Send]:
        return [Send("work", {"i": i}) for i in range(state["count"])]

    def work(state: dict[str, int]) -> dict[str, Any]:
        if tries is not None and state["i"] == 1:
            tries.append(1)
            if len(tries) == 1:
                raise ConnectionError("once")
        get_stream_writer()({"at": state["i"]})
        return {"done": [state["i"]]}

    def over(state: Work) -> bool:
        return len(state["done"]) >= 3

    graph = StateGraph(Work)
    graph.add_node("plan", plan)
    graph.add_node("work", cast(Any, work), retry_policy=RetryPolicy(initial_interval=0.001, jitter=False))
    graph.add_node("join", lambda state: {})
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", fan, ["work"])
    graph.add_edge("work", "join")
    graph.add_conditional_edges("join", over, {True: END, False: "plan"})
    return graph


def test_routers_and_sends_are_routes_with_their_candidates(store: Store) -> None:
    wrap(fanned().compile(), store, session="s").invoke({"done": [], "count": 0})
    routes: list[Route] = of(store.session("s"), "route")
    assert [(r.router, r.chosen, r.candidates) for r in routes] == [
        ("fan", ("work", "work", "work"), ("work",)),
        ("over", ("__end__",), ("__end__", "plan")),
    ]
    nodes = {c.run for c in store.session("s").chunks() if c.kind == "run" and c.body.name in ("plan", "join")}  # type: ignore[attr-defined]
    assert {c.run for c in store.session("s").chunks() if c.kind == "route"} <= nodes


def test_a_bare_handler_sees_routes_without_candidates(store: Store) -> None:
    fanned().compile().invoke({"done": [], "count": 0}, {"callbacks": [RathCallbackHandler(store, "s")]})
    assert [(r.router, r.chosen, r.candidates) for r in of(store.session("s"), "route")] == [
        ("fan", ("work", "work", "work"), ())
    ]


def supervised() -> StateGraph[Any]:
    """A supervisor that hands over by commands; the worker is a graph that hands back to the graph around it."""

    def supervisor(state: MessagesState) -> Command[Literal["worker", "__end__"]]:
        return Command(goto="worker") if len(state["messages"]) < 2 else Command(goto="__end__")

    def inner(state: MessagesState) -> Command[Any]:
        return Command(goto="supervisor", graph=Command.PARENT, update={"messages": [AIMessage("worked", id="w")]})

    worker = StateGraph(MessagesState).add_node("inner", inner).add_edge(START, "inner").compile()
    graph = StateGraph(MessagesState)
    graph.add_node("supervisor", supervisor)
    graph.add_node("worker", worker)
    graph.add_edge(START, "supervisor")
    return graph


def test_commands_are_routes_also_to_the_graph_around(store: Store) -> None:
    app = wrap(supervised().compile(), store, session="s", checkpointer="rath")
    app.invoke({"messages": [HumanMessage("go", id="h")]}, thread())
    assert [(r.router, r.chosen, r.reason) for r in of(store.session("s"), "route")] == [
        ("supervisor", ("worker",), "Command"),
        ("inner", ("supervisor",), "Command to the graph around it"),
        ("supervisor", ("__end__",), "Command"),
    ]
    assert {r.status for r in of(store.session("s"), "run") if r.phase == "end"} == {"ok"}
    assert [m.text for m in store.session("s").messages()] == ["go", "worked"]


@pytest.mark.parametrize(
    ("answer", "phase"),
    [("yes", "granted"), (True, "granted"), (False, "denied"), ("no", "denied"), ({"decisions": [{"type": "reject"}]}, "denied"),
     ({"approved": False}, "denied"), ({"decisions": [{"type": "approve"}]}, "granted"), (7, "granted"), ([{"type": "edit"}], "granted")],
)  # fmt: skip
def test_an_answer_grants_or_denies(answer: Any, phase: str) -> None:
    assert verdict(answer) == phase


@pytest.mark.parametrize("fresh", [False, True], ids=["same-process", "another-process"])
def test_pain_28_a_question_and_its_answer_share_an_id_and_are_no_errors(store: Store, fresh: bool) -> None:
    app = wrap(asking(), store, checkpointer="rath")
    app.invoke({"messages": [("user", "w")], "note": ""}, thread())
    if fresh:
        app = wrap(asking(), store, checkpointer="rath")
    app.invoke(Command(resume=False), thread())
    asked, answered = of(store.session("langgraph/1"), "approval")
    assert isinstance(asked, Approval)
    assert (asked.phase, answered.phase, answered.subject) == ("asked", "denied", {"answer": False})
    assert asked.call_id == answered.call_id is not None
    assert {r.status for r in of(store.session("langgraph/1"), "run") if r.phase == "end"} == {"ok", "interrupted"}


def test_several_questions_are_answered_by_id(store: Store) -> None:
    def ask(name: str) -> Any:
        def node(state: Work) -> dict[str, Any]:
            return {"done": [interrupt(name)]}

        return node

    graph = StateGraph(Work)
    for name in ("a", "b"):
        graph.add_node(name, ask(name))
        graph.add_edge(START, name)
    app = wrap(graph.compile(), store, checkpointer="rath")
    app.invoke({"done": [], "count": 0}, thread())
    asked = of(store.session("langgraph/1"), "approval")
    answers = {one.call_id: f"to {one.subject}" for one in asked}
    assert sorted(app.invoke(Command(resume=answers), thread())["done"]) == ["to a", "to b"]
    told = of(store.session("langgraph/1"), "approval")[2:]
    assert {one.call_id: one.subject["answer"] for one in told} == answers


def test_a_breakpoint_is_a_question_too(store: Store) -> None:
    app = wrap(chat(echo, interrupt_before=["bot"]), store, checkpointer="rath")
    app.invoke({"messages": [("user", "x")]}, thread())
    app.invoke(None, thread())
    assert [(a.phase, list(a.subject)) for a in of(store.session("langgraph/1"), "approval")] == [
        ("asked", ["breakpoint"]),
        ("granted", ["breakpoint"]),
    ]


def test_a_node_that_is_tried_again_says_so(store: Store) -> None:
    app = wrap(fanned([]).compile(), store, checkpointer="rath")
    app.invoke({"done": [], "count": 0}, thread())
    work = [t for t in node_timings(store.session("langgraph/1")) if t.node == "work"]
    assert sorted((t.attempt, t.status) for t in work) == [(1, "error"), (1, "ok"), (1, "ok"), (2, "ok")]
    begun = [r for r in of(store.session("langgraph/1"), "run") if r.phase == "begin" and r.name == "work"]
    assert sorted(r.attributes["place"] for r in begun) == ["2.0", "2.1", "2.1", "2.2"]  # whoever began first


def test_a_model_that_is_tried_again_says_so(store: Store) -> None:
    model = scripted("fine").with_retry(wait_exponential_jitter=False, stop_after_attempt=3)
    broken = iter([True, True, False])

    def flaky(messages: Any) -> Any:
        if next(broken):
            raise ConnectionError("not now")
        return messages

    from langchain_core.runnables import RunnableLambda

    chain = (RunnableLambda(flaky) | scripted("fine")).with_retry(wait_exponential_jitter=False, stop_after_attempt=3)
    wrap(chat(lambda s: {"messages": [chain.invoke(s["messages"])]}), store, session="s").invoke({"messages": [("user", "x")]})
    wrap(chat(lambda s: {"messages": [model.invoke(s["messages"])]}), store, session="t").invoke({"messages": [("user", "x")]})
    assert [i.error for i in of(store.session("s"), "inference")] == [None]
    assert [i.attributes for i in of(store.session("t"), "inference")] == [{}]


@pytest.mark.parametrize("mode", ["custom", ["updates", "custom"]])
@pytest.mark.parametrize("subgraphs", [False, True])
def test_custom_stream_output_is_recorded_as_it_is_handed_over(store: Store, mode: Any, subgraphs: bool) -> None:
    plain, app = fanned().compile(), wrap(fanned().compile(), store, session="s")
    given = {"done": [], "count": 0}
    ours = list(app.stream(given, stream_mode=mode, subgraphs=subgraphs))
    assert sorted(map(repr, ours)) == sorted(map(repr, plain.stream(given, stream_mode=mode, subgraphs=subgraphs)))

    async def arun() -> list[Any]:
        return [item async for item in app.astream(given, stream_mode=mode, subgraphs=subgraphs)]

    assert sorted(map(repr, asyncio.run(arun()))) == sorted(map(repr, ours))
    notes: list[Note] = of(store.session("s"), "note")
    assert sorted(n.attributes["stream"]["at"] for n in notes) == [0, 0, 1, 1, 2, 2]


def test_custom_events_are_notes_of_their_node(store: Store) -> None:
    def node(state: MessagesState) -> dict[str, Any]:
        dispatch_custom_event("progress", {"done": 0.5})
        return {}

    wrap(chat(node), store, session="s").invoke({"messages": [("user", "x")]})
    assert [(n.text, n.author, n.attributes) for n in of(store.session("s"), "note")] == [
        ("progress", "bot", {"event": {"done": 0.5}})
    ]


def test_node_timings_are_joined_to_task_and_checkpoint(store: Store) -> None:
    app = wrap(react(scripted(asks("add", "c", a=1, b=1), "two"), [add]), store, checkpointer="rath")
    app.invoke({"messages": [("user", "1 + 1")]}, thread())
    timings = list(node_timings(store.session("langgraph/1")))
    assert [(t.node, t.step, t.status) for t in timings] == [("llm", 1, "ok"), ("tools", 2, "ok"), ("llm", 3, "ok")]
    history = {cast(Any, found.config)["configurable"]["checkpoint_id"]: found for found in app.get_state_history(thread())}
    for one in timings:
        assert one.seconds is not None
        assert one.seconds >= 0
        assert one.checkpoint_id is not None
        assert [task.id for task in history[one.checkpoint_id].tasks] == [one.task_id]
    runs = {t.run: t.node for t in timings}
    assert [runs[c.run or ""] for c in store.session("langgraph/1").chunks() if c.kind == "inference"] == ["llm", "llm"]


def test_blind_spots_stand_in_the_session(store: Store) -> None:
    wrap(chat(echo), store, session="s").invoke({"messages": [("user", "x")]})
    assert of(store.session("s"), "run")[0].attributes == {"blind_spots": [*BLIND_SPOTS, WITH_MESSAGES]}


@pytest.mark.parametrize("both", [False, True], ids=["nested", "same-graph"])
def test_two_handlers_record_a_call_once(store: Store, both: bool) -> None:
    inner = wrap(chat(lambda s: {"messages": [scripted("hi").invoke(s["messages"])]}), store, session="s")
    if both:
        inner.invoke({"messages": [("user", "x")]}, {"callbacks": [RathCallbackHandler(store, "s")]})
    else:
        wrap(chat(lambda s: inner.invoke(s)), store, session="s").invoke({"messages": [("user", "x")]})
    assert len(of(store.session("s"), "inference")) == 1
    assert store.session("s").usage().total_tokens == 15


# ------------------------------------------------------------------ the graph's own checkpointer


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_the_own_checkpointer_stays_in_charge_and_is_mirrored(store: Store, tmp_path: Path, kind: str) -> None:
    import contextlib

    with contextlib.ExitStack() as stack:
        own: Any = (
            InMemorySaver() if kind == "memory" else stack.enter_context(SqliteSaver.from_conn_string(str(tmp_path / "own.db")))
        )
        graph = react(scripted("first", asks("add", "c1", a=1, b=2), "three", "again"), [add], checkpointer=own)
        graph.invoke({"messages": [("user", "before")]}, thread("0"))
        app = wrap(graph, store)
        app.invoke({"messages": [HumanMessage("1 + 2?")]}, thread())
        app.invoke({"messages": [HumanMessage("more")]}, thread("0"))
        assert list(own.list(thread())) == list(app.checkpointer.list(thread()))  # type: ignore[union-attr]
        theirs, ours = list(own.list(thread())), list(RathSaver(store).list(thread()))
        assert [(t.checkpoint, t.parent_config, t.pending_writes) for t in ours] == [
            (t.checkpoint, t.parent_config, t.pending_writes) for t in theirs
        ]
        assert graph.get_state(thread()).values == app.get_state(thread()).values  # the original sees it too
        assert [m.role for m in store.session("langgraph/1").messages()] == ["user", "assistant", "tool", "assistant"]
        assert (
            store.session("langgraph/0").messages()[0].text == "before"
        )  # a thread that was there before comes with its history
        moved: Any = app.update_state(thread(), {"messages": [("user", "changed")]}, as_node="tools")
        assert moved["configurable"]["checkpoint_id"] == own.get_tuple(thread()).checkpoint["id"]
        assert store.session("langgraph/1").messages()[-1].text == "changed"
        app.checkpointer.delete_thread("1")  # type: ignore[union-attr]
        assert own.get_tuple(thread()) is None
        assert RathSaver(store).get_tuple(thread()) is None


async def _async_own(store: Store, path: Path) -> None:
    async with AsyncSqliteSaver.from_conn_string(str(path)) as own:
        app = wrap(asking(checkpointer=own), store)
        await app.ainvoke({"messages": [("user", "w")], "note": ""}, thread())
        out = await app.ainvoke(Command(resume="ok"), thread())
        assert out["note"] == "reviewed: ok"
        assert [t.checkpoint["id"] async for t in own.alist(thread())] == [
            t.checkpoint["id"] for t in RathSaver(store).list(thread())
        ]
        assert (await app.aget_state(thread())).values == out


def test_an_own_async_checkpointer_is_mirrored(store: Store, tmp_path: Path) -> None:
    asyncio.run(_async_own(store, tmp_path / "own.db"))
    assert [a.phase for a in of(store.session("langgraph/1"), "approval")] == ["asked", "granted"]


def test_a_mirror_that_cannot_write_stops_nobody_and_is_counted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    app = wrap(chat(echo, checkpointer=InMemorySaver()), store)

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(RathSaver, "put", refuse)
        out = app.invoke({"messages": [("user", "a")]}, thread())
    assert out["messages"][-1].content == "you said: a"
    app.invoke({"messages": [("user", "b")]}, thread())
    assert sum(g.count for g in of(store.session("langgraph/1"), "gap")) == 3
    assert [m.text for m in store.session("langgraph/1").messages()] == ["a", "you said: a", "b", "you said: b"]


def test_what_is_no_session_is_named(store: Store) -> None:
    with pytest.raises(UnsupportedError, match=r"with a Session, not with a str.*store\.session"):
        wrap(chat(echo), store)("t")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="wrap it for that store"):
        wrap(chat(echo), store)(rb.open_store("memory:").create("t"))
