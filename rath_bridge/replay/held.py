"""What a record holds, whichever framework made it: its chunks, its tool calls by name and arguments, and what is missing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import orjson

from rath_bridge.errors import RathError
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.model.encoding import dumps, escape
from rath_bridge.model.kinds import Gap, Inference, Message, Redaction, Run, ToolCall, ToolResult, Usage
from rath_bridge.model.parts import ToolCallPart, ToolCallResponsePart
from rath_bridge.model.reaching import Memo, body_references, reach
from rath_bridge.redaction import DEFAULT
from rath_bridge.replay.effects import from_annotations
from rath_bridge.session import Session, Store
from rath_bridge.store.protocol import Backend
from rath_bridge.verbs.inert import one_line
from rath_bridge.verbs.transcript import Call, calls
from rath_bridge.verbs.words import call_words, counted, summary, value_words


@dataclass(frozen=True, slots=True, eq=False)
class HeldCall:
    """A tool call of the record."""

    name: str
    key: bytes
    """Its arguments in canonical form."""
    chunks: tuple[Digest, ...]
    """Every chunk that tells of it."""
    position: int
    """Of the first of them."""
    effect: str | None
    """As recorded."""
    value: Any
    """Its result in neutral form."""
    status: str
    """``ok``, ``error``, ``no_response`` or ``pending``: of the last two, nobody knows whether it was done."""
    end: Digest | None
    """The chunk that carries the result."""
    run: str | None
    started: bool
    """A tool began to run; where not, a model has only asked for it."""
    asked: bool = False
    """A model has asked for it, by an id that is the same in a replay."""

    @property
    def unknown(self) -> bool:
        """Its intent is on record, its result is not."""
        return self.status in ("pending", "no_response") and self.started


@dataclass(slots=True)
class Held:
    """A record, read once."""

    session: Session
    chunks: list[Chunk]
    by_id: dict[Digest, Chunk]
    calls: list[HeldCall]
    after: int = -1
    unreadable: set[Digest] = field(default_factory=set[Digest])
    """Chunks that were erased, or that stand on something that is gone."""
    _by_chunk: dict[Digest, HeldCall] = field(default_factory=dict[Digest, HeldCall])
    _same: dict[tuple[str, bytes], list[HeldCall]] = field(default_factory=dict[tuple[str, bytes], list[HeldCall]])

    @classmethod
    def of(cls, session: Session, after: int = -1) -> Held:
        """Read a session; what cannot be read is left out and told.

        Args:
            session: The record.
            after: What is replayed begins behind this position.
        """
        chunks = list(session.chunks())
        unreadable: set[Digest] = set()
        for chunk in chunks:
            try:
                _ = chunk.body
            except RathError:
                unreadable.add(chunk.id)
        held = cls(session, chunks, {chunk.id: chunk for chunk in chunks}, [], after, unreadable)
        held._pair()
        return held

    @property
    def readable(self) -> Session:
        """The session without what cannot be read, and without what was said and done before the replay begins, for whoever reads a
        record as it is: equal calls of an earlier run are not this one's.
        """
        before = {c.id for c in self.chunks[: self.after + 1] if c.kind not in ("session", "run")}
        if not self.unreadable and not before:
            return self.session
        one = self.session
        return Session(
            Store(cast(Backend, _Sieve(one.store.kept, self.unreadable | before))),
            one.session,
            one.branch,
            one.head,
            one.position,
        )

    def sift(self) -> None:
        """Look at all that every chunk stands on, too, and leave out those of which something is gone."""
        seen, fetch = Memo(1 << 62), self.session.store.kept.objects
        for chunk in self.chunks:
            if chunk.body_bytes is None or b'"digest"' not in chunk.body_bytes:
                continue
            if any(reached.data is None for reached in reach(body_references(orjson.loads(chunk.body_bytes)), fetch, seen)):
                self.unreadable.add(chunk.id)
                seen = Memo(1 << 62)  # what is gone must be met again by the next chunk that stands on it
        self._pair()

    @property
    def faults(self) -> tuple[str, ...]:
        """What is missing: gaps, erased contents, lost blobs; why the record cannot be replayed whole."""
        mine = [chunk for chunk in self.chunks if chunk.position > self.after]
        erased = sum(chunk.body_bytes is None for chunk in mine)
        broken = [chunk for chunk in mine if chunk.id in self.unreadable and chunk.body_bytes is not None]
        parts = self._erased_below(broken)
        lost = len(broken) - parts
        gaps = sum(cast(Gap, c.body).count for c in mine if c.kind == "gap" and c.id not in self.unreadable)
        told = [
            f"the contents of {counted(erased, 'chunk')} were erased" if erased else "",
            f"{counted(parts, 'chunk')} cannot be read whole: what they stand on was erased" if parts else "",
            f"{counted(lost, 'chunk')} cannot be read whole: what they stand on is gone (rath-bridge fsck lists it)"
            if lost
            else "",
            f"{counted(gaps, 'thing')} that happened are not on record (gaps)" if gaps else "",
        ]
        return tuple(filter(None, told))

    def _erased_below(self, broken: Sequence[Chunk]) -> int:
        """Count the chunks of which redactions on record name all that is gone below them."""
        told = {name for c in self.chunks if c.kind == "redaction" and c.id not in self.unreadable
                for name in cast(Redaction, c.body).objects}  # fmt: skip
        found = 0
        for chunk in broken if told else ():
            references = body_references(orjson.loads(chunk.body_bytes or b"null"))
            gone = {
                one.reference.digest for one in reach(references, self.session.store.kept.objects, Memo()) if one.data is None
            }
            found += bool(gone) and gone <= told
        return found

    def _pair(self) -> None:
        self.calls = _calls([chunk for chunk in self.chunks if chunk.id not in self.unreadable])
        self._by_chunk = {name: call for call in self.calls for name in call.chunks}
        self._same = {}
        for call in self.calls:
            self._same.setdefault((call.name, call.key), []).append(call)

    def same(self, name: str, arguments: Any) -> Sequence[HeldCall]:
        """Return the calls of a tool with these arguments, in the order of the record."""
        return self._same.get((name, arguments_key(arguments)), ())

    def call_at(self, chunk: Digest | None) -> HeldCall | None:
        """Return the call that a chunk tells of; of a message that answers several, the first."""
        return None if chunk is None else self._by_chunk.get(chunk)

    def words(self, chunk: Digest) -> str:
        """Return in words which call a chunk tells of: ``pay(n=5)``, ``model call of Writer: "3 left"``."""
        call, found = self.call_at(chunk), self.by_id[chunk]
        if call is not None:
            return call_words(call.name, orjson.loads(call.key)["a"] or None)
        if found.kind != "inference" or found.id in self.unreadable:
            return summary(found)
        body = cast(Inference, found.body)
        said = ", ".join(_said(body.output))
        return f"model call{f' of {one_line(body.agent, 80)}' if body.agent else ''}{f': {one_line(said, 100)}' if said else ''}"

    def position(self, chunk: Digest | None) -> int | None:
        """Return a chunk's place on the line."""
        found = None if chunk is None else self.by_id.get(chunk)
        return None if found is None else found.position

    def spent(self, chunk: Digest | None) -> Usage | None:
        """Return what a recorded model call has cost."""
        found = None if chunk is None else self.by_id.get(chunk)
        if found is None or found.kind != "inference" or found.id in self.unreadable:
            return None
        return cast(Inference, found.body).usage


class _Sieve:
    """A store through which some chunks are not seen."""

    def __init__(self, below: Backend, left_out: Collection[Digest]) -> None:
        self._below, self._left_out = below, left_out

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)

    def line(self, head: Digest, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        return (chunk for chunk in self._below.line(head, start, stop) if chunk.id not in self._left_out)


def arguments_key(arguments: Any) -> bytes:
    """Return arguments in canonical form, secrets redacted as the record has them; nothing at all is the same as no arguments."""
    return dumps(escape({"a": DEFAULT.apply(arguments) or {}}, {}))


def _said(output: Any) -> Iterator[str]:
    """What a model answered, in words: texts and calls, in neutral parts or in items of the framework's own."""
    if isinstance(output, list | tuple):
        for one in cast("Sequence[Any]", output):
            yield from _said(one)
    elif isinstance(output, Mapping):
        item = cast("Mapping[str, Any]", output)
        if item.get("type") in ("tool_call", "function_call"):
            yield call_words(str(item.get("name")), item.get("arguments"))
        else:
            text = item.get("text") or item.get("content")
            yield from _said(text) if isinstance(text, list | tuple) else [value_words(text, 60)] if text else []


def _calls(chunks: Sequence[Chunk]) -> list[HeldCall]:
    by_id = {chunk.id: chunk for chunk in chunks}
    hints = _hints(chunks)
    return [_held(call, by_id, hints) for call in calls(chunks)]


def _held(call: Call, by_id: Mapping[Digest, Chunk], hints: Mapping[str, str]) -> HeldCall:
    started = cast(ToolCall, by_id[call.started].body) if call.started else None
    arguments: Any = started.arguments if started is not None else None
    if started is None and call.asked is not None:
        for part in cast(Message, by_id[call.asked].body).parts:
            if isinstance(part, ToolCallPart) and part.id == call.call_id:
                arguments = part.arguments
    value: Any = None
    if call.result is not None:
        result = cast(ToolResult, by_id[call.result].body)
        value = result.result if result.result is not None or result.error is None else result.error
    elif call.answered is not None:
        for part in cast(Message, by_id[call.answered].body).parts:
            if isinstance(part, ToolCallResponsePart) and part.id == call.call_id:
                value = part.response
    told = tuple(name for name in (call.started, call.result, call.answered) if name is not None)
    first = by_id[told[0] if told else cast(Digest, call.asked)]
    return HeldCall(
        name=call.name, key=arguments_key(arguments), chunks=told, position=first.position,
        effect=(started.effect if started else None) or hints.get(call.name), value=value, status=call.status,
        end=call.result or call.answered, run=first.run, started=call.started is not None, asked=call.asked is not None,
    )  # fmt: skip


def _hints(chunks: Sequence[Chunk]) -> dict[str, str]:
    """Return what servers told of their tools: ``annotations`` in the definitions that runs began with."""
    found: dict[str, str] = {}
    for chunk in chunks:
        if chunk.kind == "run" and b'"readOnlyHint"' in (chunk.body_bytes or b""):
            for tool in cast(Run, chunk.body).tools:
                if isinstance(tool, Mapping):
                    definition = cast("Mapping[str, Any]", tool)
                    told = from_annotations(definition.get("annotations"))
                    if told is not None:
                        found[str(definition.get("name"))] = told
    return found
