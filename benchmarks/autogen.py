"""AutoGen: what recording adds to a run with scripted answers, so that no network takes time.

Two runs of the same team: two agents, each turn of which asks for a tool, reads its answer and says 200 characters; 20 turns, 40 model
calls. Once with AutoGen's OpenAI client, as programs have it, whose HTTP transport answers from a script; once with AutoGen's
``ReplayChatCompletionClient``, which does no work at all, so that what is measured beside it is AutoGen's own message passing.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from collections.abc import Iterator
from time import perf_counter, process_time
from typing import Any

import rath_bridge as rb
from benchmarks.table import Row, workspace

TURNS = 20
ROUNDS = 8
CALL = {"name": "pay", "arguments": '{"n": 3}'}


def _said(name: str) -> list[str | None]:
    """What the model of an agent answers, call by call; None where it asks for the tool."""
    return [answer for turn in range(TURNS // 2) for answer in (None, f"{name} {turn} " * 40)]


def _scripted(name: str) -> Any:
    """AutoGen's scripted model: it looks at nothing."""
    from autogen_core import FunctionCall
    from autogen_core.models import CreateResult, ModelInfo, RequestUsage
    from autogen_ext.models.replay import ReplayChatCompletionClient

    info = ModelInfo(vision=False, function_calling=True, json_output=True, family="unknown", structured_output=True)
    usage = RequestUsage(prompt_tokens=5, completion_tokens=5)
    answers: list[Any] = [
        CreateResult(finish_reason="function_calls", content=[FunctionCall(id=f"{name}{i}", **CALL)], usage=usage, cached=False)
        if said is None
        else said
        for i, said in enumerate(_said(name))
    ]
    return ReplayChatCompletionClient(answers, model_info=info)


def _openai(name: str) -> Any:
    """AutoGen's OpenAI client on a transport that answers from a script."""
    import httpx
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    script = enumerate(_said(name))

    def answer(_: httpx.Request) -> httpx.Response:
        number, said = next(script)
        call = {"id": f"{name}{number}", "type": "function", "function": CALL}
        message = {"role": "assistant", "content": said} | ({"tool_calls": [call]} if said is None else {})
        choice = {"index": 0, "message": message, "finish_reason": "stop" if said else "tool_calls"}
        usage = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
        facts = {"id": str(number), "object": "chat.completion", "created": 1, "model": "gpt-4o-2024-08-06"}
        content = json.dumps(facts | {"choices": [choice], "usage": usage}).encode()
        return httpx.Response(200, headers={"content-type": "application/json"}, content=content)

    http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    made: Any = OpenAIChatCompletionClient
    return made(model="gpt-4o-2024-08-06", api_key="none", http_client=http)


CLIENTS = {"OpenAI client on a scripted transport": _openai, "ReplayChatCompletionClient": _scripted}


def _team(client: str, recorded: bool) -> Any:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_agentchat.teams import RoundRobinGroupChat

    from rath_autogen import RecordingChatCompletionClient

    async def pay(n: int) -> str:
        """Pay."""
        return f"paid {n}"

    def agent(name: str) -> Any:
        model = CLIENTS[client](name)
        model = RecordingChatCompletionClient(model) if recorded else model
        return AssistantAgent(name, model, tools=[pay], reflect_on_tool_use=True)

    return RoundRobinGroupChat([agent("a"), agent("b")], max_turns=TURNS)


async def _run(client: str, url: str | None, recorded: bool, number: int) -> tuple[float, float]:
    from rath_autogen import wrap

    team: Any = _team(client, recorded)
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
    """The plain run, the wrapped one, and the wrapped one whose model calls are recorded, in turn; of each its best round."""
    logging.getLogger("autogen_core").setLevel(logging.ERROR)
    for client in CLIENTS:
        yield from _rows(client)


def _rows(client: str) -> Iterator[Row]:
    with workspace() as folder:
        kinds: dict[str, tuple[str | None, bool]] = {"plain": (None, False)}
        for place, url in (("memory", "memory:"), ("SQLite", f"sqlite:///{folder / 'runs.db'}")):
            kinds |= {f"wrap, {place}": (url, False), f"wrap and recording client, {place}": (url, True)}
        wall = dict.fromkeys(kinds, float("inf"))
        cpu = dict(wall)
        for number in range(ROUNDS):
            for name, (url, recorded) in kinds.items():
                took, used = asyncio.run(_run(client, url, recorded, number * len(kinds) + len(name)))
                wall[name], cpu[name] = min(wall[name], took), min(cpu[name], used)
        plain = f"plain run {wall['plain'] * 1e3:.0f} ms, {cpu['plain'] * 1e3:.0f} ms CPU"
        for name in list(kinds)[1:]:
            ratio = cpu[name] / cpu["plain"]
            yield Row(
                f"AutoGen team of {TURNS} turns, {client}: {name}",
                f"CPU {ratio:.2f} x, wall {wall[name] / wall['plain']:.2f} x ({wall[name] * 1e3:.0f} ms)",
                "CPU <= 1.10 x", plain, ratio <= 1.10,
            )  # fmt: skip
