"""Where a thread stands: its session, its run, the tips of its branches, and what is known of its last checkpoints.

The index (``langgraph``, thread_id, checkpoint_ns) finds checkpoints across sessions; ``parents`` in envelopes are session order only.
"""

from __future__ import annotations

import os
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Final, cast
from weakref import WeakSet

from rath_bridge.errors import ErasedError, MissingObjectError, NameInUseError
from rath_bridge.model.chunk import Chunk, Draft, Key, SpanContext, draft
from rath_bridge.model.digests import new_id
from rath_bridge.model.kinds import Checkpoint, Run, SessionStart
from rath_bridge.recorder import Recorder, RunHandle, current_recorder, current_run
from rath_bridge.session import Store, check_name, native_name, split_name
from rath_bridge.store.protocol import Appended, Ref
from rath_langgraph.flight import Flight
from rath_langgraph.items import Seen
from rath_langgraph.line import Known, Line, Where, warn_of_branch
from rath_langgraph.mirror import Copies
from rath_langgraph.neutral import origin
from rath_langgraph.shelf import Shelf
from rath_langgraph.state import State, read_state

FRAMEWORK: Final = "langgraph"
RUN: Final = "run"
"""``sub`` of the entry (key ``""``) that finds a namespace's run."""
HOME: Final = "home"
"""``sub`` of the entry (key ``""``) that finds where a copied thread goes on."""
_LINES: Final = 256
_ITEMS: Final = 200_000
"""List items that all lines together may keep in memory."""
_WEIGHED: Final = 16
"""Lines that are opened between two looks at what all of them weigh: a look costs as much as all of them."""
_VISITS: Final = 1_000
_PATIENCE: Final = 0.1
"""Seconds."""


class Threads:
    """All lines of one store; shared by a saver and its shallow copies. Safe from any thread."""

    def __init__(self, store: Store, session: str | None = None) -> None:
        self.store, self.session = store, session
        self._lines: OrderedDict[tuple[str, str], Line] = OrderedDict()
        self._opened = 0
        self._calls: dict[tuple[str, str], dict[str, Line]] = {}
        """Subgraph calls that have begun, by the namespace that they were made in."""
        self._visited: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        """Checkpoints that were asked for by id when newer ones stood: who goes on from one of them travels in time."""
        self._lock = Lock()
        self.flight = Flight()
        self.shelf = Shelf(store.backend)
        self.copies = Copies()
        self.erasures = -1
        """Of the store, at the last look."""
        _all.add(self)

    def line(self, thread_id: str, namespace: str) -> Line:
        """The line of a namespace; opened from the index where this process has not seen it."""
        if self.erasures < 0:
            self.refresh()
        with self._lock:
            found = self._lines.get((thread_id, namespace))
            if found is None:
                found = self._lines[thread_id, namespace] = Line(thread_id, namespace, self.erasures)
                self._opened += 1
                if len(self._lines) > _LINES:
                    self._lines.popitem(last=False)
                if self._opened % _WEIGHED == 0:
                    weight = sum(line.weight for line in self._lines.values())
                    while len(self._lines) > 1 and weight > _ITEMS:
                        weight -= self._lines.popitem(last=False)[1].weight
            self._lines.move_to_end((thread_id, namespace))
        with found.lock:
            if not found.run:
                self._open(found)
        return found

    def refresh(self) -> None:
        """Where something was erased since the last look, by whomever, keep nothing that was read and take nothing for stored."""
        count = self.store.backend.erasures()
        if count != self.erasures:
            self.erasures = count
            self.shelf.clear()
            self.copies.clear()

    def intact(self, line: Line) -> bool:
        """Whether all that is known to be stored is stored still."""
        return line.erasures == self.erasures

    def expect(self, thread_id: str, namespace: str, checkpoint_id: str) -> None:
        """Let the checkpoint that a subgraph starts from stand first, so that what came from it is not said again.

        LangGraph may hand the subgraph's over before it; with ``durability="exit"`` it comes at the end, and is not waited for long.
        """

        def stands() -> bool:
            line = self._lines.get((thread_id, namespace))
            return line is not None and checkpoint_id in line.states

        if stands() or self.store.backend.lookup(Key(FRAMEWORK, thread_id, namespace, checkpoint_id)) is not None:
            return
        self.flight.expect((thread_id, namespace, checkpoint_id, "put"), stands, _PATIENCE)

    def travel(self, thread_id: str, namespace: str, checkpoint_id: str) -> None:
        """Somebody has asked for an old checkpoint."""
        with self._lock:
            self._visited[thread_id, namespace, checkpoint_id] = None
            while len(self._visited) > _VISITS:
                self._visited.popitem(last=False)

    def travels(self, line: Line, checkpoint_id: str | None) -> bool:
        """Whether a checkpoint was asked for as an old one."""
        return (line.thread_id, line.namespace, checkpoint_id) in self._visited

    def to_put(self, thread_id: str, namespace: str, parent_id: str | None) -> Line:
        """The line that a checkpoint is put on; opened anew where a thread begins again that another process has deleted."""
        line = self.line(thread_id, namespace)
        if parent_id is None and line.tips:
            begun = self.store.backend.lookup(Key(FRAMEWORK, thread_id, namespace, "", RUN))
            if begun is None or begun.id != line.run_chunk:
                self.forget(thread_id)
                line = self.line(thread_id, namespace)
        return line

    def forget(self, thread_id: str) -> None:
        """Drop what is known of a thread."""
        with self._lock:
            for known in (self._lines, self._calls):
                for key in [key for key in known if key[0] == thread_id]:
                    del known[key]
        self.shelf.clear()
        self.copies.clear()

    def reset(self) -> None:
        """Start anew in a forked child: a lock may have been held when it was born."""
        self._lock = Lock()
        self._lines, self._calls = OrderedDict(), {}
        self.flight = Flight()
        self.shelf.reset()
        self.copies.clear()

    # ---------------------------------------------------------------- session and run

    def home(self, line: Line) -> Where:
        """Where a new chunk of this thread goes: explicit session, ambient recorder, the thread's own."""
        return named(self.store, self.session) or line.where

    def place(self, thread_id: str) -> Where:
        """Where a thread goes on, or would begin; nothing is written."""
        stands = self.store.backend.lookup(Key(FRAMEWORK, thread_id, "", "", RUN)) is not None
        if not stands:
            return named(self.store, self.session) or (native_name(FRAMEWORK, thread_id), "main")
        return self.home(self.line(thread_id, ""))

    def _open(self, line: Line) -> None:
        backend = self.store.backend
        chunk = backend.lookup(Key(FRAMEWORK, line.thread_id, line.namespace, "", RUN))
        if chunk is not None and chunk.run is not None:
            line.run, line.run_chunk = chunk.run, chunk.id
            line.span = chunk.span
            line.where = self._copied(line) or self._located(chunk) or (native_name(FRAMEWORK, line.thread_id), "main")
        else:
            line.where = named(self.store, self.session) or self._thread_home(line)
            warn_of_branch(self.store, line)
            self._begin(line)
        newest = backend.scan(FRAMEWORK, line.thread_id, line.namespace, sub="", limit=1)
        if newest:
            key, last = newest[0]
            where = self._tip_of(line, last)
            if where is not None:
                line.tips[key.key] = line.where = where
        if chunk is not None and self.session is not None and not line.namespace:
            self._warn(line, self.session)

    def _warn(self, line: Line, session: str) -> None:
        """Say so where a thread is not where this saver was told to record it."""
        wanted, (name, branch) = split_name(session), line.where
        if wanted[0] == name and (wanted[1] == branch or "@" not in session):
            return
        lives = name if branch == "main" else f"{name}@{branch}"
        goes = "it goes on there" if wanted[0] == name else f"it goes on in {session}, and what it said before stays there"
        warnings.warn(
            f"RathSaver(session={session!r}): thread {line.thread_id!r} lives in {lives}; {goes}. copy_thread makes a thread of its own",
            stacklevel=2,
        )

    def _copied(self, line: Line) -> Where | None:
        """The branch that was opened for a copied thread."""
        chunk = self.store.backend.lookup(Key(FRAMEWORK, line.thread_id, "", "", HOME))
        if chunk is None:
            return None
        body = cast(SessionStart, chunk.body)
        return body.name, body.branch

    def _thread_home(self, line: Line) -> Where:
        if line.namespace:
            return self.line(line.thread_id, above(line.namespace)).where
        return (native_name(FRAMEWORK, line.thread_id), "main")

    def _begin(self, line: Line) -> None:
        """Write the run of a namespace; whoever is first decides."""
        settle(self.store, up_to="")
        recorder, run = current_recorder(), current_run()
        inside = run if recorder is not None and recorder.store == self.store else None
        around = self.line(line.thread_id, above(line.namespace)) if line.namespace and not inside else None
        parent = inside.id if inside else around.run if around else None
        caller = inside.span if inside else around.span if around else None
        # A thread lasts, and is no work itself: every run on it begins a trace of its own, tied to this one.
        line.span = SpanContext(caller.trace_id if caller else new_id(16), new_id(8), caller.span_id if caller else None)
        lasts = ":" not in line.namespace.rpartition("|")[2]
        session, branch = line.where
        name = Ref(session, branch, "", 0).name
        body = Run(
            phase="begin", name=line.namespace.rpartition("|")[2].partition(":")[0] or "thread",
            type="thread" if lasts else "graph", parent=parent,
            native_id=line.thread_id, attributes={"session": name, **({"namespace": line.namespace} if line.namespace else {})},
        )  # fmt: skip
        once = Key(FRAMEWORK, line.thread_id, line.namespace, "", RUN)
        item = draft(body, run=new_id(8), origin=origin(), span=line.span, once=once)
        began = self._first(session, branch, item)
        line.run, line.run_chunk, line.span = began.run or "", began.id, began.span
        if not lasts:
            with self._lock:
                self._calls.setdefault((line.thread_id, above(line.namespace)), {})[line.run] = line

    def _first(self, session: str, branch: str, item: Draft) -> Chunk:
        """Append a chunk to a session, which begins with it where it does not stand yet: one transaction either way."""
        backend = self.store.backend
        if backend.ref(session, branch) is None:
            start = draft(SessionStart(op="create", name=check_name(session), branch=check_name(branch, "branch")))
            try:
                return backend.append(session, branch, [start, item], head=None, reason="create").chunks[1]
            except NameInUseError:  # somebody else was faster
                pass
        head = self.store.session(Ref(session, branch, "", 0).name).head
        return backend.append(session, branch, [item], head=head, on_conflict="serialise").chunks[0]

    def ended(self, line: Line, checkpoint_id: str | None = None) -> list[Draft]:
        """The ends of the subgraph calls that a checkpoint follows: those that began from an older one, with what they called."""
        with self._lock:
            calls = self._calls.get((line.thread_id, line.namespace), {})
            over = {
                run: call
                for run, call in calls.items()
                if checkpoint_id is None or (call.started is not None and call.started < checkpoint_id)
            }
            for run in over:
                del calls[run]
        found: list[Draft] = []
        for run, call in over.items():
            found += self.ended(call)
            name = call.namespace.rpartition("|")[2].partition(":")[0]
            found.append(draft(Run(phase="end", name=name, status="ok"), run=run, origin=origin(), span=call.span))
        return found

    def _located(self, chunk: Chunk) -> Where | None:
        """The branch that a run's chunk stands on; the body says which session it was written to."""
        name = cast(Run, chunk.body).attributes.get("session")
        refs = self.store.backend.refs(split_name(name)[0]) if isinstance(name, str) else []
        for ref in [*refs, *(self.store.backend.refs() if not refs else [])]:
            if self.stands_on(ref, chunk):
                return (ref.session, ref.branch)
        return None

    def stands_on(self, ref: Ref, chunk: Chunk) -> bool:
        """Whether a chunk stands on the line of a ref."""
        if ref.position < chunk.position:
            return False
        return next(self.store.backend.line(ref.head, chunk.position, chunk.position + 1)).id == chunk.id

    def _tip_of(self, line: Line, chunk: Chunk) -> Where | None:
        """The branch on which a checkpoint is the last of its run."""
        for ref in self._candidates(line, chunk):
            later = self.store.backend.line(ref.head, chunk.position + 1)
            if not any(c.kind == "checkpoint" and c.run == line.run and c.body_bytes is not None for c in later):
                return (ref.session, ref.branch)
        return None

    def _candidates(self, line: Line, chunk: Chunk) -> Iterator[Ref]:
        """The branches that hold a chunk: of the thread's own session, its own first, else of any."""
        here = [ref for ref in self.store.backend.refs(line.where[0]) if self.stands_on(ref, chunk)]
        here.sort(key=lambda ref: ref.branch != line.where[1])
        yield from here or (ref for ref in self.store.backend.refs() if self.stands_on(ref, chunk))

    def append(self, line: Line, where: Where, drafts: Sequence[Draft]) -> Appended:
        """Append behind whatever stands on a branch now."""
        session, branch = where
        mark = line.marks.get(where)
        head = mark[0] if mark is not None else self.store.session(Ref(session, branch, "", 0).name, create=True).head
        done = self.store.backend.append(session, branch, drafts, head=head, on_conflict="serialise")
        if mark is not None and done.ref.position - done.written == mark[1]:
            line.marks[where] = (done.ref.head, done.ref.position)
        return done

    # ---------------------------------------------------------------- checkpoints

    def state_of(self, thread_id: str, namespace: str, chunk: Chunk) -> tuple[State | None, Seen | None]:
        """What is known of a checkpoint's digests without reading its trees, and what its line has seen."""
        line = self._lines.get((thread_id, namespace))
        if line is None or not self.intact(line):
            return None, None
        return next((known.state for known in list(line.states.values()) if known.chunk == chunk.id), None), line.seen

    def known(self, line: Line, checkpoint_id: str | None) -> Known | None:
        """A stored checkpoint's digests, from memory or from the store."""
        if checkpoint_id is None:
            return None
        found = line.states.get(checkpoint_id)
        if found is None:
            chunk = self.store.backend.lookup(Key(FRAMEWORK, line.thread_id, line.namespace, checkpoint_id))
            if chunk is None:
                return None
            found = self._read(chunk)
            line.remember(checkpoint_id, found)
        return found

    def _read(self, chunk: Chunk) -> Known:
        body, state = cast(Checkpoint, chunk.body), State({}, {})
        try:
            state = read_state(body, self.shelf)
            if self.erasures:  # one item may be gone that the list still names
                self.shelf([name.hex() for value in state.values.values() for name in value.names()])
        except (ErasedError, MissingObjectError):
            return Known(chunk.id, state, whole=False)
        return Known(chunk.id, state, handed=None if body.source == "input" else ())

    def is_tip(self, line: Line, checkpoint_id: str) -> Where | None:
        """The branch on which a checkpoint is the last one, or None where something followed it."""
        if checkpoint_id in line.tips or checkpoint_id in line.passed:
            return line.tips.get(checkpoint_id)
        chunk = self.store.backend.lookup(Key(FRAMEWORK, line.thread_id, line.namespace, checkpoint_id))
        where = self._tip_of(line, chunk) if chunk is not None else None
        if where is None:
            line.passed.add(checkpoint_id)
        else:
            line.tips[checkpoint_id] = where
        return where


def named(store: Store, session: str | None) -> Where | None:
    """The session that is named explicitly, or the ambient recorder's."""
    if session is not None:
        return split_name(session)
    recorder = current_recorder()
    return split_name(recorder.name) if recorder is not None and recorder.store == store else None


def above(namespace: str) -> str:
    """The namespace that a subgraph's stands in."""
    return namespace.rpartition("|")[0]


def thread_run(threads: Threads, thread_id: str, recorder: Recorder) -> RunHandle:
    """The run of a thread's root namespace, as observers nest their own under it: one handle for each invocation."""
    line = threads.line(thread_id, "")
    return RunHandle(line.run, "thread", SpanContext(recorder.trace_id, new_id(8)), current_run())


_observers: WeakSet[Recorder] = WeakSet()


def observe(recorder: Recorder) -> None:
    """Let savers know that this recorder watches graphs."""
    _observers.add(recorder)


def settle(store: Store, session: str | None = None, up_to: str | None = None) -> None:
    """Let what was observed stand before what follows from it: a call before the message that it gave.

    Not what waits for a checkpoint at a place that begins with ``up_to``, where one is about to be put: that belongs behind it.
    """
    ambient = current_recorder()
    for recorder in {*_observers, *([ambient] if ambient is not None else [])}:
        # `kept`: to ask a store where it leads would draw it into the replay that this may be called in
        near = not recorder.closed and recorder.store.kept.url == store.kept.url
        if near and (session is None or split_name(recorder.name)[0] == session):
            recorder.flush(up_to=up_to)


_all: WeakSet[Threads] = WeakSet()


def _after_fork() -> None:
    for threads in list(_all):
        threads.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
