"""What broke when a daily user of LangGraph tried to break the adapter."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from enum import Enum
from time import process_time
from typing import Any, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

import rath_bridge as rb
from rath_langgraph import RathSaver
from rath_langgraph.compare import content_key
from rath_langgraph.serde import RathSerializer


class Colour(Enum):
    """With several members, each of which leads to the class and so to all the others."""

    RED = 1
    GREEN = 2
    BLUE = 3


class Values(TypedDict):
    v: Any


def _graph(value: Any, saver: RathSaver) -> CompiledStateGraph[Any, Any, Any, Any]:
    graph = StateGraph(Values)
    graph.add_node("n", lambda state: {"v": value})  # pyright: ignore[reportUnknownLambdaType, reportUnknownMemberType]
    graph.add_edge(START, "n")
    graph.add_edge("n", END)
    return graph.compile(checkpointer=saver)


@pytest.mark.parametrize("value", [Colour.RED, [Colour.RED, Colour.GREEN], {"at": UUID(int=7)}], ids=["one", "two", "uuid"])
def test_an_enum_in_a_state_costs_nothing(value: Any) -> None:
    app = _graph(value, RathSaver(rb.open_store("memory://")))
    config: Any = {"configurable": {"thread_id": "t"}}
    began = process_time()
    app.invoke({"v": None}, config)
    assert app.get_state(config).values["v"] == value
    assert process_time() - began < 5


def test_members_of_an_enum_say_different_things() -> None:
    assert content_key(Colour.RED) == content_key(Colour(1))
    assert content_key(Colour.RED) != content_key(Colour.GREEN)


class Node:
    """An object that another serde may keep, and that leads round in circles."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.others: list[Node] = []


def test_objects_that_lead_to_one_another_are_told_apart_and_end() -> None:
    def ring(last: str) -> Node:
        nodes = [Node(name) for name in ("a", "b", "c", "d", last)]
        for node in nodes:
            node.others = nodes
        return nodes[0]

    assert content_key(ring("e")) == content_key(ring("e")) != content_key(ring("f"))


@pytest.mark.parametrize(
    "at",
    [
        datetime(2025, 10, 26, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        datetime(2025, 7, 1, 12, tzinfo=ZoneInfo("UTC")),
        datetime(2025, 7, 1, 12, 0, 0, 5, tzinfo=UTC),
        datetime(2025, 10, 26, 2, 30, fold=1),  # noqa: DTZ001 - a naive one is meant
    ],
    ids=["zone and fold", "zone", "offset", "fold"],
)
def test_a_moment_keeps_its_zone(at: datetime) -> None:
    serde = RathSerializer()
    back = serde.loads_typed(serde.dumps_typed({"at": at}))["at"]
    assert (repr(back), back.utcoffset()) == (repr(at), at.utcoffset())


@pytest.mark.parametrize("names", ["RathGraph, wrap", "*"])
def test_the_function_is_not_hidden_by_a_module_of_its_name(names: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"from rath_langgraph import {names}\nassert type(wrap).__name__ == 'function', wrap"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
