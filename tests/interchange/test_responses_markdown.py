"""OpenAI Responses items in and out, Markdown out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import rath_bridge as rb
from rath_bridge.errors import DecodeError, UnsupportedError
from rath_bridge.interchange import decode, encode, format_of, markdown, openai_messages
from rath_bridge.interchange import openai_responses as responses
from rath_bridge.model.kinds import Body, Message, Usage
from rath_bridge.model.parts import BlobPart, GenericPart, ReasoningPart, TextPart, ToolCallPart, ToolCallResponsePart
from rath_bridge.plugins import Adapter
from rath_bridge.testing import AdapterContract, Sample, strategies
from rath_bridge.testing.strategies import session_of
from tests.interchange.contract import AsAdapter

ITEMS: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be brief."},
    {"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "Weather? \u2028" + "long " * 300},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"},
        {"type": "input_image", "file_id": "file-1"},
        {"type": "input_file", "file_url": "https://example.org/a.pdf"},
        {"type": "later", "x": None}]},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "xx"},
    {"type": "reasoning", "id": "rs_2", "summary": []},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather", "arguments": '{"city": "Paris", "n": 1.0}',
     "status": "completed"},
    {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "*** Begin"},
    {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "rainy"}]},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": "Done"},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}},
    {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [
        {"type": "output_text", "text": "Rain.", "annotations": []}, {"type": "refusal", "refusal": "no"}]},
    {"type": "item_reference", "id": "msg_0"},
]  # fmt: skip
RESPONSE = {
    "id": "resp_1", "object": "response", "model": "gpt-x", "output": ITEMS[2:], "error": None,
    "usage": {"input_tokens": 97, "output_tokens": 52, "output_tokens_details": {"reasoning_tokens": 7}},
}  # fmt: skip
REQUEST = {"model": "gpt-x", "input": ITEMS, "tools": [{"type": "function", "name": "weather"}]}


class TestResponses(AdapterContract):
    @pytest.fixture
    def adapter(self) -> Adapter:
        return AsAdapter("openai_responses")

    @pytest.fixture
    def samples(self) -> list[Sample]:
        return [Sample(ITEMS), Sample(RESPONSE), Sample(REQUEST)]


def imported(document: Any) -> rb.Session:
    return rb.open_store("memory:").create("s").append(*decode(document))


def test_the_neutral_form_is_read() -> None:
    session = imported(RESPONSE)
    assert session.usage() == Usage(input_tokens=97, output_tokens=52, reasoning_output_tokens=7)
    assert [(call.call_id, call.status) for call in session.calls()] == [("c1", "ok"), ("c2", "ok")]
    assert session.messages()[0].parts == (ReasoningPart("hm"),)
    assert imported(ITEMS).messages()[1].parts[1] == BlobPart("image", b"\0\0\0", "image/png", {"detail": "low"})
    assert isinstance(imported(ITEMS).messages()[8].parts[0], GenericPart)


def test_chat_messages_and_items_are_told_apart() -> None:
    chat = [{"role": "user", "content": "hi"}]
    assert format_of(chat) is openai_messages
    assert format_of([{**chat[0], "type": "message"}]) is responses
    assert format_of([{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]) is responses
    assert format_of(REQUEST) is responses


def test_a_chat_goes_over_to_responses() -> None:
    session = session_of([
        Message(role="assistant", parts=(TextPart("a"), ToolCallPart("c", "look", {"n": 1}))),
        Message(role="tool", name="look", parts=(ToolCallResponsePart("c", {"x": 1}),)),
    ])  # fmt: skip
    items, report = encode(session, "openai_responses")
    assert items == [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"n":1}'},
        {"type": "function_call_output", "call_id": "c", "output": '{"x":1}'},
    ]
    assert [loss.path for loss in report.losses] == ["name"]


@pytest.mark.parametrize(
    ("damaged", "path"),
    [
        ([{"type": "function_call", "name": 5}], "[0].name"),
        ([{"type": 5}], "[0].type"),
        ([{"type": "message", "role": "user", "content": [{"type": "input_text"}]}], "[0].content[0].text"),
        ({"object": "response", "output": [5]}, "output[0]"),
        ([{"type": "reasoning", "summary": [5]}], "[0].summary[0]"),
    ],
)
def test_damage_is_named_by_its_path(damaged: Any, path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        responses.decode(damaged)
    assert caught.value.path == path


# ------------------------------------------------------------------ Markdown


def test_markdown_is_for_people() -> None:
    session = session_of([
        Message(role="user", name="ann\nb", parts=(TextPart("# hi"), BlobPart("image", b"x" * 9, "image/png"))),
        Message(role="assistant", parts=(ReasoningPart("hm\nhm"), ToolCallPart("c", "look", "```\nx\n````"))),
    ])  # fmt: skip
    text, report = encode(session, "markdown")
    assert "## user (ann b)" in text
    assert "*(image, 9 bytes, image/png)*" in text
    assert "`````\n```\nx\n````\n`````" in text
    assert "> hm\n> hm" in text
    assert "*(no response)*" in text
    assert len(report.losses) == 2
    assert len(report.manifest) == 2


@settings(deadline=None, max_examples=40, suppress_health_check=(HealthCheck.too_slow,))
@given(strategies.transcripts())
def test_anything_can_be_written_as_markdown(bodies: tuple[Body, ...]) -> None:
    session = session_of(bodies)
    text, report = encode(session, "markdown")
    assert markdown.dumps(text).decode()
    assert {entry.chunk for entry in report.manifest} == {one.id for one in session.messages()}


def test_markdown_is_not_read() -> None:
    with pytest.raises(UnsupportedError, match="written and not read"):
        decode("# x", "markdown")
