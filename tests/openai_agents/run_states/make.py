"""Write a paused run as the installed SDK saves it: ``python make.py`` inside an environment with the release that is wanted.

The states beside this file were written by releases 0.8.4, 0.14.8, 0.17.8, 0.20.0 and 0.24.0; each is named by its schema version.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from agents import Agent, ModelResponse, RunConfig, Runner, Usage, function_tool
from agents.models.interface import Model
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText


class Scripted(Model):
    """Gives one output after the other."""

    def __init__(self, *outputs: Any) -> None:
        self.left = list(outputs)

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        usage = Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)
        return ModelResponse(output=[self.left.pop(0)], usage=usage, response_id="resp_1")

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def call(name: str, arguments: Any, call_id: str) -> Any:
    text = json.dumps(arguments)
    return ResponseFunctionToolCall(type="function_call", name=name, arguments=text, call_id=call_id, id=f"fc_{call_id}")


def say(text: str) -> Any:
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(type="message", id="msg_1", role="assistant", status="completed", content=[part])


@function_tool
def look(number: int) -> str:
    """Look an invoice up."""
    return f"invoice {number}"


@function_tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def main() -> None:
    model = Scripted(call("look", {"number": 4711}, "c1"), call("pay", {"amount": 5}, "c2"))
    agent = Agent(name="Payer", instructions="pay", model=model, tools=[look, pay])
    result = await Runner.run(agent, "pay invoice 4711", run_config=RunConfig(group_id="g", tracing_disabled=True))
    state = result.to_state()
    found = state.to_json()
    name = f"v{found['$schemaVersion'].replace('.', '_')}"
    (Path(__file__).parent / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
