"""A machine that reaches nothing: while it is sealed, connecting, looking up a name and starting a process raise."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_REFUSED: Final = (
    "socket.connect",
    "socket.bind",
    "socket.sendto",
    "socket.getaddrinfo",
    "subprocess.Popen",
    "os.posix_spawn",
    "os.exec",
)
_sealed: list[str] = []
_installed: list[bool] = []


class SealedError(RuntimeError):
    """Something wanted to leave this process."""


@contextmanager
def sealed() -> Iterator[list[str]]:
    """Refuse everything that leaves the process, in all threads; yields what was tried."""
    if not _installed:
        sys.addaudithook(_check)
        _installed.append(True)
    tried: list[str] = []
    _sealed.append("")
    try:
        yield tried
    finally:
        tried += [one for one in _sealed if one]
        _sealed.clear()


def _check(event: str, args: tuple[Any, ...]) -> None:
    if _sealed and event in _REFUSED:
        _sealed.append(f"{event} {args[:1]}")
        raise SealedError(f"{event} {args[1:2]}: nothing may leave this process here")
