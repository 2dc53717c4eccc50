"""Append and fork, in memory and on disk, beside OpenRath's session."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rath_bridge as rb
from benchmarks.table import Row, fsync_time, micro, once, per_call, size_of, workspace

LENGTHS = (100, 10_000, 100_000)


def rows() -> Iterator[Row]:
    """Every figure of this file."""
    yield from _memory()
    with workspace() as folder:
        yield Row("one fsync of 4 KB on this disk", f"{fsync_time(folder) * 1e3:.2f} ms", "for scale")
        yield from _sqlite(folder)
        yield from _forks_on_disk(folder)
        yield from _diff(folder)


def _memory() -> Iterator[Row]:
    warm = rb.open_store("memory:").create("warm")
    for _ in range(5_000):  # the interpreter specialises what runs often
        warm = warm.append(rb.message("user", "hello"))
    appends: list[float] = []
    forks: list[float] = []
    for length in LENGTHS:
        store = rb.open_store("memory:")
        session = store.create("long").append(*[rb.message("user", f"hello {i}") for i in range(length)])

        def append(index: int) -> None:
            nonlocal session
            session = session.append(rb.message("user", "hello"))

        appends.append(per_call(append, 500, rounds=12))
        point = session[length // 2].id
        forks.append(per_call(lambda i, s=session, p=point: s.fork(f"b{i}", at=p), 500, rounds=12))
    peers = [_openrath(length) for length in LENGTHS]
    flat = max(appends) <= 1.5 * min(appends)
    yield Row(
        "append in memory at 100 / 10 000 / 100 000", " / ".join(map(micro, appends)), "flat, <= 40 µs",
        "openrath " + " / ".join(micro(p[0]) for p in peers), flat and max(appends) <= 40e-6,
    )  # fmt: skip
    flat = max(forks) <= 1.5 * min(forks)
    yield Row(
        "fork in memory at 100 / 10 000 / 100 000", " / ".join(map(micro, forks)), "flat, <= 20 µs",
        "openrath " + " / ".join(micro(p[1]) for p in peers) + " (tail only)", flat and max(forks) <= 20e-6,
    )  # fmt: skip


def _openrath(length: int) -> tuple[float, float]:
    """OpenRath's append (``ChunkTable.extend``) and fork at one length; it hashes and stores nothing."""
    from rath.session import Session
    from rath.session.chunk import ChunkRow, ChunkTable

    session = Session.from_user_message("hello")
    kind: Any = "user"
    row = ChunkRow(kind, {"content": "hello"})
    session.chunk_table = ChunkTable(tuple(row for _ in range(length)))
    append = per_call(lambda _: session.chunk_table.extend(row), 200, rounds=12)
    return append, per_call(lambda _: session.fork(), 200, rounds=12)


def _sqlite(folder: Path) -> Iterator[Row]:
    count = 20_000
    drafts = [rb.message("user", f"hello {i}") for i in range(count)]
    store = rb.open_store(f"sqlite:///{folder / 'append.db'}")
    session = store.create("bulk")
    took = once(lambda: session.append(*drafts))
    plain = sqlite3.connect(folder / "plain.db", isolation_level=None)
    plain.execute("PRAGMA journal_mode = WAL")
    plain.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, body TEXT)")

    def by_hand() -> None:
        plain.execute("BEGIN")
        plain.executemany("INSERT INTO t (body) VALUES (?)", [(d.body.decode(),) for d in drafts])
        plain.execute("COMMIT")

    peer = once(by_hand)
    plain.close()
    yield Row(
        "append to SQLite, one batch of 20 000", f"{count / took:,.0f} chunks/s", ">= 15 000 chunks/s",
        f"bare INSERT, one column, no hash: {count / peer:,.0f}/s", count / took >= 15_000,
    )  # fmt: skip
    one = per_call(lambda i: store.session("bulk").append(rb.message("user", f"one {i}")), 200, clock=_wall)
    yield Row("append to SQLite, one by one, each durable", f"{one * 1e3:.2f} ms", "for scale")
    store.close()


def _wall() -> float:
    from time import perf_counter

    return perf_counter()


def _forks_on_disk(folder: Path) -> Iterator[Row]:
    path = folder / "forks.db"
    store = rb.open_store(f"sqlite:///{path}")
    texts = [os.urandom(1024).hex() for _ in range(1_000)]
    session = store.create("one").append(*[rb.message("user", text) for text in texts])
    store.close()
    single = size_of(path)
    store = rb.open_store(f"sqlite:///{path}")
    session = store.session("one")
    for index in range(100):
        session.fork(f"fork-{index}")
    store.close()
    ratio = size_of(path) / single
    yield Row(
        "100 forks of 1 000 chunks of 2 KB on disk", f"{ratio:.3f} x one ({single / 1e6:.2f} MB)", "<= 1.1 x one",
        "openrath writes every fork whole: 100 x", ratio <= 1.1,
    )  # fmt: skip


def _diff(folder: Path) -> Iterator[Row]:
    for url in ("memory:", f"sqlite:///{folder / 'diff.db'}"):
        store = rb.open_store(url)
        base = store.create("d").append(*[rb.message("user", f"m {i}") for i in range(10_000)])
        ours, theirs = base.fork("a"), base.fork("b")
        ours = ours.append(*[rb.message("user", f"ours {i}") for i in range(5)])
        theirs = theirs.append(*[rb.message("user", f"theirs {i}") for i in range(5)])
        took = once(lambda a=ours, b=theirs: a.diff(b), rounds=5)
        where = url.partition(":")[0]
        yield Row(
            f"diff of two 10 000-chunk forks that differ in 10, {where}", f"{took * 1e3:.1f} ms", "<= 10 ms", "", took <= 0.01
        )
        store.close()
