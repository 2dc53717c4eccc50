"""Moving on: from AutoGen's saved state, result or AG2's classic chat to a running graph and a running agent, with the loss report."""

from __future__ import annotations

import json
import runpy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Runner
from agents.testing import ScriptedModel, assistant_message
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph

import rath_bridge as rb
from rath_autogen import dumps
from rath_bridge.errors import DecodeError
from rath_bridge.model.kinds import Message
from rath_bridge.model.parts import ToolCallPart, ToolCallResponsePart, UriPart
from tests.autogen.test_runs import graph, round_robin, selector, swarm
from tests.cli_store import run

TEAMS = [round_robin, selector, swarm, graph]


def bot(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(f"I know {len(state['messages'])} messages.")]}


async def imported(store: rb.Store, make: Any) -> rb.Session:
    team = make()
    await team.run(task="go")
    return store.create("ticket").append(*rb.decode(json.loads(json.dumps(await team.save_state()))))


@pytest.mark.parametrize("make", TEAMS)
async def test_a_saved_team_goes_on_in_langgraph(store: rb.Store, make: Any) -> None:
    session = await imported(store, make)
    messages, report = rb.encode(session, "langgraph")
    compiled = StateGraph(MessagesState).add_node("bot", bot).add_edge(START, "bot").add_edge("bot", END).compile()
    given: Any = {"messages": [*messages, ("user", "more")]}
    after: Any = await compiled.ainvoke(given)
    assert after["messages"][-1].content == f"I know {len(messages) + 1} messages."
    held = {m.chunk.id for m in session.messages()}
    assert {row.chunk for row in report.manifest} | {loss.chunk for loss in report.losses} >= held  # there, or named
    assert all(loss.path and loss.what for loss in report.losses)


@pytest.mark.parametrize("make", TEAMS)
async def test_a_saved_team_goes_on_in_the_agents_sdk(store: rb.Store, make: Any) -> None:
    session = await imported(store, make)
    items, report = rb.encode(session, "openai_agents")
    agent = Agent(name="next", model=ScriptedModel([[assistant_message("fine")]]))
    result = await Runner.run(agent, [*items, {"role": "user", "content": "more"}])
    assert result.final_output == "fine"
    held = {m.chunk.id for m in session.messages()}
    assert {row.chunk for row in report.manifest} | {loss.chunk for loss in report.losses} >= held
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    assert calls == [item["call_id"] for item in items if item.get("type") == "function_call_output"]


async def test_4327_the_command_line_imports_and_exports_what_autogen_wrote(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 's.db'}"
    team = swarm()
    result = await team.run(task="go")
    (tmp_path / "state.json").write_text(json.dumps(await team.save_state()))
    (tmp_path / "result.json").write_text(result.model_dump_json())
    (tmp_path / "cut.json").write_text(json.dumps(await team.save_state())[:900])
    assert run("import", "--from", "autogen", str(tmp_path / "state.json"), "--as", "ticket", store=url).exit_code == 0
    assert run("import", str(tmp_path / "result.json"), "--as", "result", store=url).exit_code == 0
    refused = run("import", "--from", "autogen", str(tmp_path / "cut.json"), store=url)
    assert refused.exit_code == 3
    assert "cut.json" in refused.output
    with rb.open_store(url) as store:
        back, report = rb.encode(store.session("result"), "autogen")
        assert store.session("ticket").messages()[0].text == "go"
        messages, lost = rb.encode(store.session("ticket"), "langgraph")
        items, lost_too = rb.encode(store.session("ticket"), "openai_agents")
    assert report.exact
    assert json.loads(dumps(back)) == result.model_dump(mode="json")
    compiled = StateGraph(MessagesState).add_node("bot", bot).add_edge(START, "bot").add_edge("bot", END).compile()
    given: Any = {"messages": [*messages, ("user", "more")]}
    assert (await compiled.ainvoke(given))["messages"][-1].content == f"I know {len(messages) + 1} messages."
    agent = Agent(name="next", model=ScriptedModel([[assistant_message("fine")]]))
    assert (await Runner.run(agent, [*items, {"role": "user", "content": "more"}])).final_output == "fine"
    assert {loss.path for loss in lost_too.losses} >= {"name"}  # the SDK has no field for who said it
    assert str(lost) != str(lost_too)


@dataclass
class ChatResult:
    """The shape of ``autogen.agentchat.chat.ChatResult`` of AG2 0.14."""

    chat_id: int | None = None
    chat_history: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    summary: Any = ""
    cost: dict[str, Any] = field(default_factory=dict[str, Any])
    human_input: list[str] = field(default_factory=list[str])


PICTURE = {"type": "image_url", "image_url": {"url": "https://x/y.png"}}


def classic() -> ChatResult:
    call = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": '{"n": 3}'}}
    return ChatResult(
        chat_id=2**127 + 5,
        chat_history=[
            {"content": "pay 3", "role": "assistant", "name": "user_proxy"},
            {"content": "", "tool_calls": [call], "role": "user", "name": "agent"},
            {
                "content": "paid 3",
                "tool_responses": [{"tool_call_id": "c1", "role": "tool", "content": "paid 3"}],
                "role": "tool",
                "name": "user_proxy",
            },
            {"content": [{"type": "text", "text": "see"}, PICTURE], "role": "user", "name": "agent"},
            {"content": None, "function_call": {"name": "look", "arguments": "{}"}, "role": "user", "name": "agent"},
            {"content": "seen", "role": "function", "name": "look"},
            {"content": "done TERMINATE", "role": "user", "name": "agent"},
        ],
        summary="paid",
        cost={
            "usage_including_cached_inference": {"total_cost": 0.2, "m": {"cost": 0.2, "prompt_tokens": 20, "completion_tokens": 4}},
            "usage_excluding_cached_inference": {"total_cost": 0.1, "m": {"cost": 0.1, "prompt_tokens": 10, "completion_tokens": 2}},
        },
        human_input=["yes"],
    )  # fmt: skip


@pytest.mark.parametrize("form", ["object", "dict", "json"])
def test_ag2s_classic_chat_is_read_by_its_shape(store: rb.Store, form: str) -> None:
    given = classic()
    obj: Any = {"object": given, "dict": vars(given), "json": json.loads(json.dumps(vars(given)))}[form]
    session = store.create("s").append(*rb.decode(obj))
    assert [(m.role, m.name) for m in session.messages()] == [
        ("user", "user_proxy"), ("assistant", "agent"), ("tool", "user_proxy"), ("assistant", "agent"), ("assistant", "agent"),
        ("tool", None), ("assistant", "agent"),
    ]  # fmt: skip
    assert [(call.name, call.status) for call in session.calls()] == [("pay", "ok"), ("look", "ok")]
    parts = [part for m in session.messages() for part in m.body.parts]
    assert next(part for part in parts if isinstance(part, UriPart)).uri == "https://x/y.png"
    assert next(part for part in parts if isinstance(part, ToolCallPart)).arguments == {"n": 3}
    assert next(part for part in parts if isinstance(part, ToolCallResponsePart)).extra == {"name": "pay"}
    runs: Any = [c.body for c in session if c.kind == "run"]
    begin, end = runs
    assert begin.native_id == str(2**127 + 5)
    assert (end.attributes["summary"], end.attributes["human_input"]) == ("paid", ["yes"])
    assert (session.usage().input_tokens, session.usage().output_tokens) == (10, 2)  # a cached answer cost nothing
    natives = [json.loads(c.native.data) for c in session if c.kind == "message" and c.native is not None]
    assert natives == given.chat_history
    context, report = rb.encode(session, "autogen", "llm_messages")
    assert [type(m).__name__ for m in context][:3] == ["UserMessage", "AssistantMessage", "FunctionExecutionResultMessage"]
    assert not [c for c in session if c.kind == "message" and not isinstance(c.body, Message)]
    assert report.manifest


def test_a_chat_without_names_has_two_sides(store: rb.Store) -> None:
    lines = [{"content": "hi", "role": "assistant"}, {"content": "fine", "role": "user"}]
    session = store.create("s").append(*rb.decode({"chat_history": lines, "summary": "", "cost": {}, "human_input": []}))
    assert [m.role for m in session.messages()] == ["user", "assistant"]


@pytest.mark.parametrize(
    ("edit", "path"),
    [
        ({"chat_history": "x"}, "chat_history"),
        ({"chat_history": ["x"]}, "chat_history[0]"),
        ({"chat_history": [{"role": "user"}]}, "chat_history[0].content"),
        ({"chat_history": [{"role": "user", "content": "x", "tool_calls": [{"id": "c"}]}]}, "chat_history[0].function"),
    ],
)
def test_a_damaged_chat_names_the_field(edit: dict[str, Any], path: str) -> None:
    with pytest.raises(DecodeError) as raised:
        rb.decode(vars(classic()) | edit)
    assert raised.value.path == path


def test_the_example_runs_and_has_fifteen_lines(capsys: pytest.CaptureFixture[str]) -> None:
    example = Path(__file__).parents[2] / "examples" / "autogen_team.py"
    runpy.run_path(str(example))
    assert capsys.readouterr().out == "user: Write about rain.\nwriter: A draft.\nuser: Shorter.\nwriter: A poem.\n"
    assert len([line for line in example.read_text().splitlines()[1:] if line]) <= 15
