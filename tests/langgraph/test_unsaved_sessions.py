"""Sessions on which a graph without a checkpointer goes on: what is said stands as it comes, and is there after a crash."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

import rath_bridge as rb
from rath_bridge.session import Store
from rath_langgraph import wrap
from tests.langgraph.graphs import asks, chat, echo, react, scripted
from tests.langgraph.test_unsaved import store, texts

__all__ = ["store"]


async def test_a_crash_on_a_session_keeps_what_was_said_in_its_order(store: Store) -> None:
    for name in ("sync", "async"):
        app = wrap(react(GenericFakeChatModel(messages=failing())), store)
        session = store.create(name).append(rb.message("user", "hello"))
        with pytest.raises(ConnectionError):
            app(session) if name == "sync" else await app.acall(session)
        kinds = [chunk.kind for chunk in session.latest().chunks() if chunk.kind in ("message", "inference", "tool_call")]
        assert kinds == ["message", "inference", "message", "tool_call", "message", "inference"]
        assert [message.role for message in session.latest().messages()] == ["user", "assistant", "tool"]
        again = wrap(react(scripted("3")), store)(session.latest())
        assert [message.role for message in again.messages()] == ["user", "assistant", "tool", "assistant"]


def failing() -> Iterator[AIMessage]:
    yield asks("add", "c1", a=1, b=2)
    raise ConnectionError("the net is down")


def test_a_session_goes_on_inside_of_a_node_of_another_graph(store: Store) -> None:
    inner = wrap(chat(echo), store)
    for name, options in {"none": {}, "saved": {"checkpointer": "rath"}}.items():
        given = store.create(f"in-{name}").append(rb.message("user", "hello"))
        outer = wrap(chat(lambda state, given=given: {"messages": [("ai", inner(given).messages()[-1].text)]}), store, **options)
        done = outer(store.create(f"out-{name}").append(rb.message("user", "begin")))
        assert texts(given.latest()) == [("user", "hello"), ("assistant", "you said: hello")]
        assert texts(done) == [("user", "begin"), ("assistant", "you said: hello")]


@pytest.mark.parametrize("old", [False, True])
def test_a_replay_on_a_session_is_equal_and_so_is_one_of_a_record_from_before(
    store: Store, old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = wrap(react(scripted(asks("add", "c1", a=1, b=2), "3", "4")), store)
    session = store.create("s").append(rb.message("user", "hello"))
    with monkeypatch.context() as patched:
        if old:
            patched.setattr("rath_langgraph.record.unsaved_spot", lambda graph: None)
        session = app(app(session).append(rb.message("user", "more")))
    assert len(session.messages()) == 6
    report = rb.replay(session, lambda s: app(app(s).append(rb.message("user", "more"))))
    assert report.equal, report
    assert report.live == 0
