"""Children of a test's own process that always end: never on into pytest, never later than a minute."""

from __future__ import annotations

import os
import signal
import sqlite3
import traceback
from collections.abc import Callable
from pathlib import Path


def forked(work: Callable[[], None]) -> int:
    """Run `work` in a child and return its process id; the child's status is 0 when `work` returned."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest-timeout's handler would raise into pytest
        signal.alarm(60)
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - shown; the child must end here
        traceback.print_exc()
    finally:
        os._exit(status)


def killed_while_writing(path: Path, before: str) -> None:
    """Run a statement in an SQLite file, and leave it as a process does that is killed in its next transaction."""

    def child() -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute(before)
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN")
        connection.execute("CREATE TABLE more (content)")
        connection.executemany("INSERT INTO more VALUES (zeroblob(4096))", [()] * 99)
        os._exit(0)

    assert os.waitpid(forked(child), 0)[1] == 0
    assert path.with_name(f"{path.name}-journal").stat().st_size > 0
