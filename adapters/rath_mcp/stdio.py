"""The stdio proxy: ``rath-bridge mcp record --store URL -- SERVER ARGS…``, between any host and any server.

Bytes are passed on as they come, in both directions; before they are, they stand in a spool (`rath_mcp.spool`), which a process
beside this one writes to the store (`rath_mcp.keeper`). Nothing is parsed here, nothing waits for the store, and what is no JSON,
no UTF-8 or no line passes like everything else. To the host the proxy is the server: it ends when the server does, with the same
status, and hands signals on.
"""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import PurePath
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any, Final, cast

from rath_mcp.marks import store_mark
from rath_mcp.spool import CLIENT, SERVER, Spool

PIECE: Final = 1 << 20
GRACE: Final = 2.0
"""Seconds in which a server notices that the host is gone, and again after SIGTERM."""
DRAIN: Final = 0.5
"""Seconds of silence after which the output of a server that has ended is over, though a child of it still holds the pipe."""
SETTLE: Final = 10.0
"""Seconds that the keeper may take at the end; it goes on by itself after that."""
RELAYED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_LAUNCHERS: Final = frozenset({
    "env", "npx", "uvx", "uv", "run", "tool", "bunx", "bun", "deno", "node", "python", "python3", "pipx", "docker", "sh", "bash", "x",
})  # fmt: skip


def record(url: str, command: Sequence[str], session: str | None = None, durable: bool = False) -> int:
    """Run a server behind this process's standard streams, on record.

    Args:
        url: The store's address.
        command: The server and its arguments.
        session: Where to write; ``mcp/`` and the server's name, when absent, for every process of it.
        durable: Have each request on disk before it is passed on, not only out of this process's hands.

    Returns:
        The server's exit status. A server that a signal ended ends this process by the same signal.
    """
    label = label_of(command)
    with recording(url, session or f"mcp/{label}", label=label, command=list(command)) as recorded:
        status = Relay(command, *recorded, durable).run()
    if status < 0:
        _die_of(-status)
    return status


@contextmanager
def recording(url: str, session: str, **facts: Any) -> Generator[tuple[Spool | None, int | None]]:
    """Make a spool and start its keeper; in the end, wait for it. The keeper is forked: nothing else may run yet.

    Args:
        url: The store's address.
        session: Where to write.
        **facts: What else the keeper should know.

    Yields:
        The spool and the keeper's alarm; nothing where no spool can be made, which is said on standard error.
    """
    spool = _spool(url)
    if spool is None:
        yield None, None
        return
    spool.event(session=session, **facts)
    keeper, wake, heard = _start_keeper(spool, url, store_mark(url))
    listener = Thread(target=_say, args=(heard,), daemon=True)
    listener.start()
    try:
        yield spool, wake
    finally:
        os.close(wake)
        _settle(keeper, spool, listener)


def label_of(command: Sequence[str]) -> str:
    """Return a name for a server by its command line: its first word that is no launcher, option or path to one."""
    words = [PurePath(word).name for word in command if not word.startswith("-")]
    plain = [word for word in words if word.rstrip("0123456789.") not in _LAUNCHERS]
    name = (plain or words or ["server"])[0]
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name)[:100] or "server"


class Relay:
    """One server process, and the bytes between it and the host."""

    def __init__(self, command: Sequence[str], spool: Spool | None, wake: int | None, durable: bool) -> None:
        self._command, self._spool, self._wake, self._durable = list(command), spool, wake, durable
        self._host_is_gone = Event()
        self._told: int | None = None

    def run(self) -> int:
        """Start the server, pass bytes on until it has ended, and return its status (negative: of a signal)."""
        try:
            server = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, process_group=0)
        except OSError as error:
            self._event(exit=None, problem=f"{error.strerror}: {self._command[0]}", reason="server_exit", command=True)
            say(f"cannot start {self._command[0]}: {error.strerror}")
            return 127 if isinstance(error, FileNotFoundError) else 126
        self._event(group=server.pid)
        for pipe in (server.stdin, server.stdout):
            with suppress(OSError):  # fewer, larger pieces of a large result
                fcntl.fcntl(cast(Any, pipe), fcntl.F_SETPIPE_SZ, PIECE)
        for number in RELAYED:
            signal.signal(number, lambda given, _: self._relay(server, given))
        for work in (self._upward, self._watch):
            Thread(target=work, args=(server,), daemon=True).start()
        gone = self._downward(server)
        status = server.wait()
        problem = f"the server was ended by signal {-status}" if status < 0 and self._told != -status else None
        if problem is None and status > 0:
            problem = f"the server ended with status {status}"
        reason = "client_closed" if gone or self._told else "server_exit"
        self._event(exit=status, reason=reason, problem=problem, command=True)
        return status

    def _upward(self, server: subprocess.Popen[bytes]) -> None:
        """Host to server."""
        assert server.stdin is not None
        target = server.stdin.fileno()
        with suppress(OSError):
            while data := read_some(0):
                self._keep(CLIENT, data, self._durable)
                write_all(target, data)
        self._host_is_gone.set()
        with suppress(OSError):
            server.stdin.close()
        with suppress(OSError):  # a server that takes no more: the host's pipe breaks, as the server's would
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def _downward(self, server: subprocess.Popen[bytes]) -> bool:
        """Server to host, on the main thread; tells whether the host was gone before the server's side ended."""
        assert server.stdout is not None
        source = server.stdout.fileno()
        poll = select.poll()
        poll.register(source, select.POLLIN)
        ended = False
        try:
            while True:
                if not poll.poll(DRAIN * 1000):
                    if ended:
                        break
                    ended = server.poll() is not None
                    continue
                data = os.read(source, PIECE)
                if not data:
                    break
                self._keep(SERVER, data)
                write_all(1, data)
        except OSError:
            pass  # the host reads no more: the server's next write fails, as it would without us
        gone = self._host_is_gone.is_set()  # asked before the host can see the end, and leave because of it
        server.stdout.close()
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return gone

    def _watch(self, server: subprocess.Popen[bytes]) -> None:
        """When the host neither writes nor reads any more, end a server that does not notice."""
        self._host_is_gone.wait()
        poll = select.poll()
        poll.register(1, 0)  # tells only that nobody reads
        while not poll.poll(1000):
            if server.poll() is not None:
                return
        for number in (signal.SIGTERM, signal.SIGKILL):
            until = monotonic() + GRACE
            while monotonic() < until:
                if server.poll() is not None:
                    return
                sleep(0.05)
            self._relay(server, number)

    def _relay(self, server: subprocess.Popen[bytes], number: int) -> None:
        self._told = number
        with suppress(OSError):
            os.killpg(server.pid, number)

    def _keep(self, tag: bytes, data: bytes, sync: bool = False) -> None:
        if self._spool is not None and self._wake is not None:
            self._spool.write(tag, data, sync)
            with suppress(OSError):  # full: the keeper has been told often enough; broken: it has died, and the spool stays
                os.write(self._wake, b".")

    def _event(self, **facts: Any) -> None:
        if self._spool is not None:
            self._spool.event(**facts)


def read_some(descriptor: int) -> bytes:
    """Read what there is, also from a pipe that somebody has made non-blocking; nothing once it has ended."""
    while True:
        try:
            return os.read(descriptor, PIECE)
        except BlockingIOError:
            select.select([descriptor], [], [])


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it, also to a pipe that somebody has made non-blocking."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


def _spool(url: str) -> Spool | None:
    try:
        return Spool.create(url)
    except OSError as error:
        say(f"nothing is recorded, no spool can be made: {error}")
        return None


def _start_keeper(spool: Spool, url: str, mark: str) -> tuple[int, int, int]:
    """Fork the keeper off, in a session of its own and with none of the host's pipes; return it, its alarm, and what it says."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    heard, voice = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writer, False)
    keeper = os.fork()
    if keeper:
        os.close(reader)
        os.close(voice)
        return keeper, writer, heard
    status = 4
    try:
        os.setsid()
        os.close(writer)
        os.close(heard)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nowhere, standard)
        os.nice(10)
        from rath_mcp.keeper import keep

        status = keep(spool, url, mark, reader, voice)
    finally:
        os._exit(status)


def _say(heard: int) -> None:
    """Say what the keeper has to say, as it says it."""
    with suppress(OSError), open(heard, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            say(line.rstrip("\n"))


def _settle(keeper: int, spool: Spool, listener: Thread) -> None:
    """Give the keeper time to finish, so that a session is whole when its server has ended."""
    until = monotonic() + SETTLE
    while monotonic() < until:
        done, status = os.waitpid(keeper, os.WNOHANG)
        if done:
            break
        sleep(0.005)
    else:
        say(f"the store is still being written, from {spool.path}")
        return
    if status:
        listener.join(5)  # why comes first
        where = f"the frames wait in {spool.path}, and the next proxy for it writes them"
        say(f"the store could not be written; {where}")


def say(text: str) -> None:
    """Say something to the user. A standard error that is closed, or full because nobody reads it, holds up no host."""
    with suppress(OSError, ValueError):
        if sys.stderr is not None and select.select([], [sys.stderr], [], 1)[1]:
            print(f"rath-bridge: {text}", file=sys.stderr, flush=True)  # noqa: T201 - the face prints


def _die_of(number: int) -> None:
    """End this process as the server ended, for hosts that look at the signal."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
