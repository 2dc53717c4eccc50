"""Ambient recording: the one mutable thing.

``with rath_bridge.record(store, "ticket-4711") as recorder:`` makes every adapter inside write to that session,
across tasks, nested
frameworks and threads started through ``recorder.bind(fn)``.

*Acknowledged* is what `Recorder.append` and `Recorder.flush` have returned from, and every run that has ended; the
rest is durable
within 100 ms. An observer never breaks the user's run (unless ``strict=True``) and never fails in silence: while the
store is down,
chunks wait in a bounded spool, and what does not fit is counted in a ``gap``.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context, ContextVar, Token, copy_context
from dataclasses import dataclass, field, replace
from functools import wraps
from threading import Condition, Lock, RLock, Thread
from time import monotonic
from typing import Any, Final, ParamSpec, TypeVar, cast
from weakref import WeakSet

import orjson

from rath_bridge.errors import RecorderError, StoreError, StoreUnavailableError
from rath_bridge.model.chunk import Chunk, Draft, Key, Native, SpanContext, draft, draft_of, now
from rath_bridge.model.digests import Digest, new_id
from rath_bridge.model.kinds import Approval, Body, Gap, Inference, Message, Route, Run, body_of
from rath_bridge.model.parts import BlobPart, Part
from rath_bridge.redaction import DEFAULT, Redactor
from rath_bridge.session import Session, Store, native_name, split_name
from rath_bridge.store.protocol import Appended

P = ParamSpec("P")
T = TypeVar("T")

_log: Final = logging.getLogger("rath_bridge")
INTERVAL: Final = 0.05
"""Seconds between background writes."""
SPOOL: Final = 20_000
"""Chunks that wait at most while the store is down."""


@dataclass(frozen=True, slots=True)
class RunHandle:
    """A run that has begun."""

    id: str
    name: str
    span: SpanContext
    parent: RunHandle | None = None
    over: bool = field(default=False, compare=False)
    """Set by `Recorder.end`: async hooks cannot always undo `enter`, and an ended run must not stay ambient."""

    @property
    def top(self) -> RunHandle:
        """The top-level run that it nests in."""
        found = self
        while found.parent is not None:
            found = found.parent
        return found


_recorder: ContextVar[Recorder | None] = ContextVar("rath_bridge_recorder", default=None)
_run: ContextVar[RunHandle | None] = ContextVar("rath_bridge_run", default=None)
standin: Final[ContextVar[Recorder | None]] = ContextVar("rath_bridge_standin", default=None)
"""Set while a replay runs: what a recorder of the user's own store would write goes to this one instead."""
_all: WeakSet[Recorder] = WeakSet()


def current_recorder() -> Recorder | None:
    """Return the ambient recorder, if there is one that is not closed."""
    found = _recorder.get()
    return None if found is None or found.closed else found


def current_run() -> RunHandle | None:
    """Return the run that the calling code works in, if it is known: the innermost that has not ended."""
    found = _run.get()
    while found is not None and found.over:
        found = found.parent
    return found


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


def _caller() -> SpanContext | None:
    """The span that the calling program works in, if it uses OpenTelemetry: a top-level run continues its trace."""
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    found = api.get_current_span().get_span_context()
    return SpanContext(f"{found.trace_id:032x}", f"{found.span_id:016x}") if found.is_valid else None


class _Auto:
    """Marks "take it from the context"."""


AUTO: Final = _Auto()


class Recorder:
    """Writes what observers see to the tip of one session. Safe from any thread; used by all adapters."""

    def __init__(
        self,
        session: Session,
        *,
        strict: bool = False,
        redactor: Redactor | None = DEFAULT,
        redact_state: bool = False,
        record_content: bool = True,
        spool: int = SPOOL,
        background: bool = True,
    ) -> None:
        """Start recording at the tip of a session.

        Args:
            session: Where to write; the branch's tip is followed.
            strict: Raise `RecorderError` into the user's run when recording fails.
            redactor: Takes known secrets out of observed copies; None keeps them.
            redact_state: Let adapters redact what a framework loads again, too.
            record_content: False keeps structure only: names, times, usage, no texts, arguments or results.
            spool: Chunks that may wait while the store is down.
            background: Write what is queued soon, by a thread; False waits for `flush`, for who flushes often by itself.
        """
        self.id = new_id(8)
        self.trace_id = new_id(16)
        self.strict, self.redactor, self.redact_state, self.record_content = strict, redactor, redact_state, record_content
        self.store, self.name = session.store.bound(), session.name  # the background writer has no context of its own
        self._session: Session | None = replace(session, store=self.store)
        self._limit, self._background = spool, background
        self._queue: deque[Draft | Callable[[], Draft | None] | None] = deque()
        self._lost = 0
        self._down_until = 0.0
        self._last_error: Exception | None = None
        self._retrying = False
        self._acknowledged = session.position
        self._lock = RLock()  # held while the store is written
        self._gate = Lock()  # held for moments: an observer never waits for a store that is slow or down
        self._wake = Condition()
        self._nudged = False
        self._thread: tuple[int, Thread] | None = None
        self.closed = False
        self._unattributed: RunHandle | None = None
        self._unattributed_count = 0
        _all.add(self)

    @classmethod
    def late(cls, store: Store, name: str, **options: Any) -> Recorder:
        """Record to a session that is opened, or started, with the first write: a store that is down stops nobody.

        Args:
            store: Where to write.
            name: Session, or session@branch.
            **options: As for the constructor.

        Raises:
            InvalidNameError: Not a usable name.
        """
        session, branch = split_name(name)
        recorder = cls(Session(store, session, branch, "", -1), **options)
        recorder._session = None
        return recorder

    # ---------------------------------------------------------------- write

    def emit(
        self,
        body: Body,
        *,
        run: RunHandle | str | _Auto | None = AUTO,
        origin: Mapping[str, str] | None = None,
        span: SpanContext | None = None,
        at: int | None = None,
        native: Native | None = None,
        objects: Mapping[Digest, bytes] | None = None,
        keys: Sequence[Key] = (),
        once: Key | None = None,
    ) -> Draft | None:
        """Queue what an observer saw: redacted, encoded now, durable within 100 ms. Never raises unless ``strict``.

        Args:
            body: What happened.
            run: The run it belongs to; the ambient one by default.
            origin: ``adapter``, ``framework``, ``version``.
            span: OpenTelemetry ids; the run's trace by default for nothing.
            at: Microseconds since 1970; now, when absent.
            native: The framework's bytes.
            objects: Nodes and items that the body refers to.
            keys: Index entries.
            once: Append only if nothing stands under this key.

        Returns:
            The draft that was queued, or None where it was lost to a gap.
        """
        try:
            item = self.draft(
                body, run=run, origin=origin, span=span, at=at, native=native, objects=objects, keys=keys, once=once
            )
        except Exception as error:  # noqa: BLE001 - an observer never breaks the user's run
            self._fault(f"cannot keep a {getattr(body, 'kind', type(body).__name__)} chunk: {error}", error)
            return None
        return item if self._enqueue(item) else None

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

    def draft(
        self,
        body: Body,
        *,
        run: RunHandle | str | _Auto | None = AUTO,
        origin: Mapping[str, str] | None = None,
        span: SpanContext | None = None,
        at: int | None = None,
        native: Native | None = None,
        objects: Mapping[Digest, bytes] | None = None,
        keys: Sequence[Key] = (),
        once: Key | None = None,
        observed: bool = True,
    ) -> Draft:
        """Build a draft as `emit` does, without queueing it; ``observed=False`` keeps it as given (what a framework
        loads again).
        """
        if observed and not self.record_content:
            body, native, objects = structure_only(body), None, None
        handle = current_run() if isinstance(run, _Auto) else run
        name = handle.id if isinstance(handle, RunHandle) else handle

        def made(body: Body, native: Native | None) -> Draft:
            return draft(body, run=name, origin=origin, span=span, at=at, native=native, objects=objects, keys=keys, once=once)

        item = made(body, native)
        redactor = self.redactor if observed else None
        if redactor is not None and any(map(redactor.suspects, (item.body, *item.objects.values()))):
            self._refuse_secrets(objects or {})
            clean, kept = redactor.apply(body), native and redactor.native(native)
            if clean is not body or kept is not native:
                item = made(clean, kept)
        return item

    def draft_of(
        self,
        kind: str,
        values: dict[str, Any],
        *,
        run: RunHandle | None,
        origin: Mapping[str, str] | str | None = None,
        span: SpanContext | None = None,
        at: int | None = None,
        native: Native | None = None,
    ) -> Draft:
        """As `draft`, for who has the fields of a body as a map of plain JSON types already (it is changed)."""
        if self.record_content:
            name = None if run is None else run.id
            item = draft_of(kind, values, run=name, origin=origin, span=span, at=at, native=native, plain=True)
            redactor = self.redactor
            if redactor is None or not any(map(redactor.suspects, (item.body, *item.objects.values()))):
                return item
        told = orjson.loads(origin) if isinstance(origin, str) else origin
        return self.draft(body_of(kind, values), run=run, origin=told, span=span, at=at, native=native)

    def _refuse_secrets(self, objects: Mapping[Digest, bytes]) -> None:
        """An item's digest stands in a tree already, so adapters redact items before they build one; this is the net below."""
        assert self.redactor is not None
        for name, data in objects.items():
            if self.redactor.data(data) is not data:
                raise RecorderError(
                    f"item {name[:12]} of a tree holds a known secret and was not kept: redact items before their tree is built"
                )

    def append(self, *drafts: Draft) -> tuple[Chunk, ...]:
        """Write drafts now, behind all that was queued; when it returns they are durable.

        Raises:
            StoreUnavailableError: They were not written.
        """
        with self._lock:
            self._drain(raise_errors=True)
            return self._write(drafts).chunks

    def flush(self) -> bool:
        """Write everything that is queued; True when all of it is durable. Raises only when ``strict``."""
        writer = self._writer()
        with writer._lock:
            return writer._drain(raise_errors=writer.strict)

    @property
    def session(self) -> Session:
        """The session as it stands now, everything queued so far included."""
        self.flush()
        return self._writer()._opened().latest()

    def _writer(self) -> Recorder:
        """Who writes here: this recorder, or the stand-in of the replay that the caller runs in."""
        other = standin.get()
        return self if other is None or other is self or self.store.backend is self.store.kept else other

    def _opened(self) -> Session:
        if self._session is None:
            self._session = self.store.session(self.name, create=True)
            self._acknowledged = self._session.position
        return self._session

    # ---------------------------------------------------------------- runs

    def begin(
        self,
        name: str,
        type: str = "agent",  # noqa: A002 - the field's name
        *,
        parent: RunHandle | _Auto | None = AUTO,
        native_id: str | None = None,
        manifest: Sequence[Sequence[object]] = (),
        tools: Sequence[Any] = (),
        system_instructions: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        origin: Mapping[str, str] | None = None,
        trace_id: str | None = None,
        at: int | None = None,
        id: str | None = None,  # noqa: A002 - the field's name
        keys: Sequence[Key] = (),
    ) -> RunHandle:
        """Record that a run begins and return its handle; end it with `end`."""
        above = current_run() if isinstance(parent, _Auto) else parent
        caller = above.span if above else None if trace_id else _caller()
        span = SpanContext(caller.trace_id if caller else trace_id or self.trace_id, new_id(8), caller and caller.span_id)
        handle = RunHandle(id or new_id(8), name, span, above)
        body = Run(
            phase="begin", name=name, type=type, parent=above.id if above else None, native_id=native_id,
            manifest=tuple(list(row) for row in manifest), tools=tuple(tools), system_instructions=system_instructions,
            attributes=dict(attributes or {}),
        )  # fmt: skip
        stamp = now() if at is None else at
        self.defer(lambda: self.draft(body, run=handle, origin=origin, span=span, at=stamp, keys=keys))
        return handle

    def end(
        self,
        run: RunHandle,
        status: str = "ok",
        *,
        error: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        origin: Mapping[str, str] | None = None,
        at: int | None = None,
    ) -> None:
        """Record that a run has ended; the end of a top-level run is acknowledged."""
        body = Run(phase="end", name=run.name, status=status, error=error, attributes=dict(attributes or {}))
        stamp = now() if at is None else at
        self.defer(lambda: self.draft(body, run=run, origin=origin, span=run.span, at=stamp))
        object.__setattr__(run, "over", True)
        if run.parent is None:
            self.flush()

    @contextmanager
    def run(self, name: str, type: str = "agent", **options: Any) -> Generator[RunHandle]:  # noqa: A002 - the field's name
        """Begin a run, make it the ambient one inside the block, and end it with how the block ended."""
        handle = self.begin(name, type, **options)
        origin = options.get("origin")
        try:
            with self.inside(handle):
                yield handle
        except BaseException as error:
            cancelled = not isinstance(error, Exception)
            self.end(handle, "cancelled" if cancelled else "error", error=_describe(error), origin=origin)
            raise
        self.end(handle, origin=origin)

    @contextmanager
    def inside(self, run: RunHandle | None) -> Generator[None]:
        """Make this recorder and a run ambient inside the block."""
        tokens = enter(self, run)
        try:
            yield
        finally:
            leave(tokens)

    def unattributed(self) -> RunHandle:
        """The run for what arrives unbound, counted."""
        with self._lock:
            self._unattributed_count += 1
            if self._unattributed is None:
                self._unattributed = self.begin("unattributed", "unattributed", parent=None)
            return self._unattributed

    def bind(self, fn: Callable[P, T]) -> Callable[P, T]:
        """Return ``fn`` so that it records here, under the current run, from whatever thread it is called.

        In a replay, what it calls is answered from the record, too.
        """
        run = current_run()
        context = None if standin.get() is None else copy_context()

        @wraps(fn)
        def bound(*args: P.args, **kwargs: P.kwargs) -> T:
            with self.inside(run):
                return fn(*args, **kwargs)

        @wraps(fn)
        def replayed(*args: P.args, **kwargs: P.kwargs) -> T:
            return cast(Context, context).copy().run(bound, *args, **kwargs)

        return bound if context is None else replayed

    def close(self) -> None:
        """Flush and stop. Safe to call twice."""
        if self.closed:
            return
        if self._unattributed is not None:
            self.end(self._unattributed, attributes={"count": self._unattributed_count})
            self._unattributed = None
        self.closed = True
        with self._wake:
            self._wake.notify_all()
        self._down_until = 0.0
        if not self.flush():
            _log.error("rath_bridge: %d chunks of %s could not be written (%s)", len(self._queue), self.name, self._last_error)

    def after_fork(self) -> None:
        """In a forked child: do not write what the parent has queued, nor wait for locks that nobody will release."""
        self._queue, self._lost, self._retrying = deque(), 0, False
        self._lock, self._gate, self._wake, self._thread = RLock(), Lock(), Condition(), None
        self._unattributed, self._unattributed_count = None, 0

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
            if self.strict:
                raise RecorderError(f"cannot keep a chunk: {error}") from error
            _log.warning("rath_bridge: a chunk of %s could not be kept: %s", self.name, _describe(error))
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
                    self._drain(raise_errors=False)

    def _drain(self, *, raise_errors: bool) -> bool:
        """Write the queue in order, then the gap that was counted meanwhile; True when all that was queued is durable."""
        if not self._queue and not self._lost:
            return True
        if monotonic() < self._down_until and not raise_errors and not self.closed:
            return False
        if not self._send(raise_errors=raise_errors):
            return False
        with self._gate:
            if not self._lost:
                return True
            self._queue.append(draft(Gap(count=self._lost, reason="the spool was full while the store was down")))
            self._lost = 0
        return self._send(raise_errors=raise_errors)

    def _send(self, *, raise_errors: bool) -> bool:
        """Write what is queued now; on failure keep it, and say so once."""
        with self._gate:
            waiting = list(self._queue)
        batch: list[Draft] = []
        for index, item in enumerate(waiting):  # made once: after a failure, the same draft is sent again
            made = item if item is None or isinstance(item, Draft) else self._made(item)
            if made is not item:
                self._queue[index] = made
            if made is not None:
                batch.append(made)
        try:
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


def structure_only(body: Body) -> Body:
    """Return a body without content: names, ids, times and usage stay."""
    if isinstance(body, Message):
        return replace(body, parts=tuple(_without_content(part) for part in body.parts), attributes={})
    if isinstance(body, Run):
        counts = {name: value for name, value in body.attributes.items() if type(value) in (int, float, bool)}
        return replace(body, system_instructions=None, tools=(), attributes=counts, error=_error_name(body.error))
    content: dict[str, Any] = {
        "input": None, "output": () if isinstance(body, Inference) else None, "request": {}, "arguments": None, "result": None,
        "text": "", "message": "", "subject": None, "query": None, "items": (), "events": (), "envelope": None, "state": None,
        "lists": {}, "writes": (), "files": None, "spec": {}, "attributes": {},
    }  # fmt: skip
    held = {name: empty for name, empty in content.items() if hasattr(body, name)}
    if hasattr(body, "error"):
        held["error"] = _error_name(cast(Any, body).error)
    if isinstance(body, (Route, Approval)):
        held["reason"] = None
    return replace(body, **held)


def _error_name(error: str | None) -> str | None:
    """What kind of error it was, without its words."""
    if error is None:
        return None
    name = error.partition(":")[0]
    return name if name.replace(".", "").isidentifier() else "error"


def _without_content(part: Part) -> Part:
    nothing: dict[str, Any] = {"content": "", "arguments": None, "response": None, "uri": "", "extra": {}}
    if isinstance(part, BlobPart):
        nothing["content"] = b""
    return replace(part, **{name: empty for name, empty in nothing.items() if hasattr(part, name)})


def enter(recorder: Recorder, run: RunHandle | None) -> tuple[Token[Recorder | None], Token[RunHandle | None]]:
    """Make a recorder and a run ambient from here on; undo it with `leave` (hooks that come in pairs need this form)."""
    return _recorder.set(recorder), _run.set(run)


def leave(tokens: tuple[Token[Recorder | None], Token[RunHandle | None]]) -> None:
    """Undo `enter`; a token of another context, or used before, is ignored (generators are closed wherever they are)."""
    for variable, token in ((_recorder, tokens[0]), (_run, tokens[1])):
        try:
            variable.reset(token)  # pyright: ignore[reportArgumentType]
        except (ValueError, RuntimeError):
            continue


@contextmanager
def record(store: Store, name: str, **options: Any) -> Generator[Recorder]:
    """Record everything inside the block to one session (created where it does not exist).

    Args:
        store: From `open_store`.
        name: Session, or session@branch.
        **options: Of `Recorder`.
    """
    recorder = Recorder(store.session(name, create=True), **options)
    try:
        with recorder.inside(None):
            yield recorder
    finally:
        recorder.close()


def recorder_for(
    store: Store, framework: str, native_id: str | None = None, session: str | None = None, **options: Any
) -> tuple[Recorder, bool]:
    """Find the recorder for a piece of work: explicit session, then the ambient recorder, then the framework's own id.

    Args:
        store: The adapter's store.
        framework: ``langgraph``, ``openai_agents`` ...
        native_id: thread_id, group_id or trace_id.
        session: What the user named, if anything.
        **options: Of `Recorder`.

    Returns:
        The recorder, and whether the caller owns it (must close it).
    """
    ambient = current_recorder()
    if session is None and ambient is not None:
        return ambient, False
    if ambient is not None and session == ambient.name and ambient.store == store:
        return ambient, False
    name = session or native_name(framework, native_id or new_id(8))
    return Recorder.late(store, name, **options), True


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:2000]


@atexit.register
def _close_all() -> None:
    for recorder in list(_all):
        try:
            recorder.close()
        except Exception:  # noqa: BLE001 - a strict one whose store is down; the others must still be written
            _log.exception("rath_bridge: recording to %s could not be finished", recorder.name)


def _after_fork() -> None:
    for recorder in list(_all):
        recorder.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

__all__ = [
    "AUTO", "Recorder", "RunHandle", "current_recorder", "current_run", "enter", "leave", "record", "recorder_for", "structure_only",
]  # fmt: skip
