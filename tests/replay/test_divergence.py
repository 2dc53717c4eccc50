"""Where a run leaves the record, both sides are named; where the record itself is damaged, it is said plainly."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from agents import function_tool

import rath_bridge as rb
from rath_bridge.maintenance import redact
from rath_bridge.model.chunk import Chunk, Draft, Native, draft
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Gap
from rath_bridge.model.reaching import Memo, body_references, reach
from rath_bridge.replay import ToolPolicy
from rath_bridge.store.arriving import as_draft
from tests.openai_agents.scripted import call, say, step
from tests.replay.programs import RAN, at, never, program, recorded, refund, scripted, state, weather


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


async def diverging(session: rb.Session, run: Any) -> rb.ReplayReport:
    """Replay, and check what holds for every divergence: nothing ran, nothing was written, both sides are told."""
    before = state(session.store)
    report = await rb.areplay(session, run)
    assert (report.live, report.made, RAN) == (0, (), []), str(report)
    assert state(session.store) == before
    assert report.divergence is not None
    assert report.divergence.found != report.divergence.expected
    assert str(report.divergence.expected) in str(report)
    return report


async def test_a_changed_prompt(store: rb.Store) -> None:
    s = await recorded(store)
    report = await diverging(s, program(store, never(), instructions="be long"))
    one = cast(Any, report.divergence)
    assert (report.exit_status, one.what, one.found, one.expected) == (1, "model call of Solo: system", "be long", "be brief")
    assert one.chunk == at(s, "inference").id
    assert report.unused == tuple(c.id for c in s if c.kind == "inference")


async def test_a_changed_tool_order(store: rb.Store) -> None:
    """Two tools that the code itself calls, the other way round: it is let make them, and only told of the record."""

    def run(*cities: str) -> Any:
        def go() -> None:
            with rb.record(store, "ticket") as recorder, recorder.run("job"):
                for city in cities:
                    recorder.emit(rb_call(city))
                    recorder.emit(rb_result(city))

        return go

    from rath_bridge.model.kinds import ToolCall, ToolResult

    def rb_call(city: str) -> Any:
        return ToolCall(name="weather", arguments={"city": city}, call_id=city)

    def rb_result(city: str) -> Any:
        return ToolResult(name="weather", call_id=city, result=f"sunny in {city}")

    run("Oslo", "Rome")()
    s = store.session("ticket")
    policy = {"weather": ToolPolicy(effect="reads", on_miss="live")}
    assert rb.replay(s, run("Oslo", "Rome"), policy=policy).equal
    report = rb.replay(s, run("Rome", "Oslo"), policy=policy)
    assert report.itself == report.made == ("tool weather", "tool weather")
    one = cast(Any, report.divergence)
    assert (one.what, one.path, one.found, one.expected) == ("tool_call weather of job[0]", "arguments.city", "Rome", "Oslo")
    assert one.chunk == at(s, "tool_call").id


async def test_the_order_of_tools_on_offer(store: rb.Store) -> None:
    report = await diverging(await recorded(store), program(store, never(), tools=[refund, weather]))
    assert cast(Any, report.divergence).what == "model call of Solo: tools"


async def test_an_extra_call(store: rb.Store) -> None:
    s = await recorded(store)
    first, again = program(store, never()), program(store, never(), said="and now?")

    async def twice() -> None:
        await first()
        await again()

    report = await diverging(s, twice)
    assert cast(Any, report.divergence).expected == "nothing left"
    assert (report.served, len(report.misses), report.unused) == (5, 1, ())


async def test_less_than_was_recorded(store: rb.Store) -> None:
    s = await recorded(store)
    report = await diverging(s, lambda: None)
    assert (report.served, report.unused) == (0, tuple(c.id for c in s if c.kind == "inference"))
    assert cast(Any, report.divergence).found == "nothing"
    assert report.unused_words[-1] == "model call: It is sunny, and A-1 is refunded.", report.unused_words
    assert f"unused: {report.unused_words[0]}  (chunk {report.unused[0][:12]})" in str(report)
    assert report.as_json()["unused_words"] == list(report.unused_words)


async def test_changed_code_of_a_tool_does_not_matter_its_schema_does(store: rb.Store) -> None:
    """A tool's code is not run; what the model is told of it is part of every request."""
    s = await recorded(store)

    @function_tool(name_override="weather")
    def rewritten(city: str) -> str:
        """Tell the weather."""
        RAN.append("rewritten")
        return "?"

    @function_tool(name_override="weather")
    def described(city: str) -> str:
        """Tell the weather of a town."""
        return "?"

    same = await rb.areplay(s, program(store, never(), tools=[rewritten, refund]))
    assert (same.equal, RAN) == (True, []), str(same)
    report = await diverging(s, program(store, never(), tools=[described, refund]))
    assert cast(Any, report.divergence).what == "model call of Solo: tools"


async def test_changed_code_after_the_last_call(store: rb.Store) -> None:
    """All calls are served, and the run still says something else."""
    s = await recorded(store)
    run = program(store, never())

    async def changed() -> None:
        with rb.record(store, "ticket") as recorder:
            await run()
            recorder.append(rb.message("user", "thanks"))

    report = await diverging(s, changed)
    assert cast(Any, report.divergence).what == "message"
    assert "thanks" in cast(Any, report.divergence).found
    assert report.served == 5


async def test_both_sides_of_long_texts_are_shown_where_they_part(store: rb.Store) -> None:
    """Texts and lists that stand outside of the bodies are read in."""

    def run(word: str) -> Any:
        def go() -> None:
            with rb.record(store, "ticket") as recorder:
                recorder.append(rb.message("user", "long " * 300 + word))

        return go

    run("one")()
    report = await diverging(store.session("ticket"), run("other"))
    one = cast(Any, report.divergence)
    assert one.path == "parts[0].content"
    assert one.found.startswith("…")
    assert (one.found[-10:], one.expected[-8:]) == ("long other", "long one")


# ------------------------------------------------------------------ another record


def edited(session: rb.Session, change: Callable[[Chunk], Any]) -> rb.Session:
    """The record as a person would edit it, elsewhere: ``change`` returns another draft, another chunk, None (left out) or the chunk."""
    drafts: list[Draft] = []
    for chunk in session[1:]:
        found = change(chunk)
        if isinstance(found, Chunk):
            drafts.append(as_draft(found)._replace(objects=dict(objects_of(chunk, session))))
        elif found is not None:
            drafts.append(found._replace(objects={**objects_of(chunk, session), **found.objects}))
    return rb.open_store("memory:").create("ticket").append(*drafts)


def objects_of(chunk: Chunk, session: rb.Session) -> dict[Digest, bytes]:
    references = body_references(json.loads(chunk.body_bytes or b"{}"))
    return {r.reference.digest: r.data for r in reach(references, session.store.backend.objects, Memo()) if r.data is not None}


def result_changed(chunk: Chunk) -> Any:
    body = cast(Any, chunk.body)
    if chunk.kind == "tool_result" and body.name == "weather":
        return draft(replace(body, result="rain in Oslo"), run=chunk.run, at=chunk.at, origin=json.loads(chunk.origin or "{}"))
    return chunk


def everywhere_changed(chunk: Chunk) -> Any:
    """The edit is in what the model was told as well; only the model call itself still holds the truth."""
    native = chunk.native if chunk.kind == "message" else None
    if native is not None and b"sunny in Oslo" in native.data:
        body = cast(Any, chunk.body)
        parts = tuple(replace(part, response="rain in Oslo") for part in body.parts)
        data = native.data.replace(b"sunny in Oslo", b"rain in Oslo")
        again = Native(native.framework, native.version, native.codec, data)
        origin = json.loads(chunk.origin or "{}")
        return draft(replace(body, parts=parts), run=chunk.run, at=chunk.at, native=again, origin=origin)
    return result_changed(chunk)


@pytest.mark.parametrize("change", [result_changed, everywhere_changed])
async def test_an_edited_tool_result_is_named(store: rb.Store, change: Any) -> None:
    """One recorded tool result is edited; the replay names that chunk."""
    s = edited(await recorded(store), change)
    run = program(store, never())
    report = await diverging(s, run)
    chunk = at(s, "tool_result", "weather")
    named = {cast(Any, report.divergence).chunk, report.cause}
    assert chunk.id in named, str(report)
    assert chunk.id[:12] in str(report)
    assert "rain in Oslo" in str(report)
    assert "sunny in Oslo" in str(report)


async def test_a_missing_record(store: rb.Store) -> None:
    """One model call was left out: it is asked for, and there is none; never the next by position."""
    whole = await recorded(store)
    second = [c for c in whole if c.kind == "inference"][1]
    s = edited(whole, lambda chunk: None if chunk.id == second.id else chunk)
    report = await diverging(s, program(store, never()))
    assert report.served == 2
    assert cast(Any, report.divergence).chunk == [c for c in s if c.kind == "inference"][1].id


# ------------------------------------------------------------------ a damaged record


async def test_a_record_with_gaps_is_not_comparable(store: rb.Store) -> None:
    s = (await recorded(store)).append(rb.draft(Gap(count=3, reason="the spool was full")))
    report = await rb.areplay(s, program(store, never()))
    assert (report.equal, report.exit_status, report.served, report.live) == (None, 125, 5, 0)
    assert report.reasons == ("3 things that happened are not on record (gaps)",)
    assert "not replayable because 3 things that happened are not on record (gaps)" in str(report)


async def test_another_version_of_the_framework_is_said(store: rb.Store) -> None:
    def older(chunk: Chunk) -> Any:
        return replace(chunk, origin=chunk.origin and chunk.origin.replace(INSTALLED, "0.1.2"))

    from importlib.metadata import version

    INSTALLED = version("openai-agents")
    s = edited(await recorded(store), older)
    report = await rb.areplay(s, program(store, never()))
    assert report.equal, str(report)
    assert report.notes == (
        f"recorded with openai_agents 0.1.2, replayed with {INSTALLED}: what differs may be the framework's own change",
    )


async def test_erased_content_is_said_and_the_rest_is_served(store: rb.Store) -> None:
    """The second answer of the model was erased: what comes before it is served, and nothing is asked live."""
    s = await recorded(store, scripted(step(call("weather", {"city": "Oslo"}, "c1")), say("The secret is 4711.")))
    redact(store, [c.id for c in s if b"The secret is" in (c.body_bytes or b"")], reason="a person asked for it")
    s = store.session("ticket")
    before = state(store)
    report = await rb.areplay(s, program(store, never()))
    assert (report.exit_status, report.equal, report.served) == (125, None, 2), str(report)
    assert any("were erased" in reason for reason in report.reasons)
    assert (state(store), RAN) == (before, [])


async def test_a_lost_blob_is_said_and_the_rest_is_served() -> None:
    with rb.open_store("memory:") as store:
        s = await recorded(store, scripted(step(call("weather", {"city": "Oslo"}, "c1")), say("long " * 300)))
        held: dict[Digest, bytes] = cast(Any, store.backend)._objects
        (gone,) = [name for name, data in held.items() if data == ("long " * 300).encode()]
        del held[gone]
        report = await rb.areplay(s, program(store, never()))
        assert (report.exit_status, report.served, RAN) == (125, 2, []), str(report)
        assert any("what they stand on is gone" in reason for reason in report.reasons)


def test_a_record_of_nothing(store: rb.Store) -> None:
    report = rb.replay(store.create("empty"), lambda: 4711)
    assert (report.equal, report.served, report.value) == (True, 0, 4711), str(report)


async def test_a_framework_that_is_not_installed_runs_nothing(store: rb.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from rath_bridge import plugins

    s = await recorded(store)

    def missing(*_: Any) -> Any:
        raise rb_missing

    from rath_bridge.errors import MissingExtraError

    rb_missing = MissingExtraError("replaying", "openai-agents")
    monkeypatch.setattr(plugins, "require", missing)
    report = await rb.areplay(s, lambda: RAN.append("ran"))
    assert (report.exit_status, RAN) == (125, [])
    assert 'pip install "rath-bridge[openai-agents]"' in str(report)


async def test_an_error_of_the_run_is_told(store: rb.Store) -> None:
    s = await recorded(store)
    run = program(store, never())

    async def breaks() -> None:
        await run()
        raise KeyError("mine")

    report = await rb.areplay(s, breaks)
    assert (report.equal, report.error) == (True, "KeyError: 'mine'")
    assert "the run ended with KeyError" in str(report)


def test_a_record_of_checkpoints_alone_is_not_comparable(store: rb.Store) -> None:
    """Found by a newcomer, who tried a replay first on what `RathSaver` had kept by itself."""
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langgraph.graph import END, START, MessagesState, StateGraph

    from rath_langgraph import RathSaver

    def run() -> Any:
        model = GenericFakeChatModel(messages=iter([AIMessage("hello")]))
        graph: Any = StateGraph(MessagesState)
        graph.add_node("bot", lambda state: {"messages": [model.invoke(state["messages"])]})
        app = graph.add_edge(START, "bot").add_edge("bot", END).compile(checkpointer=RathSaver(store))
        return app.invoke({"messages": [("user", "hi")]}, {"configurable": {"thread_id": "t"}})

    run()
    report = rb.replay(store.session("langgraph/t"), run)
    assert (report.equal, report.exit_status, report.live) == (None, 125, 0)
    assert any("wrap(graph, store)" in reason for reason in report.reasons)


async def test_a_record_of_the_processor_alone_is_not_comparable(store: rb.Store) -> None:
    from agents import set_trace_processors

    from rath_openai_agents import RathTracingProcessor
    from tests.openai_agents.scripted import go, solo
    from tests.openai_agents.scripted import say as says

    async def run() -> Any:
        return await go(solo([says("done")], traces=False), group="only")

    set_trace_processors([RathTracingProcessor(store)])
    try:
        await run()
    finally:
        set_trace_processors([])
    report = await rb.areplay(store.session("openai_agents/only"), run)
    assert (report.equal, report.exit_status, report.live) == (None, 125, 0)
    assert any("RecordingModel" in reason for reason in report.reasons)
