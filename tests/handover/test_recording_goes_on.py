"""What is erased beside a recording that goes on: what is said again stands again, whole, and what was erased stays erased."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from agents import Agent, RunConfig, Runner
from agents.models.interface import Model
from agents.tracing import agent_span, generation_span, set_trace_processors, trace
from autogen_core.models import AssistantMessage, UserMessage
from autogen_ext.models.replay import ReplayChatCompletionClient
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from mcp.server.fastmcp import FastMCP

import rath_autogen
import rath_bridge as rb
import rath_langgraph
from rath_autogen import RecordingChatCompletionClient
from rath_bridge.maintenance import find_text, redact
from rath_bridge.model.reaching import Memo, body_references, reach
from rath_mcp import record_client
from rath_openai_agents import RathSession, RathTracingProcessor, RecordingModel
from tests.autogen.scripted import INFO
from tests.openai_agents.conftest import no_processors
from tests.openai_agents.doubles import ScriptedModel
from tests.openai_agents.scripted import say
from tests.waiting import soon

__all__ = ["no_processors"]

LONG = "Katharina Blum, " + "who keeps to herself " * 40
SHORT = "Katharina Blum?"
SCRIPT = """
import sys
import rath_bridge as rb
from rath_bridge.maintenance import find_text, redact

with rb.open_store(sys.argv[1]) as store:
    hits = find_text(store.backend, "Katharina Blum")
    redact(store, hits.chunks, objects=hits.objects, reason="asked", scrub=False)
"""
Turn = Callable[[list[str]], Awaitable[None]]
"""Says a history whose turns alternate: a person's, the model's."""


class Amid:
    """What happens while a model works."""

    def __init__(self) -> None:
        self.once: Callable[[], None] | None = None

    def __call__(self) -> None:
        do, self.once = self.once, None
        if do is not None:
            time.sleep(0.15)  # what the model is asked is built meanwhile
            do()


class Slow(Model):
    """A model of the Agents SDK in whose calls something happens."""

    def __init__(self, inner: Model, amid: Amid) -> None:
        self.inner, self.amid = inner, amid

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        self.amid()
        return await self.inner.get_response(*args, **kwargs)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


class SlowClient(ReplayChatCompletionClient):
    """A client of AutoGen in whose calls something happens."""

    amid: Amid

    async def create(self, *args: Any, **kwargs: Any) -> Any:
        self.amid()
        return await super().create(*args, **kwargs)


def slow_client(amid: Amid) -> SlowClient:
    made = SlowClient([f"answer {n}" for n in range(9)], model_info=INFO)
    made.amid = amid
    return made


@pytest.fixture
def store(store_url: str) -> Iterator[rb.Store]:
    with rb.open_store(store_url) as opened:
        yield opened


@pytest.fixture
def erase(store: rb.Store, store_url: str) -> Callable[[], None]:
    """Erase the name: by this process in memory, by another one elsewhere."""

    def here() -> None:
        hits = find_text(store.backend, "Katharina Blum")
        redact(store, hits.chunks, objects=hits.objects, reason="asked", scrub=False)

    def there() -> None:
        subprocess.run([sys.executable, "-c", SCRIPT, store_url], check=True, timeout=60)

    return here if store_url == "memory:" else there


# ------------------------------------------------------------------ recordings that live long


@asynccontextmanager
async def langgraph(store: rb.Store, amid: Amid) -> AsyncIterator[Turn]:
    """One wrapped graph without a checkpointer, given the whole history each time; two nodes ask the model."""

    def answers() -> Iterator[AIMessage]:
        for n in range(99):
            if n % 2:  # of the second node, behind what the first one brought
                amid()
            yield AIMessage(f"answer {n}")

    model = GenericFakeChatModel(messages=answers())

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("first", ask).add_node("second", ask)
    graph = graph.add_edge(START, "first").add_edge("first", "second").add_edge("second", END)
    app: Any = rath_langgraph.wrap(graph.compile(), store, session="s")

    async def turn(history: list[str]) -> None:
        await app.ainvoke({"messages": [AIMessage(t) if n % 2 else HumanMessage(t) for n, t in enumerate(history)]})

    yield turn


@asynccontextmanager
async def langgraph_ambient(store: rb.Store, amid: Amid) -> AsyncIterator[Turn]:
    with rb.record(store, "s"):
        async with langgraph(store, amid) as turn:
            yield turn


def scripted_model() -> Model:
    return ScriptedModel([say(f"answer {n}") for n in range(9)])


def _items(history: list[str]) -> list[Any]:
    return [{"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(history)]


@asynccontextmanager
async def agents_processor(store: rb.Store, amid: Amid) -> AsyncIterator[Turn]:
    """The spans of one long trace, which tell what a model was asked."""
    processor = RathTracingProcessor(store, session="s")
    set_trace_processors([processor])

    async def turn(history: list[str]) -> None:
        answer = f"answer {len(history) // 2}"
        with agent_span("Solo"), generation_span(_items(history), [{"role": "assistant", "content": answer}], model="m"):
            amid()
        processor.force_flush()

    with trace("long"):
        yield turn
    processor.shutdown()


@asynccontextmanager
async def agents_model(store: rb.Store, amid: Amid) -> AsyncIterator[Turn]:
    """A recording model alone, called by hand."""
    from agents import ModelSettings
    from agents.models.interface import ModelTracing

    model = RecordingModel(Slow(scripted_model(), amid), store, session="s")

    async def turn(history: list[str]) -> None:
        await model.get_response(
            None, _items(history), ModelSettings(), [], None, [], ModelTracing.DISABLED, previous_response_id=None,
            conversation_id=None, prompt=None,
        )  # fmt: skip

    yield turn
    await model.close()


@asynccontextmanager
async def agents_ambient(store: rb.Store, amid: Amid) -> AsyncIterator[Turn]:
    """Under one recorder and one run, as in a node of another framework."""
    agent = Agent(name="Solo", model=RecordingModel(Slow(scripted_model(), amid)))

    async def turn(history: list[str]) -> None:
        await Runner.run(agent, _items(history), run_config=RunConfig(tracing_disabled=True))
        recorder.flush()

    with rb.record(store, "s") as recorder, recorder.run("outer"):
        yield turn


@asynccontextmanager
async def agents_session(store: rb.Store, amid: Amid) -> AsyncIterator[Turn]:
    session = RathSession("s", store, session="s")
    agent = Agent(name="Solo", model=RecordingModel(Slow(scripted_model(), amid), store, session="s"))

    async def turn(history: list[str]) -> None:
        await Runner.run(agent, history[-1], session=session)

    yield turn


@asynccontextmanager
async def autogen_model(store: rb.Store, amid: Amid) -> AsyncIterator[Turn]:
    model = RecordingChatCompletionClient(slow_client(amid), store, session="s")

    async def turn(history: list[str]) -> None:
        await model.create(
            [
                AssistantMessage(content=text, source="a") if n % 2 else UserMessage(content=text, source="user")
                for n, text in enumerate(history)
            ]
        )
        assert model._own is not None
        model._own.flush()

    yield turn
    await model.close()


@asynccontextmanager
async def autogen_team(store: rb.Store, amid: Amid) -> AsyncIterator[Turn]:
    """A team that remembers: each turn sends it what is new."""
    from autogen_agentchat.agents import AssistantAgent
    from autogen_agentchat.conditions import MaxMessageTermination
    from autogen_agentchat.teams import RoundRobinGroupChat

    model = RecordingChatCompletionClient(slow_client(amid))
    agents: list[Any] = [AssistantAgent(name, model, system_message=f"{name}: " + "be kind " * 80) for name in ("a", "b")]
    team = rath_autogen.wrap(RoundRobinGroupChat(agents, termination_condition=MaxMessageTermination(3)))

    async def turn(history: list[str]) -> None:
        await team.run(task=history[-1])
        recorder.flush()

    with rb.record(store, "s") as recorder:
        yield turn


@asynccontextmanager
async def mcp(store: rb.Store, amid: Amid) -> AsyncIterator[Turn]:
    from mcp.shared.memory import create_connected_server_and_client_session

    server = FastMCP("echo")

    @server.tool()
    def echo(text: str) -> str:
        """Say it again."""
        amid()
        return text

    async with create_connected_server_and_client_session(server._mcp_server) as client:
        record_client(client, store, "s")
        asked = 0

        async def turn(history: list[str]) -> None:
            nonlocal asked
            for text in history:
                await client.call_tool("echo", {"text": text})
            asked += len(history)
            await soon(lambda: sum(chunk.kind == "tool_result" for chunk in store.session("s").chunks()) >= asked)

        yield turn


LIVE = [
    langgraph,
    langgraph_ambient,
    agents_processor,
    agents_model,
    agents_ambient,
    agents_session,
    autogen_model,
    autogen_team,
    mcp,
]


# ------------------------------------------------------------------ the tests


def holds(store: rb.Store, since: int) -> None:
    """Nothing was lost, and what was recorded since names nothing that is not there."""
    session = store.session("s")
    assert list(store.fsck()) == []
    for chunk in session.chunks():
        assert chunk.kind not in ("gap", "error"), chunk.body
        if chunk.position > since and chunk.kind != "redaction":
            assert chunk.body_bytes is not None
            references = body_references(orjson.loads(chunk.body_bytes))
            for reached in reach(references, store.backend.objects, Memo(1 << 62)):
                assert reached.data is not None, (chunk.kind, reached)


@pytest.mark.parametrize("live", LIVE, ids=lambda live: live.__name__)
async def test_what_is_said_again_stands_again(store: rb.Store, erase: Callable[[], None], live: Any) -> None:
    async with live(store, Amid()) as turn:
        await turn([LONG])
        await turn([LONG, "answer 0", SHORT])
        hits = find_text(store.backend, "Katharina Blum")
        assert hits.objects
        erase()
        gone = find_text(store.backend, "Katharina Blum")
        assert (gone.chunks, gone.objects) == ((), ())
        at = store.session("s").position
        if live is agents_session:
            await turn(["and now?"])
        await turn([LONG, "answer 0", SHORT, "answer 1", "and now? " * 80])
        await turn([LONG, "answer 0", SHORT, "answer 1", "and now? " * 80, "answer 2", LONG + SHORT])
    holds(store, at)
    assert all(store.backend.chunk(name).body_bytes is None for name in hits.chunks)
    again = find_text(store.backend, LONG)
    assert again.objects
    assert all(store.backend.chunk(name).position > at for name in again.chunks)


@pytest.mark.parametrize("store_url", ["memory", "sqlite"], indirect=True)
@pytest.mark.parametrize("live", LIVE, ids=lambda live: live.__name__)
async def test_while_a_model_works(store: rb.Store, erase: Callable[[], None], live: Any) -> None:
    amid = Amid()
    async with live(store, amid) as turn:
        await turn([LONG])
        if live is not agents_session:  # its history is read from the record
            await turn([LONG, "answer 0", SHORT])
        at = store.session("s").position
        amid.once = erase
        await turn([LONG, "answer 0", SHORT, "answer 1", "and now? " * 80])
        assert amid.once is None
        redacted = next(chunk for chunk in store.session("s").chunks() if chunk.kind == "redaction")
        assert redacted.position > at
        holds(store, redacted.position)
        await turn([LONG, "answer 0", SHORT, "answer 1", "and now? " * 80, "answer 2", LONG + SHORT])
    holds(store, redacted.position)
    assert find_text(store.backend, LONG).objects
