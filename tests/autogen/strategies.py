"""Every message and event of AutoGen, and whole model contexts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from autogen_agentchat.messages import (
    CodeExecutionEvent,
    CodeGenerationEvent,
    HandoffMessage,
    MemoryQueryEvent,
    ModelClientStreamingChunkEvent,
    MultiModalMessage,
    SelectorEvent,
    SelectSpeakerEvent,
    StopMessage,
    StructuredMessage,
    TextMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    ToolCallSummaryMessage,
    UserInputRequestedEvent,
)
from autogen_core import FunctionCall, Image
from autogen_core.code_executor import CodeBlock, CodeResult
from autogen_core.memory import MemoryContent
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from hypothesis import strategies as st
from PIL import Image as Pillow
from pydantic import BaseModel


class Order(BaseModel):
    """Structured content."""

    item: str
    count: int
    price: float | None = None


surrogates = st.characters(codec=None)
texts = st.text(surrogates, max_size=30) | st.sampled_from(["", "\0", "\u2028", "\ud800", "x" * 600, "é" * 600])
names = st.sampled_from(["user", "a", "b", "planner", "Ärger"])
ids = st.sampled_from(["c1", "c2", "call_3"])
colours = st.tuples(*[st.integers(0, 255)] * 3)


@st.composite
def images(draw: st.DrawFn) -> Image:
    size = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    return Image.from_pil(Pillow.new("RGB", size, draw(colours)))


usages = st.builds(RequestUsage, prompt_tokens=st.integers(0, 10**6), completion_tokens=st.integers(0, 10**6))
common: dict[str, Any] = {
    "source": names,
    "models_usage": st.none() | usages,
    "metadata": st.dictionaries(st.text(max_size=5), texts, max_size=2),
    "created_at": st.integers(0, 2**53).map(lambda at: datetime.fromtimestamp(at // 10**6, UTC).replace(microsecond=at % 10**6)),
}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
arguments = st.sampled_from(["{}", '{"n": 3}', '{ "n" : 1e400, "deep": [1, {"$rath": 2}]}', "not json", ""])
calls = st.builds(FunctionCall, id=ids, name=st.sampled_from(["pay", "look"]), arguments=arguments)
results = st.builds(FunctionExecutionResult, content=texts, name=st.just("pay"), call_id=ids, is_error=st.none() | st.booleans())
users = st.builds(UserMessage, content=texts | st.lists(texts | images(), max_size=3), source=names)
memories = st.builds(
    MemoryContent,
    content=texts | st.binary(max_size=8) | st.dictionaries(st.text(max_size=3), json_values, max_size=2) | images(),
    mime_type=st.sampled_from(["text/plain", "image/png", "application/octet-stream"]),
    metadata=st.none() | st.dictionaries(st.text(max_size=3), json_values, max_size=2),
)
orders = st.builds(Order, item=texts, count=st.integers(), price=st.none() | st.floats(allow_nan=False))

messages = st.one_of(
    st.builds(TextMessage, content=texts, **common),
    st.builds(StopMessage, content=texts, **common),
    st.builds(MultiModalMessage, content=st.lists(texts | images(), max_size=3), **common),
    st.builds(StructuredMessage[Order], content=orders, format_string=st.none() | st.just("{item}"), **common),
    st.builds(HandoffMessage, content=texts, target=names, context=st.lists(users, max_size=2), **common),
    st.builds(
        ToolCallSummaryMessage,
        content=texts,
        tool_calls=st.lists(calls, max_size=2),
        results=st.lists(results, max_size=2),
        **common,
    ),
    st.builds(ToolCallRequestEvent, content=st.lists(calls, max_size=3), **common),
    st.builds(ToolCallExecutionEvent, content=st.lists(results, max_size=3), **common),
    st.builds(ThoughtEvent, content=texts, **common),
    st.builds(SelectorEvent, content=texts, **common),
    st.builds(SelectSpeakerEvent, content=st.lists(names, max_size=2), **common),
    st.builds(MemoryQueryEvent, content=st.lists(memories, max_size=2), **common),
    st.builds(UserInputRequestedEvent, request_id=st.text(max_size=5), **common),
    st.builds(ModelClientStreamingChunkEvent, content=texts, full_message_id=st.none() | st.just("m"), **common),
    st.builds(
        CodeGenerationEvent,
        retry_attempt=st.integers(0, 3),
        content=texts,
        code_blocks=st.lists(st.builds(CodeBlock, code=texts, language=st.just("python")), max_size=2),
        **common,
    ),
    st.builds(
        CodeExecutionEvent,
        retry_attempt=st.integers(0, 3),
        result=st.builds(CodeResult, exit_code=st.integers(0, 2), output=texts),
        **common,
    ),
)


@st.composite
def contexts(draw: st.DrawFn) -> list[Any]:
    """A model context in which every call is followed by its results."""
    found: list[Any] = []
    turns = draw(st.lists(st.sampled_from(["system", "user", "assistant", "calls"]), max_size=6))
    for number, turn in enumerate(turns):
        thought = draw(st.none() | texts.filter(bool))
        if turn == "system":
            found.append(SystemMessage(content=draw(texts)))
        elif turn == "user":
            found.append(draw(users))
        elif turn == "assistant":
            found.append(AssistantMessage(content=draw(texts), thought=thought, source=draw(names)))
        else:
            asked = [
                call.__class__(id=f"c{number}.{i}", name=call.name, arguments=call.arguments)
                for i, call in enumerate(draw(st.lists(calls, min_size=1, max_size=3)))
            ]
            answers = [
                FunctionExecutionResult(content=draw(texts), name=call.name, call_id=call.id, is_error=False) for call in asked
            ]
            found.append(AssistantMessage(content=asked, thought=thought, source=draw(names)))
            found.append(FunctionExecutionResultMessage(content=draw(st.permutations(answers))))
    return found
