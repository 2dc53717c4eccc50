"""What is known of one live trace: its spans as a tree of nodes, its runs, its transcript.

The processor, the recording model and the hooks may all see one run, in any combination; they meet here, so that each thing is
written once. A book lives from its trace's start to its end.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass
from hashlib import sha256
from threading import RLock
from typing import Any, Final

from agents.tracing import Span, Trace

from rath_bridge.model.chunk import Draft, Key, Native, SpanContext, now
from rath_bridge.model.digests import Digest, new_id
from rath_bridge.model.kinds import Body, Usage
from rath_bridge.model.kinds import Span as SpanBody
from rath_bridge.recorder import Brought, Recorder, RunHandle, current_recorder, current_run, enter, leave, structure_only
from rath_openai_agents.conversation import Conversation
from rath_openai_agents.decode import origin
from rath_openai_agents.faults import micros
from rath_openai_agents.inference import Call
from rath_openai_agents.items import FRAMEWORK, plain

_log: Final = logging.getLogger("rath_bridge")
_HEX: Final = re.compile(r"[0-9a-f]{32}\Z")
_SPAN: Final = re.compile(r"span_[0-9a-f]{24}\Z")
Tokens = tuple[Token["Recorder | None"], Token["RunHandle | None"]]


class Node:
    """A span that has begun. Most spans use few of these, so what is unset stands in the class: making one is quick."""

    finished: int | None = None
    agent: str | None = None
    turn: int | None = None
    owns = False
    """It began ``run``."""
    late = False
    """Its start was not seen."""
    tokens: Tokens | None = None
    raised: BaseException | None = None
    """What was being handled when it began: not its own error."""
    failed: tuple[str, str | None] | None = None
    """How a run inside it failed: status and error."""
    # what others have seen of it
    observed = False
    """A recording model wrote this model call."""
    call_id: str | None = None
    started = False
    """Hooks saw the tool start ..."""
    ended = False
    """... and end."""
    # a turn's own
    functions: list[Node] | None = None
    held: tuple[Node, Call] | None = None
    """A model call without usage, until the turn tells it."""
    counted = False
    """A model call of this turn is on record, with usage."""
    inner: Usage | None = None
    """Tokens of agents used as tools inside this turn."""
    turns = 0
    """Turns of an agent that have ended."""
    info: Any = None
    """What a guardrail told beside its decision."""
    ids: SpanContext | None = None
    """OpenTelemetry ids, once they are known; ask for `context`."""

    def __init__(self, span: Span[Any] | None, parent: Node | None, kind: str, run: RunHandle, talk: Conversation) -> None:
        """Note a beginning.

        Args:
            span: The live span; None for the trace itself.
            parent: The node above.
            kind: The span's type.
            run: The nearest run.
            talk: The transcript that it belongs to.
        """
        self.span, self.parent, self.kind, self.run, self.talk = span, parent, kind, run, talk

    @property
    def context(self) -> SpanContext:
        """OpenTelemetry ids; the same from whatever thread they are first asked for."""
        found = self.ids
        if found is None:
            if self.parent is None:
                found = self.run.span
            else:
                above = self.parent.context
                name = new_id(8) if self.span is None else _otel_span(self.span.span_id)
                found = SpanContext(above.trace_id, name, above.span_id)
            self.ids = found
        return found

    @property
    def began(self) -> int:
        """Microseconds since 1970."""
        return (micros(self.span.started_at) if self.span is not None else None) or now()


class Book:
    """One trace being recorded. Safe from any thread; its methods raise, the observers around it do not."""

    def __init__(
        self,
        recorder: Recorder,
        *,
        owned: bool,
        content: bool,
        trace_id: str,
        root: Node,
        adopted: bool,
        attributes: Mapping[str, Any],
    ) -> None:
        self.recorder, self.owned, self.content, self.trace_id = recorder, owned, content, trace_id
        self.root, self.adopted, self.attributes = root, adopted, dict(attributes)
        self.nodes: dict[str, Node] = {}
        self.done: set[str] = set()
        self.tasks = 0
        self.resumed = False
        """Its trace had ended already and gives no further sign: it ends with its last span."""
        self.withheld = False
        """The run said ``trace_include_sensitive_data=False``."""
        self.closed = False
        self.lock = RLock()

    # ---------------------------------------------------------------- write

    def emit(
        self,
        body: Body,
        node: Node,
        *,
        run: RunHandle | None = None,
        at: int | None = None,
        native: Native | None = None,
        objects: Mapping[Digest, bytes] | None = None,
        given: Brought | None = None,
    ) -> Draft | None:
        """Queue a chunk of a node's run, with its OpenTelemetry ids."""
        return write(
            self.recorder,
            body,
            content=self.content,
            run=run or node.run,
            span=node.context,
            at=at,
            native=native,
            objects=objects,
            given=given,
        )

    # ---------------------------------------------------------------- runs

    def begin(self, node: Node, name: str, type_: str, span_id: str) -> None:
        """Begin a run of a node's own, and make it the ambient one (what a tool runs inside nests under it)."""
        above = node.run
        node.run = self.recorder.begin(
            name, type_, parent=above, native_id=span_id, at=node.began, origin=origin(), attributes=self._marks(node)
        )
        node.ids, node.owns = node.run.span, True
        if not node.late:
            node.tokens = enter(self.recorder, node.run)

    def end(self, node: Node, status: str, error: str | None, at: int | None, **attributes: Any) -> None:
        """End a node's own run."""
        if node.tokens is not None:
            leave(node.tokens)
            node.tokens = None
        self.recorder.end(node.run, status, error=error, at=at, origin=origin(), attributes=attributes)

    def _marks(self, node: Node) -> dict[str, Any]:
        return {"late": True} if node.late else {}

    def finish(self, status: str | None = None) -> None:
        """End the trace: what is still open is marked ``abandoned``; all of it is durable when this returns."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
            for node in reversed(list(self.nodes.values())):
                if node.owns:
                    self.end(node, "abandoned", None, None)
                elif node.span is not None:
                    kind = node.span.span_data.type
                    self.emit(SpanBody(name=kind, status="abandoned", attributes={"span_id": node.span.span_id}), node)
            self.nodes.clear()
            if self.adopted:
                self.emit(SpanBody(name="trace", attributes={"trace_id": self.trace_id, **self.attributes}), self.root)
            else:
                found, error = self.root.failed or ("ok", None)
                self.recorder.end(self.root.run, status or found, error=error, origin=origin())
        if self.owned:
            self.recorder.close()
        else:
            self.recorder.flush()


def write(
    recorder: Recorder,
    body: Body,
    *,
    content: bool = True,
    run: RunHandle | None = None,
    span: SpanContext | None = None,
    at: int | None = None,
    native: Native | None = None,
    objects: Mapping[Digest, bytes] | None = None,
    given: Brought | None = None,
) -> Draft | None:
    """Queue a chunk in an adapter's name; without ``content``, names, times and usage stay."""
    if not content:
        body, native, objects, given = structure_only(body), None, None, None
    return recorder.emit(body, run=run, origin=origin(), span=span, at=at, native=native, objects=objects, given=given)


# ------------------------------------------------------------------ the open books

_books: Final[dict[str, list[Book]]] = {}
_lock = RLock()


@dataclass(frozen=True, slots=True)
class Adopted:
    """A run that `wrap` began for the trace that starts inside it."""

    recorder: Recorder
    talk: Conversation
    run: RunHandle


adopted: Final[ContextVar[Adopted | None]] = ContextVar("rath_openai_agents_adopted", default=None)


def books(trace_id: str) -> Sequence[Book]:
    """Return the open books of a trace: one for each session that records it."""
    return _books.get(trace_id, ())


def open_book(trace: Trace, recorder: Recorder, *, owned: bool, content: bool, late: bool = False) -> tuple[Book, bool]:
    """Open a trace's book, or return the one that another observer of the same session has opened.

    Returns:
        The book, and whether it is new (so that the recorder is the book's to close).
    """
    with _lock:
        for book in _books.get(trace.trace_id, ()):
            if book.recorder is recorder or (book.recorder.store == recorder.store and book.recorder.name == recorder.name):
                return book, False
        attributes = {
            "workflow_name": trace.name,
            "group_id": getattr(trace, "group_id", None),
            "metadata": getattr(trace, "metadata", None),
        }
        kept = {name: plain(value) for name, value in attributes.items() if value}
        given = adopted.get()
        inside = given is not None and given.recorder is recorder
        if given is not None and inside:
            run, talk = given.run, given.talk
        else:
            native_id = trace.trace_id
            group = str(kept.get("group_id") or native_id)
            run = recorder.begin(
                trace.name or "trace", "workflow", parent=current_run() if current_recorder() is recorder else None,
                native_id=native_id, trace_id=_otel_trace(native_id), origin=origin(), attributes=kept | ({"late": True} if late else {}),
                keys=[Key(FRAMEWORK, group, "trace", native_id)],
            )  # fmt: skip
            talk = Conversation(recorder, run)
        root = Node(None, None, "trace", run, talk)
        book = Book(recorder, owned=owned, content=content, trace_id=trace.trace_id, root=root, adopted=inside, attributes=kept)
        _books.setdefault(trace.trace_id, []).append(book)
        return book, True


def drop_book(book: Book) -> None:
    """Forget a book whose trace has ended."""
    with _lock:
        left = [one for one in _books.get(book.trace_id, ()) if one is not book]
        if left:
            _books[book.trace_id] = left
        else:
            _books.pop(book.trace_id, None)


def _after_fork() -> None:
    """In a forked child: a thread that held a lock when the process was forked is not there to release it."""
    global _lock
    _lock = RLock()
    for group in _books.values():
        for book in group:
            book.lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _otel_trace(trace_id: str) -> str:
    """Return the 32 hexadecimal characters of ``trace_<32hex>``, or new ones for an id of another form."""
    tail = trace_id.removeprefix("trace_")
    return tail if _HEX.match(tail) else new_id(16)


def _otel_span(span_id: str) -> str:
    """Return 16 hexadecimal characters that follow from ``span_<24hex>``, or any other id: no two threads make up different ones."""
    return span_id[5:21] if _SPAN.match(span_id) else sha256(span_id.encode(errors="replace")).hexdigest()[:16]
