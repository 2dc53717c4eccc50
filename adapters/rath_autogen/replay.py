"""Replay: models, tools, people and code are served from the record; nothing live is called (law 5).

A tool that diverges cannot raise: an exception inside of a tool call makes ``AssistantAgent`` wait for ever (issue 7956). It answers
with an error, the tape takes note, and the next model call raises with the first divergence.
"""

from __future__ import annotations

import builtins
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final, cast

from autogen_agentchat.agents import CodeExecutorAgent, UserProxyAgent
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeResult
from autogen_core.memory import ListMemory
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, ModelInfo, RequestUsage
from autogen_core.tools import BaseTool, TextResultContent, Tool, ToolResult, ToolSchema, Workbench
from pydantic import BaseModel

from rath_autogen.capture import manager, members, wrapped
from rath_autogen.ledger import current_ledger
from rath_autogen.natives import from_bytes
from rath_autogen.record import ToolChoice, asker, asking
from rath_autogen.runner import Wrapped
from rath_autogen.tape import ModelCall, ReplayDivergenceError, Tape
from rath_bridge.errors import UnsupportedError
from rath_bridge.recorder import current_run
from rath_bridge.redaction import DEFAULT
from rath_bridge.replay import ReplayHaltedError
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
        if call.body.error is not None or call.chunk.native is None:
            raise failure(call.body.error or "no answer is on record: contents were not kept, or were erased")
        result = CreateResult.model_validate(from_bytes(call.chunk.native.data))
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


def failure(problem: str) -> Exception:
    """The error of then: a builtin one as itself, any other as a ``RuntimeError`` of the same words."""
    name, _, text = problem.partition(": ")
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(text)
        except TypeError:
            pass
    return RuntimeError(problem)


class RathReplayWorkbench(Workbench):
    """Serves tool calls by name, arguments and call id; no tool runs."""

    component_type = "workbench"

    def __init__(self, session: Session | Tape, tools: Sequence[ToolSchema]) -> None:
        """Serve a session's tool calls.

        Args:
            session: Where they were recorded; or a tape that several share.
            tools: What the workbench offers.
        """
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
        content, failed = _tool(self.tape, name, arguments, call_id)
        return ToolResult(name=name, result=[TextResultContent(content=content)], is_error=failed)

    async def start(self) -> None:
        """Nothing to start."""

    async def stop(self) -> None:
        """Nothing to stop."""

    async def reset(self) -> None:
        """Nothing to reset."""

    async def save_state(self) -> Mapping[str, Any]:
        return {}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Nothing to load."""


def _tool(tape: Tape, name: str, arguments: Mapping[str, Any] | None, call_id: str | None) -> tuple[str, bool]:
    call = tape.tool(name, dict(arguments or {}), call_id)
    if call is None:
        return str(ReplayDivergenceError(tape.misses[0])), True
    return call.content, call.is_error


class _ReplayedTool(BaseTool[BaseModel, Any]):
    """A handoff tool, which agents run beside their workbench."""

    def __init__(self, tape: Tape, tool: BaseTool[Any, Any]) -> None:
        super().__init__(tool.args_type(), object, tool.name, tool.description)
        self._tape, self._own = tape, tool.schema

    @property
    def schema(self) -> ToolSchema:
        return self._own

    async def run_json(self, args: Mapping[str, Any], cancellation_token: CancellationToken, call_id: str | None = None) -> str:
        return _tool(self._tape, self.name, args, call_id)[0]

    async def run(self, args: BaseModel, cancellation_token: CancellationToken) -> str:
        return _tool(self._tape, self.name, args.model_dump(), None)[0]


@asynccontextmanager
async def replaying(runner: Any, session: Session) -> AsyncGenerator[Tape]:
    """Let an agent or a team run on a record inside the block, and give it its own clients and tools back afterwards.

    Models, workbenches, function tools, handoff tools, code executors and people's input of all participants, nested ones included, are
    served from the session; so is a selector's or orchestrator's model. Agents of your own classes run their own code.

    Args:
        runner: An agent or a team, wrapped or not, in the state in which the recorded one began.
        session: The record.

    Yields:
        The tape: ``divergence`` (the first), ``served``, ``unused``, ``misses``.

    Raises:
        UnsupportedError: An agent has a memory that is not a list: it could not be served.
    """
    tape = Tape.of(session)
    async with AsyncExitStack() as undo:
        undo.enter_context(quiet())
        stack: list[Any] = [runner.runner if isinstance(runner, Wrapped) else runner]
        while stack:
            one = stack.pop()
            if members(one):
                chief = await manager(one)
                _swap_model(one, tape, undo)
                _swap_model(chief, tape, undo)
                stack.extend(members(one))
            else:
                stack.extend(inner for inner in (wrapped(one), getattr(one, "_team", None)) if inner is not None)
                _swap(one, tape, undo)
        yield tape


@contextmanager
def quiet() -> Generator[None]:
    """Keep AutoGen's runtime from printing the traceback of a divergence: it is told by the report, or raised, already."""
    logger = logging.getLogger("autogen_core")
    logger.addFilter(_is_news)
    try:
        yield
    finally:
        logger.removeFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    while error is not None:
        if isinstance(error, (ReplayDivergenceError, ReplayHaltedError)):
            return False
        error = error.__cause__ or error.__context__
    return True


def _swap(agent: Any, tape: Tape, undo: AsyncExitStack) -> None:
    for memory in getattr(agent, "_memory", None) or ():
        if not isinstance(memory, ListMemory):
            raise UnsupportedError(
                f"cannot replay {agent.name}: its memory {type(memory).__name__} would be asked live; give it a ListMemory"
            )
    _swap_model(agent, tape, undo)
    handoffs: Sequence[BaseTool[Any, Any]] = getattr(agent, "_handoff_tools", None) or ()
    if getattr(agent, "_workbench", None):
        given = tape.schemas(agent.name)
        schemas = [tool.schema for tool in agent._tools] if given is None else given
        names = {tool.name for tool in handoffs}
        tools = [schema for schema in schemas if schema["name"] not in names]
        _set(agent, "_workbench", [RathReplayWorkbench(tape, tools)], undo)
    if handoffs:
        _set(agent, "_handoff_tools", [_ReplayedTool(tape, tool) for tool in handoffs], undo)
    if isinstance(agent, CodeExecutorAgent):
        _set(agent, "execute_code_block", _ran(tape, agent.name), undo)
    if isinstance(agent, UserProxyAgent):
        _set(agent, "input_func", _said(tape, agent.name), undo)
        _set(agent, "_is_async", False, undo)


def _ran(tape: Tape, agent: str) -> Callable[[list[CodeBlock], CancellationToken], Awaitable[CodeResult]]:
    async def execute_code_block(code_blocks: list[CodeBlock], cancellation_token: CancellationToken) -> CodeResult:
        found = tape.ran(agent)
        return CodeResult(exit_code=int(found["exit_code"]), output=str(found["output"]))

    return execute_code_block


def _said(tape: Tape, name: str) -> Callable[[str], str]:
    return lambda _: tape.said(name)


def _swap_model(owner: Any, tape: Tape, undo: AsyncExitStack) -> None:
    client = getattr(owner, "_model_client", None)
    if client is not None:
        _set(owner, "_model_client", RathReplayChatCompletionClient(tape, model_info=client.model_info, counts=client), undo)


def _set(owner: Any, name: str, value: Any, undo: AsyncExitStack) -> None:
    undo.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)
