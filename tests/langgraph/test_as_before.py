"""A wrapped graph behaves as it did: side by side with the bare one, with each kind of checkpointer. And the example runs."""

from __future__ import annotations

import asyncio
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command

import rath_bridge as rb
from rath_bridge.session import Store
from rath_langgraph import wrap
from tests.langgraph.graphs import add, asking, asks, react, scripted, thread


@pytest.fixture
def store() -> Iterator[Store]:
    with rb.open_store("memory:") as opened:
        yield opened


def tools() -> Any:
    """A new agent; its inputs and answers have ids, so that two runs can be compared."""
    answer = asks("add", "c", a=2, b=2).model_copy(update={"id": "a1", "content": "let me see"})
    done = AIMessage("four", id="a2")
    return react(scripted(*[answer, done] * 3), [add], checkpointer=InMemorySaver())


GO: Any = {"messages": [HumanMessage("2 + 2", id="h")]}


def plain(value: Any) -> Any:
    """Without ids and times that are new in every run."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return f"{value.type}: {value.content}" if hasattr(value, "content") and hasattr(value, "type") else value


async def gathered(found: Any) -> list[Any]:
    return [item async for item in found]


def events(app: Any) -> Any:
    found = asyncio.run(gathered(app.astream_events(GO, thread(), version="v2")))
    return [(one["event"], one["name"]) for one in found]


CALLS: dict[str, Callable[[Any], Any]] = {
    "invoke": lambda app: app.invoke(GO, thread()),
    "ainvoke": lambda app: asyncio.run(app.ainvoke(GO, thread())),
    "stream": lambda app: list(app.stream(GO, thread(), stream_mode=["updates", "values", "custom"])),
    "stream-subgraphs": lambda app: list(app.stream(GO, thread(), stream_mode="updates", subgraphs=True)),
    "stream-v2": lambda app: [one["type"] for one in app.stream(GO, thread(), stream_mode=["custom", "updates"], version="v2")],
    "astream": lambda app: asyncio.run(gathered(app.astream(GO, thread(), stream_mode="values"))),
    "astream_events": events,
    "batch": lambda app: app.batch([GO, GO], [thread("1"), thread("2")]),
    "abatch": lambda app: asyncio.run(app.abatch([GO, GO], [thread("1"), thread("2")])),
    "get_state": lambda app: (app.invoke(GO, thread()), app.get_state(thread()).values, app.get_state(thread()).next),
    "history": lambda app: (app.invoke(GO, thread()), [one.metadata["step"] for one in app.get_state_history(thread())])[1],
    "update_state": lambda app: (
        app.invoke(GO, thread()),
        app.update_state(thread(), {"messages": [HumanMessage("and 3 + 3?", id="m")]}, as_node="tools"),
        app.get_state(thread()).next,
    )[2],
    "get_graph": lambda app: (sorted(app.get_graph().nodes), app.get_graph().draw_mermaid()),
    "with_config": lambda app: app.with_config(tags=["t"], recursion_limit=20).invoke(GO, thread()),
    "schemas": lambda app: (app.get_input_jsonschema(), app.get_output_jsonschema(), app.get_name()),
    "pipe": lambda app: (app | (lambda out: len(out["messages"]))).invoke(GO, thread()),
}


NEED_STATE = ("get_state", "history", "update_state")
PAIRS = [(call, kind) for call in CALLS for kind in ("own", "rath", "none") if kind != "none" or call not in NEED_STATE]


@pytest.mark.parametrize(("call", "kind"), PAIRS)
def test_a_wrapped_graph_does_what_the_bare_one_does(store: Store, call: str, kind: str) -> None:
    bare, graph = tools(), tools()
    if kind == "none":
        bare, graph = bare.copy({"checkpointer": None}), graph.copy({"checkpointer": None})
    app = wrap(graph, store, checkpointer="rath" if kind == "rath" else None)
    assert isinstance(app, CompiledStateGraph)
    if "batch" in call:  # two runs take turns with one scripted model
        assert len(CALLS[call](app)) == 2
        return
    assert plain(CALLS[call](app)) == plain(CALLS[call](bare))
    assert type(graph) is CompiledStateGraph  # the original is what it was


def test_interrupts_and_resuming_are_as_before(store: Store) -> None:
    for app in (asking(checkpointer=InMemorySaver()), wrap(asking(checkpointer=InMemorySaver()), store)):
        first = app.invoke({"messages": [HumanMessage("w", id="1")], "note": ""}, thread())
        assert [one.value for one in first["__interrupt__"]] == [{"question": "publish?", "note": "draft"}]
        assert app.get_state(thread()).next == ("review",)
        assert app.invoke(Command(resume="yes"), thread())["note"] == "reviewed: yes"
        old = next(one for one in app.get_state_history(thread()) if one.next == ("write",))
        again = app.invoke(None, old.config)
        assert [one.value["note"] for one in again["__interrupt__"]] == ["draft"]
        assert app.invoke(Command(resume="no"), thread())["note"] == "reviewed: no"


def test_a_wrapped_graph_is_a_subgraph_as_before(store: Store) -> None:
    inner = wrap(react(scripted(asks("add", "c", a=1, b=1), "two"), [add]), store)
    outer = StateGraph(MessagesState).add_node("child", inner).add_edge(START, "child").compile()
    found = wrap(outer, store, session="s", checkpointer="rath")
    assert [list(update) for _, update in found.stream(GO, thread(), stream_mode="updates", subgraphs=True)] == [
        ["llm"], ["tools"], ["llm"], ["child"],
    ]  # fmt: skip
    assert [name for name, _ in found.get_subgraphs()] == ["child"]
    assert len([c for c in store.session("s").chunks() if c.kind == "inference"]) == 2


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[2] / "examples" / "langgraph_wrap.py"
    runpy.run_path(str(path))
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "replayed: True"
    assert [line.partition(":")[0] for line in said[1:]] == ["user", "assistant"] * 3
    lines = [line for line in path.read_text("utf-8").splitlines()[1:] if line.strip()]
    assert len(lines) <= 15
