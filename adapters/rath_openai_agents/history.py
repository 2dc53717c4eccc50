"""Which items of a history may be handed out: calls with their answers, reasoning with what follows it (law 8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rath_openai_agents.items import PAIRS, grouped, kind_of, of_model

_ANSWERS = {answer: call for call, answer in PAIRS.items()}


def unanswered(items: Sequence[Mapping[str, Any]]) -> tuple[set[int], set[int]]:
    """Return the places of calls that nobody answered, and of answers that nobody called for.

    An answer belongs to the latest open call of its id: models use an id again in a later turn.
    """
    waiting: dict[tuple[str, Any], int] = {}
    strays: set[int] = set()
    open_calls: set[int] = set()
    for at, item in enumerate(items):
        kind = kind_of(item)
        call_id = item.get("call_id") or (item.get("id") if "local_shell" in kind else None)
        if kind in PAIRS:
            open_calls.add(at)
            waiting[kind, call_id] = at
        elif kind in _ANSWERS:
            asked = waiting.pop((_ANSWERS[kind], call_id), None)
            if asked is None:
                strays.add(at)
            else:
                open_calls.discard(asked)
    return open_calls, strays


def whole(items: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the places of what a model may be shown: no call or answer without the other, no reasoning without what it led to."""
    open_calls, strays = unanswered(items)
    return _led_somewhere(items, set(range(len(items))) - open_calls - strays)


def tail(items: Sequence[Mapping[str, Any]], limit: int) -> list[int]:
    """Return the places of the last ``limit`` items that stand whole; a call that still waits for its answer stays.

    Where the cut goes through a pair, or through a reply that begins with reasoning, what is left of it is left out.
    """
    if limit <= 0:
        return []
    strays = unanswered(items)[1]
    left = [at for at in range(len(items)) if at not in strays]
    cut = left[-limit] if len(left) >= limit else 0
    gone = {at for start, stop in grouped(items) if start < cut < stop and _reasons(items[start:cut]) for at in range(cut, stop)}
    kept = [at for at in left if at >= cut and at not in gone]
    orphans = unanswered([items[at] for at in kept])[1]
    return [at for index, at in enumerate(kept) if index not in orphans]


def _reasons(items: Iterable[Mapping[str, Any]]) -> bool:
    return any(kind_of(item) == "reasoning" for item in items)


def _led_somewhere(items: Sequence[Mapping[str, Any]], kept: set[int]) -> list[int]:
    """Leave out reasoning that nothing of its model's reply follows any more (openai-agents-python issue 2503)."""
    found: list[int] = []
    follows = False
    for at in range(len(items) - 1, -1, -1):
        item = items[at]
        if at not in kept:
            continue
        if kind_of(item) != "reasoning":
            follows = of_model(item)
        elif not follows:
            continue
        found.append(at)
    return found[::-1]


__all__ = ["tail", "unanswered", "whole"]
