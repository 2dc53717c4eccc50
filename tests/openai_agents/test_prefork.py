"""Prefork workers: a processor that was made before the fork loses nothing, and nobody waits for a lock of a thread that is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rath_bridge as rb
from tests.openai_agents.scripted import said, whole

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

PREFORK = """
import os, signal, sys, threading
import rath_bridge as rb
from agents import RunConfig, Runner
from rath_openai_agents import book, install
from tests.openai_agents.scripted import say, solo

store = rb.open_store(sys.argv[1])
processor = install(store)

def work(name):
    Runner.run_sync(solo([say("hello " + name)]), "hi", run_config=RunConfig(group_id=name))

busy, over = threading.Event(), threading.Event()

def hold():
    with processor._lock, book._lock:
        busy.set()
        over.wait(60)

if sys.argv[2] == "busy":
    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    busy.wait(60)
else:
    work("master")
children = []
for number in range(3):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            work(f"worker-{number}")
        finally:
            os._exit(0)  # as a worker that is stopped: no exit handlers
    children.append(pid)
statuses = [os.waitpid(pid, 0)[1] for pid in children]
over.set()
if sys.argv[2] == "busy":
    holder.join()
    work("master")
print(statuses)
os._exit(0)
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("how", ["at rest", "busy"])
def test_workers_that_are_forked_lose_nothing(sqlite_url: str, how: str) -> None:
    """openai-agents-python issue 2135, for servers that fork: each run is durable at its trace's end, in whatever process it was."""
    done = subprocess.run(
        [sys.executable, "-c", PREFORK, sqlite_url, how], capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[2],
        check=False,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1:] == ["[0, 0, 0]"], done.stderr
    with rb.open_store(sqlite_url) as store:
        names = {"master", "worker-0", "worker-1", "worker-2"}
        assert {one.name for one in store.sessions()} == {f"openai_agents/{name}" for name in names}
        for name in names:
            s = whole(store.session(f"openai_agents/{name}"))
            assert s.usage().input_tokens == 10
            assert {chunk.values["status"] for chunk in s if chunk.kind == "run" and chunk.values["phase"] == "end"} == {"ok"}
            assert said(s) == []
