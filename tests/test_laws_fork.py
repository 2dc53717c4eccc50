"""Law 3: a fork is a pointer. Law 6: what is detached is separate."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rath_bridge as rb
from rath_bridge.model.chunk import draft
from rath_bridge.model.kinds import Body, Compaction, Message, SessionStart
from rath_bridge.model.parts import TextPart
from rath_bridge.session import Session
from rath_bridge.store import connect
from rath_bridge.testing import strategies
from rath_bridge.testing.strategies import session_of
from rath_bridge.verbs.lineage import ancestors, holds


@given(strategies.transcripts(), st.data())
def test_a_fork_is_one_chunk_at_any_point_inclusive(bodies: tuple[Body, ...], data: st.DataObject) -> None:
    session = session_of(bodies)
    at = data.draw(st.integers(0, len(session) - 1))
    before = list(session.chunks())
    written = len(session.store.backend.find(""))
    fork = session.fork("b", at=before[at].id)
    assert list(fork.chunks())[:-1] == before[: at + 1]
    assert fork[-1].parents == (before[at].id,)  # the point is in the hash
    assert fork[-1].body == SessionStart(op="fork", name="made", branch="b", of="made")
    assert len(fork) == at + 2
    assert len(session.store.backend.find("")) <= written + 1
    assert fork.append(rb.message("user", "x")).fsck() == []
    assert list(session.latest().chunks()) == before


def rows(path: Path) -> dict[str, int]:
    with sqlite3.connect(path) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {name: db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}
    db.close()
    return found


@pytest.mark.parametrize("length", [10, 1000])
def test_a_fork_costs_the_same_however_long_the_line_is(tmp_path: Path, length: int) -> None:
    with rb.open_store(f"sqlite:///{tmp_path / 's.db'}") as store:
        session = store.create("s").append(*(rb.message("user", f"{i} said") for i in range(length)))
        session.fork("warm")
        before = rows(tmp_path / "s.db")
        session.fork("b", at=session[length // 2].id)
        after = rows(tmp_path / "s.db")
    grown = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert grown == {"rath_chunk": 1, "rath_ref": 1, "rath_line": 1, "rath_reflog": 1}


def test_a_hundred_forks_take_no_room_to_speak_of(tmp_path: Path) -> None:
    def size(path: Path) -> int:
        with sqlite3.connect(path) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.close()
        return path.stat().st_size

    path = tmp_path / "s.db"
    with rb.open_store(f"sqlite:///{path}", synchronous="OFF") as store:
        session = store.create("s").append(*(rb.message("user", f"{i} " + "%032x" % (i * 7919**9) * 60) for i in range(1000)))
    one = size(path)
    with rb.open_store(f"sqlite:///{path}", synchronous="OFF") as store:
        session = store.session("s")
        for i in range(100):
            session.fork(f"b{i}", at=session[i * 10].id)
    assert size(path) <= 1.1 * one


def test_a_fork_of_a_fork_of_a_fork(store_url: str) -> None:
    with rb.open_store(store_url) as store:
        session = store.create("s")
        for i in range(60):
            session = session.fork(f"b{i}").append(rb.message("user", str(i)))
        assert [m.text for m in session.messages()] == [str(i) for i in range(60)]
        assert session.fork(session="elsewhere").name == "elsewhere"
        assert session.fsck() == []


@given(strategies.transcripts())
def test_detached_is_separate(bodies: tuple[Body, ...]) -> None:
    session = session_of(bodies)
    fork = session.fork("b").append(rb.message("user", "aside"))
    session = session.merge(fork)
    copy = session.detach("copy")
    old = {chunk.id for chunk in ancestors(session.head, session.store.backend)}
    new = list(ancestors(copy.head, copy.store.backend))
    assert not old & {chunk.id for chunk in new}
    assert not old & {parent for chunk in new for parent in chunk.parents}
    assert [c.body_digest for c in copy.chunks()][1:] == [c.body_digest for c in session.chunks()]  # bodies are shared
    assert not holds(copy.head, session.head, session.store.backend)
    start = copy[0].body
    assert isinstance(start, SessionStart)
    assert (start.op, start.of, start.source) == ("detach", "made", session.head)
    assert copy.fsck() == []
    assert copy.append(rb.message("user", "more")).messages()[-1].text == "more"
    assert session.latest() == session


def edited(session: Session) -> Session:
    """A line with an edit, a removal and an insertion."""
    session = session.append(*(rb.message("user", text) for text in ("a", "b", "c")))
    a, b, c = (m.id for m in session.messages())
    session = session.append(
        draft(Message(role="user", parts=(TextPart("A"),), replaces=a)),
        draft(Compaction(dropped=(b,), reason="removed")),
        draft(Message(role="user", parts=(TextPart("between"),), after=a)),
    )
    assert [m.text for m in session.messages()] == ["A", "between", "c"]
    assert c
    return session


@pytest.mark.parametrize("url", ["memory:", "sqlite"])
def test_a_detached_transcript_keeps_its_edits(url: str, sqlite_url: str) -> None:
    with rb.open_store(sqlite_url if url == "sqlite" else url) as store:
        session = edited(store.create("s"))
        copy = session.detach("copy")
        again = copy.append(rb.message("user", "d")).detach("again")
        assert [m.text for m in copy.messages()] == ["A", "between", "c"]
        assert [m.text for m in again.messages()] == ["A", "between", "c", "d"]
        assert list(store.fsck()) == []


def test_every_memory_store_is_its_own() -> None:
    assert connect("memory:").url != connect("memory:").url
