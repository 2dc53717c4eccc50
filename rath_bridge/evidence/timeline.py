"""What the page's timeline and graph are drawn from: gathered while chunks go by, in bounded memory."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from rath_bridge.errors import RathError
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Run, SessionStart

SHOWN: Final = 600
"""Chunks at either end of the timeline that are shown; what lies between is in ``chunks.jsonl``."""


@dataclass(slots=True)
class Lane:
    """One line of the packet."""

    name: str
    number: int
    first: int
    last: int
    chunks: int = 0
    fork: tuple[int, int] | None = None
    """Lane and place that it starts from."""
    merges: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    """Place here, lane and place there, of what was merged in."""
    messages: list[int] = field(default_factory=list[int])


@dataclass(slots=True)
class Shown:
    """A chunk of the timeline, and its line."""

    chunk: Chunk
    lane: int


class Timeline:
    """Fed with every chunk, parents before children; keeps the ends of the timeline and the shape of the graph."""

    def __init__(self) -> None:
        self.lanes: list[Lane] = []
        self.first: list[Shown] = []
        self.last: deque[Shown] = deque(maxlen=SHOWN)
        self.total = 0
        self.runs: dict[str, str] = {}
        self._places: dict[Digest, tuple[int, int]] = {}

    def feed(self, chunk: Chunk) -> None:
        """Take one chunk."""
        self.total += 1
        above = [self._places[parent] for parent in chunk.parents if parent in self._places]
        place = 1 + max((at for _, at in above), default=-1)
        if chunk.kind == "session" or not above:
            lane = Lane(_lane_name(chunk), len(self.lanes), place, place, fork=above[0] if above else None)
            self.lanes.append(lane)
        else:
            lane = self.lanes[above[0][0]]
            if place <= lane.last:  # another line of the same name: a race that went on
                lane = Lane(lane.name, len(self.lanes), place, place, fork=above[0])
                self.lanes.append(lane)
        lane.merges += [(place, *other) for other in above[1:]]
        lane.last, lane.chunks = place, lane.chunks + 1
        if chunk.kind == "message" and len(lane.messages) < SHOWN:
            lane.messages.append(place)
        self._places[chunk.id] = (lane.number, place)
        if chunk.kind == "run" and chunk.run is not None and chunk.body_bytes is not None and b'"begin"' in chunk.body_bytes:
            body = chunk.body
            if isinstance(body, Run) and body.type != "thread":  # a conversation speaks by its assistant
                self.runs[chunk.run] = body.name
        shown = Shown(chunk, lane.number)
        if len(self.first) < SHOWN:
            self.first.append(shown)
        else:
            self.last.append(shown)

    @property
    def left(self) -> int:
        """Chunks between the two ends."""
        return self.total - len(self.first) - len(self.last)


def _lane_name(chunk: Chunk) -> str:
    if chunk.kind == "session" and chunk.body_bytes is not None:
        try:
            body = chunk.body
        except RathError:
            return "?"
        if isinstance(body, SessionStart):
            return body.name if body.branch == "main" else f"{body.name}@{body.branch}"
    return "?"
