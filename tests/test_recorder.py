"""The recorder: what is ambient, what is acknowledged, and what happens while the store is down."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

import rath_bridge as rb
from rath_bridge import recorder as recording
from rath_bridge.errors import RecorderError, StoreUnavailableError
from rath_bridge.model.chunk import Chunk, Draft, Key, draft
from rath_bridge.model.digests import digest
from rath_bridge.model.kinds import Approval, Gap, Inference, Message, Note, Run, Span, ToolCall, ToolResult, Usage
from rath_bridge.model.parts import BlobPart, TextPart, ToolCallPart, ToolCallResponsePart
from rath_bridge.model.trees import list_tree
from rath_bridge.recorder import Recorder, current_recorder, current_run, recorder_for
from rath_bridge.redaction import Redactor
from rath_bridge.session import Session, Store
from rath_bridge.store import connect
from tests.waiting import until


class Flaky:
    """A backend in front of another one that can be down, or lose its answer after it has committed."""

    def __init__(self, behind: Any, error: Exception | None = None) -> None:
        self.behind, self.error = behind, error or StoreUnavailableError("flaky:", "it is down")
        self.down = self.loses_answers = False
        self.attempts = 0

    def append(self, *args: Any, **options: Any) -> Any:
        self.attempts += 1
        if self.down:
            raise self.error
        done = self.behind.append(*args, **options)
        if self.loses_answers:
            self.down = True
            raise self.error
        return done

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            if self.down:
                raise self.error
            return getattr(self.behind, name)(*args, **options)

        return self.behind.url if name == "url" else call


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with rb.open_store(store_url) as opened:
        yield opened


@pytest.fixture
def flaky() -> Flaky:
    return Flaky(connect("memory:"))


def notes(session: Session) -> list[str]:
    return [str(chunk.values.get("text", "")) for chunk in session.chunks() if chunk.kind == "note"]


def runs(session: Session) -> list[tuple[str, Run]]:
    return [(chunk.run or "", chunk.body) for chunk in session.chunks() if isinstance(chunk.body, Run)]


def say(text: str) -> None:
    ambient = current_recorder()
    assert ambient is not None
    ambient.emit(Note(text=text))


# ---------------------------------------------------------------- what is ambient


def test_runs_nest_and_come_back(store: Store) -> None:
    assert current_recorder() is None
    with rb.record(store, "s") as recorder:
        assert current_recorder() is recorder
        assert current_run() is None
        say("outside")
        with recorder.run("outer", "graph") as outer:
            say("in outer")
            with recorder.run("inner") as inner:
                assert (inner.parent, inner.top, current_run()) == (outer, outer, inner)
                assert inner.span.trace_id == outer.span.trace_id
                assert inner.span.parent_id == outer.span.span_id
                say("in inner")
            assert current_run() is outer
            say("again in outer")
    assert current_recorder() is None
    session = store.session("s")
    by_text = {str(c.values["text"]): c.run for c in session.chunks() if c.kind == "note"}
    assert by_text == {"outside": None, "in outer": outer.id, "in inner": inner.id, "again in outer": outer.id}
    assert [(run, body.phase, body.parent) for run, body in runs(session)] == [
        (outer.id, "begin", None), (inner.id, "begin", outer.id), (inner.id, "end", None), (outer.id, "end", None),
    ]  # fmt: skip
    assert session.fsck() == []


@pytest.mark.parametrize(
    ("error", "status"),
    [(ValueError("no"), "error"), (KeyboardInterrupt(), "cancelled"), (asyncio.CancelledError(), "cancelled")],
)
def test_a_run_ends_as_its_block_does(error: BaseException, status: str) -> None:
    store = rb.open_store("memory:")
    with contextlib.suppress(type(error)), rb.record(store, "s") as recorder, recorder.run("r"):
        raise error
    end = runs(store.session("s"))[-1][1]
    assert (end.phase, end.status) == ("end", status)
    assert (end.error or "").startswith(type(error).__name__)
    assert current_run() is None


async def test_tasks_keep_their_own_run(store: Store) -> None:
    async def work(name: str, recorder: Recorder) -> str:
        with recorder.run(name) as run:
            for i in range(3):
                await asyncio.sleep(0)
                say(f"{name} {i}")
            return run.id

    with rb.record(store, "s") as recorder, recorder.run("outer") as outer:
        ids = dict(zip("abc", await asyncio.gather(*(work(name, recorder) for name in "abc")), strict=True))
        await asyncio.to_thread(say, "in a thread of asyncio")
    chunks = list(store.session("s").chunks())
    for name, run in ids.items():
        assert [c.values["text"] for c in chunks if c.kind == "note" and c.run == run] == [f"{name} {i}" for i in range(3)]
    assert {body.parent for _, body in runs(store.session("s")) if body.name in ids and body.phase == "begin"} == {outer.id}
    assert next(c for c in chunks if c.values.get("text") == "in a thread of asyncio").run == outer.id


def test_bound_functions_record_from_any_thread(store: Store) -> None:
    with rb.record(store, "s") as recorder, recorder.run("outer") as outer, ThreadPoolExecutor(4) as pool:
        list(pool.map(recorder.bind(say), [str(i) for i in range(20)]))
        assert pool.submit(current_recorder).result() is None  # unbound: nothing leaks into the pool's threads
    found = [c for c in store.session("s").chunks() if c.kind == "note"]
    assert sorted(int(str(c.values["text"])) for c in found) == list(range(20))
    assert {c.run for c in found} == {outer.id}


@pytest.mark.parametrize("record_content", [True, False])
def test_what_arrives_unbound_is_counted(record_content: bool) -> None:
    store = rb.open_store("memory:")
    with rb.record(store, "s", record_content=record_content) as recorder:

        def foreign() -> None:
            assert current_recorder() is None
            recorder.emit(Note(text="from nowhere"), run=recorder.unattributed())

        threads = [threading.Thread(target=foreign) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = runs(store.session("s"))
    assert [(body.type, body.phase) for _, body in found] == [("unattributed", "begin"), ("agent", "end")] or found[0][
        1
    ].type == "unattributed"
    assert found[-1][1].attributes["count"] == 3
    unattributed = found[0][0]
    assert [c.run for c in store.session("s").chunks() if c.kind == "note"] == [unattributed] * 3


def test_session_precedence() -> None:
    store, other = rb.open_store("memory:"), rb.open_store("memory:")
    found, owned = recorder_for(store, "langgraph", "t/1 ü")
    assert (found.name, owned) == ("langgraph/t/1%20%C3%BC", True)
    assert recorder_for(store, "openai_agents", "1")[0].name == "openai_agents/1"
    assert recorder_for(store, "langgraph", "1", "mine")[0].name == "mine"
    assert recorder_for(store, "langgraph")[0].name != recorder_for(store, "langgraph")[0].name
    with rb.record(store, "ambient") as ambient:
        assert recorder_for(store, "langgraph", "1") == (ambient, False)
        assert recorder_for(store, "langgraph", "1", "ambient") == (ambient, False)
        explicit, owned = recorder_for(store, "langgraph", "1", "explicit")
        assert (explicit.name, owned) == ("explicit", True)
        elsewhere, owned = recorder_for(other, "langgraph", "1", "ambient")
        assert (elsewhere.store, owned) == (other, True)
    for one in (found, explicit, elsewhere):
        one.close()


# ---------------------------------------------------------------- what is acknowledged


def test_append_is_acknowledged_and_stands_behind_what_was_queued(store: Store) -> None:
    with rb.record(store, "s") as recorder:
        recorder.emit(Note(text="queued"))
        (chunk,) = recorder.append(draft(Note(text="appended")))
        assert notes(store.session("s")) == ["queued", "appended"]
        assert store.backend.chunk(chunk.id) == chunk


def test_the_end_of_a_top_level_run_is_acknowledged(store: Store) -> None:
    with rb.record(store, "s") as recorder:
        with recorder.run("outer"), recorder.run("inner"):
            recorder.emit(Note(text="x"))
        assert notes(store.session("s")) == ["x"]
        assert runs(store.session("s"))[-1][1].name == "outer"


def test_the_rest_is_written_soon() -> None:
    store = rb.open_store("memory:")
    with rb.record(store, "s") as recorder:
        recorder.emit(Note(text="x"))
        assert until(lambda: notes(store.session("s"))) == ["x"]


def test_a_recorder_without_a_thread_writes_when_it_is_flushed_and_loses_nothing_when_it_is_closed(store: Store) -> None:
    recorder = Recorder.late(store, "s", background=False)
    before = set(threading.enumerate())
    for number in range(3):
        recorder.emit(Note(text=f"note {number}"))
    assert set(threading.enumerate()) <= before
    assert "s" not in store
    assert recorder.flush()
    recorder.emit(Note(text="note 3"))
    recorder.close()
    assert [body.text for body in (chunk.body for chunk in store.session("s")) if isinstance(body, Note)] == [
        f"note {number}" for number in range(4)
    ]


def test_many_threads_lose_nothing(store: Store) -> None:
    with rb.record(store, "s") as recorder:

        def work(number: int) -> None:
            for i in range(50):
                recorder.emit(Note(text=f"{number}.{i}"))
                if i % 10 == 0:
                    recorder.append(draft(Note(text=f"{number}.{i}+")))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
    found = notes(store.session("s"))
    assert len(found) == len(set(found)) == 4 * 55
    for number in range(4):
        mine = [text for text in found if text.startswith(f"{number}.")]
        assert [text for text in mine if "+" not in text] == [f"{number}.{i}" for i in range(50)]


def test_two_recorders_share_a_session(store: Store) -> None:
    with rb.record(store, "s") as one, rb.record(store, "s") as two:
        for i in range(5):
            one.emit(Note(text=f"one {i}"))
            two.emit(Note(text=f"two {i}"))
            two.flush()
    assert len(notes(store.session("s"))) == 10
    assert store.session("s").heads().keys() == {"main"}


def test_what_is_emitted_after_closing_is_still_written() -> None:
    store = rb.open_store("memory:")
    with rb.record(store, "s") as recorder:
        pass
    recorder.emit(Note(text="late"))
    recorder.close()
    assert notes(store.session("s")) == ["late"]


EXIT = """
import sys
import rath_bridge as rb
from rath_bridge.model.kinds import Note
from rath_bridge.recorder import Recorder
recorder = Recorder(rb.open_store(sys.argv[1]).session("s", create=True))
for i in range(50):
    recorder.emit(Note(text=str(i)))
if sys.argv[2] == "error":
    raise SystemExit(3)
"""


@pytest.mark.parametrize("how", ["end", "error"])
def test_an_unclosed_recorder_is_flushed_at_exit(sqlite_url: str, how: str) -> None:
    done = subprocess.run([sys.executable, "-c", EXIT, sqlite_url, how], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (3 if how == "error" else 0, "")
    with rb.open_store(sqlite_url) as store:
        assert notes(store.session("s")) == [str(i) for i in range(50)]


# ---------------------------------------------------------------- while the store is down


def test_observers_go_on_while_the_store_is_down(flaky: Flaky, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(flaky)  # pyright: ignore[reportArgumentType]
    with caplog.at_level(logging.WARNING, "rath_bridge"), rb.record(store, "s") as recorder:
        flaky.down = True
        with recorder.run("r"):
            for i in range(10):
                recorder.emit(Note(text=str(i)))
            assert recorder.flush() is False
        assert caplog.text.count("waits") == 1
        flaky.down = False
    session = store.session("s")
    assert notes(session) == [str(i) for i in range(10)]
    assert [body.phase for _, body in runs(session)] == ["begin", "end"]
    assert session.fsck() == []


@pytest.mark.parametrize("error", [RuntimeError("a bug in the store"), OSError(28, "disk full")])
def test_whatever_the_store_raises(error: Exception) -> None:
    flaky = Flaky(connect("memory:"), error)
    store = Store(flaky)  # pyright: ignore[reportArgumentType]
    with rb.record(store, "s") as recorder:
        flaky.down = True
        with recorder.run("r"):
            recorder.emit(Note(text="kept"))
        with pytest.raises(type(error)):
            recorder.append(draft(Note(text="refused")))
        flaky.down = False
    assert notes(store.session("s")) == ["kept"]


def test_an_answer_that_was_lost_doubles_nothing(flaky: Flaky) -> None:
    store = Store(flaky)  # pyright: ignore[reportArgumentType]
    with rb.record(store, "s") as recorder:
        recorder.emit(Note(text="before"))
        assert recorder.flush()
        for i in range(3):
            flaky.loses_answers = True
            recorder.emit(Note(text=f"{i} a"))
            recorder.emit(Note(text=f"{i} b"))
            recorder._down_until = 0.0
            assert recorder.flush() is False
            recorder.emit(Note(text=f"{i} meanwhile"))
            flaky.down = flaky.loses_answers = False
            store.session("s").append(draft(Note(text=f"{i} by another")), on_conflict="serialise")
            recorder._down_until = 0.0
            assert recorder.flush() is True
    found = notes(store.session("s"))
    assert found == ["before", *(f"{i} {what}" for i in range(3) for what in ("a", "b", "by another", "meanwhile"))]


@pytest.mark.parametrize("lost_answer", [False, True])
def test_a_full_spool_leaves_one_counted_gap(flaky: Flaky, lost_answer: bool, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(flaky)  # pyright: ignore[reportArgumentType]
    with rb.record(store, "s", spool=5) as recorder:
        flaky.down = True
        drafts = [recorder.emit(Note(text=str(i))) for i in range(12)]
        assert [item is not None for item in drafts] == [True] * 5 + [False] * 7
        assert caplog.text.count("spool") == 1
        flaky.down, flaky.loses_answers = False, lost_answer
        recorder._down_until = 0.0
        recorder.flush()
        flaky.down = flaky.loses_answers = False
        recorder._down_until = 0.0
        assert recorder.flush()
        recorder.emit(Note(text="after"))
    session = store.session("s")
    assert notes(session) == ["0", "1", "2", "3", "4", "after"]
    assert [chunk.values["count"] for chunk in session.chunks() if chunk.kind == "gap"] == [7]


def test_an_observer_does_not_wait_for_a_store_that_hangs(flaky: Flaky) -> None:
    store = Store(flaky)  # pyright: ignore[reportArgumentType]
    hangs, entered = threading.Event(), threading.Event()
    append = flaky.behind.append

    def slow(*args: Any, **options: Any) -> Any:
        entered.set()
        hangs.wait(60)
        return append(*args, **options)

    with rb.record(store, "s") as recorder:
        flaky.behind.append = slow
        recorder.emit(Note(text="1"))
        assert entered.wait(60)  # the background thread is inside the store now
        recorder.emit(Note(text="2"))  # and this returns nevertheless
        hangs.set()
    assert notes(store.session("s")) == ["1", "2"]


def test_strict_recorders_raise(flaky: Flaky) -> None:
    store = Store(flaky)  # pyright: ignore[reportArgumentType]
    recorder = Recorder(store.create("s"), strict=True)
    with pytest.raises(RecorderError, match=r"body\.arguments"):
        recorder.emit(ToolCall(name="f", arguments=object()))
    flaky.down = True
    with pytest.raises(RecorderError, match="it is down"), recorder.run("r"):
        pass
    flaky.down = False
    recorder.close()
    assert [body.phase for _, body in runs(store.session("s"))] == ["begin", "end"]


def test_what_cannot_be_kept_is_a_gap_and_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    store = rb.open_store("memory:")
    with caplog.at_level(logging.WARNING, "rath_bridge"), rb.record(store, "s") as recorder:
        assert recorder.emit(ToolCall(name="f", arguments={"x": [object()]})) is None
        recorder.emit(Note(text="goes on"))
    assert "body.arguments.x[0]" in caplog.text
    gap, note = list(store.session("s").chunks())[1:]
    assert "body.arguments.x[0]" in str(gap.values["reason"])
    assert (gap.values["count"], note.values["text"]) == (1, "goes on")


def test_once_and_keys_go_through(store: Store) -> None:
    key = Key("made", "1", "", "turn-1")
    with rb.record(store, "s") as recorder:
        for text in ("first", "again"):
            recorder.emit(Note(text=text), once=key, keys=[Key("made", "1", "", "other")])
            recorder.flush()
    assert notes(store.session("s")) == ["first"]
    found = store.backend.lookup(Key("made", "1", "", "other"))
    assert found is not None
    assert found.values["text"] == "first"


# ---------------------------------------------------------------- what is kept of the content

KEY = "sk-proj-" + "a1B2" * 8


def everything(store: Store) -> bytes:
    chunks = list(store.session("s").chunks())
    names = {name for chunk in chunks for name in chunk.references}
    return b"".join([*(c.body_bytes or b"" for c in chunks), *store.backend.objects(names).values()])


def test_secrets_are_gone_before_anything_is_hashed(store: Store) -> None:
    item = KEY.encode()
    with rb.record(store, "s") as recorder:
        recorder.emit(Message(role="user", parts=(TextPart(f"my key is {KEY}, {'long ' * 200}"),)))
        recorder.emit(
            ToolCall(name="f", arguments={"headers": {"Authorization": f"Bearer {KEY}"}}),
            native=recording.Native("made", "1", "json", b'{"key": "' + item + b'"}'),
            objects={digest(item): item},
        )
        with contextlib.suppress(ValueError), recorder.run("r"):
            raise ValueError(KEY)
    assert KEY.encode() not in everything(store)
    assert b"[redacted:openai-key]" in everything(store)


@pytest.mark.parametrize(
    "about", [{"rows": 1}, {"key": KEY}, {"long": "x" * 600}, {"odd": [None, 2**70, b"x", "\ud800"]}], ids=str
)
def test_a_map_of_fields_becomes_the_same_draft_as_its_body(store: Store, about: dict[str, Any]) -> None:
    body = Span(name="query", status="ok", duration=0.5, attributes=about, scope="here")
    origin = {"adapter": "made", "framework": "none", "version": "1"}
    for content in (True, False):
        with rb.record(store, f"s-{content}", record_content=content) as recorder, recorder.run("r") as run:
            values = {"name": "query", "status": "ok", "duration": 0.5, "attributes": about, "scope": "here"}
            text = '{"adapter":"made","framework":"none","version":"1"}'
            one = recorder.draft_of("span", values, run=run, origin=text, span=run.span, at=5)
            other = recorder.draft(body, run=run, origin=origin, span=run.span, at=5)
            recorder.append(one, other)
        left, right = list(store.session(f"s-{content}"))[-3:-1]
        assert left.values == right.values
        assert left.size == right.size
        assert (one.origin, one.run, one.span, one.at, one.kind) == (other.origin, other.run, other.span, other.at, other.kind)
        assert KEY.encode() not in one.body


def test_an_item_with_a_secret_that_stands_in_a_tree_is_a_counted_gap(caplog: pytest.LogCaptureFixture) -> None:
    store = rb.open_store("memory:")
    item = KEY.encode()
    with rb.record(store, "s") as recorder:
        recorder.emit(Note(text="seen"), objects={digest(item): item})
    session = store.session("s")
    assert [chunk.kind for chunk in session] == ["session", "gap"]
    assert "redact items before their tree is built" in caplog.text
    assert not session.fsck()


def test_a_store_that_is_down_when_the_work_begins_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    store = rb.open_store("memory:")
    up = store.backend.append

    def down(*_: object, **__: object) -> object:
        raise StoreUnavailableError("memory:", "down")

    store.backend.append = down  # type: ignore[method-assign]  # pyright: ignore[reportAttributeAccessIssue]
    recorder, owned = recording.recorder_for(store, "langgraph", "7")
    recorder.emit(Note(text="while it was down"))
    assert owned
    assert not recorder.flush()
    store.backend.append = up  # type: ignore[method-assign]
    recorder.close()
    assert notes(store.session("langgraph/7")) == ["while it was down"]


def test_what_a_framework_loads_again_is_kept_as_given() -> None:
    store = rb.open_store("memory:")
    with rb.record(store, "s", redactor=Redactor.of(secrets=["hunter22"])) as recorder:
        recorder.append(
            recorder.draft(Note(text="hunter22 loads"), observed=False), recorder.draft(Note(text="hunter22 is seen"))
        )
    assert notes(store.session("s")) == ["hunter22 loads", "[redacted:secret] is seen"]


def test_no_redactor_keeps_secrets() -> None:
    store = rb.open_store("memory:")
    with rb.record(store, "s", redactor=None) as recorder:
        recorder.emit(Note(text=KEY))
    assert notes(store.session("s")) == [KEY]


def test_structure_without_content() -> None:
    store = rb.open_store("memory:")
    secret = "what nobody should read"
    with (
        rb.record(store, "s", record_content=False) as recorder,
        contextlib.suppress(ValueError),
        recorder.run("agent", system_instructions=secret, tools=[secret], attributes={"a": secret}),
    ):
        recorder.emit(
            Message(role="user", parts=(TextPart(secret, {"x": secret}), BlobPart("image", secret.encode()))),
            native=recording.Native("made", "1", "json", secret.encode()),
        )
        recorder.emit(Message(role="assistant", parts=(ToolCallPart("call-1", "find", {"q": secret}),)))
        recorder.emit(ToolCall(name="find", arguments={"q": secret}, call_id="call-1"))
        recorder.emit(ToolResult(name="find", result=secret, error=f"ValueError: {secret}", call_id="call-1"))
        recorder.emit(Message(role="tool", parts=(ToolCallResponsePart("call-1", secret),)))
        recorder.emit(
            Inference(
                model="m",
                request={"system": secret},
                input=(secret,),
                output=(secret,),
                error=secret,
                usage=Usage(input_tokens=3),
            )
        )
        recorder.emit(Span(name="span", attributes={"a": secret}, events=({"body": secret},)))
        recorder.emit(Approval(phase="denied", subject=secret, reason=secret, call_id="call-1"))
        raise ValueError(secret)
    session = store.session("s")
    assert secret.encode() not in everything(store)
    assert [call.status for call in session.calls()] == ["ok"]
    assert session.usage().input_tokens == 3
    assert [m.role for m in session.messages()] == ["user", "assistant", "tool"]
    assert [m.text for m in session.messages()] == ["", "", ""]
    assert [part.name for part in session.messages()[1].parts if isinstance(part, ToolCallPart)] == ["find"]
    assert runs(session)[-1][1].error == "ValueError"


def test_emitting_gives_the_draft_and_never_the_users_objects() -> None:
    store = rb.open_store("memory:")
    arguments = {"x": [1]}
    with rb.record(store, "s") as recorder:
        item = recorder.emit(ToolCall(name="f", arguments=arguments))
        arguments["x"].append(2)  # encoded when it was seen
    assert item is not None
    chunk: Chunk = store.session("s")[-1]
    assert chunk.body_digest == item.body_digest
    assert chunk.values["arguments"] == {"x": [1]}


def test_hooks_that_come_in_pairs() -> None:
    store = rb.open_store("memory:")
    recorder = Recorder(store.create("s"))
    run = recorder.begin("r")
    tokens = recording.enter(recorder, run)
    assert current_run() is run
    recording.leave(tokens)
    assert current_run() is None
    leave: Callable[[], None] = lambda: recording.leave(tokens)
    leave()  # twice, and from another context: ignored
    recorder.end(run)
    recorder.close()
    recorder.close()


def test_a_deferred_chunk_is_built_once_and_stands_in_its_place(store: Store) -> None:
    made: list[str] = []

    with rb.record(store, "s") as recorder:

        def make() -> Draft:
            made.append("now")
            return recorder.draft(Note(text="deferred"))

        recorder.emit(Note(text="before"))
        recorder.defer(make)
        recorder.emit(Note(text="behind"))
        recorder.defer(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    bodies = [chunk.body for chunk in store.session("s")]
    assert [body.text for body in bodies if isinstance(body, Note)] == ["before", "deferred", "behind"]
    assert [body.count for body in bodies if isinstance(body, Gap)] == [1]
    assert made == ["now"]


def test_what_is_deferred_may_prepare_only_and_is_done_once_though_the_store_is_down(store: Store) -> None:
    flaky, done = Flaky(store.backend), list[str]()
    recorder = Recorder.late(Store(flaky), "s")  # type: ignore[arg-type]
    flaky.down = True
    recorder.emit(Note(text="before"))
    recorder.defer(lambda: done.append("prepared"))
    recorder.defer(lambda: recorder.draft(Note(text="after " + done[0])))
    assert not recorder.flush()
    flaky.down = False
    recorder.close()
    assert [c.body.text for c in store.session("s") if isinstance(c.body, Note)] == ["before", "after prepared"]
    assert done == ["prepared"]


def test_what_was_brought_before_an_erasure_is_brought_again(store: Store) -> None:
    flaky = Flaky(store.backend)
    recorder = Recorder.late(Store(flaky), "s", background=False)  # type: ignore[arg-type]
    items = [b"first " * 200, b"second " * 200]
    tree, nodes = list_tree([bytes.fromhex(digest(item)) for item in items])
    every = nodes | {digest(item): item for item in items}
    asked = list[int]()

    @dataclass
    class Given:
        erasures: int

        def whole(self) -> dict[str, bytes]:
            asked.append(self.erasures)
            return every

    def say(objects: dict[str, bytes], erasures: int) -> None:
        recorder.emit(Note(text="t", attributes={"tree": tree.ref}), objects=objects, given=Given(erasures))

    flaky.down = True
    say(every, recorder.erasures)
    say({}, recorder.erasures)
    assert not recorder.flush()
    assert recorder.erasures == -1  # nobody waits for a store that is down
    flaky.down, recorder._down_until = False, 0.0
    assert recorder.flush()
    assert (recorder.erasures, asked) == (store.backend.erasures(), [])
    say({}, -1)  # what was taken for stored before the store was first asked
    say({}, recorder.erasures)
    store.backend.erase([], objects=[digest(items[0])])
    assert not recorder.erased_since(-1)  # not seen yet
    assert recorder.flush()
    assert asked == [-1, recorder.erasures - 1]
    assert recorder.erased_since(-1)
    say({}, recorder.erasures)
    recorder.close()
    assert len(asked) == 2
    notes = [c for c in store.session("s") if isinstance(c.body, Note)]
    assert len(notes) == 5
    assert set(store.backend.objects([digest(item) for item in items]).values()) == set(items)
    assert list(store.fsck()) == []


def test_a_nudged_recorder_writes_while_its_caller_waits(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rath_bridge.recorder.writer.INTERVAL", 3600.0)
    with rb.record(store, "s") as recorder:
        for text in ("one", "two"):
            recorder.emit(Note(text=text))
            recorder.nudge()
            until(lambda text=text: any(isinstance(c.body, Note) and c.body.text == text for c in store.session("s")))
