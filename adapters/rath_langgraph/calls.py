"""Model and tool calls of a graph, from callbacks: a call's facts are taken down, and its chunks are built off the graph's thread.

Source: ``langchain_core.callbacks.base``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from time import monotonic
from typing import Any
from uuid import UUID

from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult

from rath_bridge.model.kinds import Inference, ToolCall
from rath_bridge.verbs.raised import described
from rath_langgraph.begun import Made, OpenCall, Prompts, later
from rath_langgraph.behind import await_ground
from rath_langgraph.neutral import origin, plain
from rath_langgraph.observed import (
    answer_of,
    attempt_of,
    describe,
    failure_of,
    model_of,
    prompt_of,
    reply_of,
    request_of,
    result_of,
    returned_native,
    without_id,
)
from rath_langgraph.watching import Watching


class CallHandler(Watching):
    """Records what models are asked and answer, and what tools are called with and return."""

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
        await_ground(call.recorder)
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
