"""A transcript on its way into a list of messages: calls and answers stay pairs (law 8), the manifest follows (law 12).

Every format of this room that is a list of messages has the same shape: one that asks names call ids, one that answers names one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from rath_bridge.interchange.natives import json_text, key
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.model.fitting import fitting_id
from rath_bridge.model.kinds import ToolResult
from rath_bridge.model.report import Loss, ManifestEntry
from rath_bridge.verbs.transcript import calls

NO_RESPONSE: Final = "no response: this call was never answered"


@dataclass(frozen=True, slots=True)
class Turn:
    """One item of the target, and what it asks or answers."""

    chunk: Digest
    item: Any
    asks: tuple[str, ...] = ()
    """Call ids, in order."""
    answers: str | None = None
    """The call id that it answers."""
    asked_as: tuple[str, ...] = ()
    """The ids on record, where `asks` had to be renamed."""
    limit: int = 0
    """Longest call id that the target takes, for a translated turn; 0 for one that goes home as it came."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How the target writes calls and answers."""

    rename_call: Callable[[Any, int, str], Any]
    """(item, number of the call in it, new id) -> item."""
    rename_answer: Callable[[Any, str], Any]
    """(item, new id) -> item."""
    answer: Callable[[str, str, Any], Any]
    """(call id, asking item, what was answered) -> item."""


def paired(turns: Sequence[Turn], chunks: Sequence[Chunk], losses: list[Loss], shape: Shape) -> list[Turn]:
    """Return the turns with every call answered once, and every answer called for.

    Args:
        turns: As translated.
        chunks: The line they come from: a ``tool_result`` on record answers what no message did.
        losses: Added to.
        shape: How the target writes it.
    """
    kept: list[Turn] = []
    waiting: dict[str, int] = {}
    """Open call id, as it goes out, to the place of the turn that asks."""
    latest: dict[str, str] = {}
    seen: set[str] = set()
    for turn in turns:
        if turn.answers is not None:
            name = latest.get(turn.answers, turn.answers)
            if name not in waiting:
                losses.append(Loss(turn.chunk, "call_id", f"an answer to {turn.answers!r}, which nobody called: left out"))
                continue
            del waiting[name]
            kept.append(turn if name == turn.answers else replace(turn, item=shape.rename_answer(turn.item, name), answers=name))
            continue
        given = list(turn.asks)
        item = turn.item
        for number, name in enumerate(turn.asks):
            fit = fitting_id(name, turn.limit) if turn.limit else name
            fresh, count = fit, 2
            while fresh in waiting or (fresh != fit and fresh in seen):
                fresh = f"{fit}_{count}"
                count += 1
            if fresh != name:
                why = "is in use" if fit == name else "is not one that the target takes"
                losses.append(Loss(turn.chunk, "call_id", f"the call id {name!r} {why}; it is handed over as {fresh!r}"))
                item = shape.rename_call(item, number, fresh)
                given[number] = fresh
            seen |= {name, fresh}
            latest[name] = fresh
            waiting[fresh] = len(kept)
        kept.append(replace(turn, item=item, asks=tuple(given), asked_as=turn.asks))
    return _closed(kept, waiting, chunks, losses, shape) if waiting else kept


def _closed(
    turns: Sequence[Turn], waiting: dict[str, int], chunks: Sequence[Chunk], losses: list[Loss], shape: Shape
) -> list[Turn]:
    """Answer the open calls behind the answers of their own turn: with the result on record, else with a plain text."""
    known = _results(chunks)
    missing: dict[int, list[Turn]] = {}
    for name, at in waiting.items():
        turn = turns[at]
        asked_as = dict(zip(turn.asks, turn.asked_as, strict=True))[name]
        if (turn.chunk, asked_as) not in known:
            losses.append(Loss(turn.chunk, "call_id", f"the call {name!r} is pending: closed with {NO_RESPONSE!r}"))
        value = known.get((turn.chunk, asked_as), NO_RESPONSE)
        missing.setdefault(at, []).append(Turn(turn.chunk, shape.answer(name, turn.item, value), answers=name))
    kept: list[Turn] = []
    answers: list[Turn] = []
    for at, turn in enumerate(turns):
        if answers and turn.answers is None:
            kept += answers
            answers = []
        kept.append(turn)
        answers += missing.get(at, [])
    return kept + answers


def _results(chunks: Sequence[Chunk]) -> dict[tuple[Digest, str], Any]:
    """What ``tool_result`` chunks answer, by the message that asked and the call id."""
    by_id = {chunk.id: chunk for chunk in chunks if chunk.kind == "tool_result"}
    found: dict[tuple[Digest, str], Any] = {}
    for call in calls(chunks):
        if call.asked is None or call.result is None or call.status == "no_response":
            continue
        body = cast(ToolResult, by_id[call.result].body)
        found[call.asked, call.call_id] = body.error if body.result is None and body.error is not None else body.result
    return found


def answer_text(value: Any) -> str:
    """Return an answer as the text that most targets take."""
    return value if isinstance(value, str) else json_text(value)


def manifest(turns: Sequence[Turn]) -> tuple[ManifestEntry, ...]:
    """Return what was handed over, by position."""
    return tuple(ManifestEntry(position, turn.chunk, key(turn.item)) for position, turn in enumerate(turns))
