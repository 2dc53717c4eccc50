"""Time travel of a wrapped graph: recorded on a branch of its own, forked, merged, replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

import rath_bridge as rb
from rath_bridge.session import Session, Store
from rath_langgraph import wrap
from tests.langgraph.graphs import react, thread

RAN: list[str] = []


@pytest.fixture
def store() -> Iterator[Store]:
    with rb.open_store("memory:") as opened:
        yield opened


class Model(GenericFakeChatModel):
    """Tells when it is called."""

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        RAN.append("model")
        return super()._generate(*args, **kwargs)


def travelled(store: Store, checkpointer: str) -> tuple[Any, Callable[[], Any]]:
    """A graph, and what is done with it: two turns, and a third from behind the first."""
    own = InMemorySaver() if checkpointer == "own" else None
    model = Model(messages=(AIMessage(text) for text in cycle(["one", "two", "three"])))
    app = wrap(react(model, [], checkpointer=own), store, session="s", checkpointer=None if own else "rath")

    def run() -> list[str]:
        app.invoke({"messages": [HumanMessage("a", id="a")]}, thread())
        old = app.get_state(thread()).config
        app.invoke({"messages": [HumanMessage("b", id="b")]}, thread())
        return [m.content for m in app.invoke({"messages": [HumanMessage("c", id="c")]}, old)["messages"]]

    return app, run


def lines(store: Store) -> tuple[Session, Session]:
    """The main branch, and the one that the third turn opened."""
    (other,) = [name for name in store.session("s").heads() if name != "main"]
    return store.session("s"), store.session(f"s@{other}")


def said(session: Session) -> list[str]:
    return [message.text for message in session.messages()]


@pytest.mark.parametrize("checkpointer", ["rath", "own"])
def test_time_travel_is_replayed_on_its_branches(store: Store, checkpointer: str) -> None:
    _, run = travelled(store, checkpointer)
    assert run() == ["a", "one", "c", "three"]
    main, other = lines(store)
    assert (said(main), said(other)) == (["a", "one", "b", "two"], ["a", "one", "c", "three"])
    RAN.clear()
    report = rb.replay(main, run)
    assert report.divergence is None
    assert (report.equal, report.live, report.unused, RAN) == (True, 0, (), [])
    assert report.value == ["a", "one", "c", "three"]


def test_a_branch_of_time_travel_is_forked_gone_on_with_and_merged_by_the_reducers(store: Store) -> None:
    _, run = travelled(store, "rath")
    run()
    main, other = lines(store)
    app = wrap(react(Model(messages=iter([AIMessage("four"), AIMessage("five")])), []), store, checkpointer="rath")
    forked = app(other.fork("mine").append(rb.message("user", "d")))
    assert said(forked) == ["a", "one", "c", "three", "d", "four"]
    merged = main.merge(other, strategy="state", merge_state=app.merge_state)
    assert said(merged) == ["a", "one", "b", "two", "c", "three"]
    assert said(app(merged.append(rb.message("user", "e"))))[-2:] == ["e", "five"]
    assert not list(store.fsck())
