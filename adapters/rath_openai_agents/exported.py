"""One exported trace as chunks: its tree walked in the order of time, each span as the processor would have written it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from rath_bridge.model.chunk import Draft, Native, SpanContext, draft
from rath_bridge.model.digests import Digest, digest
from rath_bridge.model.kinds import Body, Guardrail, Inference, Note, Run, Span, ToolCall, ToolResult, Usage
from rath_bridge.recorder import Recorder
from rath_bridge.session import open_store
from rath_openai_agents.chat import items_of, output_of
from rath_openai_agents.conversation import Conversation, handoff_bodies
from rath_openai_agents.export import CODEC, POSITION, SPAN, TRACE, Entry
from rath_openai_agents.inference import Call, finish_reason, less, usage_of
from rath_openai_agents.items import FRAMEWORK, long_texts, parse, plain, table, to_bytes
from rath_openai_agents.who import origin

_HEX: Final = re.compile(r"[0-9a-f]{32}\Z")


@dataclass(slots=True)
class _Row:
    body: Body
    entry: Entry
    run: str
    at: int | None
    last: bool = False
    """It carries the entry as it came."""
    objects: Mapping[Digest, bytes] | None = None


class Trace:
    """The entries of one trace, and what they become."""

    def __init__(self, trace_id: str, entries: Sequence[Entry]) -> None:
        self.id, self.entries = trace_id, entries
        self.rows: list[_Row] = []
        # an export's transcripts are put together as a live run's are, with nothing taken out of them
        self._recorder = Recorder.late(open_store("memory:"), "export", redactor=None)

    def drafts(self) -> list[Draft]:
        """Return its chunks, in the order of time."""
        own = next((one for one in self.entries if one.kind == TRACE), None)
        spans = [one for one in self.entries if one.kind == SPAN]
        root = own or Entry({}, "", spans[0].position if spans else 0, TRACE, self.id)
        tail = self.id.removeprefix("trace_")
        root.span = SpanContext(tail if _HEX.match(tail) else digest(self.id.encode())[:32], digest(self.id.encode())[:16])
        root.run, root.talk = f"trace-{digest(self.id.encode())[:16]}", self._talk()
        about = {name: plain(root.table.get(name)) for name in ("workflow_name", "group_id", "metadata") if root.table.get(name)}
        name = str(root.table.get("workflow_name") or "trace")
        about |= {POSITION: root.position} if own is not None else {"late": True}  # its start is not in the file
        begin = Run(phase="begin", name=name, type="workflow", native_id=self.id, attributes=about)
        self._write(
            begin, root, at=min((one.began for one in spans if one.began is not None), default=None), last=own is not None
        )
        status, error = self._spans(root, spans)
        for one in self.entries:
            if one is not root and one.kind != SPAN:  # the trace again, or what a later SDK exports
                one.run, one.span = root.run, root.span
                note = Note(text=f"OpenAI Agents {one.kind}", attributes={POSITION: one.position, **_kept(one.table)})
                self._write(note, one, last=True)
        ended = max((one.ended for one in spans if one.ended is not None), default=None)
        self._write(Run(phase="end", name=name, status=status, error=error), root, at=ended)
        return [self._draft(row) for row in self.rows]

    def _draft(self, row: _Row) -> Draft:
        native = None
        objects = dict(row.objects or {})
        if row.last:
            native = Native(FRAMEWORK, "export", CODEC, to_bytes(row.entry.table, row.entry.path))
            objects.update(long_texts(row.entry.table))
        return draft(row.body, run=row.run, origin=origin(), span=row.entry.span, at=row.at, native=native, objects=objects)

    def _talk(self) -> Conversation:
        return Conversation(self._recorder, None, bounded=True)

    def _write(self, body: Body, entry: Entry, *, at: int | None = None, last: bool = False, **more: Any) -> None:
        self.rows.append(_Row(body, entry, entry.run, at, last, **more))

    # ---------------------------------------------------------------- the tree

    def _spans(self, root: Entry, spans: Sequence[Entry]) -> tuple[str, str | None]:
        """Walk the tree in the order of time, without recursion; returns how the trace ended."""
        known: dict[str, Entry] = {}
        for one in spans:
            known.setdefault(one.id, one)
        for one in spans:
            above = known.get(one.parent) if one.parent is not None else None
            one.above = root if above is None or above is one or known[one.id] is not one else above
            one.above.below.append(one)
        failed: tuple[str, str | None] = ("ok", None)
        seen: set[int] = set()
        for top in (*_ordered(root.below), *spans):  # what is left after the tree are circles, which some file may hold
            waiting = [top] if id(top) not in seen else []
            if waiting:
                top.above = root
            while waiting:
                one = waiting.pop()
                if id(one) in seen:
                    self._end(one)
                    continue
                seen.add(id(one))
                self._begin(one, root)
                waiting.append(one)
                waiting += reversed([child for child in _ordered(one.below) if id(child) not in seen])
            if top.error is not None and top.type in ("task", "agent"):
                failed = ("error", top.error)
        return failed

    def _begin(self, one: Entry, root: Entry) -> None:
        above = one.above or root
        above = above if above.run else root
        assert root.span is not None
        one.span = SpanContext(root.span.trace_id, digest(f"{self.id}/{one.id}".encode())[:16], above.span and above.span.span_id)
        one.run, one.talk, one.agent, one.turn = above.run, above.talk, above.agent, above.turn
        if one.type == "task":
            one.talk = self._talk()
            if above is not root:
                self._run(one, str(one.data.get("name") or "task"), "workflow")
        elif one.type == "agent":
            one.agent, one.turn = str(one.data.get("name") or "agent"), None
            self._run(one, one.agent, "agent")
        elif one.type == "turn":
            turn = one.data.get("turn")
            one.turn = turn if type(turn) is int else None
        elif one.type == "function":
            self._function(one)

    def _run(self, one: Entry, name: str, kind: str) -> None:
        above, one.run, one.owns = one.run, f"span-{digest(f'{self.id}/{one.id}'.encode())[:16]}", True
        self._write(Run(phase="begin", name=name, type=kind, parent=above, native_id=one.id), one, at=one.began)

    def _end(self, one: Entry) -> None:
        status = "ok" if one.error is None else "error"
        if one.owns:
            about = {
                name: plain(one.data.get(name)) for name in ("tools", "handoffs", "output_type", "usage") if one.data.get(name)
            }
            name = str(one.data.get("name") or one.type)
            body = Run(phase="end", name=name, status=status, error=one.error, attributes={POSITION: one.position, **about})
            self._write(body, one, at=one.ended, last=True)
        elif one.type in ("generation", "response"):
            self._call(one)
        elif one.type == "function":
            result = ToolResult(
                name=str(one.data.get("name") or ""), call_id=one.call_id, status=status, result=one.data.get("output"),
                error=one.error, duration=one.seconds, basis="inferred", attributes=one.marks(),
            )  # fmt: skip
            self._write(result, one, at=one.ended, last=True)
        elif one.type == "handoff":
            self._handoff(one)
        elif one.type == "guardrail":
            body = Guardrail(
                name=str(one.data.get("name") or ""), stage=_stage(one), triggered=bool(one.data.get("triggered")),
                agent=one.agent, attributes=one.marks(error=one.error),
            )  # fmt: skip
            self._write(body, one, at=one.ended, last=True)
        else:
            if one.type == "turn":
                self._turn(one)
            self._other(one)

    # ---------------------------------------------------------------- what spans become

    def _call(self, one: Entry) -> None:
        data, talk = one.data, one.talk
        assert talk is not None
        call = Call(observer="span", agent=one.agent, model=data.get("model"), duration=one.seconds, error=one.error)
        call.attributes, call.usage = one.marks(), usage_of(data.get("usage"))
        settings = {name: plain(value) for name, value in table(data.get("model_config")).items() if value is not None}
        call.request = {"params": settings} if settings else {}
        if one.type == "response":
            call.provider, call.response_id = "openai", data.get("response_id")
            call.attributes["content"] = "not exported"
        write = self._writer(one)
        if data.get("input"):
            system, items = items_of(data["input"])
            call.request |= {"system": system} if system is not None else {}
            call.given = talk.take_input(items, write, turn=one.turn, exact=False)
            talk.saved(call.given)
        if data.get("output"):
            call.output = output_of(data["output"])
            call.finish = finish_reason(call.output)
        self._counted(one, call)
        if call.output:
            talk.take_output(call.output, write, name=one.agent, turn=one.turn, finish_reason=call.finish, exact=False)

    def _counted(self, one: Entry, call: Call) -> None:
        """Write a model call; one that tells no usage may learn it from its turn."""
        turn = _turn_of(one)
        body, _, objects = call.chunk()
        self._write(body, one, at=one.ended, last=True, objects=objects)
        if turn is not None and call.usage is None and turn.held is None and one.above is turn:
            turn.held = len(self.rows) - 1
        self._used(turn, call.usage)

    def _used(self, turn: Entry | None, usage: Usage | None) -> None:
        if turn is not None and usage is not None:
            turn.used = usage if turn.used is None else turn.used + usage

    def _turn(self, one: Entry) -> None:
        """Count what a turn used beyond the model calls that were exported."""
        usage = usage_of(one.data.get("usage")) if isinstance(one.data.get("usage"), Mapping) else None
        left = usage if usage is None or one.used is None else less(usage, one.used)
        if left is not None and (left.total_tokens or 0) > 0:
            if one.held is not None:
                self.rows[one.held].body = replace(cast(Inference, self.rows[one.held].body), usage=left)
            else:
                body = Inference(observer="span", agent=one.agent, usage=left, attributes={"basis": "turn"})
                self._write(body, one, at=one.ended)
            self._used(one, left)
        self._used(_turn_of(one), one.used)

    def _function(self, one: Entry) -> None:
        assert one.talk is not None
        data, name = one.data, str(one.data.get("name") or "")
        asked = one.talk.pair(name, parse(data.get("input")), any_arguments=data.get("input") is None)
        one.call_id = asked.call_id if asked is not None else one.id
        served = table(data.get("mcp_data"))
        server = served.get("server")
        marks = {name: value for name, value in one.marks().items() if name != POSITION}
        if data.get("input") is None:
            marks["content"] = "withheld"
        body = ToolCall(
            name=name, arguments=parse(data.get("input")), call_id=one.call_id, type="mcp" if served else "function",
            server=server if isinstance(server, str) else None, agent=one.agent, basis="inferred", attributes=marks,
        )  # fmt: skip
        self._write(body, one, at=one.began)

    def _handoff(self, one: Entry) -> None:
        assert one.talk is not None
        to = one.data.get("to_agent")
        bodies = handoff_bodies(one.data.get("from_agent"), to, one.talk.pair_handoff(to), one.marks(error=one.error))
        for body in bodies:
            self._write(body, one, at=one.ended, last=body is bodies[0])

    def _other(self, one: Entry) -> None:
        rest = {name: plain(value) for name, value in one.data.items() if name not in ("type", "sdk_span_type")}
        name = str(rest.pop("name", None) or one.type) if one.type == "custom" else one.type
        marks = one.marks(type=one.type, error=one.error)
        status = "ok" if one.error is None else "error"
        body = Span(name=name, status=status, duration=one.seconds, attributes={**rest, **marks}, scope="openai_agents")
        self._write(body, one, at=one.ended, last=True)

    def _writer(self, one: Entry) -> Any:
        run = _home_run(one)

        def write(body: Body, native: Native | None, objects: Mapping[Digest, bytes] | None) -> None:
            self.rows.append(_Row(body, one, run, one.ended, objects=objects))

        return write


def _home_run(one: Entry) -> str:
    """The run that a transcript belongs to: the trace's, or that of the agent used as a tool."""
    found = one
    while found.above is not None and found.above.talk is one.talk:
        found = found.above
    return found.run


def _ordered(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda one: (one.began is None, one.began or 0, one.position))


def _turn_of(one: Entry) -> Entry | None:
    above = one.above
    while above is not None and above.type != "turn":
        above = above.above
    return above


def _stage(one: Entry) -> str:
    """Plain runs check the input inside the first turn; streamed ones beside it, under the agent, where outputs are checked too."""
    above = one.above
    if above is None or above.type == "turn":
        return "input"
    done = any(other.type == "turn" and (other.ended or 0) <= (one.began or 0) for other in above.below)
    return "output" if done else "input"


def _kept(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plain(value) for name, value in found.items() if name != POSITION}


__all__ = ["Trace"]
