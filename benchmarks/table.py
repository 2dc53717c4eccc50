"""One row of a figure, and how it is measured: the best of several rounds, in the CPU time of this process where
that is the point.
"""

from __future__ import annotations

import gc
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    work: str
    ours: str
    reach: str
    peer: str = ""
    holds: bool | None = None
    """Whether the figure is reached; None where there is none to reach."""


def per_call(call: Callable[[int], object], count: int, rounds: int = 3, clock: Callable[[], float] = process_time) -> float:
    """Seconds per call: the best of ``rounds`` (the machine is never quiet, and only ever makes it slower)."""
    best = float("inf")
    for turn in range(rounds):
        gc.collect()
        start = clock()
        for index in range(count):
            call(turn * count + index)
        best = min(best, (clock() - start) / count)
    return best


def once(call: Callable[[], object], rounds: int = 1) -> float:
    """Wall seconds of one call: the best of ``rounds``."""
    best = float("inf")
    for _ in range(rounds):
        gc.collect()
        start = perf_counter()
        call()
        best = min(best, perf_counter() - start)
    return best


def fsync_time(folder: Path, count: int = 50) -> float:
    """Median seconds of one 4 KB write with fsync: what durability costs on this disk."""
    times: list[float] = []
    with (folder / "fsync").open("wb") as file:
        for _ in range(count):
            start = perf_counter()
            file.write(b"\0" * 4096)
            file.flush()
            os.fsync(file.fileno())
            times.append(perf_counter() - start)
    return statistics.median(times)


@contextmanager
def workspace() -> Iterator[Path]:
    """A directory for one benchmark."""
    with tempfile.TemporaryDirectory(prefix="rath-bench-") as name:
        yield Path(name)


def size_of(path: Path) -> int:
    """Bytes of a SQLite file with its write-ahead log."""
    return sum(part.stat().st_size for part in path.parent.glob(path.name + "*"))


def micro(seconds: float) -> str:
    """Microseconds, for people."""
    return f"{seconds * 1e6:.1f} µs"
