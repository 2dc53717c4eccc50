"""`RecordingModel`: any ``agents.Model``, with every call on record exactly."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from time import monotonic
from typing import Any, Final

from agents.items import ModelResponse
from agents.models.interface import Model, ModelTracing
from agents.tracing import get_current_trace

from rath_bridge.given import check_store
from rath_bridge.model.chunk import SpanContext, now
from rath_bridge.model.digests import new_id
from rath_bridge.recorder import Recorder, recorder_for
from rath_bridge.session import Store, open_store
from rath_bridge.verbs.raised import described
from rath_openai_agents.conversation import Conversation
from rath_openai_agents.faults import describe, guard
from rath_openai_agents.inference import Call, finish_reason, request_of, usage_of
from rath_openai_agents.items import FRAMEWORK, dump, item_list, plain
from rath_openai_agents.place import Place, locate, observed

_TERMINAL: Final = frozenset({"response.completed", "response.failed", "response.incomplete", "error", "response.error"})
_OWN: Final = 32
"""Traces without a processor whose recorders are kept open."""
_ARGUMENTS: Final = ("system_instructions", "input", "model_settings", "tools", "output_schema", "handoffs", "tracing")


class RecordingModel(Model):
    """Wraps a model: one ``inference`` chunk for each call, with exact input, output and usage, and the messages that are new.

    Put it into ``Agent(model=...)`` or ``RunConfig(model=...)``. Beside a processor it is the one that is believed: the processor's
    span of the same call adds nothing (law 7). A run with ``trace_include_sensitive_data=False`` is recorded without content here, too.
    """

    def __init__(self, inner: Model, store: Store | Recorder | None = None, *, session: str | None = None) -> None:
        """Record what a model is asked and answers.

        Args:
            inner: The model that does the work.
            store: Where to record, or the recorder. By default the trace's processor or the ambient recorder decides, else
                ``rath_bridge.open_store()``.
            session: The session; by default as the processor chooses it.
        """
        self.inner = inner
        self._recorder = store if isinstance(store, Recorder) else None
        if self._recorder is None:
            check_store(store, "RecordingModel", session, optional=True)
        self._store = store if isinstance(store, Store) else None
        self._session = session if self._recorder is None else self._recorder.name
        self._own: OrderedDict[str, Conversation] = OrderedDict()

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """As ``Model.get_response``, recorded."""
        if observed.get() is not None:  # a recording model around this one writes the call
            return await self.inner.get_response(*args, **kwargs)
        call = self._begin(args, kwargs, streamed=False)
        token = observed.set(call)
        try:
            response = await self.inner.get_response(*args, **kwargs)
        except BaseException as error:
            call.failed(error)
            raise
        finally:
            observed.reset(token)
        call.answered(response)
        return response

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """As ``Model.stream_response``, recorded; a stream that is closed early is recorded and marked."""
        if observed.get() is not None:
            async for event in self.inner.stream_response(*args, **kwargs):
                yield event
            return
        call = self._begin(args, kwargs, streamed=True)
        stream = self.inner.stream_response(*args, **kwargs)
        try:
            while True:
                # set around each step only: a generator runs in its consumer's context
                token = observed.set(call)
                try:
                    event = await anext(stream)
                except StopAsyncIteration:
                    break
                finally:
                    observed.reset(token)
                call.event(event)
                yield event
        except GeneratorExit:
            call.closed_early()
            raise
        except BaseException as error:
            call.failed(error)
            raise
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
        call.closed_early()

    def get_retry_advice(self, request: Any) -> Any:
        """The inner model's advice."""
        return self.inner.get_retry_advice(request)

    async def close(self) -> None:
        """Close the inner model, and make durable what was recorded without a processor."""
        while self._own:
            self._let_go()
        await self.inner.close()

    async def _cleanup_on_run_end(self, owner: object) -> None:
        cleanup = getattr(self.inner, "_cleanup_on_run_end", None)
        if cleanup is not None:
            await cleanup(owner)

    def __getattr__(self, name: str) -> Any:
        if name in ("inner", "__setstate__", "__getstate__"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    # ---------------------------------------------------------------- inside

    def _begin(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, streamed: bool) -> _Recorded:
        asked = dict(zip(_ARGUMENTS, args, strict=False)) | dict(kwargs)
        call = _Recorded(None, streamed)
        with guard(self._recorder, "a model call"):
            call.place = self._place()
        with guard(call.place.recorder if call.place else None, "a model call's request"):
            call.begin(asked, self.inner)
        return call

    def _place(self) -> Place:
        if self._recorder is not None:
            found = locate(self._recorder.store, self._recorder.name)
            if found is not None:
                return found
            return self._of_own(self._recorder.id, lambda: (self._recorder, False))
        found = locate(self._store, self._session)
        if found is not None:
            return found
        if self._store is None:
            self._store = open_store()
        trace = get_current_trace()
        group = getattr(trace, "group_id", None) or (trace.trace_id if trace is not None else f"model-{new_id(8)}")
        store, name = self._store, group if trace is not None else next(iter(self._own), group)
        place = trace.trace_id if trace is not None else name
        return self._of_own(place, lambda: recorder_for(store, FRAMEWORK, name, self._session))

    def _of_own(self, place: str, make: Any) -> Place:
        talk = self._own.pop(place, None) or Conversation(make()[0], None)
        self._own[place] = talk
        if len(self._own) > _OWN:
            self._let_go()
        return Place(talk.recorder, None, talk)

    def _let_go(self) -> None:
        recorder = self._own.popitem(last=False)[1].recorder
        if recorder is not self._recorder:
            recorder.close()


class _Recorded:
    """One call under way."""

    def __init__(self, place: Place | None, streamed: bool) -> None:
        self.place = place
        self.call = Call(observer="model", streamed=streamed)
        self.content = True
        self.done = False
        self.began, self.at = monotonic(), now()
        self.span: SpanContext | None = None
        self.handoffs: dict[str, str] = {}
        self.partial: list[Any] = []
        self.said: list[str] = []

    # ---------------------------------------------------------------- before the call

    def begin(self, asked: Mapping[str, Any], inner: Model) -> None:
        """Write the messages that are new in the input, and keep the request as it is now."""
        place, call = self.place, self.call
        if place is None:
            return
        self.span = place.span()
        if asked.get("tracing") is ModelTracing.ENABLED_WITHOUT_DATA:
            self.content = False
            call.attributes["content"] = "withheld"
            if place.book is not None:
                place.book.withheld = True
        call.agent = place.agent
        inner = getattr(inner, "stands_for", None) or inner  # a replay answers for the model, which is the one on record
        name = getattr(inner, "model", None)
        call.model = name if isinstance(name, str) else None
        call.provider = "openai" if type(inner).__module__.startswith("agents.models.openai_") else None
        self.handoffs = {one.tool_name: one.agent_name for one in asked.get("handoffs") or ()}
        call.request = request_of(asked, call.request_objects)
        given: Any = asked["input"]
        items: list[Any] = item_list(given) if isinstance(given, str) else given
        call.given = place.talk.take_input(items, self._write, turn=place.turn)

    def _write(self, body: Any, native: Any, objects: Any) -> None:
        place = self.place
        assert place is not None
        place.emit(body, run=place.talk.run, span=self.span, native=native, objects=objects, content=self.content)

    # ---------------------------------------------------------------- after it

    def answered(self, response: ModelResponse) -> None:
        """Write the call and what the model said."""
        with guard(self.place.recorder if self.place else None, "a model's answer"):
            output = [dump(item) for item in response.output]
            native: dict[str, Any] = {
                "output": output, "usage": plain(_usage_json(response.usage)),
                "response_id": response.response_id, "request_id": getattr(response, "request_id", None),
                "raw_usage": getattr(response, "raw_usage", None),
            }  # fmt: skip
            self.call.native = {name: value for name, value in native.items() if value is not None}
            self.call.response_id = response.response_id
            self.call.usage = usage_of(response.usage)
            self._finish(output)

    def event(self, event: Any) -> None:
        """Note one stream event; the last one ends the call, since a consumer may close the stream right after it."""
        with guard(self.place.recorder if self.place else None, "a stream event"):
            if self.call.first_chunk is None:
                self.call.first_chunk = monotonic() - self.began
            kind = getattr(event, "type", None)
            if kind == "response.output_item.done":
                self.partial.append(dump(event.item))
            elif kind == "response.output_text.delta":
                self.said.append(str(event.delta))
            if kind in _TERMINAL and not self.done:
                self._terminal(str(kind), getattr(event, "response", None), event)

    def _terminal(self, kind: str, response: Any, event: Any) -> None:
        if response is None:
            self.call.error = f"{kind}: {getattr(event, 'message', '')}"
            self._finish(self.partial, said=False)
            return
        self.call.native = dump(response)
        self.call.response_id, self.call.response_model = response.id, plain(getattr(response, "model", None))
        self.call.usage = usage_of(response.usage)
        output = [dump(item) for item in response.output] or self.partial
        if kind != "response.completed":
            self.call.error = (
                f"{kind}: {plain(getattr(response, 'error', None) or getattr(response, 'incomplete_details', None))}"
            )
        self._finish(output, said=kind == "response.completed")

    def failed(self, error: BaseException) -> None:
        """Write a call that raised."""
        if self.done:
            return
        with guard(self.place.recorder if self.place else None, "a failed model call"):
            cancelled = not isinstance(error, Exception)
            self.call.error = describe(error) if self.content else type(error).__name__
            if self.content and not cancelled:
                self.call.attributes["exception"] = described(error)
            if cancelled or self.call.streamed:
                self._mark_partial("cancelled" if cancelled else "error")
            self._finish(self.partial, said=False)

    def closed_early(self) -> None:
        """Write a stream that ended without its last event."""
        if self.done:
            return
        with guard(self.place.recorder if self.place else None, "a stream that was closed early"):
            self.call.error = "the stream was closed before it ended"
            self._mark_partial("incomplete")
            self._finish(self.partial, said=False)

    def _mark_partial(self, finish: str) -> None:
        self.call.finish = finish
        self.call.attributes["closed_early"] = True
        if self.said:
            self.call.attributes["partial_text"] = "".join(self.said)

    def _finish(self, output: Sequence[Any], *, said: bool = True) -> None:
        place, call = self.place, self.call
        self.done = True
        if place is None:
            return
        call.duration = monotonic() - self.began
        call.output = output if place.recorder.redactor is None else place.recorder.redactor.apply(list(output))
        call.finish = call.finish or (finish_reason(output) if said else "error")
        if place.node is not None and place.node.kind == "turn":
            place.node.counted = True
        body, native, objects = call.chunk()
        written = place.emit(body, span=self.span, native=native, objects=objects, given=call.given, content=self.content)
        if written is not None and call.given is not None and self.content and place.content:
            place.talk.saved(call.given)
        if said:
            place.talk.take_output(
                output, self._write, name=call.agent, turn=place.turn, finish_reason=call.finish, handoffs=self.handoffs
            )
        if place.run is None and place.book is None:
            place.recorder.flush()


def _usage_json(usage: Any) -> Any:
    names = ("requests", "input_tokens", "output_tokens", "total_tokens", "input_tokens_details", "output_tokens_details")
    return {name: plain(getattr(usage, name)) for name in names if getattr(usage, name, None) is not None}


__all__ = ["RecordingModel"]
