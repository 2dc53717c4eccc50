"""The stored form, step by step: an ordered list of functions; each brings format n to n + 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from rath_bridge.store.schema import Dialect, index_tables, tables


def _format_1(tx: Any, dialect: Dialect) -> None:
    for statement in tables(dialect):
        tx.run(statement)


def _format_2(tx: Any, dialect: Dialect) -> None:
    """An index may begin as a copy of another: O(1), whatever its size."""
    for statement in index_tables(dialect):
        tx.run(statement)


MIGRATIONS: Final[tuple[Callable[[Any, Dialect], None], ...]] = (_format_1, _format_2)
"""Never edit a step that was released; append the next one, raise `schema.FORMAT`, and add a fixture under ``tests/formats``."""
