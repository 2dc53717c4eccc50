"""LangGraph: what wrapping costs a run with 4 model and 3 tool calls, beside the bare graph and a handler that does nothing."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from time import perf_counter, process_time, sleep
from typing import Any

import rath_bridge as rb
from benchmarks.table import Row, fsync_time, workspace
from rath_bridge.model.digests import new_id

RUNS = 6
ROUNDS = 10
LATENCIES = 0.025, 0.2
"""Seconds of a model call: faster than any model that is asked over a network, and as fast as such models are."""


def _graph(latency: float) -> Any:
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    class Model(GenericFakeChatModel):
        def _generate(self, *args: Any, **kwargs: Any) -> Any:
            sleep(latency)
            return super()._generate(*args, **kwargs)

    def script() -> Iterator[AIMessage]:
        while True:
            for i in range(3):
                yield AIMessage("", tool_calls=[{"name": "add", "args": {"a": i, "b": 1}, "id": f"c{i}"}])
            yield AIMessage("done " * 40)

    model = Model(messages=script())

    def llm(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("llm", llm)
    graph.add_node("tools", ToolNode([add]))
    graph.add_edge(START, "llm")
    graph.add_conditional_edges("llm", tools_condition)
    graph.add_edge("tools", "llm")
    return graph.compile()


def _measured(graphs: dict[str, Any], rounds: int, runs: int) -> dict[str, tuple[float, float]]:
    """Seconds of a run: by the clock, and of the processor; the best of several rounds, taking turns."""
    best = dict.fromkeys(graphs, (float("inf"), float("inf")))
    for _ in range(rounds):
        for name, graph in graphs.items():
            gc.collect()
            wall, cpu = perf_counter(), process_time()
            for _ in range(runs):
                graph.invoke({"messages": [("user", "add, three times")]}, {"configurable": {"thread_id": new_id(8)}})
            taken = (perf_counter() - wall) / runs, (process_time() - cpu) / runs
            best[name] = (min(best[name][0], taken[0]), min(best[name][1], taken[1]))
    return best


def rows() -> Iterator[Row]:
    """By the clock with models that take time; of the processor with models that take none."""
    from langgraph.callbacks import GraphCallbackHandler

    from rath_langgraph import wrap

    with workspace() as folder, rb.open_store("memory:") as memory, rb.open_store(f"sqlite:///{folder / 'wrap.db'}") as sqlite:

        def measured(latency: float, rounds: int, runs: int) -> Iterator[tuple[float, float]]:
            graph = _graph(latency)
            yield from _measured({
                "bare": graph, "idle": graph.with_config(callbacks=[GraphCallbackHandler()]),
                "memory": wrap(graph, memory), "sqlite": wrap(graph, sqlite),
            }, rounds, runs).values()  # fmt: skip

        for latency in LATENCIES:
            fast = latency == LATENCIES[0]
            bare, idle, ours, kept = measured(latency, ROUNDS if fast else 3, RUNS if fast else 2)
            share = ours[0] / bare[0] - 1
            yield Row(
                f"LangGraph wrap: a run with 4 model calls of {latency * 1e3:.0f} ms and 3 tool calls, by the clock",
                f"{share:+.1%} ({ours[0] * 1e3:.1f} ms); SQLite, every tool call durable first: {kept[0] / bare[0] - 1:+.1%}"
                f" (five commits waited for; fsync {fsync_time(folder) * 1e3:.2f} ms)",
                "<= 5 %", f"bare {bare[0] * 1e3:.1f} ms, a handler that does nothing {idle[0] / bare[0] - 1:+.1%}", share <= 0.05,
            )  # fmt: skip
        bare, idle, ours, kept = measured(0.0, ROUNDS, RUNS)
        yield Row(
            "LangGraph wrap: the same with models that take no time, CPU in all",
            f"{(ours[1] - bare[1]) * 1e3:+.1f} ms (SQLite {(kept[1] - bare[1]) * 1e3:+.1f} ms)", "printed",
            f"bare {bare[1] * 1e3:.1f} ms, a handler that does nothing {(idle[1] - bare[1]) * 1e3:+.1f} ms",
        )  # fmt: skip
