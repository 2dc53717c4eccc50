"""Which model calls of a run are on record already, so that a message's ``models_usage`` is not counted again (law 7)."""

from __future__ import annotations

from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Ledger:
    """Tokens of calls that `RecordingChatCompletionClient` recorded inside a run and no message has claimed yet."""

    open: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def add(self, usage: Any) -> None:
        """A call was recorded."""
        self.open.append((usage.prompt_tokens, usage.completion_tokens))

    def claims(self, usage: Any) -> bool:
        """Tell whether a message's usage is that of a recorded call, and strike it off.

        The numbers alone decide: where two calls cost the same, it makes no difference to the sum which of them is struck off.
        """
        key = (usage.prompt_tokens, usage.completion_tokens)
        if key not in self.open:
            return False
        self.open.remove(key)
        return True


_ledger: ContextVar[Ledger | None] = ContextVar("rath_autogen_ledger", default=None)


def current_ledger() -> Ledger | None:
    """The ledger of the run that the calling code works in."""
    return _ledger.get()


def open_ledger(ledger: Ledger) -> Token[Ledger | None]:
    """Make a ledger the current one; undo it with `close_ledger`."""
    return _ledger.set(ledger)


def close_ledger(token: Token[Ledger | None]) -> None:
    """Undo `open_ledger`."""
    _ledger.reset(token)
