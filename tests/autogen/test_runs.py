"""`wrap`: runs of agents and teams on record as they happen; sessions continued; laws 7, 8 and 12 on real runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.conditions import HandoffTermination, TextMentionTermination
from autogen_agentchat.messages import HandoffMessage, TextMessage, ToolCallRequestEvent
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, MagenticOneGroupChat, RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_core import CancellationToken
from autogen_core.memory import ListMemory, MemoryContent, MemoryMimeType
from autogen_core.models import AssistantMessage, FunctionExecutionResultMessage, UserMessage

import rath_autogen
import rath_bridge as rb
from rath_autogen import RecordingChatCompletionClient, wrap
from rath_bridge.errors import UnsupportedError
from rath_bridge.model.kinds import Message, Run
from rath_bridge.model.parts import TextPart, ToolCallPart, ToolCallResponsePart
from tests.autogen.scripted import DONE, INFO, asks, client, dumped, says


async def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


async def crash() -> str:
    """Crash."""
    raise RuntimeError("no money")


async def wait() -> str:
    """Wait for a long time."""
    await asyncio.sleep(300)
    return "waited"


def agent(name: str, *answers: Any, record: bool = False, **options: Any) -> AssistantAgent:
    model: Any = client(*answers)
    return AssistantAgent(name, RecordingChatCompletionClient(model) if record else model, **options)


def told(session: rb.Session) -> list[tuple[str, str | None, str]]:
    return [(m.role, m.name, m.text) for m in session.messages()]


def runs(session: rb.Session) -> list[Run]:
    return [c.body for c in session if isinstance(c.body, Run)]


def round_robin() -> Any:
    return RoundRobinGroupChat(
        [agent("a", "one", "three"), agent("b", "two TERMINATE")], termination_condition=TextMentionTermination("TERMINATE")
    )


def selector() -> Any:
    return SelectorGroupChat([agent("a", "one"), agent("b", "two")], client("b", "a"), max_turns=2, emit_team_events=True)


def swarm() -> Any:
    first = agent("a", asks("transfer_to_b"), handoffs=["b"])
    second = agent("b", asks("pay", '{"n": 3}', "c2"), asks("transfer_to_user", "{}", "c3"), tools=[pay], handoffs=["user"])
    return Swarm([first, second], termination_condition=HandoffTermination("user"))


def graph() -> Any:
    a, b = agent("a", "draft"), agent("b", "review")
    return GraphFlow([a, b], DiGraphBuilder().add_node(a).add_node(b).add_edge(a, b).build())


def reflecting() -> Any:
    return agent(
        "a", asks("pay", '{"n": 3}', thought="hm"), "done", tools=[pay], reflect_on_tool_use=True, model_client_stream=True
    )


def remembering() -> Any:
    memory = ListMemory(memory_contents=[MemoryContent(content="likes blue", mime_type=MemoryMimeType.TEXT)])
    return agent("a", says("blue", thought="easy"), memory=[memory])


def asking() -> Any:
    return RoundRobinGroupChat([agent("a", "your name?"), UserProxyAgent("bob", input_func=lambda _: "Bob")], max_turns=2)


@pytest.mark.parametrize("make", [round_robin, selector, swarm, graph, reflecting, remembering, asking])
async def test_a_recorded_run_is_the_run_and_goes_home_exactly(store: rb.Store, make: Any) -> None:
    result = await wrap(make(), store, "s").run(task="go")
    session = store.session("s")
    back, report = rath_autogen.encode(session)
    assert report.exact
    assert dumped(back.messages) == dumped(result.messages)
    assert back.stop_reason == result.stop_reason
    assert not session.pending()
    assert not session.fsck()
    begin, end = runs(session)
    assert (begin.phase, end.phase, end.status) == ("begin", "end", "ok")
    assert session.messages()[0].role == "user"
    assert {m.role for m in session.messages() if m.name in ("a", "b")} <= {"assistant", "tool"}


async def test_a_team_tells_who_takes_part(store: rb.Store) -> None:
    await wrap(selector(), store, "s").run(task="go")
    session = store.session("s")
    begin = runs(session)[0]
    assert (begin.name, begin.type) == ("SelectorGroupChat", "team")
    assert [p["name"] for p in begin.attributes["participants"]] == ["a", "b"]
    assert [c.values["chosen"] for c in session if c.kind == "route"] == [["b"], ["a"]]


async def test_an_agent_tells_its_prompt_and_tools(store: rb.Store) -> None:
    await wrap(agent("a", "hi", system_message="Be brief.", tools=[pay], handoffs=["b"]), store, "s").run(task="go")
    begin = runs(store.session("s"))[0]
    assert begin.system_instructions == "Be brief."
    assert [tool["name"] for tool in begin.tools] == ["pay", "transfer_to_b"]


async def test_handoffs_and_calls_of_a_swarm_are_on_record(store: rb.Store) -> None:
    await wrap(swarm(), store, "s").run(task="go")
    session = store.session("s")
    assert [(c.values["from_agent"], c.values["to_agent"]) for c in session if c.kind == "handoff"] == [("a", "b"), ("b", "user")]
    assert [(call.name, call.status) for call in session.calls()] == [
        ("transfer_to_b", "ok"),
        ("pay", "ok"),
        ("transfer_to_user", "ok"),
    ]


async def test_a_call_is_durable_before_its_tool_runs(store: rb.Store) -> None:
    seen: list[str] = []

    async def look() -> str:
        """Look at the record."""
        seen.extend(call.call_id for call in store.session("s").pending())
        return "seen"

    await wrap(agent("a", asks("look"), tools=[look]), store, "s").run(task="go")
    assert seen == ["c1"]


async def test_what_cannot_be_recorded_never_breaks_a_run(store: rb.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rath_autogen.transcriber.pieces", lambda *_, **__: 1 / 0)
    result = await wrap(agent("a", "ok"), store, "s").run(task="go")
    assert len(result.messages) == 2
    gaps = [c.values["count"] for c in store.session("s") if c.kind == "gap"]
    assert gaps == [1, 1, 1]  # the task, the answer and its tokens


async def test_a_crashing_tool_is_an_error_and_the_run_goes_on(store: rb.Store) -> None:
    await wrap(agent("a", asks("crash"), tools=[crash]), store, "s").run(task="go")
    (call,) = store.session("s").calls()
    assert call.status == "error"


async def test_a_crashing_model_leaves_the_chunks_and_raises_as_before(store: rb.Store) -> None:
    team = RoundRobinGroupChat([agent("a", "one"), agent("b")])
    with pytest.raises(RuntimeError, match="No more mock responses"):
        await wrap(team, store, "s").run(task="go")
    session = store.session("s")
    assert [text for _, _, text in told(session)] == ["go", "one"]
    assert runs(session)[-1].status == "error"


@pytest.mark.parametrize("in_team", [False, True])
async def test_7956_a_token_that_is_cancelled_while_a_tool_runs_does_not_hang(store: rb.Store, in_team: bool) -> None:
    """AutoGen alone waits for ever: issue 7956."""
    one = agent("a", asks("wait"), tools=[wait])
    wrapped = wrap(RoundRobinGroupChat([one]) if in_team else one, store, "s", grace=0.05)
    token = CancellationToken()

    async def cancel_during_the_tool() -> None:
        async for item in wrapped.run_stream(task="go", cancellation_token=token):
            if isinstance(item, ToolCallRequestEvent):
                asyncio.get_running_loop().call_later(0.05, token.cancel)

    with pytest.raises(asyncio.CancelledError):
        await cancel_during_the_tool()
    session = store.session("s")
    assert [(c.call_id, c.status) for c in session.calls()] == [("c1", "no_response")]
    assert runs(session)[-1].status == "cancelled"
    assert rath_autogen.encode(session)[0].messages[-1].content[0].content == "[no response: cancelled]"
    assert isinstance(rath_autogen.encode(session, "llm_messages")[0][-1], FunctionExecutionResultMessage)


async def test_a_cancelled_task_leaves_its_chunks(store: rb.Store) -> None:
    begun = asyncio.Event()

    async def wait() -> str:
        """Wait for a long time."""
        begun.set()
        await asyncio.sleep(300)
        return "waited"

    running = asyncio.ensure_future(wrap(agent("a", asks("wait"), tools=[wait]), store, "s").run(task="go"))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    session = store.session("s")
    assert not session.pending()
    assert runs(session)[-1].status == "cancelled"


async def test_a_stream_that_is_left_early_is_closed_and_marked(store: rb.Store) -> None:
    stream = wrap(reflecting(), store, "s").run_stream(task="go")
    async for item in stream:
        if isinstance(item, ToolCallRequestEvent):
            break
    await stream.aclose()
    session = store.session("s")
    assert runs(session)[-1].status == "abandoned"
    assert [call.status for call in session.calls()] == ["no_response"]


async def test_text_that_was_cut_off_is_kept_as_partial(store: rb.Store) -> None:
    stream = wrap(agent("a", "one two three", model_client_stream=True), store, "s").run_stream(task="go")
    await anext(stream)
    assert (await anext(stream)).content == "one "
    await stream.aclose()
    last = store.session("s").messages()[-1]
    assert (last.text, last.body.attributes["partial"]) == ("one ", True)


@pytest.mark.parametrize("record", [False, True])
async def test_usage_is_counted_once_per_model_call(store: rb.Store, record: bool) -> None:
    """Law 7: with a recording client inside, the messages' own usage adds nothing."""
    model = client(asks("pay", '{"n": 3}'), "done")
    inner: Any = RecordingChatCompletionClient(model) if record else model
    one = AssistantAgent("a", inner, tools=[pay], reflect_on_tool_use=True)
    result = await wrap(RoundRobinGroupChat([one], max_turns=1), store, "s").run(task="go")
    session = store.session("s")
    spent = [m.models_usage for m in result.messages if m.models_usage]
    assert session.usage().input_tokens == sum(u.prompt_tokens for u in spent)
    assert session.usage().output_tokens == sum(u.completion_tokens for u in spent)
    calls = [c.values for c in session if c.kind == "inference"]
    assert [(c["observer"], c["agent"]) for c in calls] == [("model" if record else "message", "a")] * 2


async def test_only_the_calls_that_nobody_recorded_come_from_messages(store: rb.Store) -> None:
    team = RoundRobinGroupChat([agent("a", "one", record=True), agent("b", "two")], max_turns=2)
    await wrap(team, store, "s").run(task="go")
    calls = [c.values for c in store.session("s") if c.kind == "inference"]
    assert [(c["observer"], c["agent"]) for c in calls] == [("model", "a"), ("message", "b")]


# ------------------------------------------------------------------ sessions


def foreign(store: rb.Store) -> rb.Session:
    """What another framework left: a call, its answer, a question at the end, the same word twice."""
    said = [
        Message(role="user", parts=(TextPart("yes"),)),
        Message(role="assistant", parts=(ToolCallPart("x1", "look", {"at": 1}),)),
        Message(role="tool", parts=(ToolCallResponsePart("x1", "seen"),)),
        Message(role="assistant", parts=(TextPart("sure?"),)),
        Message(role="user", parts=(TextPart("yes"),)),
    ]
    return store.create("ticket").append(*map(rb.draft, said))


BEFORE = [("user", None, "yes"), ("assistant", None, ""), ("tool", None, ""), ("assistant", None, "sure?"), ("user", None, "yes")]


CONTEXT = ["UserMessage", "AssistantMessage", "FunctionExecutionResultMessage", "AssistantMessage", "UserMessage"]
"""What stands before, in the model context of an agent."""


async def known(team: Any) -> list[str]:
    """What the first agent of a team knows, by type."""
    return [type(message).__name__ for message in await team._participants[0].model_context.get_messages()]


async def test_an_agent_continues_a_foreign_session_with_each_message_once(store: rb.Store) -> None:
    one = agent("a", "then done", "and more")
    wrapped = wrap(one)
    session = await wrapped.acall(foreign(store))
    assert told(session) == [*BEFORE, ("assistant", "a", "then done")]
    context = await one.model_context.get_messages()
    assert [type(m) for m in context] == [
        UserMessage, AssistantMessage, FunctionExecutionResultMessage, AssistantMessage, UserMessage, AssistantMessage,
    ]  # fmt: skip
    manifest = runs(session)[0].manifest
    assert [row[1] for row in manifest] == [m.id for m in session.messages()[:5]]
    again = await wrapped.acall(session.append(rb.message("user", "yes")))
    assert told(again) == [*BEFORE, ("assistant", "a", "then done"), ("user", None, "yes"), ("assistant", "a", "and more")]
    assert len(await one.model_context.get_messages()) == 8


async def test_a_swarm_continues_a_foreign_session_with_roles_and_calls(store: rb.Store) -> None:
    first = agent("a", "thinking")
    session = await wrap(Swarm([first], max_turns=1)).acall(foreign(store))
    assert told(session) == [*BEFORE, ("assistant", "a", "thinking")]
    assert [type(m) for m in await first.model_context.get_messages()] == [
        UserMessage, AssistantMessage, FunctionExecutionResultMessage, AssistantMessage, UserMessage, AssistantMessage,
    ]  # fmt: skip


async def test_5912_a_swarm_that_handed_to_its_user_is_resumed_by_a_message(store: rb.Store) -> None:
    """AutoGen alone refuses a text here: issue 5912."""
    second = agent("b", asks("transfer_to_user"), "welcome back", handoffs=["user"])
    ends = HandoffTermination("user") | TextMentionTermination("welcome")
    wrapped = wrap(Swarm([agent("a", asks("transfer_to_b"), handoffs=["b"]), second], termination_condition=ends))
    session = await wrapped.acall(store.create("t").append(rb.message("user", "hello")))
    session = await wrapped.acall(session.append(rb.message("user", "I am back")))
    texts = [text for _, _, text in told(session) if text]
    assert texts[0] == "hello"
    assert texts.count("I am back") == 1
    assert texts[texts.index("I am back") + 1] == "welcome back"


async def test_a_team_continues_with_the_history_as_its_agents_contexts(store: rb.Store) -> None:
    wrapped = wrap(RoundRobinGroupChat([agent("a", "one", "two")], max_turns=1))
    session = await wrapped.acall(foreign(store))
    assert told(session) == [*BEFORE, ("assistant", "a", "one")]
    assert "losses" not in runs(session)[0].attributes
    again = await wrapped.acall(session.append(rb.message("user", "more")))
    assert told(again) == [*BEFORE, ("assistant", "a", "one"), ("user", None, "more"), ("assistant", "a", "two")]
    assert await known(wrapped.runner) == [*CONTEXT, "AssistantMessage", "UserMessage", "AssistantMessage"]


async def test_magentic_one_continues_with_task_messages_and_names_what_it_loses(store: rb.Store) -> None:
    """It clears its agents' contexts for every plan: a task is the one way in."""
    model = client("facts", "plan", DONE, "the answer")
    session = await wrap(MagenticOneGroupChat([agent("a")], model)).acall(foreign(store))
    assert told(session)[:5] == BEFORE
    assert told(session)[-1][2] == "the answer"
    assert [loss[2] for loss in runs(session)[0].attributes["losses"]] == [
        "no chat message of AutoGen holds a tool_call: left out",
        "no chat message of AutoGen holds a tool_call_response: left out",
        "stands as a user's message in AutoGen's model contexts",
    ]


async def test_a_team_that_is_given_another_line_starts_afresh(store: rb.Store) -> None:
    wrapped = wrap(RoundRobinGroupChat([agent("a", "one", "two")], max_turns=1))
    base = foreign(store)
    left = await wrapped.acall(base.fork("left"))
    right = await wrapped.acall(base.fork("right"))
    assert (told(left)[-1][2], told(right)[-1][2]) == ("one", "two")
    assert await known(wrapped.runner) == [*CONTEXT, "AssistantMessage"]


async def test_history_that_was_encoded_by_hand_is_known(store: rb.Store) -> None:
    session = foreign(store)
    task, report = rath_autogen.encode(session, "messages")
    wrapped = wrap(agent("a", "ok"), store, "ticket", continues=report)
    await wrapped.run(task=[*task, TextMessage(content="yes", source="user")])
    assert told(store.session("ticket")) == [*BEFORE, ("user", "user", "yes"), ("assistant", "a", "ok")]


async def test_a_task_that_begins_with_the_whole_transcript_is_known_by_inference(store: rb.Store) -> None:
    session = store.create("s").append(rb.message("user", "one"), rb.message("assistant", "two"))
    task, _ = rath_autogen.encode(session, "messages")
    await wrap(agent("a", "ok"), store, "s").run(task=[*task, TextMessage(content="three", source="user")])
    session = store.session("s")
    assert [text for _, _, text in told(session)] == ["one", "two", "three", "ok"]
    assert runs(session)[0].attributes["manifest_basis"] == "inferred"


async def test_two_turns_that_say_the_same_stay_two(store: rb.Store) -> None:
    wrapped = wrap(agent("a", "yes", "yes"), store, "s")
    await wrapped.run(task="yes")
    await wrapped.run(task="yes")
    assert Counter(text for _, _, text in told(store.session("s"))) == {"yes": 4}
    assert len(runs(store.session("s"))) == 4


async def test_a_task_that_is_not_put_out_is_on_record_all_the_same(store: rb.Store) -> None:
    result = await wrap(agent("a", "ok"), store, "s").run(task="go", output_task_messages=False)
    assert [m.content for m in result.messages if isinstance(m, TextMessage)] == ["ok"]
    assert [text for _, _, text in told(store.session("s"))] == ["go", "ok"]


async def test_it_nests_under_the_run_that_it_works_in(store: rb.Store) -> None:
    with rb.record(store, "s") as recorder, recorder.run("graph", "graph") as outer:
        await wrap(agent("a", "ok")).run(task="go")
    session = store.session("s")
    inner = next(c for c in session if c.kind == "run" and c.values.get("name") == "a")
    assert inner.values["parent"] == outer.id
    assert not session.messages()
    assert [m.text for m in session.messages(run=inner.run)] == ["go", "ok"]
    result = rath_autogen.encode(session, run=inner.run)[0]
    assert isinstance(result, TaskResult)
    assert len(result.messages) == 2


async def test_without_a_name_each_wrapped_object_has_a_session(store: rb.Store) -> None:
    wrapped = wrap(agent("a", "one", "two"), store)
    await wrapped.run(task="go")
    await wrapped.run(task="on")
    (session,) = store.sessions()
    assert session.name.startswith("autogen/")
    assert len(session.messages()) == 4


def test_a_wrapped_agent_is_a_step(store: rb.Store) -> None:
    session = wrap(agent("a", "ok"))(store.create("s").append(rb.message("user", "hi")))
    assert told(session) == [("user", None, "hi"), ("assistant", "a", "ok")]


class Slow(type(client())):  # type: ignore[misc]
    """A model for which one really waits."""

    async def create(self, *args: Any, **options: Any) -> Any:
        await asyncio.sleep(0.01)
        return await super().create(*args, **options)


def test_a_wrapped_team_is_a_step_again_and_again(store: rb.Store) -> None:
    """Each call has an event loop of its own; AutoGen's teams wait on queues that stay with the first."""
    inner = RoundRobinGroupChat([AssistantAgent("a", Slow(["one", "two"], INFO))], max_turns=1)
    step = wrap(RoundRobinGroupChat([inner, AssistantAgent("b", Slow(["three", "four"], INFO))], max_turns=2))
    session = step(store.create("s").append(rb.message("user", "hi")))
    session = step(session.append(rb.message("user", "more")))
    assert [m.text for m in session.messages()] == ["hi", "one", "three", "more", "two", "four"]


async def test_inside_a_loop_the_step_says_what_to_do(store: rb.Store) -> None:
    with pytest.raises(UnsupportedError, match="await wrapped.acall"):
        wrap(agent("a"))(store.create("s"))
    with pytest.raises(UnsupportedError, match="it has no run_stream"):
        wrap("agent")


async def test_state_reset_and_the_rest_are_the_runners_own(store: rb.Store) -> None:
    wrapped = wrap(agent("a", "one", "two"), store, "s")
    await wrapped.run(task="go")
    state = await wrapped.save_state()
    assert len(state["llm_context"]["messages"]) == 2
    await wrapped.reset()
    assert not (await wrapped.save_state())["llm_context"]["messages"]
    await wrapped.load_state(state)
    assert await wrapped.save_state() == state
    assert wrapped.name == "a"
    decoded = store.create("state").append(*rb.decode(state))
    assert rath_autogen.encode(decoded, "agent_state")[0] == state


async def test_a_saved_team_is_read_and_comes_back(store: rb.Store) -> None:
    team = swarm()
    await wrap(team, store, "s").run(task="go")
    state = dict(await team.save_state())
    session = store.create("saved").append(*rb.decode(state))
    assert rath_autogen.encode(session, "team_state")[0] == state
    assert [m.text for m in session.messages()] == [m.text for m in store.session("s").messages()]


async def test_a_handoff_of_a_users_own_keeps_its_context(store: rb.Store) -> None:
    task = HandoffMessage(source="user", target="a", content="go on", context=[UserMessage(content="before", source="user")])
    await wrap(Swarm([agent("a", "ok")], max_turns=1), store, "s").run(task=task)
    session = store.session("s")
    handoff = next(c for c in session if c.kind == "handoff")
    assert handoff.values["input"]["context"][0]["content"] == "before"
    _, report = rath_autogen.encode(session, "llm_messages")
    assert [loss.path for loss in report.losses] == ["native.context"]
