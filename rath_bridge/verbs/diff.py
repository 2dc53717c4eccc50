"""Diff: where two lines part, and how."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final, Literal, cast

from rath_bridge.errors import ErasedError, MissingObjectError
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.model.encoding import BlobRef, TreeRef, dumps, escape
from rath_bridge.store.protocol import Reader
from rath_bridge.verbs.lineage import apart
from rath_bridge.verbs.replay_form import Step, steps

Path = tuple[str | int, ...]


class _Absent:
    """Stands where one side has nothing."""

    def __repr__(self) -> str:
        return "(absent)"


ABSENT: Final = _Absent()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One pair of chunks, or one that has no counterpart."""

    kind: Literal["same", "changed", "added", "removed"]
    """``removed`` stands on our side only, ``added`` on theirs."""
    ours: Chunk | None = None
    theirs: Chunk | None = None
    path: str = ""
    """First place inside that differs: ``body.parts[0].content``."""
    ours_value: Any = None
    """What stands there on our side; `ABSENT` where nothing does."""
    theirs_value: Any = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values; a value that JSON cannot hold is tagged as in a body."""
        found: dict[str, Any] = {
            "kind": self.kind,
            "ours": self.ours and self.ours.id,
            "theirs": self.theirs and self.theirs.id,
            "chunk_kind": cast(Chunk, self.ours or self.theirs).kind,
        }
        if self.kind == "changed":
            found["path"] = self.path
            for side, value in (("ours_value", self.ours_value), ("theirs_value", self.theirs_value)):
                if value is not ABSENT:
                    found[side] = _plain(value)
        return found


@dataclass(frozen=True, slots=True)
class Diff:
    """What two lines do not share. False in a condition where they say the same."""

    base: Digest | None
    """The nearest chunk that both hold; None where they share no history."""
    ours: tuple[Chunk, ...] = ()
    """Chunks that only our side holds, oldest first."""
    theirs: tuple[Chunk, ...] = ()
    changes: tuple[Change, ...] = ()
    """Both sides aligned; ``session`` chunks (how a line came to be) are left out."""

    def __bool__(self) -> bool:
        return any(change.kind != "same" for change in self.changes)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "base": self.base,
            "ours": [chunk.id for chunk in self.ours],
            "theirs": [chunk.id for chunk in self.theirs],
            "differ": bool(self),
            "changes": [change.to_json() for change in self.changes],
        }


def diff(ours: Digest, theirs: Digest, reader: Reader) -> Diff:
    """Compare two lines from where they part. The cost follows the difference, not the length.

    Chunks are aligned by replay form: equal content counts as equal whatever its times, nonces and generated ids.

    Args:
        ours: Head of one line.
        theirs: Head of the other.
        reader: Read access.
    """
    base, only_ours, only_theirs = apart(ours, theirs, reader)
    changes = _align(_counting(only_ours), _counting(only_theirs))
    return Diff(base, tuple(only_ours), tuple(only_theirs), tuple(changes))


def _counting(chunks: Iterable[Chunk]) -> list[Step]:
    return [step for step in steps(chunks) if step.kind != "session"]


def _align(ours: Sequence[Step], theirs: Sequence[Step]) -> Iterable[Change]:
    for tag, a, a_end, b, b_end in _opcodes([s.key for s in ours], [s.key for s in theirs]):
        if tag == "equal":
            for left, right in zip(ours[a:a_end], theirs[b:b_end], strict=True):
                yield Change(kind="same", ours=left.chunk, theirs=right.chunk)
        else:
            yield from _replaced(ours[a:a_end], theirs[b:b_end])


def _replaced(ours: Sequence[Step], theirs: Sequence[Step]) -> Iterable[Change]:
    """Pair what is of the same sort within a stretch that differs."""
    for tag, a, a_end, b, b_end in _opcodes([_sort(s) for s in ours], [_sort(s) for s in theirs]):
        if tag == "equal":
            for left, right in zip(ours[a:a_end], theirs[b:b_end], strict=True):
                yield _changed(left, right)
        else:
            for step in ours[a:a_end]:
                yield Change(kind="removed", ours=step.chunk)
            for step in theirs[b:b_end]:
                yield Change(kind="added", theirs=step.chunk)


def _sort(step: Step) -> tuple[object, ...]:
    return (step.actor, step.kind, *(repr(step.values.get(name)) for name in ("role", "name", "phase", "namespace")))


def _opcodes(ours: Sequence[Any], theirs: Sequence[Any]) -> Iterable[tuple[str, int, int, int, int]]:
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


def _changed(left: Step, right: Step) -> Change:
    path = difference(left.values, right.values) or ()
    return Change(
        kind="changed", ours=left.chunk, theirs=right.chunk, path=path_text(path),
        ours_value=_value(left, path), theirs_value=_value(right, path),
    )  # fmt: skip


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


def _value(step: Step, path: Path) -> Any:
    """What stands at a path, as it was recorded: real ids, long texts read in."""
    try:
        found: Any = step.chunk.values
    except (ErasedError, MissingObjectError):
        found = step.values
    for key in path:
        try:
            found = found[key]
        except (KeyError, IndexError, TypeError):
            return ABSENT
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list):
        return [_plain(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        entries = cast("dict[Any, Any]", value)
        if all(isinstance(key, str) for key in entries):
            return {_plain(key): _plain(item) for key, item in entries.items()}
        return escape(entries, {})
    if isinstance(value, (BlobRef, TreeRef)):
        return value.to_json()
    return escape(value, {})
