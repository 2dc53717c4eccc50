"""What users of AutoGen ran into, by issue, with the right behaviour; and runs of the kinds that have no page of their own.

Elsewhere, by the same names: 7956, 5912 in test_runs.py; 7956, 7043, 7916, 6983 in test_team_state.py; 7968, 8039 in test_replay.py; 11505
in test_model_calls.py; 4327 in test_moving.py; 8014 in test_mcp_second_line.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent, CodeExecutorAgent
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import HandoffTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat, Swarm
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core import CancellationToken
from autogen_core.model_context import BufferedChatCompletionContext
from autogen_core.tools import BaseToolWithState
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from pydantic import BaseModel

import rath_autogen
import rath_bridge as rb
from rath_autogen import RecordingChatCompletionClient, load_team_state, save_team_state, wrap
from rath_bridge.model.kinds import Inference, Span
from rath_bridge.model.parts import ToolCallPart, ToolCallResponsePart
from rath_bridge.otel import SessionSpanProcessor
from tests.autogen.scripted import asks, client, dumped
from tests.autogen.test_replay import Executor, approve, coder, magentic, nested, society, writing_coder
from tests.waiting import soon


async def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


def texts(result: Any) -> list[tuple[str, str]]:
    return [(m.source, m.to_text()) for m in result.messages if hasattr(m, "to_model_text")]


def swarm(*answers: Any, turns: int = 3) -> Any:
    a = AssistantAgent("a", client(*answers[:1]), handoffs=["b"])
    b = AssistantAgent("b", client(*answers[1:]), handoffs=["user"])
    return Swarm([a, b], termination_condition=HandoffTermination("user"), max_turns=turns)


@pytest.mark.parametrize("make", [nested, magentic, coder, writing_coder, society])
async def test_every_kind_of_run_is_recorded_and_goes_home_exactly(store: rb.Store, make: Any) -> None:
    result = await wrap(make(True), store, "s").run(task="go")
    session = store.session("s")
    back, report = rath_autogen.encode(session)
    assert report.exact
    assert dumped(back.messages) == dumped(result.messages)
    assert back.stop_reason == result.stop_reason
    assert not session.pending()
    assert not session.fsck()
    usages = [m.models_usage for m in result.messages if m.models_usage is not None]
    calls = [c.body for c in session if isinstance(c.body, Inference)]
    assert (session.usage().output_tokens or 0) >= sum(usage.completion_tokens for usage in usages)
    assert all(call.observer == "model" for call in calls)  # none was counted twice


class Waiting(BaseChatAgent):
    """An agent that can be paused."""

    def __init__(self) -> None:
        super().__init__("waiting", "Waits.")
        self.free, self.begun = asyncio.Event(), asyncio.Event()
        self.seen: list[str] = []
        self.free.set()

    @property
    def produced_message_types(self) -> Any:
        return (TextMessage,)

    async def on_messages(self, messages: Any, cancellation_token: Any) -> Response:
        await asyncio.sleep(0.01)
        self.begun.set()
        await self.free.wait()
        return Response(chat_message=TextMessage(content="went on", source=self.name))

    async def on_reset(self, cancellation_token: Any) -> None: ...

    async def on_pause(self, cancellation_token: Any) -> None:
        self.seen.append("pause")
        self.free.clear()

    async def on_resume(self, cancellation_token: Any) -> None:
        self.seen.append("resume")
        self.free.set()


async def test_pause_and_resume_behave_as_before(store: rb.Store) -> None:
    one = Waiting()
    one.free.clear()  # until somebody resumes it
    team = wrap(RoundRobinGroupChat([one], max_turns=2), store, "s")
    running = asyncio.create_task(team.run(task="go"))
    await one.begun.wait()
    await team.pause()
    assert not running.done()
    await team.resume()
    result = await asyncio.wait_for(running, 60)
    assert one.seen == ["pause", "resume"]
    assert [m.text for m in store.session("s").messages()] == [m.to_text() for m in result.messages]


@pytest.mark.parametrize("what", ["pause", "resume"])
async def test_a_signal_to_a_team_that_does_not_run_says_so(store: rb.Store, what: str) -> None:
    """AutoGen alone waits for ever: its runtime stands still between runs, and nobody takes the signal."""
    team = RoundRobinGroupChat([AssistantAgent("a", client("one", "two"))], max_turns=1)
    await wrap(team, store, "s").run(task="go")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(getattr(team, what)(), 0.2)
    ours = wrap(RoundRobinGroupChat([AssistantAgent("a", client("one", "two"))], max_turns=1), store, "t")
    await ours.run(task="go")
    with pytest.raises(RuntimeError, match=f"nothing to {what}"):
        await asyncio.wait_for(getattr(ours, what)(), 60)
    assert (await ours.run(task="again")).messages[-1].to_text() == "two"


@pytest.mark.parametrize("how", ["token", "task"])
async def test_a_paused_team_that_is_cancelled_ends(store: rb.Store, how: str) -> None:
    """AutoGen alone waits for whoever resumes it."""

    async def ends(runner: Any, one: Waiting, patience: float) -> bool:
        token = CancellationToken()
        one.free.clear()  # it waits from the start on, so that the run does not end before it is paused
        running = asyncio.create_task(runner.run(task="go", cancellation_token=token))
        await one.begun.wait()
        await runner.pause()
        running.cancel() if how == "task" else token.cancel()
        done, _ = await asyncio.wait({running}, timeout=patience)
        one.free.set()
        await asyncio.wait({running}, timeout=60)
        await soon(
            lambda: not any("._process_" in repr(task.get_coro()) for task in asyncio.all_tasks())
        )  # what AutoGen left waiting comes to its end
        return bool(done)

    alone, ours = Waiting(), Waiting()
    assert not await ends(RoundRobinGroupChat([alone], max_turns=1), alone, 0.5)
    assert await ends(wrap(RoundRobinGroupChat([ours], max_turns=1), store, "s", grace=0.1), ours, 60)
    assert [c.values.get("status") for c in store.session("s") if c.kind == "run"][-1] == "cancelled"


async def test_5697_and_5895_autogens_spans_are_attached_and_every_model_call_is_on_record(
    store: rb.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = TracerProvider()
    provider.add_span_processor(SessionSpanProcessor(store))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    answers = client(asks("pay", '{"n": 3}'))
    agent = AssistantAgent("a", RecordingChatCompletionClient(answers), tools=[pay])
    await wrap(RoundRobinGroupChat([agent], max_turns=1), store, "s").run(task="go")
    provider.force_flush()
    session = store.session("s")
    spans = {c.body.name: c for c in session if isinstance(c.body, Span)}
    assert {"invoke_agent a", "execute_tool pay"} <= spans.keys()
    tool, agent_span = spans["execute_tool pay"].span, spans["invoke_agent a"].span
    assert tool is not None
    assert agent_span is not None
    assert tool.trace_id == agent_span.trace_id
    run = next(c for c in session if c.kind == "run")
    assert spans["execute_tool pay"].run == run.run
    assert len([c for c in session if isinstance(c.body, Inference)]) == 1
    assert (session.usage().input_tokens, session.usage().output_tokens) == (5, 6)


async def test_5912_a_swarm_goes_on_with_a_text_after_it_handed_over_to_the_user(store: rb.Store) -> None:
    team = wrap(swarm(asks("transfer_to_b"), asks("transfer_to_user", "{}", "c2")), store, "s")
    assert (await team.run(task="go")).stop_reason == "Handoff to user from b detected."
    session = (await save_team_state(team)).append(rb.message("user", "and in blue"))
    after = await wrap(swarm("never", "in blue then", turns=1), store, "s").acall(session)
    assert (after.messages()[-1].name, after.messages()[-1].text) == ("b", "in blue then")


async def test_6823_a_tool_result_says_whose_it_is(store: rb.Store) -> None:
    a = AssistantAgent("a", client(asks("pay", '{"n": 1}', "c1")), tools=[pay])
    b = AssistantAgent("b", client(asks("pay", '{"n": 2}', "c1")), tools=[pay])
    await wrap(RoundRobinGroupChat([a, b], max_turns=2), store, "s").run(task="go")
    session = store.session("s")
    assert [(m.name, m.text) for m in session.messages() if m.role == "tool"] == [("a", ""), ("b", "")]
    assert [(call.status, call.call_id) for call in session.calls()] == [("ok", "c1"), ("ok", "c1")]


async def test_7955_and_contextplus_7_a_context_that_was_cut_through_a_pair_is_whole_again(store: rb.Store) -> None:
    """A limited context drops the call and keeps its result; what we hand over holds both, or neither."""
    context = BufferedChatCompletionContext(buffer_size=1)
    agent = AssistantAgent("a", client(asks("pay", '{"n": 1}')), tools=[pay], model_context=context)
    await wrap(agent, store, "s").run(task="go")
    cut = await context.get_messages()
    alone = store.create("cut").append(*rb.decode(cut)) if cut else store.create("cut")
    for session in (store.session("s"), alone):
        messages, _ = rath_autogen.encode(session, as_="llm_messages")
        asked = {call.id for m in messages if isinstance(m.content, list) for call in m.content if hasattr(call, "arguments")}
        answered = {r.call_id for m in messages if isinstance(m.content, list) for r in m.content if hasattr(r, "call_id")}
        assert asked == answered
    parts = [part for m in store.session("s").messages() for part in m.body.parts]
    assert sum(isinstance(p, ToolCallPart) for p in parts) == sum(isinstance(p, ToolCallResponsePart) for p in parts) == 1


async def test_4100_a_team_rolls_back_to_a_snapshot(store: rb.Store) -> None:
    def team(*answers: str) -> Any:
        return RoundRobinGroupChat([AssistantAgent("a", client(*answers))], max_turns=1)

    first = wrap(team("one", "two"), store, "s")
    await first.run(task="go")
    snapshot = await save_team_state(first)
    await first.run(task="again")
    await save_team_state(first)
    fresh = team("three")
    back = snapshot.fork("back")
    assert (await load_team_state(fresh, back)).exact
    await wrap(fresh, store, "s@back").run(task="otherwise")
    assert [m.text for m in store.session("s@back").messages()] == ["go", "one", "otherwise", "three"]
    assert [m.text for m in store.session("s").messages()] == ["go", "one", "again", "two"]


async def test_6466_the_next_process_has_the_history(store: rb.Store) -> None:
    await wrap(AssistantAgent("a", client("one")), store, "s").run(task="go")
    fresh = AssistantAgent("a", client("two"))
    report = await load_team_state(fresh, store.session("s"))
    assert [m.content for m in await fresh._model_context.get_messages()] == ["go", "one"]
    assert len(report.manifest) == 2


async def test_5034_a_state_that_was_not_awaited_says_so(store: rb.Store) -> None:
    session = store.create("s").append(rb.message("user", "go"))
    with pytest.warns(RuntimeWarning, match="'load_team_state' was never awaited"):
        load_team_state(AssistantAgent("a", client("one")), session)  # pyright: ignore[reportUnusedCoroutine]


@pytest.mark.parametrize("kind", ["agent", "team"])
async def test_8091_a_cancel_reaches_agents_and_teams_inside_of_tools(store: rb.Store, kind: str) -> None:
    works, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        """Wait for a long time."""
        works.set()
        try:
            await asyncio.sleep(300)
        finally:
            ended.set()
        return "waited"

    inner = AssistantAgent("inner", client(asks("wait", "{}", "i1")), tools=[wait])
    tool: Any = AgentTool(inner) if kind == "agent" else TeamTool(RoundRobinGroupChat([inner]), "inner", "A team.")
    outer = AssistantAgent("outer", client(asks("inner", '{"task": "wait"}', "o1")), tools=[tool])
    token = CancellationToken()
    running = asyncio.create_task(wrap(outer, store, "s", grace=0.1).run(task="go", cancellation_token=token))
    await asyncio.wait_for(works.wait(), 60)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 60)
    await asyncio.wait_for(ended.wait(), 60)  # the tool was stopped
    session = store.session("s")
    assert [(call.call_id, call.status) for call in session.calls()] == [("o1", "no_response")]
    assert not session.pending()


class Count(BaseModel):
    n: int = 0


class Till(BaseToolWithState[Count, Count, Count]):
    """A tool that knows how much it has taken."""

    def __init__(self) -> None:
        super().__init__(Count, Count, Count, "till", "Take money.")
        self.taken = 0

    async def run(self, args: Count, cancellation_token: CancellationToken) -> Count:
        self.taken += args.n
        return Count(n=self.taken)

    def save_state(self) -> Count:
        return Count(n=self.taken)

    def load_state(self, state: Count) -> None:
        self.taken = state.n


async def test_3619_a_rollback_takes_the_tools_along_and_names_what_was_done_since(store: rb.Store) -> None:
    till = Till()
    answers = [asks("till", '{"n": 3}', f"c{turn}") for turn in range(3)]
    team = wrap(RoundRobinGroupChat([AssistantAgent("a", client(*answers), tools=[till])], max_turns=1), store, "s")
    await team.run(task="take 3")
    snapshot = await save_team_state(team)
    await team.run(task="and 3 more")
    assert till.taken == 6
    assert (await load_team_state(team, snapshot)).exact
    assert till.taken == 3
    since = store.session("s").diff(snapshot)
    done = [call for call in store.session("s").calls() if call.call_id == "c1"]
    assert [(call.name, call.status) for call in done] == [("till", "ok")]  # what a tool did outside stays done, and is on record
    assert since
    await team.run(task="again")
    assert till.taken == 6


class Remembers(BaseChatAgent):
    """An agent that knows something and saves nothing."""

    produced_message_types: Any = (TextMessage,)

    async def on_messages(self, messages: Any, cancellation_token: Any) -> Response:
        return Response(chat_message=TextMessage(content="I know", source=self.name))

    async def on_reset(self, cancellation_token: Any) -> None: ...


async def test_5130_an_agent_that_saves_no_state_is_named(store: rb.Store) -> None:
    def team() -> Any:
        runner = CodeExecutorAgent("runner", Executor(True), approval_func=approve)
        return RoundRobinGroupChat([AssistantAgent("a", client("one")), Remembers("b", "Knows."), runner], max_turns=3)

    first = team()
    await first.run(task="go")
    report = await load_team_state(team(), await save_team_state(first, store, "s"))
    told = ("agent_states.b.agent_state", "a Remembers saves no state: what it knew is not on record")
    assert [(loss.path, loss.what) for loss in report.losses] == [told]
    bare = await load_team_state(team(), await first.save_state())  # AutoGen's own: the code executor's history is gone, too
    assert "a CodeExecutorAgent saves no state: what it knew is not on record" in [loss.what for loss in bare.losses]
