"""What goes wrong around a keeper: whoever is killed, locked out or not heard, the frames wait, and are on record once."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import rath_bridge as rb
from rath_bridge.store import sqlite
from rath_mcp import keeper, spool
from rath_mcp.keeper import Proxy, fold_file, recover
from rath_mcp.marks import store_mark
from rath_mcp.spool import CLIENT, SERVER, Spool
from tests.mcp.servers import CLI, ODD, ROOT, settled, tool_calls
from tests.waiting import started

CALL = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t", "arguments": {}}}\n'
ANSWER = b'{"jsonrpc": "2.0", "id": 1, "result": {"content": []}}\n'


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("RATH_BRIDGE_SPOOL", str(tmp_path / "spool"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "adapters")]))
    return f"sqlite:///{tmp_path / 'runs.db'}"


def filled(url: str) -> Spool:
    found = Spool.create(url)
    found.event(session="s", label="l")
    found.write(CLIENT, CALL)
    found.write(SERVER, ANSWER)
    found.event(exit=0, reason="server_exit")
    return found


def on_record(store: rb.Store) -> list[tuple[str, str]]:
    session = store.session("s")
    assert session.fsck() == []
    return [(call.name, call.status) for call in session.calls()]


KILLED = """
import os, signal, sqlite3, sys
from itertools import count
from pathlib import Path
import rath_bridge as rb
from rath_mcp.keeper import keep, recover
from rath_mcp.marks import store_mark
from rath_mcp.spool import CLIENT, SERVER, Spool

signal.alarm(110)
plain, left = sqlite3.connect, 0

def step():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

class Connection(sqlite3.Connection):
    def execute(self, *given):
        step()
        return super().execute(*given)

    def executemany(self, *given):
        step()
        return super().executemany(*given)

    def close(self):
        step()
        super().close()

def connect(*given, **options):
    found = plain(*given, factory=Connection, **options)
    found.set_progress_handler(step, 200)
    return found

def child(url, stage):
    global left
    signal.alarm(60)
    spool = Spool.create(url)
    spool.event(session="s", label="l")
    spool.write(CLIENT, sys.argv[2].encode())
    spool.write(SERVER, sys.argv[3].encode())
    spool.event(exit=0, reason="server_exit")
    sqlite3.connect, left = connect, stage
    wake, writer = os.pipe()
    os.close(writer)
    os._exit(keep(spool, url, store_mark(url), wake))

for stage in count(1):
    place = Path(sys.argv[1]) / str(stage)
    place.mkdir()
    os.environ["RATH_BRIDGE_SPOOL"], url = str(place / "spool"), f"sqlite:///{place / 'runs.db'}"
    pid = os.fork()
    if not pid:
        try:
            child(url, stage)
        finally:
            os._exit(1)
    status = os.waitpid(pid, 0)[1]
    with rb.open_store(url) as store:
        recover(store, url)
        session = store.session("s")
        assert session.fsck() == [], stage
        assert [(call.name, call.status) for call in session.calls()] == [("t", "ok")], stage
        assert [chunk.body.phase for chunk in session if chunk.kind == "run"] == ["begin", "end"], stage
    assert not list((place / "spool").iterdir()), stage
    if status == 0:
        break
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, stage
print(stage)
"""


def test_a_keeper_that_is_killed_at_any_stage_of_making_the_store_leaves_it_to_the_next(tmp_path: Path, url: str) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path), CALL.decode(), ANSWER.decode()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=115)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 50


class Trying(Proxy):
    """A proxy that has ended or not, and what happens between two tries of its keeper."""

    def __init__(self, between: list[str], other: sqlite3.Connection) -> None:
        super().__init__(None)
        self.between, self.other, self.told = between, other, list[str]()

    def tell(self, text: str) -> None:
        self.told.append(text)

    def retries(self) -> Iterator[None]:
        for what in self.between:
            if what == "unlocked":
                self.other.rollback()
            yield


@pytest.mark.parametrize("between", [["locked", "locked", "unlocked"], ["locked", "locked"]])
def test_frames_wait_while_another_process_holds_the_store(url: str, monkeypatch: pytest.MonkeyPatch, between: list[str]) -> None:
    monkeypatch.setattr(sqlite, "_BUSY", 0.05)
    monkeypatch.setattr("rath_bridge.recorder.writer.monotonic", iter(range(10**6)).__next__)  # a second between any two tries
    spool = filled(url)
    with rb.open_store(url) as store, closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as other:
        other.execute("begin immediate")
        proxy = Trying(between, other)
        whole = fold_file(spool.path, spool.descriptor, store, store_mark(url), proxy)
        assert proxy.told == ["the store cannot be written at the moment: frames wait for it"]
        assert whole == ("unlocked" in between)
        if not whole:
            assert "s" not in store
            other.rollback()
        os.close(spool.descriptor)
        assert recover(store, url) == 1  # what stands there already is not written twice
        assert on_record(store) == [("t", "ok")]
    assert list(spool.path.parent.iterdir()) == []


def test_a_keeper_that_was_stopped_for_a_while_has_not_tried_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "sleep", lambda _: None)
    monkeypatch.setattr(keeper, "monotonic", iter(range(0, 10**6, 1000)).__next__)
    assert sum(1 for _ in Proxy(None).retries()) == keeper.TRIES


def test_a_spool_that_a_keeper_took_for_one_that_was_left_over_is_made_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    plain = spool.fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        if not taken:  # between the file and its lock
            taken.append(descriptor)
            with rb.open_store(url) as store:
                assert recover(store, url) == 1
        plain(descriptor, operation)

    monkeypatch.setattr(spool.fcntl, "flock", flock)
    made = filled(url)
    os.close(made.descriptor)
    assert made.path.exists()
    with rb.open_store(url) as store:
        assert recover(store, url) == 1
        assert on_record(store) == [("t", "ok")]


@pytest.mark.parametrize("how", ["2>&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_a_host_that_closes_standard_streams_is_no_danger_to_files(tmp_path: Path, url: str, how: str) -> None:
    shell = [
        "sh",
        "-c",
        f'exec "$@" {how}',
        "sh",
        sys.executable,
        "-c",
        CLI,
        "mcp",
        "record",
        "--store",
        url,
        "--session",
        "s",
        "--",
    ]
    server = [sys.executable, "-c", f"import os, sys; sys.stdin.read(); os.write(1, {ANSWER!r}); sys.exit(7)"]
    done = subprocess.run([*shell, *server], input=CALL, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (7, b"")
    assert done.stdout == (b"" if ">&- " in how.replace("2>&-", "") else ANSWER)
    settled(tmp_path)
    with rb.open_store(url) as store:
        session = store.session("s")
        assert [call.name for call in tool_calls(session)] == ([] if "<" in how else ["t"])
        assert session.fsck() == []


def down(tmp_path: Path, url: str) -> list[str]:
    """A proxy with something to say in the end."""
    (tmp_path / "runs.db").mkdir()
    return [sys.executable, "-c", CLI, "mcp", "record", "--store", url, "--", *ODD, "exit", "7"]


def test_a_standard_error_that_is_broken_costs_nothing_but_what_is_said(tmp_path: Path, url: str) -> None:
    with started(down(tmp_path, url), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        process.stderr.close()
        assert process.wait(60) == 7


def test_a_standard_error_that_nobody_reads_holds_nobody_up(tmp_path: Path, url: str) -> None:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writer, b"x" * 4096)
    with started(down(tmp_path, url), stdin=subprocess.DEVNULL, stderr=writer) as process:
        assert process.wait(60) == 7
    os.close(writer)
    os.close(reader)
