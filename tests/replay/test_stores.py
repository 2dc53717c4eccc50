"""Replay and what-if on PostgreSQL, and on a store that another process writes to at the same time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

import rath_bridge as rb
from tests.openai_agents.scripted import say
from tests.replay.programs import RAN, at, never, program, recorded, scripted, state

WRITER = """
import sys
import rath_bridge as rb
with rb.open_store(sys.argv[1]) as store:
    other = store.session("other", create=True)
    print("ready", flush=True)
    for number in range(2000):
        other = other.append(rb.message("user", f"other {number}"))
        if number % 20 == 0:  # the replayed session goes on, too
            store.session("ticket").append(rb.message("user", f"meanwhile {number}"), on_conflict="serialise")
        if number % 5 == 0 and not sys.stdin.readline().strip():
            break
"""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
def store(url: str) -> Iterator[rb.Store]:
    RAN.clear()
    with rb.open_store(url) as opened:
        yield opened


@contextmanager
def another_process_writes(url: str) -> Generator[None]:
    """From before the block until its end; the writer ends with its input, whatever becomes of us."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            process.stdin.write("go\n" * 400)
            process.stdin.flush()
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            process.kill()


async def test_a_program_is_replayed_and_nothing_is_written(store: rb.Store) -> None:
    s = await recorded(store)
    before, RAN[:] = state(store), []
    report = await rb.areplay(s, program(store, never()))
    assert report.equal, str(report)
    assert (report.live, RAN, state(store)) == (0, [], before)


async def test_a_what_if_is_written_to_a_branch(store: rb.Store) -> None:
    s = await recorded(store)
    result = at(s, "tool_result", "weather")
    report = await rb.areplay(s, program(store, scripted(say("ok"))), overrides={result.id: "rain"}, then="live", branch="rain")
    assert report.equal, str(report)
    assert store.session("ticket@rain").fsck() == []
    assert store.session("ticket").head == s.head


async def test_another_process_writes_meanwhile(store: rb.Store, url: str) -> None:
    s = await recorded(store)
    result = at(s, "tool_result", "weather")
    with another_process_writes(url):
        for number in range(3):
            report = await rb.areplay(s, program(store, never()))
            assert report.equal, str(report)
            assert report.session.head == s.head
            what_if = await rb.areplay(
                s, program(store, scripted(say("ok"))), overrides={result.id: "rain"}, then="live", branch=f"rain-{number}"
            )
            assert what_if.equal, str(what_if)
    assert [chunk.id for chunk in store.session("ticket")][: len(s)] == [chunk.id for chunk in s]
    assert {chunk.kind for chunk in list(store.session("ticket"))[len(s) :]} == {"message"}, "only what the other wrote"
    assert len(store.session("other")) > 1
    assert [f"ticket@rain-{number}" in store for number in range(3)] == [True] * 3
    assert list(store.fsck()) == []
