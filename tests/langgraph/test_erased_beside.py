"""What is erased beside a running `RathSaver`, by this process or another one, is gone for it, too: it has no memory of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Literal

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph

import rath_bridge as rb
from rath_bridge.errors import ErasedError
from rath_bridge.maintenance import find_text, prune, redact
from rath_langgraph import RathSaver
from tests.langgraph.graphs import thread

SECRET = "Katharina Blum"
SCRIPT = """
import sys
import rath_bridge as rb
from rath_bridge.maintenance import find_text, redact

with rb.open_store(sys.argv[1]) as store:
    hits = find_text(store.backend, sys.argv[2])
    assert hits.objects
    redact(store, hits.chunks, objects=hits.objects, reason="asked", scrub=False)
"""
Erase = Callable[[], None]


@pytest.fixture
def store(store_url: str) -> Iterator[rb.Store]:
    with rb.open_store(store_url) as opened:
        yield opened


@pytest.fixture(params=["same store", "another process"])
def erase(request: pytest.FixtureRequest, store: rb.Store, store_url: str) -> Erase:
    """Erase what says the secret, and leave the index as it is."""

    def here() -> None:
        hits = find_text(store.backend, SECRET)
        redact(store, hits.chunks, objects=hits.objects, reason="asked", scrub=False)

    def there() -> None:
        subprocess.run([sys.executable, "-c", SCRIPT, store_url, SECRET], check=True, timeout=60)

    if request.param == "another process" and store_url == "memory:":
        pytest.skip("a store in memory has one process")
    return here if request.param == "same store" else there


def graph(saver: RathSaver, between: Erase | None = None) -> Any:
    """Two nodes; something may happen between them."""

    def first(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"first: {len(state['messages'])}")]}

    def second(state: MessagesState) -> dict[str, Any]:
        if between is not None:
            between()
        return {"messages": [AIMessage(f"second: {len(state['messages'])}")]}

    made = StateGraph(MessagesState).add_node("first", first).add_node("second", second)
    made = made.add_edge(START, "first").add_edge("first", "second").add_edge("second", END)
    return made.compile(checkpointer=saver)


def test_what_was_erased_is_not_read_from_memory(store: rb.Store, erase: Erase) -> None:
    saver = RathSaver(store)
    app = graph(saver)
    app.invoke({"messages": [("user", f"I am {SECRET}")]}, thread())
    assert SECRET in str(app.get_state(thread()).values)
    erase()
    for read in (app, graph(RathSaver(store))):  # the one that has it in memory, and one that has not
        with pytest.raises(ErasedError):
            read.get_state(thread())
        with pytest.raises(ErasedError):
            list(read.get_state_history(thread()))
        with pytest.raises(ErasedError):
            read.invoke({"messages": [("user", "who am I?")]}, thread())


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_run_that_goes_on_writes_again_what_it_stands_on(store: rb.Store, erase: Erase, durability: Literal["sync"]) -> None:
    graph(RathSaver(store)).invoke({"messages": [("user", "before " * 40), ("user", f"I am {SECRET}")]}, thread())
    saver = RathSaver(store)
    app = graph(saver, erase)
    app.invoke({"messages": [("user", "go on " * 40)]}, thread(), durability=durability)
    plain = graph(RathSaver(store))
    held = plain.get_state(thread()).values["messages"]
    assert held == app.get_state(thread()).values["messages"]
    assert [m.content for m in held[-2:]] == ["first: 5", "second: 6"]
    assert plain.invoke({"messages": [("user", "and on")]}, thread())["messages"][-1].content == "second: 9"
    session = store.session("langgraph/1")
    assert list(store.fsck()) == []
    texts = [m.text for m in session.messages()]
    assert len(texts) == len(set(texts))  # nothing is said twice
    assert texts[-1] == "second: 9"


def test_a_boundary_that_is_drawn_beside_a_run(store: rb.Store) -> None:
    saver = RathSaver(store)

    def cut() -> None:
        time.sleep(0.01)
        prune(store, timedelta(0), scrub=False)

    app = graph(saver, cut)
    app.invoke({"messages": [("user", "old " * 200)]}, thread())
    assert len(graph(RathSaver(store)).get_state(thread()).values["messages"]) == 3
    assert list(store.fsck()) == []


def test_deleting_threads_beside_others_costs_those_nothing(store: rb.Store) -> None:
    saver = RathSaver(store)
    app = graph(saver)
    for name in ("stays", "goes"):
        app.invoke({"messages": [("user", f"{name} " * 200)]}, thread(name))
    before = store.backend.erasures()
    saver.delete_thread("goes")
    assert store.backend.erasures() == before
