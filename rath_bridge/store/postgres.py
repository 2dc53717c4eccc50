"""PostgreSQL: psycopg 3, a health-checked pool per process, transactional migrations, retries where nothing was written."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import astuple
from threading import Lock
from time import monotonic
from typing import Any, Final, TypeAlias
from urllib.parse import unquote
from weakref import WeakKeyDictionary
from zlib import crc32

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import tuple_row
from psycopg.sql import SQL, Identifier
from psycopg_pool import ConnectionPool, PoolTimeout

from rath_bridge.errors import CorruptStoreError, NewerFormatError, RathError, StoreAddressError, StoreUnavailableError
from rath_bridge.model.chunk import Key
from rath_bridge.store import forking, schema
from rath_bridge.store.arriving import GATE
from rath_bridge.store.migrations import MIGRATIONS
from rath_bridge.store.sql import SqlBackend
from rath_bridge.store.tx import DAMAGE, Tx

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

_MIGRATION_LOCK: Final = schema.APPLICATION_ID
_TIMEOUT: Final = 30.0
"""Seconds to wait for a connection."""
_NOT_ALLOWED: Final = (pg.ReadOnlySqlTransaction, pg.InsufficientPrivilege, pg.InvalidSchemaName)
"""What is missing is a right, or a schema to work in; nothing is damaged."""
_PATIENCE: Final = 30
"""Seconds that a rewrite waits for readers."""
_TABLES: Final = r"SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema() AND tablename LIKE 'rath\_%'"
_NO_SAMPLES: Final = (
    "ALTER TABLE rath_chunk ALTER COLUMN body SET STATISTICS 0, ALTER COLUMN raw SET STATISTICS 0",
    "ALTER TABLE rath_object ALTER COLUMN data SET STATISTICS 0",
)
"""The planner keeps samples of columns; of what people said it needs none, and none is left when it is erased."""
_IDLE: Final = 2.0
"""Seconds after which a pooled connection is checked before it is used."""


class _Tx:
    def __init__(self, cursor: psycopg.Cursor[tuple[Any, ...]]) -> None:
        self._cursor = cursor

    def all(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._cursor.execute(_sql(sql), tuple(params)).fetchall()

    def run(self, sql: str, params: Sequence[Any] = ()) -> None:
        self._cursor.execute(_sql(sql), tuple(params))

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self._cursor.executemany(_sql(sql), rows)

    def among(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        if not values:
            return []
        return self.all(sql.replace("IN (...)", "= ANY(?)"), (list(values),))


_used: WeakKeyDictionary[psycopg.Connection[Any], float] = WeakKeyDictionary()


def _check(connection: psycopg.Connection[Any]) -> None:
    """Ask a connection that has been idle whether it still lives: servers and firewalls drop those."""
    if monotonic() - _used.get(connection, 0.0) > _IDLE:
        ConnectionPool.check_connection(connection)
    _used[connection] = monotonic()


def _sql(text: str) -> Any:
    return schema.POSTGRES.sql(text)


class PostgresBackend(SqlBackend):
    """A store in the tables ``rath_*`` of one PostgreSQL database (in the first schema of its search path)."""

    dialect = schema.POSTGRES

    def __init__(self, url: str, *, pool_size: int = 8) -> None:
        """Connect, and create or migrate the tables.

        Args:
            url: ``postgresql://user:password@host/database`` (libpq's form).
            pool_size: Connections at most, in each process.

        Raises:
            StoreAddressError: The address cannot be read, or not in one way only.
            StoreUnavailableError: The server cannot be reached, or lets us make no tables.
            NewerFormatError: A newer version wrote it; it was left alone.
        """
        super().__init__()
        self._conninfo = url
        self.url = _without_password(url)
        self._size = pool_size
        self._pools: dict[int, ConnectionPool[Connection]] = {}
        self._lock = Lock()
        self._gates = [Lock() for _ in range(64)]
        self._closed = False
        forking.register(self)
        try:
            self._prepare()
        except RathError:
            self.close()
            raise

    # ---------------------------------------------------------------- connections

    def _pool(self) -> ConnectionPool[Connection]:
        if self._closed:
            raise StoreUnavailableError(self.url, "it was closed")
        pid = os.getpid()  # a forked worker must not share sockets with its parent
        pool = self._pools.get(pid)
        if pool is None:
            with self._lock:
                pool = self._pools.get(pid)
                if pool is None:
                    self._reachable()
                    pool = ConnectionPool[Connection](
                        self._conninfo, min_size=1, max_size=self._size, timeout=_TIMEOUT, open=True,
                        kwargs={"row_factory": tuple_row}, check=_check, name="rath_bridge",
                    )  # fmt: skip
                    self._pools[pid] = pool
        return pool

    def locks(self) -> Iterable[forking.StoreLock]:
        """Nothing to wait for: a child opens connections of its own."""
        return ()

    def after_fork(self, held: Sequence[forking.StoreLock], *, child: bool) -> None:
        """A child does not wait for locks that the parent's threads held."""
        if child:
            self._lock, self._gates = Lock(), [Lock() for _ in self._gates]

    def _reachable(self) -> None:
        """Fail at once and with the server's own words; a pool would go on trying in the background."""
        try:
            psycopg.connect(self._conninfo, connect_timeout=10).close()
        except psycopg.Error as error:
            raise StoreUnavailableError(self.url, str(error).strip()) from error

    def _begun(self, mode: str) -> tuple[ExitStack, psycopg.Cursor[tuple[Any, ...]]]:
        """A transaction. A connection that died since it was used last (the server was started again) shows here, before anything was
        done: then the next one is taken.
        """
        for left in range(self._size, -1, -1):
            with ExitStack() as stack:
                connection = stack.enter_context(self._pool().connection())
                try:
                    stack.enter_context(connection.transaction())
                    cursor = stack.enter_context(connection.cursor())
                    if mode:
                        cursor.execute(mode)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
                except (psycopg.OperationalError, psycopg.InterfaceError):
                    if not left or not connection.closed:
                        raise
                    continue
                return stack.pop_all(), cursor
        raise AssertionError("unreachable")  # the last attempt raises

    @contextmanager
    def _transaction(self, mode: str) -> Generator[Tx]:
        with self._translated():
            stack, cursor = self._begun(mode)
            with stack:
                yield _Tx(cursor)

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout, *_NOT_ALLOWED) as error:
            raise StoreUnavailableError(self.url, str(error).strip()) from error
        except psycopg.DatabaseError as error:
            raise CorruptStoreError(self.url, str(error).strip()) from error
        except RathError:
            raise
        except DAMAGE as error:
            raise CorruptStoreError(self.url, f"a row holds what it cannot ({error!r})") from error

    def gate(self, session: str, branch: str) -> Lock:
        """Threads queue here, not on connections that wait for a row."""
        return self._gates[hash((session, branch)) % len(self._gates)]

    def claim(self, tx: Tx, keys: Sequence[Key]) -> None:
        """One lock for each of 1 024 buckets of keys, in order: two writers never wait for each other, and no batch
        needs more.
        """
        buckets = sorted({crc32("\0".join(astuple(key)).encode("utf-8", "surrogatepass")) % 1024 for key in keys})
        tx.run("SELECT pg_advisory_xact_lock(?, bucket) FROM unnest(?::int[]) AS bucket", (schema.APPLICATION_ID, buckets))

    def alone(self, tx: Tx) -> None:
        """Every append asks for a row of ``rath_ref`` first, every ingest for the gate; readers go on."""
        self.claim(tx, [GATE])
        tx.run("LOCK TABLE rath_ref IN EXCLUSIVE MODE")

    def rewrite(self) -> None:
        """Write the tables anew. The server's log (``pg_wal``), its archives and its standbys are the server's."""
        with self._translated(), self._pool().connection() as connection:
            connection.autocommit = True
            try:
                # who waits for a reader holds up all who come after
                connection.execute("SELECT set_config('lock_timeout', %s, false)", (f"{_PATIENCE}s",))
                tables = connection.execute(_TABLES).fetchall()
                connection.execute(
                    SQL("VACUUM (FULL, ANALYZE) {}").format(SQL(", ").join(Identifier(name) for (name,) in tables))
                )
                with suppress(pg.InsufficientPrivilege):  # else the old files go with the server's next checkpoint
                    connection.execute("CHECKPOINT")
            except pg.LockNotAvailable as error:
                problem = f"somebody has read it for {_PATIENCE} s: its files may hold what was erased until it is scrubbed again"
                raise StoreUnavailableError(self.url, problem) from error
            finally:
                connection.execute("RESET lock_timeout")
                connection.autocommit = False

    def writing(self) -> Any:
        return self._transaction("")

    def reading(self) -> Any:
        return self._transaction("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")

    def close(self) -> None:
        """Close this process's pool."""
        self._closed = True
        pool = self._pools.pop(os.getpid(), None)
        if pool is not None:
            pool.close()

    # ---------------------------------------------------------------- format

    def _prepare(self) -> None:
        with self.writing() as tx:
            tx.run("SELECT pg_advisory_xact_lock(?)", (_MIGRATION_LOCK,))
            version = self._format(tx)
            if version > schema.FORMAT:
                raise NewerFormatError(self.url, version, schema.FORMAT)
            for step in MIGRATIONS[version:]:
                step(tx, self.dialect)
            if version < schema.FORMAT:
                for statement in _NO_SAMPLES:
                    tx.run(statement)
                tx.run(
                    "INSERT INTO rath_meta (name, value) VALUES ('format', ?) "
                    "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                    (str(schema.FORMAT),),
                )

    def _format(self, tx: Tx) -> int:
        if tx.all("SELECT to_regclass('rath_meta')")[0][0] is None:
            return 0
        found = tx.all("SELECT value FROM rath_meta WHERE name = 'format'")
        return int(found[0][0]) if found else 0


_ADDRESS: Final = re.compile(
    r"(?P<scheme>postgres(?:ql)?)://(?P<who>[^/?]*@)?(?P<hosts>[^/?@]*)(?P<path>/[^?]*)?(?:\?(?P<query>.*))?\Z", re.DOTALL
)
_HOSTS: Final = re.compile(r"(?:(?:\[[^\]]*\]|[^:,\[\]]*)(?::\d*)?(?:,|\Z))*\Z")
_SECRET: Final = frozenset({"password", "sslpassword"})


def _without_password(url: str) -> str:
    """Return the address as it may be shown and kept.

    Raises:
        StoreAddressError: It can be read in two ways, so that part of a password might be taken for a host; or in none.
    """
    found = _ADDRESS.match(url)
    who, _, password = (found["who"] or "").removesuffix("@").partition(":") if found else ("", "", "")
    if not found or "@" in who + password or "@" in (found["path"] or "") or not _HOSTS.match(found["hosts"]):
        raise StoreAddressError(
            url, "percent-encode what is odd in a user or password: %40 for @, %2F for /, %3A for :, %3F for ?"
        )
    try:
        conninfo_to_dict(url)
    except psycopg.Error:  # its words may hold the password
        raise StoreAddressError(url, "libpq cannot read it; percent-encode what is odd in it, % as %25") from None
    query = "&".join(item for item in (found["query"] or "").split("&") if unquote(item.partition("=")[0]) not in _SECRET)
    return f"{found['scheme']}://{who}{'@' if who else ''}{found['hosts']}{found['path'] or ''}{'?' if query else ''}{query}"
