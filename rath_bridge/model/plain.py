"""Values that a record gives back exactly as they were, whoever reads it: built-in types alone."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Final

_DEPTH: Final = 16
_ATOMS: Final = frozenset({str, int, float, bool, bytes, type(None)})


def is_plain(value: Any, depth: int = 0) -> bool:
    """Whether a value comes back as it was: built-in types alone, maps with text keys, no deeper than 16."""
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind in _ATOMS:
        return True
    if depth > _DEPTH:
        return False
    if kind is list:
        return all(is_plain(item, depth + 1) for item in value)
    return kind is dict and all(type(key) is str and is_plain(item, depth + 1) for key, item in value.items())


def as_given(fields: Mapping[Any, Any], redact: Callable[[Any], Any] | None = None) -> tuple[dict[str, Any], list[str]]:
    """Return what of a run's settings can be given to it again, and the names of the others.

    Args:
        fields: Name to value.
        redact: Takes secrets out of a value; returns the same object where there are none. A value that it changes is kept so, and named.

    Returns:
        Copies of the plain values, and the names of what is missing or not whole.
    """
    kept = {str(name): copy.deepcopy(value) for name, value in fields.items() if is_plain(value)}
    clean = kept if redact is None else {name: redact(value) for name, value in kept.items()}
    return clean, [str(name) for name in fields if str(name) not in kept or clean[str(name)] is not kept[str(name)]]
