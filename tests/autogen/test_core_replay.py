"""`rb.replay` on runs of AutoGen: the user's code unchanged, nothing live, nothing written; what differs is named."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, SocietyOfMindAgent
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core.memory import ListMemory, Memory, MemoryContent, MemoryQueryResult, UpdateContextResult
from autogen_core.models import UserMessage
from autogen_core.tools import BaseTool, StaticStreamWorkbench
from autogen_ext.models.replay import ReplayChatCompletionClient

import rath_bridge as rb
from rath_autogen import RecordingChatCompletionClient, wrap
from rath_bridge.store.protocol import Ref
from tests.autogen import test_replay as made
from tests.autogen.scripted import INFO, asks, client
from tests.autogen.test_replay import KINDS, agent, model, paid, pay, round_robin, tools


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    paid.clear()


def state(store: rb.Store) -> tuple[list[Ref], int]:
    return store.backend.refs(), sum(len(s) for s in store.sessions())


def program(store: rb.Store, make: Callable[[bool], Any], live: bool, task: str = "go") -> Any:
    """What a user has: code that records itself."""

    async def run() -> Any:
        return await wrap(make(live), store, "ticket").run(task=task)

    return run


@pytest.mark.parametrize("make", KINDS, ids=[make.__name__ for make in KINDS])
async def test_a_program_is_replayed_and_nothing_is_written(store: rb.Store, make: Callable[[bool], Any]) -> None:
    recorded = await program(store, make, True)()
    before, done = state(store), list(paid)
    report = await rb.areplay(store.session("ticket"), program(store, make, False))
    assert (report.equal, report.exit_status) == (True, 0), str(report)
    assert report.unused == ()
    assert report.live == 0
    assert report.served > 0
    assert made.same(report.value) == made.same(recorded)
    assert paid == done
    assert state(store) == before


def with_agent_tool(live: bool) -> Any:
    inner = agent("inner", live, asks("pay", '{"n": 1}', "i1"), "inner says", tools=[pay], reflect_on_tool_use=True)
    return agent("outer", live, asks("inner", '{"task": "look"}'), "done", tools=[AgentTool(inner)], reflect_on_tool_use=True)


def with_team_tool(live: bool) -> Any:
    tool = TeamTool(round_robin(live), "crew", "A team.", return_value_as_last_message=True)
    return RoundRobinGroupChat([agent("outer", live, asks("crew", '{"task": "look"}'), tools=[tool])], max_turns=1)


def with_an_unrecorded_agent_tool(live: bool) -> Any:
    inner = AssistantAgent("inner", client(*(["inner says"] if live else [])))
    return agent("outer", live, asks("inner", '{"task": "look"}'), "done", tools=[AgentTool(inner)], reflect_on_tool_use=True)


def remembering(live: bool) -> Any:
    memory = ListMemory(memory_contents=[MemoryContent(content="likes blue", mime_type="text/plain")])
    return agent("a", live, "blue", memory=[memory])


@pytest.mark.parametrize("make", [with_agent_tool, with_team_tool, with_an_unrecorded_agent_tool, remembering])
async def test_agents_inside_of_tools_show_what_they_showed(store: rb.Store, make: Callable[[bool], Any]) -> None:
    recorded = await program(store, make, True)()
    before, done = state(store), list(paid)
    report = await rb.areplay(store.session("ticket"), program(store, make, False))
    assert (report.equal, report.unused, report.live) == (True, (), 0), str(report)
    assert made.same(report.value) == made.same(recorded)
    if make is not remembering:
        assert {m.source for m in recorded.messages} > {"outer", "user"}  # what was inside is shown
    assert paid == done
    assert state(store) == before


async def test_streamed_pieces_are_those_of_then(store: rb.Store) -> None:
    def stream(live: bool) -> Any:
        async def run() -> Any:
            items = [item async for item in wrap(made.streaming(live), store, "ticket").run_stream(task="go")]
            return [item.content for item in items if type(item).__name__ == "ModelClientStreamingChunkEvent"]

        return run

    assert await stream(True)() == ["one ", "two ", "three"]
    report = await rb.areplay(store.session("ticket"), stream(False))
    assert (report.equal, report.value) == (True, ["one ", "two ", "three"]), str(report)


async def test_a_client_alone_is_replayed(store: rb.Store) -> None:
    """No agent, no wrap: a program that asks a model by itself, with a client that was made before and one that is made anew."""
    cached = RecordingChatCompletionClient(client("one", "two", "three"), store, "ticket")

    def program(live: bool, word: str = "hello") -> Any:
        async def run() -> list[Any]:
            said = [UserMessage(content=word, source="user")]
            with rb.record(store, "ticket"):
                first = await (cached if live else model(False)).create(said)
                return [first.content, (await cached.create([*said, *said])).content]

        return run

    assert await program(True)() == ["one", "two"]
    before = state(store)
    report = await rb.areplay(store.session("ticket"), program(False))
    assert (report.equal, report.served, report.value) == (True, 2, ["one", "two"]), str(report)
    report = await rb.areplay(store.session("ticket"), program(False, "goodbye"))
    assert report.equal is False
    assert report.divergence is not None
    assert report.divergence.what == "model call, message 0"
    assert (report.divergence.found, report.divergence.expected) == ('UserMessage "goodbye"', 'UserMessage "hello"')
    assert state(store) == before
    with rb.record(store, "ticket"):  # afterwards, everything is as it was
        assert (await cached.create([UserMessage(content="hello", source="user")])).content == "three"
    assert not store.session("ticket").fsck()


async def test_another_task_and_an_extra_call_are_named(store: rb.Store) -> None:
    await program(store, tools, True)()
    report = await rb.areplay(store.session("ticket"), program(store, tools, False, "stop"))
    assert report.divergence is not None
    assert (report.divergence.what, report.served) == ("model call of a, message 1", 0)

    def longer(live: bool) -> Any:
        return RoundRobinGroupChat([agent("a", live, "one"), agent("b", live, "two")], max_turns=2 if live else 3)

    await wrap(longer(True), store, "team").run(task="go")
    report = await rb.areplay(store.session("team"), lambda: wrap(longer(False), store, "team").run(task="go"))
    assert report.divergence is not None
    assert report.divergence.expected == "no call left"


async def test_a_tool_that_was_changed_stops_at_the_next_model_call(store: rb.Store) -> None:
    """Also where a tool cannot raise; and nothing is done that is not on record."""

    async def lend(n: int) -> str:
        """Lend."""
        paid.append(n)
        return "lent"

    def one(live: bool) -> Any:
        return agent("a", live, asks("pay", '{"n": 3}'), "done", tools=[pay, lend], reflect_on_tool_use=True)

    await program(store, one, True)()
    session = store.session("ticket")
    call = next(c for c in session if c.kind == "inference")
    paid.clear()
    report = await rb.areplay(
        session,
        program(store, one, False),
        overrides={call: [{"type": "tool_call", "id": "c1", "name": "lend", "arguments": {"n": 9}}]},
        then="halt",
    )
    assert paid == []
    assert report.halted == "tool lend" or report.divergence is not None, str(report)


async def test_what_if_a_tool_had_answered_otherwise(store: rb.Store) -> None:
    await program(store, tools, True)()
    session = store.session("ticket")

    def again(live: bool) -> Any:
        return agent("a", True, "I see that it failed.", tools=[pay], reflect_on_tool_use=True)

    report = await rb.areplay(session, program(store, again, True), overrides={"tool:pay": "no money"}, then="live")
    assert report.value.messages[-1].content == "I see that it failed."
    assert (report.live, paid) == (1, [3])
    assert report.equal is True, str(report)


@pytest.mark.parametrize("then", ["live", "halt"])
async def test_what_if_a_member_of_a_team_had_heard_another_answer_of_its_tool(store: rb.Store, then: Any) -> None:
    """In a team, the message that tells the answer may be heard after the model call that was made with it."""

    def team(live: bool) -> Any:
        first = [asks("pay", '{"n": 3}'), "paid, then"] if live else ["I see that it failed."]
        return RoundRobinGroupChat(
            [agent("a", True, *first, tools=[pay], reflect_on_tool_use=True), agent("b", True, "so it is")], max_turns=2
        )

    await program(store, team, True)()
    session = store.session("ticket")
    answer = next(c for c in session if b'"tool_call_response"' in (c.body_bytes or b""))
    report = await rb.areplay(session, program(store, team, False), overrides={answer: "no money"}, then=then)
    assert (report.equal, report.divergence, report.unasked, paid) == (True, None, (), [3]), str(report)
    if then == "live":
        assert [m.to_text() for m in report.value.messages][-2:] == ["I see that it failed.", "so it is"]
    else:
        assert report.halted == "model call of a"


async def test_until_a_chunk_and_then_live(store: rb.Store) -> None:
    await program(store, round_robin, True)()
    session = store.session("ticket")
    second = [c for c in session if c.kind == "inference"][1]

    def other(live: bool) -> Any:
        return RoundRobinGroupChat([agent("a", True, "otherwise"), agent("b", True, "at last")], max_turns=4)

    report = await rb.areplay(session, program(store, other, True), until=second, then="live")
    assert [m.to_text() for m in report.value.messages] == ["go", "one", "two", "otherwise", "at last"]
    assert (report.served, report.live, report.equal) == (2, 2, True), str(report)


def test_a_wrapped_team_is_replayed_as_it_is(store: rb.Store) -> None:
    session = wrap(round_robin(True))(store.create("ticket").append(rb.message("user", "go")))
    before = state(store)
    report = rb.replay(session, wrap(round_robin(False)))
    assert (report.equal, report.served, report.unused) == (True, 4, ()), str(report)
    assert state(store) == before


async def test_model_calls_that_nobody_recorded_are_never_made(store: rb.Store) -> None:
    """Without RecordingChatCompletionClient the record knows what was said, and not what was asked."""
    asked: list[Any] = []

    class Asked(type(client())):  # type: ignore[misc]
        """A client of a class that is loaded late."""

        async def create(self, *args: Any, **options: Any) -> Any:
            asked.append(args)
            return await super().create(*args, **options)

    def plain(live: bool) -> Any:
        return AssistantAgent("a", Asked(["one"]))

    await program(store, plain, True)()
    report = await rb.areplay(store.session("ticket"), program(store, plain, False))
    assert len(asked) == 1
    assert report.exit_status == 125
    assert report.reasons == ("the model calls of a are not on record: put RecordingChatCompletionClient around their clients",)


async def test_classes_that_are_loaded_while_it_runs_answer_from_the_record(store: rb.Store) -> None:
    def run(live: bool) -> Any:
        async def code() -> Any:
            class Late(type(client())):  # type: ignore[misc]
                async def create(self, *args: Any, **options: Any) -> Any:
                    assert live
                    return await super().create(*args, **options)

            return await wrap(AssistantAgent("a", RecordingChatCompletionClient(Late(["one"]))), store, "ticket").run(task="go")

        return code

    await run(True)()
    report = await rb.areplay(store.session("ticket"), run(False))
    assert (report.equal, report.served) == (True, 1), str(report)


class Slow(type(client())):  # type: ignore[misc]
    """A model that takes its time, so that everybody is heard before the next one is asked."""

    async def create(self, *args: Any, **options: Any) -> Any:
        await asyncio.sleep(0.01)
        for _ in range(100):  # a process that was stopped for a while has others to serve first, too
            await asyncio.sleep(0)
        return await super().create(*args, **options)


def slow(live: bool, *answers: Any) -> Any:
    return RecordingChatCompletionClient(Slow(list(answers) if live else [], INFO))


def slow_team(live: bool) -> Any:
    model = slow(live, asks("pay", '{"n": 3}'), "done")
    return RoundRobinGroupChat([AssistantAgent("a", model, tools=[pay], reflect_on_tool_use=True)], max_turns=1)


def slow_inside(live: bool) -> Any:
    inner = AssistantAgent(
        "inner", slow(live, asks("pay", '{"n": 1}', "i1"), "inner says"), tools=[pay], reflect_on_tool_use=True
    )
    asked = slow(live, asks("inner", '{"task": "look"}'), "done")
    return AssistantAgent("outer", asked, tools=[AgentTool(inner)], reflect_on_tool_use=True)


def slow_society(live: bool) -> Any:
    return SocietyOfMindAgent("mind", slow_team(live), slow(live, "said"))


@pytest.mark.parametrize("make", [slow_team, slow_inside, slow_society])
async def test_how_soon_a_listener_hears_makes_no_difference(store: rb.Store, make: Callable[[bool], Any]) -> None:
    await program(store, make, True)()
    report = await rb.areplay(store.session("ticket"), program(store, make, False))
    assert (report.equal, report.unused) == (True, ()), str(report)


async def test_members_that_worked_side_by_side_are_heard_in_the_same_order(store: rb.Store) -> None:
    """A graph that forks: b was slow then, and is served at once now."""

    def fan(live: bool) -> Any:
        a, c = agent("a", live, "go"), agent("c", live, "from c")
        b, d = AssistantAgent("b", slow(live, "from b")), agent("d", live, "joined")
        build = DiGraphBuilder().add_node(a).add_node(b).add_node(c).add_node(d)
        build.add_edge(a, b).add_edge(a, c).add_edge(b, d).add_edge(c, d)
        return GraphFlow([a, b, c, d], build.build())

    recorded = await program(store, fan, True)()
    assert [m.source for m in recorded.messages][:4] == ["user", "a", "c", "b"]
    report = await rb.areplay(store.session("ticket"), program(store, fan, False))
    assert (report.served, report.divergence is None or report.divergence.what.startswith("model call of d")) == (4, True), str(
        report
    )


async def test_another_prompt_is_another_request_and_every_class_is_as_it_was(store: rb.Store) -> None:
    await program(store, tools, True)()

    def other(_: bool) -> Any:
        return agent("a", False, tools=[pay], reflect_on_tool_use=True, system_message="Another prompt.")

    gc.collect()  # what an earlier replay has left in a cycle keeps its players
    methods = [ReplayChatCompletionClient.create, StaticStreamWorkbench.call_tool_stream, BaseTool.run_json]
    report = await rb.areplay(store.session("ticket"), program(store, other, False))
    assert report.divergence is not None
    assert report.divergence.what == "model call of a, message 0"
    assert report.divergence.found.startswith("SystemMessage")
    assert report.divergence.chunk == next(c.id for c in store.session("ticket") if c.kind == "inference")
    assert [ReplayChatCompletionClient.create, StaticStreamWorkbench.call_tool_stream, BaseTool.run_json] == methods


async def test_a_memory_that_lives_elsewhere_is_a_divergence(store: rb.Store) -> None:
    asked: list[str] = []

    def one(live: bool) -> Any:
        return agent("a", live, "blue", memory=[Elsewhere(asked)])

    await program(store, one, True)()
    assert asked == ["elsewhere"]
    report = await rb.areplay(store.session("ticket"), program(store, one, False))
    assert asked == ["elsewhere"]
    assert report.divergence is not None
    assert report.divergence.what == "memory Elsewhere"


class Elsewhere(Memory):
    """A memory behind a network."""

    component_type = "memory"

    def __init__(self, asked: list[str]) -> None:
        self._asked = asked

    async def update_context(self, model_context: Any) -> UpdateContextResult:
        self._asked.append("elsewhere")
        return UpdateContextResult(memories=MemoryQueryResult(results=[]))

    async def query(self, query: Any, cancellation_token: Any = None, **_: Any) -> MemoryQueryResult:
        return MemoryQueryResult(results=[])

    async def add(self, content: Any, cancellation_token: Any = None) -> None: ...
    async def clear(self) -> None: ...
    async def close(self) -> None: ...


async def test_a_fork_replays_what_it_holds(store: rb.Store) -> None:
    await program(store, round_robin, True)()
    fork = store.session("ticket").fork("try")
    report = await rb.areplay(fork, lambda: wrap(round_robin(False), store, "ticket@try").run(task="go"))
    assert (report.equal, report.served) == (True, 4), str(report)
