"""What callbacks tell of model and tool calls -> ``inference``, ``tool_call`` and ``tool_result`` bodies. Pure.

Sources: ``langchain_core.callbacks.BaseCallbackHandler``, ``langchain_core.outputs.LLMResult``,
``langchain_core.messages.ai.UsageMetadata``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Final, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langgraph.errors import GraphBubbleUp, GraphInterrupt
from langgraph.types import Command

from rath_bridge.errors import EncodeError
from rath_bridge.model.chunk import Native
from rath_bridge.model.kinds import ToolResult, Usage
from rath_bridge.model.parts import TextPart, part_to_json
from rath_bridge.recorder import Recorder
from rath_bridge.redaction import Redactor
from rath_bridge.verbs.raised import described
from rath_langgraph.begun import Prompts
from rath_langgraph.items import Encoder
from rath_langgraph.neutral import message_body, plain, version
from rath_langgraph.serde import RathSerializer
from rath_langgraph.threads import FRAMEWORK

_SERDE: Final = RathSerializer()
_NOT_PARAMS: Final = frozenset({"_type", "tools", "functions", "messages", "model", "model_name", "api_key"})


def request_of(params: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters and tools of a model call, absent ones left out."""
    kept = {key: plain(value) for key, value in {**params, **options}.items() if key not in _NOT_PARAMS and value is not None}
    tools = params.get("tools") or options.get("tools") or params.get("functions")
    return {**({"params": kept} if kept else {}), **({"tools": plain(tools)} if tools else {})}


def model_of(params: Mapping[str, Any], metadata: Mapping[str, Any]) -> str | None:
    """The requested model's name."""
    found = metadata.get("ls_model_name") or params.get("model") or params.get("model_name")
    return found if isinstance(found, str) else None


def answer_of(response: LLMResult) -> BaseMessage | None:
    """The message that a chat model gave; None for a text model."""
    for row in response.generations:
        for generation in row:
            if isinstance(generation, ChatGeneration):
                return generation.message
    return None


def output_of(response: LLMResult) -> tuple[dict[str, Any], ...]:
    """Parts of what a model gave."""
    found: list[dict[str, Any]] = []
    for row in response.generations:
        for generation in row:
            if isinstance(generation, ChatGeneration):
                found += [part_to_json(part) for part in message_body(generation.message).parts]
            else:
                found.append(part_to_json(TextPart(generation.text)))
    return tuple(found)


def finish_of(response: LLMResult) -> tuple[str, ...]:
    """Why the model stopped."""
    found: list[str] = []
    for row in response.generations:
        for generation in row:
            message = generation.message if isinstance(generation, ChatGeneration) else None
            info = {**(generation.generation_info or {}), **(message.response_metadata if message else {})}
            reason = info.get("finish_reason") or info.get("stop_reason")
            if isinstance(reason, str):
                found.append(reason)
    return tuple(found)


def usage_of(response: LLMResult) -> Usage | None:
    """Tokens, as the message says them, else as the provider's output does."""
    message = answer_of(response)
    told = message.usage_metadata if isinstance(message, AIMessage) else None
    if told:
        into: Mapping[str, Any] = told.get("input_token_details") or {}
        out: Mapping[str, Any] = told.get("output_token_details") or {}
        return Usage(
            input_tokens=told["input_tokens"], output_tokens=told["output_tokens"], cache_read_input_tokens=into.get("cache_read"),
            cache_creation_input_tokens=into.get("cache_creation"), reasoning_output_tokens=out.get("reasoning"),
        )  # fmt: skip
    raw: Any = (response.llm_output or {}).get("token_usage")
    if isinstance(raw, Mapping) and ("prompt_tokens" in raw or "completion_tokens" in raw):
        counts = cast("Mapping[str, Any]", raw)
        return Usage(input_tokens=counts.get("prompt_tokens"), output_tokens=counts.get("completion_tokens"))
    return None


def result_of(output: Any, name: str | None, call_id: str, duration: float) -> ToolResult:
    """How a tool's call ended, from what it returned."""
    status = "ok"
    if isinstance(output, ToolMessage):
        status = "error" if output.status == "error" else "ok"
        result = plain(output.content)
    elif isinstance(output, Command):
        result = plain({"update": plain(cast(Any, output).update), "goto": plain(cast(Any, output).goto)})
    else:
        result = plain(output)
    error = (result if isinstance(result, str) else repr(result))[:2000] if status == "error" else None
    return ToolResult(name=name, call_id=call_id, status=status, result=result, error=error, duration=duration)


def failure_of(error: BaseException, name: str | None, call_id: str, duration: float) -> tuple[ToolResult, Native | None]:
    """How a tool's call ended that raised, and what a replay raises again.

    An interrupt is no error, the call has no answer yet: its native record is the questions.
    """
    if isinstance(error, GraphBubbleUp):
        asked = list(error.args[0]) if isinstance(error, GraphInterrupt) and error.args else []
        body = ToolResult(
            name=name, call_id=call_id, status="no_response", reason="interrupted", duration=duration,
            attributes={"questions": len(asked)},
        )  # fmt: skip
        return body, _native([one.value for one in asked]) if asked else None
    facts = {"exception": described(error)}
    return ToolResult(
        name=name, call_id=call_id, status="error", error=describe(error), duration=duration, attributes=facts
    ), None


def without_id(message: BaseMessage) -> BaseMessage:
    """A copy of a message of a prompt. LangGraph gives ids that are new in every run, and no model is told them."""
    made = copy(message)
    made.id = None
    return made


def message_native(message: BaseMessage, redactor: Redactor | None) -> Native | None:
    """A message's own bytes, as an item of a list."""
    return returned_native(message, redactor)


def returned_native(output: Any, redactor: Redactor | None) -> Native | None:
    """The bytes of what a model or tool returned, so that a replay returns the same; None where it cannot be written."""
    found = _native([output])
    if found is not None and redactor is not None and redactor.suspects(found.data):
        return _native([cleaned(output, redactor)])
    return found


def _native(values: list[Any]) -> Native | None:
    """The items of a msgpack list."""
    try:
        kind, data = _SERDE.dumps_typed(values)
    except (EncodeError, TypeError, ValueError):
        return None
    return Native(FRAMEWORK, version(), "msgpack", bytes(data[1:])) if kind == "msgpack" and len(values) < 16 else None


def place_of(facts: Mapping[str, Any]) -> str | None:
    """Where a task stands among those that were sent to the same node: whoever begins first, it stays the same."""
    path: Any = facts.get("langgraph_path")
    if not path or path[0] != "__pregel_push":
        return None
    numbers: list[str] = []
    waiting = list(path[1:])
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, (tuple, list)):
            waiting[:0] = cast("list[Any]", one)
        elif type(one) is int:
            numbers.append(str(one))
    return ".".join([str(facts.get("langgraph_step")), *numbers])


def attempt_of(tags: Sequence[str]) -> int | None:
    """Which attempt of ``with_retry`` a model call is, from the second on."""
    for tag in tags:
        if tag.startswith("retry:attempt:"):
            return int(tag.rpartition(":")[2])
    return None


def prompt_of(recorder: Recorder, known: Prompts, messages: list[BaseMessage], node: str) -> Any:
    """The prompt as a list tree: what the last call of this node said already costs nothing; the rest is put into ``fresh``."""
    redactor, before = recorder.redactor, known.values.get(node)
    encoder = Encoder(_SERDE, known.seen)
    value = encoder.value(messages, before)
    if redactor is not None and any(map(redactor.suspects, encoder.objects.values())):
        encoder = Encoder(_SERDE, known.seen, lambda item: cleaned(item, redactor))
        value = encoder.value(messages, before)
    if value.tree is None:
        return None
    known.values[node] = value
    known.seen.remember(encoder)
    known.fresh.update(encoder.objects)
    return value.tree.ref


def reply_of(recorder: Recorder, response: LLMResult, answer: BaseMessage | None) -> tuple[dict[str, Any], Native | None]:
    """The fields of an ``inference`` that tell of the answer, and the answer's own bytes."""
    facts: Mapping[str, Any] = answer.response_metadata if answer is not None else (response.llm_output or {})
    told = {
        "output": output_of(response), "usage": usage_of(response), "finish_reasons": finish_of(response),
        "response_model": facts.get("model_name") or facts.get("model"), "response_id": facts.get("id") or (answer and answer.id),
    }  # fmt: skip
    return told, message_native(answer, recorder.redactor) if answer is not None else _texts_native(response, recorder.redactor)


def _texts_native(response: LLMResult, redactor: Redactor | None) -> Native | None:
    """The bytes of what a text model gave; None where a secret is in them: the texts in ``output`` are redacted."""
    found = _native([response.generations[0]]) if response.generations else None
    return None if found is None or (redactor is not None and redactor.suspects(found.data)) else found


def describe(error: BaseException) -> str:
    """One line about an exception."""
    return f"{type(error).__name__}: {error}"[:2000]


def cleaned(message: object, redactor: Redactor) -> object:
    """The message with known secrets taken out; the same object where there are none."""
    if not isinstance(message, BaseMessage):
        return redactor.apply(message)
    before = {name: plain(value) for name, value in message.__dict__.items()}
    after = redactor.apply(before)
    if after is before:
        return message
    return message.model_copy(update={name: value for name, value in after.items() if value is not before[name]})
