"""Values of a framework's state, for people: JSON as it is, msgpack as far as it is plain. Nothing is built that a type names."""

from __future__ import annotations

import struct
from typing import Any, Final

import orjson

MOST: Final = 4_096
"""Bytes of a value that are read; of a longer one, its size is told."""
_NUMBERS: Final = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_SIZED: Final = {
    0xD9: ("str", 1), 0xDA: ("str", 2), 0xDB: ("str", 4), 0xC4: ("bin", 1), 0xC5: ("bin", 2), 0xC6: ("bin", 4),
    0xDC: ("array", 2), 0xDD: ("array", 4), 0xDE: ("map", 2), 0xDF: ("map", 4), 0xC7: ("ext", 1), 0xC8: ("ext", 2), 0xC9: ("ext", 4),
}  # fmt: skip
_CONSTANTS: Final = {0xC0: None, 0xC2: False, 0xC3: True}


def plain_value(data: bytes, *, packed: bool = False) -> Any:
    """Return what bytes say, or the bytes themselves where they do not read as that. A value of a type of its own (msgpack's
    extensions) stands as ``<type 5, 20 bytes>``.

    Args:
        data: A value as a framework stored it.
        packed: It is msgpack (LangGraph's), not JSON.
    """
    if len(data) > MOST:
        return data
    try:
        if not packed:
            return orjson.loads(data)
    except orjson.JSONDecodeError:
        return data
    try:
        value, end = _read(data, 0, 0)
    except (IndexError, ValueError, struct.error, RecursionError):
        return data
    return value if end == len(data) else data


def _read(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    first = data[at]
    at += 1
    if depth > 32:
        raise ValueError("too deep")
    if first < 0x80 or first >= 0xE0:
        return (first if first < 0x80 else first - 256), at
    if first in _CONSTANTS:
        return _CONSTANTS[first], at
    if first in _NUMBERS:
        size = struct.calcsize(_NUMBERS[first])
        return struct.unpack_from(_NUMBERS[first], data, at)[0], at + size
    if 0xD4 <= first <= 0xD8:
        return _sized("ext", 1 << (first - 0xD4), data, at, depth)
    if first in _SIZED:
        what, width = _SIZED[first]
        return _sized(what, int.from_bytes(data[at : at + width]), data, at + width, depth)
    if first < 0x90:
        return _sized("map", first & 15, data, at, depth)
    return _sized("array", first & 15, data, at, depth) if first < 0xA0 else _sized("str", first & 31, data, at, depth)


def _sized(what: str, size: int, data: bytes, at: int, depth: int) -> tuple[Any, int]:
    if what in ("str", "bin"):
        found = data[at : at + size]
        if len(found) != size:
            raise ValueError("cut short")
        return (found.decode() if what == "str" else found), at + size
    if what == "ext":
        if at + 1 + size > len(data):
            raise ValueError("cut short")
        return f"<type {data[at]}, {size} bytes>", at + 1 + size
    if size > len(data):
        raise ValueError("cut short")
    if what == "array":
        items: list[Any] = []
        for _ in range(size):
            item, at = _read(data, at, depth + 1)
            items.append(item)
        return items, at
    entries: dict[Any, Any] = {}
    for _ in range(size):
        key, at = _read(data, at, depth + 1)
        entries[key if isinstance(key, str) else repr(key)], at = _read(data, at, depth + 1)
    return entries, at
