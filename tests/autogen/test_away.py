"""Laws 2, 8 and 12: what other frameworks left reaches AutoGen whole, or is named."""

from __future__ import annotations

from collections import Counter
from io import BytesIO
from typing import Any

import pytest
from autogen_agentchat.messages import ToolCallExecutionEvent, ToolCallRequestEvent
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import AssistantMessage, FunctionExecutionResultMessage, SystemMessage, UserMessage
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pillow

import rath_autogen
import rath_bridge as rb
from rath_bridge.model.kinds import Message, ToolResult
from rath_bridge.model.parts import (
    BlobPart,
    FilePart,
    GenericPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolCallResponsePart,
    UriPart,
)
from tests.autogen.scripted import dumped


def session(*said: Message) -> rb.Session:
    return rb.open_store("memory:").create("s").append(*(rb.draft(message) for message in said))


def png(mode: str = "RGB", form: str = "PNG") -> bytes:
    out = BytesIO()
    Pillow.new(mode, (3, 2)).save(out, form)
    return out.getvalue()


def user(*parts: Part | str) -> Message:
    return Message(role="user", parts=tuple(TextPart(p) if isinstance(p, str) else p for p in parts))


def assistant(*parts: Part | str, name: str | None = None) -> Message:
    return Message(role="assistant", name=name, parts=tuple(TextPart(p) if isinstance(p, str) else p for p in parts))


def tool(*responses: tuple[str, Any]) -> Message:
    return Message(role="tool", parts=tuple(ToolCallResponsePart(name, answer) for name, answer in responses))


PAY = ToolCallPart("c1", "pay", {"n": 3})


async def test_foreign_history_is_a_model_context() -> None:
    s = session(
        Message(role="system", parts=(TextPart("be brief"),)),
        user("pay 3"),
        assistant(ReasoningPart("hm"), "paying", PAY, ToolCallPart("c2", "look", None), name="agent"),
        tool(("c1", "paid")),
        tool(("c2", {"at": 1})),
        assistant("done", name="agent"),
    )
    found, report = rath_autogen.encode(s, "llm_messages")
    assert [m.type for m in found] == [
        "UserMessage", "AssistantMessage", "FunctionExecutionResultMessage", "FunctionExecutionResultMessage", "AssistantMessage",
    ]  # fmt: skip
    assert found[1].thought == "hm\npaying"
    assert [(c.name, c.arguments) for c in found[1].content] == [("pay", '{"n": 3}'), ("look", "{}")]
    assert [(r.name, r.content) for m in found[2:4] for r in m.content] == [("pay", "paid"), ("look", '{"at": 1}')]
    assert [loss.path for loss in report.losses] == ["role", "parts[1]", "parts[0].response"]
    assert [row.chunk for row in report.manifest] == [m.id for m in s.messages()[1:]]
    context = UnboundedChatCompletionContext(initial_messages=found)
    assert await context.get_messages() == found


def test_a_pending_call_is_closed_and_named() -> None:
    s = session(user("go"), assistant(PAY), user("well?"))
    assert [call.call_id for call in s.pending()] == ["c1"]
    found, report = rath_autogen.encode(s, "llm_messages")
    assert isinstance(found[2], FunctionExecutionResultMessage)
    assert found[2].content[0].model_dump() == {"content": "[no response]", "name": "pay", "call_id": "c1", "is_error": True}
    assert "never answered" in report.losses[0].what
    events = rath_autogen.encode(s)[0].messages
    assert [m.type for m in events] == ["TextMessage", "ToolCallRequestEvent", "ToolCallExecutionEvent", "TextMessage"]


def test_an_answer_that_only_a_tool_result_tells_of_is_used() -> None:
    s = session(user("go"), assistant(PAY)).append(rb.draft(ToolResult(call_id="c1", name="pay", result="paid")))
    found, report = rath_autogen.encode(s, "llm_messages")
    assert (found[2].content[0].content, found[2].content[0].is_error) == ("paid", False)
    assert report.exact


def test_answers_stand_behind_their_calls_and_answers_without_one_are_left_out() -> None:
    s = session(
        tool(("c0", "lost")), assistant(PAY), user("meanwhile"), tool(("c1", "late")), assistant(PAY), tool(("c1", "again"))
    )
    found, report = rath_autogen.encode(s, "llm_messages")
    assert [m.type for m in found] == [
        "AssistantMessage", "FunctionExecutionResultMessage", "UserMessage", "AssistantMessage", "FunctionExecutionResultMessage",
    ]  # fmt: skip
    assert [m.content[0].content for m in (found[1], found[4])] == ["late", "again"]
    assert [loss.what.split(":")[0] for loss in report.losses] == [
        "a result without its call",
        "results follow their call in AutoGen",
    ]


def test_images_are_kept_and_what_is_no_image_is_named() -> None:
    s = session(
        user("look", BlobPart("image", png(), "image/png")),
        user(BlobPart("image", png(form="GIF"), "image/gif")),
        user("broken", BlobPart("image", b"no image", "image/png")),
        user(BlobPart("audio", b"..", "audio/wav"), UriPart("image", "https://example.com/x.png"), FilePart("image", "f1")),
    )
    found, report = rath_autogen.encode(s, "llm_messages")
    assert found[0].content[1].image.size == (3, 2)
    assert found[1].content[0].image.size == (3, 2)
    assert found[2].content == "broken"
    assert found[3].content == "https://example.com/x.png"
    assert [(loss.chunk, loss.path) for loss in report.losses] == [
        (s[2].id, "parts[0]"), (s[3].id, "parts[1]"), (s[4].id, "parts[0]"), (s[4].id, "parts[1]"), (s[4].id, "parts[2]"),
    ]  # fmt: skip


def test_a_task_names_every_role_and_call_that_it_loses() -> None:
    s = session(user("pay"), assistant(PAY), tool(("c1", "paid")), assistant("done", name="agent"))
    task, report = rath_autogen.encode(s, "messages")
    assert [(m.source, m.content) for m in task] == [("user", "pay"), ("agent", "done")]
    assert [loss.chunk for loss in report.losses] == [s[2].id, s[3].id, s[4].id]


def test_foreign_messages_become_what_an_agent_would_have_shown() -> None:
    s = session(user("pay"), assistant("so", PAY), tool(("c1", "paid")), assistant(ReasoningPart("hm"), "done"))
    result, report = rath_autogen.encode(s)
    assert [m.type for m in result.messages] == [
        "TextMessage", "ThoughtEvent", "ToolCallRequestEvent", "ToolCallExecutionEvent", "ThoughtEvent", "TextMessage",
    ]  # fmt: skip
    assert dumped(rath_autogen.encode(s)[0].messages) == dumped(result.messages)  # pure: ids and times too
    assert report.exact


parts = st.one_of(
    st.builds(TextPart, st.text(max_size=5)),
    st.builds(ReasoningPart, st.text(max_size=5)),
    st.builds(ToolCallPart, st.sampled_from(["1", "2"]), st.just("f"), st.none() | st.just({"a": b"raw"}) | st.just("text")),
    st.builds(ToolCallResponsePart, st.sampled_from(["1", "2", "3"]), st.text(max_size=3) | st.just([1])),
    st.just(BlobPart("image", png(), "image/png")),
    st.just(UriPart("image", "data:image/png;base64,!!")),
    st.just(GenericPart("server_tool_call", {"name": "search"})),
)
foreign = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant", "tool", "system", "critic"]),
    name=st.none() | st.just("a"),
    parts=st.lists(parts, max_size=4).map(tuple),
)


@given(st.lists(foreign, max_size=6))
def test_no_export_holds_an_orphan_and_nothing_vanishes_unnamed(said: list[Message]) -> None:
    s = session(*said)
    context, report = rath_autogen.encode(s, "llm_messages")
    open_calls: list[str] = []
    for message in context:
        if isinstance(message, FunctionExecutionResultMessage):
            for result in message.content:
                open_calls.remove(result.call_id)
        else:
            assert not open_calls
            if isinstance(message, AssistantMessage) and not isinstance(message.content, str):
                open_calls += [call.id for call in message.content]
    assert not open_calls
    told = {row.chunk for row in report.manifest} | {loss.chunk for loss in report.losses}
    assert {m.id for m in s.messages()} <= told
    _task, report = rath_autogen.encode(s, "messages")
    assert {m.id for m in s.messages()} <= {r.chunk for r in report.manifest} | {x.chunk for x in report.losses}
    result, report = rath_autogen.encode(s)
    told = {row.chunk for row in report.manifest} | {loss.chunk for loss in report.losses}
    assert {m.id for m in s.messages()} <= told
    asked: Counter[str] = Counter()
    for event in result.messages:
        if isinstance(event, ToolCallRequestEvent):
            asked.update(call.id for call in event.content)
        elif isinstance(event, ToolCallExecutionEvent):
            asked.subtract(answer.call_id for answer in event.content)
            assert not any(count < 0 for count in asked.values())
    assert not any(asked.values())
    assert dumped(rath_autogen.encode(s)[0].messages) == dumped(result.messages)


async def test_no_system_prompt_stands_in_a_context_unless_autogen_put_it_there() -> None:
    memory = SystemMessage(content="Relevant memory content: 1. blue")
    s = session(Message(role="system", parts=(TextPart("foreign"),))).append(*rath_autogen.decode([memory]))
    assert rath_autogen.encode(s, "llm_messages")[0] == [memory]


def test_an_edited_message_is_encoded_as_it_reads_now() -> None:
    s = session().append(*rath_autogen.decode([UserMessage(content="wrong", source="user")]))
    s = s.append(rb.draft(Message(role="user", name="user", parts=(TextPart("right"),), replaces=s[-1].id)))
    assert [m.content for m in rath_autogen.encode(s, "llm_messages")[0]] == ["right"]


@pytest.mark.parametrize("form", ["task_result", "llm_messages", "messages", "agent_state"])
def test_an_empty_session_is_encoded(form: str) -> None:
    _, report = rath_autogen.encode(session(), form)
    assert report.exact
