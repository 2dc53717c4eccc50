"""What each span becomes: runs, model calls, tool calls, handoffs, guardrails; all else a ``span`` chunk.

Content is read from the live attributes (``span_data.response``, ``.input``), since ``export()`` leaves most of it out. A span's type
is ``span_data.type``: ``export()`` shows tasks and turns as ``custom``.
"""

from __future__ import annotations

import sys
from asyncio import CancelledError
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from agents.tracing import Span

from rath_bridge.model.kinds import Guardrail, ToolCall, ToolResult
from rath_bridge.model.kinds import Span as SpanBody
from rath_bridge.recorder import Recorder
from rath_openai_agents.book import Book, Node, write
from rath_openai_agents.chat import items_of, output_of
from rath_openai_agents.conversation import Conversation, Write, handoff_bodies
from rath_openai_agents.faults import describe, error_text, in_flight, micros
from rath_openai_agents.inference import Call, definitions, finish_reason, less, usage_of
from rath_openai_agents.items import NATIVE, dump, item_list, parse, plain
from rath_openai_agents.place import observed


def start(book: Book, span: Span[Any], *, late: bool = False) -> None:
    """Note that a span has begun; runs are written now, the rest at its end, when it holds its data."""
    with book.lock:
        if span.span_id in book.nodes or span.span_id in book.done or book.closed:
            return
        data = span.span_data
        above = (book.nodes.get(span.parent_id) if span.parent_id else None) or book.root
        kind = data.type
        node = Node(span, above, kind, above.run, above.talk)
        raised = sys.exc_info()[1]
        if above.agent is not None:
            node.agent, node.turn = above.agent, above.turn
        if raised is not None:
            node.raised = raised
        if late:
            node.late = True
        book.nodes[span.span_id] = node
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
        if span.span_id in book.done:
            return
        if span.span_id not in book.nodes:
            start(book, span, late=True)
        node = book.nodes.pop(span.span_id)
        book.done.add(span.span_id)
        if node.kind == "custom":
            _other(book, node, span)
            return
        node.finished = micros(span.ended_at)
        _ENDS.get(node.kind, _other)(book, node, span)


def _failure(book: Book, node: Node, span: Span[Any]) -> tuple[str, str | None]:
    error = in_flight(node.raised)
    if error is not None:
        status = "error" if isinstance(error, Exception) and not isinstance(error, CancelledError) else "cancelled"
        # with trace_include_sensitive_data=False, an error's own words are withheld as well
        return status, type(error).__name__ if book.withheld else describe(error)
    text = error_text(span.error)
    return ("error", text) if text else ("ok", None)


def _marks(node: Node, span: Span[Any], **more: Any) -> dict[str, Any]:
    marks = {"span_id": span.span_id, "parent_id": span.parent_id, **more}
    if node.late:
        marks["late"] = True
    return {name: value for name, value in marks.items() if value is not None}


def _withhold(book: Book, marks: dict[str, Any]) -> None:
    """Mark that ``trace_include_sensitive_data=False`` kept content back."""
    book.withheld = True
    marks["content"] = "withheld"


def _seconds(node: Node) -> float | None:
    return None if node.finished is None else (node.finished - node.began) / 1e6


# ------------------------------------------------------------------ runs


def _run_failure(book: Book, node: Node, span: Span[Any]) -> tuple[str, str | None]:
    """How a run ended; in a streamed run the error may stand on the agent's span alone."""
    status, error = _failure(book, node, span)
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
        _other(book, node, span)


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
        _emit_call(book, seen, call)
    elif node.held is not None:
        _emit_call(book, *node.held)
    node.held = None
    _other(book, node, span)


def _turn_above(node: Node) -> Node | None:
    above = node.parent
    while above is not None and above.kind != "turn":
        above = above.parent
    return above


# ------------------------------------------------------------------ model calls


def _response(book: Book, node: Node, span: Span[Any]) -> None:
    if node.observed:
        return
    data = span.span_data
    response = data.response
    call = Call(
        observer="span", agent=node.agent, provider="openai", duration=_seconds(node), error=_failure(book, node, span)[1]
    )
    call.attributes = _marks(node, span)
    call.usage = usage_of(data.usage)
    call.response_id = getattr(data, "_response_id", None)
    if response is None and data.input is None:
        if call.error is None:
            _withhold(book, call.attributes)
        _finish_call(book, node, call)
        return
    items = item_list(data.input) if data.input is not None else []
    call.given = node.talk.take_input(items, writer(book, node), turn=node.turn)
    if response is not None:
        call.output = [dump(item) for item in response.output]
        call.response_id, call.model, call.response_model = response.id, response.model, response.model
        call.usage = usage_of(response.usage) or call.usage
        call.finish = finish_reason(call.output)
        call.request = {"system": plain(response.instructions), "params": _params(response)}
        call.request["tools"] = definitions([dump(tool) for tool in response.tools or ()], call.request_objects)
    _finish_call(book, node, call)
    if response is not None:
        node.talk.take_output(call.output, writer(book, node), name=node.agent, turn=node.turn, finish_reason=call.finish)


def _generation(book: Book, node: Node, span: Span[Any]) -> None:
    if node.observed:
        return
    data = span.span_data
    config = dict(data.model_config or {})
    call = Call(observer="span", agent=node.agent, model=data.model, duration=_seconds(node), error=_failure(book, node, span)[1])
    call.attributes = _marks(node, span)
    call.usage = usage_of(data.usage)
    call.request = {"params": {name: plain(value) for name, value in config.items() if value is not None}}
    if data.input is None and data.output is None:
        if data.usage is not None:
            _withhold(book, call.attributes)
        _finish_call(book, node, call)
        return
    system, items = items_of(data.input or ())
    if system is not None:
        call.request["system"] = system
    call.given = node.talk.take_input(items, writer(book, node), turn=node.turn, exact=False)
    call.output = output_of(data.output or ())
    call.finish = finish_reason(call.output) if call.output else None
    _finish_call(book, node, call)
    if call.output:
        node.talk.take_output(
            call.output, writer(book, node), name=node.agent, turn=node.turn, finish_reason=call.finish, exact=False
        )


def _params(response: Any) -> dict[str, Any]:
    names = (
        "temperature",
        "top_p",
        "max_output_tokens",
        "tool_choice",
        "parallel_tool_calls",
        "truncation",
        "reasoning",
        "service_tier",
    )
    found = {name: getattr(response, name, None) for name in names}
    return {name: plain(value) for name, value in found.items() if value is not None}


def _finish_call(book: Book, node: Node, call: Call) -> None:
    """Write a model call; one without usage waits for its turn's end, which may tell it."""
    turn = node.parent
    if call.usage is None and call.error is None and turn is not None and turn.kind == "turn" and turn.held is None:
        turn.held = node, call
        return
    if turn is not None and call.usage is not None:
        turn.counted = True
    _emit_call(book, node, call)


def _emit_call(book: Book, node: Node, call: Call) -> None:
    body, native, objects = call.chunk()
    if book.emit(body, node, at=node.finished, native=native, objects=objects) is not None and call.given is not None:
        node.talk.saved(call.given)


def writer(book: Book, node: Node) -> Write:
    """Return what writes messages into the transcript that a node belongs to."""

    def write(body: Any, native: Any, objects: Any) -> None:
        book.emit(body, node, run=node.talk.run, native=native, objects=objects)

    return write


# ------------------------------------------------------------------ tools, handoffs, guardrails


def _function(book: Book, node: Node, span: Span[Any]) -> None:
    data = span.span_data
    if node.ended or _waits(node, data, span.error):
        return
    if not node.started:
        _start_function(book, node, span)
    status, error = _failure(book, node, span)
    marks = _marks(node, span)
    basis = None if node.started else "inferred"
    if status == "cancelled":
        body = ToolResult(
            name=data.name, call_id=node.call_id, status="no_response", reason="cancelled", error=error, basis=basis
        )
    else:
        body = ToolResult(
            name=data.name, call_id=node.call_id, status=status, result=plain(data.output), error=error, basis=basis
        )
    book.emit(replace(body, duration=_seconds(node), attributes=marks), node, at=node.finished)


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
                basis=None if node.started else "inferred", attributes=_marks(node, span),
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
    marks = _marks(node, span)
    if data.input is None:
        _withhold(book, marks)
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


def _handoff(book: Book, node: Node, span: Span[Any]) -> None:
    data = span.span_data
    marks = _marks(node, span, error=error_text(span.error))
    asked = node.talk.pair_handoff(data.to_agent)
    for body in handoff_bodies(data.from_agent, data.to_agent, asked, marks):
        book.emit(body, node, at=node.finished)


def _guardrail(book: Book, node: Node, span: Span[Any]) -> None:
    above = node.parent
    # plain runs check the input inside the first turn; streamed ones beside it, under the agent, where outputs are checked too
    stage = "input" if above is not None and (above.kind == "turn" or not above.turns) else "output"
    marks = _marks(node, span, error=_failure(book, node, span)[1])
    body = Guardrail(
        name=span.span_data.name,
        stage=stage,
        triggered=span.span_data.triggered,
        output=node.info,
        agent=node.agent,
        attributes=marks,
    )
    book.emit(body, node, at=node.finished)


# ------------------------------------------------------------------ the rest


def _other(book: Book, node: Node, span: Span[Any]) -> None:
    """Keep a span of any other type with all its attributes: copied now, written up by the recorder's thread."""
    status, error = _failure(book, node, span)
    times = span.started_at, span.ended_at
    ids = span.span_id, span.parent_id
    book.later(partial(_written_up, node.kind, _attributes(span.span_data), status, error, ids, times, node.late), node, times[1])


def _written_up(
    kind: str, about: dict[str, Any], status: str, error: str | None, ids: tuple[str, str | None],
    times: tuple[str | None, str | None], is_late: bool,
) -> SpanBody:  # fmt: skip
    marks: dict[str, Any] = {"span_id": ids[0]}
    if ids[1] is not None:
        marks["parent_id"] = ids[1]
    if error is not None:
        marks["error"] = error
    if is_late:
        marks["late"] = True
    began, ended = micros(times[0]), micros(times[1])
    return _kept(kind, about, status, None if began is None or ended is None else (ended - began) / 1e6, marks)


def late(recorder: Recorder, span: Span[Any], *, content: bool) -> None:
    """Keep a span that ended after its trace: marked, with all its attributes."""
    marks = {"trace_id": span.trace_id, "span_id": span.span_id, "parent_id": span.parent_id, "late": True}
    error = error_text(span.error)
    body = _kept(
        str(span.span_data.type), _attributes(span.span_data), "error" if error else "ok", None, {**marks, "error": error}
    )
    write(recorder, body, content=content, at=micros(span.ended_at))


def _kept(kind: str, about: dict[str, Any], status: str, duration: float | None, marks: dict[str, Any]) -> SpanBody:
    name = str(about.pop("name", kind)) if kind == "custom" else kind
    return SpanBody(
        name=name, status=status, duration=duration, attributes={**marks, "type": kind, **about}, scope="openai_agents"
    )


_names: Final[dict[type[Any], tuple[str, ...]]] = {}


def _attributes(data: Any) -> dict[str, Any]:
    """Copy what a span's data holds, as JSON values."""
    kind: type[Any] = type(data)  # pyright: ignore[reportUnknownVariableType]
    names = _names.get(kind)
    if names is None:
        slots = [name for cls in kind.__mro__ for name in getattr(cls, "__slots__", ())]
        names = _names[kind] = tuple(name for name in slots if not name.startswith("_"))
    found = {name: plain(value) for name in names if (value := getattr(data, name, None)) is not None}
    if data.type in ("turn", "task"):
        found.pop("usage", None)  # a sum of what its model calls say (law 7)
    more: dict[str, Any] = getattr(data, "__dict__", None) or {}
    for name, value in more.items():
        if not name.startswith("_") and value is not None:
            found[name] = plain(value)
    return found


_ENDS: Final = {
    "task": _task, "agent": _agent, "turn": _turn, "response": _response, "generation": _generation, "function": _function,
    "handoff": _handoff, "guardrail": _guardrail,
}  # fmt: skip
