"""Where the calling code stands: in a trace that is being recorded, or in an ambient run."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from agents.tracing import get_current_span, get_current_trace

from rath_bridge.model.chunk import Draft, Native, SpanContext
from rath_bridge.model.digests import Digest, new_id
from rath_bridge.model.kinds import Body
from rath_bridge.recorder import Brought, Recorder, RunHandle, current_recorder, current_run
from rath_bridge.session import Store
from rath_openai_agents.book import Book, Node, adopted, books, write
from rath_openai_agents.conversation import Conversation, ambient

observed: Final[ContextVar[object | None]] = ContextVar("rath_openai_agents_observed", default=None)
"""Set while a recording model has a call under way: what else sees the call adds nothing (law 7)."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a model call or a tool call belongs."""

    recorder: Recorder
    run: RunHandle | None
    talk: Conversation
    content: bool = True
    node: Node | None = None
    book: Book | None = None
    agent: str | None = None
    turn: int | None = None

    def span(self) -> SpanContext | None:
        """New OpenTelemetry ids under where this stands."""
        above = self.node.context if self.node else self.run.span if self.run else None
        return SpanContext(above.trace_id, new_id(8), above.span_id) if above else None

    def emit(
        self, body: Body, *, run: RunHandle | None = None, span: SpanContext | None = None, at: int | None = None,
        native: Native | None = None, objects: Mapping[Digest, bytes] | None = None, given: Brought | None = None,
        content: bool = True,
    ) -> Draft | None:  # fmt: skip
        """Queue a chunk here."""
        return write(
            self.recorder,
            body,
            content=content and self.content,
            run=run or self.run,
            span=span,
            at=at,
            native=native,
            objects=objects,
            given=given,
        )


def locate(store: Store | None, session: str | None) -> Place | None:
    """Find where the calling code stands: the trace's book, else the ambient recorder.

    Args:
        store: Only a book or a recorder of this store, where the caller was given one.
        session: Only this session, where the caller was given one.
    """

    def fits(recorder: Recorder) -> bool:
        return (store is None or recorder.store == store) and session in (None, recorder.name)

    trace = get_current_trace()
    trace_id = trace.trace_id if trace is not None else None
    for book in books(trace_id) if trace_id is not None else ():
        if fits(book.recorder) or (session is None and current_recorder() is book.recorder):
            span = get_current_span()
            node = (book.nodes.get(span.span_id) if span is not None else None) or book.root
            return Place(book.recorder, node.run, node.talk, book.content, node, book, node.agent, node.turn)
    recorder = current_recorder()
    if recorder is None or (session is not None and not fits(recorder)):
        return None
    run = current_run()
    given = adopted.get()
    if given is not None and given.recorder is recorder:
        return Place(recorder, run, given.talk)
    return Place(recorder, run, ambient(recorder, run, trace_id))
