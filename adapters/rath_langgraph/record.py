"""`RathCallbackHandler`: what a graph does while it runs, as chunks of the session that its thread lives in.

Graphs and nodes are runs; a node's run is ambient inside the node, so that another framework that is called there lands under it, and its
``native_id`` ends in the id of the task that it carries out (`rath_langgraph.timings` joins them). Messages are lifted from checkpoints;
where no checkpointer keeps a run's state, from what callbacks show of it (`rath_langgraph.unsaved`). On the graph's own thread facts are
taken down; chunks are built by the recorder's.

Source: ``langchain_core.callbacks.base``, ``langgraph.callbacks`` (langgraph 1.2).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, cast
from uuid import UUID

from langgraph.callbacks import GraphInterruptEvent, GraphResumeEvent
from langgraph.errors import GraphBubbleUp, ParentCommand
from langgraph.types import Command

from rath_bridge.errors import StoreError
from rath_bridge.model.kinds import Approval, Note
from rath_bridge.recorder import AUTO, RunHandle, enter, leave
from rath_bridge.session import Store
from rath_langgraph.begun import OpenRun
from rath_langgraph.behind import finish
from rath_langgraph.calls import CallHandler
from rath_langgraph.decisions import Routers, answers, verdict
from rath_langgraph.inputs import context_note
from rath_langgraph.neutral import origin, plain
from rath_langgraph.observed import describe, place_of
from rath_langgraph.tasks import waiting
from rath_langgraph.threads import FRAMEWORK, observe, thread_run
from rath_langgraph.unsaved import Unsaved, unsaved_spot
from rath_langgraph.watching import owners

_STEP: Final = "graph:step:"
_SEQUENCE: Final = "seq:step:"
_THREADS: Final = 256
"""Threads whose open questions are kept in mind."""
BLIND_SPOTS: Final = (
    "threads that the program starts itself",
    "models that are called past LangChain (a plain SDK or HTTP client)",
    "tools that are plain functions",
)
"""Where callbacks do not reach; stands in the run of every graph, so that a reader of the session knows."""
Rows = Sequence[Sequence[object]]

handed: ContextVar[Rows] = ContextVar("rath_langgraph_handed", default=())
"""Manifest of the messages that the next graph run starts from."""


class RathCallbackHandler(CallHandler):
    """Records model calls, tool calls, graph and node runs, routes, questions and answers. Never breaks the graph: it observes."""

    def __init__(
        self, store: Store | None = None, session: str | None = None, *, continues: Rows = (), graph: Any = None
    ) -> None:
        """Observe graphs.

        Args:
            store: Where to write; the ambient recorder's store, else the default one.
            session: Session to write to; the ambient recorder's, else the one that the thread lives in.
            continues: ``report.rows()`` of the messages that the first run starts from (law 12).
            graph: The compiled graph, to tell what its routers could have chosen.
        """
        super().__init__(store, session)
        self._continues = continues
        self._routers = Routers(graph)
        self._compiled = graph
        self._waiting: dict[str, list[str]] = {}
        self._contexts: dict[UUID, Any] = {}
        self._unsaved: set[UUID] = set()
        self._lists: dict[str, Unsaved] = {}
        """Messages of graphs that run now and whose state no checkpointer keeps, by their run."""
        self._called: dict[UUID, set[str]] = {}

    @contextmanager
    def given(self, run_id: UUID | None, context: Any, unsaved: bool = False) -> Generator[None]:
        """Note what callbacks are not told of a graph that begins with this id.

        Args:
            run_id: Of the callbacks; None notes nothing.
            context: What it is given as ``context=``.
            unsaved: No checkpointer keeps its state, so its messages are noted here.
        """
        if run_id is not None and context is not None:
            self._contexts[run_id] = context
        if run_id is not None and unsaved:
            self._unsaved.add(run_id)
        try:
            yield
        finally:
            if run_id is not None:
                self._contexts.pop(run_id, None)
                self._unsaved.discard(run_id)

    @contextmanager
    def calling(self, run_id: UUID) -> Generator[set[str]]:
        """While a graph runs on a Session: the runs whose messages are noted here, as they are said (one, or none)."""
        told = self._called[run_id] = set()
        try:
            yield told
        finally:
            del self._called[run_id]

    # ---------------------------------------------------------------- graphs and nodes

    def on_chain_start(
        self, serialized: dict[str, Any] | None, inputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None,
        tags: list[str] | None = None, metadata: dict[str, Any] | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        """A graph, a node, or a runnable inside of one begins."""
        above = self._open.get(parent_run_id) if parent_run_id else None
        if above is None and self._elsewhere(run_id, parent_run_id):
            return
        facts = metadata or {}
        name = str(kwargs.get("name") or "graph")
        if above is None:
            found = self._graph(name, facts, inputs, run_id in self._unsaved)
            if run_id in self._called and found.run.id in self._lists:
                self._called[run_id].add(found.run.id)
            context = self._contexts.pop(run_id, None)
            if context is not None:
                self._told(found, context_note(context, found.recorder.redactor, name))
        elif any(tag.startswith(_STEP) for tag in tags or ()):
            found = self._node(name, facts, above)
            around = self._lists.get(above.run.id)
            if around is not None:
                around.step(None if place_of(facts) is not None else inputs)
        elif facts.get("ls_integration") == FRAMEWORK and facts.get("checkpoint_ns") == facts.get("langgraph_checkpoint_ns"):
            found = self._subgraph(name, facts, above)
        else:
            self._open[run_id] = above
            owners[run_id] = self
            if parent_run_id == above.key and above.kind == "node" and any(tag.startswith(_SEQUENCE) for tag in tags or ()):
                above.routers[run_id] = name
            return
        found.key = run_id
        self._open[run_id] = found
        owners[run_id] = self

    def _graph(self, name: str, facts: Mapping[str, Any], inputs: Any, unsaved: bool) -> OpenRun:
        thread_id = None if facts.get("thread_id") is None else str(facts["thread_id"])
        recorder, owned = self._recorder(thread_id)
        observe(recorder)
        rows, self._continues = (handed.get() or self._continues), ()
        parent: RunHandle | Any | None = AUTO
        if thread_id is not None and self._threads is not None:
            try:
                parent = thread_run(self._threads, thread_id, recorder)
            except StoreError:  # it is down: the run stands alone, and is spooled
                parent = AUTO
        unsaved = unsaved or (thread_id is None and facts.get("ls_integration") == FRAMEWORK)  # savers ask for a thread
        spot = unsaved_spot(self._compiled) if unsaved else None
        run = recorder.begin(
            name, "graph", parent=parent, native_id=thread_id, manifest=rows,
            attributes={"blind_spots": [*BLIND_SPOTS, *([spot] if spot else [])]}, origin=origin(),
        )  # fmt: skip
        found = OpenRun(recorder, run, "graph", name, owned, True, thread_id, parent if isinstance(parent, RunHandle) else None)
        if rows:
            recorder.flush()  # the saver reads it when the messages come
        if spot is not None:
            self._lists[run.id] = Unsaved(recorder, found.thread or run, self._compiled, inputs, rows)
        if isinstance(inputs, Command) and cast(Any, inputs).resume is not None:
            self._answered_by(found, cast(Any, inputs).resume)
        return found

    def _subgraph(self, name: str, facts: Mapping[str, Any], above: OpenRun) -> OpenRun:
        run = above.recorder.begin(name, "graph", parent=above.run, native_id=facts.get("checkpoint_ns"), origin=origin())
        return OpenRun(above.recorder, run, "graph", name, asked=above.asked, prompts=above.prompts)

    def _node(self, name: str, facts: Mapping[str, Any], above: OpenRun) -> OpenRun:
        task = str(facts.get("langgraph_checkpoint_ns"))
        attempt = above.attempts[task] = above.attempts.get(task, 0) + 1
        told: dict[str, Any] = {"step": facts["langgraph_step"]} if "langgraph_step" in facts else {}
        place = place_of(facts)
        if place is not None:
            told["place"] = place
        if attempt > 1:
            told["attempt"] = attempt
        run = above.recorder.begin(name, "node", parent=above.run, native_id=task, attributes=told, origin=origin())
        tokens = enter(above.recorder, run)
        return OpenRun(above.recorder, run, "node", name, tokens=tokens, asked=above.asked, prompts=above.prompts)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any) -> None:
        """What began has ended."""
        self._end(run_id, parent_run_id, outputs, None)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any) -> None:
        """What began has failed, or was interrupted."""
        self._end(run_id, parent_run_id, None, error)

    def _end(self, run_id: UUID, parent_run_id: UUID | None, outputs: Any, error: BaseException | None) -> None:
        found = self._open.pop(run_id, None)
        if found is None:
            return
        owners.pop(run_id, None)
        router = found.routers.pop(run_id, None)
        if router is not None and error is None:
            route = self._routers.decided(found.name, router, outputs)
            if route is not None:
                self._told(found, route)
        if found.key == run_id:
            above = self._open.get(parent_run_id) if parent_run_id else None
            if isinstance(error, ParentCommand) and found.kind == "graph" and above is not None:
                above.passing = True
            self._close(found, outputs, error)

    def _close(self, found: OpenRun, outputs: Any, error: BaseException | None) -> None:
        status = found.status
        if isinstance(error, ParentCommand):
            outputs, error = cast(Any, error).args[0], None
        if isinstance(error, GraphBubbleUp):
            status = "interrupted"
        elif error is not None:
            status = "error" if isinstance(error, Exception) else "cancelled"
        if found.tokens is not None:
            leave(found.tokens)
        if found.kind == "node" and not found.passing:
            for route in self._routers.commanded(found.name, outputs):
                self._told(found, route)
        if self._lists:
            around = self._lists.get(found.run.parent.id) if found.run.parent is not None else None
            if around is not None and error is None:
                around.result(outputs)
            own = self._lists.pop(found.run.id, None)
            if own is not None:
                own.end(outputs)
        told = describe(error) if error is not None and status != "interrupted" else None
        found.recorder.end(found.run, status, error=told, origin=origin())
        if found.outermost:
            if found.thread is not None:
                object.__setattr__(found.thread, "over", True)  # this handle of it: async hooks leave it ambient
            finish(found.recorder, close=found.owned)

    # ---------------------------------------------------------------- people

    def on_interrupt(self, event: GraphInterruptEvent) -> None:
        """The graph waits for a person."""
        found = self._open.get(event.run_id) if event.run_id else None
        if found is None:
            return
        found.status = "interrupted"
        fresh = [one for one in event.interrupts if one.id not in found.asked]  # the graph around tells of it again
        found.asked += [one.id for one in fresh]
        for one in fresh:
            self._told(found, Approval(phase="asked", call_id=one.id, subject=plain(one.value)))
        if not event.interrupts and event.status.startswith("interrupt_"):
            self._told(found, Approval(phase="asked", subject={"breakpoint": event.status}))
        if found.thread_id is not None:
            self._waiting.pop(found.thread_id, None)
            self._waiting[found.thread_id] = list(found.asked)
            while len(self._waiting) > _THREADS:
                del self._waiting[next(iter(self._waiting))]

    def on_resume(self, event: GraphResumeEvent) -> None:
        """The graph goes on from a breakpoint; what ``Command(resume=...)`` answers stands at the beginning of its run."""
        found = self._open.get(event.run_id) if event.run_id else None
        if found is not None and found.thread_id is not None and self._waiting.get(found.thread_id) == []:
            del self._waiting[found.thread_id]
            self._told(found, Approval(phase="granted", subject={"breakpoint": event.status}))

    def _answered_by(self, found: OpenRun, resume: Any) -> None:
        asked = self._waiting.pop(found.thread_id or "", None)
        if not asked and found.thread_id is not None and self._threads is not None:
            asked = waiting(self._threads, found.thread_id)
        for name, answer in answers(resume, asked or ()):
            self._told(found, Approval(phase=verdict(answer), call_id=name, subject={"answer": answer}))

    # ---------------------------------------------------------------- what it tells its caller

    def on_custom_event(self, name: str, data: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Something that the graph tells its caller (``dispatch_custom_event``)."""
        found = self._open.get(run_id)
        if found is not None:
            self._told(found, Note(text=name, author=found.name, attributes={"event": plain(data)}))

    def streamed(self, run_id: UUID, namespace: Sequence[str], data: Any) -> None:
        """Note what a graph sent to its caller through its stream writer."""
        found = self._open.get(run_id)
        if found is not None:
            where = {"namespace": "|".join(namespace)} if namespace else {}
            self._told(found, Note(text="custom stream output", author=found.name, attributes={"stream": plain(data), **where}))
