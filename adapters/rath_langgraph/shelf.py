"""A bounded shelf of bytes that were read or written lately: a running thread is loaded again at every turn."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from threading import Lock
from typing import Final

from rath_bridge.errors import CorruptStoreError, MissingObjectError
from rath_bridge.model.digests import Digest
from rath_bridge.store.erasing import closure
from rath_bridge.store.protocol import Reader

LIMIT: Final = 32 * 1024 * 1024
"""Bytes that a shelf holds at most."""
_LARGE: Final = LIMIT // 8


class Shelf:
    """Reads objects through a cache. What it holds is named by its digest, so it is never stale."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._held: OrderedDict[Digest, bytes] = OrderedDict()
        self._size = self._emptied = 0
        self._lock = Lock()

    def __call__(self, names: Iterable[Digest]) -> Mapping[Digest, bytes]:
        """Fetch objects; what is not at hand comes from the store in one query.

        Raises:
            MissingObjectError: One of them is not in the store.
        """
        wanted = list(names)
        held = self._held
        with self._lock:
            found = {name: held[name] for name in wanted if name in held}
            for name in found:
                held.move_to_end(name)
            emptied = self._emptied
        missing = [name for name in wanted if name not in found]
        if missing:
            more = self._reader.objects(missing)
            if emptied == self._emptied:  # else some of it may have been erased since it was read
                self.keep(more)
            found.update(more)
        return found

    def warm(self, bodies: Iterable[bytes], known: Callable[[bytes], bool]) -> None:
        """Bring all that some bodies stand on, in a few queries for any number of them.

        Args:
            bodies: Of checkpoints and tasks.
            known: Tells which items need not be read.
        """
        with suppress(MissingObjectError, CorruptStoreError):  # who reads it is told where
            names = list(closure(bodies, self))
            self([name for name in names if not known(bytes.fromhex(name))])

    def keep(self, objects: Mapping[Digest, bytes]) -> None:
        """Put objects on the shelf that the store holds; the ones that were not used longest go."""
        with self._lock:
            for name, data in objects.items():
                if name not in self._held and len(data) < _LARGE:
                    self._held[name] = data
                    self._size += len(data)
            while self._size > LIMIT:
                self._size -= len(self._held.popitem(last=False)[1])

    def clear(self) -> None:
        """Empty it."""
        with self._lock:
            self._held.clear()
            self._size = 0
            self._emptied += 1

    def reset(self) -> None:
        """Start anew in a forked child."""
        self._lock = Lock()
        self._held, self._size = OrderedDict(), 0
