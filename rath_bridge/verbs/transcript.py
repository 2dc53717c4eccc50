"""Folds over a line: the transcript, calls and their results, usage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Compaction, Inference, Message, Run, SessionStart, ToolCall, ToolResult, Usage
from rath_bridge.model.parts import Part, ToolCallPart, ToolCallResponsePart

TRANSCRIPT: Final = frozenset({"session", "run", "message", "compaction"})
"""Kinds that `transcript` looks at."""
CALLS: Final = frozenset({"run", "message", "tool_call", "tool_result"})
"""Kinds that `calls` looks at."""


@dataclass(frozen=True, slots=True)
class TranscriptMessage:
    """One message as it stands in the transcript."""

    chunk: Chunk
    """The chunk that holds it (after an edit, the edit)."""
    body: Message

    @property
    def id(self) -> Digest:
        """Digest of the chunk."""
        return self.chunk.id

    @property
    def role(self) -> str:
        return self.body.role

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.body.parts

    @property
    def name(self) -> str | None:
        return self.body.name

    @property
    def text(self) -> str:
        return self.body.text


def top_runs(chunks: Iterable[Chunk]) -> dict[str, str]:
    """Return, for every run that began, the top-level run that it nests in (itself, for those)."""
    roots: dict[str, str] = {}
    for chunk in chunks:
        if chunk.kind == "run" and chunk.run is not None and chunk.run not in roots and chunk.body_bytes is not None:
            body = cast(Run, chunk.body)
            if body.phase == "begin":
                roots[chunk.run] = roots.get(body.parent, body.parent) if body.parent else chunk.run
    return roots


def transcript(chunks: Sequence[Chunk], run: str | None = None) -> tuple[TranscriptMessage, ...]:
    """Fold a line into its messages, in order: edits in place, removals gone.

    Args:
        chunks: The line, oldest first.
        run: Only the messages of this run; by default those outside of any run and of top-level runs.
    """
    if run is None:
        roots = top_runs(chunks)

        def belongs(chunk: Chunk) -> bool:
            return chunk.run is None or roots.get(chunk.run, chunk.run) == chunk.run
    else:

        def belongs(chunk: Chunk) -> bool:
            return chunk.run == run

    old_names = _old_names(chunks)
    order: list[Digest | None] = []
    place: dict[Digest, int] = {}
    shown: dict[Digest, TranscriptMessage] = {}
    for chunk in chunks:
        if chunk.kind == "message" and chunk.body_bytes is not None and belongs(chunk):
            body = cast(Message, chunk.body)
            if body.same_as is not None and body.same_as in place:
                place[chunk.id] = place[body.same_as]
                place.update(dict.fromkeys(old_names.get(chunk.position, ()), place[chunk.id]))
                continue
            old = body.replaces
            if old is not None and old in place and order[place[old]] is not None:
                place[chunk.id] = place[old]
                order[place[old]] = chunk.id
            elif body.after is not None and body.after in place:
                at = place[body.after] + 1
                order.insert(at, chunk.id)
                place = {name: index + (index >= at) for name, index in place.items()}
                place[chunk.id] = at
            else:
                place[chunk.id] = len(order)
                order.append(chunk.id)
            place.update(dict.fromkeys(old_names.get(chunk.position, ()), place[chunk.id]))
            shown[chunk.id] = TranscriptMessage(chunk, body)
        elif chunk.kind == "compaction" and chunk.body_bytes is not None:
            for name in cast(Compaction, chunk.body).dropped:
                if name in place:
                    order[place[name]] = None
    return tuple(shown[name] for name in order if name is not None)


def renamed(chunks: Sequence[Chunk]) -> dict[Digest, int]:
    """What a detached copy of a line must remember: the messages that its bodies name, and where they will stand.

    Args:
        chunks: The whole line that is copied, oldest first; the copy begins with one chunk more.
    """
    targets: set[Digest] = set()
    for chunk in chunks:
        if chunk.kind == "message" and chunk.body_bytes and any(mark in chunk.body_bytes for mark in _LINKS):
            body = cast(Message, chunk.body)
            targets |= {name for name in (body.replaces, body.same_as, body.after) if name}
        elif chunk.kind == "compaction" and chunk.body_bytes:
            targets.update(cast(Compaction, chunk.body).dropped)
    found = {name: position + 1 for position, names in _old_names(chunks).items() for name in names}
    return found | {chunk.id: chunk.position + 1 for chunk in chunks if chunk.id in targets}


_LINKS: Final = (b'"replaces"', b'"same_as"', b'"after"')


def _old_names(chunks: Sequence[Chunk]) -> dict[int, list[Digest]]:
    """Position to the digests under which bodies of a detached line still name a chunk."""
    found: dict[int, list[Digest]] = {}
    first = chunks[0] if chunks else None
    if first is not None and first.position == 0 and first.kind == "session" and first.body_bytes is not None:
        for name, position in cast(SessionStart, first.body).renamed.items():
            found.setdefault(position, []).append(name)
    return found


@dataclass(slots=True)
class Call:
    """One tool call through its life, folded from the chunks that tell of it."""

    scope: str
    """The top-level run in which its id is unique; empty outside of runs."""
    call_id: str
    name: str
    asked: Digest | None = None
    """The message chunk in which a model asked."""
    started: Digest | None = None
    """The ``tool_call`` chunk."""
    result: Digest | None = None
    """The ``tool_result`` chunk."""
    answered: Digest | None = None
    """The message chunk that carries the answer."""
    status: str = "pending"
    """``pending``, ``ok``, ``error`` or ``no_response``."""
    extra: list[Digest] = field(default_factory=list[Digest])
    """Further ``tool_result`` chunks: a fault (law 8)."""


def calls(chunks: Sequence[Chunk]) -> list[Call]:
    """Pair calls with results along a line (law 8), in order of first appearance.

    Ids are scoped by top-level run, and an id that is used again after its call was closed is another call. A call that was asked
    for in one run and left open, and is carried out in a later one that did not ask for it (an approval, a resumed run), is one call.
    """
    roots = top_runs(chunks)
    found: list[Call] = []
    latest: dict[tuple[str, str], Call] = {}

    def see(chunk: Chunk, call_id: str, name: str, *, fresh: bool) -> Call:
        scope = roots.get(chunk.run, chunk.run) if chunk.run else ""
        call = latest.get((scope, call_id))
        if call is None or fresh:
            call = Call(scope, call_id, name)
            found.append(call)
            latest[scope, call_id] = call
        return call

    def last(chunk: Chunk, call_id: str) -> Call | None:
        return latest.get((roots.get(chunk.run, chunk.run) if chunk.run else "", call_id))

    def left_open(call_id: str) -> Call | None:
        return next((call for call in reversed(found) if call.call_id == call_id and call.status == "pending"), None)

    for chunk in chunks:
        if chunk.kind not in ("message", "tool_call", "tool_result") or chunk.body_bytes is None:
            continue
        body = chunk.body
        if isinstance(body, Message):
            if body.same_as or body.replaces:
                continue
            for part in body.parts:
                if isinstance(part, ToolCallPart) and part.id is not None:
                    call = last(chunk, part.id)
                    call = see(chunk, part.id, part.name, fresh=call is not None and call.asked is not None)
                    call.asked = chunk.id
                elif isinstance(part, ToolCallResponsePart) and part.id is not None:
                    call = last(chunk, part.id) or left_open(part.id)
                    if call is not None and call.answered is None:
                        call.answered = chunk.id
                        if call.status == "pending":
                            call.status = "error" if part.extra.get("is_error") else "ok"
        elif isinstance(body, ToolCall) and body.call_id is not None:
            call = last(chunk, body.call_id)
            call = see(chunk, body.call_id, body.name, fresh=call is not None and call.started is not None)
            call.started = chunk.id
        elif isinstance(body, ToolResult) and body.call_id is not None:
            call = last(chunk, body.call_id) or see(chunk, body.call_id, body.name or "", fresh=True)
            if call.result is not None:
                call.extra.append(chunk.id)
            else:
                call.result, call.status = chunk.id, body.status
    return _resumed(found)


def _resumed(found: list[Call]) -> list[Call]:
    """Join each call that was carried out where nobody asked for it to the open one that asked, in an earlier run."""
    asking: dict[tuple[str, str], Call] = {}
    kept: list[Call] = []
    for call in found:
        before = asking.get((call.call_id, call.name))
        if call.asked is None and before is not None and before.scope != call.scope and before.status == "pending":
            before.started = before.started or call.started
            before.result, before.answered, before.status = call.result, call.answered, call.status
            before.extra += call.extra
            continue
        if call.asked is not None:
            asking[call.call_id, call.name] = call
        kept.append(call)
    return kept


def pending(chunks: Sequence[Chunk]) -> tuple[Call, ...]:
    """Return the calls that have no result and are not closed ``no_response``."""
    return tuple(call for call in calls(chunks) if call.status == "pending")


def usage(chunks: Iterable[Chunk]) -> Usage:
    """Add up usage: only ``inference`` chunks carry it, one per model call (law 7)."""
    total = Usage()
    for chunk in chunks:
        if chunk.kind == "inference" and chunk.body_bytes is not None:
            body = cast(Inference, chunk.body)
            if body.usage is not None:
                total += body.usage
    return total
