"""`RathCallbackHandler`: what a graph does while it runs, as chunks of the session that its thread lives in.

Graphs and nodes are runs; a node's run is ambient inside the node, so that another framework that is called there lands under it, and its
``native_id`` ends in the id of the task that it carries out (`rath_langgraph.timings` joins them). Messages never come from here: they are
lifted from checkpoints. On the graph's own thread facts are taken down; chunks are built by the recorder's.

Source: ``langchain_core.callbacks.base``, ``langgraph.callbacks`` (langgraph 1.2).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from time import monotonic
from typing import Any, Final, cast
from uuid import UUID

from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult
from langgraph.callbacks import GraphCallbackHandler, GraphInterruptEvent, GraphResumeEvent
from langgraph.errors import GraphBubbleUp, ParentCommand
from langgraph.types import Command

from rath_bridge.errors import StoreError
from rath_bridge.model.kinds import Approval, Body, Inference, Note, ToolCall
from rath_bridge.recorder import AUTO, Recorder, RunHandle, current_recorder, current_run, enter, leave, recorder_for
from rath_bridge.session import Store, open_store
from rath_bridge.store.protocol import Ref
from rath_langgraph.begun import Made, OpenCall, OpenRun, Prompts, later
from rath_langgraph.decisions import Routers, answers, verdict
from rath_langgraph.faults import described
from rath_langgraph.inputs import context_note
from rath_langgraph.neutral import origin, plain
from rath_langgraph.observed import (
    answer_of,
    attempt_of,
    describe,
    failure_of,
    model_of,
    place_of,
    prompt_of,
    reply_of,
    request_of,
    result_of,
    returned_native,
    without_id,
)
from rath_langgraph.stages import Stages
from rath_langgraph.tasks import waiting
from rath_langgraph.threads import FRAMEWORK, Threads, observe, thread_run

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

_owners: dict[UUID, RathCallbackHandler] = {}
"""Who records a callback run: one handler of a store, however many were added to a graph and to the graphs in it (law 7)."""

handed: ContextVar[Rows] = ContextVar("rath_langgraph_handed", default=())
"""Manifest of the messages that the next graph run starts from."""


class RathCallbackHandler(GraphCallbackHandler):
    """Records model calls, tool calls, graph and node runs, routes, questions and answers. Never breaks the graph: it observes."""

    run_inline = True  # in the node's own context, so that its run can be made ambient

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
        self._store, self._session = store, session
        self._continues = continues
        self._routers = Routers(graph)
        self._open: dict[UUID, OpenRun] = {}
        self._calls: dict[UUID, OpenCall] = {}
        self._stages: tuple[Store, Stages] | None = None
        self._waiting: dict[str, list[str]] = {}
        self._contexts: dict[UUID, Any] = {}

    @contextmanager
    def given(self, run_id: UUID | None, context: Any) -> Generator[None]:
        """Note what a graph is given as ``context=`` when it begins with this id: callbacks are not told of it."""
        if run_id is not None and context is not None:
            self._contexts[run_id] = context
        try:
            yield
        finally:
            if run_id is not None:
                self._contexts.pop(run_id, None)

    @property
    def _threads(self) -> Threads | None:
        """The threads of the store that this context leads to: in a replay, those of its scratch."""
        return None if self._stages is None else self._stages[1].here()

    @property
    def raise_error(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """A strict recorder's errors reach the user's run."""
        return any(found.recorder.strict for found in list(self._open.values()))

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
            found = self._graph(name, facts, inputs)
            context = self._contexts.pop(run_id, None)
            if context is not None:
                self._told(found, context_note(context, found.recorder.redactor, name))
        elif any(tag.startswith(_STEP) for tag in tags or ()):
            found = self._node(name, facts, above)
        elif facts.get("ls_integration") == FRAMEWORK and facts.get("checkpoint_ns") == facts.get("langgraph_checkpoint_ns"):
            found = self._subgraph(name, facts, above)
        else:
            self._open[run_id] = above
            _owners[run_id] = self
            if parent_run_id == above.key and above.kind == "node" and any(tag.startswith(_SEQUENCE) for tag in tags or ()):
                above.routers[run_id] = name
            return
        found.key = run_id
        self._open[run_id] = found
        _owners[run_id] = self

    def _graph(self, name: str, facts: Mapping[str, Any], inputs: Any) -> OpenRun:
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
        run = recorder.begin(
            name, "graph", parent=parent, native_id=thread_id, manifest=rows, attributes={"blind_spots": list(BLIND_SPOTS)},
            origin=origin(),
        )  # fmt: skip
        found = OpenRun(recorder, run, "graph", name, owned, True, thread_id, parent if isinstance(parent, RunHandle) else None)
        if rows:
            recorder.flush()  # the saver reads it when the messages come
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
        _owners.pop(run_id, None)
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
        told = describe(error) if error is not None and status != "interrupted" else None
        found.recorder.end(found.run, status, error=told, origin=origin())
        if found.outermost:
            if found.thread is not None:
                object.__setattr__(found.thread, "over", True)  # this handle of it: async hooks leave it ambient
            found.recorder.flush()
        if found.owned:
            found.recorder.close()

    def _told(self, found: OpenRun, body: Body) -> None:
        later(found.recorder, found.run, lambda: (body, None, None))

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

    # ---------------------------------------------------------------- models

    def on_chat_model_start(
        self, serialized: dict[str, Any] | None, messages: list[list[BaseMessage]], *, run_id: UUID,
        parent_run_id: UUID | None = None, tags: list[str] | None = None, metadata: dict[str, Any] | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        """A chat model is called."""
        if self._elsewhere(run_id, parent_run_id):
            return
        call, around = self._begin(run_id, parent_run_id)
        self._asked(call, metadata or {}, tags, kwargs)
        prompt = [without_id(message) for message in messages[0]] if messages else []
        node = str((metadata or {}).get("langgraph_node"))
        prompts = call.prompts = around.prompts if around else Prompts()
        call.prompt = lambda: prompt_of(call.recorder, prompts, prompt, node)
        call.recorder.defer(call.prepare)
        call.recorder.nudge()

    def on_llm_start(
        self, serialized: dict[str, Any] | None, prompts: list[str], *, run_id: UUID, parent_run_id: UUID | None = None,
        tags: list[str] | None = None, metadata: dict[str, Any] | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        """A text model is called."""
        if self._elsewhere(run_id, parent_run_id):
            return
        call, _ = self._begin(run_id, parent_run_id)
        self._asked(call, metadata or {}, tags, kwargs)
        call.body["input"] = tuple(prompts)

    def _asked(self, call: OpenCall, facts: Mapping[str, Any], tags: Sequence[str] | None, kwargs: Mapping[str, Any]) -> None:
        params: Mapping[str, Any] = kwargs.get("invocation_params") or {}
        attempt = attempt_of(tags or ())
        call.body.update(
            provider=facts.get("ls_provider"), model=model_of(params, facts), agent=facts.get("langgraph_node"),
            request=request_of(params, kwargs.get("options") or {}), attributes={"attempt": attempt} if attempt else {},
        )  # fmt: skip

    def on_llm_new_token(self, token: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """A streamed answer goes on."""
        call = self._calls.get(run_id)
        if call is not None and call.first is None:
            call.first = monotonic() - call.started

    def on_stream_event(self, event: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """A streamed answer goes on, by content blocks."""
        self.on_llm_new_token(event, run_id=run_id)

    def on_retry(self, retry_state: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any) -> None:
        """A model or tool is tried again by its own policy."""
        call = self._calls.get(run_id)
        if call is not None and call.body:
            call.body["attributes"] = {**call.body.get("attributes", {}), "attempt": int(retry_state.attempt_number) + 1}

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any) -> None:
        """A model has answered."""
        found = answer_of(response)
        answer = copy(found) if found is not None else None  # agents give it their name when it is theirs
        call = self._over(run_id)
        if call is not None:
            self._answered(call, lambda: reply_of(call.recorder, response, answer))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any) -> None:
        """A model call has failed."""
        call = self._over(run_id)
        if call is not None:
            told = {"error": describe(error), "attributes": {**call.body.get("attributes", {}), "exception": described(error)}}
            self._answered(call, lambda: (told, None))

    def _answered(self, call: OpenCall, tell: Any) -> None:
        duration = monotonic() - call.started

        def made() -> Made:
            told, native = tell()
            objects = call.take()
            streamed = True if call.first is not None else None
            body = Inference(
                observer="callback", duration=duration, time_to_first_chunk=call.first, streamed=streamed, **{**call.body, **told}
            )
            return body, native, objects

        later(call.recorder, call.run, made)
        self._done(call)

    # ---------------------------------------------------------------- tools

    def on_tool_start(
        self, serialized: dict[str, Any] | None, input_str: str, *, run_id: UUID, parent_run_id: UUID | None = None,
        tags: list[str] | None = None, metadata: dict[str, Any] | None = None, inputs: dict[str, Any] | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        """A tool is about to run: that it will is durable first."""
        if self._elsewhere(run_id, parent_run_id):
            return
        call, _ = self._begin(run_id, parent_run_id)
        call.name = str((serialized or {}).get("name") or kwargs.get("name") or "tool")
        call.call_id = str(kwargs.get("tool_call_id") or run_id)
        body = ToolCall(
            name=call.name, arguments=plain(inputs if inputs is not None else input_str), call_id=call.call_id, type="function",
            agent=(metadata or {}).get("langgraph_node"),
        )  # fmt: skip
        call.recorder.emit(body, run=call.run, origin=origin())
        call.recorder.flush()

    def on_tool_end(self, output: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any) -> None:
        """A tool has returned."""
        kept = copy(output) if isinstance(output, BaseMessage) else output  # the graph gives it an id when it takes it
        call = self._over(run_id)
        if call is not None:
            duration = monotonic() - call.started

            def made() -> Made:
                return result_of(kept, call.name, call.call_id, duration), returned_native(kept, call.recorder.redactor), None

            later(call.recorder, call.run, made)
            self._done(call)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any) -> None:
        """A tool has raised."""
        call = self._over(run_id)
        if call is not None:
            body, native = failure_of(error, call.name, call.call_id, monotonic() - call.started)
            later(call.recorder, call.run, lambda: (body, native, None))
            self._done(call)

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

    # ---------------------------------------------------------------- where

    def _begin(self, run_id: UUID, parent_run_id: UUID | None) -> tuple[OpenCall, OpenRun | None]:
        around = self._open.get(parent_run_id) if parent_run_id else None
        parent_call = self._calls.get(parent_run_id) if parent_run_id and around is None else None
        if around is not None:
            call = OpenCall(around.recorder, False, around.run, monotonic())
        elif parent_call is not None:  # a model that is called inside a tool
            call = OpenCall(parent_call.recorder, False, parent_call.run, monotonic())
        else:
            recorder, owned = self._recorder(None)
            call = OpenCall(recorder, owned, current_run(), monotonic())
        self._calls[run_id] = call
        _owners[run_id] = self
        return call, around

    def _over(self, run_id: UUID) -> OpenCall | None:
        if run_id in self._calls:
            _owners.pop(run_id, None)
        return self._calls.pop(run_id, None)

    def _elsewhere(self, run_id: UUID, parent_run_id: UUID | None) -> bool:
        """Tell whether another handler of the same store records this."""
        if parent_run_id is not None and (parent_run_id in self._open or parent_run_id in self._calls):
            return False
        other = _owners.get(run_id) or (_owners.get(parent_run_id) if parent_run_id else None)
        return other is not None and other is not self and (self._store is None or self._store == other._store)

    def _done(self, call: OpenCall) -> None:
        if call.owned:
            call.recorder.close()

    def _recorder(self, thread_id: str | None) -> tuple[Recorder, bool]:
        ambient = current_recorder()
        store = self._store or (ambient.store if ambient is not None else None)
        if store is None:
            store = self._store = open_store()
        session = self._session
        if self._stages is None or self._stages[0] != store:
            self._stages = store, Stages(store, session)
        if session is None and thread_id is not None and (ambient is None or ambient.store != store):
            session = self._home(thread_id)
        return recorder_for(store, FRAMEWORK, thread_id, session)

    def _home(self, thread_id: str) -> str | None:
        threads = self._threads
        if threads is None:
            return None
        try:
            return Ref(*threads.home(threads.line(thread_id, "")), "", 0).name
        except StoreError:  # it is down: the name that a new thread would have
            return None
