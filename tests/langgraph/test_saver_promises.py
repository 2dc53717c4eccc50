"""What `RathSaver` promises beside LangGraph's conformance suite: how it is opened, in which order writes count, who can read it."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict, cast

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import START, StateGraph

import rath_bridge as rb
from rath_bridge.session import Store
from rath_langgraph import RathSaver
from tests.langgraph.graphs import chat, echo, thread


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with rb.open_store(store_url) as opened:
        yield opened


def point(number: int, **values: Any) -> Any:
    return {
        **empty_checkpoint(), "id": f"{number:08}-0000-6000-8000-000000000000", "channel_values": values,
        "channel_versions": dict.fromkeys(values, number),
    }  # fmt: skip


def test_without_a_store_the_default_one_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATH_BRIDGE_STORE", f"sqlite:///{tmp_path / 'default.db'}")
    with RathSaver() as saver:
        chat(echo, checkpointer=saver).invoke({"messages": [("user", "kept")]}, thread())
    with rb.open_store() as store:
        assert [m.text for m in store.session("langgraph/1").messages()] == ["kept", "you said: kept"]


def test_writes_may_come_before_their_checkpoint(store: Store) -> None:
    saver = RathSaver(store)
    first = saver.put(thread(), point(1, x=1), {"source": "loop", "step": 0, "parents": {}}, {"x": 1})
    early: Any = thread(checkpoint_ns="", checkpoint_id=point(2)["id"])
    saver.put_writes(early, [("x", "first"), ("y", 2)], "task")
    saver.put_writes(early, [("x", "ignored"), ("y", 3)], "task")  # a task's writes stand as they came first
    saver.put_writes(early, [("__error__", "one")], "task")
    saver.put_writes(early, [("__error__", "two")], "task")  # special ones as they came last
    assert saver.get_tuple(early) is None
    saver.put(first, point(2, x=2), {"source": "loop", "step": 1, "parents": {}}, {"x": 2})
    found = saver.get_tuple(thread())
    assert found is not None
    assert sorted(found.pending_writes or ()) == [("task", "__error__", "two"), ("task", "x", "first"), ("task", "y", 2)]


def test_the_newest_is_the_greatest_id_and_the_last_put_of_an_id_counts(store: Store) -> None:
    saver = RathSaver(store)
    root = saver.put(thread(), point(1, x=1), {"source": "loop", "step": 0, "parents": {}}, {"x": 1})
    saver.put(root, point(3, x="late"), {"source": "loop", "step": 2, "parents": {}}, {"x": 3})
    saver.put(root, point(2, x="early"), {"source": "loop", "step": 1, "parents": {}}, {"x": 2})
    for reader in (saver, RathSaver(store)):
        newest = reader.get_tuple(thread())
        assert newest is not None
        assert newest.checkpoint["channel_values"] == {"x": "late"}
    saver.put(root, point(3, x="again"), {"source": "loop", "step": 2, "parents": {}}, {"x": 3})
    assert [t.checkpoint["channel_values"]["x"] for t in RathSaver(store).list(thread())] == ["again", "early", 1]


def test_shallow_copies_are_one_saver(store: Store) -> None:
    saver = RathSaver(store)
    app, other = chat(echo, checkpointer=saver), chat(echo, checkpointer=copy.copy(saver.with_allowlist(cast(Any, [Parcel]))))
    for turn in range(2):
        app.invoke({"messages": [("user", f"{turn} here")]}, thread())
        other.invoke({"messages": [("user", f"{turn} there")]}, thread())
    assert [m.text for m in store.session("langgraph/1").messages()][::2] == ["0 here", "0 there", "1 here", "1 there"]
    assert [ref.branch for ref in store.backend.refs("langgraph/1")] == ["main"]


@dataclass
class Parcel:
    """A value of a state."""

    weight: int


STRICT = """
from dataclasses import dataclass
from typing import TypedDict
from langgraph.checkpoint.serde import _msgpack
from langgraph.graph import START, StateGraph
import rath_bridge as rb
from rath_langgraph import RathSaver

assert _msgpack.STRICT_MSGPACK_ENABLED

@dataclass
class Parcel:
    weight: int

class State(TypedDict):
    parcel: Parcel

def weigh(state: State) -> State:
    return {"parcel": Parcel(state["parcel"].weight + 1)}

with rb.open_store("memory:") as store:
    app = StateGraph(State).add_node("weigh", weigh).add_edge(START, "weigh").compile(checkpointer=RathSaver(store))
    config = {"configurable": {"thread_id": "1"}}
    app.invoke({"parcel": Parcel(1)}, config)
    app.invoke(None, {"configurable": {**config["configurable"], "checkpoint_id": list(app.get_state_history(config))[1].config[
        "configurable"]["checkpoint_id"]}})
    assert app.get_state(config).values == {"parcel": Parcel(2)}
"""


def test_langgraphs_strict_mode_builds_the_classes_of_the_state() -> None:
    subprocess.run([sys.executable, "-c", STRICT], check=True, timeout=60, env={**os.environ, "LANGGRAPH_STRICT_MSGPACK": "true"})


def test_bytes_are_linear_where_the_state_keeps_the_last_messages(tmp_path: Path) -> None:
    path = tmp_path / "s.db"

    def last(old: list[Any], new: list[Any]) -> list[Any]:
        return [*old, *new][-10:]

    kind: Any = TypedDict("kind", {"messages": Annotated[list[Any], last]})
    graph: Any = StateGraph(kind).add_node("bot", lambda state: {"messages": [AIMessage(os.urandom(400).hex())]})
    sizes: list[int] = []
    with RathSaver.from_conn_string(f"sqlite:///{path}") as saver:
        app = graph.add_edge(START, "bot").compile(checkpointer=saver)
        for turn in range(90):
            app.invoke({"messages": [HumanMessage(os.urandom(400).hex())]}, thread())
            if turn in (29, 59, 89):
                saver.store.backend._link(0).connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # type: ignore[attr-defined]
                sizes.append(path.stat().st_size)
        assert len(app.get_state(thread()).values["messages"]) == 10
    assert sizes[2] - sizes[1] < 30 * 1_600 * 4
    assert sizes[2] - sizes[1] < 1.3 * (sizes[1] - sizes[0])


WITHOUT = """
import sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("langgraph", "langchain_core", "ormsgpack"):
            raise ImportError(name)

sys.meta_path.insert(0, Nothing())
import rath_bridge as rb

with rb.open_store(sys.argv[1]) as store:
    session = store.session("langgraph/1")
    assert [m.text for m in session.messages()] == ["hello", "you said: hello"], session.messages()
    assert list(session.log())
    items, report = rb.encode(session, "openai_agents")
    assert [item["content"] for item in items][:1] == ["hello"], items
    assert session.fsck() == []
"""


def test_what_was_said_is_read_where_langgraph_is_not_installed(sqlite_url: str) -> None:
    with RathSaver.from_conn_string(sqlite_url) as saver:
        chat(echo, checkpointer=saver).invoke({"messages": [("user", "hello")]}, thread())
    subprocess.run([sys.executable, "-c", WITHOUT, sqlite_url], check=True, timeout=60)
