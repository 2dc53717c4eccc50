"""What came of a replay: a frozen value with a text, a JSON form and an exit status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final

from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Usage
from rath_bridge.replay.divergence import Divergence
from rath_bridge.session import Session

EQUAL: Final = 0
DIVERGED: Final = 1
NOT_COMPARABLE: Final = 125
SHOWN: Final = 10
"""Unused calls that the text names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """What came of a replay."""

    equal: bool | None
    """Whether the run did what is on record (law 5); None where that cannot be told (see ``reasons``). Of a what-if: whether it did so
    up to where it was to part."""
    served: int = 0
    """Calls that were answered from the record."""
    live: int = 0
    """Calls that were made for real: 0, unless the replay was asked for them."""
    unused: tuple[Digest, ...] = ()
    """Recorded calls that the run did not ask for."""
    unused_words: tuple[str, ...] = ()
    """What they were: ``pay(n=5)``, ``model call of Writer: ...``."""
    unasked: tuple[str, ...] = ()
    """Overrides that the run did not come to: they changed nothing."""
    unchanged: bool = False
    """Something was to be changed, and nothing was: the run came to none of the overrides."""
    misses: tuple[Divergence, ...] = ()
    """Calls that the record does not hold, in the order in which they occurred."""
    divergence: Divergence | None = None
    """The first place where the run left the record, with both sides."""
    cause: Digest | None = None
    """A recorded tool result that the record itself contradicts: the model was not asked with it then. It was edited, or erased in
    part."""
    reasons: tuple[str, ...] = ()
    """Why the record cannot be replayed whole, or compared; empty where it can be."""
    notes: tuple[str, ...] = ()
    """What else should be known: another version of a framework, writes that were not done twice."""
    unknown: tuple[Digest, ...] = ()
    """Calls whose intent is on record and whose result is not: nobody knows whether they were done; a person decides."""
    made: tuple[str, ...] = ()
    """What was made live."""
    itself: tuple[str, ...] = ()
    """Those of them that no player answers for, and that the policy let the program make."""
    spent: Usage = field(default_factory=Usage)
    """Tokens that were not spent again: what the model calls that were served had cost."""
    halted: str | None = None
    """The call before which a what-if halted."""
    session: Session
    """The record."""
    result: Session | None = None
    """What the run left: a scratch session in memory; of a what-if, the new branch."""
    value: Any = field(default=None, compare=False)
    """What the callable returned."""
    error: str | None = None
    """What it raised, where that was not the divergence itself."""
    in_words: str | None = None
    """Where the program made more or fewer runs than are on record: that, in words."""

    def __bool__(self) -> bool:
        return self.equal is True

    @property
    def exit_status(self) -> int:
        """0 equal, 1 diverged (or no override was come to: it was no what-if), 125 not comparable."""
        return NOT_COMPARABLE if self.equal is None else EQUAL if self.equal and not self.unchanged else DIVERGED

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Return it for people: the verdict, the counts, then everything that was found."""
        parted = len(self.made) > len(self.itself) or self.halted
        verdict = {None: "not comparable", True: "equal up to where it parted" if parted else "equal", False: "diverged"}[
            self.equal
        ]
        name = self.session.name
        found = [f"{name}: {verdict}"]
        if self.equal is None:
            found += [f"  not replayable because {reason}" for reason in self.reasons]
        if self.error and not self.error.endswith(self.reasons or "\0"):
            found.append(f"  the run ended with {self.error}")
        if self.in_words:
            found.append(f"  {self.in_words}")
        counts = [
            f"{self.served} served",
            f"{self.live} live",
            f"{len(self.unused)} unused",
            f"{_counted(len(self.misses), 'miss')}",
        ]
        found.append(f"  {', '.join(counts)}; {self.spent.total_tokens} tokens not spent again")
        if self.divergence is not None:
            one = self.divergence
            found += [
                f"  first divergence: {one.what}" + (f" at {one.path}" if one.path else ""),
                f"    the run has     {one.found}",
                f"    the record has  {one.expected}" + (f"  (chunk {one.chunk[:12]})" if one.chunk else ""),
            ]
        if self.cause is not None:
            found.append(
                f"  the record contradicts itself: chunk {self.cause[:12]} holds a result that the model was not told then"
            )
        found += [
            f"  unused: {f'{told}  (chunk {name[:12]})' if told else f'chunk {name[:12]}'}"
            for name, told in zip_longest(self.unused[:SHOWN], self.unused_words[:SHOWN])
        ]
        found += [f"  unused: {len(self.unused) - SHOWN} more"] if len(self.unused) > SHOWN else []
        found += [f"  not changed: {name} (the run did not come to it)" for name in self.unasked]
        found += [f"  unknown whether it was done: chunk {name[:12]}" for name in self.unknown]
        found += [f"  made by the program itself: {what}" for what in dict.fromkeys(self.itself)]
        found += [f"  note: {note}" for note in self.notes]
        if self.halted:
            found.append(f"  halted before the {self.halted}")
        if self.result is not None and self.result.store == self.session.store:
            found.append(f"  recorded on {self.result.name}")
        return found

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON value."""
        usage = {name: getattr(self.spent, name) for name in ("input_tokens", "output_tokens")}
        return {
            "session": self.session.name, "head": self.session.head, "equal": self.equal, "exit_status": self.exit_status,
            "served": self.served, "live": self.live, "made": list(self.made), "itself": list(self.itself), "unused": list(self.unused),
            "unused_words": list(self.unused_words),
            "unasked": list(self.unasked), "unchanged": self.unchanged,
            "misses": [one.as_json() for one in self.misses],
            "divergence": None if self.divergence is None else self.divergence.as_json(),
            "cause": self.cause, "reasons": list(self.reasons), "notes": list(self.notes), "unknown": list(self.unknown),
            "tokens_not_spent": {**usage, "total_tokens": self.spent.total_tokens}, "halted": self.halted, "error": self.error,
            "in_words": self.in_words,
            "branch": None if self.result is None or self.result.store != self.session.store else self.result.name,
        }  # fmt: skip


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}es"


def in_order(session: Session, names: Sequence[Digest]) -> tuple[Digest, ...]:
    """Return chunks in the order of the record, each once."""
    wanted = set(names)
    return tuple(chunk.id for chunk in session.chunks() if chunk.id in wanted) if wanted else ()
