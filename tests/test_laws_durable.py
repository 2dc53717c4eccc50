"""Law 9: acknowledged means durable, after ``kill -9`` at any moment; several processes write one file; forks are safe."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

import rath_bridge as rb
from rath_bridge.model.digests import is_digest
from rath_bridge.session import Session
from tests.waiting import started

WRITER = """
import os, sys
import rath_bridge as rb
from rath_bridge.model.chunk import draft
from rath_bridge.model.kinds import Note
from rath_bridge.recorder import Recorder

url, how, name, count = sys.argv[1:4] + [int(sys.argv[4])]
store = rb.open_store(url)
session = store.session(name, create=True)

def acknowledged(digests):
    os.write(1, "".join(digest + "\\n" for digest in digests).encode())

def items(i):
    return [draft(Note(text=f"{i}.{j} " + "long " * (200 if j else 0))) for j in range(3)]

if how == "session":
    for i in range(count):
        batch = items(i)
        session = session.append(*batch, on_conflict="serialise")
        acknowledged(item.body_digest for item in batch)
elif how == "recorder":
    recorder = Recorder(session)
    for i in range(count):
        acknowledged(chunk.body_digest for chunk in recorder.append(*items(i)))
        seen = [recorder.emit(Note(text=f"observed {i}.{j}")) for j in range(3)]
        if i % 2:
            assert recorder.flush()
            acknowledged(item.body_digest for item in seen)
        else:
            with recorder.run("r"):
                seen.append(recorder.emit(Note(text=f"in a run {i}")))
            acknowledged(item.body_digest for item in seen)
print("done", flush=True)
"""


def writer(url: str, how: str, name: str = "s", count: int = 10_000) -> AbstractContextManager[subprocess.Popen[bytes]]:
    return started([sys.executable, "-c", WRITER, url, how, name, str(count)], stdout=subprocess.PIPE)


def bodies(session: Session) -> list[str]:
    return [chunk.body_digest for chunk in session.chunks()]


@pytest.mark.parametrize("how", ["session", "recorder"])
def test_acknowledged_means_durable(sqlite_url: str, how: str) -> None:
    acknowledged: list[str] = []
    chance = random.Random(how)
    for _ in range(4):
        with writer(sqlite_url, how) as process:
            assert process.stdout is not None
            some = chance.choice([1, 2, 5, 20, 60])
            acknowledged += [process.stdout.readline().decode().strip() for _ in range(some)]
            time.sleep(chance.random() * 0.02)
            os.kill(process.pid, signal.SIGKILL)
            acknowledged += process.stdout.read().decode().split()
            assert process.wait() == -signal.SIGKILL
        with rb.open_store(sqlite_url) as store:
            assert list(store.fsck()) == []
            session = store.session("s")
            found = bodies(session)
            assert len(found) == len(set(found))  # and nothing stands twice
            lost = [name for name in acknowledged if is_digest(name) and name not in set(found)]
            assert not lost
            assert [m for m in session.heads() if m != "main"] == []
            session.append(rb.message("user", "it can be written again"))
    assert len(acknowledged) > 8


def test_two_processes_write_one_file_and_lose_nothing(sqlite_url: str) -> None:
    rb.open_store(sqlite_url).close()
    with ExitStack() as stack:
        three = [("session", "s"), ("recorder", "s"), ("session", "t")]
        processes = [stack.enter_context(writer(sqlite_url, how, name, 40)) for how, name in three]
        said = [process.communicate(timeout=110)[0].decode().split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert all(lines[-1] == "done" for lines in said)
    with rb.open_store(sqlite_url) as store:
        for name, lines in (("s", said[0] + said[1]), ("t", said[2])):
            session = store.session(name)
            assert set(session.heads()) == {"main"}
            assert set(filter(is_digest, lines)) <= set(bodies(session))
        assert list(store.fsck()) == []


FORKS = """
import os, signal, sys
import rath_bridge as rb
from rath_bridge.model.chunk import draft
from rath_bridge.model.kinds import Note
from rath_bridge.recorder import Recorder

store = rb.open_store(sys.argv[1])
session = store.create("s")
recorder = Recorder(session)
recorder.append(draft(Note(text="warm")))
for i in range(20):
    recorder.emit(Note(text=f"before {i}"))  # queued in the parent: a child must not write it too

def work(name):
    for i in range(20):
        recorder.emit(Note(text=f"{name} observed {i}"))
        store.session("s").append(draft(Note(text=f"{name} appended {i}")), on_conflict="serialise")
    assert recorder.flush()

children = []
for name in ("one", "two", "three"):
    pid = os.fork()
    if pid == 0:
        signal.alarm(100)  # never left behind
        work(name)
        os._exit(0)
    children.append(pid)
work("parent")
assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
recorder.close()
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_forked_child_and_its_parent_both_write(kind: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(f"{kind}_url")
    done = subprocess.run([sys.executable, "-c", FORKS, url], capture_output=True, text=True, timeout=110)
    assert (done.returncode, done.stderr) == (0, "")
    with rb.open_store(url) as store:
        session = store.session("s")
        found = [str(chunk.values["text"]) for chunk in session.chunks() if chunk.kind == "note"]
        who = ("one", "two", "three", "parent")
        assert sorted(found) == sorted(
            ["warm", *(f"before {i}" for i in range(20))]
            + [f"{name} {what} {i}" for name in who for what in ("observed", "appended") for i in range(20)]
        )
        for name in who:
            for what in ("observed", "appended"):
                assert [text for text in found if text.startswith(f"{name} {what}")] == [f"{name} {what} {i}" for i in range(20)]
        assert set(session.heads()) == {"main"}
        assert list(store.fsck()) == []


def test_an_error_while_writing_leaves_the_file_as_it_was(sqlite_url: str) -> None:
    from rath_bridge.errors import MissingChunkError
    from rath_bridge.model.chunk import draft
    from rath_bridge.model.kinds import Note

    with rb.open_store(sqlite_url) as store:
        session = store.create("s").append(rb.message("user", "x"))
        size = Path(sqlite_url.removeprefix("sqlite:///")).stat().st_size
        for _ in range(3):
            with pytest.raises(MissingChunkError):
                store.backend.append("s", "main", [draft(Note(text="long " * 10_000))], head=session.head, parents=("0" * 64,))
        assert store.session("s") == session
        assert list(store.fsck()) == []
        assert Path(sqlite_url.removeprefix("sqlite:///")).stat().st_size == size
