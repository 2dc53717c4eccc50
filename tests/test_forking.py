"""Forks amid threads that write: nobody is held up, and a child never goes on with what was half changed.

Each in a process of its own, which is ended from outside if it hangs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BEGIN = """
import os, signal, sys, threading, time, traceback
import rath_bridge as rb
from rath_bridge.errors import StoreUnavailableError
from rath_bridge.model.chunk import draft
from rath_bridge.model.kinds import SessionStart
from rath_bridge.store import forking
from rath_bridge.store.arriving import Landing

signal.alarm(100)

def child(work):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
"""

AMID_WRITERS = """
over = threading.Event()
names = {}
memory, lite = rb.open_store("memory:"), rb.open_store(f"sqlite:///{sys.argv[1]}/a.db", synchronous="OFF")

def write(store, number):
    for turn in range(10**9):
        session = store.create(f"w{number}.{turn}")
        names[store.url] = session.name
        for _ in range(100):
            if over.is_set():
                return
            session = session.append(rb.message("user", "x"))

def read(store):
    while not over.is_set():
        for session in store.sessions()[-3:]:
            session.messages()

def open_others():
    while not over.is_set():
        rb.open_store("memory:").create("a")

hog = os.fork()
if hog == 0:
    signal.alarm(100)
    while True:
        pass
work = [(write, memory, 0), (write, memory, 1), (write, memory, 2), (write, lite, 0), (write, lite, 1), (read, lite), (open_others,)]
threads = [threading.Thread(target=fn, args=args) for fn, *args in work]
for thread in threads:
    thread.start()
while len(names) < 2:
    time.sleep(0.01)

def go_on():
    assert all(one is not None for one in forking._all.all())
    session = memory.session(names[memory.url])
    session = session.append(rb.message("user", "child"), on_conflict="raise")
    assert session.fsck() == [] and len(list(session.chunks())) == len(session)
    session = lite.session(names[lite.url]).append(rb.message("user", "child"))
    assert session[-1].body.text == "child"
    rb.open_store("memory:").create("mine")

try:
    for _ in range(30):
        child(go_on)
finally:
    os.kill(hog, signal.SIGKILL)
    os.waitpid(hog, 0)
    over.set()
for thread in threads:
    thread.join(60)
    assert not thread.is_alive()
assert list(lite.fsck()) == []
"""

NOT_AT_REST = """
forking.WAIT = 0.2
store = rb.open_store("memory:")
lite = rb.open_store(f"sqlite:///{sys.argv[1]}/a.db")
kept = [store.create("s"), lite.create("s")]
began, go = [threading.Event(), threading.Event()], threading.Event()

def slow(number):
    began[number].set()
    go.wait()
    yield from ()

threads = [threading.Thread(target=one.backend.ingest, args=(slow(number), [])) for number, one in enumerate((store, lite))]
for thread, event in zip(threads, began):
    thread.start()
    event.wait()

def refused():
    for attempt in (lambda: kept[0].append(rb.message("user", "x")), lambda: kept[0][0], lambda: "s" in store, store.sessions):
        try:
            attempt()
        except StoreUnavailableError as error:
            assert "forked" in str(error)
        else:
            raise AssertionError("it went on")
    assert len(rb.open_store("memory:").create("s").append(rb.message("user", "x"))) == 2
    assert len(list(lite.session("s").chunks())) == 1
    child(lambda: None)

start = time.monotonic()
child(refused)
go.set()
for thread in threads:
    thread.join()
child(lambda: kept[0].append(rb.message("user", "x")))
assert len(kept[0].append(rb.message("user", "x"))) == len(kept[1].append(rb.message("user", "x"))) == 2
"""

CROSSWISE = """
stores = [rb.open_store("memory:").kept for _ in range(2)]
over = threading.Event()

def cross(number):
    mine, other = stores[number], stores[1 - number]
    while not over.is_set():
        with mine._lock:
            time.sleep(0.0005)
        with mine._lock:
            if other._lock.lock.acquire(timeout=0.001):
                other._lock.lock.release()

def fork_too():
    while not over.is_set():
        child(lambda: [store.append(f"c{n}", "main", [start], head=None) for n, store in enumerate(stores)])

start = draft(SessionStart(op="create", name="c", branch="main"))
threads = [threading.Thread(target=cross, args=(n,)) for n in range(2)] + [threading.Thread(target=fork_too) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(15):
    child(lambda: [store.append("d", "main", [start], head=None) for store in stores])
over.set()
for thread in threads:
    thread.join(30)
    assert not thread.is_alive()
assert not forking._coming and not forking._resting.held
"""


STOPPED = """
store = rb.open_store("memory:")
session = store.create("s")
plain, jumps = forking.monotonic, [0.0]

def monotonic():
    jumps[0] += 6.0  # as if the process had been stopped each time that it looks at the clock
    return plain() + jumps[0]

forking.monotonic = monotonic
began = threading.Event()

def slow():
    began.set()
    time.sleep(0.5)
    yield from ()

thread = threading.Thread(target=store.backend.ingest, args=(slow(), []))
thread.start()
began.wait()
child(lambda: session.append(rb.message("user", "x")))
thread.join()
"""


@pytest.mark.parametrize(
    "script", [AMID_WRITERS, NOT_AT_REST, CROSSWISE, STOPPED], ids=["amid-writers", "not-at-rest", "crosswise", "stopped"]
)
def test_a_fork(script: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + script, str(tmp_path)], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
