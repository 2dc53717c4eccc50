"""A plain script: it opens its own store, wraps its agent, runs it and prints. The CLI's tests replay it."""

from __future__ import annotations

import asyncio
import os
import sys

from agents import Agent, function_tool
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

import rath_bridge as rb
from rath_openai_agents import wrap


@function_tool
def weather(city: str) -> str:
    """Tell the weather."""
    with open(os.environ["RAN"], "a") as file:
        file.write(f"{city}\n")
    return f"sunny in {city}"


def main() -> None:
    store = rb.open_store(os.environ["STORE"])
    script = [
        ModelStep(
            output=[function_call("weather", {"city": os.environ.get("CITY", "Oslo")}, call_id=os.environ.get("CALL", "c1"))]
        ),
        ModelStep(output=[assistant_message(os.environ.get("ANSWER", "It is sunny."))]),
    ]
    if os.environ.get("SKIP"):
        del script[: int(os.environ["SKIP"])]
    agent = Agent(name="Solo", instructions="be brief", model=ScriptedModel(script), tools=[weather])
    result = asyncio.run(wrap(agent, store, session="ticket").run(" ".join(sys.argv[1:]) or "hi"))
    print(result.final_output)  # noqa: T201
    store.close()


if __name__ == "__main__":
    main()
