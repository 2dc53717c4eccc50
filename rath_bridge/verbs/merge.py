"""Merge: two lines become one, the base is kept once, both parents are named (law 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

from rath_bridge.errors import MergeConflict
from rath_bridge.model.chunk import Chunk, Draft, draft
from rath_bridge.model.digests import Digest
from rath_bridge.model.encoding import decode
from rath_bridge.model.kinds import Checkpoint, Merge, Message, Placement
from rath_bridge.model.parts import TextPart
from rath_bridge.store.protocol import Reader
from rath_bridge.verbs.lineage import apart
from rath_bridge.verbs.transcript import TranscriptMessage, transcript

STRATEGIES: Final = ("summary", "ours", "theirs", "state")


@dataclass(frozen=True, slots=True)
class MergeSides:
    """What a merge function is given: messages up to the base, and those of each side since."""

    base: tuple[TranscriptMessage, ...]
    ours: tuple[TranscriptMessage, ...]
    theirs: tuple[TranscriptMessage, ...]
    name: str
    """The ref that is folded in."""


MergeFunction = Callable[[MergeSides], "str | Message | Sequence[Message]"]
MergeState = Callable[["Chunk | None", "Chunk | None", "Chunk | None"], "Draft | Sequence[Draft]"]
"""(base, ours, theirs) checkpoint chunks -> the merged checkpoint, behind the messages that it brings; each names in ``stands_for``
the messages of the other side that it stands for. Raises `MergeConflict`."""


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What to append: the first draft has these parents, the rest follow it."""

    parents: tuple[Digest, ...]
    drafts: tuple[Draft, ...]


def plan_merge(
    ours: Digest,
    theirs: Digest,
    reader: Reader,
    *,
    name: str,
    strategy: str | MergeFunction = "summary",
    merge_state: MergeState | None = None,
) -> MergePlan | None:
    """Work out a merge without writing anything.

    Args:
        ours: Head of the receiving line.
        theirs: Head of the line to fold in.
        reader: Read access.
        name: The ref that is folded in, for the record.
        strategy: ``summary`` (one marked block: the other side's last message and what it stands for), ``ours``, ``theirs``,
            ``state`` (the framework's states are merged, and what was said comes with them), or a function that writes the block.
        merge_state: Merges framework states (LangGraph's reducers); without it the line's own state goes on.

    Returns:
        The plan, or None where ``ours`` holds ``theirs`` already.

    Raises:
        MergeConflict: Both sides changed the same thing; every conflict is listed.
        ValueError: An unknown strategy, or ``state`` without ``merge_state``.
    """
    if not callable(strategy) and strategy not in STRATEGIES:
        raise ValueError(f"unknown strategy {strategy!r}: use one of {', '.join(STRATEGIES)} or a function")
    if strategy == "state" and merge_state is None:
        raise ValueError(
            "strategy 'state' needs the framework's own reducers: merge_state=app.merge_state of a graph wrapped by rath_langgraph,"
            " or rath_langgraph.merge_state(store, graph)"
        )
    base, only_ours, only_theirs = apart(ours, theirs, reader)
    if base == theirs:
        return None
    our_line, their_line = list(reader.line(ours)), list(reader.line(theirs))
    conflicts: list[str] = []
    if strategy not in ("ours", "theirs"):
        conflicts = [*_placements(our_line, their_line), *_edits(only_ours, only_theirs)]
        if conflicts and merge_state is None:
            raise MergeConflict(conflicts)
    state = "theirs" if strategy == "theirs" else "ours"
    merged: list[Draft] = []
    if merge_state is not None and strategy not in ("ours", "theirs"):
        base_line = [] if base is None else list(reader.line(base))
        try:
            found = merge_state(_state(base_line), _state(our_line), _state(their_line))
        except MergeConflict as error:
            raise MergeConflict([*conflicts, *error.conflicts]) from error
        if conflicts:
            raise MergeConflict(conflicts)
        merged = _unsaid([found] if isinstance(found, Draft) else list(found), our_line)
        state = "merged" if merged else "ours"
    body = Merge(
        strategy=strategy if isinstance(strategy, str) else "function", base=base, ours=ours, theirs=theirs, of=name, state=state
    )
    drafts = [draft(body)]
    if strategy not in ("ours", "theirs"):
        sides = _sides(base, our_line, their_line, only_ours, only_theirs, reader, name)
        if strategy == "state":
            sides = replace(sides, theirs=tuple(m for m in sides.theirs if m.id not in _stood_for(merged)))
        drafts += [draft(message) for message in _block(strategy, sides, only_theirs)]
    drafts += merged
    return MergePlan((theirs, ours) if strategy == "theirs" else (ours, theirs), tuple(drafts))


def _sides(
    base: Digest | None, our_line: list[Chunk], their_line: list[Chunk], only_ours: list[Chunk], only_theirs: list[Chunk],
    reader: Reader, name: str,
) -> MergeSides:  # fmt: skip
    ours, theirs = {c.id for c in only_ours}, {c.id for c in only_theirs}
    common = transcript(list(reader.line(base))) if base else ()
    return MergeSides(
        base=common,
        ours=tuple(m for m in transcript(our_line) if m.id in ours),
        theirs=tuple(m for m in transcript(their_line) if m.id in theirs),
        name=name,
    )


def _unsaid(merged: Sequence[Draft], our_line: Sequence[Chunk]) -> list[Draft]:
    """Without messages that stand on our line, although our state does not hold them yet."""
    held = {chunk.id for chunk in our_line}

    def stands(item: Draft) -> bool:
        names: set[Digest] = set() if item.kind != "message" else set(decode(item.body).get("stands_for", ()))
        return bool(names) and names <= held and "replaces" not in decode(item.body)

    return [item for item in merged if not stands(item)]


def _stood_for(merged: Sequence[Draft]) -> set[Digest]:
    """Messages of the other side that came in with the merged state."""
    found = [decode(item.body) for item in merged if item.kind == "message"]
    return {name for body in found for name in body.get("stands_for", ())}


def _block(strategy: str | MergeFunction, sides: MergeSides, only_theirs: list[Chunk]) -> list[Message]:
    stands_for = tuple(m.id for m in sides.theirs) or tuple(c.id for c in only_theirs[-1:])
    if callable(strategy):
        written = strategy(sides)
        if isinstance(written, str):
            written = Message(role="user", name="merge", parts=(TextPart(written),))
        found = [written] if isinstance(written, Message) else list(written)
        return [message if message.stands_for else replace(message, stands_for=stands_for) for message in found]
    if not sides.theirs:  # nothing was said over there: the merge chunk alone tells of it
        return []
    last = next((m for m in reversed(sides.theirs) if m.text), None)
    said = f"{last.role}: {last.text}" if last else "(no text)"
    counts = f"{_count(sides.theirs, 'message')}, {_count(only_theirs, 'chunk')}"
    text = f"[merged from {sides.name}: {counts}; its last message follows]\n{said}"
    return [Message(role="user", name="merge", parts=(TextPart(text),), stands_for=stands_for)]


def _count(things: Sequence[object], what: str) -> str:
    return f"{len(things)} {what}" if len(things) == 1 else f"{len(things)} {what}s"


def _state(line: list[Chunk]) -> Chunk | None:
    return next((c for c in reversed(line) if c.kind == "checkpoint" and not cast(Checkpoint, c.body).namespace), None)


def _placements(ours: list[Chunk], theirs: list[Chunk]) -> list[str]:
    here, there = placement(ours), placement(theirs)
    if here is None or there is None or (here.backend, here.root) == (there.backend, there.root):
        return []
    return [f"placement: ours runs on {here.backend} {here.root or ''}, theirs on {there.backend} {there.root or ''}"]


def placement(line: Sequence[Chunk]) -> Placement | None:
    """Where a line runs: its last ``placement`` chunk."""
    return next((cast(Placement, c.body) for c in reversed(line) if c.kind == "placement"), None)


def _edits(only_ours: list[Chunk], only_theirs: list[Chunk]) -> list[str]:
    """Messages of the base that both sides edited, differently."""

    def edits(chunks: list[Chunk]) -> dict[Digest, Message]:
        bodies = [c.body for c in chunks if c.kind == "message" and b'"replaces"' in (c.body_bytes or b"")]
        return {b.replaces: b for b in bodies if isinstance(b, Message) and b.replaces}

    ours, theirs = edits(only_ours), edits(only_theirs)
    return [
        f"message {name[:12]}: edited on both sides"
        for name in sorted(ours.keys() & theirs.keys())
        if (ours[name].role, ours[name].parts) != (theirs[name].role, theirs[name].parts)
    ]
