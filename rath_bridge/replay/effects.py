"""What a tool does to the world, and what a replay does when the record does not answer for it.

A tool is *pure*, *reads* or *writes*; unknown counts as writes. Who knows better says so: by the decorator `effect`, by the policy of a
replay, or an MCP server by its annotations (``readOnlyHint``), which stand in the record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypeVar, cast, get_args

Effect = Literal["pure", "reads", "writes"]
OnMiss = Literal["fail", "live", "error"]

EFFECTS: Final[tuple[str, ...]] = get_args(Effect)
ON_MISS: Final[tuple[str, ...]] = get_args(OnMiss)

F = TypeVar("F")
_declared: dict[str, Effect] = {}


def effect(kind: Effect) -> Callable[[F], F]:
    """Declare what a tool does, above a function or above what a framework made of it.

    Args:
        kind: ``pure``, ``reads`` or ``writes``.

    Raises:
        ValueError: Another word, or the tool has no name.
    """
    if kind not in EFFECTS:
        raise ValueError(f"effect({kind!r}) is none of {', '.join(EFFECTS)}")

    def declare(tool: F) -> F:
        name = getattr(tool, "name", None) or getattr(tool, "__name__", None)
        if not isinstance(name, str):
            raise ValueError(
                f"a {type(tool).__name__} has no name under which its calls are recorded: use the policy of the replay"
            )
        _declared[name] = kind
        return tool

    return declare


def from_annotations(annotations: Any) -> Effect | None:
    """Return what an MCP tool's annotations say (source: ``ToolAnnotations`` of the MCP specification); None where they do not.

    Args:
        annotations: A map with ``readOnlyHint``, or an object with that attribute.
    """
    hint = (
        cast("Mapping[str, Any]", annotations).get("readOnlyHint")
        if isinstance(annotations, Mapping)
        else getattr(annotations, "readOnlyHint", None)
    )
    return None if not isinstance(hint, bool) else "reads" if hint else "writes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPolicy:
    """What holds for one tool, or all tools of a pattern."""

    effect: Effect | None = None
    """What it does; as declared or recorded, when absent."""
    on_miss: OnMiss | None = None
    """What becomes of a call that the record does not hold: the run fails (a divergence), it is made live, or the model is told an
    error."""


Policy = Mapping[str, "ToolPolicy | str"]
"""Tool name or pattern (``refund``, ``find_*``, ``*``; ``model:Writer`` and ``model:*`` for model calls) to a `ToolPolicy`, or to one
word of it: ``live``, ``error``, ``fail``, ``pure``, ``reads``, ``writes``."""


@dataclass(frozen=True, slots=True)
class Rules:
    """A policy, ready to be asked: the first pattern that fits and says something decides."""

    of: tuple[tuple[str, ToolPolicy], ...] = ()

    @classmethod
    def read(cls, policy: Policy | None) -> Rules:
        """Check and read a policy.

        Raises:
            ValueError: A word that means nothing here.
        """
        given: Any = {} if policy is None else policy
        if not isinstance(given, Mapping):
            raise ValueError(f"the policy {given!r} is no map: give tool names or patterns, and what holds for them")
        return cls(tuple((name, _one(name, value)) for name, value in cast("Mapping[Any, Any]", given).items()))

    def on_miss(self, name: str) -> OnMiss | None:
        """Return what the policy says of a miss, if anything."""
        return next((one.on_miss for pattern, one in self.of if one.on_miss and _fits(name, pattern)), None)

    def effect(self, name: str, recorded: str | None = None) -> Effect:
        """Return what a tool does: by this policy, by `effect`, by the record; else it writes."""
        told = next((one.effect for pattern, one in self.of if one.effect and _fits(name, pattern)), None)
        found = told or _declared.get(name) or recorded
        return cast(Effect, found) if found in EFFECTS else "writes"


def _fits(name: str, pattern: str) -> bool:
    """Models are only meant by name: ``*`` is every tool."""
    return fnmatchcase(name, pattern) and name.startswith("model:") == pattern.startswith("model:")


def _one(name: Any, value: Any) -> ToolPolicy:
    if not isinstance(name, str):
        raise ValueError(f"{name!r} in the policy is no name or pattern of tools")
    if isinstance(value, ToolPolicy):
        return value
    if value in ON_MISS:
        return ToolPolicy(on_miss=cast(OnMiss, value))
    if value in EFFECTS:
        return ToolPolicy(effect=cast(Effect, value))
    raise ValueError(f"the policy of {name!r} is {value!r}: use {', '.join((*ON_MISS, *EFFECTS))} or a ToolPolicy")
