"""Spans to chunks: one place for every vocabulary, in the order in which things happened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rath_bridge.interchange.natives import to_bytes
from rath_bridge.interchange.otlp_spans import Raw
from rath_bridge.model.chunk import Draft, Native, SpanContext, draft
from rath_bridge.model.digests import Digest, digest
from rath_bridge.model.encoding import TreeRef
from rath_bridge.model.kinds import Body, Guardrail, Handoff, Inference, Memory, Message, Run, Span, ToolCall, ToolResult
from rath_bridge.model.parts import TextPart, part_to_json
from rath_bridge.model.trees import Tree, list_tree
from rath_bridge.otel import content as words
from rath_bridge.otel import names as n
from rath_bridge.otel.records import attribute
from rath_bridge.otel.values import listed
from rath_bridge.otel.vocabulary import CALLS, RUNS, Operation, Said

FRAMEWORK: Final = "otlp"


@dataclass(slots=True)
class _Node:
    """A span among its relatives."""

    raw: Raw
    above: _Node | None = None
    run: _Node | None = None
    """The nearest run that it stands in."""
    talk: _Node | None = None
    """The run to whose transcript a model call belongs: the nearest agent's, else the outermost."""
    operation: Operation | None = None
    children: list[_Node] = field(default_factory=list["_Node"])
    begin: int = 0
    end: int = 0
    fed: bool = False
    """A model call below it tells its messages."""
    head: bool = False
    """The first of its resource and scope: it keeps what stands around it."""
    again: list[Raw] = field(default_factory=list[Raw])
    """The same span where it stands in the file once more; kept for the way home."""
    doer: _Node | None = None
    """The nearest around it that has an operation."""
    agent: _Node | None = None
    """The nearest agent's run around it."""
    outer: _Node | None = None
    """The outermost run around it."""

    @property
    def is_run(self) -> bool:
        return self.operation is not None and self.operation.name in RUNS

    @property
    def is_call(self) -> bool:
        return self.operation is not None and self.operation.name in CALLS


@dataclass(slots=True)
class _Talk:
    """What a transcript holds so far."""

    known: list[str] = field(default_factory=list[str])
    tree: Tree | None = None


def drafts(raws: Sequence[Raw]) -> list[Draft]:
    """Translate spans.

    Args:
        raws: In file order; a span that stands there twice counts once.
    """
    order = list(_walk(_tree(raws)))
    _heads(order)
    talks: dict[tuple[str, str], _Talk] = {}
    found: list[Draft] = []
    for node, opening in order:
        found += _opening(node, talks) if opening else _closing(node, talks)
    return found


# ------------------------------------------------------------------ order


def _tree(raws: Sequence[Raw]) -> list[_Node]:
    nodes: dict[tuple[str, str], _Node] = {}
    for raw in raws:
        if raw.key in nodes:
            nodes[raw.key].again.append(raw)
        else:
            nodes[raw.key] = _Node(raw, operation=raw.operation)
    roots: list[_Node] = []
    for node in nodes.values():
        above = nodes.get((node.raw.trace_id, node.raw.parent_id)) if node.raw.parent_id is not None else None
        if above is None or above is node:
            roots.append(node)
        else:
            node.above = above
            above.children.append(node)
    reached = {id(node) for root in roots for node in _below(root)}
    for node in nodes.values():  # parents that go round in a circle
        if id(node) not in reached:
            if node.above is not None:
                node.above.children.remove(node)
            node.above = None
            roots.append(node)
            reached.update(id(one) for one in _below(node))
    return roots


def _below(root: _Node) -> Iterator[_Node]:
    stack, seen = [root], {id(root)}
    while stack:
        node = stack.pop()
        yield node
        for child in node.children:
            if id(child) not in seen:
                seen.add(id(child))
                stack.append(child)


def _walk(roots: list[_Node]) -> list[tuple[_Node, bool]]:
    """Return each span's beginning and end by time; at one moment, as they nest."""
    moments: list[tuple[int, int, _Node, bool]] = []
    stack = [(node, True) for node in sorted(roots, key=lambda one: -one.raw.start)]
    while stack:
        node, opening = stack.pop()
        if opening:
            _place(node)
            stack.append((node, False))
            stack += [(child, True) for child in sorted(node.children, key=lambda one: -one.raw.start)]
        moments.append((node.begin if opening else node.end, len(moments), node, opening))
    return [(node, opening) for _, _, node, opening in sorted(moments, key=lambda one: one[:2])]


def _place(node: _Node) -> None:
    """Find where a span stands; what two observers tell of one call counts once (law 7), the outer one wins."""
    above, raw = node.above, node.raw
    low, high = (above.begin, above.end) if above is not None else (0, max(raw.start, raw.end))
    node.begin = min(max(raw.start, low), high)
    node.end = max(node.begin, min(raw.end, high))
    if above is None:
        return
    node.run = above if above.is_run else above.run
    doer = node.doer = above.doer if above.operation is None else above
    if above.is_run:
        agentic = above.operation is not None and above.operation.name == "invoke_agent"
        node.agent, node.outer = above if agentic else above.agent, above.outer or above
    else:
        node.agent, node.outer = above.agent, above.outer
    if doer is not None and doer.operation is not None and node.operation is not None:
        mine, other = node.operation, doer.operation
        if node.is_call and doer.is_call:
            doer.operation = replace(
                other, usage=other.usage or mine.usage, given=other.given or mine.given, said=other.said or mine.said
            )
            node.operation = None
        elif mine.name == other.name == "execute_tool" and mine.subject == other.subject:
            doer.operation = replace(other, mcp=other.mcp or mine.mcp)
            node.operation = None
    if node.is_call:
        talk = node.talk = node.agent or node.outer
        if talk is not None and node.operation is not None and (node.operation.given or node.operation.said):
            talk.fed = True


def _heads(order: Sequence[tuple[_Node, bool]]) -> None:
    seen: set[tuple[int, ...]] = set()
    for node, opening in order:
        if opening == (node.is_run or (node.operation is not None and node.operation.name in ("execute_tool", "mcp"))):
            node.head = node.raw.place[:3] not in seen
            seen.add(node.raw.place[:3])


# ------------------------------------------------------------------ chunks


def _make(node: _Node, body: Body, at: int, *, own: bool = False, run: str | None = None, objects: Any = None) -> Draft:
    """A draft of a span; its ``own`` chunk keeps the span as it stands in the file."""
    raw = node.raw
    native = None
    if own:
        kept: dict[str, Any] = {"at": list(raw.place), "span": raw.span}
        if node.head:
            kept |= {"resource": raw.around[0], "scope": raw.around[1]}
        if node.again:
            kept["again"] = [
                {"at": list(one.place), "span": one.span, "resource": one.around[0], "scope": one.around[1]} for one in node.again
            ]
        native = Native(FRAMEWORK, "1", "json", to_bytes(kept))
    origin = {"adapter": FRAMEWORK, "framework": raw.scope, "version": raw.version}
    return draft(
        body, run=run or (node.run.raw.span_id if node.run is not None else None), at=at, native=native, objects=objects,
        origin={key: attribute(value) for key, value in origin.items() if value},
        span=SpanContext(raw.trace_id, raw.span_id, raw.parent_id),
    )  # fmt: skip


def _opening(node: _Node, talks: dict[tuple[str, str], _Talk]) -> list[Draft]:
    told, raw = node.operation, node.raw
    if told is None:
        return []
    if node.is_run:
        body = Run(
            phase="begin", name=told.subject or raw.name, type=RUNS[told.name], native_id=raw.span_id, tools=told.tools,
            parent=node.run.raw.span_id if node.run is not None else None,
            system_instructions=told.system if isinstance(told.system, str) else None,
        )  # fmt: skip
        return [_make(node, body, raw.start, own=True, run=raw.span_id), *_asked(node, told)]
    if node.is_call:
        return _new_messages(node, told.given, raw.start, talks)
    if told.name in ("execute_tool", "mcp"):
        kind = ("mcp" if told.name == "execute_tool" else "mcp.request") if told.mcp else told.tool_type or "function"
        body = ToolCall(
            name=told.subject or raw.name, arguments=told.input, call_id=told.call_id or raw.span_id, type=kind, agent=told.agent,
            attributes=told.mcp,
        )  # fmt: skip
        return [_make(node, body, raw.start, own=True)]
    return []


def _closing(node: _Node, talks: dict[tuple[str, str], _Talk]) -> list[Draft]:
    told, raw = node.operation, node.raw
    if told is None:
        return [_make(node, _span(raw), raw.end, own=True)]
    if node.is_run:
        status = raw.attributes.get(n.RUN_STATUS)
        found = status if isinstance(status, str) else "ok" if raw.error is None else "error"
        body = Run(phase="end", name=told.subject or raw.name, status=found, error=raw.error)
        return [*_answered(node, told), _make(node, body, raw.end, run=raw.span_id)]
    if node.is_call:
        return _inference(node, told, talks)
    duration = max(0, raw.end - raw.start) / 1e6
    if told.name in ("execute_tool", "mcp"):
        body = ToolResult(
            name=told.subject or raw.name, call_id=told.call_id or raw.span_id, status="ok" if raw.error is None else "error",
            result=told.output, error=raw.error, duration=duration,
            attributes={} if told.error_type is None else {n.ERROR_TYPE: told.error_type},
        )  # fmt: skip
        return [_make(node, body, raw.end)]
    about: dict[str, Any] = {n.OPERATION: told.name, "duration": duration}
    if told.name == "retrieval" or told.name.endswith(("_memory", "_memory_store")):
        output: Any = told.output
        items: tuple[Any, ...] = tuple(listed(output)) if isinstance(output, list) else () if output is None else (output,)
        op = "recall" if told.name in ("retrieval", "search_memory") else "commit"
        return [
            _make(node, Memory(op=op, store=told.subject, query=told.input, items=items, attributes=about), raw.end, own=True)
        ]
    if told.name == "handoff":
        giver = raw.attributes.get(n.HANDOFF_FROM)
        passed = Handoff(from_agent=giver if isinstance(giver, str) else None, to_agent=told.subject, call_id=told.call_id)
        return [_make(node, passed, raw.end, own=True)]
    if told.name == "guardrail":
        triggered, stage = raw.attributes.get(n.GUARDRAIL_TRIGGERED), raw.attributes.get(n.GUARDRAIL_STAGE)
        body = Guardrail(
            name=told.subject or raw.name, triggered=triggered if isinstance(triggered, bool) else None, output=told.output,
            agent=told.agent, stage=stage if isinstance(stage, str) else None, attributes={"duration": duration},
        )  # fmt: skip
        return [_make(node, body, raw.end, own=True)]
    return [_make(node, _span(raw), raw.end, own=True)]


def _span(raw: Raw) -> Span:
    return Span(
        name=raw.name, span_kind=raw.kind, status=None if raw.error is None else "error", duration=max(0, raw.end - raw.start) / 1e6,
        attributes=raw.attributes, links=raw.links, scope=raw.scope or None, resource=raw.resource,
        events=tuple({"name": name, "at": at, "attributes": about} for name, at, about in raw.events),
    )  # fmt: skip


# ------------------------------------------------------------------ messages


def _message(one: Said, finish: str | None = None, basis: str | None = None) -> Message:
    return Message(role=one.role, parts=one.parts, name=one.name, finish_reason=one.finish_reason or finish, basis=basis)


def _asked(node: _Node, told: Operation) -> list[Draft]:
    """What a run was asked, where no model call below it tells."""
    if node.fed:
        return []
    found = told.given or (_told("user", told.input) if node.run is None else ())
    basis = None if told.given else "inferred"
    return [_make(node, _message(one, basis=basis), node.raw.start, run=node.raw.span_id) for one in found]


def _answered(node: _Node, told: Operation) -> list[Draft]:
    if node.fed:
        return []
    found = told.said or (_told("assistant", told.output) if node.run is None else ())
    basis = None if told.said else "inferred"
    return [_make(node, _message(one, basis=basis), node.raw.end, run=node.raw.span_id) for one in found]


def _told(role: str, value: Any) -> tuple[Said, ...]:
    if value is None or value == "":
        return ()
    text = value if isinstance(value, str) else words.json_text(value)
    return (Said(role=role, parts=(TextPart(text),)),)


def _talk(node: _Node, talks: dict[tuple[str, str], _Talk]) -> tuple[_Talk, str | None]:
    owner = node.talk
    key = owner.raw.key if owner is not None else ("", "")
    return talks.setdefault(key, _Talk()), owner.raw.span_id if owner is not None else None


def _new_messages(node: _Node, given: Sequence[Said], at: int, talks: dict[tuple[str, str], _Talk]) -> list[Draft]:
    """The messages that the transcript does not hold yet: one message, once, however many calls read it (law 12)."""
    talk, run = _talk(node, talks)
    keys = [words.json_text(one.json) for one in given]
    fresh = _overlap(talk.known, keys)
    talk.known += keys[fresh:]
    return [_make(node, _message(one), at, run=run) for one in given[fresh:]]


def _overlap(known: Sequence[str], keys: Sequence[str]) -> int:
    """How many of the first ``keys`` are the last ones of ``known`` (a window may have been trimmed), or all of it."""
    if len(keys) >= len(known) and list(keys[: len(known)]) == list(known):
        return len(known)
    for size in range(min(len(known), len(keys)), 0, -1):
        if known[-size] == keys[0] and list(known[-size:]) == list(keys[:size]):
            return size
    return 0


def _inference(node: _Node, told: Operation, talks: dict[tuple[str, str], _Talk]) -> list[Draft]:
    talk, run = _talk(node, talks)
    ref: TreeRef | None = None
    objects: dict[Digest, bytes] = {}
    if told.given:
        items = [to_bytes(one.json) for one in told.given]
        named = {digest(item): item for item in items}
        talk.tree, nodes = list_tree([bytes.fromhex(digest(item)) for item in items], talk.tree)
        ref, objects = talk.tree.ref, {**named, **nodes}
    request: dict[str, Any] = {"params": told.params, "system": told.system, "tools": list(told.tools)}
    body = Inference(
        provider=told.provider, model=told.model, response_model=told.response_model, observer="span", agent=told.agent,
        request={name: value for name, value in request.items() if value}, input=ref, streamed=told.streamed,
        output=tuple(part_to_json(part) for one in told.said for part in one.parts), response_id=told.response_id,
        finish_reasons=told.finish_reasons, usage=told.usage, time_to_first_chunk=told.first_chunk,
        duration=max(0, node.raw.end - node.raw.start) / 1e6, error=node.raw.error,
        attributes={} if told.name == "chat" else {n.OPERATION: told.name},
    )  # fmt: skip
    reason = told.finish_reasons[0] if told.finish_reasons else None
    talk.known += [words.json_text(one.json) for one in told.said]
    own = _make(node, body, node.raw.end, own=True, objects=objects)
    return [own, *(_make(node, _message(one, reason), node.raw.end, run=run) for one in told.said)]
