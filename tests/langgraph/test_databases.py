"""``rath-bridge import --from langgraph``: databases of LangGraph's own checkpointers."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any, cast

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph

import rath_bridge as rb
import rath_langgraph
from rath_bridge.errors import DecodeError, RathError
from rath_langgraph import RathSaver, databases
from tests.cli_store import run
from tests.forked import killed_while_writing
from tests.langgraph.graphs import asking, chat, echo, thread
from tests.langgraph.test_moving import listed
from tests.langgraph.test_values import Plan


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file with two threads, one of them waiting for an answer."""
    path = tmp_path / "old.db"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        for name in ("1", "a b"):
            app = chat(echo, checkpointer=saver)
            for text in ("one", "two"):
                app.invoke({"messages": [HumanMessage(text)]}, thread(name))
        asking(checkpointer=saver).invoke({"messages": [HumanMessage("may I?")]}, thread("asked"))
    return path


def imported(*args: str, url: str, status: int = 0) -> dict[str, tuple[str, int]]:
    result = run("import", "--from", "langgraph", *args, "--json", store=url)
    assert result.exit_code == status, result.output
    return {one["session"]: (one["status"], one["chunks"]) for one in json.loads(result.stdout)["imported"]}


@pytest.mark.parametrize("address", ["sqlite:///{}", "{}"])
def test_an_sqlite_file_comes_over(old: Path, sqlite_url: str, address: str) -> None:
    before = old.read_bytes()
    source = address.format(old)
    would = imported(source, "--dry-run", url=sqlite_url)
    assert would == {"langgraph/1": ("new", 6), "langgraph/a%20b": ("new", 6), "langgraph/asked": ("new", 3)}
    assert not Path(sqlite_url.removeprefix("sqlite:///")).exists()
    assert imported(source, url=sqlite_url) == would
    assert imported(source, url=sqlite_url) == dict.fromkeys(would, ("unchanged", 0))
    assert old.read_bytes() == before
    with rb.open_store(sqlite_url) as store, SqliteSaver.from_conn_string(str(old)) as saver:
        for name in ("1", "a b", "asked"):
            assert listed(RathSaver(store), name) == listed(saver, name)
        assert [m.text for m in store.session("langgraph/1").messages()][:2] == ["one", "you said: one"]
        chat(echo, checkpointer=saver).invoke({"messages": [HumanMessage("three")]}, thread("1"))
    assert imported(source, url=sqlite_url)["langgraph/1"] == ("grown", 3)


def test_a_postgres_database_comes_over(postgres_url: str, sqlite_url: str) -> None:
    with PostgresSaver.from_conn_string(postgres_url) as saver:
        saver.setup()
        chat(echo, checkpointer=saver).invoke({"messages": [HumanMessage("one")]}, thread("1"))
        assert imported(postgres_url, url=sqlite_url) == {"langgraph/1": ("new", 3)}
        with rb.open_store(sqlite_url) as store:
            assert listed(RathSaver(store)) == listed(saver)


def test_into_one_session(old: Path, sqlite_url: str) -> None:
    assert set(imported(str(old), "--as", "ticket", url=sqlite_url)) == {"ticket"}
    with rb.open_store(sqlite_url) as store:
        assert [s.name for s in store.sessions()] == ["ticket"]
        assert len(store.session("ticket").messages()) == 9


def test_an_interrupted_import_goes_on(old: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put, count = RathSaver.put, iter(range(100))

    def stops(*args: Any) -> Any:
        if next(count) == 8:
            raise KeyboardInterrupt
        return put(*args)

    with monkeypatch.context() as patch:
        patch.setattr(RathSaver, "put", stops)
        assert imported(str(old), url=sqlite_url, status=130) == {"langgraph/1": ("new", 6)}
    assert imported(str(old), url=sqlite_url)["langgraph/a%20b"] == ("grown", 4)
    with rb.open_store(sqlite_url) as store, SqliteSaver.from_conn_string(str(old)) as saver:
        assert listed(RathSaver(store), "a b") == listed(saver, "a b")
        assert list(store.fsck()) == []


def test_progress_is_told(old: Path) -> None:
    told: list[tuple[int, int]] = []
    with rath_langgraph.open_database(str(old)) as database:
        assert len(list(database.bring(rb.open_store("memory:"), progress=lambda at, of: told.append((at, of))))) == 3
    assert [at for at, _ in told] == sorted(at for at, _ in told)
    assert (told[0], told[-1]) == ((1, 15), (15, 15))


def test_foreign_and_damaged_databases_change_nothing(tmp_path: Path, sqlite_url: str) -> None:
    foreign, text = tmp_path / "foreign.db", tmp_path / "text.db"
    with sqlite3.connect(foreign) as made:
        made.execute("CREATE TABLE users (name TEXT)")
    made.close()
    text.write_text("no database at all, but long enough to be read as the header of one: " * 9)
    before = foreign.read_bytes(), text.read_bytes()
    for source, words, status in (
        (str(foreign), "no tables of a LangGraph checkpointer", 3), (str(text), "not an SQLite database", 3),
        (str(tmp_path / "none.db"), "there is no such file", 2), ("mysql://host/db", "SQLite and PostgreSQL", 2),
    ):  # fmt: skip
        result = run("import", "--from", "langgraph", source, store=sqlite_url)
        assert (result.exit_code, words in result.stderr) == (status, True), result.output
    assert (foreign.read_bytes(), text.read_bytes()) == before
    assert not (tmp_path / "none.db").exists()
    with rb.open_store(sqlite_url) as store:
        assert store.sessions() == []


def test_a_database_whose_writer_was_killed_is_left_alone(tmp_path: Path) -> None:
    killed_while_writing(tmp_path / "old.db", "CREATE TABLE checkpoints (thread_id)")
    before = (tmp_path / "old.db").read_bytes()
    with pytest.raises(DecodeError, match="stopped in the middle of a write"), databases.open_database(str(tmp_path / "old.db")):
        pass
    assert (tmp_path / "old.db").read_bytes() == before


def test_a_damaged_row_is_named_and_the_others_come_over(old: Path, sqlite_url: str) -> None:
    with sqlite3.connect(old) as made:
        (last,) = made.execute("SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = '1'").fetchone()
        made.execute("UPDATE checkpoints SET checkpoint = x'c1' WHERE checkpoint_id = ?", (last,))
    made.close()
    result = run("import", "--from", "langgraph", str(old), store=sqlite_url)
    assert result.exit_code == 3, result.output
    assert last in result.stderr
    assert "thread '1'" in result.stderr
    with rb.open_store(sqlite_url) as store:
        assert {s.name for s in store.sessions()} == {"langgraph/1", "langgraph/a%20b", "langgraph/asked"}
        assert len([*RathSaver(store).list(thread("1"))]) == 5


def test_classes_of_values_are_named(tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plans.db"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        graph = StateGraph(cast(Any, dict)).add_node("n", lambda state: state).add_edge(START, "n").compile(checkpointer=saver)
        graph.invoke({"plan": Plan("a", ("b",))}, thread("1"))
    monkeypatch.setattr("rath_langgraph.serde.imported", lambda module, name: None)
    result = run("import", "--from", "langgraph", str(path), store=sqlite_url)
    assert result.exit_code == 2, result.output
    assert "add 'import tests.langgraph.test_values'" in result.stderr
    assert "--module tests.langgraph.test_values" in result.stderr
    monkeypatch.undo()
    assert (
        run("import", "--from", "langgraph", str(path), "--module", "tests.langgraph.test_values", store=sqlite_url).exit_code
        == 0
    )
    assert run("import", "--from", "langgraph", str(path), "--module", "no.such", store=sqlite_url).exit_code == 2


def test_names_that_are_no_texts_are_refused(old: Path) -> None:
    with sqlite3.connect(old) as made:
        made.execute("UPDATE checkpoints SET checkpoint_ns = x'00ff' WHERE thread_id = 'asked'")
    made.close()
    with pytest.raises(RathError, match="names are texts"), databases.open_database(str(old)):
        raise AssertionError
