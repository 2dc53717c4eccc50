"""What a request and its answer say, as bodies: pure functions from wire JSON.

=====================================  ================================================================================
on the wire                            in the session
=====================================  ================================================================================
``initialize``, ``server/discover``    the ``run`` (type ``server``) that begins with their answer
``tools/call``                         ``tool_call`` of type ``mcp`` and its ``tool_result``
a request for content, or for an       the same pair, named by the method: type ``mcp.request`` (resources/read, prompts/get,
answer by somebody                     completion/complete ...) or, asked by the server, ``mcp.server_request`` (sampling,
                                       elicitation, roots)
a listing, ping, subscription,         one ``note``, written when it is answered (or when the connection closes)
``logging/setLevel``
progress                               ``rath.mcp.progress`` of the result that it leads to
cancellation                           a ``no_response`` with its reason
other notifications, late and          one ``note`` each, marked in ``rath.mcp.unmatched`` where it fits nothing
unreadable frames
=====================================  ================================================================================

Attribute names are those of the MCP semantic conventions (semantic-conventions-genai, ``mcp.md``); ours are ``rath.*``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from rath_bridge.model.chunk import SpanContext
from rath_bridge.model.digests import new_id
from rath_bridge.model.kinds import ToolCall, ToolResult
from rath_mcp.content import neutral_result, text_of, too_deep
from rath_mcp.frames import mapping

HANDSHAKE: Final = frozenset({"initialize", "server/discover"})
HOUSEKEEPING: Final = frozenset({
    "ping", "logging/setLevel", "tools/list", "resources/list", "resources/templates/list", "prompts/list",
    "resources/subscribe", "resources/unsubscribe", "subscriptions/listen", "tasks/list", "tasks/get",
})  # fmt: skip

TIMEOUTS: Final = (408, -32001)
"""Error codes by which the SDKs (1.x, 2.x) and TypeScript's name their own timeout; they never cross the wire."""
CLOSED: Final = -32000

_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


def meta_of(params: Any) -> Mapping[str, Any]:
    """Return ``_meta`` of params or of a result."""
    return mapping(mapping(params).get("_meta"))


def span_of(params: Any) -> SpanContext | None:
    """Return the ids of a request's own span, in the trace that its ``_meta.traceparent`` names (SEP-414)."""
    parent = meta_of(params).get("traceparent")
    found = _TRACEPARENT.fullmatch(parent) if isinstance(parent, str) else None
    if found is None or not int(found[1], 16) or not int(found[2], 16):
        return None
    return SpanContext(found[1], new_id(8), found[2])


def call_body(
    method: str,
    params: Any,
    *,
    call_id: str,
    server: str | None = None,
    by_server: bool = False,
    attributes: Mapping[str, Any] | None = None,
    effect: str | None = None,
) -> ToolCall:
    """Return what a request asks for."""
    given = mapping(params)
    if method == "tools/call":
        name, kind, arguments = given.get("name"), "mcp", given.get("arguments")
    else:
        name, kind = method, "mcp.server_request" if by_server else "mcp.request"
        arguments = {key: value for key, value in given.items() if key != "_meta"}
    found: dict[str, Any] = {"mcp.method.name": method, **(attributes or {})}
    if given.get("_meta") is not None:
        found["_meta"] = given["_meta"]
    if given.get("inputResponses") is not None and method == "tools/call":
        found["rath.mcp.input_responses"] = given["inputResponses"]
    if isinstance(given.get("uri"), str):
        found["mcp.resource.uri"] = given["uri"]
    if too_deep(arguments):
        arguments, found["rath.mcp.kept"] = None, "in the frame only"
    for key in ("_meta", "rath.mcp.input_responses"):
        if too_deep(found.get(key)):
            del found[key]
    return ToolCall(
        name=name if isinstance(name, str) else method, arguments=arguments, call_id=call_id, type=kind, server=server,
        effect=effect, attributes=found,
    )  # fmt: skip


def result_body(
    answer: Mapping[str, Any],
    *,
    name: str | None,
    call_id: str | None,
    duration: float | None = None,
    basis: str | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> ToolResult:
    """Return what an answer (``{"result": ...}`` or ``{"error": ...}``) says.

    A tool that failed (``isError``) and a request that failed (a JSON-RPC error) are both ``error``: the first keeps the result
    that it gave and has ``error.type`` ``tool_error``, the second has the ``result`` ``{"error": {code, message, data}}`` and the
    code as its ``error.type``.
    """
    found = dict(attributes or {})
    status, error = "ok", None
    if "error" in answer:
        fault = mapping(answer["error"])
        code = fault.get("code")
        status, error, result = "error", str(fault.get("message", "")), {"error": answer["error"]}
        found |= {"error.type": str(code), "rpc.response.status_code": str(code)}
    else:
        result = neutral_result(answer.get("result"))
        if mapping(answer.get("result")).get("isError") is True:
            status, error = "error", text_of(answer["result"])
            found["error.type"] = "tool_error"
    if too_deep(result):
        result, found["rath.mcp.kept"] = None, "in the frame only"
    return ToolResult(
        name=name, call_id=call_id, status=status, result=result, error=error, duration=duration, basis=basis, attributes=found
    )


def cancel_reason(params: Any) -> str:
    """Return ``timeout`` where a cancellation was sent for one (the SDKs say so in ``reason``), else ``cancelled``."""
    reason = mapping(params).get("reason")
    return "timeout" if isinstance(reason, str) and "timed out" in reason.lower() else "cancelled"
