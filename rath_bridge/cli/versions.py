"""Version specifiers, as far as adapters use them: ``>=1.0,<2``, ``==1.4.*``, ``~=0.7.1``, ``!=1.2.3``."""

from __future__ import annotations

import re
from operator import eq, ge, gt, le, lt, ne
from typing import Final

_CLAUSE: Final = re.compile(r"\s*(>=|<=|==|!=|~=|>|<)\s*([0-9][^,\s]*)\s*\Z")
_OPERATORS: Final = {"==": eq, "!=": ne, ">=": ge, "<=": le, ">": gt, "<": lt}


def satisfies(version: str, specifier: str) -> bool:
    """Tell whether an installed version lies in the range that an adapter supports.

    Only release numbers are compared: a pre-release of 2.0 counts as 2.0.

    Raises:
        ValueError: Not such a specifier.
    """
    return all(_holds(_release(version), clause) for clause in specifier.split(",") if clause.strip())


def _holds(found: tuple[int, ...], clause: str) -> bool:
    match = _CLAUSE.match(clause)
    if match is None:
        raise ValueError(f"{clause!r} is not a version specifier: use >=, <=, ==, !=, ~=, > or < and a number")
    operator, text = match[1], match[2]
    wanted = _release(text)
    if text.endswith(".*"):
        same = _padded(found, len(wanted))[: len(wanted)] == wanted
        return same if operator == "==" else not same
    if operator == "~=":
        return _padded(found, len(wanted)) >= wanted and _padded(found, len(wanted))[: len(wanted) - 1] == wanted[:-1]
    length = max(len(found), len(wanted))
    left, right = _padded(found, length), _padded(wanted, length)
    return _OPERATORS[operator](left, right)


def _release(version: str) -> tuple[int, ...]:
    match = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _padded(release: tuple[int, ...], length: int) -> tuple[int, ...]:
    return release + (0,) * (length - len(release))
