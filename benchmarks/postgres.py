"""PostgreSQL: several writers at once. Skipped, visibly, where no server can be had."""

from __future__ import annotations

import os
from collections.abc import Iterator
from threading import Thread
from time import perf_counter

import rath_bridge as rb
from benchmarks.table import Row

_EACH = 60


def _rate(url: str, names: list[str]) -> tuple[float, int]:
    store = rb.open_store(url)
    for name in dict.fromkeys(names):
        store.create(name)

    def write(name: str) -> None:
        session = store.session(name)
        for index in range(_EACH):
            session = session.append(rb.message("user", f"hi {index}"), on_conflict="serialise")

    threads = [Thread(target=write, args=(name,)) for name in names]
    start = perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = perf_counter() - start
    found = sum(len(store.session(name)) - 1 for name in dict.fromkeys(names))
    store.close()
    return len(names) * _EACH / took, found


def rows() -> Iterator[Row]:
    """Writers on sessions of their own, and on one."""
    from tests.postgres_server import find_binaries, fresh_database, run_server

    given = os.environ.get("RATH_TEST_POSTGRES_URL")
    binaries = None if given else find_binaries()
    if not given and binaries is None:
        yield Row("PostgreSQL writers", "no server here", ">= 1.1 x and >= 0.8 x one writer")
        return
    if given:
        yield from _compare(given)
        return
    assert binaries is not None
    with run_server(binaries) as server, fresh_database(server) as url:
        yield from _compare(url)


def _compare(url: str) -> Iterator[Row]:
    _rate(url, ["warm"])
    one, _ = _rate(url, ["alone"])
    own, own_found = _rate(url, [f"own-{i}" for i in range(8)])
    shared, shared_found = _rate(url, ["shared"] * 8)
    whole = own_found == shared_found == 8 * _EACH
    yield Row("PostgreSQL, one writer", f"{one:,.0f} appends/s", "the peer of the next two")
    yield Row(
        "PostgreSQL, 8 writers on 8 sessions",
        f"{own / one:.2f} x one writer, nothing lost: {whole}",
        ">= 1.1 x",
        "",
        own / one >= 1.1,
    )
    yield Row("PostgreSQL, 8 writers on one session", f"{shared / one:.2f} x one writer", ">= 0.8 x", "", shared / one >= 0.8)
