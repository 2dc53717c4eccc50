"""AutoGen's part of a replay (`rath_bridge.replay`): model clients, workbenches, tools, people and code answer as the tape says.

Nothing in the user's code is exchanged: the classes that AutoGen calls are patched, for contexts in which a replay runs. What is loaded
while it runs is patched as it is loaded. A tool cannot raise: an exception inside of a tool call makes ``AssistantAgent`` wait for ever
(issue 7956). It answers with an error, and the next model call raises.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, cast

from autogen_agentchat.agents import CodeExecutorAgent, UserProxyAgent
from autogen_agentchat.tools._task_runner_tool import TaskRunnerTool
from autogen_core import FunctionCall
from autogen_core.code_executor import CodeResult
from autogen_core.memory import ListMemory, Memory
from autogen_core.models import ChatCompletionClient, CreateResult, RequestUsage, SystemMessage
from autogen_core.tools import BaseTool, StaticWorkbench, ToolResult, Workbench

from rath_autogen.capture import manager, members, wrapped
from rath_autogen.record import RecordingChatCompletionClient, asker, asking
from rath_autogen.replay import RathReplayChatCompletionClient, RathReplayWorkbench, answer, shown, streamed, tool_result
from rath_autogen.tape import ModelCall, Tape
from rath_bridge.errors import RathError
from rath_bridge.model.digests import Digest
from rath_bridge.recorder import current_run
from rath_bridge.redaction import DEFAULT
from rath_bridge.replay import Divergence, ReplayDivergenceError, ReplayHaltedError, Verdict, current_tape, patched
from rath_bridge.replay import Tape as CoreTape

_PASSES: Final = (RecordingChatCompletionClient, RathReplayChatCompletionClient)
"""Clients that ask another one, which is answered for; so does ``ChatCompletionCache``."""
PATIENCE: Final = 250
"""How often a call that came early looks whether those before it have come; the last 50 times a millisecond apart."""
SETTLE: Final = 20
"""Turns of the event loop that it leaves them to be heard."""
_SERVER: Final = ("list_tools", "start", "stop")
"""Methods by which a workbench asks a server what it offers."""
_open: Final[ContextVar[tuple[Any, ...]]] = ContextVar("rath_autogen_open", default=())
"""Calls that are made live in this context: what they call under the same name is a part of them."""


@contextmanager
def _quiet() -> Generator[None]:
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


class AutoGenPlayer:
    """Answers for AutoGen from a record."""

    def __init__(self, core: CoreTape) -> None:
        self.core = core
        self.tape = Tape.of(core.session)
        self._failed: RathError | None = None
        """What a tool call could not raise."""
        self._next = 0
        """The first recorded model call that was not asked for yet."""
        self._patches = ExitStack()
        self._seen: set[type[Any]] = set()

    @contextmanager
    def installed(self) -> Generator[None]:
        """Let AutoGen's clients, workbenches, tools, people and code executors answer from the record."""
        with self._patches, _quiet():
            for base in (ChatCompletionClient, Workbench, BaseTool, Memory):
                self._patch(base, "__init_subclass__", _loaded)
                self._cover(base)
            self._patch(CodeExecutorAgent, "execute_code_block", _execute_code_block)
            self._patch(UserProxyAgent, "_get_input", _get_input)
            yield

    @property
    def unused(self) -> Sequence[Digest]:
        """Model and tool calls that were not asked for."""
        return self.tape.unused

    @property
    def reasons(self) -> Sequence[str]:
        """Why AutoGen's part of the record cannot be replayed whole."""
        names = ", ".join(self.tape.untold)
        told = f"the model calls of {names} are not on record: put RecordingChatCompletionClient around their clients"
        return [told] if names else []

    def _patch(self, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
        self._patches.enter_context(patched(owner, name, wrapper))

    def _cover(self, base: type[Any]) -> None:
        """Patch a class and all that are made from it, where they bring methods of their own."""
        stack = [base]
        while stack:
            cls = stack.pop()
            stack.extend(cls.__subclasses__())
            self.cover(cls)

    def cover(self, cls: type[Any]) -> None:
        """Patch the methods of one class by which AutoGen calls it."""
        if cls in self._seen or issubclass(cls, (*_PASSES, RathReplayWorkbench, ListMemory)):
            return
        if cls.__name__ == "ChatCompletionCache":
            return
        self._seen.add(cls)
        for name, wrapper in _METHODS.items():
            method = vars(cls).get(name)
            if method is None or getattr(method, "__isabstractmethod__", False) or not issubclass(cls, _OF[name]):
                continue
            if name in _SERVER and issubclass(cls, StaticWorkbench):  # its tools are at hand
                continue
            self._patch(cls, name, wrapper)

    # ---------------------------------------------------------------- what is asked

    def model(self, messages: Sequence[Any], request: Mapping[str, Any], agent: str | None) -> tuple[Any, Verdict]:
        """Find a model call, and ask what becomes of it."""
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
        found = self.tape.find_model(messages, DEFAULT.apply(dict(request)), agent)
        missing = isinstance(found, Divergence)
        verdict = self.core.ask(
            "model", agent, chunk=None if missing else found.chunk.id, expected=found if missing else None
        )  # fmt: skip
        return found, verdict

    async def turn(self, call: ModelCall) -> None:
        """Let those end first that ended first then: members that work side by side are heard in the same order."""
        if not self._early(call):
            return
        for attempt in range(PATIENCE):
            await asyncio.sleep(0 if attempt < PATIENCE - 50 else 0.001)
            if not self._early(call):
                break
        for _ in range(SETTLE):  # what the other one says is on its way
            await asyncio.sleep(0)

    def _early(self, call: ModelCall) -> bool:
        models = self.tape.models
        while self._next < len(models) and models[self._next].used:
            self._next += 1
        if self._next == len(models) or self.core.misses or self.core.parted:
            return False
        return any(
            not other.used and other.chunk.run == call.chunk.run and other.body.agent != call.body.agent
            for other in models[self._next :]
            if other.chunk.position < call.chunk.position
        )

    def tool(self, name: str, arguments: Mapping[str, Any] | None, call_id: str | None) -> tuple[Any, Verdict]:
        """Find a tool call, and ask what becomes of it; what it should raise is raised by the next model call."""
        given = dict(arguments or {})
        found = self.tape.find_tool(name, given, call_id)
        missing = isinstance(found, Divergence)
        try:
            verdict = self.core.ask(
                "tool", name, chunk=None if missing else found.chunk, arguments=given, expected=found if missing else None
            )  # fmt: skip
        except RathError as error:
            self._failed = error
            verdict = Verdict("error", error=str(error))
        return found, verdict

    def other(self, kind: Any, name: str, found: Any) -> Verdict:
        """Ask what becomes of a person's answer or of code that is to run."""
        missing = isinstance(found, Divergence)
        return self.core.ask(kind, name, chunk=None if missing else found[1], expected=found if missing else None)


def _player() -> AutoGenPlayer | None:
    tape = current_tape()
    return None if tape is None else tape.player("autogen")


def _loaded(original: Callable[..., Any], cls: type[Any], **options: Any) -> None:
    original(cls, **options)
    player = _player()
    if player is not None:
        player.cover(cls)


@contextmanager
def _live(mark: Any) -> Generator[None]:
    token = _open.set((*_open.get(), mark))
    try:
        yield
    finally:
        with suppress(ValueError):  # a generator that was closed elsewhere
            _open.reset(token)


# -------------------------------------------------------------------- models


def _asked(client: Any, messages: Sequence[Any], options: Mapping[str, Any]) -> tuple[Any, Verdict, Sequence[Any]]:
    player = cast(AutoGenPlayer, _player())
    request = asking(
        options.get("tools") or (), options.get("tool_choice", "auto"), options.get("json_output"), options.get("extra_create_args")
    )  # fmt: skip
    run = current_run()
    found, verdict = player.model(messages, request, asker(run.name if run else None))
    return found, verdict, messages if verdict.prompt is None else _with_prompt(messages, verdict.prompt)


def _passes(mark: Any) -> bool:
    return _player() is None or mark in _open.get()


async def _create(original: Callable[..., Any], client: Any, messages: Sequence[Any], **options: Any) -> CreateResult:
    mark = ("model", id(client))
    if _passes(mark):
        return await original(client, messages, **options)
    found, verdict, messages = _asked(client, messages, options)
    if verdict.action == "serve":
        await cast(AutoGenPlayer, _player()).turn(found)
        return answer(found)
    if verdict.action == "value":
        return _made_up(verdict.value)
    with _live(mark):
        if verdict.value is not None:
            return await verdict.value.create(messages, **options)
        return await original(client, messages, **options)


async def _create_stream(
    original: Callable[..., Any], client: Any, messages: Sequence[Any], **options: Any
) -> AsyncGenerator[Any, None]:
    mark = ("model", id(client))
    if _passes(mark):
        stream = original(client, messages, **options)
    else:
        found, verdict, messages = _asked(client, messages, options)
        if verdict.action == "serve":
            await cast(AutoGenPlayer, _player()).turn(found)
            for piece in streamed(found):
                yield piece
            yield answer(found)
            return
        if verdict.action == "value":
            yield _made_up(verdict.value)
            return
        live = verdict.value
        stream = original(client, messages, **options) if live is None else live.create_stream(messages, **options)
    async for item in _under(mark, stream):
        yield item


async def _under(mark: Any, stream: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    """Pass a live stream on; what it calls is a part of it, what its reader does between two items is not."""
    try:
        while True:
            with _live(mark):
                try:
                    item = await anext(stream)
                except StopAsyncIteration:
                    return
            yield item
    finally:
        await stream.aclose()


def _made_up(value: Any) -> CreateResult:
    """An answer that was given by an override: a text, or parts as they stand in ``inference.output``."""
    usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
    if isinstance(value, str):
        return CreateResult(finish_reason="stop", content=value, usage=usage, cached=False)
    parts = cast("Sequence[Mapping[str, Any]]", value)
    thought = "\n".join(str(part["content"]) for part in parts if part["type"] == "reasoning") or None
    calls = [
        FunctionCall(id=str(part["id"]), name=str(part["name"]), arguments=_text(part["arguments"]))
        for part in parts
        if part["type"] == "tool_call"
    ]
    said = "".join(str(part["content"]) for part in parts if part["type"] == "text")
    return CreateResult(
        finish_reason="function_calls" if calls else "stop", content=calls or said, usage=usage, cached=False, thought=thought
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _with_prompt(messages: Sequence[Any], prompt: Any) -> list[Any]:
    """The messages with other instructions: in place of the system message, or in front."""
    old: Any = next((message.content for message in messages if isinstance(message, SystemMessage)), None)
    text: Any = prompt(old) if callable(prompt) else prompt
    new = SystemMessage(content=text)
    return [new, *(message for message in messages if not isinstance(message, SystemMessage))]


# -------------------------------------------------------------------- tools


async def _call_tool(
    original: Callable[..., Any],
    bench: Any,
    name: str,
    arguments: Mapping[str, Any] | None = None,
    cancellation_token: Any = None,
    call_id: str | None = None,
    **options: Any,
) -> ToolResult:
    mark = ("tool", name, call_id)
    if not _passes(mark) and not _goes_to_the_wire(bench, name, arguments, call_id):
        found, verdict = cast(AutoGenPlayer, _player()).tool(name, arguments, call_id)
        if verdict.action != "live":
            return _result(name, found, verdict)
    with _live(mark):
        return await original(bench, name, arguments, cancellation_token, call_id, **options)


async def _call_tool_stream(
    original: Callable[..., Any],
    bench: Any,
    name: str,
    arguments: Mapping[str, Any] | None = None,
    cancellation_token: Any = None,
    call_id: str | None = None,
    **options: Any,
) -> AsyncGenerator[Any, None]:
    mark = ("tool", name, call_id)
    if not _passes(mark) and not _goes_to_the_wire(bench, name, arguments, call_id):
        found, verdict = cast(AutoGenPlayer, _player()).tool(name, arguments, call_id)
        if verdict.action != "live" and not (verdict.action == "serve" and await _runs_inside(bench, name)):
            for message in shown(found if verdict.action == "serve" else None):
                yield message
            yield _result(name, found, verdict)
            return
    async for item in _under(mark, original(bench, name, arguments, cancellation_token, call_id, **options)):
        yield item


def _result(name: str, found: Any, verdict: Verdict) -> ToolResult:
    if verdict.action == "serve":
        return tool_result(name, found.content, failed=found.is_error)
    if verdict.action == "error":
        return tool_result(name, str(verdict.error), failed=True)
    return tool_result(name, _text(verdict.value), failed=False)


async def _run_json(
    original: Callable[..., Any], tool: Any, args: Mapping[str, Any], cancellation_token: Any, call_id: str | None = None
) -> Any:
    """A tool that is called beside every workbench: a handoff, or a tool in code of the user's own."""
    mark = ("tool", tool.name, call_id)
    if not _passes(mark):
        found, verdict = cast(AutoGenPlayer, _player()).tool(tool.name, args, call_id)
        if verdict.action == "serve":
            return found.content
        if verdict.action != "live":
            return verdict.error if verdict.action == "error" else verdict.value
    with _live(mark):
        return await original(tool, args, cancellation_token, call_id)


async def _list_tools(original: Callable[..., Any], bench: Any) -> list[Any]:
    """What a server offered: what the model was offered then, handoffs apart."""
    player, run = _player(), current_run()
    if player is None or _served_by_wire():
        return await original(bench)
    offered = player.tape.schemas(asker(run.name if run else None) or "") or ()
    return [schema for schema in offered if not str(schema["name"]).startswith("transfer_to_")]


async def _nothing(original: Callable[..., Any], bench: Any) -> None:
    """A server is neither started nor stopped."""
    if _player() is None or _served_by_wire():
        await original(bench)


def _served_by_wire() -> bool:
    """Tell whether MCP answers by itself: the record holds its frames."""
    tape = current_tape()
    return bool(getattr(tape.player("mcp") if tape is not None else None, "on_wire", False))


def _goes_to_the_wire(bench: Any, name: str, arguments: Mapping[str, Any] | None, call_id: str | None) -> bool:
    """Tell whether a call is answered on the wire; what AutoGen has on record of it, too, is passed over."""
    if not _served_by_wire() or not type(bench).__module__.startswith("autogen_ext.tools.mcp"):
        return False
    cast(AutoGenPlayer, _player()).tape.find_tool(name, dict(arguments or {}), call_id)
    return True


async def _runs_inside(bench: Any, name: str) -> bool:
    """Tell whether a tool is an agent or a team every model of which is on record: it runs, and they answer."""
    tool = next((one for one in getattr(bench, "_tools", ()) if one.name == name), None)
    if not isinstance(tool, TaskRunnerTool):
        return False
    stack: list[Any] = [tool._task_runner]  # pyright: ignore[reportPrivateUsage]
    clients: list[Any] = []
    while stack:
        one = stack.pop()
        team = members(one)
        stack.extend(team)
        if team:
            clients.append(getattr(await manager(one), "_model_client", None))
        else:
            stack.extend(inner for inner in (wrapped(one), getattr(one, "_team", None)) if inner is not None)
            clients.append(getattr(one, "_model_client", None))
    return all(client is None or isinstance(client, RecordingChatCompletionClient) for client in clients)


# -------------------------------------------------------------------- people, code, memory


async def _get_input(original: Callable[..., Any], agent: Any, prompt: str, cancellation_token: Any) -> str:
    player = cast(AutoGenPlayer, _player())
    found = player.tape.find_said(agent.name)
    verdict = player.other("input", agent.name, found)
    if verdict.action == "live":
        return await original(agent, prompt, cancellation_token)
    return cast("tuple[str, Digest]", found)[0] if verdict.action == "serve" else _text(verdict.value)


async def _execute_code_block(
    original: Callable[..., Any], agent: Any, code_blocks: list[Any], cancellation_token: Any
) -> CodeResult:
    player = cast(AutoGenPlayer, _player())
    found = player.tape.find_ran(agent.name)
    verdict = player.other("code", agent.name, found)
    if verdict.action == "live":
        return await original(agent, code_blocks, cancellation_token)
    if verdict.action != "serve":
        return CodeResult(exit_code=0, output=_text(verdict.value))
    result = cast("tuple[Mapping[str, Any], Digest]", found)[0]
    return CodeResult(exit_code=int(result["exit_code"]), output=str(result["output"]))


async def _recalled(original: Callable[..., Any], memory: Any, *_: Any, **__: Any) -> Any:
    """A memory that lives elsewhere: how it changes a context is its own, so nothing on record can stand for it."""
    name = type(memory).__name__
    told = Divergence(f"memory {name}", "a question to it", "no answer of it: only a ListMemory answers again by itself")
    raise ReplayDivergenceError(cast(AutoGenPlayer, _player()).core.miss(told))


_METHODS: Final[Mapping[str, Callable[..., Any]]] = {
    "create": _create, "create_stream": _create_stream, "call_tool": _call_tool, "call_tool_stream": _call_tool_stream,
    "list_tools": _list_tools, "start": _nothing, "stop": _nothing, "run_json": _run_json, "update_context": _recalled,
    "query": _recalled,
}  # fmt: skip
_OF: Final[Mapping[str, type[Any]]] = {
    "create": ChatCompletionClient, "create_stream": ChatCompletionClient, "run_json": BaseTool, "update_context": Memory,
    "query": Memory,
} | dict.fromkeys(("call_tool", "call_tool_stream", "list_tools", "start", "stop"), Workbench)  # fmt: skip
