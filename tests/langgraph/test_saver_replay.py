"""A saver that was made outside of a replay and is used inside it sees the scratch; afterwards, the user's store again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

import rath_bridge as rb
from rath_bridge.session import Store
from rath_langgraph import RathSaver
from tests.langgraph.graphs import chat, echo, thread


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, sqlite_url: str) -> Iterator[Store]:
    with rb.open_store("memory:" if request.param == "memory" else sqlite_url) as opened:
        yield opened


def say(app: Any, text: str) -> list[str]:
    return [m.content for m in app.invoke({"messages": [HumanMessage(text, id=text)]}, thread())["messages"]]


def test_a_replay_writes_nothing_and_leaves_nothing_in_the_saver(store: Store) -> None:
    app = chat(echo, checkpointer=RathSaver(store, session="ticket"))
    both = ["one", "you said: one", "two", "you said: two"]
    assert [say(app, "one"), say(app, "two")][-1] == both
    before = [(ref.name, ref.head) for ref in store.backend.refs()], list(app.checkpointer.list(None))
    seen: list[list[str]] = []

    def run() -> None:
        assert app.get_state(thread()).values == {}  # the record has not happened yet
        seen.extend([say(app, "one"), say(app, "two")])

    report = rb.replay(store.session("ticket"), run)
    assert seen[-1] == both
    assert report.equal, report.divergence
    assert ([(ref.name, ref.head) for ref in store.backend.refs()], list(app.checkpointer.list(None))) == before
    changed = rb.replay(store.session("ticket"), lambda: say(app, "another"))
    assert not changed.equal
    assert say(app, "three") == [*both, "three", "you said: three"]
    assert [m.text for m in store.session("ticket").messages()] == [*both, "three", "you said: three"]
    assert list(store.session("ticket").heads()) == ["main"]
