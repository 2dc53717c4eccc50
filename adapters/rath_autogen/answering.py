"""What AutoGen's classes do while a replay runs: each of these stands in front of a method, and asks the tape (`rath_autogen.staging`)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, cast

from autogen_agentchat.tools._task_runner_tool import TaskRunnerTool
from autogen_core import FunctionCall
from autogen_core.code_executor import CodeResult
from autogen_core.memory import Memory
from autogen_core.models import ChatCompletionClient, CreateResult, RequestUsage, SystemMessage
from autogen_core.tools import BaseTool, ToolResult, Workbench

from rath_autogen.capture import manager, members, wrapped
from rath_autogen.record import RecordingChatCompletionClient, asker, asking
from rath_autogen.replay import answer, shown, streamed, tool_result
from rath_bridge.model.digests import Digest
from rath_bridge.recorder import current_run
from rath_bridge.replay import Divergence, ReplayDivergenceError, Verdict, current_tape

if TYPE_CHECKING:
    from rath_autogen.staging import AutoGenPlayer

_open: Final[ContextVar[tuple[Any, ...]]] = ContextVar("rath_autogen_open", default=())
"""Calls that are made live in this context: what they call under the same name is a part of them."""


def playing() -> AutoGenPlayer | None:
    """AutoGen's player of the replay that the calling code runs in."""
    tape = current_tape()
    return None if tape is None else tape.player("autogen")


def _now() -> AutoGenPlayer:
    found = playing()
    assert found is not None, "a wrapper asks only where a replay runs"
    return found


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
    player = _now()
    request = asking(
        options.get("tools") or (), options.get("tool_choice", "auto"), options.get("json_output"), options.get("extra_create_args")
    )  # fmt: skip
    run = current_run()
    found, verdict = player.model(messages, request, asker(run.name if run else None))
    return found, verdict, messages if verdict.prompt is None else _with_prompt(messages, verdict.prompt)


def _passes(mark: Any) -> bool:
    return playing() is None or mark in _open.get()


async def _create(original: Callable[..., Any], client: Any, messages: Sequence[Any], **options: Any) -> CreateResult:
    mark = ("model", id(client))
    if _passes(mark):
        return await original(client, messages, **options)
    found, verdict, messages = _asked(client, messages, options)
    if verdict.action == "serve":
        await _now().turn(found)
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
            await _now().turn(found)
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
        found, verdict = _now().tool(name, arguments, call_id)
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
        found, verdict = _now().tool(name, arguments, call_id)
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
        found, verdict = _now().tool(tool.name, args, call_id)
        if verdict.action == "serve":
            return found.content
        if verdict.action != "live":
            return verdict.error if verdict.action == "error" else verdict.value
    with _live(mark):
        return await original(tool, args, cancellation_token, call_id)


async def _list_tools(original: Callable[..., Any], bench: Any) -> list[Any]:
    """What a server offered: what the model was offered then, handoffs apart."""
    player, run = playing(), current_run()
    if player is None or _served_by_wire():
        return await original(bench)
    offered = player.tape.schemas(asker(run.name if run else None) or "") or ()
    return [schema for schema in offered if not str(schema["name"]).startswith("transfer_to_")]


async def _nothing(original: Callable[..., Any], bench: Any) -> None:
    """A server is neither started nor stopped."""
    if playing() is None or _served_by_wire():
        await original(bench)


def _served_by_wire() -> bool:
    """Tell whether MCP answers by itself: the record holds its frames."""
    tape = current_tape()
    return bool(getattr(tape.player("mcp") if tape is not None else None, "on_wire", False))


def _goes_to_the_wire(bench: Any, name: str, arguments: Mapping[str, Any] | None, call_id: str | None) -> bool:
    """Tell whether a call is answered on the wire; what AutoGen has on record of it, too, is passed over."""
    if not _served_by_wire() or not type(bench).__module__.startswith("autogen_ext.tools.mcp"):
        return False
    _now().tape.find_tool(name, dict(arguments or {}), call_id)
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


async def get_input(original: Callable[..., Any], agent: Any, prompt: str, cancellation_token: Any) -> str:
    player = _now()
    found = player.tape.find_said(agent.name)
    verdict = player.other("input", agent.name, found)
    if verdict.action == "live":
        return await original(agent, prompt, cancellation_token)
    return cast("tuple[str, Digest]", found)[0] if verdict.action == "serve" else _text(verdict.value)


async def execute_code_block(
    original: Callable[..., Any], agent: Any, code_blocks: list[Any], cancellation_token: Any
) -> CodeResult:
    player = _now()
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
    raise ReplayDivergenceError(_now().core.miss(told))


METHODS: Final[Mapping[str, Callable[..., Any]]] = {
    "create": _create, "create_stream": _create_stream, "call_tool": _call_tool, "call_tool_stream": _call_tool_stream,
    "list_tools": _list_tools, "start": _nothing, "stop": _nothing, "run_json": _run_json, "update_context": _recalled,
    "query": _recalled,
}  # fmt: skip
"""Name of a method to what stands in front of it."""
OF: Final[Mapping[str, type[Any]]] = {
    "create": ChatCompletionClient, "create_stream": ChatCompletionClient, "run_json": BaseTool, "update_context": Memory,
    "query": Memory,
} | dict.fromkeys(("call_tool", "call_tool_stream", "list_tools", "start", "stop"), Workbench)  # fmt: skip
"""Name of a method to the class whose it is."""
