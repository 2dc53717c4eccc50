"""Laws 1, 2, 8 and 12 of items: home is exact for every item type, away is honest, calls go out in pairs."""

from __future__ import annotations

import asyncio
import copy
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from agents import Agent, Runner
from hypothesis import given
from hypothesis import strategies as st

import rath_bridge as rb
import rath_openai_agents as adapter_module
from rath_bridge.errors import DecodeError
from rath_bridge.model.kinds import Message, ToolResult
from rath_bridge.model.parts import (
    BlobPart,
    FilePart,
    GenericPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolCallResponsePart,
    UriPart,
)
from rath_bridge.testing import AdapterContract, Sample
from rath_openai_agents import decode, encode, recognises, wrap
from rath_openai_agents.items import key
from tests.openai_agents.doubles import ScriptedModel
from tests.openai_agents.scripted import call, go, say, solo, step, triage
from tests.openai_agents.strategies import ITEM_TYPES, items, paired, typed


def fresh(*drafts: Any) -> rb.Session:
    return rb.open_store("memory:").create("s").append(*drafts)


def foreign(*said: Message) -> rb.Session:
    return fresh(*(rb.draft(one) for one in said))


TEXT = {"type": "output_text", "text": "hm", "annotations": []}
IMAGE = {"type": "input_image", "image_url": "https://x/y.png", "detail": "low"}
THOUGHT = {"type": "summary_text", "text": "think"}
REPLY: list[Any] = [
    {"role": "user", "content": [{"type": "input_text", "text": "look " * 200}, IMAGE]},
    {"type": "reasoning", "id": "rs_1", "summary": [THOUGHT], "encrypted_content": "e" * 700},
    {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "phase": "commentary", "content": [TEXT]},
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": '{"a" : 1}', "status": "completed"},
    {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "3"}]},
    {"role": "assistant", "content": "so it is"},
]


class TestContract(AdapterContract):
    """The house's contract for adapters."""

    @pytest.fixture
    def adapter(self) -> Any:
        return adapter_module

    @pytest.fixture
    def samples(self) -> list[Sample]:
        result = asyncio.run(go(triage()))
        return [Sample(REPLY, "items"), Sample(result.to_input_list()), Sample(copy.deepcopy(REPLY[:1]))]

    @pytest.fixture
    def continued(self, sync_loop: None) -> Callable[[rb.Session], rb.Session]:
        agent = Agent(name="Solo", model=ScriptedModel([say("no"), say("no")]))
        return lambda session: wrap(agent, session.store)(session)


# ------------------------------------------------------------------ law 1


@given(items())
def test_every_list_goes_home_as_it_came(given_items: list[dict[str, Any]]) -> None:
    before = json.dumps(given_items)
    s = fresh(*decode(given_items))
    native, report = encode(s)
    assert native == json.loads(before)
    assert json.dumps(native) == before, "key order, too"
    assert report.exact
    assert s.fsck() == []
    assert [m.parts for m in s.messages()] == [m.parts for m in s.messages()], "every part can be read"


@pytest.mark.parametrize("hint", ITEM_TYPES, ids=lambda hint: hint.__name__)
def test_every_item_type_goes_home(hint: Any) -> None:
    @given(typed(hint))
    def check(item: dict[str, Any]) -> None:
        listed = paired([item])
        assert encode(fresh(*decode(listed)))[0] == listed
        assert recognises(listed)

    check()


async def test_a_result_goes_home_with_its_agents() -> None:
    result = await go(triage())
    s = fresh(*rb.decode(result))
    assert encode(s)[0] == result.to_input_list()
    assert [(m.role, m.name) for m in s.messages()] == [
        ("user", None), ("assistant", "Triage"), ("tool", None), ("assistant", "Triage"), ("tool", None), ("assistant", "Billing"),
    ]  # fmt: skip


async def test_every_kind_of_run_item_keeps_its_agent() -> None:
    """Each of ``agents.items``: what a model said names the agent that said it; a call that waits is asked about."""
    from agents import items as kinds

    agents = [Agent(name=f"Agent {n}") for n in range(14)]
    text = {"type": "output_text", "text": "hm", "annotations": []}
    call_ = {"type": "function_call", "name": "f", "arguments": "{}"}
    source, target = agents[0], agents[1]
    listing = {"type": "mcp_list_tools", "id": "l", "server_label": "s", "tools": []}
    asks = {"type": "mcp_approval_request", "id": "r", "server_label": "s", "name": "t", "arguments": "{}"}
    said: list[tuple[type[Any], dict[str, Any], dict[str, Any]]] = [
        (kinds.ReasoningItem, {"type": "reasoning", "id": "rs", "summary": []}, {}),
        (
            kinds.MessageOutputItem,
            {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]},
            {},
        ),
        (kinds.ToolCallItem, {**call_, "call_id": "c1"}, {}),
        (kinds.HandoffCallItem, {**call_, "name": "transfer", "call_id": "c2"}, {}),
        (kinds.MCPListToolsItem, listing, {}),
        (kinds.MCPApprovalRequestItem, asks, {}),
        (kinds.ToolSearchCallItem, {"type": "tool_search_call", "id": "ts", "call_id": "c3", "arguments": {}}, {}),
        (kinds.ToolCallItem, {**call_, "call_id": "c9"}, {}),
        (kinds.ToolApprovalItem, {**call_, "call_id": "c9"}, {}),
    ]
    told: list[tuple[type[Any], dict[str, Any], dict[str, Any]]] = [
        (kinds.ToolCallOutputItem, {"type": "function_call_output", "call_id": "c1", "output": "1"}, {"output": "1"}),
        (
            kinds.HandoffOutputItem, {"type": "function_call_output", "call_id": "c2", "output": "2"},
            {"source_agent": source, "target_agent": target},
        ),
        (kinds.MCPApprovalResponseItem, {"type": "mcp_approval_response", "approval_request_id": "r", "approve": True}, {}),
        (kinds.ToolSearchOutputItem, {"type": "tool_search_output", "call_id": "c3", "tools": []}, {}),
        (kinds.CompactionItem, {"type": "compaction", "id": "cp", "encrypted_content": "x"}, {}),
    ]  # fmt: skip
    result = await go(triage())
    result.input = "hi"
    result.new_items = [
        kind(agent=one, raw_item=raw, **more) for one, (kind, raw, more) in zip(agents, [*said, *told], strict=True)
    ]
    assert {one.type for one in result.new_items} == {
        "reasoning_item", "message_output_item", "tool_call_item", "tool_call_output_item", "handoff_call_item", "handoff_output_item",
        "mcp_list_tools_item", "mcp_approval_request_item", "mcp_approval_response_item", "tool_search_call_item",
        "tool_search_output_item", "compaction_item", "tool_approval_item",
    }  # fmt: skip
    s = fresh(*rb.decode(result))
    home, report = encode(s, "items")
    assert not report.exact, "the call that waits goes out answered"
    assert [item for item in home if item.get("type") != "function_call_output" or item["call_id"] != "c9"] == [
        {"role": "user", "content": "hi"}, *(raw for kind, raw, _ in [*said, *told] if kind is not kinds.ToolApprovalItem),
    ]  # fmt: skip
    named = [message.name for message in s.messages() if message.name is not None]
    assert named == [agents[n].name for n, (kind, *_) in enumerate(said) if kind is not kinds.ToolApprovalItem]
    (asked,) = [chunk.body for chunk in s if chunk.kind == "approval"]
    assert (asked.call_id, asked.subject["tool"], asked.subject["agent"]) == ("c9", "f", "Agent 8")  # type: ignore[attr-defined]


def test_a_reply_is_one_message() -> None:
    s = fresh(*decode(REPLY))
    assert [(m.role, [p.type for p in m.parts]) for m in s.messages()] == [
        ("user", ["text", "uri"]),
        ("assistant", ["reasoning", "text", "tool_call"]),
        ("tool", ["tool_call_response"]),
        ("assistant", ["text"]),
    ]


def test_odd_values_survive() -> None:
    odd = [
        {"role": "user", "content": "half \ud800 a pair"},
        {"type": "later_thing", "n": 2**70, "x": float("inf"), "nothing": None, "deep": [{"y": ["\u2028"]}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "not json"},
        {"type": "function_call_output", "call_id": "c", "output": ""},
    ]
    s = fresh(*decode(odd))
    assert encode(s)[0] == odd
    assert s.messages()[2].parts[0].arguments == "not json"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "bad", [5, "text", [1], [{"role": "user", "content": b"x"}], [{1: 2}], [{"role": "user", "content": {3}}]]
)
def test_what_is_no_item_is_refused_by_its_place(bad: Any) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(bad)
    assert "items" in str(caught.value)


def test_openai_chat_messages_are_somebody_elses() -> None:
    assert not recognises([{"role": "assistant", "content": None, "tool_calls": []}])
    assert not recognises([{"role": "tool", "content": "x", "tool_call_id": "c"}])
    assert not recognises([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])
    assert not recognises([])
    assert not recognises([{"type": "human", "content": "x"}])


def test_items_are_read_without_the_sdk() -> None:
    code = (
        "import sys, rath_openai_agents as a, rath_bridge as rb\n"
        "s = rb.open_store('memory:').create('s').append(*a.decode([{'role': 'user', 'content': 'hi'}]))\n"
        "assert a.encode(s)[0] == [{'role': 'user', 'content': 'hi'}]\n"
        "sys.exit(bool({'agents', 'openai'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ".:adapters"}, check=False).returncode == 0


# ------------------------------------------------------------------ law 2


def test_foreign_messages_are_translated_and_losses_named() -> None:
    s = foreign(
        Message(role="system", parts=(TextPart("be brief"),)),
        Message(
            role="user",
            name="Ann",
            parts=(TextPart("see"), BlobPart("image", b"png", "image/png"), FilePart("document", "file-1")),
        ),
        Message(
            role="assistant",
            parts=(
                ReasoningPart("hm"),
                TextPart("I look"),
                ToolCallPart("c1", "look", {"x": 1}),
                GenericPart("server_tool_call", {}),
            ),
        ),
        Message(role="tool", parts=(ToolCallResponsePart("c1", {"seen": True}),)),
        Message(role="critic", parts=(TextPart("fine"), UriPart("audio", "https://x/y.mp3"))),
    )
    native, report = encode(s)
    assert native == [
        {"role": "system", "content": "be brief"},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "see"},
                {"type": "input_image", "image_url": "data:image/png;base64,cG5n", "detail": "auto"},
                {"type": "input_file", "file_id": "file-1"},
            ],
        },
        {"role": "assistant", "content": "I look"},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"x":1}'},
        {"type": "function_call_output", "call_id": "c1", "output": '{"seen":true}'},
        {"role": "user", "content": "fine"},
    ]
    ids = [m.id for m in s.messages()]
    found = {(ids.index(str(loss.chunk)), loss.path) for loss in report.losses}
    assert found == {(1, "name"), (2, "parts[0]"), (2, "parts[3]"), (3, "parts[0].response"), (4, "role"), (4, "parts[1]")}


async def test_foreign_items_are_what_the_sdk_takes() -> None:
    s = foreign(
        Message(role="user", parts=(TextPart("pay"),)),
        Message(role="assistant", parts=(TextPart("I pay"), ToolCallPart(None, "pay", None))),
        Message(role="tool", parts=(ToolCallResponsePart(None, "paid"),)),
    )
    native, _ = encode(s)
    model = ScriptedModel([say("ok")])
    result = await Runner.run(Agent(name="A", model=model), native)
    assert result.final_output == "ok"
    assert model.calls[0].input == native
    assert native[2]["call_id"] == native[3]["call_id"] != ""


# ------------------------------------------------------------------ law 8


def test_a_pending_call_is_closed_and_named() -> None:
    s = foreign(
        Message(role="assistant", parts=(ToolCallPart("c1", "f", {}), ToolCallPart("c2", "g", {}))),
        Message(role="user", parts=(TextPart("well?"),)),
    )
    native, report = encode(s)
    assert [item.get("call_id") for item in native] == ["c1", "c2", "c1", "c2", None]
    assert [loss.path for loss in report.losses] == ["call_id", "call_id"]


def test_a_recorded_result_answers_for_the_missing_message() -> None:
    asked = Message(role="assistant", parts=(ToolCallPart("c1", "f", {}),))
    s = fresh(rb.draft(asked), rb.draft(ToolResult(call_id="c1", name="f", result={"n": 1})))
    native, report = encode(s)
    assert native[1] == {"type": "function_call_output", "call_id": "c1", "output": '{"n":1}'}
    assert report.exact


def test_an_answer_that_nobody_asked_for_is_left_out_and_named() -> None:
    s = fresh(*decode([{"role": "user", "content": "hi"}, {"type": "function_call_output", "call_id": "c9", "output": "x"}]))
    native, report = encode(s)
    assert native == [{"role": "user", "content": "hi"}]
    assert "c9" in str(report)


async def test_a_call_id_that_was_used_before_is_renamed() -> None:
    """The SDK keeps only the latest of two calls with one id, and tears the pairs apart."""
    turns = [
        {"role": "user", "content": "a"}, call("f", {"n": 1}, "c").model_dump(exclude_unset=True),
        {"type": "function_call_output", "call_id": "c", "output": "1"},
    ]  # fmt: skip
    again = [*turns[:1], {**turns[1], "name": "g"}, {**turns[2], "output": "2"}]
    native, report = encode(fresh(*decode(turns), *decode(again)))
    model = ScriptedModel([say("ok")])
    await Runner.run(Agent(name="A", model=model), native)
    assert [item.get("call_id") for item in model.calls[0].input] == [None, "c", "c", None, "c_2", "c_2"]
    assert "in use" in str(report)


# ------------------------------------------------------------------ comparison keys


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"role": "user", "content": "x"}, {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}),
        (
            {"role": "assistant", "content": "x"},
{"type": "message", "id": "m", "status": "completed", "role": "assistant", "content": [{**TEXT, "text": "x"}]},
        ),
        (
            {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": '{"a": 1}', "status": "completed"},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a":1}'},
        ),
    ],
)  # fmt: skip
def test_a_key_leaves_out_ids_status_and_form(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert key(one) == key(other)


@given(st.lists(st.sampled_from(REPLY), max_size=6))
def test_keys_tell_different_items_apart(listed: list[Any]) -> None:
    assert len({key(item) for item in listed}) == len({json.dumps(item) for item in listed})


def test_scripted_helpers_stand() -> None:
    assert step(call("f")).output[0].call_id == "call_1"  # type: ignore[union-attr]
    assert solo([]).name == "Solo"
