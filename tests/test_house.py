"""The test suite's own walls hold: the network is closed, each test has a database of its own."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.offline import OutsideNetworkError
from tests.postgres_server import find_binaries
from tests.waiting import started, until

ROOT = Path(__file__).parents[1]


def test_other_hosts_are_refused_by_address_and_by_name() -> None:
    with socket.socket() as sock, pytest.raises(OutsideNetworkError, match="192.0.2.1"):
        sock.connect(("192.0.2.1", 80))
    with pytest.raises(OutsideNetworkError, match="example.invalid"):
        socket.getaddrinfo("example.invalid", 443)


async def test_other_hosts_are_refused_to_asyncio() -> None:
    with pytest.raises(OutsideNetworkError):
        await asyncio.open_connection("192.0.2.1", 80)


def test_this_machine_is_reached(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(("localhost", server.getsockname()[1])).close()
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(tmp_path / "s"))
        server.listen()
        client.connect(str(tmp_path / "s"))


@pytest.mark.parametrize("run", [1, 2])
def test_each_test_has_an_empty_database(postgres_url: str, run: int) -> None:
    with psycopg.connect(postgres_url) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
        assert tables == (0,)
        connection.execute("CREATE TABLE something (n int)")


KILLED = """
import sys, time
from tests.postgres_server import find_binaries, run_server
from tests.waiting import started, until
with run_server(find_binaries()) as url:
    print(url, flush=True)
    time.sleep(300)
"""


@pytest.mark.skipif(find_binaries() is None, reason="no PostgreSQL on this machine")
def test_a_killed_run_leaves_no_server() -> None:
    with started([sys.executable, "-c", KILLED], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        psycopg.connect(url).close()

    def gone() -> bool:
        try:
            psycopg.connect(url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return True
        return False

    until(gone)
