"""What is queued is written: in order, by a thread or with a flush, and again where the store was down."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from itertools import takewhile
from threading import Condition, Lock, RLock, Thread, get_ident
from time import monotonic
from typing import Final

from rath_bridge.errors import RecorderError, StoreError, StoreUnavailableError
from rath_bridge.model.chunk import Chunk, Draft, draft
from rath_bridge.model.kinds import Gap
from rath_bridge.session import Session
from rath_bridge.store.protocol import Appended

_log: Final = logging.getLogger("rath_bridge")
INTERVAL: Final = 0.05
"""Seconds between background writes."""
SPOOL: Final = 20_000
"""Chunks that wait at most while the store is down."""

standin: Final[ContextVar[Writer | None]] = ContextVar("rath_bridge_standin", default=None)
"""Set while a replay runs: what a recorder of the user's own store would write goes to this one instead."""

_watchers: list[Callable[[Session, int], None]] = []


def watch(fn: Callable[[Session, int], None]) -> Callable[[], None]:
    """Call ``fn`` after every write of every recorder of this process; returns what ends that.

    Args:
        fn: Gets the session where it stands now, and how many chunks are new. It is called while the recorder writes: it must
            be quick, and write nothing there itself.
    """
    _watchers.append(fn)

    def stop() -> None:
        if fn in _watchers:
            _watchers.remove(fn)

    return stop


class Hold:
    """A place in a queue: what stands behind it waits while it is shut."""

    __slots__ = ("key", "place", "shut")

    def __init__(self, key: str, place: str, shut: Callable[[], bool]) -> None:
        self.key, self.place, self.shut = key, place, shut

    def __call__(self) -> None:
        """It is no chunk."""


class Writer:
    """Keeps what is queued in order, and writes it to the tip of one session. Safe from any thread."""

    def __init__(self, session: Session, *, strict: bool = False, spool: int = SPOOL, background: bool = True) -> None:
        """As for `rath_bridge.recorder.Recorder`."""
        self.strict = strict
        self.store, self.name = session.store.bound(), session.name  # the background writer has no context of its own
        self._session: Session | None = replace(session, store=self.store)
        self._limit, self._background = spool, background
        self._queue: deque[Draft | Callable[[], Draft | None] | None] = deque()
        self._lost = 0
        self._down_until = 0.0
        self._last_error: Exception | None = None
        self._retrying = False
        self._making = 0
        self._erasures = self._erasures_first = -1
        self._acknowledged = session.position
        self._lock = RLock()  # held while the store is written
        self._gate = Lock()  # held for moments: an observer never waits for a store that is slow or down
        self._wake = Condition()
        self._nudged = False
        self._thread: tuple[int, Thread] | None = None
        self.closed = False

    def defer(self, make: Callable[[], Draft | None]) -> bool:
        """Queue a chunk that is built by the background writer, off the user's thread; a failure is a counted gap.

        Args:
            make: Builds the draft (with `draft`), on another thread and later: it must hold copies of what may change, and
                look at nothing ambient. None where it only prepared what a later one needs.

        Returns:
            False where the spool is full: it is lost to a gap.

        Raises:
            RecorderError: It failed, and this recorder is ``strict`` (which builds at once).
        """
        return self._enqueue(self._made(make) if self.strict else make)

    def nudge(self) -> None:
        """Have the background writer write what is queued now: the caller is about to wait for something else."""
        writer = self._writer()
        if writer._queue:
            with writer._wake:
                writer._nudged = True
                writer._wake.notify_all()

    @property
    def erasures(self) -> int:
        """How many erasures the store had counted when it was asked last; -1 before that."""
        return self._erasures

    def erased_since(self, erasures: int) -> bool:
        """Whether something was erased since, by whomever: what was brought before that may have to be brought again.

        The store is asked once for each batch, by who builds a chunk of it (`defer`); elsewhere nobody waits for it, and what was seen
        last counts.

        Args:
            erasures: What `erasures` was.

        Raises:
            StoreUnavailableError: The store could not be asked; a chunk that is being built is built again later.
        """
        if self._making == get_ident() or self.strict:
            self._erasures = self.store.kept.erasures()
            self._making = 0
            if self._erasures_first < 0:
                self._erasures_first = self._erasures
        return self._erasures != (self._erasures_first if erasures < 0 else erasures)

    def hold(self, key: str, place: str, shut: Callable[[], bool]) -> None:
        """Let what is queued from now on wait for something that has to stand before it.

        The background writer does not write it while ``shut()``, nor does a flush up to this place; any other flush does.

        Args:
            key: What it waits for.
            place: Where that will stand.
            shut: Whether that is still to come; it must be quick, and false some day.
        """
        if len(self._queue) < self._limit:
            self._enqueue(Hold(key, place, shut))

    @property
    def held(self) -> str | None:
        """What the queue waits for now (`hold`)."""
        writer = self._writer()
        if not writer._queue:
            return None
        with writer._gate:
            holds = [item for item in writer._queue if isinstance(item, Hold)]
        return next((item.key for item in holds if item.shut()), None)

    def append(self, *drafts: Draft) -> tuple[Chunk, ...]:
        """Write drafts now, behind all that was queued; when it returns they are durable.

        Raises:
            StoreUnavailableError: They were not written.
        """
        with self._lock:
            self._drain(raise_errors=True)
            return self._write(drafts).chunks

    def flush(self, *, up_to: str | None = None) -> bool:
        """Write everything that is queued; True when all that was to be written is durable. Raises only when ``strict``.

        Args:
            up_to: Leave what waits (`hold`) at a place whose name begins so, and what is queued behind it.
        """
        writer = self._writer()
        with writer._lock:
            return writer._drain(raise_errors=writer.strict, up_to=up_to)

    @property
    def session(self) -> Session:
        """The session as it stands now, everything queued so far included."""
        self.flush()
        return self._writer()._opened().latest()

    def _writer(self) -> Writer:
        """Who writes here: this recorder, or the stand-in of the replay that the caller runs in."""
        other = standin.get()
        return self if other is None or other is self or self.store.backend is self.store.kept else other

    def _opened(self) -> Session:
        if self._session is None:
            self._session = self.store.session(self.name, create=True)
            self._acknowledged = self._session.position
        return self._session

    def close(self) -> None:
        """Flush and stop. Safe to call twice."""
        if self.closed:
            return
        self.closed = True
        with self._wake:
            self._wake.notify_all()
        self._down_until = 0.0
        if not self.flush():
            _log.error("rath_bridge: %d chunks of %s could not be written (%s)", len(self._queue), self.name, self._last_error)

    def after_fork(self) -> None:
        """In a forked child: do not write what the parent has queued, nor wait for locks that nobody will release."""
        self._queue, self._lost, self._retrying, self._making = deque(), 0, False, 0
        self._lock, self._gate, self._wake, self._thread = RLock(), Lock(), Condition(), None

    # ---------------------------------------------------------------- inside

    def _enqueue(self, item: Draft | Callable[[], Draft | None] | None) -> bool:
        writer = self._writer()
        if writer is not self:
            return writer._enqueue(item)
        with self._gate:
            waiting = len(self._queue)
            full = waiting >= self._limit
            if full:
                self._lost += 1
            else:
                self._queue.append(item)
        if full:
            if self._lost == 1:
                _log.warning("rath_bridge: the spool of %s is full; further chunks are counted as a gap", self.name)
            return False
        if not waiting or self._thread is None or self.closed:  # else the writer is at work already
            self._start()
        return True

    def _made(self, make: Callable[[], Draft | None]) -> Draft | None:
        try:
            return make()
        except Exception as error:
            if isinstance(error, StoreUnavailableError) and self._making:
                raise  # it is made when the store is back
            if self.strict:
                raise RecorderError(f"cannot keep a chunk: {error}") from error
            _log.warning("rath_bridge: a chunk of %s could not be kept: %s", self.name, describe(error))
            return draft(Gap(count=1, reason=f"a chunk could not be kept: {type(error).__name__}"))

    def _start(self) -> None:
        if self.closed:  # what outlives the recorder (a connection, a late task) is written at once
            self.flush()
            return
        if not self._background:
            return
        pid = os.getpid()
        if self._thread is None or self._thread[0] != pid or not self._thread[1].is_alive():
            with self._lock:
                if self._thread is None or self._thread[0] != pid or not self._thread[1].is_alive():
                    thread = Thread(target=self._work, name="rath_bridge-recorder", daemon=True)
                    try:
                        thread.start()
                    except RuntimeError:  # the interpreter is going down: what is queued is written at exit
                        return
                    self._thread = (pid, thread)

    def _work(self) -> None:
        while not self.closed:
            with self._wake:
                if not self._nudged:
                    self._wake.wait(INTERVAL)
                self._nudged = False
            if self._queue:
                with self._lock:
                    self._drain(raise_errors=False, up_to="")

    def _drain(self, *, raise_errors: bool, up_to: str | None = None) -> bool:
        """Write the queue in order, then the gap that was counted meanwhile; True when all that was queued is durable."""
        if not self._queue and not self._lost:
            return True
        if monotonic() < self._down_until and not raise_errors and not self.closed:
            return False
        if not self._send(raise_errors=raise_errors, up_to=up_to):
            return False
        with self._gate:
            if not self._lost:
                return True
            self._queue.append(draft(Gap(count=self._lost, reason="the spool was full while the store was down")))
            self._lost = 0
        return self._send(raise_errors=raise_errors, up_to=up_to)

    def _send(self, *, raise_errors: bool, up_to: str | None) -> bool:
        """Write what is queued now; on failure keep it, and say so once."""
        with self._gate:
            waiting = list(self._queue)
        if up_to is not None:
            waiting = [
                *takewhile(
                    lambda item: not isinstance(item, Hold) or not item.place.startswith(up_to) or not item.shut(), waiting
                )
            ]
        try:
            batch = self._batch(waiting)
            # After a failure, the last attempt may have been committed although its answer was lost.
            fresh = self._not_yet_standing(batch) if self._retrying else batch
            try:
                if fresh:
                    self._write(fresh)
            except StoreUnavailableError:
                raise
            except Exception:  # noqa: BLE001 - perhaps one of them is what it cannot take
                self._sift(fresh)
        except Exception as error:  # whatever a store raises, the user's run goes on
            self._retrying = True
            self._down_until = monotonic() + 1.0
            if self._last_error is None:
                _log.warning("rath_bridge: recording to %s waits: %s", self.name, error)
            self._last_error = error
            if raise_errors:
                if not self.strict:
                    raise
                raise RecorderError(f"recording to {self.name} failed: {error}") from error
            return False
        with self._gate:
            for _ in waiting:
                self._queue.popleft()
        self._retrying, self._last_error = False, None
        return True

    def _batch(self, waiting: Sequence[Draft | Callable[[], Draft | None] | None]) -> list[Draft]:
        batch: list[Draft] = []
        self._making = get_ident()  # the store's erasures have not been asked for yet
        try:
            for index, item in enumerate(waiting):  # made once: after a failure, the same draft is sent again
                made = item if item is None or isinstance(item, Draft) else self._made(item)
                if made is not item:
                    self._queue[index] = made
                if made is not None:
                    batch.append(made)
        finally:
            self._making = 0
        return batch

    def _sift(self, batch: Sequence[Draft]) -> None:
        """Write drafts one at a time: one that the store refuses, although it takes a gap in its place, holds up no others."""
        for item in self._not_yet_standing(list(batch)):
            try:
                self._write((item,))
            except StoreUnavailableError:
                raise
            except Exception as error:  # noqa: BLE001 - counted
                reason = f"the store cannot keep a {item.kind} chunk: {error}"
                self._write((draft(Gap(count=1, reason=reason.encode("utf-8", "replace").decode()[:400])),))
                _log.warning("rath_bridge: %s", reason)

    def _not_yet_standing(self, batch: list[Draft]) -> list[Draft]:
        """Leave out drafts that stand already: a body's nonce makes its digest unique."""
        tip = self._opened().latest()
        line = self.store.kept.line(tip.head, self._acknowledged + 1)
        standing = {chunk.body_digest for chunk in line}
        return [item for item in batch if item.body_digest not in standing]

    def _write(self, drafts: Sequence[Draft]) -> Appended:
        at = self._opened()
        done = self.store.kept.append(at.session, at.branch, drafts, head=at.head, on_conflict="serialise")
        self._acknowledged = done.ref.position
        for fn in tuple(_watchers):
            try:
                fn(Session(at.store, *done.ref), done.written)
            except Exception:  # noqa: BLE001 - whoever watches is no part of the user's run
                _log.warning("rath_bridge: a watcher of %s failed", self.name, exc_info=True)
        return done

    def _fault(self, problem: str, error: Exception) -> None:
        if self.strict:
            raise RecorderError(problem) from error
        _log.warning("rath_bridge: %s", problem)
        if not isinstance(error, StoreError):
            with self._gate:
                if len(self._queue) >= self._limit:
                    self._lost += 1
                    return
                self._queue.append(draft(Gap(count=1, reason=problem.encode("utf-8", "replace").decode()[:400])))
            self._start()


def describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:2000]
