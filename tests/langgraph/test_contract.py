"""The adapter contract (laws 1, 2, 8, 12), on messages and states that real graphs have left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, FunctionMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command

import rath_bridge as rb
import rath_langgraph
from rath_bridge.errors import DecodeError, UnsupportedError
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
from rath_bridge.session import Session
from rath_bridge.testing import AdapterContract, Sample
from rath_langgraph import RathSaver, wrap
from tests.langgraph.graphs import add, asking, asks, chat, echo, react, scripted, thread

PIXEL = "iVBORw0KGgo="


def every_kind() -> list[BaseMessage]:
    call = {"name": "add", "args": {"a": 1}, "id": "c1", "type": "tool_call"}
    return [
        SystemMessage("be brief", id="s"),
        SystemMessage("developer's", additional_kwargs={"__openai_role__": "developer"}),
        HumanMessage(
            [
                {"type": "text", "text": "look", "cache_control": {"type": "ephemeral"}},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
                {"type": "image", "url": "https://example.invalid/x.png", "mime_type": "image/png"},
                {"type": "audio", "base64": PIXEL, "mime_type": "audio/wav"},
                {"type": "file", "file_id": "f-1"},
                {"type": "image", "source_type": "base64", "data": PIXEL, "mime_type": "image/png"},
                {"type": "exotic", "x": [1, {"y": None}]},
                "plain",
            ],
            name="ann",
        ),
        AIMessage(
            [
                {"type": "reasoning", "reasoning": "hm", "signature": "sig"},
                {"type": "thinking", "thinking": "hm hm", "signature": "s"},
                {"type": "text", "text": "so"},
                {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
            ],
            tool_calls=[call],  # type: ignore[list-item]
            invalid_tool_calls=[{"name": "bad", "args": "{not json", "id": "c2", "error": "no", "type": "invalid_tool_call"}],
            usage_metadata={"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
            response_metadata={"finish_reason": "tool_calls", "model_name": "m"},
            additional_kwargs={"reasoning_content": "deep"},
        ),
        ToolMessage("1", tool_call_id="c1", name="add", artifact={"raw": 1}, id="t1"),
        ToolMessage([{"type": "text", "text": "no"}], tool_call_id="c2", status="error"),
        FunctionMessage(content="old", name="fn"),
        ChatMessage(content="as it were", role="critic"),
        AIMessage("end " + "x" * 2000),
    ]


class TestContract(AdapterContract):
    forms = ("messages", "state")

    def serialised(self, native: Any) -> Any:
        if isinstance(native, dict):  # maps have no order
            return {key: self.serialised(value) for key, value in native.items()}
        if hasattr(native, "_asdict"):
            return type(native).__name__, self.serialised(native._asdict())
        return JsonPlusSerializer().dumps_typed(native)

    @pytest.fixture
    def adapter(self) -> Any:
        return rath_langgraph

    @pytest.fixture
    def samples(self) -> Sequence[Sample]:
        saver = InMemorySaver()
        app = react(scripted(asks("add", "c1", a=1, b=2), "three"), [add], checkpointer=saver)
        app.invoke({"messages": [HumanMessage("1 + 2?")]}, thread())
        waits = asking(checkpointer=saver)
        waits.invoke({"messages": [HumanMessage("w")], "note": ""}, thread("2"))
        interrupted = saver.get_tuple(thread("2"))
        waits.invoke(Command(resume="ok"), thread("2"))
        done = saver.get_tuple(thread())
        assert interrupted is not None
        assert interrupted.pending_writes
        assert done is not None
        return [
            Sample(every_kind()),
            Sample(app.get_state(thread()).values["messages"]),
            Sample({"messages": every_kind()}, "state"),
            Sample({"note": "x", "count": 3, "none": None, "many": ["y" * 100] * 3, "messages": every_kind()[:2]}, "state"),
            Sample(done, "checkpoint"),
            Sample(interrupted, "checkpoint"),
        ]

    @pytest.fixture
    def continued(self) -> Callable[[Session], Session]:
        app: Any = None

        def go_on(session: Session) -> Session:
            nonlocal app
            app = app or wrap(chat(echo), session.store, checkpointer="rath")
            return app(session)

        return go_on


def test_a_snapshot_is_read_as_its_state() -> None:
    app = asking(checkpointer=InMemorySaver())
    app.invoke({"messages": [HumanMessage("w", id="1")], "note": ""}, thread())
    snapshot = app.get_state(thread())
    assert rath_langgraph.recognises(snapshot)
    session = rb.open_store("memory:").create("s").append(*rath_langgraph.decode(snapshot))
    state, report = rath_langgraph.encode(session, as_="state")
    assert state == snapshot.values
    assert report.exact


def test_the_neutral_parts_say_what_the_message_says() -> None:
    session = rb.open_store("memory:").create("s").append(*rb.decode(every_kind()))
    said = session.messages()
    assert [m.role for m in said] == [
        "system",
        "developer",
        "user",
        "assistant",
        "tool",
        "tool",
        "function",
        "critic",
        "assistant",
    ]
    assert [type(part) for part in said[2].parts] == [
        TextPart, BlobPart, UriPart, BlobPart, FilePart, BlobPart, GenericPart, TextPart,
    ]  # fmt: skip
    assert said[2].parts[0].extra == {"cache_control": {"type": "ephemeral"}}
    assert [type(part) for part in said[3].parts] == [
        ReasoningPart,
        ReasoningPart,
        ReasoningPart,
        TextPart,
        ToolCallPart,
        ToolCallPart,
    ]
    assert said[3].body.finish_reason == "tool_calls"
    answer = said[4].parts[0]
    assert isinstance(answer, ToolCallResponsePart)
    assert (answer.id, answer.response, answer.extra) == ("c1", "1", {"artifact": {"raw": 1}, "name": "add"})
    assert said[5].parts[0].extra["status"] == "error"
    assert [(c.call_id, c.status) for c in session.calls()] == [("c1", "ok"), ("c2", "error")]


def test_foreign_parts_arrive_as_standard_blocks() -> None:
    session = rb.open_store("memory:").create("s")
    session = session.append(
        rb.message("user", [TextPart("see"), BlobPart("image", b"png", "image/png"), UriPart("audio", "https://e.invalid/a")]),
        rb.message(
            "assistant", [ReasoningPart("hm", {"signature": "s"}), ToolCallPart("c1", "look", {"x": 1}), GenericPart("odd", {})]
        ),
        rb.message("tool", [ToolCallResponsePart("c1", {"seen": True})]),
        rb.message("assistant", [ToolCallPart("c2", "look", {"x": 2})]),
        rb.message("user", "never mind"),
    )
    messages, report = rath_langgraph.encode(session)
    assert [type(m).__name__ for m in messages] == [
        "HumanMessage", "AIMessage", "ToolMessage", "AIMessage", "ToolMessage", "HumanMessage",
    ]  # fmt: skip
    assert [block["type"] for block in messages[0].content] == ["text", "image", "audio"]
    assert messages[1].tool_calls[0]["args"] == {"x": 1}
    assert messages[2].content == '{"seen":true}'
    assert (messages[4].tool_call_id, messages[4].status) == ("c2", "error")
    assert sorted(loss.path for loss in report.losses) == ["parts", "parts[0]", "parts[0].response", "parts[2]"]
    assert len({m.id for m in messages}) == len(messages)


def test_a_list_that_holds_no_messages_is_refused_by_place() -> None:
    with pytest.raises(DecodeError, match=r"messages\[1\]"):
        rath_langgraph.decode([HumanMessage("a"), 5])
    with pytest.raises(DecodeError, match="a int"):
        rath_langgraph.decode(5)
    with pytest.raises(UnsupportedError, match="no LangGraph checkpoint"):
        rath_langgraph.encode(rb.open_store("memory:").create("s"), as_="checkpoint")


def test_a_recorded_session_goes_home_as_its_newest_checkpoint() -> None:
    with rb.open_store("memory:") as store:
        saver = RathSaver(store)
        app = react(scripted(asks("add", "c1", a=1, b=2), "three"), [add], checkpointer=saver)
        app.invoke({"messages": [("user", "go")]}, thread())
        found, _ = rath_langgraph.encode(store.session("langgraph/1"), as_="checkpoint")
        assert found == saver.get_tuple(thread())
        assert rath_langgraph.encode(store.session("langgraph/1"), as_="state")[0].keys() == {"messages"}
