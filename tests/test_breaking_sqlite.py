"""SQLite under attack: locks that get lost, full disks, files that are not what they should be."""

from __future__ import annotations

import os
import pickle
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rath_bridge as rb
from rath_bridge.errors import NewerFormatError, StoreAddressError, StoreError, StoreUnavailableError
from rath_bridge.store import schema, sqlite
from rath_bridge.store.migrations import MIGRATIONS
from rath_bridge.store.schema import FORMAT
from tests.forked import forked, killed_while_writing
from tests.waiting import until

VISIT = "import sys, rath_bridge as rb; s = rb.open_store(sys.argv[1]); print(len(s.session('s'))); s.close()"


def length_seen_by_another_process(url: str) -> int:
    return int(subprocess.run([sys.executable, "-c", VISIT, url], check=True, capture_output=True, text=True).stdout)


@pytest.mark.parametrize("before", ["", "PRAGMA user_version = 7"])
def test_a_file_whose_writer_was_killed_in_a_transaction_is_opened(sqlite_url: str, before: str) -> None:
    # A process that is killed while it creates a store leaves a journal, and nobody who only reads can undo what that says.
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    killed_while_writing(path, before)
    if before:
        with pytest.raises(StoreAddressError, match="another program's database"):
            rb.open_store(sqlite_url)
    else:
        with rb.open_store(sqlite_url) as store:
            store.create("s")
        assert length_seen_by_another_process(sqlite_url) == 1
    assert not path.with_name(f"{path.name}-journal").exists()


def test_a_second_store_on_one_file_does_not_drop_the_locks_of_the_first(sqlite_url: str) -> None:
    # Closing any handle of the file drops the process's locks on it; the next visitor, alone as it thinks, deletes the log.
    session = rb.open_store(sqlite_url).create("s")
    rb.open_store(sqlite_url)
    assert length_seen_by_another_process(sqlite_url) == 1
    session = session.append(rb.message("user", "acknowledged"))
    assert length_seen_by_another_process(sqlite_url) == 2


@pytest.mark.parametrize("parent", ["stays", "closes", "exits"])
def test_a_forked_child_holds_locks_of_its_own(sqlite_url: str, parent: str) -> None:
    store = rb.open_store(sqlite_url)
    session = store.create("s")
    (ready, is_ready), (go, please_go) = os.pipe(), os.pipe()

    def child() -> None:
        if parent == "exits" and os.fork():
            os._exit(0)
        signal.alarm(60)  # a grandchild inherits none
        mine = session.append(rb.message("user", "one"))
        os.write(is_ready, b"x")
        os.read(go, 1)
        mine.append(rb.message("user", "two"))
        os.write(is_ready, b".")

    pid = forked(child)
    os.close(is_ready)  # what is read ends if the child does
    assert os.read(ready, 1) == b"x"
    if parent == "closes":
        store.close()
    assert length_seen_by_another_process(sqlite_url) == 2
    os.write(please_go, b"x")
    assert os.read(ready, 1) == b"."
    assert os.waitpid(pid, 0)[1] == 0
    assert length_seen_by_another_process(sqlite_url) == 3
    assert not list(rb.open_store(sqlite_url).fsck())


AMID = """
import os, signal, sys, threading
import rath_bridge as rb

store, stop = rb.open_store(sys.argv[1]), threading.Event()

def write(name):
    session = store.create(name)
    while not stop.is_set():
        session = session.append(rb.message("user", "x" * 600))

threads = [threading.Thread(target=write, args=(f"t{i}",)) for i in range(3)]
for thread in threads:
    thread.start()
children = []
for i in range(6):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # a lock that nobody releases
        mine = store.create(f"child{i}")
        for _ in range(5):
            mine = mine.append(rb.message("user", "y" * 600))
        os._exit(0 if len(mine) == 6 else 1)
    children.append(pid)
stop.set()
for thread in threads:
    thread.join()
assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 6
if sys.argv[1] != "memory:":
    assert {f"child{i}" for i in range(6)} <= {session.name for session in store.sessions()}
assert not list(store.fsck())
"""


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
def test_a_fork_amid_writing_threads(kind: str, request: pytest.FixtureRequest) -> None:
    # In a process of its own: pytest's has threads of other tests, whose locks a child would inherit.
    url = "memory:" if kind == "memory" else request.getfixturevalue(f"{kind}_url")
    done = subprocess.run([sys.executable, "-c", AMID, url], capture_output=True, text=True, timeout=110)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_is_gone_acknowledges_nothing(tmp_path: Path, how: str) -> None:
    path = tmp_path / "store.db"
    session = rb.open_store(f"sqlite:///{path}").create("s")
    for name in ("store.db", "store.db-wal", "store.db-shm"):
        (tmp_path / name).unlink()
    if how == "replaced":
        rb.open_store(f"sqlite:///{path}").create("s")
    with pytest.raises(StoreUnavailableError, match="removed or replaced"):
        session.append(rb.message("user", "into the void"))


def test_closing_while_others_write_is_no_corruption(sqlite_url: str) -> None:
    store = rb.open_store(sqlite_url)
    raised: list[BaseException] = []
    acknowledged: list[str] = []

    def write(name: str) -> None:
        try:
            session = store.create(name)
            while True:
                session = session.append(rb.message("user", "hello"))
                acknowledged.append(session.head)
                len(list(session.chunks()))
        except BaseException as error:  # noqa: BLE001 - looked at below
            raised.append(error)

    threads = [threading.Thread(target=write, args=(f"t{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: len(acknowledged) >= 20 or raised, pause=0)
    store.close()
    for thread in threads:
        thread.join()
    assert [(type(error), "it was closed" in str(error)) for error in raised] == [(StoreUnavailableError, True)] * 4
    with rb.open_store(sqlite_url) as again:
        assert not list(again.fsck())
        assert all(again.backend.chunk(name) for name in acknowledged)


FULL = """
import resource, sys
import rath_bridge as rb
store = rb.open_store(sys.argv[1])
session = store.session("s", create=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
import os, base64
try:
    while True:
        session = session.append(rb.message("user", base64.b64encode(os.urandom(3000)).decode()), rb.message("user", "short"))
        print(session.head, flush=True)
except rb.errors.StoreUnavailableError as error:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(session.append(rb.message("user", "there is space again")).head, flush=True)
    print(type(error).__name__, error, file=sys.stderr)
"""


@pytest.mark.parametrize("size", [100_000, 4_000_000])
def test_a_full_disk_is_said_and_harms_nothing(sqlite_url: str, size: int) -> None:
    rb.open_store(sqlite_url).close()
    done = subprocess.run([sys.executable, "-c", FULL, sqlite_url, str(size)], capture_output=True, text=True, timeout=100)
    assert done.stderr.startswith("StoreUnavailableError the store"), done.stderr
    assert done.returncode == 0
    with rb.open_store(sqlite_url) as store:
        assert not list(store.fsck())
        assert [store.backend.chunk(name).id for name in done.stdout.split()] == done.stdout.split()
        assert store.session("s").head == done.stdout.split()[-1]


def as_nobody(work: Callable[[], None]) -> None:
    """Run in a child that is not root: root may write everywhere."""

    def child() -> None:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        work()

    assert os.waitpid(forked(child), 0)[1] == 0


@pytest.mark.parametrize("what", ["file", "directory", "new"])
def test_what_may_not_be_written_is_refused(tmp_path: Path, what: str) -> None:
    with tempfile.TemporaryDirectory(prefix="rath-", dir="/tmp") as name:  # nobody gets to where TMPDIR may be
        place = Path(name)
        url = f"sqlite:///{place}/store.db"
        if what != "new":
            rb.open_store(url).close()
            (place / "store.db").chmod(0o444 if what == "file" else 0o666)
        place.chmod(0o777 if what == "file" else 0o555)

        def work() -> None:
            with pytest.raises(StoreUnavailableError):
                rb.open_store(url).create("s")

        as_nobody(work)
        place.chmod(0o755)


@pytest.mark.parametrize("kind", ["directory", "dangling", "fifo", "nul", "surrogate", "too long", "file as directory"])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = f"{tmp_path}/x"
    if kind == "directory":
        os.mkdir(path)
    elif kind == "dangling":
        os.symlink(f"{tmp_path}/nowhere/at/all", path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "nul":
        path += "\0y"
    elif kind == "surrogate":
        path += "\ud800"
    elif kind == "too long":
        path += "y" * 300
    else:
        Path(path).write_text("")
        path += "/store.db"
    with pytest.raises((StoreUnavailableError, StoreAddressError)):
        rb.open_store(f"sqlite:///{path}")


@pytest.mark.parametrize(
    "name", ["a b.db", "100%.db", "%20.db", "q?mode=ro.db", "h#.db", "ünï😀.db", "new\nline.db", "-x.db", "'\"\\.db"]
)
def test_odd_paths_are_just_paths(tmp_path: Path, name: str) -> None:
    url = f"sqlite:///{tmp_path}/{name}"
    with rb.open_store(url) as store:
        session = store.create("s").append(rb.message("user", "x"))
        assert (tmp_path / name).is_file()
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
        again = pickle.loads(pickle.dumps(session))
        assert again == session
        again.store.close()
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_link_leads_to_the_file_and_its_log(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "store.db")
    (tmp_path / "dir").symlink_to(tmp_path / "real")
    one = rb.open_store(f"sqlite:///{tmp_path}/link.db")
    session = one.create("s")
    assert stat.S_IMODE((tmp_path / "real" / "store.db").stat().st_mode) == 0o600
    two = rb.open_store(f"sqlite:///{tmp_path}/dir/store.db").session("s").append(rb.message("user", "x"))
    three = rb.open_store(f"sqlite:///{tmp_path}/real/store.db").session("s")
    assert len(two) == len(three) == len(session.latest()) == 2
    assert not list(tmp_path.glob("*-wal"))


def test_anothers_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE t (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreAddressError, match="another program's"):
        rb.open_store(f"sqlite:///{path}")
    assert [p.name for p in tmp_path.iterdir()] == ["other.db"]
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes\n" * 100)
    with pytest.raises(StoreError):
        rb.open_store(f"sqlite:///{path}")
    assert path.read_text() == "these are my notes\n" * 100


def test_a_newer_format_is_left_alone(sqlite_url: str) -> None:
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    rb.open_store(sqlite_url).close()
    with sqlite3.connect(path) as file:
        file.execute("PRAGMA user_version = 99")
    file.close()
    before = path.read_bytes()
    with pytest.raises(NewerFormatError):
        rb.open_store(sqlite_url)
    assert path.read_bytes() == before


def _step(tx: Any, dialect: Any) -> None:
    tx.run("CREATE TABLE rath_later (x INTEGER)")


def test_an_older_format_is_migrated_after_a_backup(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    session = rb.open_store(sqlite_url).create("s")
    monkeypatch.setattr(schema, "FORMAT", FORMAT + 1)
    monkeypatch.setattr(sqlite, "MIGRATIONS", (*MIGRATIONS, _step))
    assert rb.open_store(sqlite_url).session("s") == session
    backup = path.with_name(f"store.db.backup-format-{FORMAT}")
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    with sqlite3.connect(backup) as old:
        assert old.execute("PRAGMA user_version").fetchone() == (FORMAT,)
        assert old.execute("SELECT count(*) FROM rath_chunk").fetchone() == (1,)
        with pytest.raises(sqlite3.OperationalError):
            old.execute("SELECT * FROM rath_later")
    old.close()
    monkeypatch.setattr(schema, "FORMAT", FORMAT)
    with pytest.raises(NewerFormatError):
        rb.open_store(sqlite_url)


def test_a_migration_that_fails_changes_nothing(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rb.open_store(sqlite_url).create("s")

    def fails(tx: Any, dialect: Any) -> None:
        _step(tx, dialect)
        tx.run("no such statement")

    with monkeypatch.context() as patch:
        patch.setattr(schema, "FORMAT", FORMAT + 1)
        patch.setattr(sqlite, "MIGRATIONS", (*MIGRATIONS, fails))
        for _ in range(2):
            with pytest.raises(StoreError):
                rb.open_store(sqlite_url)
    with rb.open_store(sqlite_url) as store:
        assert len(store.session("s")) == 1
        assert not list(store.fsck())
    backups = Path(sqlite_url.removeprefix("sqlite:///")).parent.glob(f"*.backup-format-{FORMAT}*")
    assert len(list(backups)) == 2  # a backup is never overwritten


CREATE = """
import os, signal, sys, time
import rath_bridge as rb
rb.open_store("memory:").create("warm")
start = time.time() + 0.5
children = []
for name in range(5):
    pid = os.fork()
    if pid == 0:
        signal.alarm(90)  # never left behind
        for i in range(40):
            time.sleep(max(0, start + i * 0.05 - time.time()))
            store = rb.open_store(f"sqlite:///{sys.argv[1]}/{i}/store.db")
            store.session("s", create=True).append(rb.message("user", f"{name}"), on_conflict="serialise")
        os._exit(0)
    children.append(pid)
assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 5
"""


def test_many_processes_create_one_store_at_once(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CREATE, str(tmp_path)], capture_output=True, text=True, timeout=100)
    assert done.stderr == ""
    for i in range(40):
        with rb.open_store(f"sqlite:///{tmp_path}/{i}/store.db") as store:
            assert len(store.session("s")) == 6
            assert not list(store.fsck())


def test_a_log_that_was_left_behind_is_read(sqlite_url: str) -> None:
    code = "import os, sys, rath_bridge as rb\ns = rb.open_store(sys.argv[1]).create('s')\ns.append(rb.message('user', 'x'))\nos._exit(0)"
    subprocess.run([sys.executable, "-c", code, sqlite_url], check=True)
    assert Path(sqlite_url.removeprefix("sqlite:///") + "-wal").stat().st_size
    assert length_seen_by_another_process(sqlite_url) == 2


def test_the_limit_of_files_is_said(sqlite_url: str) -> None:
    code = (
        "import resource, sys, rath_bridge as rb\nrb.open_store('sqlite:///' + sys.argv[1][10:] + '2').close()\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))\n"
        "try:\n    rb.open_store(sys.argv[1])\nexcept rb.errors.StoreUnavailableError:\n    print('said')"
    )
    done = subprocess.run([sys.executable, "-c", code, sqlite_url], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("said\n", "")
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 4
