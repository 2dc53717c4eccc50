"""Copies, pruning, deletes by run, delta channels: in real graphs, on every store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

import rath_bridge as rb
from rath_bridge.errors import NameInUseError
from rath_bridge.session import Store
from rath_langgraph import RathSaver
from tests.langgraph.graphs import asking, chat, echo, thread


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with rb.open_store(store_url) as opened:
        yield opened


def texts(session: Any) -> list[str]:
    return [m.text for m in session.messages()]


def said(app: Any, name: str = "1") -> list[str]:
    return [m.content for m in app.get_state(thread(name)).values.get("messages", [])]


def test_a_copied_thread_goes_on_by_itself(store: Store) -> None:
    # langchain-ai/langgraph/issues/7859, 8531: copying took minutes, where it exists at all
    app = chat(echo, checkpointer=RathSaver(store))
    app.invoke({"messages": [("user", "base")]}, thread())
    app.checkpointer.copy_thread("1", "copy")
    before = len(list(store.session("langgraph/1").chunks()))
    assert len(list(store.session("langgraph/copy").chunks())) == before + 1  # one chunk says that it was forked
    app.invoke({"messages": [("user", "here")]}, thread("copy"))
    app.invoke({"messages": [("user", "there")]}, thread())
    assert said(app, "copy")[2:] == ["here", "you said: here"]
    assert said(app)[2:] == ["there", "you said: there"]
    assert texts(store.session("langgraph/copy")) == said(app, "copy")
    assert texts(store.session("langgraph/1")) == said(app)
    assert [list(store.session(f"langgraph/{name}").heads()) for name in ("1", "copy")] == [["main"]] * 2
    assert store.session("langgraph/copy").fsck() == []
    with pytest.raises(NameInUseError, match="copy"):
        app.checkpointer.copy_thread("1", "copy")


def test_a_copy_stays_whole_when_its_source_is_deleted(store: Store) -> None:
    app = asking(checkpointer=RathSaver(store))
    app.invoke({"messages": [("user", "write")], "note": ""}, thread())
    app.checkpointer.copy_thread("1", "2")
    app.checkpointer.delete_thread("1")
    assert said(app) == []
    again = asking(checkpointer=RathSaver(store))  # nothing in memory
    assert again.invoke(Command(resume="yes"), thread("2"))["note"] == "reviewed: yes"
    assert texts(store.session("langgraph/2")) == ["write", "answer was yes"]


def test_a_copied_subgraph_history_is_found(store: Store) -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("child", chat(echo, checkpointer=True))
    graph.add_edge(START, "child")
    app: Any = graph.compile(checkpointer=RathSaver(store))
    app.invoke({"messages": [("user", "one")]}, thread())
    app.checkpointer.copy_thread("1", "2")
    app.invoke({"messages": [("user", "two")]}, thread("2"))
    ids = [[t.checkpoint["id"] for t in app.checkpointer.list(thread(name, checkpoint_ns="child"))] for name in "12"]
    assert ids[1][-len(ids[0]) :] == ids[0]
    assert len(ids[1]) == 2 * len(ids[0])


def test_a_copy_in_a_named_session_is_a_branch_of_it(store: Store) -> None:
    app = chat(echo, checkpointer=RathSaver(store, session="mine"))
    app.invoke({"messages": [("user", "base")]}, thread())
    app.checkpointer.copy_thread("1", "2")
    app.invoke({"messages": [("user", "here")]}, thread("2"))
    heads = store.session("mine").heads()
    assert [name.partition("-")[0] for name in heads] == ["main", "copy"]
    assert texts(store.session("mine")) == ["base", "you said: base"]
    assert texts(store.session(f"mine@{list(heads)[1]}"))[2:] == ["here", "you said: here"]


def test_pruning_keeps_what_a_thread_goes_on_from(store: Store) -> None:
    app = chat(echo, checkpointer=RathSaver(store))
    for text in ("one", "two", "three"):
        app.invoke({"messages": [("user", text)]}, thread())
    app.checkpointer.prune(["1", "nothing"])
    assert len(list(app.checkpointer.list(thread()))) == 1
    app.invoke({"messages": [("user", "four")]}, thread())
    assert said(app)[::2] == ["one", "two", "three", "four"]
    assert texts(store.session("langgraph/1")) == said(app)
    with pytest.raises(ValueError, match="keep_latest"):
        app.checkpointer.prune(["1"], strategy="oldest")
    app.checkpointer.prune(["1"], strategy="delete")
    assert said(app) == []


def test_pruning_takes_the_calls_of_subgraphs_with_their_root(store: Store) -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("child", chat(echo))
    graph.add_edge(START, "child")
    app: Any = graph.compile(checkpointer=RathSaver(store))
    app.invoke({"messages": [("user", "one")]}, thread())
    assert {t.config["configurable"]["checkpoint_ns"].partition(":")[0] for t in app.checkpointer.list(thread())} == {"", "child"}
    app.checkpointer.prune(["1"])
    assert [t.config["configurable"]["checkpoint_ns"] for t in app.checkpointer.list(thread())] == [""]


def grow(state: list[str], writes: list[list[str]]) -> list[str]:
    return [*state, *(item for write in writes for item in write)]


class State(TypedDict):
    items: Annotated[list[str], DeltaChannel(grow, snapshot_frequency=5)]  # pyright: ignore[reportArgumentType]


def delta(**compiled: Any) -> Any:
    """A graph whose list is kept as deltas, with a snapshot at every fifth update."""

    graph: Any = StateGraph(State)
    graph.add_node("work", lambda state: {"items": [f"after {len(state['items'])}"]})
    graph.add_edge(START, "work")
    return graph.compile(**compiled)


def test_pruning_never_breaks_a_thread_with_delta_channels(store: Store) -> None:
    # langchain-ai/langgraph/issues/8531: a naive keep_latest loses the list; PostgresSaver refuses
    app, other = delta(checkpointer=RathSaver(store)), delta(checkpointer=InMemorySaver())
    for turn in range(9):
        for one in (app, other):
            one.invoke({"items": [f"turn {turn}"]}, thread())
        if turn % 2:
            app.checkpointer.prune(["1"])
        assert app.get_state(thread()).values == other.get_state(thread()).values
    assert 1 <= len(list(app.checkpointer.list(thread()))) < 27
    app.checkpointer.copy_thread("1", "2")
    app.checkpointer.delete_thread("1")
    assert app.get_state(thread("2")).values == other.get_state(thread()).values


def test_delta_history_equals_what_langgraphs_walk_finds(store: Store) -> None:
    saver = RathSaver(store)
    app = delta(checkpointer=saver)
    for turn in range(7):
        app.invoke({"items": [f"turn {turn}"]}, thread())
    for found in saver.list(thread()):
        wanted = {"config": found.config, "channels": ["items", "nothing"]}
        ours: Any = saver.get_delta_channel_history(**wanted)  # type: ignore[arg-type]
        theirs = BaseCheckpointSaver.get_delta_channel_history(saver, **wanted)  # type: ignore[arg-type]
        assert ours == theirs


def test_checkpoints_of_a_run_are_deleted_wherever_they_are(store: Store) -> None:
    app = chat(echo, checkpointer=RathSaver(store))
    app.invoke({"messages": [("user", "one")]}, {**thread(), "metadata": {"run_id": "r1"}})
    app.invoke({"messages": [("user", "two")]}, {**thread(), "metadata": {"run_id": "r2"}})
    app.invoke({"messages": [("user", "other")]}, {**thread("2"), "metadata": {"run_id": "r2"}})
    app.checkpointer.delete_for_runs(["r2", "unknown"])
    assert said(app)[::2] == ["one"]
    assert said(app, "2") == []
    app.invoke({"messages": [HumanMessage("three")]}, thread())
    assert said(app)[::2] == ["one", "three"]


def test_messages_changed_in_place_are_seen(store: Store) -> None:
    def sly(state: MessagesState) -> dict[str, Any]:
        first = state["messages"][0]
        first.additional_kwargs["turns"] = len(state["messages"])
        first.additional_kwargs["flag"] = True if len(state["messages"]) < 4 else 1  # equal, not the same
        return {"messages": [AIMessage("ok")]}

    app = chat(sly, checkpointer=RathSaver(store))
    for turn in range(3):
        app.invoke({"messages": [HumanMessage(str(turn))]}, thread())
        kept = chat(sly, checkpointer=RathSaver(store)).get_state(thread()).values["messages"][0].additional_kwargs
        assert kept == {"turns": 2 * turn + 1, "flag": True}
        assert type(kept["flag"]) is (bool if turn < 2 else int)


def test_what_a_graph_does_to_loaded_messages_stays_with_it(store: Store) -> None:
    app = chat(echo, checkpointer=RathSaver(store))
    app.invoke({"messages": [HumanMessage("one", additional_kwargs={"deep": {"list": [1]}})]}, thread())
    for _ in range(3):
        loaded = app.get_state(thread()).values["messages"]
        assert loaded[0].additional_kwargs == {"deep": {"list": [1]}}
        loaded[0].additional_kwargs["deep"]["list"].append(2)
        loaded[0].content = "changed"
        loaded[1].response_metadata["x"] = 1
        loaded[0].model_fields_set.clear()
    assert said(app) == ["one", "you said: one"]
    assert app.get_state(thread()).values["messages"][1].response_metadata == {}
