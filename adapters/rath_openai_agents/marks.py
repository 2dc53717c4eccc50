"""What spans tell beside their data: how they ended, how long they took, their ids, and what was kept back."""

from __future__ import annotations

from asyncio import CancelledError
from typing import Any

from agents.tracing import Span

from rath_openai_agents.book import Book, Node
from rath_openai_agents.faults import describe, error_text, in_flight


def failure(book: Book, node: Node, span: Span[Any]) -> tuple[str, str | None]:
    """Return how a span ended, and its error in words."""
    error = in_flight(node.raised)
    if error is not None:
        status = "error" if isinstance(error, Exception) and not isinstance(error, CancelledError) else "cancelled"
        # with trace_include_sensitive_data=False, an error's own words are withheld as well
        return status, type(error).__name__ if book.withheld else describe(error)
    text = error_text(span.error)
    return ("error", text) if text else ("ok", None)


def marks_of(node: Node, span: Span[Any], **more: Any) -> dict[str, Any]:
    """Return a span's ids, and what else is told of it, absent values left out."""
    marks = {"span_id": span.span_id, "parent_id": span.parent_id, **more}
    if node.late:
        marks["late"] = True
    return {name: value for name, value in marks.items() if value is not None}


def withhold(book: Book, marks: dict[str, Any]) -> None:
    """Mark that ``trace_include_sensitive_data=False`` kept content back."""
    book.withheld = True
    marks["content"] = "withheld"


def seconds(node: Node) -> float | None:
    """Return how long a span took."""
    return None if node.finished is None else (node.finished - node.began) / 1e6
