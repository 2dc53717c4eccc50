"""Audit questions, answered from the record with the chunks that show it.

Which line gave the final answer, and what it rests on; who approved what; what failed and was tried again; what each agent spent; what
compaction dropped; which effects are unconfirmed. Everything that the head descends from counts, merged lines too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zipfile import BadZipFile

import orjson

from rath_bridge.errors import MissingSessionError, PacketError, RathError, in_words
from rath_bridge.evidence import layout
from rath_bridge.evidence.contents import packet_chunks
from rath_bridge.evidence.gathered import Gathered, Shown
from rath_bridge.evidence.order import parents_first
from rath_bridge.evidence.reading import open_files
from rath_bridge.given import check_session
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import ToolResult
from rath_bridge.session import Session
from rath_bridge.verbs.calling import Told, told
from rath_bridge.verbs.inert import one_line
from rath_bridge.verbs.words import body_words, counted, summary

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
    check_session(session, "audit")
    reader = session.store.backend
    return answers(parents_first(session.head, reader, set()), session.head)


def audit_packet(path: str | os.PathLike[str], name: str | None = None) -> list[Answer]:
    """Answer them from a packet alone. Verify it first: what is asked here is what the packet says.

    Args:
        path: Directory or archive.
        name: ``ticket`` or ``ticket@branch``; may be left out where the packet holds one alone.

    Raises:
        MissingSessionError: The packet holds no such session.
        PacketError: It cannot be read, or holds several and none was named.
    """
    try:
        files = open_files(Path(path))
    except PacketError as error:
        raise PacketError(f"{path} cannot be asked: {error}") from error
    try:
        with files.open(layout.MANIFEST) as file:
            heads: dict[str, Digest] = orjson.loads(file.read(layout.MAX_DOCUMENT))["heads"]
        if name is None and len(heads) > 1:
            raise PacketError(f"{path} holds several sessions, name one: {', '.join(map(one_line, heads))}")
        name = next(iter(heads), "") if name is None else name
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
        raise PacketError(f"{path} cannot be asked ({in_words(error)}): check it with rath-bridge verify") from error
    finally:
        files.close()


def answers(chunks: Iterable[Chunk], head: Digest) -> list[Answer]:
    """Fold a history, parents first, into answers.

    Args:
        chunks: Everything that ``head`` descends from, each once.
        head: The last chunk of the line that is asked about.
    """
    fold = _Asked()
    for chunk in chunks:
        fold.feed(chunk)
    fold.finish(head)
    return [_answered(name, question, [*rows(fold), *fold.gone(name)]) for name, question, rows in _QUESTIONS]


def _answered(name: str, question: str, rows: Sequence[Row]) -> Answer:
    return Answer(name, question, tuple(rows[:_SHOWN]), max(0, len(rows) - _SHOWN))


class _Asked(Gathered):
    """Answers, once all is gathered."""

    def final_answer(self) -> Iterator[Row]:
        found = self._last_said(self.said)
        if found is None:
            yield Row("No assistant has said anything on this line.")
            return
        merged = "what the merge wrote, no assistant has spoken since: " if found.id in self.blocks else ""
        yield Row(merged + summary(found).removeprefix("merge: " if merged else ""), (found.id,))
        yield Row(f"on the line {self.branches.get(found.id) or '?'}", (found.id,))
        yield from self._merged(found)
        if found.id not in self.blocks:
            yield from self._rests_on(found, self.line)
            return
        there = set(self.blocks[found.id])
        theirs = next((c for c in reversed(self.said) if c.id in there), None)
        if theirs is not None:
            yield Row(f"it stands for what was said on {self.branches.get(theirs.id) or '?'}: {summary(theirs)}", (theirs.id,))
            yield from self._rests_on(theirs, self._line_of(theirs.id))
        ours = self._last_said([c for c in self.said if c.id not in self.blocks])
        if ours is not None:
            yield Row(f"before it, this line said: {summary(ours)}", (ours.id,))
            yield from self._rests_on(ours, self.line)

    def _last_said(self, said: Sequence[Chunk]) -> Chunk | None:
        return next((c for c in reversed(said) if c.id in self.line and c.id not in self.dropped), None)

    def _line_of(self, head: Digest) -> set[Digest]:
        found: set[Digest] = set()
        at: Digest | None = head
        while at is not None:
            found.add(at)
            at = self.above.get(at)
        return found

    def _merged(self, answer: Chunk) -> Iterator[Row]:
        """What was folded into the line last, and whether the answer came after it."""
        last = next((found for name, found in reversed(self.merges.items()) if name in self.line), None)
        if last is not None:
            chunk, body = last
            when = "after" if answer.position > chunk.position else "before"
            of, strategy = _inert(str(body.get("of"))), _inert(str(body.get("strategy")))
            yield Row(f"{when} the merge of {of} (strategy {strategy})", (chunk.id,))

    def _rests_on(self, found: Chunk, line: set[Digest]) -> Iterator[Row]:
        who = self.agent(found.run) or found.values.get("name")
        why = "it was said outside of any run" if found.run is None else "the beginning of its run is not on record"
        yield Row(f"by {_inert(str(who))}" if who else f"no agent is named: {why}", (found.id,))
        scope = self.scope(found.run)
        position = found.position
        before = [one for one in self.inferences if one[0].id in line and one[0].position < position and one[0].run is not None]
        inside = [one for one in before if self.scope(one[0].run) == scope] if scope else []
        for chunk, facts in inside[-1:]:
            agent = f" for {_inert(str(facts['agent']))}" if facts["agent"] else ""
            yield Row(f"the last model call before it: {_inert(str(facts['model'] or 'a model'))}{agent}", (chunk.id,))
        for one in self.calls:
            inside_it = scope and one.call.scope == scope and one.ended is not None and one.ended.id in line
            if inside_it and one.ended is not None and one.ended.position < position:
                yield Row(f"a call before it in the same run: {_inert(one.call.name)} ({one.call.status})", one.evidence)

    def approved(self) -> Iterator[Row]:
        for chunk in self.approvals:
            yield Row(summary(chunk), (chunk.id,))

    def failed(self) -> Iterator[Row]:
        ended = {(name, one.call.call_id): one for one in self.calls for name in (*one.call.extra, one.call.ended) if name}
        answered = {(one.call.answered, one.call.call_id) for one in self.calls if one.call.result is not None}
        for chunk, one in self.failures:
            if one is not None:
                if (chunk.id, str(one.id)) in answered:  # a result of its own tells it, too
                    continue
                call = ended.get((chunk.id, str(one.id)))
                name = call.call.name if call is not None else one.name
                text = _answer(chunk, one, name) if one.what == "answered" else summary(chunk)
                yield self._failed_call(chunk, text, call)
            elif chunk.kind == "inference":
                later = (c for c, _ in self.inferences if c.run == chunk.run and c.position > chunk.position)
                again = next(later, None)
                after = "; the model was called again" if again is not None else "; the model was not called again in this run"
                yield Row(summary(chunk) + after, (chunk.id, *((again.id,) if again is not None else ())))
            else:
                yield Row(summary(chunk), (chunk.id,))

    def _failed_call(self, chunk: Chunk, text: str, call: Shown | None) -> Row:
        if call is None:
            return Row(text, (chunk.id,))
        again = self._retry(chunk, call)
        if again is None:
            return Row(f"{text}; not tried again with the same arguments", (chunk.id,))
        shown = tuple(name for name in (again.call.begun, again.call.ended) if name is not None)
        return Row(f"{text}; tried again: {again.call.status}", (chunk.id, *shown))

    def _retry(self, chunk: Chunk, call: Shown) -> Shown | None:
        for one in self.calls:
            same = one is not call and one.call.name == call.call.name and one.arguments == call.arguments
            if same and one.begun is not None and one.begun.position > chunk.position:
                return one
        return None

    def costs(self) -> Iterator[Row]:
        for name, one in sorted(self.spent.items(), key=lambda item: (-item[1].input - item[1].output, item[0])):
            cost = "" if one.cost is None else f", {one.cost:.4f} USD as reported"
            calls = f"{one.calls} model call{'' if one.calls == 1 else 's'}"
            models = ", ".join(map(_inert, sorted(one.models)))
            tokens = f"{one.input} tokens in, {one.output} out" if one.told else "usage not on record"
            some = f"; {one.told} of {one.calls} model calls report usage" if 0 < one.told < one.calls else ""
            yield Row(f"{_inert(name)}: {tokens}, {calls} ({models}){cost}{some}", tuple(one.evidence[:_IDS]))

    def compacted(self) -> Iterator[Row]:
        for chunk, dropped in self.compactions:
            yield Row(summary(chunk), (chunk.id, *dropped[: _IDS - 1]))

    def unconfirmed(self) -> Iterator[Row]:
        for one in self.calls:
            if one.effect in ("pure", "reads") or one.call.status in ("ok", "error") or self._resumed(one):
                continue
            if one.call.status == "no_response":
                why = f"closed without a response ({_inert(one.reason or 'no reason told')})"
            elif one.call.started is not None:
                why = "it was started and has no result"
            else:
                why = "it was asked for; nothing tells whether it ran"
            yield Row(f"{_inert(one.call.name or 'a call')}: {why}", one.evidence)

    def _resumed(self, call: Shown) -> bool:
        """Whether a call that was interrupted (a tool that asked a person) was begun again under its id, and is over."""
        if call.reason != "interrupted" or call.ended is None:
            return False
        at = call.ended.position
        return any(
            (one.call.call_id, one.call.name, one.arguments) == (call.call.call_id, call.call.name, call.arguments)
            and one.begun is not None and one.begun.position > at and one.call.status in ("ok", "error")
            for one in self.calls
        )  # fmt: skip

    def gone(self, question: str) -> Iterator[Row]:
        """What was erased of what a question asks about: an answer that is silent about it would seem whole."""
        for kind in _ASKED_OF[question]:
            found = self.erased.get(kind, [])
            if found:
                rest = "nothing is known of it" if len(found) == 1 else "nothing is known of them"
                yield Row(f"{counted(len(found), _KINDS[kind])} erased: {rest}", tuple(found[:_IDS]))


_ASKED_OF: Final = {
    "final_answer": ("message",), "approvals": ("approval",), "failures": ("tool_result", "error"), "spending": ("inference",),
    "compaction": ("compaction",), "unconfirmed": ("tool_call", "tool_result"),
}  # fmt: skip
_KINDS: Final = {
    "message": "message", "approval": "approval", "tool_result": "tool result", "error": "error", "inference": "model call",
    "compaction": "compaction", "tool_call": "tool call",
}  # fmt: skip
_QUESTIONS: Final = (
    ("final_answer", "Which line gave the final answer, and what does it rest on?", _Asked.final_answer),
    ("approvals", "Who approved what?", _Asked.approved),
    ("failures", "What failed, and was it tried again?", _Asked.failed),
    ("spending", "What did each agent spend?", _Asked.costs),
    ("compaction", "What did compaction drop?", _Asked.compacted),
    ("unconfirmed", "Which effects are unconfirmed?", _Asked.unconfirmed),
)


def _answer(chunk: Chunk, one: Told, name: str) -> str:
    """An answer in a message, told as a result of its own would be; long texts are read in."""
    try:
        said = next(found for found in told(chunk.kind, chunk.values) if found.what == one.what and str(found.id) == str(one.id))
    except (RathError, StopIteration):
        return summary(chunk)
    return body_words(ToolResult(name=name or None, status=said.status, result=said.value))


def _inert(text: str) -> str:
    return one_line(text, 120)
