"""RathCallbackHandler and wrap: what a graph does while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, Send

import rath_bridge as rb
from rath_bridge.model.chunk import draft
from rath_bridge.model.kinds import Inference, Note, Run
from rath_bridge.model.trees import read_list
from rath_bridge.recorder import current_recorder, current_run
from rath_bridge.session import Session, Store
from rath_langgraph import RathCallbackHandler, RathSaver, encode, wrap
from rath_langgraph.items import join_list
from rath_langgraph.serde import RathSerializer
from tests.langgraph.graphs import add, asking, asks, chat, echo, react, scripted, thread


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Store]:
    with rb.open_store(sqlite_url) as opened:
        yield opened


def of(session: Session, kind: str) -> list[Any]:
    return [chunk.body for chunk in session.latest().chunks() if chunk.kind == kind]


def tree(session: Session) -> list[tuple[Any, Any, Any, Any]]:
    """(name, type, name of the enclosing run, status) of every run."""
    begun: dict[str, Run] = {}
    ended: dict[str, str | None] = {}
    for chunk in session.latest().chunks():
        if chunk.kind == "run":
            body: Any = chunk.body
            if body.phase == "begin":
                begun[chunk.run or ""] = body
            else:
                ended[chunk.run or ""] = body.status
    return [(b.name, b.type, begun[b.parent].name if b.parent else None, ended.get(run)) for run, b in begun.items()]


def test_model_and_tool_calls_are_recorded_in_their_nodes(store: Store) -> None:
    graph = react(scripted(asks("add", "c1", a=1, b=2), asks("fail", "c2", reason="no"), "three"))
    app = wrap(graph, store, session="ticket", checkpointer="rath")
    app.invoke({"messages": [("user", "1 + 2?")]}, thread())
    session = store.session("ticket")
    assert tree(session) == [
        ("thread", "thread", None, None),
        ("LangGraph", "graph", "thread", "ok"),
        ("llm", "node", "LangGraph", "ok"),
        ("tools", "node", "LangGraph", "ok"),
        ("llm", "node", "LangGraph", "ok"),
        ("tools", "node", "LangGraph", "ok"),
        ("llm", "node", "LangGraph", "ok"),
    ]
    calls: list[Inference] = of(session, "inference")
    assert [c.observer for c in calls] == ["callback"] * 3
    assert [c.input.count for c in calls if c.input is not None] == [1, 3, 5]  # type: ignore[union-attr]
    assert calls[0].output == ({"type": "tool_call", "id": "c1", "name": "add", "arguments": {"a": 1, "b": 2}},)
    assert all(c.agent == "llm" and c.duration is not None for c in calls)
    assert session.latest().usage().total_tokens == 45
    assert [(c.name, c.call_id, c.arguments) for c in of(session, "tool_call")] == [
        ("add", "c1", {"a": 1, "b": 2}),
        ("fail", "c2", {"reason": "no"}),
    ]
    ok, failed = of(session, "tool_result")
    assert (ok.status, ok.result) == ("ok", "3")
    assert (failed.status, failed.error) == ("error", "ValueError: no")
    assert [(c.call_id, c.status) for c in session.latest().calls()] == [("c1", "ok"), ("c2", "error")]
    assert session.latest().fsck() == []
    assert graph.config is None or not graph.config.get("callbacks")  # the original is as it was


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_what_runs_inside_a_node_lands_under_its_run(store: Store, mode: str) -> None:
    def record_here() -> None:  # what another framework's adapter does
        recorder = current_recorder()
        assert recorder is not None
        with recorder.run("helper", "agent"):
            recorder.emit(Note(text="from inside"))

    def node(state: MessagesState) -> dict[str, Any]:
        record_here()
        return {"messages": [AIMessage("done", id="a")]}

    async def anode(state: MessagesState) -> dict[str, Any]:
        await asyncio.sleep(0)
        record_here()
        return {"messages": [AIMessage("done", id="a")]}

    app = wrap(chat(anode if mode == "async" else node), store, checkpointer="rath")
    question = {"messages": [HumanMessage("go", id="h")]}

    async def arun() -> None:
        await app.ainvoke(question, thread())
        assert current_run() is None
        assert current_recorder() is None

    if mode == "async":
        asyncio.run(arun())
    else:
        app.invoke(question, thread())
        assert current_run() is None
        assert current_recorder() is None
    session = store.session("langgraph/1")
    assert ("helper", "agent", "bot", "ok") in tree(session)
    assert of(session, "note")[0].text == "from inside"
    assert [m.text for m in session.messages()] == ["go", "done"]


def test_an_ambient_recorder_and_a_bare_handler(store: Store) -> None:
    app = chat(lambda state: {"messages": [scripted("hi").invoke(state["messages"])]})
    with rb.record(store, "mixed") as recorder:
        app.invoke({"messages": [("user", "hello")]}, {"callbacks": [RathCallbackHandler()]})
        assert current_run() is None
        assert current_recorder() is recorder
    session = store.session("mixed")
    assert tree(session) == [("LangGraph", "graph", None, "ok"), ("bot", "node", "LangGraph", "ok")]
    assert len(of(session, "inference")) == 1


def test_a_subgraphs_nodes_nest(store: Store) -> None:
    inner = react(scripted(asks("add", "c", a=1, b=1), "two"), [add])
    outer = StateGraph(MessagesState)
    outer.add_node("child", inner)
    outer.add_edge(START, "child")
    app = wrap(outer.compile(), store, checkpointer="rath")
    app.invoke({"messages": [("user", "1+1")]}, thread())
    session = store.session("langgraph/1")
    parents = {(name, kind): above for name, kind, above, _ in tree(session)}
    assert parents["llm", "node"] == "LangGraph"
    assert [row[0] for row in tree(session)][:3] == ["thread", "LangGraph", "child"]
    assert {status for *_, status in tree(session)} <= {"ok", None}
    assert [m.text for m in session.messages()] == ["1+1", "", "", "two"]
    assert [(c.call_id, c.status) for c in session.calls()][:1] == [("c", "ok")]
    assert session.pending() == ()


def test_a_failing_node_and_a_failing_model(store: Store) -> None:
    def broken(state: MessagesState) -> dict[str, Any]:
        scripted().invoke(state["messages"])  # has no answer
        return {}

    app = wrap(chat(broken), store, checkpointer="rath")
    with pytest.raises(Exception, match="StopIteration|generator"):
        app.invoke({"messages": [("user", "x")]}, thread())
    session = store.session("langgraph/1")
    assert {status for _, kind, _, status in tree(session) if kind == "node"} == {"error"}
    assert of(session, "inference")[0].error


def test_interrupts_are_asked_and_are_no_errors(store: Store) -> None:
    app = wrap(asking(), store, checkpointer="rath")
    app.invoke({"messages": [("user", "w")], "note": ""}, thread())
    app.invoke(Command(resume="yes"), thread())
    session = store.session("langgraph/1")
    asked = of(session, "approval")
    assert [(a.phase, a.subject) for a in asked] == [
        ("asked", {"question": "publish?", "note": "draft"}),
        ("granted", {"answer": "yes"}),
    ]
    assert asked[0].call_id == asked[1].call_id is not None
    statuses = [(name, status) for name, _, _, status in tree(session)]
    assert statuses.count(("review", "interrupted")) == 1
    assert statuses.count(("review", "ok")) == 1
    assert not any(status == "error" for _, status in statuses)


def test_a_wrapped_graph_behaves_as_before(store: Store) -> None:
    app = wrap(react(scripted(asks("add", "c", a=2, b=2), "four"), [add]), store, checkpointer="rath")
    assert isinstance(app, CompiledStateGraph)
    assert [list(step) for step in app.stream({"messages": [("user", "2+2")]}, thread(), stream_mode="updates")] == [
        ["llm"], ["tools"], ["llm"],
    ]  # fmt: skip
    assert app.get_state(thread()).values["messages"][-1].content == "four"
    assert app.get_graph().nodes.keys() == {"__start__", "llm", "tools", "__end__"}
    named = app.with_config(tags=["t"])
    assert type(named) is type(app)
    moved: Any = app.update_state(thread(), {"messages": [("user", "more")]})
    assert moved["configurable"]["checkpoint_id"]

    async def events() -> list[str]:
        again = wrap(chat(echo), store, checkpointer="rath")
        return [e["event"] async for e in again.astream_events({"messages": [("user", "x")]}, thread("2"), version="v2")]

    assert "on_chain_end" in asyncio.run(events())


def test_a_secret_in_a_prompt_is_redacted_in_the_observed_copies(store: Store) -> None:
    key = "sk-" + "a1B2" * 10
    app = wrap(chat(lambda s: {"messages": [scripted(f"your key is {key}").invoke(s["messages"])]}), store, checkpointer=None)
    app.invoke({"messages": [("user", f"my key is {key} " + "x" * 600)]}, thread())
    session = store.session("langgraph/1")
    names = {name for chunk in session.chunks() for name in chunk.references}
    call = of(session, "inference")[0]
    leaves = store.backend.objects([call.input.digest])
    items = store.backend.objects([data[2 + i : 34 + i].hex() for data in leaves.values() for i in range(0, len(data) - 2, 32)])
    held = [c.body_bytes or b"" for c in session.chunks()] + [*store.backend.objects(names).values(), *items.values()]
    assert not any(key.encode() in data for data in held)
    assert "[redacted:openai-key]" in call.output[0]["content"]


def test_a_graph_is_a_transform(store: Store) -> None:
    session = store.create("ticket").append(rb.message("user", "from elsewhere"), rb.message("assistant", "noted"))
    session = session.append(rb.message("user", "go on"))
    app = wrap(chat(echo), store, checkpointer="rath")
    session = app(session)
    assert [m.text for m in session.messages()] == ["from elsewhere", "noted", "go on", "you said: go on"]
    session = session.append(rb.message("user", "yes"), rb.message("assistant", "ok"), rb.message("user", "yes"))
    session = app(session)
    assert [m.text for m in session.messages()][4:] == ["yes", "ok", "yes", "you said: yes"]
    held = app.get_state({"configurable": {"thread_id": "ticket"}}).values["messages"]
    assert [m.content for m in held] == [m.text for m in session.messages()]
    again = asyncio.run(app.acall(session.append(rb.message("user", "async"))))
    assert [m.text for m in again.messages()][-2:] == ["async", "you said: async"]
    assert again.fsck() == []


def test_a_graph_without_a_checkpointer_is_a_transform_too(store: Store) -> None:
    session = store.create("plain").append(rb.message("user", "hello"))
    session = wrap(chat(echo), store)(session)
    assert [m.text for m in session.messages()] == ["hello", "you said: hello"]


def test_who_encodes_by_hand_passes_the_report(store: Store) -> None:
    session = store.create("ticket").append(rb.message("user", "q", id="same"), rb.message("assistant", "a", id="same"))
    messages, report = encode(session)
    app = wrap(chat(echo), store, session="ticket", checkpointer="rath", continues=report)
    app.invoke({"messages": [*messages, HumanMessage("next")]}, thread())
    assert [m.text for m in session.latest().messages()] == ["q", "a", "next", "you said: next"]


def test_without_a_manifest_a_whole_transcript_is_known_by_its_front(store: Store) -> None:
    session = store.create("ticket").append(rb.message("user", "q"), rb.message("assistant", "a"))
    app = chat(echo, checkpointer=RathSaver(store, session="ticket"))
    app.invoke({"messages": [("user", "q"), ("ai", "a"), ("user", "next")]}, thread())
    assert [m.text for m in session.latest().messages()] == ["q", "a", "next", "you said: next"]
    app.invoke({"messages": [("user", "q")]}, thread("2"))  # shorter than the transcript: said again
    assert [m.text for m in session.latest().messages()][4:] == ["q", "you said: q"]


def test_an_edit_of_a_message_from_elsewhere_replaces_it(store: Store) -> None:
    session = store.create("ticket").append(rb.message("user", "from elsewhere"), draft(Note(text="n")))
    app = wrap(chat(echo), store, checkpointer="rath")
    session = app(session)
    held = app.get_state({"configurable": {"thread_id": "ticket"}}).values["messages"]
    with rb.record(store, "ticket"):
        app.update_state({"configurable": {"thread_id": "ticket"}}, {"messages": [HumanMessage("edited", id=held[0].id)]})
    assert [m.text for m in session.latest().messages()] == ["edited", "you said: from elsewhere"]


def test_a_compiled_graph_is_asked_for() -> None:
    with pytest.raises(rb_errors().UnsupportedError, match="call .compile"):
        wrap(StateGraph(MessagesState), rb.open_store("memory:"))  # type: ignore[arg-type]
    assert END


def rb_errors() -> Any:
    import rath_bridge.errors

    return rath_bridge.errors


def test_a_call_is_whole_while_one_that_shares_its_prompt_has_not_ended(store: Store) -> None:
    """What a model is asked is built when it is called: whichever call is written first takes along what both are made of."""
    slow_began, fast_read = Event(), Event()
    long = SystemMessage("the same for both. " * 60)

    class Model(GenericFakeChatModel):
        def _generate(self, messages: list[Any], *args: Any, **kwargs: Any) -> ChatResult:
            if messages[-1].content == "slow":
                slow_began.set()
                assert fast_read.wait(60)
            return ChatResult(generations=[ChatGeneration(message=AIMessage(f"answer to {messages[-1].content}"))])

    model = Model(messages=iter(()))

    def ask(state: dict[str, Any]) -> dict[str, Any]:
        if state["say"] == "fast":
            assert slow_began.wait(60)
            current = current_recorder()
            assert current is not None
            current.flush()  # what the slow one is asked is built, and nothing of it is kept
        return {"messages": [model.invoke([long, HumanMessage(state["say"])])]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_conditional_edges(START, lambda _: [Send("ask", {"say": "slow"}), Send("ask", {"say": "fast"})], ["ask"])
    app = wrap(graph.compile(), store, session="s")
    with ThreadPoolExecutor() as pool:
        running = pool.submit(app.invoke, {"messages": []})
        found: list[Any] = []
        while not found and not running.done():
            found = [c.body for c in store.session("s", create=True) if c.kind == "inference"]
        try:
            names = [name.hex() for name in read_list(found[0].input, store.backend.objects)]
            items = store.backend.objects(names)
        finally:
            fast_read.set()
        running.result()
    said = RathSerializer().loads_typed(("msgpack", join_list([items[name] for name in names])))
    assert [one.content for one in said] == [long.content, "fast"]
    assert not list(store.fsck())


@pytest.mark.parametrize("checkpointer", ["rath", "own"])
def test_with_durability_sync_a_message_stands_before_the_call_that_it_asks_for(store: Store, checkpointer: str) -> None:
    own = InMemorySaver() if checkpointer == "own" else None
    graph = react(scripted(asks("add", "c1", a=1, b=2), asks("add", "c2", a=3, b=4), "done"), checkpointer=own)
    app = wrap(graph, store, session="s", checkpointer=None if own else "rath")
    app.invoke({"messages": [HumanMessage("go")]}, thread(), durability="sync")
    told = [c.kind for c in store.session("s") if c.kind in ("inference", "message", "tool_call", "tool_result")]
    turn = ["inference", "message", "tool_call", "tool_result", "message"]
    assert told == ["message", *turn, *turn, "inference", "message"]
