"""The keeper: a process beside a proxy that writes the proxy's spool to the store, so that no frame waits for it.

It outlives its proxy: what is left in the spool when a proxy is killed is written, open calls are closed, and a server that does
not notice the end of its input is ended.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

from rath_bridge.errors import RathError, StoreUnavailableError
from rath_bridge.model.chunk import Draft, Key
from rath_bridge.model.digests import digest
from rath_bridge.model.kinds import Body, Gap, Note
from rath_bridge.recorder import Recorder
from rath_bridge.session import Store, open_store
from rath_mcp.exchange import Book
from rath_mcp.frames import Direction, Frame, frame_from_json, parse_line
from rath_mcp.marks import is_marked, store_mark
from rath_mcp.record import Connection
from rath_mcp.resting import RECLAIM, connection_from, forget, parts_of, rest, rested, state_of, text_of
from rath_mcp.spool import CLIENT, EVENT, SERVER, Record, Spool, Tail, connection_of, left_over, opening

QUIET: Final = 0.06
"""Seconds without a frame after which those that came are written to the store. While frames come, they are synced that often where
they stand, so that they are durable; the processor is left to those who talk.
"""
LAG: Final = 1.0
"""Seconds after which a pipe that is never quiet is written all the same."""
PATIENCE: Final = 2.0
"""Seconds that a server may take to end by itself, and again after SIGTERM."""
TRIES: Final = 10
"""How often a store which is down is tried once the proxy has ended, five times a second; then the spool stays. Counted, not timed:
a process that is stopped for a while has not tried.
"""
_DIRECTION: Final[dict[bytes, Direction]] = {CLIENT: "c2s", SERVER: "s2c"}


class Proxy:
    """The proxy, as its keeper sees it: a pipe that says when there is something to read, and ends when the proxy does; and one
    to the proxy, for what its user should know.
    """

    def __init__(self, wake: int | None, voice: int | None = None, spool: int | None = None) -> None:
        self._wake, self._voice, self._spool = wake, voice, spool
        self._told: set[str] = set()
        self._end = select.poll()
        if wake is not None:
            self._end.register(wake, 0)  # tells nothing but the end

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for something to read; False when there never will be."""
        if self._wake is None:
            return False
        if select.select([self._wake], [], [], seconds)[0]:
            self._gather()
            if not os.read(self._wake, 1 << 16):
                self._wake = None  # the last records came before the end: read once more
        return True

    def _gather(self) -> None:
        """Wait until the pipe is quiet, or has ended, or must be written all the same."""
        until = monotonic() + LAG
        known = -1
        while not self._end.poll(QUIET * 1000) and self._spool is not None:
            size = os.fstat(self._spool).st_size
            if size == known or monotonic() > until:
                return
            with suppress(OSError):  # a full disk: it is no worse than unsynced
                os.fdatasync(self._spool)
            known = size

    def tell(self, text: str) -> None:
        """Have the proxy say something on its standard error, once: a keeper has none."""
        if self._voice is not None and text not in self._told:
            self._told.add(text)
            with suppress(OSError):  # it has ended
                os.write(self._voice, " ".join(text.split()).encode()[:4000] + b"\n")

    def retries(self) -> Iterator[None]:
        """Yield now and then while the proxy lives, and a little longer."""
        while self.wait(0.3):
            yield
        for _ in range(TRIES):
            sleep(0.2)
            yield


class Fold:
    """A spool's records, folded into one session. What stands there from an earlier try is not written twice.

    A stdio proxy has one connection and puts its bytes down; an HTTP proxy has several and puts whole frames down.
    """

    def __init__(self, recorder: Recorder, name: str, store: str, label: str | None) -> None:
        self._recorder, self._name, self._store, self._label = recorder, name, store, label
        self._emitted = 0
        self._connections: dict[str, Connection] = {}
        self._parts: dict[bytes, list[bytes]] = {CLIENT: [], SERVER: []}
        self._last = 0
        self._elsewhere: set[str] = set()
        """Connections whose client records itself, to the same store."""
        self.ended = False
        self.group: int | None = None
        """The server's process group."""

    @classmethod
    def again(cls, known: Mapping[str, Any], recorder: Recorder, name: str, store: str) -> Fold:
        """Go on where another keeper rested."""
        fold = cls(recorder, name, store, known.get("label"))
        fold._emitted, fold._last, fold.group, fold.ended = known["emitted"], known["last"], known["group"], known["ended"]
        fold._elsewhere = set(known["elsewhere"])
        fold._parts = {CLIENT: parts_of(known["client"]), SERVER: parts_of(known["server"])}
        for key, state in known["connections"].items():
            fold._connections[key] = connection_from(state, partial(fold._made, key))
        return fold

    def known(self) -> dict[str, Any]:
        """What another keeper would have to know to go on from here."""
        return {
            "label": self._label, "emitted": self._emitted, "last": self._last, "group": self.group, "ended": self.ended,
            "elsewhere": sorted(self._elsewhere), "client": text_of(self._parts[CLIENT]), "server": text_of(self._parts[SERVER]),
            "connections": {key: state_of(one) for key, one in self._connections.items()},
        }  # fmt: skip

    def see(self, record: Record) -> None:
        """Take the next record."""
        self._last = record.t
        if record.tag == EVENT:
            self._event(record.event)
            return
        head, newline, rest = record.data.partition(b"\n")
        parts = self._parts[record.tag]
        while newline:
            self._line(b"".join([*parts, head]), record)
            parts.clear()
            head, newline, rest = rest.partition(b"\n")
        if head:
            parts.append(head)

    def _line(self, line: bytes, record: Record) -> None:
        self._frame(parse_line(line, _DIRECTION[record.tag], record.t), "")

    def _frame(self, frame: Frame, key: str) -> None:
        if frame.direction == "c2s" and key not in self._elsewhere and is_marked(frame, self._store):
            self._elsewhere.add(key)
            note = Note(text="recorded by its client, in the same store", author="mcp")
            self._emit(note, at=self._last // 1000)
        if key not in self._elsewhere:
            self._connection(key).see(frame)

    def _connection(self, key: str) -> Connection:
        if key not in self._connections:
            self._connections[key] = self._made(key)
        return self._connections[key]

    def _made(self, key: str) -> Connection:
        name = f"{self._name}-{key}" if key else self._name
        run = digest(f"{name}/run".encode())[:16]
        book = Book(self._emit, digest(name.encode())[:32], run_id=run)
        return Connection(book, label=self._label, id=name)

    def _event(self, event: dict[str, Any]) -> None:
        key = event.get("connection", "")
        self.group = event.get("group", self.group)
        if "frame" in event:
            self._frame(frame_from_json(event["frame"]), key)
        if "failed" in event and key in self._connections:
            for request_id in event["failed"]:
                self._connections[key].fail(request_id, event["reason"], event.get("detail"))
        if "close" in event and key in self._connections:
            self._connections[key].close(event["close"], at=self._last // 1000)
        if "lost" in event:
            for tag in self._parts:
                if tag.decode() in event.get("ways", "<>"):
                    self._torn(tag)
            self._emit(Gap(count=event["lost"], reason="the proxy's disk was full: these pieces were passed on and not kept"))
        if "exit" in event:
            status, problem = event["exit"], event.get("problem")
            if "command" in event:
                self._connection("").server.more["rath.mcp.exit_status"] = status
            self.end(event.get("reason", "server_exit"), problem)

    def end(self, reason: str, error: str | None = None) -> None:
        """Everything is over; what stands in no complete line is kept, too."""
        self.ended = True
        for tag in self._parts:
            self._torn(tag)
        for key, connection in self._connections.items():
            if key not in self._elsewhere:
                connection.begin()
                connection.close(reason, error, at=self._last // 1000 or None)

    def _torn(self, tag: bytes) -> None:
        """What stands in no complete line never will: nothing that comes later is joined to it."""
        parts = self._parts[tag]
        if parts:
            self._line(b"".join(parts), Record(tag, self._last, b""))
            parts.clear()

    def _emit(self, body: Body, **given: Any) -> Draft | None:
        self._emitted += 1
        given.setdefault("run", None)
        return self._recorder.emit(body, once=Key("mcp", self._name, "chunk", f"{self._emitted:09d}"), **given)


def fold_file(path: Path, descriptor: int, store: Store, mark: str, proxy: Proxy) -> bool:
    """Write a spool to the store, to its end; return whether all of it is durable.

    Args:
        path: The spool.
        descriptor: The same, open.
        store: Where to write.
        mark: Of the store's address.
        proxy: Who may still write to the spool.
    """
    connection, known = connection_of(path), rested(path)
    begin = known.get("offset", 0)
    tail, fold, recorder, session = Tail(descriptor, begin), None, None, known.get("session")
    try:
        if known:
            recorder = Recorder.late(store, known["session"], spool=1_000_000, background=False)
            fold = Fold.again(known, recorder, connection, mark)
        while True:
            records = tail.records()
            if records and fold is None:
                facts = opening(records)
                session = facts.get("session") or f"mcp/{connection}"
                recorder = Recorder.late(store, session, spool=1_000_000, background=False)
                fold = Fold(recorder, connection, mark, facts.get("label"))
            for record in records:
                if fold is not None:
                    fold.see(record)
            if recorder is not None and not _flushed(recorder, proxy):
                return False
            if fold is not None and tail.offset - begin > RECLAIM:
                rest(path, descriptor, tail.offset, {"session": session, **fold.known()})
                begin = tail.offset
            if not records and not proxy.wait():
                break
        if fold is None or recorder is None:
            return True
        if not fold.ended:
            fold.end("proxy_killed", "the proxy was killed")
        return _flushed(recorder, proxy)
    finally:
        if recorder is not None:
            recorder.closed = True  # what could not be written stays in the spool


def _flushed(recorder: Recorder, proxy: Proxy) -> bool:
    """Wait until all is durable; give up a while after the proxy has ended."""
    if recorder.flush():
        return True
    proxy.tell("the store cannot be written at the moment: frames wait for it")
    return any(recorder.flush() for _ in proxy.retries())


def keep(spool: Spool, url: str, mark: str, wake: int, voice: int | None = None) -> int:
    """Be the keeper: follow a spool until its proxy has ended, then write what others left over.

    Args:
        spool: Shared with the proxy, which holds the writing end of ``wake``.
        url: The store's address.
        mark: Of that address.
        wake: A pipe that says when there is something to read, and ends with the proxy.
        voice: A pipe whose lines the proxy says on its standard error.

    Returns:
        0, or 4 where the spool could not be written and stays.
    """
    proxy = Proxy(wake, voice, spool.descriptor)
    store = _opened(url, proxy)
    if store is None:
        _reap(spool)
        return 4
    with store:
        whole = fold_file(spool.path, spool.descriptor, store, mark, proxy)
        _reap(spool)
        if whole:
            forget(spool.path)
            recover(store, url, but=spool.path)
    return 0 if whole else 4


def recover(store: Store, url: str, but: Path | None = None) -> int:
    """Write the spools that were left over for a store; return how many."""
    done = 0
    for path, descriptor in left_over(url, but):
        try:
            if fold_file(path, descriptor, store, store_mark(url), Proxy(None)):
                forget(path)
                done += 1
        finally:
            os.close(descriptor)
    return done


def _opened(url: str, proxy: Proxy) -> Store | None:
    try:
        return open_store(url)
    except StoreUnavailableError as error:
        proxy.tell(f"the store cannot be reached, frames wait for it: {error}")
        for _ in proxy.retries():
            with suppress(StoreUnavailableError):
                return open_store(url)
    except RathError as error:
        proxy.tell(f"the store cannot be opened, frames wait for the next proxy: {error}")
    return None


def _reap(spool: Spool) -> None:
    """End a server whose proxy was killed: its input has ended, and it had time to notice."""
    known = rested(spool.path)
    group: int | None = known.get("group")
    ended = bool(known.get("ended"))
    tail = Tail(spool.descriptor, known.get("offset", 0))
    while records := tail.records():
        for record in records:
            if record.tag == EVENT:
                group = record.event.get("group", group)
                ended = ended or "exit" in record.event
    if group is None or ended:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = monotonic() + PATIENCE
        while monotonic() < until:
            with suppress(OSError):
                os.killpg(group, 0)
                sleep(0.05)
                continue
            return
        with suppress(OSError):
            os.killpg(group, number)
