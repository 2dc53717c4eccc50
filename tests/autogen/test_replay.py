"""Replay of AutoGen: the same messages, no live call, no side effect; a divergence is named with both sides (law 5)."""

from __future__ import annotations

from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, CodeExecutorAgent, SocietyOfMindAgent, UserProxyAgent
from autogen_agentchat.agents._code_executor_agent import ApprovalRequest, ApprovalResponse
from autogen_agentchat.conditions import HandoffTermination
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, MagenticOneGroupChat, RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_agentchat.tools import AgentTool
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.models import CreateResult, UserMessage
from autogen_core.tools import FunctionTool, StaticWorkbench

import rath_bridge as rb
from rath_autogen import (
    RathReplayChatCompletionClient,
    RathReplayWorkbench,
    RecordingChatCompletionClient,
    ReplayDivergenceError,
    wrap,
)
from rath_autogen.natives import VOLATILE, dump
from tests.autogen.scripted import DONE, INFO, LEDGER, asks, client, says

HELLO = [UserMessage(content="hello", source="user")]
paid: list[int] = []


async def pay(n: int) -> str:
    """Pay."""
    paid.append(n)
    return f"paid {n} for the {len(paid)}. time"


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    paid.clear()


class Live(AssertionError):
    """Something live was called."""


def agent(name: str, live: bool, *answers: Any, **options: Any) -> AssistantAgent:
    """An agent whose model answers, or must not be asked."""
    return AssistantAgent(name, RecordingChatCompletionClient(client(*(answers if live else ()))), **options)


def model(live: bool, *answers: Any) -> RecordingChatCompletionClient:
    return RecordingChatCompletionClient(client(*(answers if live else ())))


class Executor(CodeExecutor):
    """Runs code by counting it."""

    component_type = "code_executor"

    def __init__(self, live: bool) -> None:
        self._live = live

    async def execute_code_blocks(self, code_blocks: list[CodeBlock], cancellation_token: Any) -> CodeResult:
        if not self._live:
            raise Live("code")
        return CodeResult(exit_code=0, output=f"ran {code_blocks[0].code}")

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def restart(self) -> None: ...


def approve(_: ApprovalRequest) -> ApprovalResponse:
    return ApprovalResponse(approved=True, reason="fine")


def tools(live: bool) -> Any:
    return agent("a", live, asks("pay", '{"n": 3}', thought="hm"), "done", tools=[pay], reflect_on_tool_use=True)


def streaming(live: bool) -> Any:
    return agent(
        "a", live, asks("pay", '{"n": 3}'), "one two three", tools=[pay], reflect_on_tool_use=True, model_client_stream=True
    )


def bench(live: bool) -> Any:
    return agent("a", live, asks("pay", '{"n": 3}'), workbench=StaticWorkbench([FunctionTool(pay, description="Pay.")]))


def round_robin(live: bool) -> Any:
    return RoundRobinGroupChat([agent("a", live, "one", "three"), agent("b", live, "two", "four")], max_turns=4)


def selector(live: bool) -> Any:
    return SelectorGroupChat([agent("a", live, "one"), agent("b", live, "two")], model(live, "b", "a"), max_turns=2)


def swarm(live: bool) -> Any:
    a = agent("a", live, asks("transfer_to_b"), handoffs=["b"])
    b = agent("b", live, asks("pay", '{"n": 3}', "c2"), asks("transfer_to_user", "{}", "c3"), tools=[pay], handoffs=["user"])
    return Swarm([a, b], termination_condition=HandoffTermination("user"))


def graph(live: bool) -> Any:
    a, b = agent("a", live, "draft"), agent("b", live, asks("pay", '{"n": 1}'), tools=[pay])
    return GraphFlow([a, b], DiGraphBuilder().add_node(a).add_node(b).add_edge(a, b).build())


def magentic(live: bool) -> Any:
    return MagenticOneGroupChat([agent("a", live, "worked")], model(live, "facts", "plan", LEDGER, DONE, "the answer"))


def nested(live: bool) -> Any:
    return RoundRobinGroupChat([round_robin(live), agent("z", live, "outer")], max_turns=2)


def society(live: bool) -> Any:
    return RoundRobinGroupChat([SocietyOfMindAgent("mind", round_robin(live), model(live, "said"))], max_turns=1)


def person(live: bool) -> Any:
    def answer(_: str) -> str:
        if not live:
            raise Live("person")
        return "Bob"

    return RoundRobinGroupChat([agent("a", live, "your name?"), UserProxyAgent("bob", input_func=answer)], max_turns=2)


def coder(live: bool) -> Any:
    code = "```python\nprint(1)\n```"
    return RoundRobinGroupChat(
        [agent("a", live, code), CodeExecutorAgent("runner", Executor(live), approval_func=approve)], max_turns=2
    )


def writing_coder(live: bool) -> Any:
    asked = model(live, "```python\nprint(1)\n```", "it printed 1")
    return CodeExecutorAgent("coder", Executor(live), model_client=asked, approval_func=approve)


KINDS = [
    tools, streaming, bench, round_robin, selector, swarm, graph, magentic, nested, society, person, coder, writing_coder,
]  # fmt: skip


def same(result: Any) -> list[dict[str, Any]]:
    """Messages without ids and times, which are new in every run."""
    return [
        {k: v for k, v in dump(m).items() if k not in (VOLATILE | {"request_id"}) - {"models_usage"}} for m in result.messages
    ]


async def test_7968_the_tool_choice_is_part_of_the_request(store: rb.Store) -> None:
    with rb.record(store, "s"):
        asked = model(True, "yes")
        await asked.create(HELLO, tool_choice="required", extra_create_args={"temperature": 0})
    replay = RathReplayChatCompletionClient(store.session("s"))
    with pytest.raises(ReplayDivergenceError, match='request: the run has tool_choice "auto", .* has tool_choice "required"'):
        await replay.create(HELLO, extra_create_args={"temperature": 0})


async def test_a_tool_that_diverges_does_not_run_and_stops_the_replay(store: rb.Store) -> None:
    await wrap(tools(True), store, "s").run(task="go")
    bench = RathReplayWorkbench(store.session("s"), [])
    result = await bench.call_tool("pay", {"n": 4}, call_id="c1")
    assert result.is_error
    assert 'tool call pay: the run has {"n": 4} (call c1)' in result.to_text()
    assert 'has {"n": 3} (call c1)' in result.to_text()
    assert paid == [3]
    client = RathReplayChatCompletionClient(bench.tape)
    with pytest.raises(ReplayDivergenceError, match="tool call pay"):
        await client.create(HELLO)


async def test_each_call_is_served_once_and_equal_calls_in_turn(store: rb.Store) -> None:
    asked = model(True, "one", "two")
    with rb.record(store, "s"):
        await asked.create(HELLO)
        await asked.create(HELLO)
    replay = RathReplayChatCompletionClient(store.session("s"))
    assert [(await replay.create(HELLO)).content for _ in range(2)] == ["one", "two"]
    with pytest.raises(ReplayDivergenceError, match="the run has one more call, .* the record has no call left"):
        await replay.create(HELLO)
    assert replay.model_info == INFO
    assert replay.total_usage().completion_tokens == 2
    assert (replay.actual_usage().prompt_tokens, replay.count_tokens(HELLO)) == (0, 0)


async def test_8039_a_served_answer_is_a_copy(store: rb.Store) -> None:
    """Pull 8039: a cache of AutoGen's changes the first result when it is hit."""
    with rb.record(store, "s"):
        first = await model(True, says("yes")).create(HELLO)
    again = await RathReplayChatCompletionClient(store.session("s")).create(HELLO)
    assert again == first
    assert again is not first
    assert not again.cached


async def test_a_call_that_failed_fails_again(store: rb.Store) -> None:
    with rb.record(store, "s"), pytest.raises(ValueError, match="No more mock responses"):
        await model(True).create(HELLO)
    with pytest.raises(ValueError, match="No more mock responses"):
        await RathReplayChatCompletionClient(store.session("s")).create(HELLO)


async def test_an_interrupted_stream_is_served_as_far_as_it_came(store: rb.Store) -> None:
    with rb.record(store, "s"):
        stream = model(True, "one two").create_stream(HELLO)
        await anext(stream)
        await stream.aclose()
    replay = RathReplayChatCompletionClient(store.session("s"))
    came: list[str | CreateResult] = []
    stream = replay.create_stream(HELLO)
    came.append(await anext(stream))
    with pytest.raises(RuntimeError, match="closed before its end"):
        await anext(stream)
    assert came == ["one "]


async def test_long_texts_and_secrets_are_matched(store: rb.Store) -> None:
    said = [UserMessage(content="the key is sk-proj-abcdefghijklmnopqrstuvwxyz " + "x" * 2000, source="user")]
    tool = FunctionTool(pay, description="pay " * 300)
    with rb.record(store, "s"):
        await model(True, "y" * 3000).create(said, tools=[tool])
    assert (await RathReplayChatCompletionClient(store.session("s")).create(said, tools=[tool])).content == "y" * 3000


async def test_a_workbench_shows_what_agents_inside_of_a_tool_showed(store: rb.Store) -> None:
    def outer(tool: Any, bench: Any = None, *answers: Any) -> Any:
        given: Any = {"workbench": bench} if bench is not None else {"tools": [tool]}
        return AssistantAgent("outer", client(*answers), **given)

    asked = asks("inner", '{"task": "look"}')
    recorded = await wrap(outer(AgentTool(agent("inner", True, "inner says")), None, asked), store, "s").run(task="go")
    bench = RathReplayWorkbench(store.session("s"), [])
    bench._schemas = [AgentTool(agent("inner", False)).schema]
    again = await outer(None, bench, asked).run(task="go")
    assert same(again) == same(recorded)
    assert "inner" in {message.source for message in again.messages}
