"""What goes wrong around a stdio proxy: the host's calls pass all the same, and what can be on record is."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import pytest

import rath_bridge as rb
from tests.mcp.servers import CLI, ODD, ROOT, bodies, notes, settled, tool_calls, without_patience
from tests.waiting import until

ANSWERS = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": [], "structuredContent": asked["params"]}}), flush=True)
"""
SERVER = [sys.executable, "-c", ANSWERS]
HALF = [sys.executable, "-c", 'import os; input(); os.write(1, b\'{"jsonrpc": "2.0", "id": 1, "resu\'); os._exit(5)']


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RATH_BRIDGE_SPOOL", str(tmp_path / "spool"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "adapters")]))
    return tmp_path


@pytest.fixture
def start(place: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    begun: list[subprocess.Popen[bytes]] = []

    def start(server: list[str] = SERVER, stdin: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
        found = subprocess.Popen(command(place, server), stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
        begun.append(found)
        return found

    yield start
    for process in begun:
        process.kill()
        process.communicate()


def url(place: Path) -> str:
    return f"sqlite:///{place / 'runs.db'}"


def command(place: Path, server: list[str]) -> list[str]:
    return [sys.executable, "-c", CLI, "mcp", "record", "--store", url(place), "--session", "s", "--", *server]


def request(number: int, **arguments: Any) -> bytes:
    params = {"name": "t", "arguments": {"n": number, **arguments}}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode() + b"\n"


def ask(process: subprocess.Popen[bytes], number: int) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(request(number))
    return json.loads(process.stdout.readline())["result"]["structuredContent"]["arguments"]["n"]


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None
    _, said = process.communicate(timeout=60)
    return process.returncode, without_patience(said)


def nothing(place: Path) -> None:
    """Other proxies for the same store, whose servers end at once, until one has written what was left over."""

    def written() -> bool:
        done = subprocess.run(command(place, [*ODD, "exit", "0"]), stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
        assert (done.returncode, done.stdout, without_patience(done.stderr)) == (0, b"", "")
        return not list((place / "spool").iterdir())

    until(written)


def keeper_of(process: subprocess.Popen[bytes]) -> int:
    """Its keeper, once that has left the proxy's session."""
    return until(lambda: [pid for pid in children(process.pid) if os.getsid(pid) == pid])[0]


def statuses(place: Path) -> Counter[str]:
    settled(place)
    with rb.open_store(url(place)) as store:
        session = store.session("s")
        assert session.fsck() == []
        return Counter(call.status for call in session.calls())


def test_a_server_that_dies_in_the_middle_of_a_frame(place: Path, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    process = start(HALF)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(request(1))
    assert process.stdout.read() == b'{"jsonrpc": "2.0", "id": 1, "resu'
    assert ended(process) == (5, "")
    settled(place)
    with rb.open_store(url(place)) as store:
        session = store.session("s")
        (result,) = bodies(session, "tool_result")
        assert (result.status, result.reason) == ("no_response", "server_exit")
        assert notes(session) == ["unreadable"]
        assert rb.encode(session, "mcp", as_="frames")[0][-1]["raw"] == '{"jsonrpc": "2.0", "id": 1, "resu'


def test_two_hosts_that_begin_one_session_in_a_new_store_together(
    place: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    hosts = [start(), start()]
    threads = [Thread(target=lambda host=host: [ask(host, number) for number in range(100)]) for host in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [ended(host) for host in hosts] == [(0, "")] * 2
    assert statuses(place) == {"ok": 200}
    with rb.open_store(url(place)) as store:
        session = store.session("s")
        assert Counter(body.arguments["n"] for body in tool_calls(session)) == dict.fromkeys(range(100), 2)
        assert [run.phase for run in bodies(session, "run")].count("end") == 2
        assert [found.name for found in store.sessions()] == ["s"]


def test_a_disk_that_is_full_under_the_spool_and_the_store(place: Path) -> None:
    data = b"".join(request(number, text="x" * 2000) for number in range(100))
    limited = ["sh", "-c", 'ulimit -f 100; exec "$@"', "sh", *command(place, [*ODD, "echo"])]  # 51 200 bytes for every file
    done = subprocess.run(limited, input=data, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout == data + b"bye") == (0, True)
    assert b".frames" in done.stderr  # where they wait
    assert b"check that it runs, has space and may be written" in done.stderr or b"is still being written" in done.stderr
    nothing(place)
    with rb.open_store(url(place)) as store:
        session = store.session("s")
        assert session.fsck() == []
        assert bodies(session, "gap")
        found = tool_calls(session)
        assert found
        assert all(body.arguments["text"] == "x" * 2000 for body in found)  # whole ones, and none that were sewn together


def test_a_store_that_is_locked_holds_nobody_up(place: Path, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    rb.open_store(url(place)).close()
    with closing(sqlite3.connect(place / "runs.db", isolation_level=None)) as other:
        other.execute("begin immediate")
        process = start()
        assert [ask(process, number) for number in range(50)] == list(range(50))
        until(lambda: str(place / "runs.db") in map(os.readlink, Path(f"/proc/{keeper_of(process)}/fd").iterdir()))
        assert [ask(process, number) for number in range(50, 100)] == list(range(50, 100))
        with rb.open_store(url(place)) as store:
            assert "s" not in store
        other.rollback()
    assert ended(process) == (0, "")
    assert statuses(place) == {"ok": 100}


def test_a_pipe_that_is_never_quiet_is_written_all_the_same(place: Path, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    process = start()
    numbers = count()
    with rb.open_store(url(place)) as store:
        until(lambda: ask(process, next(numbers)) >= 0 and "s" in store, pause=0)
    assert ended(process) == (0, "")
    assert statuses(place) == {"ok": next(numbers)}


def test_a_proxy_and_its_keeper_that_are_killed_leave_it_to_the_next(
    place: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    process = start()
    for number in range(20):
        ask(process, number)
    os.kill(keeper_of(process), signal.SIGKILL)
    ask(process, 20)
    process.kill()
    process.wait()
    nothing(place)
    assert statuses(place) == {"ok": 21}


def test_a_keeper_that_is_killed_is_told_of_in_the_end(place: Path, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    process = start()
    ask(process, 0)
    os.kill(keeper_of(process), signal.SIGKILL)
    assert [ask(process, number) for number in range(1, 5)] == [1, 2, 3, 4]
    status, said = ended(process)
    assert (status, "the next proxy for it writes them" in said) == (0, True)
    nothing(place)
    assert statuses(place) == {"ok": 5}


def test_a_store_that_cannot_be_opened_is_told_of_while_the_server_runs(
    place: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    (place / "runs.db").mkdir()
    process = start()
    assert process.stderr is not None
    assert b"the store cannot be reached, frames wait for it: " in process.stderr.readline()
    assert ask(process, 1) == 1
    (place / "runs.db").rmdir()
    until((place / "runs.db").exists)
    assert ask(process, 2) == 2
    assert ended(process) == (0, "")
    assert set(statuses(place)) == {"ok"}


def test_an_input_that_somebody_has_made_non_blocking(place: Path, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    process = start(stdin=reader)
    os.close(reader)
    assert process.stdout is not None
    until(lambda: len(children(process.pid)) == 2)
    sleep(0.1)  # most likely it has asked, and found nothing
    with open(writer, "wb", buffering=0) as pipe:
        for number in range(3):
            pipe.write(request(number))
            assert json.loads(process.stdout.readline())["id"] == number
    assert process.wait(60) == 0
    assert statuses(place) == {"ok": 3}


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
