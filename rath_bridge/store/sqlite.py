"""SQLite: WAL, ``synchronous=FULL``, one writer and one reader connection per process, safe after fork()."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, Final

from rath_bridge.errors import CorruptStoreError, NewerFormatError, RathError, StoreAddressError, StoreUnavailableError
from rath_bridge.store import schema
from rath_bridge.store.migrations import MIGRATIONS
from rath_bridge.store.sql import SqlBackend, Tx

_BUSY: Final = 30.0
"""Seconds to wait for another process."""
_IN: Final = 500
"""Values in one IN list."""


class _Tx:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def all(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, params).fetchall()

    def run(self, sql: str, params: Sequence[Any] = ()) -> None:
        self._connection.execute(sql, params)

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self._connection.executemany(sql, rows)

    def among(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for at in range(0, len(values), _IN):
            part = values[at : at + _IN]
            found += self.all(sql.replace("(...)", f"({','.join('?' * len(part))})"), part)
        return found


class _Link:
    """A connection with the lock that serialises its threads."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection, self.lock = connection, RLock()


class SqliteBackend(SqlBackend):
    """A store in one SQLite file."""

    dialect = schema.SQLITE

    def __init__(self, url: str, *, synchronous: str = "FULL") -> None:
        """Open or create a file.

        Args:
            url: ``sqlite:///relative/path.db`` or ``sqlite:////absolute/path.db``.
            synchronous: SQLite's setting; ``FULL`` is what makes acknowledged mean durable.

        Raises:
            StoreAddressError: Not such an address, or not a file of ours.
            NewerFormatError: Written by a newer version; it was left alone.
            StoreUnavailableError: It cannot be opened or written.
        """
        super().__init__()
        path = url.removeprefix("sqlite:///")
        if path == url or not path or path == ":memory:":
            raise StoreAddressError(url, "for a store in memory, use memory:" if ":memory:" in url else "a file path is missing")
        if synchronous.upper() not in ("OFF", "NORMAL", "FULL", "EXTRA"):
            raise StoreAddressError(url, f"synchronous={synchronous!r} is not OFF, NORMAL, FULL or EXTRA")
        self.path = Path(path).absolute()
        self.url = f"sqlite:///{self.path}"
        self._synchronous = synchronous.upper()
        self._pid = 0
        self._closed = False
        self._links: tuple[_Link, _Link] | None = None
        self._inherited: list[object] = []
        self._open_lock = RLock()
        self._touch()
        self._prepare()

    # ---------------------------------------------------------------- connections

    def _touch(self) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as error:
            raise StoreUnavailableError(self.url, str(error)) from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        return connection

    def _link(self, index: int) -> _Link:
        if self._closed:
            raise StoreUnavailableError(self.url, "it was closed")
        links = self._links
        if links is None or self._pid != os.getpid():
            with self._open_lock:
                if self._links is None or self._pid != os.getpid():
                    if self._links is not None:  # closing a parent's connection in a child would drop the parent's locks
                        self._inherited.append(self._links)
                    self._links = (_Link(self._connect()), _Link(self._connect()))
                    self._pid = os.getpid()
                links = self._links
        return links[index]

    @contextmanager
    def writing(self) -> Generator[Tx]:
        with self._translated():
            link = self._link(0)
            with link.lock:
                link.connection.execute("BEGIN IMMEDIATE")
                try:
                    yield _Tx(link.connection)
                    link.connection.execute("COMMIT")
                except BaseException:
                    if link.connection.in_transaction:
                        link.connection.execute("ROLLBACK")
                    raise

    @contextmanager
    def reading(self) -> Generator[Tx]:
        with self._translated():
            link = self._link(1)
            with link.lock:
                nested = link.connection.in_transaction
                if not nested:
                    link.connection.execute("BEGIN")
                try:
                    yield _Tx(link.connection)
                finally:
                    if not nested and link.connection.in_transaction:
                        link.connection.execute("COMMIT")

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StoreUnavailableError(self.url, str(error)) from error
        except sqlite3.DatabaseError as error:
            raise CorruptStoreError(self.url, str(error)) from error

    def close(self) -> None:
        """Close both connections (in the process that opened them)."""
        with self._open_lock:
            if self._links is not None and self._pid == os.getpid():
                for link in self._links:
                    with link.lock:
                        link.connection.close()
            self._links, self._closed = None, True

    # ---------------------------------------------------------------- format

    def _prepare(self) -> None:
        try:
            with self._translated():
                found = self._format()
                if found == schema.FORMAT:
                    return
                if found > schema.FORMAT:
                    raise NewerFormatError(self.url, found, schema.FORMAT)
                if found:
                    self._backup(found)
                with self.writing() as tx:
                    self._migrate(tx)
        except RathError:
            self.close()
            raise

    def _format(self) -> int:
        """Version of the file, 0 for an empty one.

        Raises:
            StoreAddressError: Somebody else's database.
        """
        link = self._link(1)
        (mark,) = link.connection.execute("PRAGMA application_id").fetchone()
        (version,) = link.connection.execute("PRAGMA user_version").fetchone()
        if mark == schema.APPLICATION_ID:
            return version
        if version or link.connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
            raise StoreAddressError(self.url, "the file is another program's database; it was left alone")
        return 0

    def _migrate(self, tx: Tx) -> None:
        version = self._format_inside(tx)
        for step in MIGRATIONS[version:]:
            step(tx, self.dialect)
        tx.run(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        tx.run(f"PRAGMA user_version = {schema.FORMAT}")

    def _format_inside(self, tx: Tx) -> int:
        return tx.all("PRAGMA user_version")[0][0]

    def _backup(self, version: int) -> None:
        target = self.path.with_name(f"{self.path.name}.backup-format-{version}")
        os.close(os.open(target, os.O_CREAT | os.O_RDWR, 0o600))
        copy = sqlite3.connect(target)
        try:
            self._link(1).connection.backup(copy)
        finally:
            copy.close()
