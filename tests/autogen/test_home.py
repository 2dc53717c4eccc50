"""Law 1: what AutoGen wrote goes home equal in its own dump form."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, ClassVar

import pytest
from autogen_agentchat.base import Response, TaskResult
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    CodeExecutionEvent,
    MemoryQueryEvent,
    MultiModalMessage,
    StructuredMessage,
    TextMessage,
    ToolCallRequestEvent,
    UserInputRequestedEvent,
)
from autogen_core import FunctionCall, Image
from autogen_core.code_executor import CodeResult
from autogen_core.memory import MemoryContent
from autogen_core.models import RequestUsage, UserMessage
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pillow
from pydantic import BaseModel

import rath_autogen
import rath_bridge as rb
from rath_autogen.encode import agent_state
from rath_autogen.pieces import read, taken
from rath_bridge.errors import DecodeError, UnsupportedError
from rath_bridge.model.parts import BlobPart
from tests.autogen.scripted import dumped
from tests.autogen.strategies import contexts, messages


def fresh() -> rb.Session:
    return rb.open_store("memory:").create("s")


@given(st.lists(messages, max_size=6), st.none() | st.text(max_size=20))
def test_a_task_result_goes_home_with_every_type(said: list[Any], reason: str | None) -> None:
    result = TaskResult(messages=said, stop_reason=reason)
    session = fresh().append(*rb.decode(result))
    back, report = rath_autogen.encode(session)
    assert report.exact
    assert dumped(back.messages) == dumped(said)
    assert [type(m) for m in back.messages] == [type(m) for m in said]
    assert back.stop_reason == reason
    assert [row.position for row in report.manifest] == list(range(len(said)))


@given(st.lists(messages, min_size=1, max_size=4))
def test_the_json_of_a_result_is_read_like_the_result(said: list[Any]) -> None:
    data = {"messages": dumped(said), "stop_reason": "why"}
    session = fresh().append(*rb.decode(json.loads(json.dumps(data))))
    back, _ = rath_autogen.encode(session)
    assert dumped(back.messages) == dumped(said)
    with_objects = fresh().append(*rb.decode(TaskResult(messages=said, stop_reason="why")))
    assert [(m.role, m.name, m.parts) for m in session.messages()] == [(m.role, m.name, m.parts) for m in with_objects.messages()]


@given(contexts())
def test_a_model_context_goes_home(context: list[Any]) -> None:
    session = fresh().append(*rath_autogen.decode(context))
    back, report = rath_autogen.encode(session, "llm_messages")
    assert report.exact
    assert dumped(back) == dumped(context)


@given(contexts())
def test_an_agent_state_goes_home(context: list[Any]) -> None:
    state = agent_state(context)
    session = fresh().append(*rb.decode(json.loads(json.dumps(state))))
    assert rath_autogen.encode(session, "agent_state")[0] == state
    assert session[-1].kind == "checkpoint"


def test_images_stand_as_bytes_and_come_back_equal() -> None:
    picture = Pillow.effect_noise((20, 20), 40).convert("RGB")
    message = MultiModalMessage(content=["look", Image.from_pil(picture)], source="user")
    session = fresh().append(*rath_autogen.decode([message]))
    part = session.messages()[0].parts[1]
    assert isinstance(part, BlobPart)
    assert part.content.startswith(b"\x89PNG")
    back = rath_autogen.encode(session, "messages")[0][0]
    assert back.content[1].image.tobytes() == picture.tobytes()


def test_a_memory_of_bytes_which_autogen_cannot_dump_goes_home() -> None:
    event = MemoryQueryEvent(content=[MemoryContent(content=b"\xff\xfe", mime_type="application/octet-stream")], source="a")
    with pytest.raises(ValueError, match="utf-8"):
        event.dump()
    session = fresh().append(*rath_autogen.decode([event]))
    assert session[-1].values["items"][0]["content"] == b"\xff\xfe"
    back = rath_autogen.encode(session)[0].messages[0]
    assert back.content[0].content == b"\xff\xfe"
    assert back.created_at == event.created_at


class Remark(BaseChatMessage):
    """A message type of a user's own, without a ``type`` field."""

    remark: str

    def to_text(self) -> str:
        return self.remark

    def to_model_text(self) -> str:
        return self.remark

    def to_model_message(self) -> UserMessage:
        return UserMessage(content=self.remark, source=self.source)


class Tick(BaseAgentEvent):
    """An event type of a user's own."""

    kind: ClassVar[str] = "tick"
    count: int

    def to_text(self) -> str:
        return f"tick {self.count}"


def test_types_of_a_users_own_are_found_by_themselves() -> None:
    result = TaskResult(messages=[Remark(remark="by the way", source="a"), Tick(count=3, source="a")])
    session = fresh().append(*rb.decode(result))
    assert [m.text for m in session.messages()] == ["by the way"]
    back, report = rath_autogen.encode(session)
    assert report.exact
    assert back.messages == result.messages


def test_a_structured_type_of_a_function_is_found_among_its_namesakes() -> None:
    def define(field: str) -> type[BaseModel]:
        return type("Reply", (BaseModel,), {"__annotations__": {field: int}, "__module__": __name__})

    first, second = define("yes"), define("no")
    said = [
        StructuredMessage[first](content=first(yes=1), source="a"),
        StructuredMessage[second](content=second(no=2), source="a"),
    ]
    back, report = rath_autogen.encode(fresh().append(*rb.decode(TaskResult(messages=said))))
    assert report.exact
    assert [type(m.content) for m in back.messages] == [first, second]


def test_a_structured_type_that_is_nowhere_gets_a_stand_in_that_dumps_the_same() -> None:
    data = dumped([TextMessage(content="x", source="a")])[0] | {
        "type": "StructuredMessage[NobodyKnows]",
        "content": {"b": 1, "a": [2**70, None]},
        "format_string": None,
    }
    session = fresh().append(*rb.decode({"messages": [data], "stop_reason": None}))
    back, report = rath_autogen.encode(session)
    assert dumped(back.messages) == [data]
    assert "NobodyKnows" in report.losses[0].what
    assert isinstance(back.messages[0], StructuredMessage)
    assert session.messages()[0].text == '{"b":1,"a":[1180591620717411303424,null]}'


def test_a_response_becomes_a_run_with_its_inner_messages() -> None:
    call = ToolCallRequestEvent(content=[FunctionCall(id="1", name="f", arguments="{}")], source="a")
    answer = TextMessage(content="done", source="a", metadata={"k": "v"}, models_usage=RequestUsage(3, 4))
    session = fresh().append(*rb.decode(Response(chat_message=answer, inner_messages=[call])))
    assert [chunk.kind for chunk in session] == ["session", "run", "message", "inference", "message", "run"]
    assert session.messages()[1].body.attributes["metadata"] == {"k": "v"}
    assert session.messages()[1].chunk.at == int(answer.created_at.timestamp()) * 1_000_000 + answer.created_at.microsecond


def test_usage_is_counted_once_where_asked_for_and_not_at_all_where_another_has_it() -> None:
    said = [
        TextMessage(content="one", source="a", models_usage=RequestUsage(10, 5)),
        TextMessage(content="two", source="a", models_usage=RequestUsage(20, 7)),
    ]
    session = fresh().append(*rath_autogen.decode(said))
    assert (session.usage().input_tokens, session.usage().output_tokens) == (30, 12)
    assert [c.values["observer"] for c in session if c.kind == "inference"] == ["message", "message"]
    assert fresh().append(*rath_autogen.decode(said, usage=False)).usage().total_tokens == 0


def test_who_was_asked_for_input_is_a_user() -> None:
    said = [UserInputRequestedEvent(request_id="r", source="bob"), TextMessage(content="yes", source="bob")]
    (message,) = fresh().append(*rath_autogen.decode(said)).messages()
    assert (message.role, message.name) == ("user", "bob")


TEAM_STATE: dict[str, Any] = {
    "type": "TeamState",
    "version": "1.0.0",
    "agent_states": {
        "a": {
            "type": "ChatAgentContainerState",
            "version": "1.0.0",
            "agent_state": {
                "type": "AssistantAgentState",
                "version": "1.0.0",
                "llm_context": {
                    "messages": [
                        {"content": "count", "source": "user", "type": "UserMessage"},
                        {"content": "one", "thought": None, "source": "a", "type": "AssistantMessage"},
                    ]
                },
            },
            "message_buffer": [],
        },
        "RoundRobinGroupChatManager": {
            "type": "RoundRobinManagerState",
            "version": "1.0.0",
            "message_thread": dumped([TextMessage(content="count", source="user"), TextMessage(content="one", source="a")]),
            "current_turn": 0,
            "next_speaker_index": 1,
        },
    },
}


def test_a_team_state_goes_home_and_its_thread_is_the_transcript(store: rb.Store) -> None:
    session = store.create("team").append(*rb.decode(TEAM_STATE))
    assert [(m.role, m.text) for m in session.messages()] == [("user", "count"), ("assistant", "one")]
    state, report = rath_autogen.encode(session, "team_state")
    assert state == TEAM_STATE
    assert report.exact
    later = session.append(rb.message("user", "more"))
    with pytest.raises(UnsupportedError, match="something was said since"):
        rath_autogen.encode(later, "team_state")


BAD: list[tuple[Any, str]] = [
    ({"messages": [{"type": "TextMessage", "source": "a"}], "stop_reason": None}, r"messages\[0\]"),
    ({"messages": [{"type": "ToolCallRequestEvent", "source": "a", "content": "no"}], "stop_reason": None}, r"messages\[0\]"),
    ({"messages": [{"type": "TextMessage", "content": "ok", "source": "a"}, 3], "stop_reason": None}, r"messages\[1\]"),
    ({"type": "AssistantAgentState", "version": "1.0.0", "llm_context": {}}, "llm_context.messages"),
    ({"type": "TeamState", "version": "9", "agent_states": {"m": {"message_thread": "no"}}}, "agent_states.m.message_thread"),
    ({"type": "TeamState", "version": "9", "agent_states": [1]}, "agent_states"),
]


@pytest.mark.parametrize(("data", "path"), BAD)
def test_bad_input_is_named(data: Any, path: str) -> None:
    with pytest.raises(DecodeError, match=path):
        rath_autogen.decode(data)


@pytest.mark.parametrize(
    "obj", ["text", 3, None, [], {}, {"messages": []}, {"messages": ["x"]}, [{"role": "user"}], object(), {"type": 3}]
)
def test_other_things_are_not_recognised(obj: Any) -> None:
    assert not rath_autogen.recognises(obj)


def test_an_unknown_form_lists_the_known_ones() -> None:
    with pytest.raises(UnsupportedError, match="task_result, llm_messages, messages, agent_state, team_state"):
        rath_autogen.encode(fresh(), "items")


def test_the_json_is_read_without_autogen() -> None:
    code = (
        "import json, sys, rath_autogen, rath_bridge as rb\n"
        "s = rb.open_store('memory:').create('s').append(*rath_autogen.decode(json.loads(sys.argv[1])))\n"
        "print(len(s.messages()), sorted(m for m in sys.modules if m.startswith('autogen')))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, json.dumps(TEAM_STATE)],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert ran.stdout.strip() == "2 []"


@pytest.mark.parametrize("number", [2**53 + 1, 2**64, 10**30, -(2**70), 7])
def test_numbers_of_any_size_are_read_exactly_while_a_run_is_recorded(number: int) -> None:
    event = CodeExecutionEvent(source="a", retry_attempt=number, result=CodeResult(exit_code=number, output="x"))
    text = TextMessage(source="a", content="x", models_usage=RequestUsage(prompt_tokens=number, completion_tokens=1))
    for message in (event, text):
        assert read(taken(message)).data == message.dump()
