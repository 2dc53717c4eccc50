"""Servers around a saver: prefork workers, a PostgreSQL that goes away and comes back."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import rath_bridge as rb
from rath_bridge.errors import StoreUnavailableError
from rath_langgraph import RathSaver
from tests import postgres_server
from tests.langgraph.graphs import chat, echo, thread
from tests.waiting import until

WORKERS = """
import os, signal, sys
import rath_bridge as rb
from rath_bridge.errors import StoreUnavailableError
from rath_langgraph import RathSaver
from tests.langgraph.graphs import chat, echo, thread
app = chat(echo, checkpointer=RathSaver(rb.open_store(sys.argv[1])))  # loaded before the workers, as gunicorn --preload does
app.invoke({"messages": [("user", "before")]}, thread("shared"))
workers = []
for number in range(3):
    pid = os.fork()
    if pid == 0:
        signal.alarm(100)  # never left behind
        for turn in range(2):
            app.invoke({"messages": [("user", f"{number} {turn}")]}, thread(f"own-{number}"))
        assert [m.content for m in app.get_state(thread("shared")).values["messages"]][0] == "before"
        os._exit(0)
    workers.append(pid)
app.invoke({"messages": [("user", "after")]}, thread("shared"))
sys.exit(max(os.waitpid(pid, 0)[1] for pid in workers) != 0)
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_prefork_workers_share_a_saver_that_was_made_before_them(request: pytest.FixtureRequest, kind: str) -> None:
    url = request.getfixturevalue(f"{kind}_url")
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": f"{root}:{root / 'adapters'}", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, "-c", WORKERS, url], env=env, cwd=root, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr[-3000:]
    with rb.open_store(url) as store:
        app = chat(echo, checkpointer=RathSaver(store))
        for number in range(3):
            said = [m.content for m in app.get_state(thread(f"own-{number}")).values["messages"]]
            assert said[::2] == [f"{number} {turn}" for turn in range(2)]
        assert len(app.get_state(thread("shared")).values["messages"]) == 4
        assert list(store.fsck()) == []


def test_5675_7304_dead_connections_are_noticed_before_they_are_used(postgres_url: str) -> None:
    with rb.open_store(postgres_url, pool_size=4) as store:
        app = chat(echo, checkpointer=RathSaver(store))
        for turn in range(3):
            app.invoke({"messages": [("user", f"{turn}")]}, thread())
            with psycopg.connect(postgres_url, autocommit=True) as admin:
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE pid <> pg_backend_pid() AND datname = current_database()"
                )
        assert [m.content for m in app.get_state(thread()).values["messages"]][::2] == ["0", "1", "2"]


def stop(url: str) -> Path:
    """Stop a server; returns its data."""
    with psycopg.connect(url) as admin:
        (folder,) = admin.execute("SHOW data_directory").fetchone() or ("",)
    mark = Path(folder) / "postmaster.pid"
    os.kill(int(mark.read_text().split()[0]), signal.SIGINT)
    until(lambda: not mark.exists())
    return Path(folder)


@contextmanager
def started(url: str, folder: Path, binaries: Path) -> Generator[None]:
    """Start it again, at the same address."""
    port = re.search(r":(\d+)/", url)
    account: Any = postgres_server._unprivileged_account()
    command = [
        str(binaries / "postgres"),
        "-D",
        str(folder),
        "-k",
        str(folder.parent),
        "-h",
        "127.0.0.1",
        "-p",
        port[1] if port else "",
    ]
    with postgres_server.kept(command, folder.parent, account):
        postgres_server._wait_until_ready(url, folder.parent / "log")
        yield


def test_a_postgres_that_is_started_again_is_gone_on_with() -> None:
    binaries = postgres_server.find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL")
    with postgres_server.run_server(binaries) as url, rb.open_store(url) as store:
        app = chat(echo, checkpointer=RathSaver(store))
        app.invoke({"messages": [("user", "one")]}, thread())
        folder = stop(url)
        pool: Any = store.backend._pool()  # type: ignore[attr-defined]
        patience, pool.timeout = pool.timeout, 0.5
        with pytest.raises(StoreUnavailableError):
            app.invoke({"messages": [("user", "lost, and said so")]}, thread())
        pool.timeout = patience
        with started(url, folder, binaries):
            app.invoke({"messages": [("user", "two")]}, thread())
            assert [m.content for m in app.get_state(thread()).values["messages"]][::2] == ["one", "two"]
            assert [m.text for m in store.session("langgraph/1").messages()][::2] == ["one", "two"]
