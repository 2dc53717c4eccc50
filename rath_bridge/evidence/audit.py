"""Audit questions, answered from the record with the chunks that show it.

Which line gave the final answer, and what it rests on; who approved what; what failed and was tried again; what each agent spent; what
compaction dropped; which effects are unconfirmed. Everything that the head descends from counts, merged lines too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast
from zipfile import BadZipFile

import orjson

from rath_bridge.errors import MissingSessionError, PacketError
from rath_bridge.evidence import layout
from rath_bridge.evidence.contents import packet_chunks
from rath_bridge.evidence.order import parents_first
from rath_bridge.evidence.reading import open_files
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest, digest
from rath_bridge.session import Session
from rath_bridge.verbs.inert import one_line
from rath_bridge.verbs.words import summary

_SHOWN: Final = 200
"""Rows that an answer lists."""
_IDS: Final = 12
"""Chunks that a row names."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of an answer."""

    text: str
    """Inert: safe to print."""
    evidence: tuple[Digest, ...] = ()
    """The chunks that show it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One question, answered."""

    name: str
    """A short name for scripts: ``final_answer``, ``approvals`` ..."""
    question: str
    rows: tuple[Row, ...]
    left: int = 0
    """Rows beyond those that are listed."""


def audit(session: Session) -> list[Answer]:
    """Answer every audit question about a session."""
    reader = session.store.backend
    return answers(parents_first(session.head, reader, set()), session.head)


def audit_packet(path: str | os.PathLike[str], name: str) -> list[Answer]:
    """Answer them from a packet alone. Verify it first: what is asked here is what the packet says.

    Args:
        path: Directory or archive.
        name: ``ticket`` or ``ticket@branch``.

    Raises:
        MissingSessionError: The packet holds no such session.
        PacketError: It cannot be read.
    """
    files = open_files(Path(path))
    try:
        with files.open(layout.MANIFEST) as file:
            heads: dict[str, Digest] = orjson.loads(file.read(layout.MAX_DOCUMENT))["heads"]
        if name not in heads:
            raise MissingSessionError(name, list(heads))
        above = {chunk.id: chunk.parents for chunk in packet_chunks(files, bodies=False)}
        wanted: set[Digest] = set()
        waiting = [heads[name]]
        while waiting:
            one = waiting.pop()
            if one not in wanted:
                wanted.add(one)
                waiting += above[one]
        return answers((chunk for chunk in packet_chunks(files) if chunk.id in wanted), heads[name])
    except (KeyError, TypeError, ValueError, AttributeError, OSError, BadZipFile) as error:
        raise PacketError(f"{path} cannot be asked ({error!r}): check it with rath-bridge verify") from error
    finally:
        files.close()


def answers(chunks: Iterable[Chunk], head: Digest) -> list[Answer]:
    """Fold a history, parents first, into answers.

    Args:
        chunks: Everything that ``head`` descends from, each once.
        head: The last chunk of the line that is asked about.
    """
    fold = _Fold()
    for chunk in chunks:
        fold.feed(chunk)
    fold.finish(head)
    return [_answer(name, question, list(rows(fold))) for name, question, rows in _QUESTIONS]


def _answer(name: str, question: str, rows: Sequence[Row]) -> Answer:
    return Answer(name, question, tuple(rows[:_SHOWN]), max(0, len(rows) - _SHOWN))


@dataclass(slots=True)
class _Call:
    name: str
    scope: str
    asked: Chunk | None = None
    started: Chunk | None = None
    result: Chunk | None = None
    status: str = "pending"
    effect: str | None = None
    arguments: Digest | None = None
    reason: str | None = None


@dataclass(slots=True)
class _Spent:
    calls: int = 0
    input: int = 0
    output: int = 0
    cost: float | None = None
    models: set[str] = field(default_factory=set[str])
    evidence: list[Digest] = field(default_factory=list[Digest])


class _Fold:
    def __init__(self) -> None:
        self.runs: dict[str, tuple[str, str | None]] = {}
        """Id to name and enclosing run."""
        self.above: dict[Digest, Digest] = {}
        self.branches: dict[Digest, str] = {}
        self.said: list[Chunk] = []
        """Messages of assistants that say something."""
        self.inferences: list[tuple[Chunk, dict[str, Any]]] = []
        self.calls: dict[tuple[str, str], _Call] = {}
        self.scopes: dict[str, dict[str, None]] = {}
        """Where each call id was used, in order."""
        self.over: list[_Call] = []
        self.approvals: list[Chunk] = []
        self.failures: list[Chunk] = []
        self.compactions: list[tuple[Chunk, list[Digest]]] = []
        self.dropped: set[Digest] = set()
        self.spent: dict[str, _Spent] = {}
        self.line: set[Digest] = set()

    # ---------------------------------------------------------------- feeding

    def feed(self, chunk: Chunk) -> None:
        if chunk.parents:
            self.above[chunk.id] = chunk.parents[0]
            self.branches[chunk.id] = self.branches.get(chunk.parents[0], "")
        if chunk.body_bytes is None:
            return
        take = _TAKE.get(chunk.kind)
        if take is not None:
            value: Any = orjson.loads(chunk.body_bytes)
            take(self, chunk, cast("dict[str, Any]", value) if type(value) is dict else {})

    def finish(self, head: Digest) -> None:
        at: Digest | None = head
        while at is not None:
            self.line.add(at)
            at = self.above.get(at)
        self.over += self.calls.values()

    def scope(self, run: str | None) -> str:
        seen = 0
        while run is not None and run in self.runs and self.runs[run][1] is not None and seen < 100:
            run, seen = self.runs[run][1], seen + 1
        return run or ""

    def agent(self, run: str | None) -> str:
        return self.runs[run][0] if run in self.runs else "outside of any run"

    def session(self, chunk: Chunk, body: dict[str, Any]) -> None:
        name, branch = str(body.get("name")), str(body.get("branch", "main"))
        self.branches[chunk.id] = name if branch == "main" else f"{name}@{branch}"

    def run(self, chunk: Chunk, body: dict[str, Any]) -> None:
        if body.get("phase") == "begin" and chunk.run is not None:
            parent: Any = body.get("parent")
            self.runs[chunk.run] = (str(body.get("name")), parent if isinstance(parent, str) else None)
        elif body.get("status") in ("error", "abandoned"):
            self.failures.append(chunk)

    def message(self, chunk: Chunk, body: dict[str, Any]) -> None:
        parts = [cast("dict[str, Any]", part) for part in _list(body.get("parts")) if type(part) is dict]
        if body.get("role") == "assistant" and any(part.get("type") == "text" and part.get("content") for part in parts):
            self.said.append(chunk)
        if body.get("same_as") or body.get("replaces"):
            return
        for part in parts:
            name = part.get("id")
            if name is None:
                continue
            if part.get("type") == "tool_call":
                call = self._open(chunk, str(name), str(part.get("name")), again="asked")
                call.asked = chunk
                call.arguments = _sum(part.get("arguments"))
            elif part.get("type") == "tool_call_response":
                found = self.calls.get((self.scope(chunk.run), str(name)))
                if found is not None and found.status == "pending":
                    found.status, found.result = "error" if part.get("is_error") else "ok", chunk

    def tool_call(self, chunk: Chunk, body: dict[str, Any]) -> None:
        if body.get("call_id") is not None:
            call = self._open(chunk, str(body["call_id"]), str(body.get("name")), again="started")
            call.started, call.effect, call.arguments = chunk, body.get("effect"), _sum(body.get("arguments"))

    def tool_result(self, chunk: Chunk, body: dict[str, Any]) -> None:
        status = str(body.get("status", "ok"))
        if status == "error":
            self.failures.append(chunk)
        if body.get("call_id") is not None:
            call = self._open(chunk, str(body["call_id"]), str(body.get("name") or ""), again="")
            call.result, call.status, call.reason = chunk, status, body.get("reason")

    def _open(self, chunk: Chunk, name: str, tool: str, *, again: str) -> _Call:
        key = (self.scope(chunk.run), name)
        call = self.calls.get(key)
        if call is not None and not (again and getattr(call, again) is not None):
            return call
        if call is not None:  # the id is used again: another call
            self.over.append(call)
        elif again != "asked":  # asked in an earlier run, carried out in this one
            for old in self.scopes.get(name, ()):
                before = self.calls.get((old, name))
                if before is not None and before.status == "pending" and (before.name == tool or not tool):
                    del self.calls[old, name]
                    self.calls[key] = before
                    self.scopes[name][key[0]] = None
                    return before
        call = self.calls[key] = _Call(tool, key[0])
        self.scopes.setdefault(name, {})[key[0]] = None
        return call

    def inference(self, chunk: Chunk, body: dict[str, Any]) -> None:
        self.inferences.append((chunk, {"model": body.get("response_model") or body.get("model"), "agent": body.get("agent")}))
        if body.get("error"):
            self.failures.append(chunk)
        spent = self.spent.setdefault(str(body.get("agent") or self.agent(chunk.run)), _Spent())
        spent.calls += 1
        spent.models.add(str(body.get("response_model") or body.get("model") or "a model"))
        spent.evidence.append(chunk.id)
        usage: Any = body.get("usage")
        if type(usage) is dict:
            found = cast("dict[str, Any]", usage)
            spent.input += _number(found.get("input_tokens"))
            spent.output += _number(found.get("output_tokens"))
            cost = found.get("cost_usd")
            if isinstance(cost, int | float):
                spent.cost = (spent.cost or 0) + cost

    def approval(self, chunk: Chunk, _: dict[str, Any]) -> None:
        self.approvals.append(chunk)

    def compaction(self, chunk: Chunk, body: dict[str, Any]) -> None:
        dropped = [str(name) for name in _list(body.get("dropped"))]
        self.dropped.update(dropped)
        self.compactions.append((chunk, dropped))

    def error(self, chunk: Chunk, _: dict[str, Any]) -> None:
        self.failures.append(chunk)

    # ---------------------------------------------------------------- answers

    def final_answer(self) -> Iterator[Row]:
        found = next((c for c in reversed(self.said) if c.id in self.line and c.id not in self.dropped), None)
        if found is None:
            yield Row("No assistant has said anything on this line.")
            return
        yield Row(summary(found), (found.id,))
        yield Row(f"on the line {self.branches.get(found.id) or '?'}", (found.id,))
        yield Row(f"by {_inert(self.agent(found.run))}", (found.id,))
        scope = self.scope(found.run)
        position = found.position
        before = [
            one for one in self.inferences if one[0].id in self.line and one[0].position < position and one[0].run is not None
        ]
        inside = [one for one in before if self.scope(one[0].run) == scope] if scope else []
        for chunk, facts in inside[-1:]:
            agent = f" for {_inert(str(facts['agent']))}" if facts["agent"] else ""
            yield Row(f"the last model call before it: {_inert(str(facts['model'] or 'a model'))}{agent}", (chunk.id,))
        rests = [
            call for call in self.over
            if scope and call.scope == scope and call.result is not None and call.result.id in self.line and call.result.position < position
        ]  # fmt: skip
        for call in rests:
            assert call.result is not None
            shown = tuple(c.id for c in (call.asked, call.started, call.result) if c is not None)
            yield Row(f"a call before it in the same run: {_inert(call.name)} ({call.status})", shown)

    def approved(self) -> Iterator[Row]:
        for chunk in self.approvals:
            yield Row(summary(chunk), (chunk.id,))

    def failed(self) -> Iterator[Row]:
        ended = {call.result.id: call for call in self.over if call.result is not None}
        for chunk in self.failures:
            text = summary(chunk)
            call = ended.get(chunk.id)
            if call is not None:
                again = self._retry(chunk, call)
                if again is None:
                    yield Row(f"{text}; not tried again with the same arguments", (chunk.id,))
                else:
                    shown = tuple(c.id for c in (again.started or again.asked, again.result) if c is not None)
                    yield Row(f"{text}; tried again: {again.status}", (chunk.id, *shown))
            elif chunk.kind == "inference":
                later = (c for c, _ in self.inferences if c.run == chunk.run and c.position > chunk.position)
                again = next(later, None)
                told = "; the model was called again" if again is not None else "; the model was not called again in this run"
                yield Row(text + told, (chunk.id, *((again.id,) if again is not None else ())))
            else:
                yield Row(text, (chunk.id,))

    def _retry(self, chunk: Chunk, call: _Call) -> _Call | None:
        for one in self.over:
            begun = one.started or one.asked
            same = one is not call and one.name == call.name and one.arguments == call.arguments
            if same and begun is not None and begun.position > chunk.position:
                return one
        return None

    def costs(self) -> Iterator[Row]:
        for name, one in sorted(self.spent.items(), key=lambda item: (-item[1].input - item[1].output, item[0])):
            cost = "" if one.cost is None else f", {one.cost:.4f} USD as reported"
            calls = f"{one.calls} model call{'' if one.calls == 1 else 's'}"
            models = ", ".join(map(_inert, sorted(one.models)))
            yield Row(
                f"{_inert(name)}: {one.input} tokens in, {one.output} out, {calls} ({models}){cost}", tuple(one.evidence[:_IDS])
            )

    def compacted(self) -> Iterator[Row]:
        for chunk, dropped in self.compactions:
            yield Row(summary(chunk), (chunk.id, *dropped[: _IDS - 1]))

    def unconfirmed(self) -> Iterator[Row]:
        for call in self.over:
            if call.effect in ("pure", "reads") or call.status in ("ok", "error"):
                continue
            shown = tuple(c.id for c in (call.asked, call.started, call.result) if c is not None)
            if call.status == "no_response":
                why = f"closed without a response ({_inert(call.reason or 'no reason told')})"
            elif call.started is not None:
                why = "it was started and has no result"
            else:
                why = "it was asked for; nothing tells whether it ran"
            yield Row(f"{_inert(call.name or 'a call')}: {why}", shown)


_TAKE: Final[Mapping[str, Any]] = {
    "session": _Fold.session, "run": _Fold.run, "message": _Fold.message, "tool_call": _Fold.tool_call, "error": _Fold.error,
    "tool_result": _Fold.tool_result, "inference": _Fold.inference, "approval": _Fold.approval, "compaction": _Fold.compaction,
}  # fmt: skip
_QUESTIONS: Final = (
    ("final_answer", "Which line gave the final answer, and what does it rest on?", _Fold.final_answer),
    ("approvals", "Who approved what?", _Fold.approved),
    ("failures", "What failed, and was it tried again?", _Fold.failed),
    ("spending", "What did each agent spend?", _Fold.costs),
    ("compaction", "What did compaction drop?", _Fold.compacted),
    ("unconfirmed", "Which effects are unconfirmed?", _Fold.unconfirmed),
)


def _sum(value: Any) -> Digest:
    return digest(orjson.dumps(value, option=orjson.OPT_SORT_KEYS))


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _number(value: Any) -> int:
    return value if type(value) is int else 0


def _inert(text: str) -> str:
    return one_line(text, 120)
