"""With a serde that encrypts, nothing of the values stands in clear anywhere: bodies, objects, files, tables, indexes, statistics.

PostgresSaver keeps texts and numbers of a state as plain JSON beside an `EncryptedSerializer`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.types import Command
from psycopg import sql

import rath_bridge as rb
from rath_langgraph import RathSaver
from tests.langgraph.ciphers import Xor
from tests.langgraph.graphs import asking, thread
from tests.langgraph.test_deltas import slow

SECRET = b"TOPSECRET"
NAME = "thread-in-clear"
"""What an index needs is no secret: the search has to find it."""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue(f"{request.param}_url")


def told(store: rb.Store) -> Iterator[bytes]:
    """All that a store tells of what it holds, decompressed."""
    for session in store.sessions():
        for chunk in session.chunks():
            yield chunk.envelope
            yield chunk.body_bytes or b""
            yield from store.backend.objects(chunk.references).values()
    for key, _ in store.backend.entries():
        yield repr(key).encode()


def kept(url: str) -> Iterator[bytes]:
    """All that stands in the store's own files."""
    if url.startswith("sqlite"):
        yield from (file.read_bytes() for file in Path(url.removeprefix("sqlite:///")).parent.iterdir())
        return
    with psycopg.connect(url, autocommit=True) as link:
        link.execute("ANALYZE")
        link.execute("CHECKPOINT")
        tables = link.execute(
            "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'public'"
        ).fetchall()
        for table, column, kind in tables:
            cell = sql.SQL("{}" if kind == "bytea" else "{}::text").format(sql.Identifier(column))
            for (value,) in link.execute(sql.SQL("SELECT {} FROM {}").format(cell, sql.Identifier(table))):
                yield bytes(value) if isinstance(value, (bytes, memoryview)) else str(value).encode()
        yield from (str(row).encode() for row in link.execute("SELECT s::text FROM pg_stats s WHERE schemaname = 'public'"))
        files = link.execute(
            "SELECT relkind, pg_read_binary_file(pg_relation_filepath(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
            "WHERE relkind IN ('r', 'i', 't') AND nspname IN ('public', 'pg_toast')"
        ).fetchall()
        assert {kind for kind, _ in files} >= {"r", "i"}
        yield from (bytes(data) for _, data in files)


def test_nothing_stands_in_clear(url: str) -> None:
    with RathSaver.from_conn_string(url, serde=EncryptedSerializer(Xor())) as saver:
        app = asking(checkpointer=saver)
        config: Any = {**thread(NAME), "metadata": {"tenant": "TOPSECRET-TENANT"}}
        app.invoke({"messages": [("user", "TOPSECRET-WORD " * 60)], "note": "TOPSECRET-NOTE"}, config)
        app.invoke(Command(resume="TOPSECRET-ANSWER"), thread(NAME))
        assert app.get_state(thread(NAME)).values["note"] == "reviewed: TOPSECRET-ANSWER"
        found: list[Any] = list(saver.list(None, filter={"tenant": "TOPSECRET-TENANT"}))
        assert [t.metadata["tenant"] for t in found] == ["TOPSECRET-TENANT"] * 3
        slow(every=2, checkpointer=saver).invoke({"messages": [("user", "TOPSECRET-DELTA")]}, thread("delta"))
        session = saver.store.session(f"langgraph/{NAME}")
        assert session.messages() == ()
        assert not any(SECRET in data for data in told(saver.store))
    everything = list(kept(url))
    assert any(NAME.encode() in data for data in everything)  # the search looks where texts would stand
    assert not any(SECRET in data for data in everything)
