"""Waiting for something to be so, for as long as a busy machine takes: no test relies on a pause that is long enough."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic, sleep
from typing import Any, Final

from rath_bridge.errors import MissingSessionError

LONG: Final = 60.0
"""Seconds after which it never will be."""


def until(holds: Callable[[], Any], seconds: float = LONG, pause: float = 0.02) -> Any:
    """Wait until something holds, and return it; of a session or a file that is not there yet nothing does."""
    end = monotonic() + seconds
    while not (found := _now(holds, end)):
        sleep(pause)
    return found


async def soon(holds: Callable[[], Any], seconds: float = LONG) -> Any:
    """The same, while other tasks work."""
    end = monotonic() + seconds
    while not (found := _now(holds, end)):  # noqa: ASYNC110 - no event tells it
        await asyncio.sleep(0.01)
    return found


def _now(holds: Callable[[], Any], end: float) -> Any:
    late = monotonic() > end  # asked once more after a pause of any length
    with suppress(MissingSessionError, FileNotFoundError):
        if found := holds():
            return found
    if late:
        raise AssertionError("it never came to hold")
    return None


@contextmanager
def started(command: Sequence[Any], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process that has ended when the block has, however that ends."""
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            process.kill()
