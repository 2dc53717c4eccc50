"""SQLite: WAL, ``synchronous=FULL``, one writer and one reader connection per process, safe after fork()."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, Final

from rath_bridge.errors import CorruptStoreError, NewerFormatError, RathError, StoreAddressError, StoreUnavailableError
from rath_bridge.store import forking, schema
from rath_bridge.store.forking import StoreLock
from rath_bridge.store.migrations import MIGRATIONS
from rath_bridge.store.sql import SqlBackend
from rath_bridge.store.tx import DAMAGE, Tx

_BUSY: Final = 30.0
"""Seconds to wait for another process."""
_IN: Final = 500
"""Values in one IN list."""
_creating = RLock()
"""Closing any handle of a file drops all locks that this process has on it (POSIX), SQLite's too: so a file is opened by us only
where it is new, and nobody else of this process meanwhile."""


def _in_child() -> None:
    global _creating
    _creating = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


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
            part = [*values[at : at + _IN]]
            part += part[-1:] * (min(_IN, 1 << (len(part) - 1).bit_length()) - len(part))  # few statements, each prepared once
            found += self.all(sql.replace("(...)", f"({','.join('?' * len(part))})"), part)
        return found


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log; while other processes create the same file, SQLite says busy at once and does not wait."""
    try:
        connection.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        if not _is_busy(error):
            raise
        import tenacity  # only where it is needed: it imports asyncio

        again = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_is_busy), wait=tenacity.wait_random(0.002, 0.02),
            stop=tenacity.stop_after_delay(_BUSY), reraise=True,
        )  # fmt: skip
        again(connection.execute, "PRAGMA journal_mode = WAL")


def _is_busy(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and _code(error) & 0xFF == sqlite3.SQLITE_BUSY


def _code(error: sqlite3.OperationalError) -> int:
    """SQLite's own; Python's module gives none with what it finds itself, such as a text that is no UTF-8."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)


class _Link:
    """A connection with the lock that serialises its threads."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection, self.lock = connection, StoreLock()


def _leave(link: _Link) -> None:
    """Never close a connection that another process works with: SQLite's own locks in it may be held by a thread that is not here."""
    from ctypes import py_object, pythonapi

    pythonapi.Py_IncRef(py_object(link.connection))


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
        self._open_lock = StoreLock()
        self._file = (0, 0)
        forking.register(self)
        self._touch()
        with self._open_lock:  # no fork while SQLite opens and closes the file
            self._prepare()

    # ---------------------------------------------------------------- connections

    def _touch(self) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _creating:
                try:
                    os.close(os.open(os.path.realpath(self.path), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
                except FileExistsError:
                    if not self.path.is_file():
                        raise StoreUnavailableError(self.url, "it is not a file") from None
                    if not os.access(self.path, os.R_OK | os.W_OK):
                        raise StoreUnavailableError(self.url, "the file may not be read and written") from None
        except (OSError, ValueError) as error:
            raise error if isinstance(error, StoreUnavailableError) else StoreUnavailableError(self.url, str(error)) from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
        _use_wal(connection)
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute("PRAGMA secure_delete = ON")
        return connection

    def _link(self, index: int) -> _Link:
        if self._closed:
            raise StoreUnavailableError(self.url, "it was closed")
        links = self._links
        if links is None or self._pid != os.getpid():
            with self._open_lock:
                if self._closed:
                    raise StoreUnavailableError(self.url, "it was closed")
                if self._links is None or self._pid != os.getpid():
                    for link in self._links or ():
                        _leave(link)
                    self._links = (_Link(self._connect()), _Link(self._connect()))
                    self._pid, self._file = os.getpid(), _identity(self.path)
                links = self._links
        if _identity(self.path) != self._file:
            raise StoreUnavailableError(self.url, "its file was removed or replaced after it was opened; open the store again")
        return links[index]

    def locks(self) -> Iterable[StoreLock]:
        """A fork waits until no thread is in a transaction."""
        yield self._open_lock
        for link in self._links or ():
            yield link.lock

    def after_fork(self, held: Sequence[StoreLock], *, child: bool) -> None:
        """A child closes what it inherited before it opens connections of its own.

        SQLite's locks belong to the process that took them, but it believes that a child has them, too: then the next one
        to close the file would delete the log that the child still writes to.
        """
        if not child:
            return
        for link in self._links or ():
            if link.lock in held and not link.connection.in_transaction:
                link.connection.close()
            else:
                _leave(link)
        self._links, self._open_lock = None, StoreLock()

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

    def alone(self, tx: Tx) -> None:
        """SQLite has one writer."""

    def rewrite(self) -> None:
        """Write the file anew, then empty the log: both still hold what was moved or replaced earlier."""
        with self._translated():
            link = self._link(0)
            with link.lock, self._link(1).lock:
                link.connection.execute("VACUUM")
                (busy, _, _) = link.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                if busy:
                    raise StoreUnavailableError(
                        self.url, "somebody reads it: its log may hold what was erased until it is scrubbed again"
                    )

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
            if _code(error) == sqlite3.SQLITE_ERROR:  # a table or a column that should be there is not, or a text is none
                raise CorruptStoreError(self.url, str(error)) from error
            raise StoreUnavailableError(self.url, str(error)) from error
        except (sqlite3.ProgrammingError, sqlite3.DataError) as error:  # closed meanwhile; larger than SQLite can hold
            raise StoreUnavailableError(self.url, "it was closed" if self._closed else str(error)) from error
        except sqlite3.DatabaseError as error:
            raise CorruptStoreError(self.url, str(error)) from error
        except RathError:
            raise
        except DAMAGE as error:  # a column may hold anything in a file that was changed from outside
            raise CorruptStoreError(self.url, f"a row holds what it cannot ({error!r})") from error

    def close(self) -> None:
        """Close both connections (in the process that opened them)."""
        with self._open_lock:
            self._closed = True
            if self._links is not None and self._pid == os.getpid():
                for link in self._links:
                    with link.lock:
                        link.connection.close()
            self._links = None

    # ---------------------------------------------------------------- format

    def _prepare(self) -> None:
        try:
            with self._translated():
                found = self._format()
                if found == schema.FORMAT:
                    return
                if found > schema.FORMAT:
                    raise NewerFormatError(self.url, found, schema.FORMAT)
                with self.writing() as tx:
                    found = tx.all("PRAGMA user_version")[0][0]  # another process may have been faster
                    if found > schema.FORMAT:
                        raise NewerFormatError(self.url, found, schema.FORMAT)
                    if 0 < found < schema.FORMAT:
                        self._backup(found)
                    for step in MIGRATIONS[found:]:
                        step(tx, self.dialect)
                    tx.run(f"PRAGMA application_id = {schema.APPLICATION_ID}")
                    tx.run(f"PRAGMA user_version = {schema.FORMAT}")
        except RathError:
            self.close()
            raise

    def _format(self) -> int:
        """Version of the file, 0 for an empty one.

        Raises:
            StoreAddressError: Somebody else's database.
        """
        # Read-only, and before anything is set: a file that is not ours, or is newer, is left as it is.
        try:
            return self._look("ro")
        except sqlite3.OperationalError as error:
            if _code(error) & 0xFF != sqlite3.SQLITE_READONLY:
                raise
        # Its writer was killed in the middle of a transaction: what SQLite undoes at the next opening must be undone to be read.
        return self._look("rw")

    def _look(self, mode: str) -> int:
        look = sqlite3.connect(f"{self.path.as_uri()}?mode={mode}", timeout=_BUSY, isolation_level=None, uri=True)
        try:
            look.execute("BEGIN")  # one view: somebody else may be making the tables
            (mark,) = look.execute("PRAGMA application_id").fetchone()
            (version,) = look.execute("PRAGMA user_version").fetchone()
            if mark == schema.APPLICATION_ID:
                return version
            if version or look.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
                raise StoreAddressError(self.url, "the file is another program's database; it was left alone")
            return 0
        finally:
            look.close()

    def _backup(self, version: int) -> None:
        """Copy the file as it was committed last; a backup that stands there already is left alone."""
        number = 0
        while True:
            number += 1
            target = self.path.with_name(f"{self.path.name}.backup-format-{version}{f'-{number}' if number > 1 else ''}")
            try:
                os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
                break
            except FileExistsError:
                continue
            except OSError as error:
                raise StoreUnavailableError(self.url, f"no backup can be made before it is migrated: {error}") from error
        copy = sqlite3.connect(target)
        try:
            self._link(1).connection.backup(copy)
        except sqlite3.Error as error:
            target.unlink()
            raise StoreUnavailableError(self.url, f"no backup can be made before it is migrated: {error}") from error
        finally:
            copy.close()


def _identity(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (-1, -1)
    return (found.st_dev, found.st_ino)
