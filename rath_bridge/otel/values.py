"""Attribute values as people wrote them: JSON in text, maps in dotted and numbered keys."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import orjson


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a map, or an empty one for anything else."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def listed(value: Any) -> list[Any]:
    """Return a list, or an empty one for anything else."""
    return list(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else []


def parsed(value: Any) -> Any:
    """Return what JSON text says; anything else, and text that is no JSON object, list or string, as it is."""
    if not isinstance(value, str) or value[:1] not in ("{", "[", '"'):
        return value
    for loads in (orjson.loads, json.loads):  # the second reads halves of surrogate pairs, and numbers of any size
        try:
            return loads(value)
        except (ValueError, RecursionError):
            continue
    return value


def indexed(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    """Return what stands under ``prefix0.a.b``, ``prefix1.…`` as a list of maps; numbers in the middle are lists, too."""
    root: dict[str, Any] = {}
    for key, value in attributes.items():
        if not key.startswith(prefix) or not key[len(prefix) : len(prefix) + 1].isdecimal():
            continue
        at = root
        steps = key[len(prefix) :].split(".")
        for step in steps[:-1]:
            below = at.setdefault(step, {})
            if not isinstance(below, dict):
                break
            at = cast("dict[str, Any]", below)
        else:
            at.setdefault(steps[-1], value)
    return listed(_lists(root, 0))


def _lists(value: Any, depth: int) -> Any:
    if not isinstance(value, dict) or depth > 50:
        return cast(Any, value)
    data = cast("dict[str, Any]", value)
    if data and all(key.isascii() and key.isdecimal() and len(key) < 10 for key in data):
        return [_lists(data[key], depth + 1) for key in sorted(data, key=int)]
    return {key: _lists(one, depth + 1) for key, one in data.items()}
