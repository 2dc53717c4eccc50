"""as_node: any Session transform in a graph."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph

import rath_bridge as rb
from rath_bridge.errors import UnsupportedError
from rath_bridge.model.chunk import draft
from rath_bridge.model.kinds import Compaction, Inference, Usage
from rath_bridge.session import Session, Store
from rath_langgraph import as_node, wrap
from tests.langgraph.graphs import chat, echo, scripted, thread


@pytest.fixture
def store() -> Iterator[Store]:
    with rb.open_store("memory:") as opened:
        yield opened


def shout(session: Session) -> Session:
    """What an agent of another framework does: call a model, and say something."""
    text = session.messages()[-1].text.upper()
    return session.append(draft(Inference(usage=Usage(input_tokens=1, output_tokens=2))), rb.message("assistant", text))


def around(node: Any, **compiled: Any) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("before", lambda state: {"messages": [HumanMessage("think of it", id="b")]})
    graph.add_node("shout", node)
    graph.add_node("after", echo)
    graph.add_edge(START, "before")
    graph.add_edge("before", "shout")
    graph.add_edge("shout", "after")
    graph.add_edge("after", END)
    return graph.compile(**compiled)


SAID = ["hello", "think of it", "THINK OF IT", "you said: THINK OF IT"]


@pytest.mark.parametrize("kind", ["rath", "own", "none"])
def test_a_transform_is_a_node_and_every_message_stands_once(store: Store, kind: str) -> None:
    own = {"checkpointer": InMemorySaver()} if kind == "own" else {}
    app = wrap(around(as_node(shout), **own), store, session="s", checkpointer="rath" if kind == "rath" else None)
    out = app.invoke({"messages": [("user", "hello")]}, thread())
    assert [m.content for m in out["messages"]] == SAID
    session = store.session("s")
    if kind != "none":
        assert [m.text for m in session.messages()] == SAID
    assert session.usage().total_tokens == 3
    assert [name.rsplit("-", 1)[0] for name in session.heads() if name != "main"] == ["node-shout"]
    assert [c.body.strategy for c in session.chunks() if c.kind == "merge"] == ["ours"]  # type: ignore[attr-defined]
    assert session.fsck() == []


def test_a_wrapped_graph_is_a_node_of_another_graph(store: Store) -> None:
    inner = wrap(chat(lambda s: {"messages": [scripted("from inside").invoke(s["messages"])]}), store)
    app = wrap(around(as_node(inner, name="inner")), store, session="s", checkpointer="rath")
    out = asyncio.run(app.ainvoke({"messages": [("user", "hello")]}, thread()))
    assert [m.content for m in out["messages"]] == ["hello", "think of it", "from inside", "you said: from inside"]
    assert [m.text for m in store.session("s").messages()] == [m.content for m in out["messages"]]
    assert store.session("s").usage().total_tokens == 15


def test_without_a_recorder_it_works_in_memory() -> None:
    assert [m.content for m in around(as_node(shout)).invoke({"messages": [("user", "hello")]})["messages"]] == SAID


def test_a_transform_that_drops_messages_drops_them_from_the_state(store: Store) -> None:
    def compress(session: Session) -> Session:
        old = session.messages()
        said = session.append(rb.message("user", "summary", stands_for=tuple(m.id for m in old)))
        return said.append(draft(Compaction(dropped=tuple(m.id for m in old), stands=said.head, reason="summarised")))

    app = wrap(around(as_node(compress)), store, session="s", checkpointer="rath")
    out = app.invoke({"messages": [("user", "hello")]}, thread())
    assert [m.content for m in out["messages"]] == ["summary", "you said: summary"]
    assert [m.text for m in store.session("s").messages()] == ["summary", "you said: summary"]


def test_what_is_no_transform_is_named() -> None:
    with pytest.raises(UnsupportedError, match=r"as_node takes a transform .* not a int"):
        as_node(5)  # type: ignore[arg-type]
