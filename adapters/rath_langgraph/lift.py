"""Lifting: the difference of a message channel between two checkpoints becomes neutral messages (law 12).

What was appended is a ``message``; what stands at the same place under the same LangChain id is an edit (``replaces``); what is gone is a
``compaction``. Most differences are appended messages, found by comparing digests, with nothing decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from langchain_core.messages import BaseMessage

from rath_langgraph.items import Value

TRANSCRIPT = "messages"
"""With several message channels, this one alone feeds the transcript."""


def message_channel(channels: Mapping[str, Any], known: Callable[[str], bool] = lambda name: False) -> str | None:
    """Return the channel whose value is a list of messages; ``known`` tells what need not be looked through."""
    found = [
        name
        for name, value in channels.items()
        if type(value) is list
        and value
        and (known(name) or all(isinstance(item, BaseMessage) for item in cast("list[Any]", value)))
    ]
    return found[0] if len(found) == 1 else TRANSCRIPT if TRANSCRIPT in found else None


@dataclass(frozen=True, slots=True)
class Said:
    """One message chunk to write."""

    place: int
    """Index in the new list."""
    replaces: int | None = None
    """Index in the old list."""
    after: int | None = None
    """Index in the old list behind which it was inserted."""
    stands_for: tuple[int, ...] = ()


@dataclass(slots=True)
class Difference:
    """What a new list says that the old one did not."""

    kept: dict[int, int] = field(default_factory=dict[int, int])
    """New index to the old index of the same message; empty where the old list is the front of the new one."""
    appended: bool = False
    """The old list is the front of the new one."""
    said: list[Said] = field(default_factory=list[Said])
    """In the order in which they are to be written."""
    dropped: list[int] = field(default_factory=list[int])
    """Old indices of removed messages."""


def difference(
    old: Sequence[bytes],
    new: Sequence[bytes],
    ids: Callable[[], Sequence[str | None]],
    old_ids: Callable[[Sequence[int]], Sequence[str | None]],
) -> Difference:
    """Compare two lists of item digests.

    Args:
        old: Digests of the parent checkpoint's list.
        new: Digests of this one's.
        ids: Reads the LangChain ids of the new messages.
        old_ids: Reads the LangChain ids of some old messages; called only when something was edited or removed.
    """
    size = len(old)
    if new[:size] == old[:size]:
        return Difference(appended=True, said=[Said(i) for i in range(size, len(new))])
    new_ids = ids()
    kept = _common(old, new)
    gone = sorted(set(range(size)) - set(kept.values()))
    fresh = [i for i in range(len(new)) if i not in kept]
    edits = _edits(kept, gone, fresh, new_ids, old_ids)
    gone = [i for i in gone if i not in edits.values()]
    placed = {**kept, **edits}
    found = Difference(kept=kept)
    last_placed = max(placed, default=-1)
    inserted: list[Said] = []
    taken: set[int] = set()
    for i in fresh:
        if i in edits:
            found.said.append(Said(i, replaces=edits[i]))
        elif i > last_placed:
            break
        else:
            anchor = next((placed[j] for j in range(i - 1, -1, -1) if j in placed), None)
            if anchor is not None:
                inserted.append(Said(i, after=anchor))
                continue
            ahead = next(placed[j] for j in range(i + 1, len(new)) if j in placed)
            room = [j for j in gone if j < ahead and j not in taken]
            if not room:  # in front of everything, in nobody's place: say all of it again
                return Difference(kept={}, said=[Said(j) for j in range(len(new))], dropped=list(range(size)))
            taken.update(room)
            placed[i] = room[0]
            found.said.append(Said(i, replaces=room[0], stands_for=tuple(room)))
    # Several behind one anchor: each goes directly behind it, so the last is written first.
    found.said += inserted[::-1]
    found.said += [Said(i) for i in fresh if i > last_placed]
    replaced = {said.replaces for said in found.said}
    found.dropped = [i for i in gone if i not in replaced]
    return found


def _common(old: Sequence[bytes], new: Sequence[bytes]) -> dict[int, int]:
    """Pair equal items in order, greedily."""
    places: dict[bytes, list[int]] = {}
    for i, name in enumerate(old):
        places.setdefault(name, []).append(i)
    kept: dict[int, int] = {}
    at = 0
    for i, name in enumerate(new):
        ahead = next((j for j in places.get(name, ()) if j >= at), None)
        if ahead is not None:
            kept[i] = ahead
            at = ahead + 1
    return kept


def _edits(
    kept: Mapping[int, int], gone: Sequence[int], fresh: Sequence[int], new_ids: Sequence[str | None],
    old_ids: Callable[[Sequence[int]], Sequence[str | None]],
) -> dict[int, int]:  # fmt: skip
    """New index to old index of messages that kept their LangChain id and their place among the kept ones."""
    if not gone or not any(new_ids[i] is not None for i in fresh):
        return {}
    by_id = {name: i for i, name in zip(gone, old_ids(gone), strict=True) if name is not None}
    found: dict[int, int] = {}
    at = -1
    for i in range(len(new_ids)):
        if i in kept:
            at = max(at, kept[i])
            continue
        old = by_id.get(new_ids[i] or "")
        ceiling = min((kept[j] for j in kept if j > i), default=None)
        if old is not None and old > at and (ceiling is None or old < ceiling):
            found[i] = old
            at = old
    return found


def feed_items(value: Value | None) -> Sequence[bytes]:
    """Digests of the messages that a stored channel holds."""
    return value.tree.items if value is not None and value.tree is not None else ()


def ids_of(items: Sequence[object]) -> list[str | None]:
    """LangChain ids of messages."""
    return [item.id if isinstance(item, BaseMessage) else None for item in items]
