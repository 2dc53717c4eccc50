"""A model client and a workbench that answer from the record (law 5); `rath_autogen.staging` is the whole of a replay.

A tool that diverges cannot raise: an exception inside of a tool call makes ``AssistantAgent`` wait for ever (issue 7956). It answers
with an error, the tape takes note, and the next model call raises with the first divergence.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final, cast

from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, ModelInfo, RequestUsage
from autogen_core.tools import StaticStreamWorkbench, TextResultContent, Tool, ToolResult, ToolSchema
from pydantic import BaseModel

from rath_autogen.ledger import current_ledger
from rath_autogen.natives import Registry, from_bytes
from rath_autogen.record import ToolChoice, asker, asking
from rath_autogen.tape import ModelCall, ReplayDivergenceError, Tape, ToolCall
from rath_bridge.recorder import current_run
from rath_bridge.redaction import DEFAULT
from rath_bridge.replay.raising import raised_again
from rath_bridge.session import Session

EVERYTHING: Final = ModelInfo(
    vision=True, function_calling=True, json_output=True, structured_output=True, family="unknown", multiple_system_messages=True
)
"""What the model can, where the record does not say it."""


class RathReplayChatCompletionClient(ChatCompletionClient):
    """Serves the model calls of a session, streamed or not, each once, to whoever asks for the same.

    The same is the whole request: messages, tools, tool choice, output form and arguments. A call that failed fails again. What was not
    asked for then raises `ReplayDivergenceError`, with both sides named. Nothing is recorded anew, and nothing is counted twice.
    """

    component_type = "replay"

    def __init__(
        self, session: Session | Tape, *, model_info: ModelInfo | None = None, counts: ChatCompletionClient | None = None
    ) -> None:
        """Serve a session's model calls.

        Args:
            session: Where they were recorded (`RecordingChatCompletionClient`); or a tape that several clients share.
            model_info: What the model can; what the record says, when absent.
            counts: Counts tokens for contexts that are limited by them; without it, no context is ever full.
        """
        self.tape = session if isinstance(session, Tape) else Tape.of(session)
        self._info = model_info or _recorded_info(self.tape)
        self._counts = counts
        self._usage = RequestUsage(0, 0)

    async def create(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
        tool_choice: ToolChoice = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> CreateResult:
        """Return what the model answered then.

        Raises:
            ReplayDivergenceError: This was not asked for then.
        """
        call = self._served(messages, asking(tools, tool_choice, json_output, extra_create_args))
        return self._answer(call)

    async def create_stream(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
        tool_choice: ToolChoice = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Stream what the model answered then, in the same pieces.

        Raises:
            ReplayDivergenceError: This was not asked for then.
        """
        call = self._served(messages, asking(tools, tool_choice, json_output, extra_create_args))
        for piece in streamed(call):
            yield piece
        yield self._answer(call)

    def _served(self, messages: Sequence[LLMMessage], request: Mapping[str, Any]) -> ModelCall:
        run = current_run()
        return self.tape.model(messages, DEFAULT.apply(dict(request)), asker(run.name if run else None))

    def _answer(self, call: ModelCall) -> CreateResult:
        result = answer(call)
        self._usage = RequestUsage(
            self._usage.prompt_tokens + result.usage.prompt_tokens, self._usage.completion_tokens + result.usage.completion_tokens
        )
        ledger = current_ledger()
        if ledger is not None:  # the message that follows tells of these tokens: they were spent then, not now
            ledger.add(result.usage)
        return result

    async def close(self) -> None:
        """Nothing is open."""

    def actual_usage(self) -> RequestUsage:
        """What was spent now: nothing."""
        return RequestUsage(0, 0)

    def total_usage(self) -> RequestUsage:
        """What the calls that were served cost then."""
        return self._usage

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        return self._counts.count_tokens(messages, tools=tools) if self._counts is not None else 0

    def remaining_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        return self._counts.remaining_tokens(messages, tools=tools) if self._counts is not None else 1 << 20

    @property
    def capabilities(self) -> Any:  # the base declares it so; deprecated there
        return self._info

    @property
    def model_info(self) -> ModelInfo:
        return self._info


def _recorded_info(tape: Tape) -> ModelInfo:
    for call in tape.models:
        if "model_info" in call.body.attributes:
            return cast(ModelInfo, dict(call.body.attributes["model_info"]))
    return EVERYTHING


def streamed(call: ModelCall) -> list[str]:
    """The pieces in which an answer came then."""
    attributes = call.body.attributes
    if "said" in attributes:
        return list(attributes["said"])
    text = next((part["content"] for part in call.body.output if part["type"] == "text"), "")
    found: list[str] = []
    start = 0
    for length in attributes.get("pieces", ()):
        found.append(text[start : start + length])
        start += length
    return found


def answer(call: ModelCall) -> CreateResult:
    """What a model answered then; a call that failed fails again."""
    if call.body.error is not None or call.chunk.native is None:
        raise _failure(
            call.body.error or "no answer is on record: contents were not kept, or were erased",
            call.body.attributes.get("exception"),
        )
    return CreateResult.model_validate(from_bytes(call.chunk.native.data))


def _failure(problem: str, facts: Any) -> Exception:
    """The error of then, of the class that it had; where that is not at hand, a builtin one as itself, any other as a ``RuntimeError``."""
    found = raised_again(facts, problem) if facts else None
    if found is not None:
        return found
    name, _, text = problem.partition(": ")
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(text)
        except TypeError:
            pass
    return RuntimeError(problem)


class RathReplayWorkbench(StaticStreamWorkbench):
    """Serves tool calls by name, arguments and call id, with what agents inside of a tool showed; no tool runs."""

    component_type = "workbench"

    def __init__(self, session: Session | Tape, tools: Sequence[ToolSchema]) -> None:
        """Serve a session's tool calls.

        Args:
            session: Where they were recorded; or a tape that several share.
            tools: What the workbench offers.
        """
        super().__init__(tools=[])
        self.tape = session if isinstance(session, Tape) else Tape.of(session)
        self._schemas = list(tools)

    async def list_tools(self) -> list[ToolSchema]:
        return self._schemas

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """Return what the tool answered then; an error, and a divergence on the tape, where it was not called so."""
        return self._served(name, arguments, call_id)[0]

    async def call_tool_stream(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> AsyncGenerator[Any, None]:
        """Yield what the tool showed, and what it answered."""
        result, call = self._served(name, arguments, call_id)
        for message in shown(call):
            yield message
        yield result

    def _served(self, name: str, arguments: Mapping[str, Any] | None, call_id: str | None) -> tuple[ToolResult, ToolCall | None]:
        call = self.tape.tool(name, dict(arguments or {}), call_id)
        if call is None:
            return tool_result(name, str(ReplayDivergenceError(self.tape.misses[0])), failed=True), None
        return tool_result(name, call.content, failed=call.is_error), call


def tool_result(name: str, content: str, *, failed: bool) -> ToolResult:
    """A tool's answer as an agent sees it."""
    return ToolResult(name=name, result=[TextResultContent(content=content)], is_error=failed)


def shown(call: ToolCall | None) -> list[Any]:
    """The messages that agents inside of a tool showed while it ran."""
    registry = Registry()
    items = call.inner if call is not None else ()
    return [registry.load(cast("Mapping[str, Any]", item.data), item.cls)[0] for item in items]
