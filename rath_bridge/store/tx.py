"""A transaction as both databases offer it, and texts as they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

DAMAGE: Final = (TypeError, ValueError, IndexError, KeyError, OverflowError, MemoryError)
"""What decoding a damaged row may raise: no row that we wrote does."""


class Tx(Protocol):
    """An open transaction."""

    def all(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        ...

    def run(self, sql: str, params: Sequence[Any] = ()) -> None:
        """Run one statement that returns nothing."""
        ...

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run one statement for many rows."""
        ...

    def among(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Run a statement with ``IN (...)`` over any number of values."""
        ...


def text_bytes(text: str) -> bytes:
    """A text as it is stored: every str has a form, and the forms sort like the texts."""
    return text.encode("utf-8", "surrogatepass")


def bytes_text(data: Any) -> str:
    """Inverse of `text_bytes`."""
    return bytes(data).decode("utf-8", "surrogatepass")
