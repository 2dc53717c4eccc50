"""A recorded failure comes back as the class that the program catches, in every framework; else the report says that it does not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
import openai
import pytest
from agents import Agent, ModelSettings, function_tool
from agents.exceptions import UserError
from agents.testing import ScriptedModel
from autogen_core.models import UserMessage
from autogen_ext.models.replay import ReplayChatCompletionClient
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolCall
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

import rath_autogen
import rath_bridge as rb
import rath_langgraph
import rath_openai_agents
from tests.openai_agents.scripted import call, step

TRIED: list[str] = []


class BankDown(Exception):
    def __init__(self, code: int, words: str, kept: Any = None) -> None:
        super().__init__(words)
        self.code, self.kept = code, kept


@pytest.fixture(autouse=True)
def nothing_tried() -> None:
    TRIED.clear()


def limited() -> openai.RateLimitError:
    response: Any = httpx.Response(429, request=httpx.Request("POST", "http://localhost"))
    return openai.RateLimitError("slow down", response=response, body={"code": "rl"})


@tool
def pay(n: int) -> str:
    """Pay."""
    TRIED.append(f"pay {n}")
    raise BankDown(503, "bank is down") from RuntimeError("no line")


def paying(store: rb.Store, raising: Callable[..., Any]) -> Callable[[], Any]:
    """A graph that pays three times, and catches what it knows."""

    def node(state: Any) -> Any:
        said: list[str] = []
        for _ in range(3):
            try:
                raising(n=5)
            except BankDown as error:
                said.append(f"{error.code} {error} {error.__cause__!r}")
            except Exception as error:  # noqa: BLE001
                said.append(f"OTHER {error}")
        return {"messages": [("assistant", "; ".join(said))]}

    graph = StateGraph(MessagesState)
    graph.add_node("pay", node)
    graph.add_edge(START, "pay")
    app = rath_langgraph.wrap(graph.compile(), store, session="s")
    return lambda: app.invoke({"messages": [("user", "pay")]})["messages"][-1].content


def test_a_tool_of_langgraph(store: rb.Store) -> None:
    run = paying(store, lambda n: pay.invoke({"n": n}))
    said = run()
    assert said == "; ".join(["503 bank is down RuntimeError('no line')"] * 3)
    TRIED.clear()
    report = rb.replay(store.session("s"), run)
    assert (report.equal, report.value, report.notes, TRIED) == (True, said, (), []), str(report)


def test_a_tool_node_that_raises(store: rb.Store) -> None:
    def run() -> str:
        asked = AIMessage("", tool_calls=[ToolCall(name="pay", args={"n": 5}, id="c1")])
        model = GenericFakeChatModel(messages=iter([asked]))

        def answer(state: MessagesState) -> dict[str, Any]:
            return {"messages": [model.invoke(state["messages"])]}

        graph = StateGraph(MessagesState)
        graph.add_node("agent", answer)
        graph.add_node("tools", ToolNode([pay], handle_tool_errors=False))
        graph.add_edge(START, "agent")
        graph.add_edge("agent", "tools")
        try:
            rath_langgraph.wrap(graph.compile(), store, session="s").invoke({"messages": [("user", "pay")]})
        except BankDown as error:
            return f"{error.code} {error}"
        return "nothing"

    assert run() == "503 bank is down"
    TRIED.clear()
    report = rb.replay(store.session("s"), run)
    assert (report.equal, report.value, TRIED) == (True, "503 bank is down", []), str(report)


def test_a_class_that_is_not_at_hand_is_told(store: rb.Store) -> None:
    class Hidden(Exception):
        pass

    @tool
    def hide(n: int) -> str:
        """Hide."""
        raise Hidden("away")

    run = paying(store, lambda n: hide.invoke({"n": n}))
    assert run() == "OTHER away; OTHER away; OTHER away"
    report = rb.replay(store.session("s"), run)
    assert report.equal
    assert len(report.notes) == 1
    assert "Hidden, which was raised then, could not be given back" in report.notes[0]


async def test_a_model_of_the_agents_sdk(store: rb.Store) -> None:
    async def run(*steps: Any) -> str:
        agent = rath_openai_agents.wrap(Agent(name="A", model=ScriptedModel(list(steps))), store, "s")
        try:
            return str((await agent.run("hi")).final_output)
        except openai.RateLimitError as error:
            return f"{error} {error.status_code} {error.body} {error.code}"

    said = await run(limited())
    assert said == "slow down 429 {'code': 'rl'} rl"
    report = await rb.areplay(store.session("s"), run)
    assert (report.equal, report.value) == (True, said), str(report)
    assert [note for note in report.notes if "came back without request, response" in note]


async def test_a_tool_of_the_agents_sdk(store: rb.Store) -> None:
    @function_tool(failure_error_function=None)
    async def wire(n: int) -> str:
        """Wire."""
        TRIED.append("wire")
        raise BankDown(503, "bank is down")

    async def run(*steps: Any) -> str:
        settings = ModelSettings(tool_choice="auto")
        agent = Agent(name="A", model=ScriptedModel(list(steps)), tools=[wire], model_settings=settings)
        try:
            return str((await rath_openai_agents.wrap(agent, store, "s").run("hi")).final_output)
        except (UserError, BankDown) as error:
            return f"{type(error).__name__} {error} {error.__cause__!r}"

    said = await run(step(call("wire", {"n": 1}, "c1")))
    assert "bank is down" in said
    TRIED.clear()
    report = await rb.areplay(store.session("s"), run)
    assert (report.equal, report.value, TRIED) == (True, said, []), str(report)


class Down(ReplayChatCompletionClient):
    async def create(self, *args: Any, **options: Any) -> Any:
        TRIED.append("asked")
        raise BankDown(503, "bank is down")


async def test_a_model_of_autogen(store: rb.Store) -> None:
    inner = Down([])

    async def run() -> str:
        with rb.record(store, "s"):
            try:
                await rath_autogen.RecordingChatCompletionClient(inner, store).create([UserMessage(content="hi", source="user")])
            except BankDown as error:
                return f"{error.code} {error}"
            except Exception as error:  # noqa: BLE001
                return f"OTHER {error!r}"
        return "nothing"

    assert await run() == "503 bank is down"
    TRIED.clear()
    report = await rb.areplay(store.session("s"), run)
    assert (report.equal, report.value, TRIED) == (True, "503 bank is down", []), str(report)


def test_secrets_are_not_kept(store: rb.Store) -> None:
    secret = "sk-" + "a1B2" * 12

    @tool
    def tell(n: int) -> str:
        """Tell."""
        raise BankDown(1, f"key {secret}", kept={"api_key": secret})

    def caught(n: int) -> None:
        with suppress(BankDown):
            tell.invoke({"n": n})

    run = paying(store, caught)
    run()
    assert not any(secret.encode() in (chunk.body_bytes or b"") for chunk in store.session("s"))


def test_a_tool_that_was_not_asked_for_is_told_by_its_call(store: rb.Store) -> None:
    paying(store, lambda n: pay.invoke({"n": n}))()
    report = rb.replay(store.session("s"), lambda: None)
    assert report.unused_words == ("pay(n=5)",) * 3
