"""What a record holds, whichever framework made it: its chunks, its tool calls by name and arguments, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from rath_bridge.errors import MissingSessionError, RathError
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.model.encoding import dumps, escape
from rath_bridge.model.kinds import Inference, Message, Run, ToolCall, ToolResult, Usage
from rath_bridge.model.parts import ToolCallPart, ToolCallResponsePart
from rath_bridge.redaction import DEFAULT
from rath_bridge.replay.effects import from_annotations
from rath_bridge.session import Session
from rath_bridge.verbs.transcript import Call, calls


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
    faults: tuple[str, ...]
    """What is missing: gaps, erased contents, lost blobs; why the record cannot be replayed whole."""
    _by_chunk: dict[Digest, HeldCall] = field(default_factory=dict[Digest, HeldCall])

    @classmethod
    def of(cls, session: Session, after: int = -1) -> Held:
        """Read a session; what cannot be read is left out and told.

        Args:
            session: The record.
            after: What is replayed begins behind this position.
        """
        if session.store.backend.ref(session.session, session.branch) is None:
            raise MissingSessionError(session.name)
        chunks = list(session.chunks())
        readable: list[Chunk] = []
        erased = lost = gaps = 0
        for chunk in chunks:
            if chunk.body_bytes is None:
                erased += chunk.position > after
                continue
            try:
                body = chunk.body
            except RathError:
                lost += 1
                continue
            if chunk.kind == "gap" and chunk.position > after:
                gaps += int(getattr(body, "count", 1))
            readable.append(chunk)
        told = [
            f"the contents of {_counted(erased, 'chunk')} were erased" if erased else "",
            f"{_counted(lost, 'chunk')} cannot be read: what they stand on is gone (rath-bridge fsck lists it)" if lost else "",
            f"{_counted(gaps, 'thing')} that happened are not on record (gaps)" if gaps else "",
        ]
        held = cls(session, chunks, {chunk.id: chunk for chunk in chunks}, _calls(readable), tuple(filter(None, told)))
        held._by_chunk = {name: call for call in held.calls for name in call.chunks}
        return held

    def call_at(self, chunk: Digest | None) -> HeldCall | None:
        """Return the call that a chunk tells of; of a message that answers several, the first."""
        return None if chunk is None else self._by_chunk.get(chunk)

    def position(self, chunk: Digest | None) -> int | None:
        """Return a chunk's place on the line."""
        found = None if chunk is None else self.by_id.get(chunk)
        return None if found is None else found.position

    def spent(self, chunk: Digest | None) -> Usage | None:
        """Return what a recorded model call has cost."""
        found = None if chunk is None else self.by_id.get(chunk)
        if found is None or found.kind != "inference" or found.body_bytes is None:
            return None
        return cast(Inference, found.body).usage


def arguments_key(arguments: Any) -> bytes:
    """Return arguments in canonical form, secrets redacted as the record has them; nothing at all is the same as no arguments."""
    return dumps(escape({"a": DEFAULT.apply(arguments) or {}}, {}))


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


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
        end=call.result or call.answered, run=first.run, started=call.started is not None,
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
