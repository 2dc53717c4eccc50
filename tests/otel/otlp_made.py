"""OTLP documents made by a real SDK's exporter, and the same work told in two vocabularies."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

SPAN = dict[str, Any]


def document(spans: list[ReadableSpan] | tuple[ReadableSpan, ...]) -> Any:
    """As protobuf's JSON printer writes it: ids in base64, enumerations by name."""
    return MessageToDict(encode_spans(list(spans)))


def protobuf(spans: list[ReadableSpan] | tuple[ReadableSpan, ...]) -> bytes:
    return encode_spans(list(spans)).SerializeToString()


def traced(tree: list[SPAN]) -> tuple[ReadableSpan, ...]:
    """Run spans for real: ``{"name", "attributes", "children"}``, one after the other, 10 ms each moment."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("made", "1")
    clock = [1_790_000_000_000_000_000]

    def tick() -> int:
        clock[0] += 10_000_000
        return clock[0]

    def go(one: SPAN) -> None:
        with tracer.start_as_current_span(
            one["name"], attributes=one["attributes"], start_time=tick(), end_on_exit=False
        ) as span:
            for child in one.get("children", ()):
                go(child)
            span.end(tick())

    for one in tree:
        go(one)
    return exporter.get_finished_spans()


SYSTEM = ("system", "be brief")
ASKED = [SYSTEM, ("user", "Weather in Paris?")]


def genai(call: dict[str, Any], given: list[tuple[str, Any]], said: str | dict[str, Any]) -> SPAN:
    """One model call by the GenAI conventions."""

    def part(role: str, content: Any) -> dict[str, Any]:
        if role == "tool":
            return {"type": "tool_call_response", "id": "c1", "response": content}
        return {"type": "tool_call", **content} if isinstance(content, dict) else {"type": "text", "content": content}

    messages = [{"role": role, "parts": [part(role, content)]} for role, content in given]
    answer = [{"role": "assistant", "parts": [part("assistant", said)], "finish_reason": "stop"}]
    return {
        "name": "chat gpt",
        "attributes": {
            "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt",
            "gen_ai.response.model": "gpt-1",
            "gen_ai.request.temperature": 0.5, "gen_ai.response.finish_reasons": ["stop"], "gen_ai.conversation.id": "c-7",
            "gen_ai.usage.input_tokens": call["in"], "gen_ai.usage.output_tokens": call["out"],
            "gen_ai.usage.cache_read.input_tokens": 3, "gen_ai.usage.cache_creation.input_tokens": 2,
            "gen_ai.usage.reasoning.output_tokens": 1,
            "gen_ai.input.messages": json.dumps(messages), "gen_ai.output.messages": json.dumps(answer),
        },
    }  # fmt: skip


def openinference(call: dict[str, Any], given: list[tuple[str, Any]], said: str | dict[str, Any]) -> SPAN:
    """The same call by OpenInference."""
    found: dict[str, Any] = {
        "openinference.span.kind": "LLM", "llm.provider": "openai", "llm.system": "openai", "llm.model_name": "gpt-1", "session.id": "c-7",
        "llm.invocation_parameters": json.dumps({"model": "gpt", "temperature": 0.5}), "llm.finish_reason": "stop",
        "llm.token_count.prompt": call["in"], "llm.token_count.completion": call["out"],
        "llm.token_count.prompt_details.cache_read": 3, "llm.token_count.prompt_details.cache_write": 2,
        "llm.token_count.completion_details.reasoning": 1,
    }  # fmt: skip
    for side, messages in (("input", given), ("output", [("assistant", said)])):
        for i, (role, content) in enumerate(messages):
            here = f"llm.{side}_messages.{i}.message"
            found[f"{here}.role"] = role
            if isinstance(content, dict):
                call_ = f"{here}.tool_calls.0.tool_call"
                found[f"{call_}.id"], found[f"{call_}.function.name"] = content["id"], content["name"]
                found[f"{call_}.function.arguments"] = json.dumps(content["arguments"])
            else:
                found[f"{here}.content"] = content
            if role == "tool":
                found[f"{here}.tool_call_id"] = "c1"
    return {"name": "ChatOpenAI", "attributes": found}


def conversation(vocabulary: str) -> list[SPAN]:
    """An agent that asks a tool once and answers, then a second question, in either vocabulary."""
    call = genai if vocabulary == "genai" else openinference
    asked = {"id": "c1", "name": "get_weather", "arguments": {"city": "Paris"}}
    after = [*ASKED, ("assistant", asked), ("tool", "rainy")]
    if vocabulary == "genai":
        tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get_weather", "gen_ai.tool.call.id": "c1",
                "gen_ai.tool.call.arguments": '{"city":"Paris"}', "gen_ai.tool.call.result": "rainy"}  # fmt: skip
        agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "Helper", "gen_ai.conversation.id": "c-7"}
    else:
        tool = {"openinference.span.kind": "TOOL", "tool.name": "get_weather", "tool.id": "c1",
                "input.value": '{"city":"Paris"}', "output.value": "rainy"}  # fmt: skip
        agent = {
            "openinference.span.kind": "AGENT",
            "agent.name": "Helper",
            "session.id": "c-7",
            "input.value": "ignored: calls tell",
        }
    return [
        {
            "name": "Helper", "attributes": agent,
            "children": [
                call({"in": 10, "out": 5}, ASKED, asked), {"name": "get_weather", "attributes": tool},
                call({"in": 20, "out": 6}, after, "It rains."),
                call({"in": 30, "out": 7}, [*after, ("assistant", "It rains."), ("user", "yes")], "Indeed."),
            ],
        },
    ]  # fmt: skip
