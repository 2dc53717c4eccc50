"""Which chunks a verb is about: ``--kind --agent --tool --framework --since --grep``, the same for all of them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from itertools import islice
from typing import Annotated, Final, TypeVar

import typer

from rath_bridge.cli.runs import CallNames, RunNames
from rath_bridge.model.chunk import now
from rath_bridge.model.kinds import KINDS
from rath_bridge.store.protocol import Reader
from rath_bridge.verbs.matching import Filter, Matcher

T = TypeVar("T")

Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kind", metavar="KIND", help="Only chunks of this kind (message, tool_call ...); several are fine.", show_default=False
    ),
]
Agents = Annotated[
    list[str] | None,
    typer.Option(
        "--agent", metavar="NAME", help="Only what this agent, node or speaker did; several are fine.", show_default=False
    ),
]
Tools = Annotated[
    list[str] | None,
    typer.Option(
        "--tool", metavar="NAME", help="Only calls of this tool and what came of them; several are fine.", show_default=False
    ),
]
Frameworks = Annotated[
    list[str] | None,
    typer.Option("--framework", metavar="NAME", help="Only what this framework recorded; several are fine.", show_default=False),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="WHEN", help="Nothing older: 2h, 3d, 2026-11-29, 2026-11-29T10:00 (UTC).", show_default=False
    ),
]
Grep = Annotated[
    str | None,
    typer.Option(
        "--grep",
        metavar="PATTERN",
        help="Only where a text fits this pattern; capitals matter where it has some.",
        show_default=False,
    ),
]

_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d|w)\Z")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def filter_of(
    kinds: Sequence[str] | None, agents: Sequence[str] | None, tools: Sequence[str] | None, frameworks: Sequence[str] | None,
    since: str | None, grep: str | None,
) -> Filter:  # fmt: skip
    """Return what was asked for on the command line.

    Raises:
        typer.BadParameter: A kind that is a typing error, a time or a pattern that cannot be read.
    """
    for kind in kinds or ():
        near = get_close_matches(kind, KINDS, 1)
        if kind not in KINDS and near:
            raise typer.BadParameter(f"there is no kind {kind!r}: did you mean {near[0]!r}?")
    return Filter(
        kinds=_folded(kinds), agents=_folded(agents), tools=_folded(tools),
        frameworks=frozenset(name.replace("-", "_") for name in _folded(frameworks)),
        since=None if since is None else moment(since), grep=None if grep is None else _pattern(grep),
    )  # fmt: skip


def matcher(wanted: Filter, reader: Reader, names: RunNames) -> Matcher:
    """Return what tells whether a chunk is asked for."""
    return Matcher(wanted, reader.objects, names.of, CallNames(reader).of)


def moment(text: str) -> int:
    """Read a time: so long ago, or a date in UTC.

    Returns:
        Microseconds since 1970.
    """
    ago = _AGO.match(text.strip())
    if ago is not None:
        return now() - int(float(ago[1]) * _SECONDS[ago[2]] * 1_000_000)
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no time: give 2h, 3d, 2026-11-29 or 2026-11-29T10:00") from None
    return int((found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp() * 1_000_000)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, 0 if any(char.isupper() for char in text) else re.IGNORECASE)
    except re.error as error:
        raise typer.BadParameter(f"{text!r} is no pattern ({error}): quote what is meant as it stands with \\") from None


def _folded(names: Sequence[str] | None) -> frozenset[str]:
    return frozenset(name.casefold() for name in names or ())


def at_most(found: Iterable[T], number: int | None) -> Iterator[T]:
    """The first so many, however large the number; all of them where none was given."""
    return islice(found, number if number is None else min(number, sys.maxsize))
