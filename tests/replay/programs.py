"""A plain program over the OpenAI Agents SDK that records itself, as a user has one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agents import Agent, Runner, function_tool
from agents.testing import ScriptedModel

import rath_bridge as rb
from rath_openai_agents import RathRunHooks, RecordingModel
from tests.openai_agents.scripted import call, say, step

RAN: list[str] = []
"""What was really run."""


@function_tool
def weather(city: str) -> str:
    """Tell the weather."""
    RAN.append(f"weather {city}")
    return f"sunny in {city}"


@function_tool
def refund(order: str) -> str:
    """Pay back."""
    RAN.append(f"refund {order}")
    return f"refunded {order}"


def steps() -> list[Any]:
    """Ask for the weather, then pay back, then answer."""
    return [
        step(call("weather", {"city": "Oslo"}, "c1")),
        step(call("refund", {"order": "A-1"}, "c2")),
        say("It is sunny, and A-1 is refunded."),
    ]


def never() -> ScriptedModel:
    return ScriptedModel([RuntimeError("a model was asked")])


def scripted(*more: Any) -> ScriptedModel:
    return ScriptedModel(list(more))


def program(
    store: rb.Store, model: Any, said: str = "hi", tools: Sequence[Any] = (weather, refund), **fields: Any
) -> Callable[[], Any]:
    async def run() -> Any:
        with rb.record(store, "ticket"):
            options: dict[str, Any] = {"instructions": "be brief", "tools": list(tools), **fields}
            solo = Agent(name="Solo", model=RecordingModel(model, store), **options)
            return (await Runner.run(solo, said, hooks=RathRunHooks(store))).final_output

    return run


async def recorded(store: rb.Store, model: Any = None) -> rb.Session:
    await program(store, model or ScriptedModel(steps()))()
    RAN.clear()
    return store.session("ticket")


def at(session: rb.Session, kind: str, name: str | None = None) -> Any:
    """The first chunk of a kind (and name)."""
    return next(c for c in session if c.kind == kind and (name is None or getattr(c.body, "name", None) == name))


def state(store: rb.Store) -> Any:
    return store.backend.refs(), sum(len(s) for s in store.sessions())
