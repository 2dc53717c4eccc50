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
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context, copy_context
from functools import wraps
from typing import Any, Final, ParamSpec, Protocol, TypeVar, cast

import orjson

from rath_bridge.errors import RecorderError
from rath_bridge.given import check_session, check_store
from rath_bridge.model.chunk import Draft, Key, Native, SpanContext, draft, draft_of, now
from rath_bridge.model.digests import Digest, new_id
from rath_bridge.model.kinds import Body, Run, body_of
from rath_bridge.recorder.ambient import AUTO, Auto, RunHandle, calling_span, current_recorder, current_run, enter, leave
from rath_bridge.recorder.structure import structure_only
from rath_bridge.recorder.writer import INTERVAL, SPOOL, Writer, describe, standin, watch
from rath_bridge.redaction import DEFAULT, Redactor
from rath_bridge.session import Session, Store, native_name, split_name
from rath_bridge.store.forking import Living

P = ParamSpec("P")
T = TypeVar("T")

_log: Final = logging.getLogger("rath_bridge")
_all: Living[Recorder] = Living()


class Brought(Protocol):
    """What a body refers to, of which a part was brought to the store before."""

    @property
    def erasures(self) -> int:
        """`Recorder.erasures` when that was taken for stored."""
        ...

    def whole(self) -> Mapping[Digest, bytes]:
        """All of it."""
        ...


class Recorder(Writer):
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
        check_session(session, "Recorder")
        super().__init__(session, strict=strict, spool=spool, background=background)
        self.id = new_id(8)
        self.trace_id = new_id(16)
        self.redactor, self.redact_state, self.record_content = redactor, redact_state, record_content
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
        run: RunHandle | str | Auto | None = AUTO,
        origin: Mapping[str, str] | None = None,
        span: SpanContext | None = None,
        at: int | None = None,
        native: Native | None = None,
        objects: Mapping[Digest, bytes] | None = None,
        keys: Sequence[Key] = (),
        once: Key | None = None,
        given: Brought | None = None,
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
            given: Where ``objects`` leaves out what was brought before: gives all of it, should something have been erased since.

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
        if given is None or not self.record_content:
            return item if self._enqueue(item) else None

        def late() -> Draft:
            return item._replace(objects={**item.objects, **given.whole()}) if self.erased_since(given.erasures) else item

        return item if self._enqueue(late) else None

    def draft(
        self,
        body: Body,
        *,
        run: RunHandle | str | Auto | None = AUTO,
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
        if isinstance(body, Draft):
            raise TypeError(
                "this takes a body of rath_bridge.model.kinds; a draft, as decode returns it, goes to Recorder.append"
            )
        if observed and not self.record_content:
            body, native, objects = structure_only(body), None, None
        handle = current_run() if isinstance(run, Auto) else run
        name = handle.id if isinstance(handle, RunHandle) else handle
        item = draft(body, run=name, origin=origin, span=span, at=at, native=native, objects=objects, keys=keys, once=once)
        redactor = self.redactor if observed else None
        if redactor is not None and any(map(redactor.suspects, (item.body, *item.objects.values()))):
            self._refuse_secrets(objects or {})
            clean, kept = redactor.apply(body), native and redactor.native(native)
            if clean is not body or kept is not native:
                return draft(clean, run=name, origin=origin, span=span, at=at, native=kept, objects=objects, keys=keys, once=once)
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

    # ---------------------------------------------------------------- runs

    def begin(
        self,
        name: str,
        type: str = "agent",  # noqa: A002 - the field's name
        *,
        parent: RunHandle | Auto | None = AUTO,
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
        above = current_run() if isinstance(parent, Auto) else parent
        caller = above.span if above else None if trace_id else calling_span()
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
            self.end(handle, "cancelled" if cancelled else "error", error=describe(error), origin=origin)
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
        super().close()

    def after_fork(self) -> None:
        """In a forked child: do not write what the parent has queued, nor wait for locks that nobody will release."""
        super().after_fork()
        self._unattributed, self._unattributed_count = None, 0


@contextmanager
def record(store: Store, name: str, **options: Any) -> Generator[Recorder]:
    """Record everything inside the block to one session (created where it does not exist).

    Args:
        store: From `open_store`.
        name: Session, or session@branch.
        **options: Of `Recorder`.
    """
    check_store(store, "record", name)
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
    check_store(store, "recorder_for")
    ambient = current_recorder()
    if session is None and ambient is not None:
        return ambient, False
    if ambient is not None and session == ambient.name and ambient.store == store:
        return ambient, False
    name = session or native_name(framework, native_id or new_id(8))
    return Recorder.late(store, name, **options), True


@atexit.register
def _close_all() -> None:
    for recorder in _all.all():
        try:
            recorder.close()
        except Exception:  # noqa: BLE001 - a strict one whose store is down; the others must still be written
            _log.exception("rath_bridge: recording to %s could not be finished", recorder.name)


def _after_fork() -> None:
    for recorder in _all.all():
        recorder.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

__all__ = [
    "AUTO", "INTERVAL", "SPOOL", "Recorder", "RunHandle", "current_recorder", "current_run", "enter", "leave", "record", "recorder_for",
    "standin", "structure_only", "watch",
]  # fmt: skip
