"""Files that are written beside their place until they are whole, and packets that only one process changes at a time.

Whoever writes one holds a lock on it, which ends with the process, however that ends. So what nobody holds was left behind by a process
that is dead, and the next run removes it. Where a file system has no locks, nothing is removed.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from rath_bridge.errors import PacketError, PacketExistsError
from rath_bridge.model.digests import new_id

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_LONGEST: Final = 200
"""Characters of a name; a file system takes 255 bytes, and there is more to it."""


@contextmanager
def beside(path: Path, *, directory: bool = False) -> Generator[Path]:
    """Make an empty file (or directory) beside ``path``; when the block ends it is gone, unless it was moved to its place.

    Leftovers of dead processes that wrote the same path are removed first.
    """
    _clean(path)
    aside, lock = _make(path, directory)
    try:
        yield aside
    finally:
        _remove(aside)
        if lock is not None:
            os.close(lock)


def _make(path: Path, directory: bool) -> tuple[Path, int | None]:
    while True:
        aside = path.with_name(f".{path.name[:_LONGEST]}.{new_id(4)}.part")
        if directory:
            aside.mkdir()
        else:
            aside.open("xb").close()
        lock = _lock(aside, wait=True)
        if os.path.lexists(aside) if lock is None else _is(lock, aside):
            return aside, lock
        if lock is not None:  # another run took it for a leftover in the moment before it was locked
            os.close(lock)


def _clean(path: Path) -> None:
    """Remove what dead processes left."""
    name = re.compile(rf"\.{re.escape(path.name[:_LONGEST])}\.[0-9a-f]{{8}}\.(part|old)\Z")
    try:
        found = [path.parent / entry.name for entry in os.scandir(path.parent) if name.match(entry.name)]
    except OSError:  # no such directory, or it may not be listed
        return
    for aside in found:
        if aside.suffix == ".old" and not os.path.lexists(path):
            continue  # the only packet there is: somebody died between two renames
        with suppress(BlockingIOError):  # its writer lives
            lock = _lock(aside, wait=False)
            if lock is not None:
                if _is(lock, aside):
                    _remove(aside)
                os.close(lock)


def _remove(aside: Path) -> None:
    for part in aside.parent.glob(f"{_literal(aside.name)}-*"):  # an archive's files wait beside it
        with suppress(OSError):
            part.unlink()
    if aside.is_dir():
        shutil.rmtree(aside, ignore_errors=True)
    else:
        with suppress(OSError):
            aside.unlink()


def _literal(name: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", name)


def put(aside: Path, path: Path, *, replace: bool) -> None:
    """Move a file to its place.

    Raises:
        PacketExistsError: ``replace`` is off and something stands there by now.
    """
    if not replace and not _is_empty(path):
        try:
            os.link(aside, path)
            return
        except FileExistsError:
            raise PacketExistsError(str(path)) from None
        except OSError:  # a file system without hard links
            if os.path.lexists(path):
                raise PacketExistsError(str(path)) from None
    aside.replace(path)


def put_directory(aside: Path, path: Path, *, replace: bool) -> None:
    """Move a directory to its place; an old one goes only once the new one stands.

    Raises:
        PacketExistsError: ``replace`` is off and something stands there by now.
    """
    old = None
    try:
        while True:
            with suppress(FileNotFoundError):
                if replace and old is None and any(path.iterdir()):
                    old = path.with_name(f".{path.name[:_LONGEST]}.{new_id(4)}.old")
                    path.rename(old)
            try:
                aside.rename(path)
                return
            except OSError:
                if not path.is_dir() or not any(path.iterdir()):  # not that another run was faster
                    raise
                if not replace:
                    raise PacketExistsError(str(path)) from None
                _remove_old(old)
                old = None
    except BaseException:
        if old is not None and not os.path.lexists(path):
            old.rename(path)
            old = None
        raise
    finally:
        _remove_old(old)


def _remove_old(old: Path | None) -> None:
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


def _is_empty(path: Path) -> bool:
    try:
        return path.stat().st_size == 0
    except OSError:
        return False


@contextmanager
def held(path: Path) -> Generator[Callable[[], bool]]:
    """Let nobody else change a packet meanwhile.

    Yields:
        A function that tells whether what stands at ``path`` is still what was held, where a file system has no locks.

    Raises:
        PacketError: Another process is changing it.
    """
    try:
        lock = _lock(path, wait=False)
    except BlockingIOError:
        raise PacketError(f"somebody else is signing {path.name} at this moment: nothing was done, sign it once more") from None
    before = _state(path)
    try:
        yield lambda: _state(path) == before and (lock is None or _is(lock, path))
    finally:
        if lock is not None:
            os.close(lock)


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _lock(path: Path, *, wait: bool) -> int | None:
    """A descriptor with a lock; None where it cannot be had.

    Raises:
        BlockingIOError: ``wait`` is off and another process has it.
    """
    if fcntl is None:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        raise
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _is(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False
