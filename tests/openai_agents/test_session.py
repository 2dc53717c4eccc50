"""`RathSession`: what the SDK keeps, hands out, takes back and tries again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from agents import Agent, ModelSettings, RunConfig, Runner, RunState, SessionSettings, SQLiteSession, function_tool, trace
from agents.memory import Session as SessionProtocol
from agents.retry import ModelRetrySettings

import rath_bridge as rb
from rath_bridge.errors import MissingSessionError, StoreUnavailableError
from rath_bridge.store import connect
from rath_openai_agents import RathRunHooks, RathSession, RecordingModel, wrap
from tests.openai_agents.doubles import ModelStep, ScriptedModel
from tests.openai_agents.scripted import bodies, call, get_weather, go, plain, said, say, solo, step, watch, whole
from tests.test_recorder import Flaky

USER = {"role": "user", "content": "yes"}
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "1"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
ANSWER = {"type": "message", "role": "assistant", "id": "m1", "status": "completed", "content": [
    {"type": "output_text", "text": "done", "annotations": [], "logprobs": []}]}  # fmt: skip


@pytest.fixture
def any_store(store_url: str) -> Iterator[rb.Store]:
    """Every kind of store, PostgreSQL included."""
    with rb.open_store(store_url) as opened:
        yield opened


def weather_steps() -> list[Any]:
    return [step(call("get_weather", {"city": "Oslo"})), say("Sunny.")]


async def test_it_is_the_sdk_s_session(store: rb.Store) -> None:
    kept = RathSession("42", store)
    assert isinstance(kept, SessionProtocol)
    assert kept.session_settings == SessionSettings()
    assert await kept.get_items() == []
    assert await kept.pop_item() is None
    await kept.clear_session()
    await kept.add_items([])
    with pytest.raises(MissingSessionError):
        _ = kept.session


async def test_items_come_back_as_they_were_given(any_store: rb.Store) -> None:
    kept = RathSession("42", any_store)
    items = [USER, REASONING, CALL, OUTPUT, ANSWER, USER]
    await kept.add_items(items)
    assert await kept.get_items() == items
    assert await RathSession("42", any_store).get_items() == items
    assert whole(kept.session).name == "openai_agents/42"
    assert [m.role for m in kept.session.messages()] == ["user", "assistant", "tool", "assistant", "user"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_run_keeps_what_the_sdk_s_own_session_keeps(store: rb.Store, streamed: bool) -> None:
    theirs, ours = SQLiteSession("42"), RathSession("42", store)
    for kept in (theirs, ours):
        for turn in ("Weather?", "Weather?"):
            agent = solo(weather_steps(), tools=[get_weather])
            await go(agent, turn, streamed=streamed, session=kept)
    assert await ours.get_items() == await theirs.get_items()
    assert len(await ours.get_items()) == 8, "the second turn says and calls the same, and is a second turn"
    assert whole(ours.session).pending() == ()


@pytest.mark.parametrize("recorded", [False, True], ids=["alone", "recorded"])
@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
async def test_a_retry_rewinds_and_says_it_again(store: rb.Store, streamed: bool, recorded: bool) -> None:
    """A model that is asked again after an error is handed, and leaves, what one that answered at once would have."""
    settings = ModelSettings(retry=ModelRetrySettings(max_retries=1, policy=lambda context: True, backoff={"initial_delay": 0}))
    theirs, ours = SQLiteSession("42"), RathSession("42", store)
    if recorded:
        watch(store, session="openai_agents/42")
    for kept in (theirs, ours):
        for turn in ("first", "second"):
            down = ModelStep.raise_error(ConnectionError("conversation_locked"))
            model = ScriptedModel([down, say(f"{turn} done")])
            wrapped = RecordingModel(model, store, session="openai_agents/42") if recorded and kept is ours else model
            agent = Agent(name="Solo", model=wrapped, model_settings=settings)
            await go(agent, turn, streamed=streamed, session=kept)
    assert await ours.get_items() == await theirs.get_items()
    s = whole(ours.session)
    spoken = [("user", "first"), ("assistant", "first done"), ("user", "second"), ("assistant", "second done")]
    assert said(s) == spoken


async def test_the_sdk_s_own_rewind_takes_back_what_it_said_and_no_more(any_store: rb.Store) -> None:
    """Before it repeats a request of a locked conversation, it pops what it had saved of it, where the tail is just that."""
    from agents.run_internal.session_persistence import rewind_session_items

    theirs, ours = SQLiteSession("42"), RathSession("42", any_store)
    for kept in (theirs, ours):
        await kept.add_items([USER, ANSWER, USER])  # type: ignore[list-item]
        await rewind_session_items(kept, [USER])  # type: ignore[list-item]
        await rewind_session_items(kept, [CALL, OUTPUT])  # type: ignore[list-item]
        assert await kept.get_items() == [USER, ANSWER]
        await kept.add_items([USER])  # type: ignore[list-item]
    assert await ours.get_items() == await theirs.get_items()
    s = whole(ours.session)
    assert [len(body.dropped) for body in bodies(s, "compaction")] == [1]
    assert [message.role for message in s.messages()] == ["user", "assistant", "user"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_recorded_beside_a_recorder_each_message_stands_once(store: rb.Store, streamed: bool) -> None:
    """Law 12: the recording model and the session write to one line."""
    watch(store)
    for turn in range(2):
        agent = solo(weather_steps(), lambda model: RecordingModel(model, store), tools=[get_weather])
        kept = RathSession("42", store)
        await go(agent, "Weather?", group="42", streamed=streamed, session=kept, hooks=RathRunHooks(store))
        s = whole(store.session("openai_agents/42"))
        once = [
            ("user", "Weather?"),
            ("assistant", "get_weather#call_1"),
            ("tool", "=sunny in Oslo#call_1"),
            ("assistant", "Sunny."),
        ]
        assert said(s) == once * (turn + 1)
    assert [item.get("type", item.get("role")) for item in await kept.get_items()] == [
        "user", "function_call", "function_call_output", "message"] * 2  # fmt: skip
    assert s.usage().total_tokens == 60


async def test_inside_wrap_each_message_stands_once(store: rb.Store) -> None:
    kept = RathSession("42", store, session="ticket")
    for turn in range(2):
        await wrap(solo(weather_steps(), tools=[get_weather]), store, "ticket").run("Weather?", session=kept)
        assert len(said(whole(store.session("ticket")))) == 4 * (turn + 1)


async def test_what_another_framework_said_is_handed_out_too(store: rb.Store) -> None:
    store.create("ticket").append(rb.message("user", "from somewhere else"))
    kept = RathSession("42", store, session="ticket")
    await go(solo([say("ok")]), "go on", session=kept)
    assert [(m.role, m.text) for m in kept.session.messages()] == [
        ("user", "from somewhere else"), ("user", "go on"), ("assistant", "ok")]  # fmt: skip


async def test_what_was_erased_is_not_handed_out_from_memory(any_store: rb.Store) -> None:
    kept = RathSession("42", any_store)
    await kept.add_items([{"role": "user", "content": "secret " * 100}])
    await kept.add_items([USER])
    assert len(await kept.get_items()) == 2
    secret = next(m.id for m in kept.session.messages() if m.text.startswith("secret"))
    any_store.backend.erase([secret])  # `redact` has put its notice before that: somebody may have read in between
    assert await kept.get_items() == await RathSession("42", any_store).get_items() == [USER]
    await kept.add_items([{"role": "user", "content": "secret " * 100}])
    assert [item["content"][:6] for item in await kept.get_items()] == ["yes", "secret"]
    whole(kept.session)


async def test_an_id_is_found_again_where_it_was_kept(store: rb.Store) -> None:
    with rb.record(store, "ticket-4711"):
        await RathSession("42", store).add_items([USER])
    again = RathSession("42", store)
    assert again.session.name == "ticket-4711"
    assert await again.get_items() == [USER]


# ------------------------------------------------------------------ appends


async def test_append_is_idempotent_by_call_id_and_type_within_a_turn(store: rb.Store) -> None:
    """openai-agents-python issues 1699, 4069, 16: nothing is kept twice in a turn."""
    kept = RathSession("42", store)
    await kept.get_items()
    for _ in range(2):
        await kept.add_items([CALL, OUTPUT])
    assert await kept.get_items() == [CALL, OUTPUT]
    await kept.add_items([CALL, OUTPUT])
    assert await kept.get_items() == [CALL, OUTPUT] * 2, "a later turn's call may use the id again"
    assert [one.status for one in whole(kept.session).calls()] == ["ok", "ok"]


async def test_a_call_that_waits_is_not_kept_twice(store: rb.Store) -> None:
    """openai-agents-js issue 701: a resumed run brings its call along again."""
    await RathSession("42", store).add_items([USER, CALL])
    resumed = RathSession("42", store)
    await resumed.add_items([CALL, OUTPUT])
    assert await resumed.get_items() == [USER, CALL, OUTPUT]


async def test_two_turns_of_yes_stay_two(store: rb.Store) -> None:
    kept = RathSession("42", store)
    for _ in range(2):
        await kept.add_items([USER])
    assert await kept.get_items() == [USER, USER]


async def test_an_append_survives_cancellation_and_is_not_repeated(any_store: rb.Store) -> None:
    """openai-agents-python issue 1658: it has happened when the cancelled caller goes on, and trying again adds nothing."""
    kept = RathSession("42", any_store)
    await kept.get_items()
    task = asyncio.ensure_future(kept.add_items([USER, ANSWER]))
    await asyncio.sleep(0)
    task.cancel()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await RathSession("42", any_store).get_items() == [USER, ANSWER]
    await kept.add_items([USER, ANSWER])
    assert await kept.get_items() == [USER, ANSWER]
    await kept.add_items([USER])
    assert await kept.get_items() == [USER, ANSWER, USER]


async def test_a_failed_append_is_raised_and_can_be_tried_again() -> None:
    """openai-agents-python issue 4690: also where the answer of a committed append was lost."""
    backend: Any = Flaky(connect("memory:"))
    store = rb.Store(backend)
    kept = RathSession("42", store)
    await kept.add_items([USER])
    backend.down = True
    with pytest.raises(StoreUnavailableError):
        await kept.add_items([ANSWER])
    backend.down, backend.loses_answers = False, True
    with pytest.raises(StoreUnavailableError):
        await kept.add_items([ANSWER])
    backend.down = backend.loses_answers = False
    await kept.add_items([ANSWER])
    assert await kept.get_items() == [USER, ANSWER]


# ------------------------------------------------------------------ what is handed out


async def test_no_orphan_and_no_idle_reasoning_is_handed_out(store: rb.Store) -> None:
    """openai-agents-python issues 4827, 1061, 2503."""
    kept = RathSession("42", store)
    await kept.add_items([USER, REASONING, CALL, USER, {**OUTPUT, "call_id": "nobody"}])
    assert await kept.get_items() == [USER, USER]
    assert [one.call_id for one in kept.session.pending()] == ["c1"]
    await kept.add_items([OUTPUT])
    assert await kept.get_items() == [USER, REASONING, CALL, USER, OUTPUT]


@pytest.mark.parametrize(("limit", "start"), [(0, 5), (1, 4), (2, 4), (3, 4), (4, 1), (5, 0), (9, 0)])
async def test_a_limit_cuts_between_what_belongs_together(store: rb.Store, limit: int, start: int) -> None:
    kept = RathSession("42", store)
    items = [USER, REASONING, CALL, OUTPUT, ANSWER]
    await kept.add_items(items)
    assert await kept.get_items(limit) == items[start:]
    kept.session_settings = SessionSettings(limit=limit)
    assert await kept.get_items() == items[start:]


async def test_limit_of_a_run(store: rb.Store) -> None:
    kept = RathSession("42", store)
    await kept.add_items([USER, CALL, OUTPUT, ANSWER])
    model = ScriptedModel([say("ok")])
    config = RunConfig(session_settings=SessionSettings(limit=1))
    await Runner.run(Agent(name="A", model=model), "next", session=kept, run_config=config)
    assert model.calls[0].input == [ANSWER, {"role": "user", "content": "next"}]


# ------------------------------------------------------------------ nothing vanishes


async def test_pop_and_clear_leave_the_record_whole(any_store: rb.Store) -> None:
    kept = RathSession("42", any_store)
    items = [USER, REASONING, CALL, OUTPUT, REASONING, ANSWER]
    await kept.add_items(items)
    for _ in range(4):
        assert await kept.pop_item() == items.pop()
    assert await kept.pop_item() == REASONING
    assert await kept.get_items() == [USER]
    await kept.add_items([ANSWER])
    await kept.clear_session()
    assert await kept.get_items() == []
    s = whole(kept.session)
    assert [body.reason for body in bodies(s, "compaction")] == ["popped"] * 5 + ["cleared"]
    assert s.messages() == ()
    assert s.pending() == ()
    assert len([chunk for chunk in s if chunk.kind == "message"]) >= 5, "what was said is still on record"
    await kept.add_items([USER])
    assert await kept.get_items() == [USER]


async def test_a_popped_call_is_closed(store: rb.Store) -> None:
    kept = RathSession("42", store)
    await kept.add_items([USER, CALL])
    assert await kept.pop_item() == CALL
    (one,) = whole(kept.session).calls()
    assert one.status == "no_response"
    await kept.add_items([CALL, OUTPUT])
    assert await kept.get_items() == [USER, CALL, OUTPUT]


async def test_fork_at_any_item_inclusive_and_merge(any_store: rb.Store) -> None:
    """openai-agents-python pulls 2069, 4152: also at the last turn, and names do not collide."""
    kept = RathSession("42", any_store)
    items = [USER, REASONING, CALL, OUTPUT, ANSWER]
    for item in (items[:1], items[1:3], items[3:4], items[4:]):
        await kept.add_items(item)
    for at in range(len(items)):
        branch = await kept.fork(f"at-{at}", at=at)
        assert branch.session_id == "42"
        assert await branch.get_items(99) == items[: at + 1] if at != 1 else True
        await branch.add_items([{"role": "user", "content": f"on {at}"}])
        assert (await branch.get_items())[-1] == {"role": "user", "content": f"on {at}"}
    assert await kept.get_items() == items
    with pytest.raises(IndexError):
        await kept.fork("nowhere", at=99)
    other = await kept.fork("other")
    await other.add_items([{"role": "user", "content": "elsewhere"}])
    await kept.merge(other)
    assert "elsewhere" in str((await kept.get_items())[-1])
    assert whole(kept.session).pending() == ()


# ------------------------------------------------------------------ runs of the SDK


@function_tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@pytest.mark.parametrize("recorded", [False, True])
async def test_an_approval_across_processes(store: rb.Store, recorded: bool) -> None:
    """openai-agents-python issues 4827, 17, 22: the pair is whole after the resumed run, in a store opened again."""
    if recorded:
        watch(store)

    def agent() -> Agent[Any]:
        def recording(model: Any) -> Any:
            return RecordingModel(model, store) if recorded else plain(model)

        return solo([step(call("pay", {"amount": 5})), say("done")], recording, tools=[pay])

    kept = RathSession("42", store)
    hooks: dict[str, Any] = {"hooks": RathRunHooks(store)} if recorded else {}
    first = await go(agent(), "pay", group="42", session=kept, **hooks)
    assert [item.get("type") for item in await kept.get_items()] == [None], "a call that waits is not handed out"
    assert len(kept.session.pending()) == 1
    state = first.to_state().to_json()
    again = solo([say("done")], (lambda model: RecordingModel(model, store)) if recorded else plain, tools=[pay])
    restored = await RunState.from_json(again, state)
    restored.approve(restored.get_interruptions()[0])
    resumed = RathSession("42", store)
    result = await Runner.run(again, restored, session=resumed, **hooks)
    assert result.final_output == "done"
    types = [item.get("type", "user") for item in await resumed.get_items()]
    assert types == ["user", "function_call", "function_call_output", "message"]
    assert whole(resumed.session).pending() == ()
    assert [m.role for m in resumed.session.messages()] == ["user", "assistant", "tool", "assistant"]


async def test_a_model_error_keeps_what_was_completed(store: rb.Store) -> None:
    kept = RathSession("42", store)
    agent = solo([step(call("get_weather", {"city": "Oslo"})), RuntimeError("down")], tools=[get_weather])
    with pytest.raises(Exception, match="down"):
        await go(agent, "Weather?", session=kept)
    assert [item.get("type", "user") for item in await kept.get_items()] == ["user", "function_call", "function_call_output"]


async def test_two_runs_in_one_trace_stay_two(store: rb.Store) -> None:
    kept = RathSession("42", store)
    with trace("both"):
        for _ in range(2):
            await go(solo(weather_steps(), tools=[get_weather]), "Weather?", session=kept)
    assert len(await kept.get_items()) == 8


async def test_many_writers_of_one_id_lose_nothing(any_store: rb.Store) -> None:
    async def talk(number: int) -> None:
        await RathSession("42", any_store).add_items([{"role": "user", "content": f"{number}"}])

    await RathSession("42", any_store).add_items([USER])
    await asyncio.gather(*(talk(number) for number in range(8)))
    items = await RathSession("42", any_store).get_items()
    assert sorted(item["content"] for item in items[1:]) == [str(number) for number in range(8)]
