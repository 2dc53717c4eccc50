"""History condensed for drawing: chunks that simply follow each other become one piece.

A piece ends where another line begins (a fork point), before and after a merge, and at the tip of a ref. History is read newest first,
each chunk once, and only pieces are held: memory follows what is drawn, not what was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.store.protocol import Reader, Ref
from rath_bridge.verbs.lineage import walk

_TELL: Final = 1024
"""Chunks after which progress is told."""


@dataclass(slots=True)
class Piece:
    """Consecutive chunks of one line."""

    first: Digest
    tip: Digest
    at: int
    """When its tip was recorded, in microseconds since 1970."""
    count: int
    parents: tuple[int, ...]
    """Pieces that it follows; the first is the line that goes on."""
    trunk: int | None
    """The piece that follows it on the same stretch."""
    refs: tuple[str, ...] = ()
    said: Digest | None = None
    """Its last message, else its last tool call or result."""
    marks: frozenset[str] = frozenset()
    """Origins seen in it."""
    matched: int | None = None
    """How many of its chunks were asked for; None where nothing was asked. `said` is then the last of them."""


@dataclass(slots=True)
class _Growing:
    """A piece that is read from its tip back."""

    tip: Digest
    at: int
    first: Digest
    over: tuple[Digest, ...] = ()
    """Parents of its first chunk."""
    count: int = 0
    said: Digest | None = None
    used: Digest | None = None
    """Its last tool call or result."""
    marks: set[str] = field(default_factory=set[str])
    matched: int = 0


def condense(
    refs: Sequence[Ref],
    reader: Reader,
    progress: Callable[[int], None] = lambda _: None,
    asked: Callable[[Chunk], bool] | None = None,
) -> list[Piece]:
    """Read all that ``refs`` descend from, each chunk once, and return its pieces.

    Args:
        refs: Tips, in order of rank: shared history belongs to the line of the first.
        reader: Read access.
        progress: Told how many chunks have been read.
        asked: Tells which chunks to count, and to tell a piece by.

    Raises:
        MissingChunkError: A parent is not in the store; run ``rath-bridge fsck``.
    """
    names: dict[Digest, list[str]] = {}
    for ref in refs:
        names.setdefault(ref.head, []).append(ref.name)
    found = list(_grown(frozenset(names), reader, progress, asked))
    tips = {piece.tip: number for number, piece in enumerate(found)}
    order, trunks = _ranked([tips[ref.head] for ref in refs], [[tips[name] for name in piece.over] for piece in found])
    index = {number: place for place, number in enumerate(order)}
    return [
        Piece(
            first=piece.first, tip=piece.tip, at=piece.at, count=piece.count, parents=tuple(index[tips[name]] for name in piece.over),
            trunk=None if (after := trunks.get(number)) is None else index[after], refs=tuple(names.get(piece.tip, ())),
            said=piece.said or piece.used, marks=frozenset(piece.marks), matched=None if asked is None else piece.matched,
        )
        for number in order
        for piece in [found[number]]
    ]  # fmt: skip


def _grown(
    heads: frozenset[Digest], reader: Reader, progress: Callable[[int], None], asked: Callable[[Chunk], bool] | None
) -> Iterator[_Growing]:
    """Yield the pieces, newest first; each goes on growing until the next one of its line begins."""
    goes_on: dict[Digest, _Growing | None] = {}
    """What has been named as a parent: by the one chunk that simply follows it, or (None) by a merge or by several."""
    count = 0
    for count, chunk in enumerate(walk(heads, reader), 1):
        piece = goes_on.pop(chunk.id, None)
        if piece is None or chunk.id in heads or len(chunk.parents) > 1:
            piece = _Growing(chunk.id, chunk.at, chunk.id)
            yield piece
        piece.first, piece.over = chunk.id, chunk.parents
        piece.count += 1
        if chunk.origin is not None:
            piece.marks.add(chunk.origin)
        matches = asked is not None and asked(chunk)
        piece.matched += matches
        if piece.said is None and (matches if asked is not None else chunk.kind == "message"):
            piece.said = chunk.id
        if piece.used is None and asked is None and chunk.kind in ("tool_call", "tool_result"):
            piece.used = chunk.id
        for parent in chunk.parents:
            alone = len(chunk.parents) == 1 and parent not in goes_on
            goes_on[parent] = piece if alone else None
        if count % _TELL == 0:
            progress(count)
    progress(count)


def _ranked(heads: Sequence[int], over: Sequence[Sequence[int]]) -> tuple[list[int], dict[int, int]]:
    """Put pieces in the order of the stretches that they are on, oldest first in each.

    Args:
        heads: Pieces at the tips, in order of rank.
        over: For each piece, those that it follows.

    Returns:
        The pieces in order, and for a piece the one that follows it on its stretch.
    """
    order: dict[int, None] = {}
    trunks: dict[int, int] = {}
    todo = list(reversed(heads))
    while todo:
        at: int | None = todo.pop()
        stretch: list[int] = []
        seen = order.keys()
        while at is not None and at not in seen:
            stretch.append(at)
            at = over[at][0] if over[at] else None
        trunks |= {older: newer for newer, older in pairwise(stretch)}
        stretch.reverse()
        order.update(dict.fromkeys(stretch))
        for number in (*stretch[1:], *stretch[:1]):
            todo += over[number][1:]
    return list(order), trunks
