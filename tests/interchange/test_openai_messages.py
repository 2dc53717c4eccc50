"""OpenAI chat messages: home exactly, away honestly."""

from __future__ import annotations

import base64

import pytest

import rath_bridge as rb
from rath_bridge.errors import DecodeError
from rath_bridge.interchange import decode, encode, format_of, openai_messages
from rath_bridge.model.kinds import Message, ToolCall, ToolResult
from rath_bridge.model.parts import BlobPart, ReasoningPart, TextPart, ToolCallPart
from rath_bridge.plugins import Adapter
from rath_bridge.testing import AdapterContract, Sample
from rath_bridge.testing.strategies import session_of
from tests.interchange.contract import AsAdapter

PNG = base64.b64encode(b"\x89PNG" + b"x" * 700).decode()
TALK = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "name": "ann", "content": [
        {"type": "text", "text": "Weather? \u2028 " + "long " * 300},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "video_of_the_future", "seconds": 1.0},
    ]},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris", "n": 1.0}'}},
        {"id": "c2", "type": "function", "function": {"name": "weather", "arguments": "{torn"}},
        {"id": "c3", "type": "custom", "custom": {"name": "shell", "input": "ls"}},
    ]},
    {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "no"}]},
    {"role": "tool", "tool_call_id": "c1", "content": "rainy"},
    {"role": "tool", "tool_call_id": "c3", "content": ""},
    {"role": "assistant", "content": "Rain.", "refusal": None, "annotations": [], "audio": {"id": "a1"}},
    {"role": "assistant", "content": None, "refusal": "I cannot."},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "dry"},
    {"role": "assistant", "content": "", "function_call": {"name": "old", "arguments": "{}"}},
    {"role": "function", "name": "old", "content": "result"},
]  # fmt: skip
REQUEST = {"model": "gpt-x", "messages": TALK, "tools": [{"type": "function", "function": {"name": "weather"}}], "seed": 2**70}


class TestContract(AdapterContract):
    @pytest.fixture
    def adapter(self) -> Adapter:
        return AsAdapter("openai_messages")

    @pytest.fixture
    def samples(self) -> list[Sample]:
        return [Sample(TALK), Sample(REQUEST), Sample([{"role": "user", "content": "\ud800"}])]


def test_the_neutral_form_is_read() -> None:
    session = rb.open_store("memory:").create("s").append(*decode(TALK))
    messages = session.messages()
    assert [one.role for one in messages[:4]] == ["developer", "user", "assistant", "tool"]
    assert messages[1].name == "ann"
    assert messages[1].parts[1] == BlobPart("image", base64.b64decode(PNG), "image/png", {"detail": "low"})
    assert messages[2].parts[0] == ToolCallPart("c1", "weather", {"city": "Paris", "n": 1.0})
    assert messages[2].parts[1] == ToolCallPart("c2", "weather", "{torn")
    assert [(call.call_id, call.status) for call in session.calls()] == [(c, "ok") for c in ("c1", "c2", "c3", "c1")]


def test_lines_of_requests_are_sessions_of_their_own() -> None:
    rows = [{"messages": TALK[:1]}, {"messages": TALK[1:2], "tools": []}]
    assert format_of(rows) is openai_messages
    assert [obj for _, obj in openai_messages.documents(rows)] == rows
    assert openai_messages.dump_lines(rows).count(b"\n") == 2


def test_a_foreign_session_goes_out_with_its_losses_named() -> None:
    session = session_of([
        Message(role="user", parts=(TextPart("hi"),)),
        Message(role="assistant", name="triage", parts=(ReasoningPart("hm"), TextPart("a"), ToolCallPart("c", "look", {"n": 1}))),
        ToolCall(name="look", call_id="c"),
        ToolResult(name="look", call_id="c", result={"total": 12.5}),
        Message(role="assistant", parts=(ToolCallPart("d", "wait", None),)),
    ])  # fmt: skip
    found, report = encode(session, "openai_messages")
    assert found[1:3] == [
        {"role": "assistant", "content": "a", "name": "triage", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"n":1}'}}]},
        {"role": "tool", "tool_call_id": "c", "content": '{"total":12.5}'},
    ]  # fmt: skip
    assert found[4]["content"].startswith("no response")
    assert [(loss.path, loss.what.split(":")[0]) for loss in report.losses] == [
        ("parts[0]", "a part of type 'reasoning' in a message of role 'assistant'"),
        ("call_id", "the call 'd' is pending"),
    ]


@pytest.mark.parametrize(
    ("damaged", "path"),
    [
        ([{"role": 5, "content": "x"}], "[0].role"),
        ([{"role": "user", "content": 5}], "[0].content"),
        ([{"role": "user", "content": [{"type": "text"}]}], "[0].content[0].text"),
        ([{"role": "assistant", "tool_calls": {"id": 1}}], "[0].tool_calls"),
        ([{"role": "assistant", "tool_calls": [{"id": "a", "function": {}}]}], "[0].tool_calls[0].function.name"),
        ({"messages": 5}, "messages"),
        ("text", ""),
    ],
)
def test_damage_is_named_by_its_path(damaged: object, path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        openai_messages.decode(damaged)
    assert caught.value.path == path
