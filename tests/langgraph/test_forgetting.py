"""What is deleted is gone, with nothing of it left in the store's bytes; what others stand on stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

import rath_bridge as rb
from rath_bridge.model.chunk import Key
from rath_bridge.model.kinds import Redaction
from rath_bridge.session import Store
from rath_langgraph import RathSaver
from tests.langgraph.graphs import chat, echo, react, scripted, thread

SECRET = "the secret of thread one " * 40


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with rb.open_store(store_url) as opened:
        yield opened


def say(app: Any, text: str, name: str = "1", **metadata: Any) -> None:
    app.invoke({"messages": [HumanMessage(text)]}, {**thread(name), "metadata": metadata})


def texts(session: rb.Session) -> list[str]:
    return [m.text for m in session.messages()]


def erased(session: rb.Session) -> list[str]:
    return [c.kind for c in session.chunks() if c.body_bytes is None]


def test_a_deleted_thread_leaves_one_boundary_in_a_shared_session(store: Store) -> None:
    session = store.create("ticket").append(rb.message("user", "before"))
    app = chat(echo, checkpointer=RathSaver(store, session="ticket"))
    say(app, SECRET)
    say(app, "kept", "2")
    length = len(store.session("ticket"))
    app.checkpointer.delete_thread("1")
    session = store.session("ticket")
    assert len(session) == length + 1
    boundary = session[-1].body
    assert isinstance(boundary, Redaction)
    assert boundary.reason == "thread '1' was deleted"
    assert sorted(boundary.targets) == sorted(c.id for c in session.chunks() if c.body_bytes is None)
    assert texts(session) == ["before", "kept", "you said: kept"]
    assert store.backend.scopes("langgraph", "1") == []
    assert list(app.checkpointer.list(thread())) == []
    assert session.fsck() == []
    say(app, "anew")
    assert texts(store.session("ticket"))[-2:] == ["anew", "you said: anew"]
    app.checkpointer.delete_thread("1")
    app.checkpointer.delete_thread("1")  # once more: nothing to do
    app.checkpointer.delete_thread("nobody")
    assert len([c for c in store.session("ticket").chunks() if c.kind == "redaction"]) == 2


def test_nothing_of_a_deleted_thread_is_left_in_the_file(sqlite_url: str) -> None:
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    with rb.open_store(sqlite_url) as store:
        app = chat(echo, checkpointer=RathSaver(store))
        say(app, "neutral text stands in clear: zxqvwk")
        assert any(b"zxqvwk" in file.read_bytes() for file in path.parent.iterdir())
        app.checkpointer.delete_thread("1")
        store.backend.scrub()
    assert not any(b"zxqvwk" in file.read_bytes() for file in path.parent.iterdir())


def test_calls_of_nested_runs_go_with_their_thread(store: Store) -> None:
    from rath_langgraph import wrap

    graph: Any = wrap(react(scripted("three")), store, checkpointer="rath")
    graph.invoke({"messages": [HumanMessage(SECRET)]}, thread())
    session = store.session("langgraph/1")
    assert "inference" in [c.kind for c in session.chunks()]
    graph.checkpointer.delete_thread("1")
    session = store.session("langgraph/1")
    assert [c.kind for c in session.chunks() if c.body_bytes is not None] == ["session", "redaction"]


def test_a_copied_thread_stays_whole(store: Store) -> None:
    app = chat(echo, checkpointer=RathSaver(store))
    say(app, SECRET)
    app.checkpointer.copy_thread("1", "2")
    say(app, "only in one")
    say(app, "only in two", "2")
    before = list(app.checkpointer.list(thread("2")))
    said = texts(store.session("langgraph/2"))
    app.checkpointer.delete_thread("1")
    assert list(app.checkpointer.list(thread("2"))) == before
    assert texts(store.session("langgraph/2")) == said
    assert texts(store.session("langgraph/1")) == []  # kept for the copy, no part of this transcript any more
    assert set(erased(store.session("langgraph/1"))) == {"checkpoint", "message", "task"}
    assert erased(store.session("langgraph/2")) == []
    say(app, "on", "2")
    app.checkpointer.delete_thread("2")
    assert texts(store.session("langgraph/2")) == []
    for name in ("langgraph/1", "langgraph/2"):  # nobody stands on the shared part any more
        left = [c.kind for c in store.session(name).chunks() if c.body_bytes is not None]
        assert set(left) <= {"session", "redaction", "compaction"}
        assert store.session(name).fsck() == []
    assert store.backend.scopes("langgraph-copy") == []


def test_deleting_a_copy_leaves_its_source_whole(store: Store) -> None:
    app = chat(echo, checkpointer=RathSaver(store, session="ticket"))
    say(app, "shared")
    app.checkpointer.copy_thread("1", "2")
    app.checkpointer.copy_thread("2", "3")
    say(app, SECRET, "2")
    say(app, "three", "3")
    before = [list(app.checkpointer.list(thread(name))) for name in ("1", "3")]
    app.checkpointer.delete_thread("2")
    assert [list(app.checkpointer.list(thread(name))) for name in ("1", "3")] == before
    assert texts(store.session("ticket")) == ["shared", "you said: shared"]
    shown = [texts(store.session(f"ticket@{name}")) for name in store.session("ticket").heads() if name != "main"]
    assert sorted(shown) == [[], ["shared", "you said: shared", "three", "you said: three"]]
    assert list(store.fsck()) == []


def test_a_copy_is_one_chunk_and_no_index_row(sqlite_url: str) -> None:
    import sqlite3

    def count() -> tuple[int, int]:
        with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as file:
            found = [file.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("rath_entry", "rath_chunk")]
        file.close()
        return found[0], found[1]

    with rb.open_store(sqlite_url) as store:
        app = chat(echo, checkpointer=RathSaver(store))
        for number in range(8):
            say(app, f"turn {number}")
            before = count()
            app.checkpointer.copy_thread("1", f"copy-{number}")
            assert count() == (before[0] + 2, before[1] + 1)  # where it begins, and that it does
            assert len(list(app.checkpointer.list(thread(f"copy-{number}")))) == 3 * (number + 1)


def test_a_deleted_run_takes_what_only_it_said(store: Store) -> None:
    app = chat(echo, checkpointer=RathSaver(store))
    say(app, "one", run_id="a")
    say(app, SECRET, run_id="b")
    app.checkpointer.delete_for_runs(["b", "unknown"])
    session = store.session("langgraph/1")
    assert texts(session) == ["one", "you said: one"]
    assert session[-1].kind == "redaction"
    assert [m.content for m in app.get_state(thread()).values["messages"]] == ["one", "you said: one"]
    say(app, "two", run_id="c")
    assert texts(store.session("langgraph/1")) == ["one", "you said: one", "two", "you said: two"]
    app.checkpointer.delete_for_runs(["a"])  # what a later checkpoint still holds stays
    assert texts(store.session("langgraph/1")) == ["one", "you said: one", "two", "you said: two"]
    assert [m.content for m in app.get_state(thread()).values["messages"]] == ["one", "you said: one", "two", "you said: two"]
    assert list(store.fsck()) == []


def test_a_pruned_thread_keeps_its_transcript(store: Store) -> None:
    app = chat(echo, checkpointer=RathSaver(store))
    for text in ("one", "two", "three"):
        say(app, text)
    said = texts(store.session("langgraph/1"))
    app.checkpointer.prune(["1"])
    session = store.session("langgraph/1")
    assert texts(session) == said
    assert set(erased(session)) == {"checkpoint", "task"}
    assert len([c for c in session.chunks() if c.kind == "checkpoint" and c.body_bytes is not None]) == 1
    say(app, "four")
    assert texts(store.session("langgraph/1")) == [*said, "four", "you said: four"]
    assert len(store.session("langgraph/1").heads()) == 1
    assert list(store.fsck()) == []


def test_a_delete_that_was_interrupted_is_done_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    app = chat(echo, checkpointer=RathSaver(store))
    say(app, SECRET)
    with monkeypatch.context() as patch:
        patch.setattr(type(store.backend), "erase", _dies)
        with pytest.raises(KeyboardInterrupt):
            app.checkpointer.delete_thread("1")
    assert store.backend.lookup(Key("langgraph", "1", "", "", "run")) is not None
    app.checkpointer.delete_thread("1")
    assert store.backend.scopes("langgraph", "1") == []
    assert "message" in erased(store.session("langgraph/1"))


def _dies(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


def test_another_process_notices_that_a_thread_was_deleted(sqlite_url: str) -> None:
    """Nothing that was erased is taken for stored by who has not erased it."""
    with rb.open_store(sqlite_url) as here, rb.open_store(sqlite_url) as there:
        app = chat(echo, checkpointer=RathSaver(here))
        said = [HumanMessage(SECRET, id="h")]
        app.invoke({"messages": said}, thread())
        RathSaver(there).delete_thread("1")
        assert app.get_state(thread()).values == {}
        app.invoke({"messages": said}, thread())
        assert texts(there.session("langgraph/1")) == [SECRET, f"you said: {SECRET}"]
        assert [m.content for m in chat(echo, checkpointer=RathSaver(there)).get_state(thread()).values["messages"]] == [
            SECRET, f"you said: {SECRET}",
        ]  # fmt: skip
        say(app, "more")
        RathSaver(there).prune(["1"])
        say(app, "and more")
        RathSaver(there).delete_for_runs(["nothing"])
        again = chat(echo, checkpointer=RathSaver(there)).get_state(thread()).values["messages"]
        assert [m.content for m in again][::2] == [SECRET, "more", "and more"]
        assert list(there.session("langgraph/1").heads()) == ["main"]
        assert list(there.fsck()) == []
