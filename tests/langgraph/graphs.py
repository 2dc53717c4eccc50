"""Graphs and scripted models for the tests of rath_langgraph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, TypedDict

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt

USAGE = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}


def scripted(*answers: str | AIMessage) -> GenericFakeChatModel:
    """A chat model that gives these answers in turn."""
    made = [AIMessage(a, usage_metadata=USAGE) if isinstance(a, str) else a for a in answers]  # type: ignore[arg-type]
    return GenericFakeChatModel(messages=iter(made))


def asks(name: str, call_id: str, **args: Any) -> AIMessage:
    """A model's answer that asks for a tool."""
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": call_id}], usage_metadata=USAGE)  # type: ignore[arg-type]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def fail(reason: str) -> str:
    """Always fail."""
    raise ValueError(reason)


def chat(answer: Any, **compiled: Any) -> Any:
    """START -> bot -> END over messages."""
    graph = StateGraph(MessagesState)
    graph.add_node("bot", answer)
    graph.add_edge(START, "bot")
    graph.add_edge("bot", END)
    return graph.compile(**compiled)


def echo(state: MessagesState) -> dict[str, Any]:
    """Answer with what was said last."""
    last = state["messages"][-1].content
    return {"messages": [AIMessage(f"you said: {last}", id=f"ai-{len(state['messages'])}-{abs(hash(str(last)))}")]}


def react(model: GenericFakeChatModel, tools: Iterable[Any] = (add, fail), **compiled: Any) -> Any:
    """A model and its tools in a loop."""

    def llm(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("llm", llm)
    graph.add_node("tools", ToolNode(list(tools), handle_tool_errors=True))
    graph.add_edge(START, "llm")
    graph.add_conditional_edges("llm", tools_condition)
    graph.add_edge("tools", "llm")
    return graph.compile(**compiled)


class Draft(TypedDict):
    """A state with more than messages."""

    messages: Annotated[list[AnyMessage], add_messages]
    note: str


def asking(**compiled: Any) -> Any:
    """A graph that waits for a person."""

    def write(state: Draft) -> dict[str, Any]:
        return {"note": "draft"}

    def review(state: Draft) -> dict[str, Any]:
        answer = interrupt({"question": "publish?", "note": state["note"]})
        return {"note": f"reviewed: {answer}", "messages": [AIMessage(f"answer was {answer}", id="ai-review")]}

    graph = StateGraph(Draft)
    graph.add_node("write", write)
    graph.add_node("review", review)
    graph.add_edge(START, "write")
    graph.add_edge("write", "review")
    graph.add_edge("review", END)
    return graph.compile(**compiled)


def thread(name: str = "1", **more: Any) -> Any:
    """A config for a thread."""
    return {"configurable": {"thread_id": name, **more}}
