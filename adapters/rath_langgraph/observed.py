"""What callbacks tell of model and tool calls -> ``inference``, ``tool_call`` and ``tool_result`` bodies. Pure.

Sources: ``langchain_core.callbacks.BaseCallbackHandler``, ``langchain_core.outputs.LLMResult``,
``langchain_core.messages.ai.UsageMetadata``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command

from rath_bridge.model.kinds import ToolResult, Usage
from rath_bridge.model.parts import TextPart, part_to_json
from rath_bridge.redaction import Redactor
from rath_langgraph.neutral import message_body, plain

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


def failure_of(error: BaseException, name: str | None, call_id: str, duration: float) -> ToolResult:
    """How a tool's call ended that raised; an interrupt is no error, the call has no answer yet."""
    if isinstance(error, GraphBubbleUp):
        return ToolResult(name=name, call_id=call_id, status="no_response", reason="interrupted", duration=duration)
    return ToolResult(name=name, call_id=call_id, status="error", error=describe(error), duration=duration)


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
