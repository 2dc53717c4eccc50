"""A throw-away PostgreSQL server, started from the machine's own binaries."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.ports import free_port

# The shell outlives us by one read: when our end of its stdin closes, even by kill -9, it stops the server.
KEEPER = 'home=$1; shift; "$@" >>"$home/log" 2>&1 & read -r _; kill -INT $!; wait $!'
AND_REMOVE = f'{KEEPER}; rm -rf "$home"'
UNSAFE_BUT_FAST = ("fsync=off", "full_page_writes=off", "synchronous_commit=off")


def find_binaries() -> Path | None:
    """Return the directory that holds `initdb` and `postgres`, or None where PostgreSQL is not installed."""
    on_path = shutil.which("initdb", path=f"{os.environ.get('PATH', '')}:/usr/local/bin")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    for initdb in [*([Path(on_path)] if on_path else []), *reversed(debian)]:
        if (initdb.resolve().parent / "postgres").exists():
            return initdb.resolve().parent
    return None


@contextmanager
def run_server(binaries: Path) -> Generator[str]:
    """Run a server on 127.0.0.1 and yield its superuser's URL; stop it and remove its files at the end."""
    account = _unprivileged_account()
    home = Path(tempfile.mkdtemp(prefix="rath-pg-", dir="/tmp"))  # a socket's path has 107 bytes, so not $TMPDIR
    password = secrets.token_hex(16)
    (home / "password").write_text(password)
    if account:
        for path in (home, home / "password"):
            shutil.chown(path, account["user"], account["group"])
    initdb = [str(binaries / "initdb"), "-D", str(home / "data"), "-U", "rath", "-E", "UTF8", "--locale=C"]
    initdb += ["-A", "scram-sha-256", f"--pwfile={home / 'password'}", "--no-sync"]
    try:
        subprocess.run(initdb, check=True, capture_output=True, cwd=home, **account)
    except subprocess.CalledProcessError as failure:
        shutil.rmtree(home)
        raise RuntimeError(f"initdb failed: {failure.stderr.decode()}") from failure

    port = free_port()
    server = [str(binaries / "postgres"), "-D", str(home / "data"), "-k", str(home), "-h", "127.0.0.1"]
    server += ["-p", str(port), *(word for setting in UNSAFE_BUT_FAST for word in ("-c", setting))]
    url = f"postgresql://rath:{password}@127.0.0.1:{port}/postgres"
    with kept(server, home, account, AND_REMOVE):
        _wait_until_ready(url, home / "log")
        yield url


@contextmanager
def kept(server: Sequence[str], home: Path, account: dict[str, Any], keeper: str = KEEPER) -> Generator[None]:
    """Run a server for as long as the block does, and no longer than we live."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", keeper, "keeper", str(home), *server],
        stdin=subprocess.PIPE,
        cwd=home,
        start_new_session=True,  # ctrl-C is for pytest; the keeper follows when pytest has ended
        **account,
    )
    try:
        yield
    finally:
        process.communicate()


@contextmanager
def fresh_database(admin_url: str) -> Generator[str]:
    """Create a database on the server at `admin_url`, yield its URL, drop it at the end."""
    name = f"rath_test_{secrets.token_hex(6)}"
    base, _, query = admin_url.partition("?")
    with psycopg.connect(admin_url, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"'.encode())
        try:
            yield base[: base.rindex("/") + 1] + name + (f"?{query}" if query else "")
        finally:
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


def _unprivileged_account() -> dict[str, Any]:
    """Return whom to run as, as `subprocess` takes it: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name for entry in pwd.getpwall()}
    account = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _wait_until_ready(url: str, log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(url, connect_timeout=5).close()
        except psycopg.OperationalError as failure:
            if time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {log.read_text()}") from failure
            time.sleep(0.05)
        else:
            return
