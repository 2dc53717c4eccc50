"""Forks and merges of graphs: the state goes along, and two branches become one by the graph's own reducers."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict, cast

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.graph.message import _messages_delta_reducer  # pyright: ignore[reportPrivateUsage]
from pydantic import BaseModel

import rath_bridge as rb
from rath_bridge.errors import MergeConflict
from rath_bridge.session import Session, Store
from rath_langgraph import RathSaver, merge_state, wrap
from tests.cli_store import run
from tests.langgraph.graphs import chat, echo


@pytest.fixture
def store() -> Iterator[Store]:
    with rb.open_store("memory:") as opened:
        yield opened


class Desk(TypedDict):
    """Messages, what adds up, and what does not."""

    messages: Annotated[list[AnyMessage], add_messages]
    cost: Annotated[int, operator.add]
    seen: Annotated[set[str], operator.or_]
    title: str
    owner: str


def desk(**compiled: Any) -> Any:
    """Every turn answers, costs one, and sets what the message tells it to."""

    def bot(state: Desk) -> dict[str, Any]:
        text = str(state["messages"][-1].content)
        told = dict(part.split("=", 1) for part in text.split() if "=" in part)
        return {"messages": [AIMessage(f"ok: {text}")], "cost": 1, "seen": {text}, **told}

    graph = StateGraph(Desk).add_node("bot", bot).add_edge(START, "bot").add_edge("bot", END)
    return graph.compile(**compiled)


def branches(app: Any, store: Store, ours: str, theirs: str) -> tuple[Session, Session]:
    session = app(store.create("ticket").append(rb.message("user", "title=first")))
    other = session.fork("try-b")
    return app(session.append(rb.message("user", ours))), app(other.append(rb.message("user", theirs)))


def state(app: Any, session: Session) -> Any:
    return app.get_state({"configurable": {"thread_id": session.name}}).values


@pytest.mark.parametrize("kind", ["rath", "own"])
def test_a_fork_goes_on_from_the_state_it_was_forked_at(store: Store, kind: str) -> None:
    app = wrap(desk(), store, checkpointer="rath") if kind == "rath" else wrap(desk(checkpointer=InMemorySaver()), store)
    ours, theirs = branches(app, store, "a", "b")
    assert state(app, theirs)["title"] == "first"
    assert state(app, theirs)["cost"] == 2
    assert [m.text for m in theirs.messages()] == ["title=first", "ok: title=first", "b", "ok: b"]
    assert [m.text for m in ours.messages()] == ["title=first", "ok: title=first", "a", "ok: a"]
    assert state(app, ours)["seen"] == {"title=first", "a"}
    assert [m.content for m in state(app, theirs)["messages"]] == [m.text for m in theirs.messages()]
    assert theirs.fsck() == []


@pytest.mark.parametrize("kind", ["rath", "own"])
def test_two_branches_become_one_by_the_graphs_own_reducers(store: Store, kind: str) -> None:
    app = wrap(desk(), store, checkpointer="rath") if kind == "rath" else wrap(desk(checkpointer=InMemorySaver()), store)
    ours, theirs = branches(app, store, "owner=ann", "title=second")
    merged = ours.merge(theirs, strategy="state", merge_state=app.merge_state)
    said = ["title=first", "ok: title=first", "owner=ann", "ok: owner=ann", "title=second", "ok: title=second"]
    assert [m.text for m in merged.messages()] == said
    found = next(c.body for c in merged.chunks() if c.kind == "merge")
    assert (found.strategy, found.state) == ("state", "merged")  # type: ignore[attr-defined]
    native = RathSaver(store).get_tuple({"configurable": {"thread_id": "ticket"}})
    assert native is not None
    held = native.checkpoint["channel_values"]
    assert (held["cost"], held["title"], held["owner"]) == (3, "second", "ann")
    assert held["seen"] == {"title=first", "owner=ann", "title=second"}
    assert [m.content for m in held["messages"]] == said
    again = app(merged.append(rb.message("user", "go on")))
    assert state(app, again)["cost"] == 4
    assert [m.text for m in again.messages()] == [*said, "go on", "ok: go on"]
    assert [m.content for m in state(app, again)["messages"]] == [m.text for m in again.messages()]
    assert again.fsck() == []
    assert again.merge(theirs, strategy="state", merge_state=app.merge_state) == again  # it is in already


def test_all_conflicts_are_listed_and_nothing_is_written(store: Store) -> None:
    app = wrap(desk(), store, checkpointer="rath")
    ours, theirs = branches(app, store, "title=a owner=x", "title=b owner=y")
    with pytest.raises(MergeConflict) as caught:
        ours.merge(theirs, strategy="state", merge_state=app.merge_state)
    assert sorted(caught.value.conflicts) == [
        "state['owner']: ours has 'x', theirs has 'y'",
        "state['title']: ours has 'a', theirs has 'b'",
    ]
    assert ours.latest() == ours
    merged = ours.merge(theirs)  # the default folds it in as a block
    assert merged.messages()[-1].name == "merge"


def test_a_message_that_both_sides_edited_is_a_conflict(store: Store) -> None:
    app = wrap(desk(), store, checkpointer="rath")
    ours, theirs = branches(app, store, "a", "b")
    first = state(app, ours)["messages"][0].id
    for session, text in ((ours, "mine"), (theirs, "yours")):
        with rb.record(store, session.name):
            app.update_state({"configurable": {"thread_id": session.name}}, {"messages": [HumanMessage(text, id=first)]})
    with pytest.raises(MergeConflict, match=r"state\['messages'\]\[0\]: ours has 'mine', theirs has 'yours'"):
        ours.latest().merge(theirs.latest(), strategy="state", merge_state=app.merge_state)


def test_without_a_graph_messages_are_merged_and_the_rest_is_a_conflict(store: Store) -> None:
    app = wrap(chat(echo), store, checkpointer="rath")
    ours, theirs = branches(app, store, "a", "b")
    merged = ours.merge(theirs, strategy="state", merge_state=merge_state(store))
    assert [m.text for m in merged.messages()][-4:] == ["a", "you said: a", "b", "you said: b"]
    with pytest.raises(ValueError, match=r"merge_state=app\.merge_state"):
        ours.merge(theirs, strategy="state")


def test_what_another_framework_said_on_the_branch_comes_as_a_block(store: Store) -> None:
    app = wrap(chat(echo), store, checkpointer="rath")
    ours, theirs = branches(app, store, "a", "b")
    theirs = theirs.append(rb.message("assistant", "from elsewhere"))
    merged = ours.merge(theirs, strategy="state", merge_state=app.merge_state)
    assert [m.text for m in merged.messages()][-2:] == ["b", "you said: b"]
    block = next(m for m in merged.messages() if m.name == "merge")
    assert "from elsewhere" in block.text


class Slow(TypedDict):
    """Messages in a delta channel."""

    messages: Annotated[list[AnyMessage], DeltaChannel(cast(Any, _messages_delta_reducer))]


def test_delta_channels_are_rebuilt_and_merged(store: Store) -> None:
    def bot(state: Slow) -> dict[str, Any]:
        text = state["messages"][-1].content
        return {"messages": [AIMessage(f"ok: {text}", id=f"to-{text}")]}

    app = wrap(StateGraph(Slow).add_node("bot", bot).add_edge(START, "bot").compile(), store, checkpointer="rath")
    saver: Any = app.checkpointer
    for thread, text in (("t", "one"), ("t", "two")):
        app.invoke({"messages": [HumanMessage(text, id=text)]}, {"configurable": {"thread_id": thread}})
    saver.copy_thread("t", "u")
    for thread, text in (("t", "ours"), ("u", "theirs")):
        app.invoke({"messages": [HumanMessage(text, id=text)]}, {"configurable": {"thread_id": thread}})
    ours, theirs = store.session("langgraph/t"), store.session("langgraph/u")
    ours.merge(theirs, strategy="state", merge_state=app.merge_state)
    held = app.get_state({"configurable": {"thread_id": "t"}}).values["messages"]
    assert [m.content for m in held] == ["one", "ok: one", "two", "ok: two", "ours", "ok: ours", "theirs", "ok: theirs"]
    app.invoke({"messages": [HumanMessage("on", id="on")]}, {"configurable": {"thread_id": "t"}})
    assert len(app.get_state({"configurable": {"thread_id": "t"}}).values["messages"]) == 10


class Order(BaseModel):
    """A pydantic state."""

    messages: Annotated[list[AnyMessage], add_messages] = []
    paid: Annotated[list[int], operator.add] = []
    note: str = ""


@dataclass
class Parcel:
    """A dataclass state."""

    messages: Annotated[list[AnyMessage], add_messages]
    paid: Annotated[list[int], operator.add]
    note: str = ""


@pytest.mark.parametrize("kind", [Order, Parcel])
def test_pydantic_and_dataclass_states_fork_and_merge(store: Store, kind: type[Any]) -> None:
    def bot(state: Any) -> dict[str, Any]:
        return {"messages": [AIMessage("ok")], "paid": [len(state.messages)], "note": state.messages[-1].content}

    graph: Any = StateGraph(kind).add_node("bot", bot).add_edge(START, "bot")
    app = wrap(graph.compile(), store, checkpointer="rath")
    ours, theirs = branches(app, store, "a", "b")
    with pytest.raises(MergeConflict, match="note"):
        ours.merge(theirs, strategy="state", merge_state=app.merge_state)
    with rb.record(store, theirs.name):
        app.update_state({"configurable": {"thread_id": theirs.name}}, {"note": "title=first"})
    merged = ours.merge(theirs.latest(), strategy="state", merge_state=app.merge_state)
    assert state(app, merged)["paid"] == [1, 3, 3]
    assert state(app, merged)["note"] == "a"


def test_the_merge_command_says_whose_state_goes_on_and_how_states_are_merged(sqlite_url: str) -> None:
    with rb.open_store(sqlite_url) as store:
        branches(wrap(desk(), store, checkpointer="rath"), store, "a", "b")
        plain = store.create("plain").append(rb.message("user", "no graph"))
        plain.fork("x").append(rb.message("user", "nor here"))
    call = 'ours.merge(theirs, strategy="state", merge_state=app.merge_state)'
    for options in (["--dry-run"], []):
        said = " ".join(run("merge", "ticket", "try-b", *options, store=sqlite_url).stdout.split())
        assert call in said
        assert "this line's own" in said
    assert call not in " ".join(run("merge", "ticket", "try-b", store=sqlite_url).stdout.split())  # nothing is left to merge
    assert "merge_state" not in run("merge", "plain", "x", store=sqlite_url).stdout


def test_a_thread_that_bears_the_name_of_a_branch_begins_empty_and_says_so(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    app = chat(echo, checkpointer=RathSaver(store, session="ticket"))
    hello: Any = {"messages": [("user", "hello")]}
    app.invoke(hello, {"configurable": {"thread_id": "t"}})
    fork = store.session("ticket").fork("b")
    assert caplog.text == ""
    for thread in ("b", "ticket@b"):
        caplog.clear()
        app.invoke(hello, {"configurable": {"thread_id": thread}})
        assert f"thread '{thread}' begins empty: it bears the name of branch ticket@b" in caplog.text
        assert caplog.text.count("begins empty") == 1
    caplog.clear()
    wrapped = wrap(chat(echo), store, checkpointer="rath")
    later = wrapped(store.session("ticket").fork("c").append(rb.message("user", "more")))
    assert wrapped.get_state({"configurable": {"thread_id": "ticket@c"}}).values["messages"][-1].content == "you said: more"
    for odd in ("@", "a@b@c", "\ud800@x", "ticket@main", "nobody@b"):
        app.invoke(hello, {"configurable": {"thread_id": odd}})
    assert caplog.text == ""
    assert later.name == "ticket@c"
    assert fork.name == "ticket@b"
