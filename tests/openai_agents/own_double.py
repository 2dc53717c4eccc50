"""A scripted model for releases of the SDK that bring none (``agents.testing`` is younger than 0.20): the same names, the least of it."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from agents import Usage
from agents.items import ModelResponse
from agents.models.interface import Model
from agents.tracing import generation_span
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputItemAddedEvent,
    ResponseOutputItemDoneEvent,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)


@dataclass
class ModelStep:
    """One answer, or one failure."""

    output: Sequence[Any] = field(default_factory=tuple)
    usage: Usage = field(default_factory=Usage)
    response_id: str | None = "resp-789"
    error: Exception | None = None

    @classmethod
    def raise_error(cls, error: Exception) -> ModelStep:
        return cls(error=error)


class ScriptedModel(Model):
    """Gives one step after the other, plain or streamed."""

    def __init__(self, steps: Iterable[Any] = (), *, emit_traces: bool = False) -> None:
        self._steps = list(steps)
        self._emit_traces = emit_traces
        self.calls: list[Any] = []

    def _next(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ModelStep:
        asked = dict(zip(("system_instructions", "input"), args, strict=False)) | dict(kwargs)
        self.calls.append(SimpleNamespace(input=copy.deepcopy(asked["input"])))
        one = self._steps.pop(0)
        found = (
            one if isinstance(one, ModelStep) else ModelStep(error=one) if isinstance(one, Exception) else ModelStep(output=one)
        )
        if found.error is not None:
            raise found.error
        return found

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        with generation_span(disabled=not self._emit_traces) as span:
            try:
                found = self._next(args, kwargs)
            except Exception as error:
                span.set_error({"message": "Error", "data": {"name": type(error).__name__, "message": str(error)}})
                raise
            return ModelResponse(output=list(found.output), usage=copy.deepcopy(found.usage), response_id=found.response_id)

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        with generation_span(disabled=not self._emit_traces) as span:
            try:
                found = self._next(args, kwargs)
            except Exception as error:
                span.set_error({"message": "Error", "data": {"name": type(error).__name__, "message": str(error)}})
                raise
        number = 0
        for index, item in enumerate(found.output):
            yield ResponseOutputItemAddedEvent(
                item=item, output_index=index, sequence_number=number, type="response.output_item.added"
            )
            parts: Any = getattr(item, "content", None) or ()
            for place, part in enumerate(parts):
                for word in part.text.split(" "):
                    number += 1
                    yield ResponseTextDeltaEvent(
                        content_index=place, delta=word, item_id=item.id, logprobs=[], output_index=index, sequence_number=number,
                        type="response.output_text.delta",
                    )  # fmt: skip
            number += 1
            yield ResponseOutputItemDoneEvent(
                item=item, output_index=index, sequence_number=number, type="response.output_item.done"
            )
        usage = found.usage
        response = Response.model_validate({
            "id": found.response_id, "object": "response", "created_at": 0.0, "model": "scripted", "output": list(found.output),
            "parallel_tool_calls": False, "tool_choice": "none", "tools": [],
            "usage": {
                "input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens, "total_tokens": usage.total_tokens,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
            },
        })  # fmt: skip
        yield ResponseCompletedEvent(response=response, sequence_number=number + 1, type="response.completed")


def assistant_message(text: str) -> Any:
    part = ResponseOutputText(text=text, type="output_text", annotations=[], logprobs=[])
    return ResponseOutputMessage(id="scripted-message", type="message", role="assistant", status="completed", content=[part])


def function_call(name: str, arguments: Mapping[str, Any], *, call_id: str) -> Any:
    text = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    return ResponseFunctionToolCall(id=call_id, call_id=call_id, type="function_call", name=name, arguments=text)
