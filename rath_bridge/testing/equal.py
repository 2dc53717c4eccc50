"""Equality that tells apart what Python's ``==`` does not: 1, 1.0 and True; 0.0 and -0.0; and that knows NaN."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, cast


def exact(value: Any) -> Any:
    """Return a hashable, ordered form of a value in which equal means the same to the last bit; tuples count as lists."""
    if isinstance(value, bool) or value is None:
        return (type(value).__name__, value)
    if isinstance(value, float):
        return ("float", "nan" if math.isnan(value) else struct.pack(">d", value))
    if isinstance(value, Mapping):
        pairs = [(exact(key), exact(item)) for key, item in cast("Mapping[Any, Any]", value).items()]
        return ("map", tuple(sorted(pairs, key=repr)))
    if isinstance(value, (list, tuple)):
        return ("list", tuple(exact(item) for item in cast("list[Any]", value)))
    if is_dataclass(value) and not isinstance(value, type):
        return (type(value).__name__, tuple((f.name, exact(getattr(value, f.name))) for f in fields(value)))
    return (type(value).__name__, value)


def same(left: Any, right: Any) -> bool:
    """Tell whether two values are the same to the last bit; lists and tuples count as equal, maps have no order."""
    return exact(left) == exact(right)
