"""OpenInference's attributes under the names that the GenAI conventions have for them (openinference-semantic-conventions 0.1.42)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rath_bridge.otel import names as n
from rath_bridge.otel.values import indexed, listed, mapping, parsed


def openinference(given: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return attributes in the conventions' words; without an operation where the kind has none there.

    Args:
        given: All attributes of a span.
        kind: Its ``openinference.span.kind``, in capitals.
    """
    found = {name: value for name, value in given.items() if not name.startswith("llm.")}
    for name, value in given.items():
        written = n.OPENINFERENCE.get(name)
        if written is not None:
            found.setdefault(written, value)
    operation = n.OPENINFERENCE_KINDS.get(kind)
    if operation is None:
        return found
    found[n.OPERATION] = operation
    found.setdefault(n.PROVIDER, given.get("llm.system"))
    _request(found, given)
    for side, written in (("llm.input_messages.", n.INPUT_MESSAGES), ("llm.output_messages.", n.OUTPUT_MESSAGES)):
        told = [_message(mapping(one).get("message", one)) for one in indexed(given, side)]
        if told:
            found.setdefault(written, told)
    if operation == "chat" and n.FINISH_REASONS not in found:
        reason = mapping(parsed(given.get("output.value"))).get("finish_reason")
        if isinstance(reason, str):
            found[n.FINISH_REASONS] = [reason]
    if operation == "retrieval":
        documents = [mapping(one).get("document", one) for one in indexed(given, "retrieval.documents.")]
        if documents:
            found.setdefault(n.RETRIEVAL_DOCUMENTS, documents)
    if operation == "execute_tool" and n.TOOL_NAME not in found:
        found[n.TOOL_NAME] = given.get("graph.node.name")
    return found


def _request(found: dict[str, Any], given: Mapping[str, Any]) -> None:
    params = mapping(parsed(given.get("llm.invocation_parameters")))
    found.setdefault(n.REQUEST_MODEL, params.get("model") or given.get("llm.model_name"))
    for name, value in params.items():
        written = n.REQUEST.get(n.PARAMETER_NAMES.get(name, name))
        if written is not None and value is not None:
            found.setdefault(written, value)
    if params.get("stream") is True:
        found.setdefault(n.REQUEST_STREAM, True)
    tools = [parsed(mapping(mapping(one).get("tool")).get("json_schema")) for one in indexed(given, "llm.tools.")]
    if any(one is not None for one in tools):
        found.setdefault(n.TOOL_DEFINITIONS, tools)


def _message(value: Any) -> dict[str, Any]:
    told = mapping(value)
    role, content = str(told.get("role") or "unknown"), told.get("content")
    parts: list[Any] = [_content(mapping(one).get("message_content", one)) for one in listed(told.get("contents"))]
    if role == "tool":
        answer = content if content is not None else "".join(str(mapping(one).get("content", "")) for one in parts)
        return {
            "role": role,
            "parts": [{"type": "tool_call_response", "id": told.get("tool_call_id"), "response": parsed(answer)}],
        }
    if content not in (None, ""):
        parts.insert(0, {"type": "text", "content": content})
    for one in listed(told.get("tool_calls")):
        call = mapping(mapping(one).get("tool_call", one))
        function = mapping(call.get("function"))
        arguments = parsed(function.get("arguments"))
        parts.append({"type": "tool_call", "id": call.get("id"), "name": str(function.get("name")), "arguments": arguments})
    found: dict[str, Any] = {"role": role, "parts": parts}
    return {**found, "name": told["name"]} if isinstance(told.get("name"), str) else found


def _content(value: Any) -> Any:
    told = mapping(value)
    if told.get("type") in ("text", "reasoning") and "text" in told:
        return {"type": told["type"], "content": told["text"]}
    return value
