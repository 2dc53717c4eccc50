"""Where a replay leaves the record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rath_bridge.errors import RathError
from rath_bridge.model.digests import Digest


def printable(text: str) -> str:
    """Return a text that can be written: lone surrogates are shown."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def words(error: BaseException) -> str:
    """Return what somebody else's exception says, whatever its ``__str__`` does."""
    try:
        text = str(error)
    except Exception as other:  # noqa: BLE001 - it is the user's code
        text = f"(its text raises {type(other).__name__})"
    return printable(f"{type(error).__name__}: {text}" if text else type(error).__name__)[:2000]


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a replay leaves the record, with both sides."""

    what: str
    """``model call of Triage: input[3]``, ``tool call pay``, ``message of team[0]/writer[0]`` ..."""
    found: str
    """What the run has."""
    expected: str
    """What the record has."""
    chunk: Digest | None = None
    """The chunk that was expected; None where the record has nothing left."""
    path: str | None = None
    """Where inside the value the two sides part: ``parts[0].content``."""

    def __post_init__(self) -> None:
        for name in ("what", "found", "expected", "path"):
            text = getattr(self, name)
            if text is not None:
                object.__setattr__(self, name, printable(text))

    def __str__(self) -> str:
        held = f"the record (chunk {self.chunk[:12]})" if self.chunk else "the record"
        place = f", at {self.path}" if self.path else ""
        return f"{self.what}{place}: the run has {self.found}, {held} has {self.expected}"

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON value."""
        return {
            "what": self.what, "path": self.path, "found": self.found, "expected": self.expected, "chunk": self.chunk,
        }  # fmt: skip


class ReplayDivergenceError(RathError, LookupError):
    """A replay asked for what the record does not hold: compare both sides, or run the changed part live.

    Attributes:
        divergence: The first one.
    """

    exit_status = 1

    def __init__(self, divergence: Divergence) -> None:
        self.divergence = divergence
        super().__init__(f"the replay diverged from the record: {divergence}")


class ReplayHaltedError(RathError):
    """A replay has come to where it was told to halt; what was served so far is on its report.

    Attributes:
        what: The call before which it halted.
    """

    exit_status = 0

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"the replay halted as asked, before the {what}")
