"""Where a packet is written: a directory or a zip archive, made beside its place and moved there when it is whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final, Protocol
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from rath_bridge.errors import PacketExistsError
from rath_bridge.evidence.aside import beside, put, put_directory
from rath_bridge.evidence.layout import MANIFEST, SUMS
from rath_bridge.model.digests import digest

_BUFFER: Final = 1 << 20
_TIME: Final = (1980, 1, 1, 0, 0, 0)


class Sink(Protocol):
    """Takes files, each once, and knows their sums."""

    sums: dict[str, str]

    def add(self, name: str, data: bytes) -> None:
        """Write a small file."""
        ...

    def lines(self, name: str) -> AbstractContextManager[LineFile]:
        """Write a file line by line; several may be open at once."""
        ...


class LineFile:
    """A file of lines, hashed as it grows."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = sha256()
        self.count = 0

    def write(self, line: bytes) -> None:
        """Write one line; the newline is added."""
        data = line + b"\n"
        self._file.write(data)
        self._hash.update(data)
        self.count += 1

    @property
    def digest(self) -> str:
        """The sha256 of what was written so far."""
        return self._hash.hexdigest()


class DirectorySink:
    """Files in a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.sums: dict[str, str] = {}
        (root / "blobs").mkdir()
        (root / "trees").mkdir()

    def add(self, name: str, data: bytes) -> None:
        """Write a small file."""
        with open(f"{self._root}/{name}", "xb", buffering=0) as file:
            rest = memoryview(data)
            while rest:  # a disk that is all but full takes a part only, and does not say so
                rest = rest[file.write(rest) :]
        self.sums[name] = digest(data)

    @contextmanager
    def lines(self, name: str) -> Generator[LineFile]:
        """Write a file line by line."""
        with open(self._root / name, "xb", buffering=_BUFFER) as file:
            out = LineFile(file)
            yield out
        self.sums[name] = out.digest


class ZipSink:
    """Entries of an archive: fixed times and modes, so that equal packets are equal bytes. Lines wait in a file beside it."""

    def __init__(self, archive: ZipFile, aside: Path) -> None:
        self._archive, self._aside = archive, aside
        self.sums: dict[str, str] = {}

    def add(self, name: str, data: bytes) -> None:
        """Write a small file."""
        self._archive.writestr(entry_info(name), data, compresslevel=6)
        self.sums[name] = digest(data)

    @contextmanager
    def lines(self, name: str) -> Generator[LineFile]:
        """Collect a file line by line; it enters the archive when it is whole."""
        waiting = self._aside.with_name(f"{self._aside.name}-{name}")
        try:
            with open(waiting, "xb", buffering=_BUFFER) as file:
                out = LineFile(file)
                yield out
            info = entry_info(name)
            info.file_size = waiting.stat().st_size
            with open(waiting, "rb") as source, self._archive.open(info, "w") as target:
                shutil.copyfileobj(source, target, _BUFFER)
        finally:
            waiting.unlink(missing_ok=True)
        self.sums[name] = out.digest


def entry_info(name: str) -> ZipInfo:
    """How a file stands in an archive: equal whoever writes it, and when."""
    info = ZipInfo(name, _TIME)
    info.compress_type = ZIP_DEFLATED
    info.create_system = 3
    info.external_attr = 0o100644 << 16
    return info


@contextmanager
def packet_at(path: Path, *, overwrite: bool) -> Generator[Sink]:
    """Write a packet beside ``path`` and move it there when the block ends well; otherwise nothing is left. What a run that was killed
    has left there is removed by the next one.

    Args:
        path: A directory, or an archive where it ends in ``.zip``.
        overwrite: Replace a packet that stands there.

    Raises:
        PacketExistsError: Something stands there and must not, or is no packet and cannot, be replaced.
    """
    if path.name in ("", "..") or path.resolve() == Path.cwd():
        raise PacketExistsError(str(path), "it is a directory that is in use; choose the name of a new one, or of a .zip")
    _check_place(path, overwrite)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() == ".zip":
            with beside(path) as aside:
                with open(aside, "r+b") as file:
                    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
                        yield ZipSink(archive, aside)
                    file.flush()
                    os.fsync(file.fileno())
                put(aside, path, replace=overwrite)
        else:
            with beside(path, directory=True) as aside:
                yield DirectorySink(aside)
                put_directory(aside, path, replace=overwrite)
    except OSError as error:
        if error.errno is not None and (
            error.filename is None or ".part" in str(error.filename)
        ):  # none, or one of our own making
            error.filename = os.fspath(path)
        raise


def _check_place(path: Path, overwrite: bool) -> None:
    if not os.path.lexists(path):
        return
    if path.suffix.lower() == ".zip":
        if path.is_dir() or path.is_symlink():
            raise PacketExistsError(str(path), "it is no archive; choose another path")
        if path.stat().st_size and not overwrite:
            raise PacketExistsError(str(path))
    elif not path.is_dir() or path.is_symlink():
        raise PacketExistsError(str(path), "it is no directory; choose another path")
    elif any(path.iterdir()):
        if not overwrite:
            raise PacketExistsError(str(path))
        if not ((path / MANIFEST).is_file() and (path / SUMS).is_file()):
            raise PacketExistsError(str(path), "it is a directory, but no packet, and is not deleted; choose another path")
