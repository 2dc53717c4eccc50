"""Chunks to spans: a fold over a line, pure and without OpenTelemetry.

Which chunk is which span: ``run`` (begin and end), ``inference``, ``tool_call`` with its ``tool_result``, ``handoff``, ``guardrail``,
``memory``, and ``span`` chunks that came from elsewhere than a live tracer. ``session`` chunks (fork, detach, import, replay) and
``merge`` are short spans with links, and the next top-level run carries the same links. Approvals, routes, checkpoints, compactions,
errors and gaps are events of their run's span.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, cast

import orjson

from rath_bridge.model.chunk import Chunk, SpanContext
from rath_bridge.model.encoding import TreeRef, decode
from rath_bridge.model.kinds import (
    Approval,
    Compaction,
    Error,
    Gap,
    Guardrail,
    Handoff,
    Inference,
    Memory,
    Merge,
    Message,
    Route,
    Run,
    SessionStart,
    Span,
    ToolCall,
    ToolResult,
    body_of,
)  # fmt: skip
from rath_bridge.model.parts import ToolCallPart, ToolCallResponsePart
from rath_bridge.model.trees import read_list
from rath_bridge.otel import attributes as make
from rath_bridge.otel import content as words
from rath_bridge.otel import names as n
from rath_bridge.otel.opening import Linked, OpenSpan, OpenSpans, hex_id
from rath_bridge.otel.records import SpanEvent, SpanKind, SpanLink, SpanRecord
from rath_bridge.verbs.calling import failed

OWN_TRACER: Final = "otel"
"""Origin of ``span`` chunks that a live tracer made: their own provider exports them, so they are not doubled."""


class SpanFold(OpenSpans):
    """Fed a line's chunks in order, gives the spans that are over."""

    def __init__(self, *, content: bool = False, linked: Linked | None = None) -> None:
        """Begin a line.

        Args:
            content: Put messages, arguments and results into attributes.
            linked: Finds spans of other lines, for the links of a merge or a detached copy.
        """
        super().__init__(linked)
        self._content = content
        self._runs: dict[str, OpenSpan] = {}
        self._calls: dict[tuple[str, str], OpenSpan] = {}
        self._asked: dict[tuple[str, str], tuple[Chunk, OpenSpan | None, ToolCallPart]] = {}
        self._seen: set[tuple[str, str]] = set()
        self._replaying = False
        self._links: tuple[SpanLink, ...] = ()
        self._latest: SpanContext | None = None
        self._said: list[dict[str, Any]] = []
        self._steps: dict[str, Callable[[Chunk, Any, OpenSpan | None], list[SpanRecord]]] = {
            "run": self._run, "message": self._message, "inference": self._inference, "tool_call": self._tool_call,
            "tool_result": self._tool_result, "handoff": self._handoff, "guardrail": self._guardrail, "memory": self._memory,
            "span": self._foreign, "session": self._session, "merge": self._merge, "checkpoint": self._checkpoint,
            **dict.fromkeys(_EVENTS, self._event),
        }  # fmt: skip

    def feed(self, chunk: Chunk) -> list[SpanRecord]:
        """Take the next chunk; returns the spans that ended with it."""
        run = self._runs.get(chunk.run) if chunk.run is not None else None
        if run is not None:
            run.last, run.position = max(run.last, chunk.at), chunk.position
        found = self._step(chunk, run)
        here = self._stands.get(chunk.id) or (run.context if run is not None else self._latest)
        if here is not None:
            self._stands[chunk.id] = self._latest = here
        return found

    def _step(self, chunk: Chunk, run: OpenSpan | None) -> list[SpanRecord]:
        step = self._steps.get(chunk.kind)
        if step is None or (chunk.kind == "message" and not self._content and b'"tool_call' not in (chunk.body_bytes or b"")):
            return []
        body = None
        if chunk.body_bytes is not None:
            load = chunk.load if self._content else None
            body = body_of(chunk.kind, decode(chunk.body_bytes, load, f"chunk {chunk.id[:16]}"), f"chunk {chunk.id[:16]}")
        elif chunk.kind not in ("run", "inference", "tool_call", "tool_result"):
            return []
        return step(chunk, body, run)

    def rest(self) -> list[SpanRecord]:
        """Return what has begun and not ended: calls without a result, then runs, innermost first; they are marked.

        What began before a fork ends on the line that was forked, and is its to tell.
        """
        found: list[SpanRecord] = []
        for call in (one for one in self._calls.values() if not one.elsewhere):
            call.found[n.CALL_STATUS] = "pending"
            found.append(self._close(call, call.last, call.position, None))
        for run in (one for one in reversed(self._runs.values()) if not one.elsewhere):
            if run.found.get(n.RUN_TYPE) != "thread":  # a conversation lasts
                run.found[n.RUN_STATUS] = "open"
            found.append(self._close(run, max(run.last, run.chunk.at), run.position, None))
        self._calls, self._runs = {}, {}
        return found

    # ---------------------------------------------------------------- runs

    def _run(self, chunk: Chunk, body: Any, run: OpenSpan | None) -> list[SpanRecord]:
        body = cast("Run | None", body)
        if body is not None and body.phase == "begin" and chunk.run is not None:
            above = self._runs.get(body.parent) if body.parent else None
            name, kind, found = make.run(body, content=self._content)
            opened = self._begin(chunk, above, name, kind, found, run=chunk.run, above=above, type=body.type or "agent")
            opened.replayed = self._replaying or bool(above and above.replayed) or body.attributes.get("replayed") is True
            self._mark(opened, opened.replayed)
            if above is None:
                opened.links, self._links = self._links, ()
            elif opened.context.trace_id != above.context.trace_id:
                # the enclosing run is a thread, which lasts: a trace of its own, tied by a link
                opened.context = SpanContext(opened.context.trace_id, opened.context.span_id)
                opened.links = (
                    SpanLink(above.context.trace_id, above.context.span_id, {n.LINK: "run", n.CHUNK: above.chunk.id}),
                )
                self._stands[chunk.id] = opened.context
            self._runs[chunk.run] = opened
            return []
        if run is None:
            return []
        del self._runs[cast(str, chunk.run)]
        error = None
        if body is not None:
            make.kept(run.found, body.attributes)
            status = body.status or "ok"
            if status != "ok":
                run.found[n.RUN_STATUS] = status
            if status == "error":
                run.found[n.ERROR_TYPE] = make.error_type(body.error)
                error = make.described(body.error, run.found[n.ERROR_TYPE], content=self._content)
        if run.found.get(n.OPERATION) == "invoke_agent":
            run.found.setdefault(n.PROVIDER, n.OTHER)
        return [self._close(run, chunk.at, chunk.position, error)]

    # ---------------------------------------------------------------- model calls

    def _message(self, chunk: Chunk, body: Any, run: OpenSpan | None) -> list[SpanRecord]:
        body = cast(Message, body)
        if self._content:
            (self._said if run is None else run.said).append(words.message(body))
        if body.same_as or body.replaces:
            return []
        found: list[SpanRecord] = []
        for part in body.parts:
            if isinstance(part, ToolCallPart) and part.id is not None:
                self._asked.setdefault((self._scope(run), part.id), (chunk, run, part))
            elif isinstance(part, ToolCallResponsePart) and part.id is not None:
                found += self._told(chunk, run, part)
        return found

    def _told(self, chunk: Chunk, run: OpenSpan | None, part: ToolCallResponsePart) -> list[SpanRecord]:
        """A call of which only messages tell (nobody saw the tool run): from the question to the answer, marked as inferred."""
        key = (self._scope(run), cast(str, part.id))
        asked = self._asked.pop(key, None)
        if asked is None or key in self._seen:
            return []
        at, under, call = asked
        known = ToolCall(name=call.name, arguments=call.arguments, call_id=call.id, basis="inferred")
        name, kind, found = make.tool_call(known, content=self._content)
        span = self._begin(chunk, under, name, kind, found, own=False)
        self._mark(span, self._replaying or bool(under and under.replayed))
        result = ToolResult(
            call_id=part.id, status="error" if failed(part.extra) else "ok", result=part.response, basis="inferred"
        )
        error = make.tool_result(found, result, content=self._content)
        return [self._close(span, chunk.at, chunk.position, error, at.at)]

    def _inference(self, chunk: Chunk, body: Any, run: OpenSpan | None) -> list[SpanRecord]:
        if body is None:
            return self._moment(chunk, run, ("chat", "client", {n.OPERATION: "chat", n.PROVIDER: n.OTHER}))
        body = cast(Inference, body)
        name, kind, found = make.inference(body)
        replayed = self._replaying or bool(run and run.replayed) or body.attributes.get("replayed") is True
        if self._content:
            make.request_content(
                found, body.request, self._given(chunk, body, run), words.output(body.output, body.finish_reasons)
            )
        above = run
        while above is not None and body.provider:
            if above.found.get(n.OPERATION) == "invoke_agent":
                above.found.setdefault(n.PROVIDER, body.provider)
            above = above.above
        error = None
        if body.error is not None and not {"cancelled", "incomplete"}.intersection(body.finish_reasons):
            found[n.ERROR_TYPE] = make.error_type(body.error)
            error = make.described(body.error, found[n.ERROR_TYPE], content=self._content)
        span = self._begin(chunk, run, name, kind, found)
        self._mark(span, replayed)
        took = round(body.duration * 1e6) if isinstance(body.duration, int | float) and 0 <= body.duration < 1e9 else 0
        return [self._close(span, chunk.at, chunk.position, error, chunk.at - took)]

    def _given(self, chunk: Chunk, body: Inference, run: OpenSpan | None) -> list[dict[str, Any]]:
        """What the model read: the recorded items where they are JSON, else what its run has said so far."""
        if isinstance(body.input, tuple):
            return words.messages(body.input)
        if isinstance(body.input, TreeRef) and chunk.load is not None:
            names = [raw.hex() for raw in read_list(body.input, chunk.load)]
            data = chunk.load(names)
            try:
                return words.messages(orjson.loads(data[name]) for name in names)
            except orjson.JSONDecodeError:
                pass
        return list(self._said if run is None else run.said)

    # ---------------------------------------------------------------- tools

    def _scope(self, run: OpenSpan | None) -> str:
        while run is not None and run.above is not None:
            run = run.above
        return run.run or "" if run is not None else ""

    def _tool_call(self, chunk: Chunk, body: Any, run: OpenSpan | None) -> list[SpanRecord]:
        body = cast(ToolCall, body) if body is not None else ToolCall(name="erased")
        span = self._begin(chunk, run, *make.tool_call(body, content=self._content))
        self._mark(span, self._replaying or bool(run and run.replayed) or body.attributes.get("replayed") is True)
        key = (self._scope(run), str(body.call_id if body.call_id is not None else chunk.id))
        self._seen.add(key)
        before = self._calls.pop(key, None)
        self._calls[key] = span
        if before is None:
            return []
        before.found[n.CALL_STATUS] = "pending"
        return [self._close(before, before.last, chunk.position, None)]

    def _tool_result(self, chunk: Chunk, body: Any, run: OpenSpan | None) -> list[SpanRecord]:
        body = cast(ToolResult, body) if body is not None else ToolResult()
        call = self._calls.pop((self._scope(run), str(body.call_id)), None) if body.call_id is not None else None
        if call is None and chunk.span is not None:
            call = next((c for c in self._calls.values() if c.chunk.span and c.chunk.span.span_id == chunk.span.span_id), None)
            self._calls = {key: value for key, value in self._calls.items() if value is not call}
        if call is None:
            self._seen.add((self._scope(run), str(body.call_id)))
            asked = ToolCall(name=body.name or "unknown", call_id=body.call_id, basis=body.basis)
            call = self._begin(chunk, run, *make.tool_call(asked, content=False))
            self._mark(call, self._replaying or bool(run and run.replayed) or body.attributes.get("replayed") is True)
            call.found["rath.call.unstarted"] = True
        error = make.tool_result(call.found, body, content=self._content)
        if body.attributes.get("replayed") is True and n.REPLAYED not in call.found:
            self._mark(call, True)
        start = call.chunk.at
        if call.chunk.id == chunk.id and isinstance(body.duration, int | float) and 0 <= body.duration < 1e9:
            start -= round(body.duration * 1e6)
        self._stands.setdefault(chunk.id, call.context)
        return [self._close(call, chunk.at, chunk.position, error, start)]

    # ---------------------------------------------------------------- moments

    def _handoff(self, chunk: Chunk, body: Any, run: OpenSpan | None) -> list[SpanRecord]:
        return self._moment(chunk, run, make.handoff(cast(Handoff, body)))

    def _guardrail(self, chunk: Chunk, body: Any, run: OpenSpan | None) -> list[SpanRecord]:
        body = cast(Guardrail, body)
        return self._moment(chunk, run, make.guardrail(body), body.attributes.get("duration"))

    def _memory(self, chunk: Chunk, body: Any, run: OpenSpan | None) -> list[SpanRecord]:
        body = cast(Memory, body)
        return self._moment(chunk, run, make.memory(body, content=self._content), body.attributes.get("duration"))

    def _foreign(self, chunk: Chunk, body: Any, run: OpenSpan | None) -> list[SpanRecord]:
        body = cast(Span, body)
        if chunk.origin is not None and orjson.loads(chunk.origin).get("adapter") == OWN_TRACER:
            return []
        found: dict[str, Any] = {}
        make.kept(found, body.attributes)
        kind: SpanKind = body.span_kind if body.span_kind in ("server", "client", "producer", "consumer") else "internal"
        failed = body.status == "error"
        if failed:
            found.setdefault(n.ERROR_TYPE, n.OTHER)
        return self._moment(
            chunk, run, (make.short(body.name) or "span", kind, found), body.duration, found[n.ERROR_TYPE] if failed else None
        )

    def _event(self, chunk: Chunk, body: Any, run: OpenSpan | None) -> list[SpanRecord]:
        found: dict[str, Any] = {}
        for name in _EVENTS[chunk.kind]:
            value = getattr(body, name)
            make.put(found, f"rath.{chunk.kind}.{name}", len(value) if name == "dropped" else value)
        run = run or next(iter(self._runs.values()), None)  # a saver knows no run: the outermost that goes on
        if run is not None:
            run.events.append(SpanEvent(f"rath.{chunk.kind}", chunk.at, {**found, n.CHUNK: chunk.id}))
            return []
        return [] if chunk.kind == "compaction" else self._moment(chunk, None, (f"rath.{chunk.kind}", "internal", found))

    def _checkpoint(self, chunk: Chunk, body: Any, run: OpenSpan | None) -> list[SpanRecord]:
        if run is not None:
            run.checkpoints += 1
        return []

    # ---------------------------------------------------------------- lineage

    def _session(self, chunk: Chunk, body: Any, run: OpenSpan | None) -> list[SpanRecord]:
        body = cast(SessionStart, body)
        self._conversation = body.name
        self._line = body.name if body.branch == "main" else f"{body.name}@{body.branch}"
        if not self._trace or body.op != "fork":
            self._trace = hex_id(chunk.id[:32], 32)
        self._replaying = body.op == "replay"
        if body.op == "create":
            return []
        for one in (*self._runs.values(), *self._calls.values()):
            one.elsewhere = True
        source = chunk.parents[0] if chunk.parents else body.source
        links = self._link(body.op, source, body.of)
        self._links = links
        found: dict[str, Any] = {n.LINK: body.op}
        make.put(found, n.LINKED_SESSION, body.of)
        return self._moment(chunk, None, (f"rath.{body.op} {self._line}", "internal", found), links=links)

    def _merge(self, chunk: Chunk, body: Any, run: OpenSpan | None) -> list[SpanRecord]:
        body = cast(Merge, body)
        links = (
            *self._link("merge", body.ours, self._line), *self._link("merge", body.theirs, body.of),
            *self._link("merge.base", body.base, None),
        )  # fmt: skip
        self._links = links
        found: dict[str, Any] = {n.LINK: "merge", n.MERGE_STRATEGY: body.strategy}
        make.put(found, n.LINKED_SESSION, body.of)
        return self._moment(chunk, None, (f"rath.merge {self._line}", "internal", found), links=links)


_EVENTS: Final[dict[str, tuple[str, ...]]] = {
    Approval.kind: ("phase", "call_id", "by"), Route.kind: ("router", "chosen", "candidates"), Gap.kind: ("count", "reason"),
    Error.kind: ("type", "where"), Compaction.kind: ("dropped", "reason"),
}  # fmt: skip


def spans(chunks: Iterable[Chunk], *, content: bool = False, linked: Linked | None = None) -> Iterator[SpanRecord]:
    """Yield every span of a line, each as it ends, then what is still open.

    Args:
        chunks: The line, oldest first.
        content: Put messages, arguments and results into attributes.
        linked: Finds spans of other lines.
    """
    fold = SpanFold(content=content, linked=linked)
    for chunk in chunks:
        yield from fold.feed(chunk)
    yield from fold.rest()
