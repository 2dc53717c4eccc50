"""Databases of LangGraph's own checkpointers, brought over thread by thread: ``rath-bridge import --from langgraph ADDRESS``.

Source: the tables of langgraph-checkpoint-sqlite 3.1 and langgraph-checkpoint-postgres 3.2. They are opened read-only; names are asked for
in SQL, since ``list`` would read every state to tell them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast
from urllib.parse import quote

from langgraph.checkpoint.base import BaseCheckpointSaver

from rath_bridge.errors import DecodeError, EncodeError, RathError, StoreAddressError, StoreUnavailableError, UnsupportedError
from rath_bridge.model.chunk import Key
from rath_bridge.session import Store
from rath_langgraph.moving import Name, move
from rath_langgraph.saver import RathSaver
from rath_langgraph.serde import RathSerializer
from rath_langgraph.threads import FRAMEWORK

_NAMES: Final = "SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoints ORDER BY checkpoint_id"
_NO_TABLES: Final = "it has no tables of a LangGraph checkpointer (checkpoints, writes); it was left alone"
_UNFINISHED: Final = (
    "its writer was stopped in the middle of a write, and to undo that SQLite must write to the file, which is only read here: "
    "open it once with any program that may write (sqlite3 FILE .schema) and import it again"
)
Progress = Callable[[int, int], None]
Row = tuple[str, Literal["new", "grown", "unchanged"], int]
"""Session, what became of it, and how many checkpoints are new."""


@dataclass(frozen=True, slots=True)
class Database:
    """An open database of LangGraph's."""

    label: str
    saver: BaseCheckpointSaver[Any]
    threads: dict[str, list[Name]]
    """(checkpoint id, namespace) by thread, oldest first; the thread that was begun first comes first."""

    def bring(
        self, store: Store, *, session: str | None = None, dry_run: bool = False, progress: Progress | None = None
    ) -> Iterator[Row]:
        """Bring every thread over; what stands already is left as it is, so an interrupted import goes on where it was.

        Args:
            store: Where to.
            session: Where to record all of them; ``langgraph/<thread_id>`` when absent.
            dry_run: Only tell.
            progress: Told how many checkpoints are done, and how many there are.

        Raises:
            DecodeError: A row is damaged, and what came before it in its thread is there. This and the next two are raised at the end:
                other threads come over all the same.
            EncodeError: A value cannot be kept.
            UnsupportedError: A value is of a class that is not imported here.
        """
        faults: list[RathError] = []
        target = RathSaver(store, session=session)
        total, done = sum(map(len, self.threads.values())), 0
        for thread_id, names in self.threads.items():
            standing = self._standing(store, thread_id, names)
            missing = len(names) - standing
            if not dry_run and missing:
                before = done

                def tell(count: int, _: int, before: int = before) -> None:
                    if progress is not None:
                        progress(before + count, total)

                try:
                    move(self.saver, target, thread_id, thread_id, names, tell)
                except (DecodeError, EncodeError, UnsupportedError) as error:
                    faults.append(error)
                    missing -= len(names) - self._standing(store, thread_id, names)
            done += len(names)
            if progress is not None:
                progress(done, total)
            where = target.place(thread_id)
            name = where[0] if where[1] == "main" else f"{where[0]}@{where[1]}"
            yield name, "unchanged" if not missing else "grown" if standing else "new", missing
        if faults:
            raise faults[0]

    def _standing(self, store: Store, thread_id: str, names: Sequence[Name]) -> int:
        spaces = {space for _, space in store.backend.scopes(FRAMEWORK, thread_id)}
        found = (store.backend.lookup(Key(FRAMEWORK, thread_id, space, name)) for name, space in names if space in spaces)
        return sum(chunk is not None for chunk in found)


@contextmanager
def open_database(address: str) -> Generator[Database]:
    """Open a database read-only.

    Args:
        address: ``sqlite:///old.db``, the path of such a file, or ``postgresql://…``.

    Raises:
        StoreAddressError: No such file, or not an address.
        DecodeError: It is somebody else's database; it was left alone.
        UnsupportedError: LangGraph's own checkpointer for it is not installed.
        StoreUnavailableError: The server cannot be reached.
    """
    if address.startswith(("postgresql://", "postgres://")):
        with _postgres(address) as opened:
            yield opened
        return
    path = Path(address.removeprefix("sqlite:///"))
    if "://" in address and not address.startswith("sqlite:///"):
        raise StoreAddressError(address, "LangGraph keeps checkpoints in SQLite and PostgreSQL")
    if not path.is_file():
        raise StoreAddressError(address, "there is no such file")
    with _sqlite(path) as opened:
        yield opened


@contextmanager
def _sqlite(path: Path) -> Generator[Database]:
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver
    except ImportError as error:
        raise UnsupportedError("a file of SqliteSaver is read with it: pip install langgraph-checkpoint-sqlite") from error
    connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, check_same_thread=False)
    try:
        try:
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            rows = connection.execute(_NAMES).fetchall() if {"checkpoints", "writes"} <= tables else None
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_READONLY:
                raise DecodeError(str(path), _UNFINISHED) from error
            raise DecodeError(str(path), f"not an SQLite database of LangGraph's ({error}); it was left alone") from error
        if rows is None:
            raise DecodeError(str(path), _NO_TABLES)
        yield Database(str(path), SqliteSaver(connection, serde=RathSerializer()), _by_thread(rows))
    finally:
        connection.close()


@contextmanager
def _postgres(address: str) -> Generator[Database]:
    try:
        import psycopg
        from langgraph.checkpoint.postgres import PostgresSaver
        from psycopg.rows import dict_row
    except ImportError as error:
        raise UnsupportedError(
            "a database of PostgresSaver is read with it: pip install langgraph-checkpoint-postgres"
        ) from error
    shown = address.rpartition("@")[2]
    try:
        connection: Any = cast(Any, psycopg.connect)(
            address, autocommit=True, prepare_threshold=0, row_factory=dict_row, options="-c default_transaction_read_only=on"
        )
    except psycopg.Error as error:
        raise StoreUnavailableError(f"postgresql://{shown}", str(error).strip()) from error
    with connection:
        found = connection.execute("SELECT to_regclass('checkpoints') AS a, to_regclass('checkpoint_writes') AS b").fetchone()
        if found is None or found["a"] is None or found["b"] is None:
            raise DecodeError(shown, _NO_TABLES)
        rows = [tuple(row.values()) for row in connection.execute(_NAMES).fetchall()]
        yield Database(shown, PostgresSaver(connection, serde=RathSerializer()), _by_thread(rows))


def _by_thread(rows: Sequence[Any]) -> dict[str, list[Name]]:
    found: dict[str, list[Name]] = {}
    for thread_id, namespace, checkpoint_id in rows:
        if not all(isinstance(part, str) for part in (thread_id, namespace, checkpoint_id)):
            raise UnsupportedError(f"a checkpoint is named {thread_id!r}, {namespace!r}, {checkpoint_id!r}: names are texts")
        found.setdefault(thread_id, []).append((checkpoint_id, namespace))
    return found
