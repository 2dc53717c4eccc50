"""Tools that answer from the record instead of running: functions, custom tools, shells, editors, computers (law 5).

A shell, an editor or a computer does nothing to the machine. What the SDK makes of a recorded answer is the same item again.
"""

from __future__ import annotations

import builtins
import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from agents import (
    AsyncComputer,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
    exceptions,
)
from agents.editor import ApplyPatchResult
from agents.exceptions import AgentsException
from agents.tool import ShellCallOutcome, ShellCommandOutput, ShellResult
from agents.tracing import get_current_span

from rath_bridge.errors import RathError
from rath_bridge.replay.raising import raised_again
from rath_openai_agents.items import NATIVE, Told, parse, plain, table
from rath_openai_agents.reading import Answer, operation_of

_ENDED: Final = "it did not end"
_STRUCTURED: Final = ("text", "image", "file")
"""Types of the maps that the SDK takes for structured output (``ToolOutputTextDict`` ...)."""


class RecordedError(RathError, AgentsException):
    """What was asked for failed when it was recorded, with these words; a replay fails in the same place."""

    def __init__(self, error: str) -> None:
        self.error = error
        AgentsException.__init__(self, error)


def recorded_error(error: str, facts: Any = None) -> Exception:
    """Return an error as it was recorded, of the class that it had; where that is not at hand, one of the same name.

    Args:
        error: ``RuntimeError: the provider is down``.
        facts: What else was kept of it.
    """
    found = raised_again(facts, error) if facts else None
    if found is not None:
        return found
    name, colon, words = error.partition(": ")
    if not colon or not name.isidentifier():
        return RecordedError(error)
    known = getattr(builtins, name, None) or getattr(exceptions, name, None)
    bases: tuple[type[Any], ...] = (RecordedError,)
    if isinstance(known, type) and issubclass(known, Exception) and not issubclass(RecordedError, known):
        bases = (RecordedError, known)
    elif not facts:
        raised_again(None, error)  # the report tells that the class is not at hand
    try:
        made: Any = type(name, bases, {"__init__": RecordedError.__init__})
        return made(words)
    except TypeError:  # some builtin errors cannot be mixed
        return cast("RecordedError", cast(Any, type(name, (RecordedError,), {}))(words))


@dataclass(frozen=True, slots=True)
class Given:
    """What becomes of a call: the recorded answer, another value, an error for the model, or (``live``) the tool itself."""

    action: Literal["serve", "value", "error", "live"]
    answer: Answer | None = None
    value: Any = None

    def output(self) -> Any:
        """Return what makes the SDK tell the model the same again."""
        if self.action != "serve" or self.answer is None:
            return self.value
        answer = self.answer
        if not answer.exact and answer.result_missing:
            raise recorded_error(answer.error or _ENDED, answer.exception)
        if isinstance(answer.output, str) and answer.text is not None and not isinstance(answer.text, str):
            found = Told(answer.output)
            found.result = answer.text
            return found
        return answer.output


Ask = Callable[[str, str | None, Any], Given]
"""(tool name, call id where the SDK tells it, arguments) -> what becomes of the call. Raises where the record does not hold it."""


def answering(tool: Any, ask: Ask, rejected: Callable[[str], bool]) -> Any:
    """Return a tool that asks before it runs; hosted tools run at the provider, whose replies are replayed.

    Args:
        tool: As the agent has it.
        ask: What becomes of a call.
        rejected: Tells of a call id whether a guardrail of the tool kept it from running then: it is kept from it again.
    """
    again = copy.copy(tool)
    if hasattr(tool, "on_invoke_tool"):
        again.on_invoke_tool = function(tool.name, ask, tool.on_invoke_tool)
        for name in ("tool_input_guardrails", "tool_output_guardrails", "custom_data_extractor", "timeout_seconds"):
            if getattr(again, name, None):
                setattr(again, name, None)
        if getattr(tool, "tool_input_guardrails", None):
            again.tool_input_guardrails = [
                ToolInputGuardrail(guardrail_function=_rejecting(tool.name, ask, rejected), name="recorded")
            ]
    elif getattr(tool, "executor", None) is not None:
        again.executor = _shell(
            NATIVE["local_shell_call" if type(tool).__name__ == "LocalShellTool" else "shell_call"], ask, tool.executor
        )
    elif getattr(tool, "editor", None) is not None:
        again.editor = _Editor(ask, tool.editor)
    elif getattr(tool, "computer", None) is not None:
        again.computer = _Computer(ask, tool.computer)
    return again


# ------------------------------------------------------------------ functions


def function(name: str, ask: Ask, live: Callable[..., Any]) -> Callable[[Any, str], Any]:
    """Return ``on_invoke_tool`` of a tool that answers from the record."""

    async def invoke(context: Any, arguments: str) -> Any:
        given = ask(name, str(getattr(context, "tool_call_id", "")), parse(arguments))
        if given.action == "live":
            return await _awaited(live(context, arguments))
        found = given.output()
        if given.answer is not None and given.answer.status == "error" and given.answer.error is not None:
            span = get_current_span()  # a failure that a tool's own function put into words shows in its span alone
            if span is not None:
                span.set_error({"message": given.answer.error, "data": None})
        if given.answer is not None and given.answer.exact and isinstance(found, list):
            gave = given.answer.text
            if all(
                table(one).get("type") in _STRUCTURED for one in (cast("list[Any]", gave) if isinstance(gave, list) else [gave])
            ):
                return cast(Any, gave)  # as MCP servers do: hooks see the tool's own form
            return [_part(part) for part in cast("list[Mapping[str, Any]]", found)]
        return found

    return invoke


def _rejecting(name: str, ask: Ask, rejected: Callable[[str], bool]) -> Callable[[Any], Any]:
    def decide(data: Any) -> ToolGuardrailFunctionOutput:
        call_id = str(data.context.tool_call_id)
        if not rejected(call_id):
            return ToolGuardrailFunctionOutput.allow()
        given = ask(name, call_id, parse(data.context.tool_arguments))
        return ToolGuardrailFunctionOutput.reject_content(str(given.output()))

    return decide


def _part(part: Mapping[str, Any]) -> Any:
    fields = {name: value for name, value in part.items() if name != "type"}
    kinds: Mapping[str, Any] = {"input_text": ToolOutputText, "input_image": ToolOutputImage, "input_file": ToolOutputFileContent}
    made = kinds.get(str(part.get("type")))
    return part if made is None else made(**fields)


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


# ------------------------------------------------------------------ the SDK's own tools


def _shell(name: str, ask: Ask, live: Callable[..., Any]) -> Callable[[Any], Any]:
    async def execute(request: Any) -> Any:
        data = request.data
        given = ask(name, str(data.call_id), plain(_fields(data.action)))
        if given.action == "live":
            return await _awaited(live(request))
        found = given.output()
        if not isinstance(found, list):
            return found
        outputs = [_command(table(one)) for one in cast("list[Any]", found)]
        text = given.answer.text if given.answer is not None else None
        if isinstance(text, str) and [one.stdout for one in outputs] == [text] and not outputs[0].stderr:
            if outputs[0].exit_code:  # it raised
                raise RecordedError(text)
            return text
        limit: Any = given.answer.item.get("max_output_length") if given.answer is not None else None
        return ShellResult(output=outputs, max_output_length=limit)

    return execute


def _command(one: Mapping[str, Any]) -> ShellCommandOutput:
    outcome = table(one.get("outcome"))
    kind: Any = outcome.get("type") or "exit"
    return ShellCommandOutput(
        stdout=str(one.get("stdout", "")),
        stderr=str(one.get("stderr", "")),
        outcome=ShellCallOutcome(kind, outcome.get("exit_code")),
    )


def _fields(action: Any) -> Any:
    return action if hasattr(action, "model_dump") else getattr(action, "__dict__", str(action))


class _Editor:
    """Stands in for an editor. One call may bring several operations: the first gives the whole recorded answer."""

    def __init__(self, ask: Ask, live: Any) -> None:
        self._ask, self._live = ask, live

    async def create_file(self, operation: Any) -> Any:
        return await self._done("create_file", operation)

    async def update_file(self, operation: Any) -> Any:
        return await self._done("update_file", operation)

    async def delete_file(self, operation: Any) -> Any:
        return await self._done("delete_file", operation)

    async def _done(self, kind: str, operation: Any) -> Any:
        told = operation_of(lambda name: kind if name == "type" else getattr(operation, name, None))
        given = self._ask(NATIVE["apply_patch_call"], None, told)
        if given.action == "live":
            return await _awaited(getattr(self._live, kind)(operation))
        found = given.output()
        status: Any = given.answer.item.get("status") if given.answer is not None else None
        return ApplyPatchResult(status=status or "completed", output=None if found is None else str(found))


class _Computer(AsyncComputer):
    """Stands in for a computer: what is done to it is compared with the record, and the screen shows what it showed."""

    def __init__(self, ask: Ask, live: Any) -> None:
        self._ask, self._live = ask, live

    @property
    def environment(self) -> Any:
        return self._live.environment

    @property
    def dimensions(self) -> Any:
        return self._live.dimensions

    async def screenshot(self) -> str:
        found = await self._act("screenshot")
        image = found if isinstance(found, str) else str(table(found).get("image_url", ""))
        return image.partition(";base64,")[2] or image

    async def click(self, x: int, y: int, button: Any, **keys: Any) -> None:
        await self._act("click", x, y, button, **keys)

    async def double_click(self, x: int, y: int, **keys: Any) -> None:
        await self._act("double_click", x, y, **keys)

    async def scroll(self, x: int, y: int, scroll_x: int, scroll_y: int, **keys: Any) -> None:
        await self._act("scroll", x, y, scroll_x, scroll_y, **keys)

    async def type(self, text: str) -> None:
        await self._act("type", text)

    async def wait(self) -> None:
        await self._act("wait")

    async def move(self, x: int, y: int, **keys: Any) -> None:
        await self._act("move", x, y, **keys)

    async def keypress(self, keys: list[str]) -> None:
        await self._act("keypress", keys)

    async def drag(self, path: list[tuple[int, int]], **keys: Any) -> None:
        await self._act("drag", path, **keys)

    async def _act(self, name: str, *args: Any, **keys: Any) -> Any:
        given = self._ask(NATIVE["computer_call"], None, [name, *map(plain, args)])
        if given.action != "live":
            return given.output()
        live = getattr(self._live, name)
        return await _awaited(live(*args, **{name: value for name, value in keys.items() if _takes(live, name)}))


def _takes(method: Callable[..., Any], name: str) -> bool:
    """Tell whether a driver knows an argument; the SDK passes modifier keys to those that do (source: ``ComputerAction``)."""
    found = inspect.signature(method).parameters.values()
    return any(one.name == name or one.kind is inspect.Parameter.VAR_KEYWORD for one in found)


__all__ = ["Ask", "Given", "RecordedError", "answering", "function", "recorded_error"]
