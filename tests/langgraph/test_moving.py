"""Threads move in and out, whole, and a live application changes one line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

import rath_bridge as rb
from rath_bridge.errors import MissingSessionError
from rath_bridge.session import Store
from rath_langgraph import RathSaver, export_thread, import_thread
from tests.langgraph.graphs import asking, asks, chat, echo, react, scripted, thread
from tests.langgraph.test_upkeep import delta


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with rb.open_store(store_url) as opened:
        yield opened


def listed(saver: Any, name: str = "1") -> list[Any]:
    """All that ``list`` shows of a thread, its id left out."""
    return [
        (
            t.config["configurable"]["checkpoint_ns"], t.checkpoint, dict(t.metadata), t.pending_writes,
            t.parent_config and t.parent_config["configurable"]["checkpoint_id"],
        )
        for t in sorted(saver.list(thread(name)), key=lambda t: t.checkpoint["id"], reverse=True)  # InMemorySaver: by namespace
    ]  # fmt: skip


def texts(session: Any) -> list[str]:
    return [m.text for m in session.messages()]


def test_a_thread_of_an_sqlite_file_comes_over_and_goes_back(store: Store, tmp_path: Path) -> None:
    with SqliteSaver.from_conn_string(str(tmp_path / "old.db")) as old:
        app = react(scripted(asks("add", "c1", a=1, b=2), "three", "four"), checkpointer=old)
        app.invoke({"messages": [HumanMessage("1 + 2?", id="h")]}, {**thread(), "metadata": {"tenant": "a"}})
        changed = app.update_state(
            next(s for s in app.get_state_history(thread()) if s.next == ("tools",)).config, {"messages": []}
        )
        app.invoke(None, changed)
        done: list[int] = []
        assert import_thread(old, store, "1", progress=lambda count, total: done.append(total - count)) == len(listed(old))
        assert done == [*range(len(listed(old)))][::-1]
        assert listed(RathSaver(store)) == listed(old)
        assert import_thread(old, store, "1") == 0  # once more: nothing is missing
        back = InMemorySaver()
        export_thread(store, "1", back, target_id="back")
        assert listed(back, "back") == listed(old)
        with pytest.raises(MissingSessionError, match="thread 'nobody'"):
            import_thread(old, store, "nobody")
    assert texts(store.session("langgraph/1"))[:1] == ["1 + 2?"]
    assert len(store.session("langgraph/1").heads()) == 2
    assert store.session("langgraph/1").fsck() == []


def test_an_import_that_was_interrupted_goes_on(store: Store) -> None:
    old = InMemorySaver()
    app = chat(echo, checkpointer=old)
    for text in "abc":
        app.invoke({"messages": [("user", text)]}, thread())

    def stop(count: int, total: int) -> None:
        if count == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_thread(old, store, "1", progress=stop)
    assert import_thread(old, store, "1") == len(listed(old)) - 4
    assert listed(RathSaver(store)) == listed(old)
    assert texts(store.session("langgraph/1"))[::2] == ["a", "b", "c"]


def test_subgraphs_interrupts_and_deltas_come_over(store: Store) -> None:
    old = InMemorySaver()
    graph = StateGraph(MessagesState)
    graph.add_node("child", chat(echo))
    graph.add_edge(START, "child")
    graph.compile(checkpointer=old).invoke({"messages": [("user", "sub")]}, thread("sub"))  # type: ignore[arg-type]
    asking(checkpointer=old).invoke({"messages": [("user", "write")], "note": ""}, thread("ask"))
    for turn in range(4):
        delta(checkpointer=old).invoke({"items": [str(turn)]}, thread("delta"))
    saver = RathSaver(store)
    for name in ("sub", "ask", "delta"):
        import_thread(old, saver, name)
        assert listed(saver, name) == listed(old, name)
    assert asking(checkpointer=saver).invoke(Command(resume="yes"), thread("ask"))["note"] == "reviewed: yes"
    assert delta(checkpointer=saver).get_state(thread("delta"))[0] == delta(checkpointer=old).get_state(thread("delta"))[0]


def test_a_live_application_changes_one_line(store: Store, tmp_path: Path) -> None:
    with SqliteSaver.from_conn_string(str(tmp_path / "old.db")) as old:
        chat(echo, checkpointer=old).invoke({"messages": [("user", "before")]}, thread())
        asking(checkpointer=old).invoke({"messages": [("user", "write")], "note": ""}, thread("ask"))
        before = listed(old)
        saver = RathSaver(store, fallback=old)
        app = chat(echo, checkpointer=saver)
        assert [m.content for m in app.get_state(thread()).values["messages"]] == ["before", "you said: before"]
        assert listed(saver) == before  # read through, nothing is written
        assert list(store.sessions()) == []
        app.invoke({"messages": [("user", "after")]}, thread())
        assert [m.content for m in app.get_state(thread()).values["messages"]][::2] == ["before", "after"]
        assert listed(saver)[3:] == before  # one history
        assert len(list(saver.list(thread(), limit=4))) == 4
        assert listed(old) == before
        assert texts(store.session("langgraph/1")) == ["before", "you said: before", "after", "you said: after"]
        assert asking(checkpointer=saver).invoke(Command(resume="yes"), thread("ask"))["note"] == "reviewed: yes"
        saver.copy_thread("1", "copy")
        assert len(listed(RathSaver(store), "copy")) == len(before) + 3
        saver.delete_thread("1")
        assert listed(saver) == listed(old) == []


def test_delta_channels_are_rebuilt_across_both_savers(store: Store) -> None:
    old, other = InMemorySaver(), InMemorySaver()
    for turn in range(3):
        for saver in (old, other):
            delta(checkpointer=saver).invoke({"items": [str(turn)]}, thread())
    both = RathSaver(store, fallback=old)
    for turn in range(3, 8):
        for saver in (both, other):
            delta(checkpointer=saver).invoke({"items": [str(turn)]}, thread())
        assert delta(checkpointer=both).get_state(thread()).values == delta(checkpointer=other).get_state(thread()).values
