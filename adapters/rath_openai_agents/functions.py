"""Tool calls as their spans show them: a call when hooks saw none, its result, and what outlives its trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agents.tracing import Span

from rath_bridge.model.kinds import ToolCall, ToolResult
from rath_bridge.verbs.raised import described
from rath_openai_agents.book import Book, Node
from rath_openai_agents.faults import in_flight
from rath_openai_agents.items import NATIVE, parse, plain
from rath_openai_agents.marks import failure, marks_of, seconds, withhold


def function(book: Book, node: Node, span: Span[Any]) -> None:
    """Write the result of a tool call, and the call itself where hooks did not."""
    data = span.span_data
    if node.ended or _waits(node, data, span.error):
        return
    if not node.started:
        _start_function(book, node, span)
    status, error = failure(book, node, span)
    raised = in_flight(node.raised) if status == "error" and not book.withheld else None
    marks = marks_of(node, span, exception=described(raised) if raised is not None else None)
    basis = None if node.started else "inferred"
    if status == "cancelled":
        body = ToolResult(
            name=data.name, call_id=node.call_id, status="no_response", reason="cancelled", error=error, basis=basis
        )
    else:
        body = ToolResult(
            name=data.name, call_id=node.call_id, status=status, result=plain(data.output), error=error, basis=basis
        )
    book.emit(replace(body, duration=seconds(node), attributes=marks), node, at=node.finished)


def abandon(book: Book) -> None:
    """Close the tool calls that outlive their trace: a cancelled run does not wait for its tools, and nobody takes their answers."""
    with book.lock:
        failed = book.root.failed
        for span_id, node in list(book.nodes.items()):
            span = node.span
            if node.kind != "function" or node.ended or span is None:
                continue
            del book.nodes[span_id]
            book.done.add(span_id)
            if not node.started:
                _start_function(book, node, span)
            reason = "cancelled" if failed is not None and failed[0] == "cancelled" else "abandoned"
            body = ToolResult(
                name=span.span_data.name, call_id=node.call_id, status="no_response", reason=reason,
                basis=None if node.started else "inferred", attributes=marks_of(node, span),
            )  # fmt: skip
            book.emit(body, node)


def _waits(node: Node, data: Any, error: Any) -> bool:
    """Tell a call that waits for approval from one that ran: the SDK opens a span for both, and hooks see only the second start."""
    if getattr(getattr(data.output, "run_item", None), "type", None) == "tool_approval_item":  # as 0.20 has it
        return True
    untouched = data.input is not None and data.output is None and error is None
    return node.talk.hooked and not node.started and untouched and in_flight(node.raised) is None


def _start_function(book: Book, node: Node, span: Span[Any]) -> None:
    data = span.span_data
    _pair(node)
    mcp: Mapping[str, Any] = data.mcp_data or {}
    marks = marks_of(node, span)
    if data.input is None:
        withhold(book, marks)
    body = ToolCall(
        name=data.name, arguments=parse(data.input), call_id=node.call_id, type="mcp" if mcp else "function", server=mcp.get("server"),
        agent=node.agent, basis="inferred", attributes=marks,
    )  # fmt: skip
    book.emit(body, node, at=node.began)


def _pair(node: Node) -> None:
    """Give call ids to this function span and those that began before it, in the order in which the model asked."""
    siblings = (node.parent.functions if node.parent is not None else None) or [node]
    for one in siblings:
        if one.call_id is None and not one.started and one.span is not None:
            data = one.span.span_data
            asked = one.talk.pair(data.name, parse(data.input), any_arguments=data.input is None or data.name in NATIVE.values())
            one.call_id = asked.call_id if asked else None
        if one is node:
            return
