"""Bad input gives an error that says what and where, and changes nothing."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver

import rath_bridge as rb
from rath_bridge.errors import CorruptStoreError, MissingSessionError, NotFoundError, StoreAddressError, UnsupportedError
from rath_bridge.session import Store
from rath_langgraph import RathSaver, export_thread, import_thread
from tests.langgraph.ciphers import Xor
from tests.langgraph.graphs import chat, echo, thread

ROOT = Path(__file__).parents[2]


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Store]:
    with rb.open_store(sqlite_url) as opened:
        yield opened


def talk(store: Store, *texts: str, name: str = "1", **options: Any) -> Any:
    app = chat(echo, checkpointer=RathSaver(store, **options))
    for text in texts or ("one", "two"):
        app.invoke({"messages": [("user", text)]}, thread(name))
    return app


def test_a_corrupt_row_is_named_by_checkpoint_thread_and_channel(sqlite_url: str) -> None:
    with rb.open_store(sqlite_url) as store:
        talk(store, "a text that is long enough for a row of its own " * 20)
        talk(store, name="2")
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    with sqlite3.connect(path) as file:
        (row,) = file.execute("SELECT n FROM rath_object ORDER BY length(data) DESC LIMIT 1").fetchone()
        file.execute("UPDATE rath_object SET form = 0, data = ? WHERE n = ?", (b"\xc1" * 40, row))
    file.close()
    before = path.read_bytes()
    with rb.open_store(sqlite_url) as store:
        saver = RathSaver(store)
        with pytest.raises(CorruptStoreError, match=r"checkpoint [-\w]+ of thread '1', (channel 'messages'|object row)"):
            saver.get_tuple(thread())
        assert [m.text for m in store.session("langgraph/2").messages()][::2] == ["one", "two"]
        assert len(list(saver.list(thread("2")))) == 6  # others are read as before
        assert list(store.fsck()) != []
    assert path.read_bytes() == before


def test_bytes_of_another_serde_are_refused_with_its_name(store: Store) -> None:
    encrypted = EncryptedSerializer(Xor())
    talk(store, serde=encrypted)
    with pytest.raises(UnsupportedError, match=r"checkpoint [-\w]+ of thread '1'.*msgpack\+xor.*pass the serde that wrote them"):
        RathSaver(store).get_tuple(thread())
    found = RathSaver(store, serde=encrypted).get_tuple(thread())
    assert found is not None
    assert len(found.checkpoint["channel_values"]["messages"]) == 4
    with pytest.raises(UnsupportedError, match="pickle, which is never loaded"):
        RathSaver(store).serde.loads_typed(("pickle", b"\x80\x04N."))
    with pytest.raises(UnsupportedError, match="'later' bytes"):
        RathSaver(store).serde.loads_typed(("later", b""))


def test_langgraphs_own_serializer_may_be_passed(store: Store) -> None:
    talk(store, serde=JsonPlusSerializer())
    found = RathSaver(store).get_tuple(thread())
    assert found is not None
    assert len(found.checkpoint["channel_values"]["messages"]) == 4


def test_a_foreign_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with SqliteSaver.from_conn_string(str(path)) as old:
        chat(echo, checkpointer=old).invoke({"messages": [("user", "one")]}, thread())
    before = path.read_bytes()
    with pytest.raises(StoreAddressError, match="another program's database; it was left alone"):
        RathSaver.from_conn_string(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_missing_threads_and_checkpoints(store: Store) -> None:
    app = talk(store)
    saver = app.checkpointer
    before = [(ref.name, ref.head) for ref in store.backend.refs()]
    assert saver.get_tuple(thread("nobody")) is None
    assert list(saver.list(thread("nobody"))) == []
    assert saver.get_tuple(thread("1", checkpoint_id="nothing")) is None
    assert app.get_state(thread("nobody")).values == {}
    saver.delete_thread("nobody")
    saver.copy_thread("nobody", "somebody")
    saver.prune(["nobody"])
    saver.delete_for_runs(["nothing"])
    with pytest.raises(NotFoundError, match="no thread_id"):
        saver.get_tuple({"configurable": {}})
    with pytest.raises(MissingSessionError, match="thread 'nobody'"):
        export_thread(store, "nobody", InMemorySaver())
    with pytest.raises(MissingSessionError, match="thread 'nobody'"):
        import_thread(InMemorySaver(), store, "nobody")
    with pytest.raises(ValueError, match="keep_latest"):
        saver.prune(["1"], strategy="everything")
    assert [(ref.name, ref.head) for ref in store.backend.refs()] == before


def test_the_example_of_a_checkpointer_goes_on_where_it_was(tmp_path: Path) -> None:
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "adapters") + os.pathsep + str(ROOT),
        "RATH_BRIDGE_STORE": f"sqlite:///{tmp_path}/s.db",
    }
    said = ""
    for text in ("Hello", "Still there?"):
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples" / "langgraph_checkpointer.py"), text],
            cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        said += f"human: {text}\nai: I am listening.\n"
        assert done.stdout == said
    lines = (ROOT / "examples" / "langgraph_checkpointer.py").read_text().split('"""')[2].splitlines()
    assert len([line for line in lines if line.strip()]) <= 15
