"""Where each piece of a history is drawn: rows newest first, one lane for each line that goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rath_bridge.cli.pieces import Piece

UNICODE: Final = {"node": "●", "merge": "◆", "|": "│", "-": "─", "fork": "├", "open": "╮", "close": "╯", "meet": "┤"}
ASCII: Final = {"node": "*", "merge": "M", "|": "|", "-": "-", "fork": "|", "open": ".", "close": "'", "meet": "|"}


@dataclass(frozen=True, slots=True)
class Row:
    """One row: a piece, or only rails (where lines meet)."""

    piece: int | None
    cells: tuple[tuple[str, int], ...]
    """Characters with the lane whose colour they take."""
    lane: int


def order(pieces: Sequence[Piece]) -> list[int]:
    """Return the pieces newest first, children before parents; a branch stands right above the point where it leaves.

    Kahn's algorithm with a stack: after a piece come the lines that leave it, and last the line that goes on.
    """
    waiting = [len(set(piece.parents)) for piece in pieces]
    children: list[list[int]] = [[] for _ in pieces]
    for number, piece in enumerate(pieces):
        for parent in set(piece.parents):
            children[parent].append(number)
    stack = [number for number, count in reversed(list(enumerate(waiting))) if not count]
    found: list[int] = []
    while stack:
        number = stack.pop()
        found.append(number)
        ready: list[int] = []
        for child in children[number]:
            waiting[child] -= 1
            if not waiting[child]:
                ready.append(child)
        ready.sort(key=lambda child: (child != pieces[number].trunk, child))
        stack += ready
    return found[::-1]


def draw(pieces: Sequence[Piece], glyphs: dict[str, str]) -> list[Row]:
    """Lay the pieces out; the cost follows the number of pieces and the lanes that are open at once."""
    lanes: list[int | None] = []
    rows: list[Row] = []
    for number in order(pieces):
        piece = pieces[number]
        lane = lanes.index(number) if number in lanes else _free(lanes, 0)
        lanes[lane] = number
        open_before = [waits is not None for waits in lanes]
        first = piece.parents[0] if piece.parents else None
        joins = next((at for at, waits in enumerate(lanes) if waits == first and at != lane), None) if first is not None else None
        lanes[lane] = first
        others = [parent for parent in dict.fromkeys(piece.parents[1:]) if parent != first]
        cells = _rails(open_before, glyphs)
        _put(cells, lane, glyphs["merge" if len(piece.parents) > 1 else "node"], lane)
        for parent in others:
            known = lanes.index(parent) if parent in lanes else None
            target = _free(lanes, lane + 1) if known is None else known
            lanes[target] = parent
            _link(cells, lane, target, glyphs, fresh=known is None)
        if joins is not None and not others and joins < lane:
            _link(cells, lane, joins, glyphs, fresh=False)
            lanes[lane] = None
            joins = None
        rows.append(Row(number, _trimmed(cells), lane))
        if joins is not None:  # the row has connectors of its own: the lines meet on the next one
            keep, end = min(joins, lane), max(joins, lane)
            cells = _rails([waits is not None for waits in lanes], glyphs)
            _link(cells, end, keep, glyphs, fresh=False)
            _put(cells, end, glyphs["close"], end)
            lanes[end] = None
            rows.append(Row(None, _trimmed(cells), keep))
        while lanes and lanes[-1] is None:
            lanes.pop()
    return rows


_Cells = list[tuple[str, int]]


def _free(lanes: list[int | None], start: int) -> int:
    """Return the first free lane from ``start`` on, behind which nothing is open; connectors cross as little as they can."""
    at = len(lanes)
    while at > start and lanes[at - 1] is None:
        at -= 1
    if at == len(lanes):
        lanes.append(None)
    return at


def _rails(open_lanes: Sequence[bool], glyphs: dict[str, str]) -> _Cells:
    cells: _Cells = []
    for lane, is_open in enumerate(open_lanes):
        cells += [(glyphs["|"] if is_open else " ", lane), (" ", lane)]
    return cells


def _put(cells: _Cells, lane: int, char: str, colour: int) -> None:
    while len(cells) < 2 * lane + 2:
        cells.append((" ", lane))
    cells[2 * lane] = (char, colour)


def _link(cells: _Cells, lane: int, target: int, glyphs: dict[str, str], *, fresh: bool) -> None:
    """Draw from a node to another lane: a new one that opens there, or one that is open already."""
    low, high = min(lane, target), max(lane, target)
    colour = max(lane, target)
    _put(cells, high, cells[2 * high][0] if 2 * high < len(cells) else " ", colour)
    for at in range(2 * low + 1, 2 * high):
        if cells[at][0] != glyphs["|"]:  # a connector passes behind the rails that it does not meet
            cells[at] = (glyphs["-"], colour)
    if fresh:
        _put(cells, target, glyphs["open"], target)
    else:
        _put(cells, target, glyphs["fork" if target < lane else "meet"], target)


def _trimmed(cells: _Cells) -> tuple[tuple[str, int], ...]:
    while cells and cells[-1][0] == " ":
        cells.pop()
    return tuple(cells)
