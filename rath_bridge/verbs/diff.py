"""Diff: where two lines part, and how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from rath_bridge.errors import ErasedError, MissingObjectError
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.store.protocol import Reader
from rath_bridge.verbs import sections
from rath_bridge.verbs.changes import ABSENT, Path, difference, opcodes, path_text, plain
from rath_bridge.verbs.lineage import apart
from rath_bridge.verbs.replay_form import Step, steps
from rath_bridge.verbs.sections import Section, Spent
from rath_bridge.verbs.wording import Piece, words

__all__ = ["ABSENT", "Change", "Diff", "Path", "diff", "difference", "path_text"]


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

    @property
    def words(self) -> list[Piece]:
        """Word by word, where texts differ; else empty."""
        return (
            words(self.ours_value, self.theirs_value)
            if isinstance(self.ours_value, str) and isinstance(self.theirs_value, str)
            else []
        )

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
                    found[side] = plain(value)
            if pieces := self.words:
                found["words"] = [[tag, plain(text)] for tag, text in pieces]
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
    reader: Reader | None = field(default=None, compare=False, repr=False)
    """Reads what a section needs beyond the chunks: states, and how runs nest."""

    def __bool__(self) -> bool:
        return any(change.kind != "same" for change in self.changes)

    def transcript(self) -> list[Section]:
        """Compare what was said, message by message, whatever the framework."""
        ours, theirs = (sections.messages(side, self.base, self._read()) for side in (self.ours, self.theirs))
        return sections.paired(ours, theirs, lambda values: str(values["role"]))

    def calls(self) -> list[Section]:
        """Compare the tool calls: name, arguments, how they ended."""
        return sections.paired(
            sections.tool_calls(self.ours, self.base, self._read()),
            sections.tool_calls(self.theirs, self.base, self._read()),
            lambda values: str(values["name"]),
        )

    def state(self) -> list[Section]:
        """Compare the frameworks' states where the sides stand now, key by key."""
        return sections.states(self.ours, self.theirs, self.base, self._read())

    def spent(self) -> tuple[Spent, Spent]:
        """What each side took by itself: model calls, tokens, cost where it is on record, time."""
        ours, theirs = (sections.spent(side, self.base, self._read()) for side in (self.ours, self.theirs))
        return ours, theirs

    def _read(self) -> Reader:
        if self.reader is None:
            raise ValueError("this Diff was built by hand, without a reader: use session.diff(other)")
        return self.reader

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "base": self.base,
            "ours": [chunk.id for chunk in self.ours],
            "theirs": [chunk.id for chunk in self.theirs],
            "differ": bool(self),
            "changes": [change.to_json() for change in self.changes],
            **self.stat_json(),
            "transcript": [section.to_json() for section in self.transcript()],
            "calls": [section.to_json() for section in self.calls()],
            "state": [section.to_json() for section in self.state()],
        }

    def stat_json(self) -> dict[str, Any]:
        """Return what each side took as JSON values, and how many rows of each section differ."""
        ours, theirs = self.spent()
        rows = {"transcript": self.transcript(), "calls": self.calls(), "state": self.state()}
        counts = {name: dict(sorted(Counter(row.kind for row in found).items())) for name, found in rows.items()}
        return {"spent": {"ours": ours.to_json(), "theirs": theirs.to_json()}, "sections": counts}


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
    return Diff(base, tuple(only_ours), tuple(only_theirs), tuple(changes), reader)


def _counting(chunks: Iterable[Chunk]) -> list[Step]:
    return [step for step in steps(chunks) if step.kind != "session"]


def _align(ours: Sequence[Step], theirs: Sequence[Step]) -> Iterable[Change]:
    for tag, a, a_end, b, b_end in opcodes([s.key for s in ours], [s.key for s in theirs]):
        if tag == "equal":
            for left, right in zip(ours[a:a_end], theirs[b:b_end], strict=True):
                yield Change(kind="same", ours=left.chunk, theirs=right.chunk)
        else:
            yield from _replaced(ours[a:a_end], theirs[b:b_end])


def _replaced(ours: Sequence[Step], theirs: Sequence[Step]) -> Iterable[Change]:
    """Pair what is of the same sort within a stretch that differs."""
    for tag, a, a_end, b, b_end in opcodes([_sort(s) for s in ours], [_sort(s) for s in theirs]):
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


def _changed(left: Step, right: Step) -> Change:
    path = difference(left.values, right.values) or ()
    return Change(
        kind="changed", ours=left.chunk, theirs=right.chunk, path=path_text(path),
        ours_value=_value(left, path), theirs_value=_value(right, path),
    )  # fmt: skip


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
