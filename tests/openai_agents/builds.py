"""Agents for replays: every kind of run, with all that it really does noted in ``RAN``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agents import (
    Agent,
    ApplyPatchTool,
    AsyncComputer,
    ComputerTool,
    CustomTool,
    GuardrailFunctionOutput,
    ModelSettings,
    ShellCallOutcome,
    ShellCommandOutput,
    ShellResult,
    ShellTool,
    ToolGuardrailFunctionOutput,
    ToolOutputText,
    function_tool,
    handoff,
    input_guardrail,
    output_guardrail,
    tool_input_guardrail,
)
from agents.editor import ApplyPatchResult
from agents.mcp import MCPServer
from mcp.types import CallToolResult, TextContent
from mcp.types import Tool as McpTool
from openai.types.responses import (
    ResponseApplyPatchToolCall,
    ResponseComputerToolCall,
    ResponseCustomToolCall,
    ResponseFunctionShellToolCall,
)
from pydantic import BaseModel, TypeAdapter

import rath_bridge as rb
from rath_openai_agents import RecordingModel
from tests.openai_agents import own_double
from tests.openai_agents.doubles import ModelStep, ScriptedModel
from tests.openai_agents.scripted import call, say, step

RAN: list[str] = []
"""What was really run."""


@function_tool
def weather(city: str) -> str:
    RAN.append(f"weather {city}")
    return f"sunny in {city}"


@function_tool
def lookup(key: str) -> dict[str, str]:
    RAN.append(f"lookup {key}")
    return {"key": key}


@function_tool
def show() -> list[ToolOutputText]:
    RAN.append("show")
    return [ToolOutputText(text="a"), ToolOutputText(text="b")]


@function_tool
def fails() -> str:
    RAN.append("fails")
    raise ValueError("broken")


@tool_input_guardrail
def not_there(data: Any) -> ToolGuardrailFunctionOutput:
    RAN.append("tool guardrail")
    return ToolGuardrailFunctionOutput.reject_content("not there")


@function_tool(tool_input_guardrails=[not_there])
def guarded(city: str) -> str:
    RAN.append("guarded")
    return city


@input_guardrail
async def polite(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
    RAN.append("input guardrail")
    text = given if isinstance(given, str) else given[-1]["content"]
    return GuardrailFunctionOutput(output_info={"checked": text}, tripwire_triggered="SECRET" in str(given))


@output_guardrail
async def short(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
    RAN.append("output guardrail")
    return GuardrailFunctionOutput(output_info=["length", len(str(output))], tripwire_triggered="LONG" in str(output))


class Adder(MCPServer):
    """A server whose every use is noted."""

    def __init__(self) -> None:
        super().__init__(use_structured_content=False)

    @property
    def name(self) -> str:
        return "adder"

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[McpTool]:
        RAN.append("list_tools")
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
        return [McpTool(name="add", description="Add.", inputSchema=schema)]

    async def call_tool(self, tool_name: str, arguments: Any, meta: Any = None) -> CallToolResult:
        RAN.append("call_tool")
        return CallToolResult(content=[TextContent(type="text", text="42")])

    async def list_prompts(self) -> Any: ...

    async def get_prompt(self, name: str, arguments: Any = None) -> Any: ...


class City(BaseModel):
    name: str


Model = Callable[[list[Any]], Any]


def texts(model: Model) -> Agent[Any]:
    return Agent(name="Solo", instructions="be brief", model=model([say("hello")]))


def tools(model: Model) -> Agent[Any]:
    steps = [
        step(call("weather", {"city": "Oslo"}, "c1"), call("weather", {"city": "Oslo"}, "c2"), call("lookup", {"key": "k"}, "c3")),
        step(call("show", {}, "c4"), call("fails", {}, "c5"), call("guarded", {"city": "x"}, "c6")),
        say("done"),
    ]  # fmt: skip
    return Agent(name="Solo", model=model(steps), tools=[weather, lookup, show, fails, guarded])


def handed_off(model: Model) -> Agent[Any]:
    billing = Agent(name="Billing", model=model([say("billed")]), tools=[weather])
    first = Agent(name="Front", model=model([step(call("transfer_to_billing", {}, "h1"))]))
    first.handoffs = [handoff(billing, on_handoff=lambda context: RAN.append("on_handoff"))]
    KEPT.append(billing)
    return first


KEPT: list[Any] = []
"""A handoff holds its agent weakly."""


def agent_as_tool(model: Model) -> Agent[Any]:
    helped = say("helped")
    helped.output[0].id = "msg_helped"  # type: ignore[union-attr]
    helper = Agent(name="Helper", model=model([step(call("weather", {"city": "Rome"}, "n1")), helped]), tools=[weather])
    steps = [step(call("help", {"input": "please"}, "c1")), say("done")]
    return Agent(name="Solo", model=model(steps), tools=[helper.as_tool("help", "Helps.")])


def checked(model: Model) -> Agent[Any]:
    return Agent(name="Solo", model=model([say("fine")]), input_guardrails=[polite], output_guardrails=[short])


def served(model: Model) -> Agent[Any]:
    return Agent(name="Solo", model=model([step(call("add", {"a": 1}, "m1")), say("42")]), mcp_servers=[Adder()], tools=[weather])


def structured(model: Model) -> Agent[Any]:
    return Agent(
        name="Solo", model=model([say('{"name":"Oslo"}')]), output_type=City, model_settings=ModelSettings(temperature=0.5)
    )


def stops_at_tool(model: Model) -> Agent[Any]:
    return Agent(
        name="Solo", model=model([step(call("weather", {"city": "Oslo"}, "c1"))]), tools=[weather],
        tool_use_behavior="stop_on_first_tool",
    )  # fmt: skip


# ------------------------------------------------------------------ the SDK's own tools


def run_shell(request: Any) -> ShellResult:
    RAN.append("shell")
    outputs = [
        ShellCommandOutput(stdout=f"ran {one}", outcome=ShellCallOutcome("exit", 0)) for one in request.data.action.commands
    ]
    return ShellResult(output=outputs)


def run_local(request: Any) -> str:
    RAN.append("local shell")
    return "file.txt"


class Editor:
    """Notes every operation."""

    def create_file(self, operation: Any) -> ApplyPatchResult:
        RAN.append(f"create {operation.path}")
        return ApplyPatchResult(output=f"created {operation.path}")

    def update_file(self, operation: Any) -> ApplyPatchResult:
        RAN.append(f"update {operation.path}")
        return ApplyPatchResult(status="failed", output="no such line")

    def delete_file(self, operation: Any) -> None:
        RAN.append(f"delete {operation.path}")


class Screen(AsyncComputer):
    """Notes every action."""

    def __init__(self) -> None:
        self.shown = 0

    async def screenshot(self) -> str:
        RAN.append("screenshot")
        self.shown += 1
        return f"c2NyZWVu{self.shown}"

    async def click(self, x: int, y: int, button: Any) -> None:
        RAN.append(f"click {x} {y}")

    async def double_click(self, x: int, y: int) -> None:
        RAN.append(f"double click {x} {y}")

    async def scroll(self, x: int, y: int, scroll_x: int, scroll_y: int) -> None:
        RAN.append(f"scroll {x} {y} {scroll_x} {scroll_y}")

    async def type(self, text: str) -> None:
        RAN.append(f"type {text}")

    async def wait(self) -> None:
        RAN.append("wait")

    async def move(self, x: int, y: int) -> None:
        RAN.append(f"move {x} {y}")

    async def keypress(self, keys: list[str]) -> None:
        RAN.append(f"keys {keys}")

    async def drag(self, path: list[tuple[int, int]]) -> None:
        RAN.append(f"drag {path}")


async def sing(context: Any, given: str) -> str:
    RAN.append("sing")
    return f"la {given}"


def _shell_call(call_id: str, *commands: str) -> Any:
    action = {"commands": list(commands), "timeout_ms": None, "max_output_length": None}
    data = {"id": f"sh_{call_id}", "call_id": call_id, "type": "shell_call", "status": "completed", "action": action}
    return TypeAdapter(ResponseFunctionShellToolCall).validate_python(data)


def _patch_call(call_id: str, kind: str, path: str, diff: str | None = None) -> Any:
    operation = {"type": kind, "path": path, **({"diff": diff} if diff is not None else {})}
    data = {"id": f"ap_{call_id}", "call_id": call_id, "type": "apply_patch_call", "status": "completed", "operation": operation}
    return TypeAdapter(ResponseApplyPatchToolCall).validate_python(data)


def _click(call_id: str, x: int) -> Any:
    data = {
        "id": f"cu_{call_id}", "call_id": call_id, "type": "computer_call", "status": "completed", "pending_safety_checks": [],
        "action": {"type": "click", "x": x, "y": 2, "button": "left"},
    }  # fmt: skip
    return TypeAdapter(ResponseComputerToolCall).validate_python(data)


GESTURES: list[dict[str, Any]] = [
    {"type": "move", "x": 1, "y": 2},
    {"type": "drag", "path": [{"x": 1, "y": 2}, {"x": 30, "y": 40}]},
    {"type": "scroll", "x": 5, "y": 6, "scroll_x": 0, "scroll_y": 70, "keys": ["SHIFT"]},
    {"type": "double_click", "x": 8, "y": 9, "keys": None},
    {"type": "keypress", "keys": ["CTRL", "A"]},
    {"type": "type", "text": "hello"},
    {"type": "wait"},
]
"""What can be done to a computer beside a click."""


def _gestures(call_id: str, *actions: dict[str, Any]) -> Any:
    data = {
        "id": f"cu_{call_id}", "call_id": call_id, "type": "computer_call", "status": "completed", "pending_safety_checks": [],
        "actions": list(actions),
    }  # fmt: skip
    return TypeAdapter(ResponseComputerToolCall).validate_python(data)


def _patches_call(call_id: str, *operations: dict[str, Any]) -> Any:
    """A call of several operations, as models give it that call the tool as a function."""
    data = {
        "id": f"ap_{call_id}", "call_id": call_id, "type": "apply_patch_call", "status": "completed", "operation": operations[0],
        "operations": list(operations),
    }  # fmt: skip
    return TypeAdapter(ResponseApplyPatchToolCall).validate_python(data)


def shells(model: Model) -> Agent[Any]:
    steps = [step(_shell_call("s1", "ls", "pwd"), _shell_call("s2", "ls")), say("done")]
    return Agent(name="Solo", model=model(steps), tools=[ShellTool(executor=run_shell)])


def patches(model: Model) -> Agent[Any]:
    first = [_patch_call("p1", "create_file", "a.txt", "+a"), _patch_call("p2", "delete_file", "b.txt")]
    steps = [step(*first), step(_patch_call("p3", "update_file", "c.txt", "-x")), say("done")]
    return Agent(name="Solo", model=model(steps), tools=[ApplyPatchTool(editor=Editor())])


def computers(model: Model) -> Agent[Any]:
    steps = [step(_click("u1", 1)), step(_click("u2", 7)), say("done")]
    return Agent(name="Solo", model=model(steps), tools=[ComputerTool(computer=Screen())])


def gestures(model: Model) -> Agent[Any]:
    """All of them in one call, then each alone, then a call that ends with a screenshot of its own."""
    alone = [step(_gestures(f"u{n}", action)) for n, action in enumerate(GESTURES, 2)]
    steps = [step(_gestures("u1", *GESTURES)), *alone, step(_gestures("u9", GESTURES[0], {"type": "screenshot"})), say("done")]
    return Agent(name="Solo", model=model(steps), tools=[ComputerTool(computer=Screen())])


def patches_at_once(model: Model) -> Agent[Any]:
    """Three operations in one call, of which the second fails; then two more, with a move."""
    first = [
        {"type": "create_file", "path": "a.txt", "diff": "+a"}, {"type": "update_file", "path": "b.txt", "diff": "-b"},
        {"type": "delete_file", "path": "c.txt"},
    ]  # fmt: skip
    second = [
        {"type": "create_file", "path": "a.txt", "diff": "+a"},
        {"type": "create_file", "path": "d", "diff": "+d", "move_to": "e"},
    ]
    steps = [step(_patches_call("p1", *first)), step(_patches_call("p2", *second)), say("done")]
    return Agent(name="Solo", model=model(steps), tools=[ApplyPatchTool(editor=Editor())])


def customs(model: Model) -> Agent[Any]:
    asked = ResponseCustomToolCall(id="cc_1", call_id="k1", type="custom_tool_call", name="sing", input="low")
    return Agent(name="Solo", model=model([step(asked), say("done")]), tools=[CustomTool("sing", "Sings.", sing)])


RUNS = [
    texts, tools, handed_off, agent_as_tool, checked, served, structured, stops_at_tool, shells, patches, patches_at_once, computers,
    gestures, customs,
]  # fmt: skip


def scripted(store: rb.Store) -> Model:
    return lambda steps: RecordingModel(real(steps), store)


def real(steps: list[Any]) -> Any:
    """A scripted model: ours where the SDK's cannot stream an item."""
    known = {"function_call", "message"}
    odd = any(item.type not in known for one in steps if isinstance(one, ModelStep) for item in one.output)
    made: Any = own_double.ScriptedModel if odd else ScriptedModel
    return made(
        [own_double.ModelStep(one.output, one.usage, one.response_id) for one in steps] if odd else steps, emit_traces=True
    )


def unused(steps: list[Any]) -> Any:
    return ScriptedModel([RuntimeError("a model was asked")])
