"""The files of a packet as they lie there, from a directory or an archive, whoever made it. Nothing is extracted.

What lies there is not trusted: links and devices are not followed or opened, names that no packet has are never opened, and an
archive that would grow beyond all measure is not unpacked. All of that becomes findings.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, Protocol, cast
from zipfile import BadZipFile, ZipFile, ZipInfo

from rath_bridge.errors import NotFoundError, PacketError
from rath_bridge.evidence import layout
from rath_bridge.evidence.layout import FREE_GROWTH, MAX_GROWTH
from rath_bridge.verbs.fsck import Finding

_PLAIN: Final = frozenset(" !#$%&'()+,-.=@[]^_`{}~/").union("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
BUFFER: Final = 1 << 20


class PacketFiles(Protocol):
    """What a packet holds."""

    sizes: dict[str, int]
    """Bytes of each file that may be opened, by name."""
    findings: list[Finding]
    """What is wrong with the container itself."""

    def open(self, name: str) -> BinaryIO:
        """Open one of `sizes` to be read once, from the beginning."""
        ...

    def close(self) -> None:
        """Release what is open."""
        ...


def open_files(place: Path) -> PacketFiles:
    """Open a directory or an archive.

    Raises:
        NotFoundError: There is nothing.
        PacketError: It is neither.
    """
    if not place.exists():
        raise NotFoundError(f"there is no packet at {place}: give a directory or a .zip that `rath-bridge packet` has written")
    try:
        return DirectoryFiles(place) if place.is_dir() else ZipFiles(place)
    except PacketError:
        raise
    except (BadZipFile, OSError, ValueError, NotImplementedError, EOFError) as error:
        if _is_cut(place):
            raise PacketError("the archive ends before its list of files: it was cut, or copied in part; get it anew") from error
        if isinstance(error, BadZipFile) and not _begins_as_archive(place):
            raise PacketError("it is no packet: neither a directory nor a zip archive; nothing of it was checked") from error
        raise PacketError(f"it is neither a directory nor a readable archive ({error})") from error


def _begins_as_archive(place: Path) -> bool:
    with place.open("rb") as file:
        return file.read(2) == b"PK"


def _is_cut(place: Path) -> bool:
    """Tell an archive of which the end is missing from a file that is none."""
    try:
        with place.open("rb") as file:
            begins = file.read(4) == b"PK\x03\x04"
            file.seek(max(0, os.path.getsize(place) - (1 << 16) - 22))
            return begins and b"PK\x05\x06" not in file.read()
    except OSError:
        return False


def shown(name: str) -> str:
    """A foreign name as it may be printed: no control characters, no surrogates, not endless."""
    text = name.encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[:300]) + ("…" if len(text) > 300 else "")


def is_safe(name: str) -> bool:
    """Tell whether a name stays inside of the packet wherever it is unpacked."""
    parts = name.split("/")
    return (
        0 < len(name) <= 255
        and _PLAIN.issuperset(name)
        and not any(part in ("", ".", "..") or part.endswith((".", " ")) for part in parts)
    )


class DirectoryFiles:
    """A packet in a directory."""

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)
        self.sizes: dict[str, int] = {}
        self.findings: list[Finding] = []
        waiting = [""]
        seen = 0
        while waiting:
            for name, entry in self._scan(waiting.pop()):
                seen += 1
                if seen > layout.MAX_FILES:
                    self.findings.append(Finding(".", f"more than {layout.MAX_FILES} files; the rest was not looked at"))
                    return
                self._take(name, entry, waiting)

    def _scan(self, below: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        try:
            with os.scandir(os.path.join(self._root, below)) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            self.findings.append(Finding(shown(below) or ".", f"the directory cannot be read ({error.strerror})"))
            return
        for entry in entries:
            yield (f"{below}/{entry.name}" if below else entry.name), entry

    def _take(self, name: str, entry: os.DirEntry[str], waiting: list[str]) -> None:
        try:
            facts = entry.stat(follow_symlinks=False)
        except OSError as error:
            self.findings.append(Finding(shown(name), f"it cannot be read ({error.strerror})"))
            return
        if stat.S_ISLNK(facts.st_mode):
            self.findings.append(Finding(shown(name), "it is a link; a packet has none, and it was not followed"))
        elif stat.S_ISDIR(facts.st_mode):
            if name not in ("blobs", "trees"):
                self.findings.append(Finding(shown(name), "a directory that does not belong to the packet"))
            if is_safe(name) and name.count("/") < 8:
                waiting.append(name)
        elif not stat.S_ISREG(facts.st_mode):
            self.findings.append(Finding(shown(name), "it is not a regular file, and was not opened"))
        elif not is_safe(name):
            self.findings.append(Finding(shown(name), "no packet has a file of this name; it was not opened"))
        else:
            self.sizes[name] = facts.st_size

    def open(self, name: str) -> BinaryIO:
        """Open one file; never through a link."""
        handle = os.open(os.path.join(self._root, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        return os.fdopen(handle, "rb", buffering=BUFFER if self.sizes[name] > BUFFER else 8192)

    def close(self) -> None:
        """Nothing stays open."""


class ZipFiles:
    """A packet in an archive."""

    def __init__(self, path: Path) -> None:
        self.sizes: dict[str, int] = {}
        self.findings: list[Finding] = []
        self._infos: dict[str, ZipInfo] = {}
        listing = _listing(path)
        if listing > layout.MAX_LISTING:
            raise PacketError(f"its list of files has {listing} bytes, at most {layout.MAX_LISTING} are read; not unpacked")
        self._archive = ZipFile(path)
        size = path.stat().st_size
        infos = self._archive.infolist()
        if self._archive.comment or (infos and min(info.header_offset for info in infos)):
            self.findings.append(Finding(shown(path.name), "the archive carries bytes before its first file, or a comment"))
        packed, unpacked = sum(i.compress_size for i in infos), sum(i.file_size for i in infos)
        if packed > size:
            self.findings.append(
                Finding(shown(path.name), "its files overlap: they claim more bytes than the archive has; not unpacked")
            )
            return
        if unpacked > max(FREE_GROWTH, MAX_GROWTH * size):
            problem = f"{size} bytes would unpack to {unpacked}, which no packet does; not unpacked"
            self.findings.append(Finding(shown(path.name), problem))
            return
        folded: set[str] = set()
        for info in infos:
            self._take(info, folded)

    def _take(self, info: ZipInfo, folded: set[str]) -> None:
        name = info.filename
        if name in ("blobs/", "trees/") and not info.file_size:
            return
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind == stat.S_IFLNK:
            self.findings.append(Finding(shown(name), "it is a link; a packet has none, and it was not followed"))
        elif kind not in (0, stat.S_IFREG) or name.endswith("/"):
            self.findings.append(Finding(shown(name), "it is not a regular file, and was not opened"))
        elif not is_safe(name) or info.orig_filename != name:
            self.findings.append(Finding(shown(info.orig_filename), "no packet has a file of this name; it was not opened"))
        elif name.lower() in folded:
            self.findings.append(Finding(shown(name), "a second file of this name; only the first was read"))
        else:
            folded.add(name.lower())
            self._infos[name] = info
            self.sizes[name] = info.file_size

    def open(self, name: str) -> BinaryIO:
        """Open one entry."""
        return cast(BinaryIO, self._archive.open(self._infos[name]))

    def close(self) -> None:
        """Close the archive."""
        self._archive.close()


def _listing(path: Path) -> int:
    """How many bytes the archive says that its list of files has; looked up before the list is read into memory."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - (1 << 16) - 22))
        tail = file.read()
        at = tail.rfind(b"PK\x05\x06")
        if at < 0 or len(tail) < at + 20:
            return 0  # no archive, or a cut one: its reader says so
        size = int.from_bytes(tail[at + 12 : at + 16], "little")
        if tail[at - 20 : at - 16] == b"PK\x06\x07":
            file.seek(int.from_bytes(tail[at - 12 : at - 4], "little"))
            record = file.read(56)
            size = max(size if size < 0xFFFFFFFF else 0, int.from_bytes(record[40:48], "little"))
        return size


def read_lines(file: BinaryIO, update: Callable[[bytes], object], limit: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield number and bytes of each line, newline included; None for one beyond ``limit``, which is skipped.

    Args:
        file: Where to read.
        update: Given every byte, for the file's own sum.
        limit: Longest line that is kept, newline included.
    """
    number = 0
    while line := file.readline(limit):
        number += 1
        update(line)
        if len(line) < limit or line.endswith(b"\n"):
            yield number, line
            continue
        while (rest := file.readline(BUFFER)) and not rest.endswith(b"\n"):
            update(rest)
        update(rest)
        yield number, None
