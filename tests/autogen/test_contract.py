"""The shared contract, on real runs and on sessions that Hypothesis makes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.teams import RoundRobinGroupChat, Swarm

import rath_autogen
import rath_bridge as rb
from rath_autogen.natives import dump
from rath_bridge.testing import AdapterContract, Sample
from tests.autogen.scripted import asks, client


async def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


def paying(**options: Any) -> AssistantAgent:
    model = client(asks("pay", '{"n": 3}', thought="hm"), "done", "more")
    return AssistantAgent("a", model, tools=[pay], reflect_on_tool_use=True, **options)


async def real() -> list[Sample]:
    one = paying()
    result = await one.run(task="pay 3")
    team = RoundRobinGroupChat([paying()], max_turns=1)
    await team.run(task="pay 3")
    return [
        Sample(result),
        Sample(await one.model_context.get_messages(), "llm_messages"),
        Sample(dict(await one.save_state()), "agent_state"),
        Sample(dict(await team.save_state()), "team_state"),
    ]


class TestAutogen(AdapterContract):
    forms: ClassVar = (None, "llm_messages", "messages", "agent_state")

    def serialised(self, native: Any) -> Any:
        if isinstance(native, TaskResult):
            return {"messages": self.serialised(native.messages), "stop_reason": native.stop_reason}
        if isinstance(native, list):
            return [dump(item) for item in native]
        return native

    @pytest.fixture
    def adapter(self) -> Any:
        return rath_autogen

    @pytest.fixture
    def samples(self) -> list[Sample]:
        return asyncio.run(real())

    @pytest.fixture(params=["agent", "swarm", "team"])
    def continued(self, request: pytest.FixtureRequest) -> Callable[[rb.Session], rb.Session]:
        one = AssistantAgent("a", client("yes", "yes"))
        make: dict[str, Callable[[], Any]] = {
            "agent": lambda: one,
            "swarm": lambda: Swarm([one], max_turns=1),
            "team": lambda: RoundRobinGroupChat([one], max_turns=1),
        }
        return rath_autogen.wrap(make[request.param]())
