"""`RathCallbackHandler`: what a graph does while it runs, as chunks of the session that its thread lives in.

Graphs and nodes are runs; a node's run is ambient inside the node, so that another framework that is called there lands under it.
Messages never come from here: they are lifted from checkpoints. Blind to work in a raw ``threading.Thread``, and to models and tools
that are called past LangChain. Source: ``langchain_core.callbacks.base``, ``langgraph.callbacks`` (langgraph 1.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, cast
from uuid import UUID

from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult
from langgraph.callbacks import GraphCallbackHandler, GraphInterruptEvent
from langgraph.errors import GraphBubbleUp

from rath_bridge.model.chunk import Native
from rath_bridge.model.encoding import TreeRef
from rath_bridge.model.kinds import Approval, Inference, ToolCall
from rath_bridge.recorder import AUTO, Recorder, RunHandle, current_recorder, enter, leave, recorder_for
from rath_bridge.session import Store, open_store
from rath_bridge.store.protocol import Ref
from rath_langgraph.items import Encoder, Seen, Value
from rath_langgraph.neutral import origin, plain, version
from rath_langgraph.observed import (
    answer_of,
    cleaned,
    describe,
    failure_of,
    finish_of,
    model_of,
    output_of,
    request_of,
    result_of,
    usage_of,
)
from rath_langgraph.serde import RathSerializer
from rath_langgraph.threads import FRAMEWORK, Threads, observe, thread_run

_STEP: Final = "graph:step:"
Tokens = tuple[Token[Recorder | None], Token[RunHandle | None]]
Rows = Sequence[Sequence[object]]

handed: ContextVar[Rows] = ContextVar("rath_langgraph_handed", default=())
"""Manifest of the messages that the next graph run starts from."""


@dataclass(slots=True)
class _Open:
    """A graph or node run that has begun; inner runnables share the entry of what they run in."""

    recorder: Recorder
    run: RunHandle
    kind: str
    owned: bool = False
    thread: RunHandle | None = None
    tokens: Tokens | None = None
    status: str = "ok"
    seen: Seen = field(default_factory=Seen)
    prompts: dict[str, Value] = field(default_factory=dict[str, Value])


@dataclass(slots=True)
class _Call:
    """A model or tool call that has begun."""

    recorder: Recorder
    owned: bool
    run: RunHandle | None
    started: float
    name: str | None = None
    call_id: str = ""
    body: dict[str, Any] = field(default_factory=dict[str, Any])
    objects: dict[str, bytes] = field(default_factory=dict[str, bytes])
    first: float | None = None


class RathCallbackHandler(GraphCallbackHandler):
    """Records model calls, tool calls, graph and node runs. Never breaks the graph: it observes."""

    run_inline = True  # in the node's own context, so that its run can be made ambient

    def __init__(self, store: Store | None = None, session: str | None = None, *, continues: Rows = ()) -> None:
        """Observe graphs.

        Args:
            store: Where to write; the ambient recorder's store, else the default one.
            session: Session to write to; the ambient recorder's, else the one that the thread lives in.
            continues: ``report.rows()`` of the messages that the first run starts from (law 12).
        """
        self._store, self._session = store, session
        self._continues = continues
        self._open: dict[UUID, _Open] = {}
        self._calls: dict[UUID, _Call] = {}
        self._threads: Threads | None = None

    # ---------------------------------------------------------------- graphs and nodes

    def on_chain_start(
        self, serialized: dict[str, Any] | None, inputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None,
        tags: list[str] | None = None, metadata: dict[str, Any] | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        """A graph, a node, or a runnable inside of one begins."""
        above = self._open.get(parent_run_id) if parent_run_id else None
        facts = metadata or {}
        name = str(kwargs.get("name") or "graph")
        if above is None:
            self._open[run_id] = self._graph(name, facts, None)
        elif any(tag.startswith(_STEP) for tag in tags or ()):
            self._open[run_id] = self._node(name, facts, above)
        elif facts.get("ls_integration") == FRAMEWORK and facts.get("checkpoint_ns") == facts.get("langgraph_checkpoint_ns"):
            self._open[run_id] = self._graph(name, facts, above)
        else:
            self._open[run_id] = above

    def _graph(self, name: str, facts: Mapping[str, Any], above: _Open | None) -> _Open:
        thread_id = facts.get("thread_id")
        if above is not None:
            run = above.recorder.begin(name, "graph", parent=above.run, native_id=facts.get("checkpoint_ns"), origin=origin())
            return _Open(above.recorder, run, "graph", seen=above.seen, prompts=above.prompts)
        recorder, owned = self._recorder(None if thread_id is None else str(thread_id))
        observe(recorder)
        rows, self._continues = (handed.get() or self._continues), ()
        parent: RunHandle | Any | None = AUTO
        if thread_id is not None and self._threads is not None:
            parent = thread_run(self._threads, str(thread_id), recorder)
        run = recorder.begin(
            name, "graph", parent=parent, native_id=None if thread_id is None else str(thread_id), manifest=rows, origin=origin()
        )
        if rows:
            recorder.flush()  # the saver reads it when the messages come
        return _Open(recorder, run, "graph", owned, parent if isinstance(parent, RunHandle) else None)

    def _node(self, name: str, facts: Mapping[str, Any], above: _Open) -> _Open:
        run = above.recorder.begin(
            name, "node", parent=above.run, native_id=facts.get("langgraph_checkpoint_ns"),
            attributes={"step": facts["langgraph_step"]} if "langgraph_step" in facts else None, origin=origin(),
        )  # fmt: skip
        tokens = enter(above.recorder, run)
        return _Open(above.recorder, run, "node", tokens=tokens, seen=above.seen, prompts=above.prompts)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any) -> None:
        """What began has ended."""
        self._end(run_id, parent_run_id, None)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any) -> None:
        """What began has failed, or was interrupted."""
        self._end(run_id, parent_run_id, error)

    def _end(self, run_id: UUID, parent_run_id: UUID | None, error: BaseException | None) -> None:
        found = self._open.pop(run_id, None)
        if found is None or (parent_run_id is not None and self._open.get(parent_run_id) is found):
            return
        status = found.status
        if isinstance(error, GraphBubbleUp):
            status = "interrupted"
        elif error is not None:
            status = "error" if isinstance(error, Exception) else "cancelled"
        if found.tokens is not None:
            leave(found.tokens)
        told = describe(error) if error is not None and status != "interrupted" else None
        found.recorder.end(found.run, status, error=told, origin=origin())
        if parent_run_id is None:
            if found.thread is not None:
                object.__setattr__(found.thread, "over", True)  # this handle of it: async hooks leave it ambient
            found.recorder.flush()
        if found.owned:
            found.recorder.close()

    def on_interrupt(self, event: GraphInterruptEvent) -> None:
        """The graph waits for a person."""
        found = self._open.get(event.run_id) if event.run_id else None
        if found is None:
            return
        found.status = "interrupted"
        for one in event.interrupts:
            found.recorder.emit(Approval(phase="asked", call_id=one.id, subject=plain(one.value)), run=found.run, origin=origin())

    # ---------------------------------------------------------------- models

    def on_chat_model_start(
        self, serialized: dict[str, Any] | None, messages: list[list[BaseMessage]], *, run_id: UUID,
        parent_run_id: UUID | None = None, tags: list[str] | None = None, metadata: dict[str, Any] | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        """A chat model is called."""
        call, around = self._begin(run_id, parent_run_id)
        self._asked(call, metadata or {}, kwargs)
        call.body["input"], call.objects = self._prompt(call.recorder, around, messages[0] if messages else [], metadata or {})

    def on_llm_start(
        self, serialized: dict[str, Any] | None, prompts: list[str], *, run_id: UUID, parent_run_id: UUID | None = None,
        tags: list[str] | None = None, metadata: dict[str, Any] | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        """A text model is called."""
        call, _ = self._begin(run_id, parent_run_id)
        self._asked(call, metadata or {}, kwargs)
        call.body["input"] = tuple(prompts)

    def _asked(self, call: _Call, facts: Mapping[str, Any], kwargs: Mapping[str, Any]) -> None:
        params: Mapping[str, Any] = kwargs.get("invocation_params") or {}
        call.body.update(
            provider=facts.get("ls_provider"), model=model_of(params, facts), agent=facts.get("langgraph_node"),
            request=request_of(params, kwargs.get("options") or {}),
        )  # fmt: skip

    def _prompt(
        self, recorder: Recorder, around: _Open | None, messages: Sequence[BaseMessage], facts: Mapping[str, Any]
    ) -> tuple[TreeRef | None, dict[str, bytes]]:
        """The prompt as a list tree: what the last call of this node said already costs nothing."""
        redactor = recorder.redactor
        encoder = Encoder(
            RathSerializer(), around.seen if around else None, None if redactor is None else lambda item: cleaned(item, redactor)
        )
        node = str(facts.get("langgraph_node"))
        value = encoder.value(list(messages), around.prompts.get(node) if around else None)
        if value.tree is None:
            return None, {}
        if around is not None:
            around.prompts[node] = value
            around.seen.remember(encoder)
        return value.tree.ref, encoder.objects

    def on_llm_new_token(self, token: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """A streamed answer goes on."""
        call = self._calls.get(run_id)
        if call is not None and call.first is None:
            call.first = monotonic() - call.started

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any) -> None:
        """A model has answered."""
        message = answer_of(response)
        facts = message.response_metadata if message is not None else (response.llm_output or {})
        native = None
        call = self._calls.get(run_id)
        if message is not None and call is not None:
            redactor = call.recorder.redactor
            kept = message if redactor is None else cleaned(message, redactor)
            kind, data = RathSerializer().dumps_typed([kept])
            native = Native(FRAMEWORK, version(), "msgpack", bytes(data[1:])) if kind == "msgpack" else None
        self._answered(
            run_id, native, output=output_of(response), usage=usage_of(response), finish_reasons=finish_of(response),
            response_model=facts.get("model_name") or facts.get("model"), response_id=facts.get("id") or (message and message.id),
        )  # fmt: skip

    def on_llm_error(self, error: BaseException, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any) -> None:
        """A model call has failed."""
        self._answered(run_id, None, error=describe(error))

    def _answered(self, run_id: UUID, native: Native | None, **told: Any) -> None:
        call = self._calls.pop(run_id, None)
        if call is None:
            return
        body = Inference(
            observer="callback", duration=monotonic() - call.started, time_to_first_chunk=call.first,
            streamed=True if call.first is not None else None, **call.body, **told,
        )  # fmt: skip
        call.recorder.emit(body, run=call.run or AUTO, native=native, objects=call.objects, origin=origin())
        self._done(call)

    # ---------------------------------------------------------------- tools

    def on_tool_start(
        self, serialized: dict[str, Any] | None, input_str: str, *, run_id: UUID, parent_run_id: UUID | None = None,
        tags: list[str] | None = None, metadata: dict[str, Any] | None = None, inputs: dict[str, Any] | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        """A tool is about to run: that it will is durable first."""
        call, _ = self._begin(run_id, parent_run_id)
        call.name = str((serialized or {}).get("name") or kwargs.get("name") or "tool")
        call.call_id = str(kwargs.get("tool_call_id") or run_id)
        body = ToolCall(
            name=call.name, arguments=plain(inputs if inputs is not None else input_str), call_id=call.call_id, type="function",
            agent=(metadata or {}).get("langgraph_node"),
        )  # fmt: skip
        call.recorder.emit(body, run=call.run or AUTO, origin=origin())
        call.recorder.flush()

    def on_tool_end(self, output: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any) -> None:
        """A tool has returned."""
        call = self._calls.pop(run_id, None)
        if call is not None:
            body = result_of(output, call.name, call.call_id, monotonic() - call.started)
            call.recorder.emit(body, run=call.run or AUTO, origin=origin())
            self._done(call)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any) -> None:
        """A tool has raised."""
        call = self._calls.pop(run_id, None)
        if call is not None:
            body = failure_of(error, call.name, call.call_id, monotonic() - call.started)
            call.recorder.emit(body, run=call.run or AUTO, origin=origin())
            self._done(call)

    # ---------------------------------------------------------------- where

    def _begin(self, run_id: UUID, parent_run_id: UUID | None) -> tuple[_Call, _Open | None]:
        around = self._open.get(parent_run_id) if parent_run_id else None
        parent_call = self._calls.get(parent_run_id) if parent_run_id and around is None else None
        if around is not None:
            call = _Call(around.recorder, False, around.run, monotonic())
        elif parent_call is not None:  # a model that is called inside a tool
            call = _Call(parent_call.recorder, False, parent_call.run, monotonic())
        else:
            recorder, owned = self._recorder(None)
            call = _Call(recorder, owned, None, monotonic())
        self._calls[run_id] = call
        return call, around

    def _done(self, call: _Call) -> None:
        if call.owned:
            call.recorder.close()

    def _recorder(self, thread_id: str | None) -> tuple[Recorder, bool]:
        ambient = current_recorder()
        store = self._store or (ambient.store if ambient is not None else None)
        if store is None:
            store = self._store = open_store()
        session = self._session
        self._threads = self._threads if self._threads is not None and self._threads.store == store else Threads(store, session)
        if ambient is not None and ambient.store != store and session is None:
            session = None if thread_id is None else self._home(thread_id)
        if session is None and thread_id is not None and ambient is None:
            session = self._home(thread_id)
        return recorder_for(store, FRAMEWORK, thread_id, session)

    def _home(self, thread_id: str) -> str:
        threads = cast(Threads, self._threads)
        return Ref(*threads.home(threads.line(thread_id, "")), "", 0).name
