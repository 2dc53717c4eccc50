"""Spans of every other type, kept with all their attributes: copied when they end, written up by the recorder's own thread."""

from __future__ import annotations

import sys
from typing import Any, Final

from agents.tracing import Span

from rath_bridge.model.chunk import Draft
from rath_bridge.model.kinds import Span as SpanBody
from rath_bridge.recorder import Recorder
from rath_openai_agents.book import Book, Node, write
from rath_openai_agents.faults import error_text, micros
from rath_openai_agents.items import FRAMEWORK, plain
from rath_openai_agents.marks import failure
from rath_openai_agents.who import signature


class Kept:
    """A span that has ended, as a chunk that is still to be built. What the user's code may change of it was copied."""

    __slots__ = ("about", "book", "error", "node", "status")

    def __init__(self, book: Book, node: Node, about: dict[str, Any], status: str, error: str | None) -> None:
        """Note an end.

        Args:
            book: Of its trace.
            node: The span, which is out of use: its ids and times change no more.
            about: What its data holds, as JSON values.
            status: How it ended.
            error: In words.
        """
        self.book, self.node, self.about, self.status, self.error = book, node, about, status, error

    def __call__(self) -> Draft:
        """Build the chunk; a span is most of what is recorded, so its map is made without a dataclass between."""
        node, about, book = self.node, self.about, self.book
        span, kind = node.span, node.kind
        assert span is not None
        name = _name(kind, about)
        told: dict[str, Any] = {"span_id": span.span_id, "type": kind}
        if span.parent_id is not None:
            told["parent_id"] = span.parent_id
        if self.error is not None:
            told["error"] = self.error
        if node.late:
            told["late"] = True
        began, ended = micros(span.started_at), micros(span.ended_at)
        values: dict[str, Any] = {"name": name, "status": self.status, "scope": FRAMEWORK}
        if began is not None and ended is not None:
            values["duration"] = (ended - began) / 1e6
        if book.content:
            told.update(about)
            values["attributes"] = told
        return book.recorder.draft_of("span", values, run=node.run, origin=signature(), span=node.context, at=ended)


def keep(book: Book, node: Node, span: Span[Any]) -> None:
    """Keep a span that has ended: copied now, written up by the recorder's thread."""
    raised = sys.exception()
    if span.error is None and (raised is None or raised is node.raised):
        book.recorder.defer(Kept(book, node, copied(span.span_data), "ok", None))
    else:
        book.recorder.defer(Kept(book, node, copied(span.span_data), *failure(book, node, span)))


def late(recorder: Recorder, span: Span[Any], *, content: bool) -> None:
    """Keep a span that ended after its trace: marked, with all its attributes."""
    kind, about, error = str(span.span_data.type), copied(span.span_data), error_text(span.error)
    name = _name(kind, about)
    told = {
        "trace_id": span.trace_id, "span_id": span.span_id, "parent_id": span.parent_id, "late": True, "error": error, "type": kind,
    }  # fmt: skip
    body = SpanBody(name=name, status="error" if error else "ok", attributes={**told, **about}, scope=FRAMEWORK)
    write(recorder, body, content=content, at=micros(span.ended_at))


def _name(kind: str, about: dict[str, Any]) -> str:
    """What a span is called: custom ones have a name of their own, which is taken out of what is told about them."""
    return str(about.pop("name", kind)) if kind == "custom" else kind


_names: Final[dict[type[Any], tuple[str, ...]]] = {}


def copied(data: Any) -> dict[str, Any]:
    """Copy what a span's data holds, as JSON values."""
    kind: type[Any] = type(data)  # pyright: ignore[reportUnknownVariableType]
    names = _names.get(kind)
    if names is None:
        names = _names[kind] = _told(kind, data.type)
    found: dict[str, Any] = {}
    for name in names:
        value = getattr(data, name, None)
        if value is not None:
            found[name] = plain(value)
    more: dict[str, Any] | None = getattr(data, "__dict__", None)
    if more:
        found.update((name, plain(value)) for name, value in more.items() if not name.startswith("_") and value is not None)
    return found


def _told(kind: type[Any], called: str) -> tuple[str, ...]:
    """Return the attributes of a type that are kept; usage of turns and tasks is a sum of what their model calls say (law 7)."""
    slots = [name for cls in kind.__mro__ for name in getattr(cls, "__slots__", ())]
    return tuple(one for one in slots if not one.startswith("_") and not (one == "usage" and called in ("turn", "task")))
