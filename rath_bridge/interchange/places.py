"""Where in a file a value stands: the line of a path, found only when there is something to complain about."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from json import JSONDecoder, loads
from typing import Any, Final, cast

Step = str | int
_STEP: Final = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_DECODER: Final = JSONDecoder(strict=False)


@dataclass(frozen=True, slots=True)
class Source:
    """A file's text, and what was read from it."""

    file: str
    data: bytes
    whole: Any
    """What was parsed: a document, or the records of JSON lines."""

    def line(self, obj: Any, path: str) -> int:
        """Return the line (from 1) on which ``path`` inside ``obj`` begins, or the nearest place around it.

        Args:
            obj: ``whole``, one of its items, or a list of some of them: what one document is.
            path: ``steps[3].message``, ``[2].role`` ...; empty for ``obj`` itself.
        """
        steps: list[Step] = [int(index) if index else name for index, name in _STEP.findall(path)]
        whole: Any = self.whole
        if obj is not whole and isinstance(whole, list):
            steps = _from_whole(cast("list[Any]", whole), obj, steps)
        try:
            loads(self.data)
        except ValueError:  # JSON lines
            pass
        else:
            return line_of(self.data.decode(), steps)
        rows = [number for number, row in enumerate(self.data.split(b"\n"), 1) if row.strip()]
        first = steps[0] if steps else 0
        return rows[first] if isinstance(first, int) and first < len(rows) else 1


def _from_whole(whole: list[Any], obj: Any, steps: list[Step]) -> list[Step]:
    """Return the path from the whole file: a document is one record of it, or a list of some."""
    wanted, rest = obj, steps
    if isinstance(obj, list) and steps and isinstance(steps[0], int) and steps[0] < len(cast("list[Any]", obj)):
        wanted, rest = cast("list[Any]", obj)[steps[0]], steps[1:]
    index = next((number for number, one in enumerate(whole) if one is wanted), None)
    return steps if index is None else [index, *rest]


def line_of(text: str, steps: Sequence[Step]) -> int:
    """Return the line (from 1) on which the value at a path begins in a JSON text; where it is absent, that of what should hold it."""
    at = _space(text, 0)
    for step in steps:
        inner = _member(text, at, step)
        if inner is None:
            break
        at = inner
    return text.count("\n", 0, at) + 1


def _member(text: str, at: int, step: Step) -> int | None:
    """Return where the value of a key or index begins, in the container that begins at a place."""
    if text[at] != ("{" if isinstance(step, str) else "["):
        return None
    index, at = 0, _space(text, at + 1)
    while text[at] not in "]}":
        found: Step = index
        if isinstance(step, str):
            found, at = _DECODER.raw_decode(text, at)
            at = _space(text, _space(text, at) + 1)
        if found == step:
            return at
        at = _space(text, _DECODER.raw_decode(text, at)[1])
        index, at = index + 1, _space(text, at + 1) if text[at] == "," else at
    return None


def _space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()
