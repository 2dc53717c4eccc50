"""Model calls as their spans show them: responses and generations, each written once, with its usage.

A call is written at its span's end; one that tells no usage waits for its turn's end, which may tell it.
"""

from __future__ import annotations

from typing import Any

from agents.tracing import Span

from rath_openai_agents.book import Book, Node
from rath_openai_agents.chat import items_of, output_of
from rath_openai_agents.conversation import Write
from rath_openai_agents.inference import Call, definitions, finish_reason, usage_of
from rath_openai_agents.items import dump, item_list, plain
from rath_openai_agents.marks import failure, marks_of, seconds, withhold


def response(book: Book, node: Node, span: Span[Any]) -> None:
    """Write the model call of a response span."""
    if node.observed:
        return
    data = span.span_data
    response = data.response
    call = Call(observer="span", agent=node.agent, provider="openai", duration=seconds(node), error=failure(book, node, span)[1])
    call.attributes = marks_of(node, span)
    call.usage = usage_of(data.usage)
    call.response_id = getattr(data, "_response_id", None)
    if response is None and data.input is None:
        if call.error is None:
            withhold(book, call.attributes)
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


def generation(book: Book, node: Node, span: Span[Any]) -> None:
    """Write the model call of a generation span."""
    if node.observed:
        return
    data = span.span_data
    config = dict(data.model_config or {})
    call = Call(observer="span", agent=node.agent, model=data.model, duration=seconds(node), error=failure(book, node, span)[1])
    call.attributes = marks_of(node, span)
    call.usage = usage_of(data.usage)
    call.request = {"params": {name: plain(value) for name, value in config.items() if value is not None}}
    if data.input is None and data.output is None:
        if data.usage is not None:
            withhold(book, call.attributes)
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
    emit_call(book, node, call)


def emit_call(book: Book, node: Node, call: Call) -> None:
    """Write a model call; its input counts as said from then on."""
    body, native, objects = call.chunk()
    written = book.emit(body, node, at=node.finished, native=native, objects=objects, given=call.given)
    if written is not None and call.given is not None:
        node.talk.saved(call.given)


def writer(book: Book, node: Node) -> Write:
    """Return what writes messages into the transcript that a node belongs to."""

    def write(body: Any, native: Any, objects: Any) -> None:
        book.emit(body, node, run=node.talk.run, native=native, objects=objects)

    return write
