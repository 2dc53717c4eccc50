"""The spool: what a proxy has seen, on disk before it is passed on, until a keeper has written it to the store.

One file for each connection, records one after another: a tag (``>`` bytes from the client, ``<`` bytes from the server, ``{`` an
event in JSON), the time in nanoseconds since 1970, a length, and as many bytes. The file is locked while a proxy or its keeper
lives; one that nobody holds is left over from a store that was down or a machine that stopped, and the next keeper for that store
writes it. It holds the wire as it was, secrets too, readable by its owner alone, and is removed once it is in the store.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock
from time import time_ns
from typing import Any, Final, NamedTuple

from rath_bridge.model.digests import new_id
from rath_mcp.marks import store_mark

HEAD: Final = struct.Struct("<cqI")
CLIENT: Final = b">"
SERVER: Final = b"<"
EVENT: Final = b"{"
SUFFIX: Final = ".frames"
_PIECE: Final = 1 << 22


class Record(NamedTuple):
    """One record of a spool."""

    tag: bytes
    t: int
    data: bytes

    @property
    def event(self) -> dict[str, Any]:
        """What an event says."""
        return json.loads(self.data)


class Spool:
    """The writing end: whole records, from any thread; a full disk costs the record, never the frame that it tells of."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self.descriptor = path, descriptor
        self._lock = Lock()
        self._lost: list[bytes] = []

    @classmethod
    def create(cls, store: str, connection: str | None = None) -> Spool:
        """Make a spool for a store's address.

        Raises:
            OSError: No directory for it can be written.
        """
        while True:
            path = folder() / f"{store_mark(store)}-{connection or new_id(8)}{SUFFIX}"
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return cls(path, descriptor)
            os.close(descriptor)  # before it was locked, another keeper took it for one that was left over, and removed it

    @property
    def connection(self) -> str:
        """Name of the connection."""
        return connection_of(self.path)

    def write(self, tag: bytes, data: bytes, sync: bool = False) -> None:
        """Put a record down; when it returns, the death of this process does not lose it (``sync``: nor that of the machine)."""
        with self._lock:
            if self._lost:
                ways = b"".join(sorted(set(self._lost))).decode()
                if self._put(EVENT, json.dumps({"lost": len(self._lost), "ways": ways}).encode()):
                    self._lost.clear()
            if self._lost or not self._put(tag, data):  # what comes after a loss that is not told would hide it
                self._lost.append(tag)
            elif sync:
                os.fdatasync(self.descriptor)

    def event(self, **facts: Any) -> None:
        """Put an event down."""
        self.write(EVENT, json.dumps(facts).encode())

    def _put(self, tag: bytes, data: bytes) -> bool:
        whole = HEAD.size + len(data)
        try:
            done = os.writev(self.descriptor, (HEAD.pack(tag, time_ns(), len(data)), data))
            if done == whole:
                return True
            os.ftruncate(self.descriptor, os.fstat(self.descriptor).st_size - done)
        except OSError:
            pass
        return False


class Tail:
    """The reading end of a spool that may still grow."""

    def __init__(self, descriptor: int, offset: int = 0) -> None:
        self._descriptor = descriptor
        self.offset = offset
        """Where the next record begins."""

    def records(self, most: int = _PIECE) -> list[Record]:
        """Return the next whole records, about ``most`` bytes of them; an empty list when there are none (yet)."""
        data = os.pread(self._descriptor, most, self.offset)
        found: list[Record] = []
        at = 0
        while at + HEAD.size <= len(data):
            tag, t, size = HEAD.unpack_from(data, at)
            end = at + HEAD.size + size
            if end > len(data):
                if not found and len(data) == most:  # one record that is longer than a piece
                    return self.records(HEAD.size + size)
                break
            found.append(Record(tag, t, data[at + HEAD.size : end]))
            at = end
        self.offset += at
        return found


def folder() -> Path:
    """Return the directory of all spools: ``$RATH_BRIDGE_SPOOL``, else below the user's state directory.

    Raises:
        OSError: It cannot be made.
    """
    named = os.environ.get("RATH_BRIDGE_SPOOL")
    places = [Path(named)] if named else [_state(), Path(tempfile.gettempdir()) / f"rath-bridge-{os.getuid()}"]
    for last, place in enumerate(places, 1 - len(places)):
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.access(place, os.W_OK | os.X_OK) and place.stat().st_uid == os.getuid():
                return place
            raise PermissionError(f"{place} is not ours to write: name another with $RATH_BRIDGE_SPOOL")
        except OSError:
            if last == 0:
                raise
    raise AssertionError("there is always a last place")


def _state() -> Path:
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path(os.path.expanduser("~")) / ".local" / "state") / "rath-bridge" / "mcp"


def connection_of(path: Path) -> str:
    """Return the connection that a spool belongs to."""
    return path.name.removesuffix(SUFFIX).partition("-")[2]


def left_over(store: str, but: Path | None = None) -> Iterator[tuple[Path, int]]:
    """Iterate over the spools of a store that nobody holds, each locked and open; close the descriptor when done."""
    for path in sorted(folder().glob(f"{store_mark(store)}-*{SUFFIX}")):
        if path == but:
            continue
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            continue
        if path.exists():
            yield path, descriptor
        else:  # somebody wrote it meanwhile
            os.close(descriptor)


def opening(records: list[Record]) -> Mapping[str, Any]:
    """Return the event with which a spool begins."""
    return records[0].event if records and records[0].tag == EVENT else {}
