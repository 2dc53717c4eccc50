"""``redact`` and ``prune`` of the core under real graphs: threads go on, and what is gone is not found or is told."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, RemoveMessage
from langgraph.graph import START, MessagesState, StateGraph

import rath_bridge as rb
from rath_bridge.errors import ErasedError
from rath_bridge.maintenance import find_text, prune, redact
from rath_bridge.model.chunk import now
from rath_bridge.plugins import adapters
from rath_langgraph import RathSaver
from tests.langgraph.test_upkeep import delta

CONFIG: Any = {"configurable": {"thread_id": "1"}}
SECRET = "Katharina Blum"


def chat(store: rb.Store) -> Any:
    def bot(state: MessagesState) -> Any:
        return {"messages": [AIMessage(f"re: {len(state['messages'])}")]}

    return StateGraph(MessagesState).add_node("bot", bot).add_edge(START, "bot").compile(checkpointer=RathSaver(store))


def pruned(store: rb.Store, moment: int) -> Any:
    needed: Any = adapters()["langgraph"].needed  # type: ignore[attr-defined]
    return prune(store, timedelta(microseconds=now() - moment), needed=[needed])


@pytest.fixture
def store(store_url: str) -> Any:
    with rb.open_store(store_url) as opened:
        yield opened


def test_a_thread_goes_on_from_behind_the_boundary(store: rb.Store) -> None:
    app = chat(store)
    for text in ("one", "two"):
        app.invoke({"messages": [("user", text * 300)]}, CONFIG)
    moment = now()
    time.sleep(0.01)
    app.invoke({"messages": [("user", "three")]}, CONFIG)
    whole = len(list(app.get_state_history(CONFIG)))
    done = pruned(store, moment)
    assert done.entries > 0
    fresh = chat(store)  # nothing in a cache
    assert 0 < len(list(fresh.get_state_history(CONFIG))) < whole
    assert len(fresh.get_state(CONFIG).values["messages"]) == 6  # the young state stands on old items: they stay
    assert len(fresh.invoke({"messages": [("user", "four")]}, CONFIG)["messages"]) == 8
    assert list(store.fsck()) == []
    assert [m.text for m in store.sessions()[0].messages()][-2:] == ["four", "re: 7"]


def test_a_boundary_never_breaks_a_delta_channel(store: rb.Store) -> None:
    app = delta(checkpointer=RathSaver(store))
    threads: list[Any] = [{"configurable": {"thread_id": f"{turns}"}} for turns in range(1, 6)]
    for turns, config in enumerate(threads, 1):
        for turn in range(turns):
            app.invoke({"items": [f"{turn}"]}, config)
    moment = now()
    time.sleep(0.01)
    for config in threads:
        app.invoke({"items": ["young"]}, config)
    after = [app.get_state(config).values for config in threads]
    assert pruned(store, moment).sessions
    fresh = delta(checkpointer=RathSaver(store))
    assert [fresh.get_state(config).values for config in threads] == after
    assert list(store.fsck()) == []


def test_a_message_that_was_removed_and_redacted_is_gone_and_the_thread_goes_on(store: rb.Store) -> None:
    app = chat(store)
    app.invoke({"messages": [("user", f"I am {SECRET}")]}, CONFIG)
    first = app.get_state(CONFIG).values["messages"][0].id
    app.invoke({"messages": [RemoveMessage(first), ("user", "who am I?")]}, CONFIG)
    hits = find_text(store.backend, SECRET)
    done = redact(store, hits.chunks, objects=hits.objects, reason="asked", by="ann", forget=True)
    assert done.forgotten > 0
    assert find_text(store.backend, SECRET) == type(hits)((), ())
    fresh = chat(store)
    assert [m.content for m in fresh.get_state(CONFIG).values["messages"]][1:] == ["who am I?", "re: 2"]
    assert all(SECRET not in str(one.values) for one in fresh.get_state_history(CONFIG))
    fresh.invoke({"messages": [("user", "and now?")]}, CONFIG)
    assert list(store.fsck()) == []


def test_a_state_that_holds_what_was_erased_is_told(store: rb.Store) -> None:
    chat(store).invoke({"messages": [("user", f"I am {SECRET}")]}, CONFIG)
    hits = find_text(store.backend, SECRET)
    redact(store, hits.chunks, objects=hits.objects, reason="asked")
    with pytest.raises(ErasedError):
        chat(store).get_state(CONFIG)
