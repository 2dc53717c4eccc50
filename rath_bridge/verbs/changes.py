"""Differences of values and of lists: the ground that `diff` stands on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, cast

from rath_bridge.model.encoding import BlobRef, TreeRef, dumps, escape

Path = tuple[str | int, ...]


class _Absent:
    """Stands where one side has nothing."""

    def __repr__(self) -> str:
        return "(absent)"


ABSENT: Final = _Absent()


def opcodes(ours: Sequence[Any], theirs: Sequence[Any]) -> Iterable[tuple[str, int, int, int, int]]:
    """Like difflib's, with the common front and end taken off first: matching costs only what differs."""
    shortest = min(len(ours), len(theirs))
    front = next((i for i in range(shortest) if ours[i] != theirs[i]), shortest)
    end = next((i for i in range(shortest - front) if ours[-1 - i] != theirs[-1 - i]), shortest - front)
    if front:
        yield "equal", 0, front, 0, front
    middle = SequenceMatcher(None, ours[front : len(ours) - end], theirs[front : len(theirs) - end])
    for tag, a, a_end, b, b_end in middle.get_opcodes():
        yield tag, a + front, a_end + front, b + front, b_end + front
    if end:
        yield "equal", len(ours) - end, len(ours), len(theirs) - end, len(theirs)


def difference(ours: Any, theirs: Any) -> Path | None:
    """Return the path to the first place where two values differ; None where they are equal."""
    path: list[str | int] = []
    while True:
        if isinstance(ours, dict) and isinstance(theirs, dict):
            left, right = cast("dict[Any, Any]", ours), cast("dict[Any, Any]", theirs)
            keys: list[Any] = sorted(left.keys() | right.keys(), key=str)
            key = next((k for k in keys if not _equal(left.get(k, ABSENT), right.get(k, ABSENT))), None)
            if key is None:
                return None
            path.append(key)
            ours, theirs = left.get(key, ABSENT), right.get(key, ABSENT)
        elif isinstance(ours, list) and isinstance(theirs, list):
            one, two = cast("list[Any]", ours), cast("list[Any]", theirs)
            shortest = min(len(one), len(two))
            index = next((i for i in range(shortest) if not _equal(one[i], two[i])), shortest)
            if index == len(one) == len(two):
                return None
            path.append(index)
            ours = one[index] if index < len(one) else ABSENT
            theirs = two[index] if index < len(two) else ABSENT
        else:
            return None if _equal(ours, theirs) else tuple(path)


def _equal(ours: Any, theirs: Any) -> bool:
    """Equality of what is written: 1, 1.0 and True are three values, and a NaN equals itself."""
    if ours is ABSENT or theirs is ABSENT:
        return ours is theirs
    return dumps(escape(ours, {})) == dumps(escape(theirs, {}))


def path_text(path: Path) -> str:
    """Write a path as errors and listings show it: ``body.parts[0].content``."""
    return "body" + "".join(f"[{step}]" if type(step) is int else f".{step}" for step in path)


def plain(value: Any) -> Any:
    """Return a value as JSON values; what JSON cannot hold is tagged as in a body."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list):
        return [plain(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        entries = cast("dict[Any, Any]", value)
        if all(isinstance(key, str) for key in entries):
            return {plain(key): plain(item) for key, item in entries.items()}
        return escape(entries, {})
    if isinstance(value, (BlobRef, TreeRef)):
        return value.to_json()
    return escape(value, {})
