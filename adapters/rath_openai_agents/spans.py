"""What each span becomes: runs, model calls (`calls`), tool calls (`functions`), handoffs, guardrails; all else is kept (`others`).

Content is read from the live attributes (``span_data.response``, ``.input``), since ``export()`` leaves most of it out. A span's type
is ``span_data.type``: ``export()`` shows tasks and turns as ``custom``.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from agents.tracing import Span

from rath_bridge.model.kinds import Guardrail
from rath_openai_agents.book import Book, Node
from rath_openai_agents.calls import emit_call, generation, response
from rath_openai_agents.conversation import Conversation, handoff_bodies
from rath_openai_agents.faults import error_text, micros
from rath_openai_agents.functions import function
from rath_openai_agents.inference import Call, less, usage_of
from rath_openai_agents.items import plain
from rath_openai_agents.marks import failure, marks_of
from rath_openai_agents.others import keep
from rath_openai_agents.place import observed


def start(book: Book, span: Span[Any], *, late: bool = False) -> None:
    """Note that a span has begun; runs are written now, the rest at its end, when it holds its data."""
    with book.lock:
        span_id, nodes, data = span.span_id, book.nodes, span.span_data
        if span_id in nodes or span_id in book.done or book.closed:
            return
        above = nodes.get(span.parent_id or "", book.root)
        kind = data.type
        nodes[span_id] = node = Node(span, above, kind, above.run, above.talk)
        raised = sys.exception()
        if above.agent is not None:
            node.agent, node.turn = above.agent, above.turn
        if raised is not None:
            node.raised = raised
        if late:
            node.late = True
        if kind == "custom":
            return
        if kind == "task":
            _start_task(book, node, span)
        elif kind == "agent":
            node.agent, node.turn = data.name, None
            book.begin(node, data.name, "agent", span.span_id)
        elif kind == "turn":
            node.turn = data.turn
        elif kind == "function":
            above.functions = [*(above.functions or ()), node]
        elif kind in ("response", "generation"):
            node.observed = observed.get() is not None


def _start_task(book: Book, node: Node, span: Span[Any]) -> None:
    """A task right under the trace is the trace's own run; deeper down it is an agent used as a tool."""
    if node.parent is book.root:
        book.tasks += 1
        if book.tasks > 1 or not book.adopted:
            node.talk = Conversation(book.recorder, book.root.run, bounded=True)
            node.talk.go_on_from(book.root.talk)
    else:
        book.begin(node, span.span_data.name, "workflow", span.span_id)
        node.talk = Conversation(book.recorder, node.run, bounded=True)


def end(book: Book, span: Span[Any]) -> None:
    """Write what a span became."""
    with book.lock:
        span_id = span.span_id
        if span_id in book.done:
            return
        if span_id not in book.nodes:
            start(book, span, late=True)
        node = book.nodes.pop(span_id)
        book.done.add(span_id)
        if node.kind == "custom":
            keep(book, node, span)
            return
        node.finished = micros(span.ended_at)
        _ENDS.get(node.kind, keep)(book, node, span)


# ------------------------------------------------------------------ runs


def _run_failure(book: Book, node: Node, span: Span[Any]) -> tuple[str, str | None]:
    """How a run ended; in a streamed run the error may stand on the agent's span alone."""
    status, error = failure(book, node, span)
    if status == "ok" and node.failed is not None:
        status, error = node.failed
    if status != "ok" and node.parent is not None and node.parent.kind in ("task", "trace"):
        node.parent.failed = (status, error)
    return status, error


def _task(book: Book, node: Node, span: Span[Any]) -> None:
    status, error = _run_failure(book, node, span)
    if node.owns:
        book.end(node, status, error, node.finished, usage_total=plain(span.span_data.usage))
    else:
        keep(book, node, span)


def _agent(book: Book, node: Node, span: Span[Any]) -> None:
    status, error = _run_failure(book, node, span)
    data = span.span_data
    about = {"tools": plain(data.tools), "handoffs": plain(data.handoffs), "output_type": data.output_type}
    book.end(node, status, error, node.finished, **{name: value for name, value in about.items() if value})


def _turn(book: Book, node: Node, span: Span[Any]) -> None:
    if node.parent is not None:
        node.parent.turns += 1
    usage = usage_of(span.span_data.usage)
    if usage is not None:  # the turn of an agent that uses this one as a tool counts these tokens as well
        outer = _turn_above(node)
        if outer is not None:
            outer.inner = usage if outer.inner is None else outer.inner + usage
        usage = usage if node.inner is None else less(usage, node.inner)
    if not node.counted and usage is not None and usage.total_tokens:
        unseen = Call(observer="span", agent=node.agent, attributes={"basis": "turn"})
        seen, call = node.held or (Node(None, node, "generation", node.run, node.talk), unseen)
        call.usage = usage
        emit_call(book, seen, call)
    elif node.held is not None:
        emit_call(book, *node.held)
    node.held = None
    keep(book, node, span)


def _turn_above(node: Node) -> Node | None:
    above = node.parent
    while above is not None and above.kind != "turn":
        above = above.parent
    return above


# ------------------------------------------------------------------ handoffs, guardrails


def _handoff(book: Book, node: Node, span: Span[Any]) -> None:
    data = span.span_data
    marks = marks_of(node, span, error=error_text(span.error))
    asked = node.talk.pair_handoff(data.to_agent)
    for body in handoff_bodies(data.from_agent, data.to_agent, asked, marks):
        book.emit(body, node, at=node.finished)


def _guardrail(book: Book, node: Node, span: Span[Any]) -> None:
    above = node.parent
    # plain runs check the input inside the first turn; streamed ones beside it, under the agent, where outputs are checked too
    stage = "input" if above is not None and (above.kind == "turn" or not above.turns) else "output"
    marks = marks_of(node, span, error=failure(book, node, span)[1])
    body = Guardrail(
        name=span.span_data.name,
        stage=stage,
        triggered=span.span_data.triggered,
        output=node.info,
        agent=node.agent,
        attributes=marks,
    )
    book.emit(body, node, at=node.finished)


_ENDS: Final = {
    "task": _task, "agent": _agent, "turn": _turn, "response": response, "generation": generation, "function": function,
    "handoff": _handoff, "guardrail": _guardrail,
}  # fmt: skip
