"""AutoGen: what recording adds to a run whose model answers at once, so that nothing else takes time."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator
from time import perf_counter, process_time
from typing import Any

import rath_bridge as rb
from benchmarks.table import Row, workspace

TURNS = 20
ROUNDS = 12


def _team(recorded: bool) -> Any:
    """Two agents, each turn of which asks for a tool and says 200 characters."""
    from autogen_agentchat.agents import AssistantAgent
    from autogen_agentchat.teams import RoundRobinGroupChat
    from autogen_core import FunctionCall
    from autogen_core.models import CreateResult, ModelInfo, RequestUsage
    from autogen_ext.models.replay import ReplayChatCompletionClient

    from rath_autogen import RecordingChatCompletionClient

    info = ModelInfo(vision=False, function_calling=True, json_output=True, family="unknown", structured_output=True)

    async def pay(n: int) -> str:
        """Pay."""
        return f"paid {n}"

    def agent(name: str) -> Any:
        answers: list[Any] = []
        for turn in range(TURNS // 2):
            call = FunctionCall(id=f"{name}{turn}", name="pay", arguments='{"n": 3}')
            usage = RequestUsage(prompt_tokens=5, completion_tokens=5)
            answers.append(CreateResult(finish_reason="function_calls", content=[call], usage=usage, cached=False))
            answers.append(f"{name} {turn} " * 40)
        model: Any = ReplayChatCompletionClient(answers, model_info=info)
        client = RecordingChatCompletionClient(model) if recorded else model
        return AssistantAgent(name, client, tools=[pay], reflect_on_tool_use=True)

    return RoundRobinGroupChat([agent("a"), agent("b")], max_turns=TURNS)


async def _run(url: str | None, recorded: bool, number: int) -> tuple[float, float]:
    from rath_autogen import wrap

    team: Any = _team(recorded)
    store = rb.open_store(url) if url else None
    runner = wrap(team, store, f"run-{number}") if store else team
    gc.collect()
    start, used = perf_counter(), process_time()
    await runner.run(task="go")
    found = perf_counter() - start, process_time() - used
    if store:
        store.close()
    return found


def rows() -> Iterator[Row]:
    """The plain run, the wrapped one, and the wrapped one whose model calls are recorded, in turn."""
    logging.getLogger("autogen_core").setLevel(logging.ERROR)
    with workspace() as folder:
        kinds: dict[str, tuple[str | None, bool]] = {"plain": (None, False)}
        for place, url in (("memory", "memory:"), ("SQLite", f"sqlite:///{folder / 'runs.db'}")):
            kinds |= {f"wrap, {place}": (url, False), f"wrap and client, {place}": (url, True)}
        wall = dict.fromkeys(kinds, float("inf"))
        cpu = dict(wall)
        for number in range(ROUNDS):
            for name, (url, recorded) in kinds.items():
                took, used = asyncio.run(_run(url, recorded, number * len(kinds) + len(name)))
                wall[name], cpu[name] = min(wall[name], took), min(cpu[name], used)
        plain = f"plain run {wall['plain'] * 1e3:.0f} ms, {cpu['plain'] * 1e3:.0f} ms CPU"
        for name in list(kinds)[1:]:
            ratio = cpu[name] / cpu["plain"]
            yield Row(
                f"AutoGen team of {TURNS} turns with a scripted model: {name}",
                f"CPU {ratio:.2f} x, wall {wall[name] / wall['plain']:.2f} x ({wall[name] * 1e3:.0f} ms)",
                "CPU <= 1.10 x", plain, ratio <= 1.10,
            )  # fmt: skip
