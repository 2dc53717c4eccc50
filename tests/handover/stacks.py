"""One turn in each framework, for real: its own agent, its own scripted model, one tool call, one answer. All turns say the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import httpx
from agents import Agent, function_tool
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from agents.usage import Usage as SdkUsage
from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, FunctionExecutionResultMessage, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from openai import AsyncOpenAI

import rath_autogen
import rath_bridge as rb
import rath_langgraph
import rath_openai_agents
from rath_bridge.handover import TARGETS, take
from rath_bridge.model.report import LossReport
from tests.autogen.scripted import INFO
from tests.langgraph.graphs import react

FORMS = {"langgraph": "messages", "openai_agents": "items", "autogen": "llm_messages", "openai_messages": None}
"""What each is continued with, as in ``rb.encode(session, name, as_)``."""
INPUT, OUTPUT = 10, 5
"""Tokens of each model call; a turn has two."""
ASK = "yes"
"""What the user says in every turn: equal texts stay as many messages as there were turns (law 12)."""
ANSWER = "the sum is 3"


@dataclass(frozen=True)
class Turn:
    """What came of one turn."""

    session: rb.Session
    seen: list[Any]
    """What the first model call of the turn was handed, in the framework's own form."""
    report: LossReport


def handed(session: rb.Session, name: str, style: Any = "exact") -> tuple[Any, LossReport]:
    """What the next framework starts from."""
    return rb.encode(session, name, FORMS[name], style=style)


async def turn(session: rb.Session, name: str, style: Any = "exact") -> Turn:
    """Say `ASK`, and let a framework go on: the model asks for ``add``, reads its result, and answers."""
    session = session.append(rb.message("user", ASK))
    return await _TURNS[name](session, style)


# ---------------------------------------------------------------- LangGraph


async def _langgraph(session: rb.Session, style: Any) -> Turn:
    usage = {"input_tokens": INPUT, "output_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT}
    call: Any = {"name": "add", "args": {"a": 1, "b": 2}, "id": "call_1"}
    seen: list[list[BaseMessage]] = []

    class Watched(GenericFakeChatModel):
        def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
            seen.append(list(messages))
            return super()._generate(messages, *args, **kwargs)

    asked, said = AIMessage("", tool_calls=[call], usage_metadata=usage), AIMessage(ANSWER, usage_metadata=usage)  # type: ignore[arg-type]
    graph = react(Watched(messages=iter([asked, said])))
    messages, report = handed(session, "langgraph", style)
    if style == "exact":
        app = rath_langgraph.wrap(graph, session.store, checkpointer="rath")
        left = await app.acall(session)
    else:
        app = rath_langgraph.wrap(graph, session.store, session=session.name, checkpointer="rath", continues=report)
        await app.ainvoke({"messages": messages}, {"configurable": {"thread_id": f"{session.name}-{len(session)}"}})
        left = session.latest()
    return Turn(left, seen[0], report)


# ---------------------------------------------------------------- OpenAI Agents SDK


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def _openai_agents(session: rb.Session, style: Any) -> Turn:
    usage = SdkUsage(requests=1, input_tokens=INPUT, output_tokens=OUTPUT, total_tokens=INPUT + OUTPUT)
    ask = ModelStep(output=[function_call("add", {"a": 1, "b": 2}, call_id="call_1")], usage=usage, response_id="resp_1")
    model = ScriptedModel([ask, ModelStep(output=[assistant_message(ANSWER)], usage=usage, response_id="resp_2")])
    agent = Agent(name="Adder", model=model, tools=[add])
    items, report = handed(session, "openai_agents", style)
    if style == "exact":
        left = await rath_openai_agents.wrap(agent, session.store).acall(session)
    else:
        await rath_openai_agents.wrap(agent, session.store, session.name, continues=report).run(items)
        left = session.latest()
    given: Any = model.calls[0].input
    return Turn(left, list(given), report)


# ---------------------------------------------------------------- AutoGen


def plus(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def _autogen(session: rb.Session, style: Any) -> Turn:
    from autogen_core.tools import FunctionTool

    usage = RequestUsage(prompt_tokens=INPUT, completion_tokens=OUTPUT)
    call = FunctionCall(id="call_1", name="add", arguments='{"a": 1, "b": 2}')
    asked = CreateResult(finish_reason="function_calls", content=[call], usage=usage, cached=False)
    said = CreateResult(finish_reason="stop", content=ANSWER, usage=usage, cached=False)
    client = ReplayChatCompletionClient([asked, said], model_info=INFO)
    tool = FunctionTool(plus, "Add two numbers.", name="add")
    agent = AssistantAgent("adder", client, tools=[tool], reflect_on_tool_use=True, system_message=None)
    _, report = handed(session, "autogen", style)
    if style == "exact":
        left = await rath_autogen.wrap(agent, session.store).acall(session)
    else:
        state, report = rb.encode(session, "autogen", "agent_state", style=style)
        await agent.load_state(state)
        await rath_autogen.wrap(agent, session.store, session.name, continues=report).run()
        left = session.latest()
    return Turn(left, list(client.create_calls[0]["messages"]), report)


# ---------------------------------------------------------------- chat messages, by hand


async def _openai_messages(session: rb.Session, style: Any) -> Turn:
    """A loop of one's own over the ``openai`` client; a transport in this process answers."""
    sent: list[Any] = []
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}
    script = [{"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "assistant", "content": ANSWER}]

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content)["messages"])
        message = script[len(sent) - 1]
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        usage = {"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT}
        body = {
            "id": f"chatcmpl-{len(sent)}", "object": "chat.completion", "created": 0, "model": "scripted", "usage": usage,
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        }  # fmt: skip
        return httpx.Response(200, json=body)

    messages, report = handed(session, "openai_messages", style)
    messages = list(messages)
    responses: list[Any] = []
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as transport:
        client = AsyncOpenAI(api_key="none", base_url="http://localhost/v1", http_client=cast(Any, transport))
        while True:
            got = await client.chat.completions.create(model="scripted", messages=messages)
            responses.append(got)
            message = got.choices[0].message
            messages.append(message.model_dump(mode="json", exclude_none=True))
            if not message.tool_calls:
                break
            for asked in message.tool_calls:
                arguments = json.loads(asked.function.arguments)  # type: ignore[union-attr]
                messages.append({"role": "tool", "tool_call_id": asked.id, "content": str(plus(**arguments))})
    return Turn(take(session, messages, report, responses=responses), sent[0], report)


_TURNS: dict[str, Callable[[rb.Session, Any], Any]] = {
    "langgraph": _langgraph, "openai_agents": _openai_agents, "autogen": _autogen, "openai_messages": _openai_messages,
}  # fmt: skip
assert tuple(_TURNS) == TARGETS


# ---------------------------------------------------------------- what is valid where


def calls_and_answers(native: list[Any], name: str) -> list[tuple[str, str, str]]:
    """(``call`` or ``answer``, id, tool name) of a native list, in order, read with the framework's own types."""
    found: list[tuple[str, str, str]] = []
    for one in native:
        if name == "langgraph":
            if isinstance(one, AIMessage):
                found += [("call", call["id"] or "", call["name"] or "") for call in (*one.tool_calls, *one.invalid_tool_calls)]
            elif isinstance(one, ToolMessage):
                found.append(("answer", one.tool_call_id, ""))
        elif name == "openai_agents":
            if one.get("type") == "function_call":
                found.append(("call", one["call_id"], one["name"]))
            elif one.get("type") == "function_call_output":
                found.append(("answer", one["call_id"], ""))
        elif name == "autogen":
            if one.type == "AssistantMessage" and not isinstance(one.content, str):
                found += [("call", call.id, call.name) for call in one.content]
            elif isinstance(one, FunctionExecutionResultMessage):
                found += [("answer", result.call_id, "") for result in one.content]
        else:
            found += [("call", call["id"], call["function"]["name"]) for call in one.get("tool_calls") or ()]
            found += [("answer", one["tool_call_id"], "")] if one["role"] == "tool" else []
    return found


def roles(native: list[Any], name: str) -> set[str]:
    """Roles (or types, where those are what counts) of a native list."""
    if name in ("langgraph", "autogen"):
        return {str(one.type) for one in native}
    return {str(one.get("role") or one.get("type")) for one in native}


ROLES = {
    "langgraph": {"system", "human", "ai", "tool"},
    "openai_agents": {
        "user", "assistant", "system", "developer", "function_call", "function_call_output", "message", "reasoning",
    },
    "autogen": {"UserMessage", "AssistantMessage", "FunctionExecutionResultMessage", "SystemMessage"},
    "openai_messages": {"system", "developer", "user", "assistant", "tool"},
}  # fmt: skip
"""What each takes."""
