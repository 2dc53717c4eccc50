"""What a span of each kind is called, and what it carries: the GenAI and MCP conventions, one function per kind of chunk.

Content (messages, instructions, arguments, results, documents) is opt-in; everything else is always there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rath_bridge.model.encoding import BlobRef
from rath_bridge.model.kinds import Guardrail, Handoff, Inference, Memory, Run, ToolCall, ToolResult
from rath_bridge.otel import content as words
from rath_bridge.otel import names as n
from rath_bridge.otel.records import SpanKind, attribute

Found = dict[str, Any]
_RUNS: Final = {"agent": "invoke_agent", "graph": "invoke_workflow", "team": "invoke_workflow", "workflow": "invoke_workflow"}
_KEPT: Final = ("mcp.", "jsonrpc.", "rpc.", "network.", "server.", "rath.", "gen_ai.", "error.type")


def put(found: Found, name: str, value: Any) -> None:
    """Set an attribute unless it is absent or empty."""
    if value is None:
        return
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is str:
        if value:
            found[name] = value if value.isascii() else attribute(value)
    elif kind is bool or kind is float:
        found[name] = value
    elif value != ():
        found[name] = attribute(value)


def short(value: Any) -> str | None:
    """Return a name as text; one so long that it is a blob by its digest."""
    if value is None or type(value) is str:
        return value
    return value.digest[:16] if isinstance(value, BlobRef) else str(value)


def error_type(error: object, fallback: str = n.OTHER) -> str:
    """Return the class of an error that is told as ``Class: words``."""
    name = error.partition(":")[0] if isinstance(error, str) else ""
    return name if name and name.replace(".", "").isidentifier() else fallback


def kept(found: Found, given: Any) -> None:
    """Take over attributes that an adapter recorded under conventional names."""
    if given and isinstance(given, Mapping):
        for name, value in given.items():  # pyright: ignore[reportUnknownVariableType]
            if isinstance(name, str) and name.startswith(_KEPT) and name not in n.CONTENT:
                put(found, name, value)


def run(body: Run, *, content: bool) -> tuple[str, SpanKind, Found]:
    """An agent, graph, team or workflow; a node, a server or what nobody claimed has no operation in the conventions."""
    found: Found = {}
    operation = _RUNS.get(body.type or "agent")
    name = short(body.name) or ""
    kept(found, body.attributes)
    put(found, n.RUN_TYPE, body.type)
    if operation is None:
        return name if name == body.type else f"{body.type} {name}".rstrip(), "internal", found
    found[n.OPERATION] = operation
    if operation == "invoke_agent":
        put(found, n.AGENT_NAME, name)
        if content:
            put(found, n.SYSTEM_INSTRUCTIONS, body.system_instructions and _instructions(body.system_instructions))
            put(found, n.TOOL_DEFINITIONS, body.tools and words.json_text(list(body.tools)))
    else:
        put(found, n.WORKFLOW_NAME, name)
    return f"{operation} {name}".rstrip(), "internal", found


def _instructions(text: Any) -> str:
    return words.json_text([{"type": "text", "content": text}])


def inference(body: Inference) -> tuple[str, SpanKind, Found]:
    """One model call, its content left out."""
    found: Found = {n.OPERATION: "chat", n.PROVIDER: body.provider or n.OTHER}
    kept(found, body.attributes)
    operation = found[n.OPERATION]
    model = short(body.model)
    put(found, n.REQUEST_MODEL, model)
    put(found, n.REQUEST_STREAM, True if body.streamed else None)
    put(found, n.RESPONSE_MODEL, short(body.response_model))
    put(found, n.RESPONSE_ID, short(body.response_id))
    put(found, n.FINISH_REASONS, [words.finish_reason(short(reason) or "") for reason in body.finish_reasons] or None)
    put(found, n.FIRST_CHUNK, body.time_to_first_chunk)
    put(found, n.AGENT_NAME, short(body.agent))
    put(found, n.OBSERVER, body.observer)
    _parameters(found, body.request.get("params"))
    if body.request.get("output_schema") is not None:
        found[n.OUTPUT_TYPE] = "json"
    usage = body.usage
    if usage is not None:
        for name, value in (
            (n.INPUT_TOKENS, usage.input_tokens), (n.OUTPUT_TOKENS, usage.output_tokens), (n.COST, usage.cost_usd),
            (n.CACHE_READ, usage.cache_read_input_tokens), (n.CACHE_CREATION, usage.cache_creation_input_tokens),
            (n.REASONING_TOKENS, usage.reasoning_output_tokens),
        ):  # fmt: skip
            put(found, name, value)
    return f"{operation} {model}" if model else operation, "client", found


def _parameters(found: Found, params: Any) -> None:
    if not params or not isinstance(params, Mapping):
        return
    for name, value in params.items():  # pyright: ignore[reportUnknownVariableType]
        written = n.REQUEST.get(n.PARAMETER_NAMES.get(name, name))  # pyright: ignore[reportUnknownArgumentType]
        if written is None or isinstance(value, Mapping):
            continue
        if written == n.REQUEST["stop_sequences"] and isinstance(value, str):
            value = [value]
        if written != n.REQUEST["choice_count"] or value != 1:
            put(found, written, value)


def request_content(found: Found, request: Mapping[str, Any], given: Sequence[Any], said: Sequence[Any]) -> None:
    """Add a model call's content: messages in and out, instructions, tool definitions."""
    put(found, n.SYSTEM_INSTRUCTIONS, request.get("system") and _instructions(request["system"]))
    tools = request.get("tools")
    put(found, n.TOOL_DEFINITIONS, words.json_text(tools) if isinstance(tools, list) and tools else None)
    put(found, n.INPUT_MESSAGES, words.json_text(list(given)) if given else None)
    put(found, n.OUTPUT_MESSAGES, words.json_text(list(said)) if said else None)


def tool_call(body: ToolCall, *, content: bool) -> tuple[str, SpanKind, Found]:
    """A tool's run in this process, or an MCP request."""
    found: Found = {}
    kept(found, body.attributes)
    put(found, n.BASIS, body.basis)
    put(found, n.TOOL_CALL_ID, body.call_id)
    put(found, n.MCP_SERVER, body.server)
    put(found, n.AGENT_NAME, short(body.agent))
    put(found, "rath.tool.effect", body.effect)
    name = short(body.name) or ""
    if content and body.arguments is not None:
        put(found, n.TOOL_ARGUMENTS, words.json_text(body.arguments))
    kind = body.type or "function"
    if kind.startswith("mcp"):
        return _mcp(body, name, kind, found)
    found[n.OPERATION], found[n.TOOL_NAME] = "execute_tool", name
    put(found, n.TOOL_TYPE, {"mcp": "extension", "handoff": "extension"}.get(kind, kind))
    return f"execute_tool {name}", "internal", found


def _mcp(body: ToolCall, name: str, kind: str, found: Found) -> tuple[str, SpanKind, Found]:
    side: SpanKind = "server" if kind == "mcp.server_request" else "client"
    if kind == "mcp":
        found.update({n.MCP_METHOD: "tools/call", n.OPERATION: "execute_tool", n.TOOL_NAME: name})
        return f"tools/call {name}", side, found
    found[n.MCP_METHOD] = name
    found.pop(n.TOOL_CALL_ID, None)
    arguments: Any = body.arguments
    if isinstance(arguments, Mapping):
        if name == "prompts/get" and isinstance(arguments.get("name"), str):  # pyright: ignore[reportUnknownMemberType]
            found[n.PROMPT_NAME] = arguments["name"]
            return f"{name} {arguments['name']}", side, found
        if isinstance(arguments.get("uri"), str):  # pyright: ignore[reportUnknownMemberType]
            found[n.MCP_RESOURCE] = arguments["uri"]
    return name, side, found


def tool_result(found: Found, body: ToolResult, *, content: bool) -> str | None:
    """Add how a call ended; returns what went wrong."""
    kept(found, body.attributes)
    put(found, n.BASIS, body.basis)
    if content and body.result is not None:
        put(found, n.TOOL_RESULT, words.json_text(body.result))
    if body.status == "ok":
        return None
    found[n.CALL_STATUS] = body.status
    put(found, n.CALL_REASON, body.reason)
    if body.status == "no_response" and body.reason not in ("timeout", "stream_ended", "server_exit", "connection_closed"):
        return None
    of_mcp = n.MCP_METHOD in found
    found.setdefault(n.ERROR_TYPE, body.reason or error_type(body.error, n.TOOL_ERROR if of_mcp else n.OTHER))
    return described(body.error or body.reason or "the tool failed", found[n.ERROR_TYPE], content=content)


def described(error: object, kind: str, *, content: bool) -> str:
    """Return an error's words where content is wanted, else only its class."""
    return str(error) if content and isinstance(error, str) else kind


def handoff(body: Handoff) -> tuple[str, SpanKind, Found]:
    """One agent passes the work on: the conventions have no span for it."""
    found: Found = {}
    put(found, n.HANDOFF_FROM, short(body.from_agent))
    put(found, n.HANDOFF_TO, short(body.to_agent))
    put(found, n.TOOL_CALL_ID, body.call_id)
    put(found, n.BASIS, body.basis)
    return f"handoff {short(body.to_agent) or ''}".rstrip(), "internal", found


def guardrail(body: Guardrail) -> tuple[str, SpanKind, Found]:
    """A check: the conventions have no span for it."""
    found: Found = {}
    put(found, n.GUARDRAIL_NAME, short(body.name))
    put(found, n.GUARDRAIL_STAGE, body.stage)
    put(found, n.GUARDRAIL_TRIGGERED, body.triggered)
    put(found, n.AGENT_NAME, short(body.agent))
    return f"guardrail {short(body.name)}", "internal", found


def memory(body: Memory, *, content: bool) -> tuple[str, SpanKind, Found]:
    """A retrieval, or something recalled from or committed to a memory."""
    found: Found = {}
    kept(found, body.attributes)
    default = "search_memory" if body.op == "recall" else "upsert_memory"
    operation = found.setdefault(n.OPERATION, default)
    store = short(body.store)
    put(found, n.DATA_SOURCE if operation == "retrieval" else n.MEMORY_STORE, store)
    if content and body.op == "recall":
        put(
            found,
            n.RETRIEVAL_QUERY,
            body.query if isinstance(body.query, str) or body.query is None else words.json_text(body.query),
        )
        put(found, n.RETRIEVAL_DOCUMENTS, words.json_text(list(body.items)) if body.items else None)
    return f"{operation} {store}" if store else operation, "client", found
