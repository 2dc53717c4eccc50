"""Folds over a line: the transcript, calls and their results, usage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, cast

from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.model.encoding import decode
from rath_bridge.model.kinds import Compaction, Inference, Message, Run, SessionStart, Usage
from rath_bridge.model.parts import Part
from rath_bridge.verbs.calling import CALLS, Call, CallFold

__all__ = [
    "CALLS", "TRANSCRIPT", "Call", "TranscriptMessage", "calls", "pending", "renamed", "top_runs", "transcript", "usage",
]  # fmt: skip

TRANSCRIPT: Final = frozenset({"session", "run", "message", "compaction"})
"""Kinds that `transcript` looks at."""


@dataclass(frozen=True, slots=True)
class TranscriptMessage:
    """One message as it stands in the transcript."""

    chunk: Chunk
    """The chunk that holds it (after an edit, the edit)."""
    body: Message

    def __repr__(self) -> str:
        return f"{self.body!r} of chunk {self.id[:12]}"

    def __str__(self) -> str:
        """Who said what, in one line: calls and results, too, which ``text`` leaves out."""
        from rath_bridge.verbs.words import body_words

        return body_words(self.body)

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
        """All text parts together; what a tool answered is in ``parts[0].response``, and in ``str(message)``."""
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


def by_top_run(chunks: Sequence[Chunk]) -> dict[str, list[Chunk]]:
    """Return the chunks of every top-level run, in order, those of the runs inside of it among them."""
    roots = top_runs(chunks)
    inside: dict[str, list[Chunk]] = {}
    for chunk in chunks:
        if chunk.run is not None:
            inside.setdefault(roots.get(chunk.run, chunk.run), []).append(chunk)
    return inside


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


def calls(chunks: Sequence[Chunk], *, part: bool = False) -> list[Call]:
    """Pair calls with results along a line (law 8), or the last part of one, in order of first appearance."""
    fold = CallFold(top_runs(chunks), part=part)
    for chunk in chunks:
        data = chunk.body_bytes
        if data is None or chunk.kind == "run" or chunk.kind not in CALLS:
            continue
        if chunk.kind != "message" or b'"tool_call' in data:
            fold.feed(chunk, decode(data, None, f"chunk {chunk.id[:16]}"))
    return fold.calls()


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
