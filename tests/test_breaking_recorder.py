"""The recorder under attack: what a store refuses, generators and tasks that end elsewhere, closing amid writes, exits."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

import rath_bridge as rb
from rath_bridge.errors import EncodeError, StoreUnavailableError
from rath_bridge.model.chunk import Draft, Key, draft
from rath_bridge.model.kinds import Gap, Note
from rath_bridge.recorder import Recorder, current_recorder, current_run
from rath_bridge.store.memory import MemoryBackend
from rath_bridge.store.protocol import Appended


def notes(session: rb.Session) -> list[str]:
    return [chunk.values["text"] for chunk in session.chunks() if chunk.kind == "note"]


def gaps(session: rb.Session) -> list[Gap]:
    return [cast(Gap, chunk.body) for chunk in session.chunks() if chunk.kind == "gap"]


class Picky(MemoryBackend):
    """Cannot keep some chunks; may be down."""

    down = False

    def append(self, session: str, branch: str, drafts: Sequence[Draft], **options: Any) -> Appended:
        if self.down:
            raise StoreUnavailableError(self.url, "down")
        if any(b"unbearable" in item.body for item in drafts if item.kind == "note"):
            raise RuntimeError("I cannot keep that")
        return super().append(session, branch, drafts, **options)


def test_a_chunk_that_the_store_refuses_holds_up_no_others() -> None:
    store = rb.session.Store(Picky())
    recorder = Recorder(store.create("s"))
    for text in ("one", "unbearable", "two", "unbearable", "three"):
        recorder.emit(Note(text=text))
    assert recorder.flush()
    recorder.emit(Note(text="four"))
    assert recorder.flush()
    assert notes(recorder.session) == ["one", "two", "three", "four"]
    assert [(gap.count, "I cannot keep that" in (gap.reason or "")) for gap in gaps(recorder.session)] == [(1, True)] * 2
    recorder.close()


def test_a_store_that_is_down_loses_nothing_and_repeats_nothing() -> None:
    backend = Picky()
    store = rb.session.Store(backend)
    recorder = Recorder(store.create("s"))
    backend.down = True
    for text in ("one", "unbearable", "two"):
        recorder.emit(Note(text=text))
        assert not recorder.flush()
    backend.down = False
    recorder.close()
    assert notes(store.session("s")) == ["one", "two"]
    assert len(gaps(store.session("s"))) == 1


@pytest.mark.parametrize("body", [None, "text", 5, Note(text=cast(Any, 5)), Note(attributes={"x": object()})])
def test_what_is_no_body_is_a_counted_gap(body: Any) -> None:
    recorder = Recorder(rb.open_store("memory:").create("s"))
    assert recorder.emit(body) is None
    assert recorder.emit(Note(text="later"), keys=cast(Any, (Key("f", cast(Any, 5), "", ""),))) is None
    recorder.emit(Note(text="later"))
    assert notes(recorder.session) == ["later"]
    assert sum(gap.count for gap in gaps(recorder.session)) == 2
    recorder.close()
    with pytest.raises(EncodeError, match="keys"):
        draft(Note(), once=Key("f", "n", "", cast(Any, None)))


def test_gaps_wait_in_the_spool_like_everything() -> None:
    backend = Picky()
    store = rb.session.Store(backend)
    recorder = Recorder(store.create("s"), spool=10)
    backend.down = True
    for _ in range(50):
        recorder.emit(cast(Any, None))
    backend.down = False
    recorder.close()
    assert len(store.session("s")) <= 12
    assert sum(gap.count for gap in gaps(store.session("s"))) == 50


def test_a_generator_that_is_closed_elsewhere_leaves_nothing_ambient() -> None:
    recorder = Recorder(rb.open_store("memory:").create("s"))

    def work() -> Iterator[int]:
        with recorder.run("generator"):
            yield 1
            yield 2

    started = work()
    next(started)
    thread = threading.Thread(target=cast(Any, started).close)
    thread.start()
    thread.join()
    assert current_run() is None
    ends = [chunk.values for chunk in recorder.session.chunks() if chunk.values.get("phase") == "end"]
    assert [end["status"] for end in ends] == ["cancelled"]
    recorder.close()
    assert current_recorder() is None


def test_cancelled_tasks_and_errors_end_their_runs() -> None:
    recorder = Recorder(rb.open_store("memory:").create("s"))

    async def work() -> None:
        async def one() -> None:
            with recorder.run("cancelled"):
                await asyncio.sleep(60)

        task = asyncio.create_task(one())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert current_run() is None
        with pytest.raises(ZeroDivisionError), recorder.run("failed"):
            _ = 1 / 0

    asyncio.run(work())
    ends = [chunk.values for chunk in recorder.session.chunks() if chunk.values.get("phase") == "end"]
    assert [(end["name"], end["status"]) for end in ends] == [("cancelled", "cancelled"), ("failed", "error")]
    recorder.close()


def test_nested_recorders_on_two_stores_do_not_mix() -> None:
    one, two = rb.open_store("memory:"), rb.open_store("memory:")
    with rb.record(one, "outer") as outer:
        with rb.record(two, "inner") as inner:
            assert current_recorder() is inner
            inner.emit(Note(text="in"))
            outer.emit(Note(text="out"))
        assert current_recorder() is outer
        outer.emit(Note(text="out again"))
    assert notes(one.session("outer")) == ["out", "out again"]
    assert notes(two.session("inner")) == ["in"]
    assert current_recorder() is None


def test_closing_while_others_emit_loses_nothing(sqlite_url: str) -> None:
    store = rb.open_store(sqlite_url)
    recorder = Recorder(store.create("s"))
    emitted: list[str] = []
    begun = threading.Event()

    def work(name: str) -> None:
        for i in range(60):
            recorder.emit(Note(text=f"{name} {i}"))
            emitted.append(f"{name} {i}")
            begun.set()

    threads = [threading.Thread(target=work, args=(str(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    begun.wait()
    recorder.close()
    for thread in threads:
        thread.join()
    assert sorted(notes(store.session("s"))) == sorted(emitted)
    assert list(store.fsck()) == []
    store.close()


EXIT = """
import sys, rath_bridge as rb
from rath_bridge.errors import StoreUnavailableError
from rath_bridge.model.kinds import Note
from rath_bridge.recorder import Recorder
down = Recorder(rb.open_store("memory:").create("s"), strict=True)
good = [Recorder(rb.open_store(sys.argv[1]).session(f"s{i}", create=True)) for i in range(4)]
for recorder in (down, *good):
    recorder.emit(Note(text="last words"))
def refuse(*args, **options):
    raise StoreUnavailableError("x", "down")
type(down.store.backend).append = refuse
{end}
"""


@pytest.mark.parametrize(
    "end", ["", "raise SystemExit(0)", "1 / 0", "import threading; threading.Thread(target=lambda: None).start()"]
)
def test_an_exit_writes_what_is_queued_even_beside_a_store_that_is_down(sqlite_url: str, end: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXIT.replace("{end}", end), sqlite_url], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == (1 if "1 / 0" in end else 0)
    with rb.open_store(sqlite_url) as store:
        assert [notes(store.session(f"s{i}")) for i in range(4)] == [["last words"]] * 4


def test_time_may_go_backwards(sqlite_url: str) -> None:
    store = rb.open_store(sqlite_url)
    session = store.create("s")
    for at in (10**15, 5, -(10**15), 0):
        session = session.append(draft(Note(text=str(at)), at=at))
    assert [chunk.at for chunk in session[1:]] == [10**15, 5, -(10**15), 0]
    assert [entry.chunk.position for entry in session.log()] == [4, 3, 2, 1, 0]
    assert list(store.fsck()) == []
    store.close()
