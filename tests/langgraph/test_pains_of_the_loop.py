"""Reports that LangGraph's loop decides, above any checkpointer: with ours the same happens as with the saver that ships with it.

What is wrong in them is not asserted, so that a LangGraph that mends it stays green here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypedDict

import pytest
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import CachePolicy, interrupt

import rath_bridge as rb
from rath_bridge.session import Store
from rath_langgraph import RathSaver
from tests.langgraph.graphs import thread


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with rb.open_store(store_url) as opened:
        yield opened


def marks(ran: list[str], name: str) -> Any:
    def node(state: Any) -> Any:
        ran.append(name)
        return {name: True}

    return node


@pytest.mark.parametrize("behind", ["a", "b"])
def test_8458_a_replay_from_inside_a_subgraph_runs_the_same_nodes(store: Store, behind: str) -> None:
    # langchain-ai/langgraph/issues/8458: since 1.1.7 such a replay begins the subgraph anew
    def ran_by(saver: Any) -> list[list[str]]:
        ran: list[str] = []
        kind: Any = dict
        inner: Any = StateGraph(kind)
        for name in "abc":
            inner.add_node(name, marks(ran, name))
        inner.add_edge(START, "a").add_edge("a", "b").add_edge("b", "c")
        outer: Any = StateGraph(kind).add_node("sub", inner.compile())
        outer.add_node("review", lambda state: {"answer": interrupt("approve?")}).add_edge(START, "sub").add_edge("sub", "review")
        app = outer.compile(checkpointer=saver)
        app.invoke({"x": 1}, thread())
        found = [[*ran]]
        inside = (one for one in saver.list(thread()) if one.config["configurable"]["checkpoint_ns"].startswith("sub:"))
        old = next(one for one in inside if one.metadata["step"] == "ab".index(behind) + 1)
        place = old.config["configurable"]
        ran.clear()
        checkpoint_map = {**old.metadata["parents"], place["checkpoint_ns"]: place["checkpoint_id"]}
        app.invoke(None, {"configurable": {**place, "checkpoint_map": checkpoint_map}})
        return [*found, ran]

    assert ran_by(RathSaver(store)) == ran_by(InMemorySaver())


class Said(TypedDict, total=False):
    said: Any
    out: str


class HandlerA:
    def __call__(self, state: Said) -> Said:
        return {"out": "from A"}


class HandlerB:
    def __call__(self, state: Said) -> Said:
        return {"out": "from B"}


def cached(node: Any, cache: InMemoryCache[Any], saver: Any) -> Any:
    graph: Any = StateGraph(Said).add_node("node", node, cache_policy=CachePolicy()).add_edge(START, "node")
    return graph.compile(checkpointer=saver, cache=cache)


def test_8753_graphs_that_share_a_node_cache_answer_the_same(store: Store) -> None:
    # langchain-ai/langgraph/issues/8753: callables that are no functions share one namespace of the cache
    def answers(saver: Any) -> list[str]:
        cache: InMemoryCache[Any] = InMemoryCache()
        apps = [cached(handler(), cache, saver) for handler in (HandlerA, HandlerB)]
        return [app.invoke({"said": "hello"}, thread(f"{n}"))["out"] for n, app in enumerate((*apps, *apps))]

    assert answers(RathSaver(store)) == answers(InMemorySaver())


def test_8009_inputs_that_share_a_cache_key_are_answered_the_same(store: Store) -> None:
    # langchain-ai/langgraph/issues/8009: a dict and a list of its items have one key
    def answers(saver: Any) -> list[str]:
        app = cached(lambda state: {"out": type(state["said"]).__name__}, InMemoryCache(), saver)
        inputs: list[Any] = [{"a": 1}, [("a", 1)], [["a", 1]], {"a": 1}]
        return [app.invoke({"said": one}, thread(f"{n}"))["out"] for n, one in enumerate(inputs)]

    assert answers(RathSaver(store)) == answers(InMemorySaver())
