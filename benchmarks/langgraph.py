"""LangGraph: what a turn of a chat costs in our checkpointer and in those that ship with it."""

from __future__ import annotations

import os
from base64 import b85encode
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import rath_bridge as rb
from benchmarks.table import Row, size_of, workspace

TURNS = (50, 200)


def said() -> str:
    """1 KB that no compressor can shrink by much: said once, stored once."""
    return b85encode(os.urandom(820)).decode()[:1024]


def _chat(saver: Any, turns: int) -> tuple[float, float, Callable[[], Any]]:
    """Run a one-node chat; returns the median time of the last 25 turns, of ``get_state``, and the state reader."""
    from langchain_core.messages import AIMessage, HumanMessage
    from langgraph.graph import END, START, MessagesState, StateGraph

    def bot(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(said())]}

    graph = StateGraph(MessagesState).add_node("bot", bot).add_edge(START, "bot").add_edge("bot", END).compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "1"}}
    times: list[float] = []
    for _ in range(turns):
        start = perf_counter()
        graph.invoke({"messages": [HumanMessage(said())]}, config)
        times.append(perf_counter() - start)
    reads: list[float] = []
    for _ in range(15):
        start = perf_counter()
        graph.get_state(config)
        reads.append(perf_counter() - start)
    assert len(graph.get_state(config).values["messages"]) == 2 * turns
    return median(times[-25:]), median(reads), lambda: graph.get_state(config)


def _ours(folder: Path, turns: int) -> tuple[float, float, int]:
    from rath_langgraph import RathSaver

    path = folder / f"ours-{turns}.db"
    store = rb.open_store(f"sqlite:///{path}")
    turn, read, _ = _chat(RathSaver(store), turns)
    store.close()
    return turn, read, size_of(path)


def _sqlite(folder: Path, turns: int) -> tuple[float, float, int]:
    from langgraph.checkpoint.sqlite import SqliteSaver

    path = folder / f"theirs-{turns}.db"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        turn, read, _ = _chat(saver, turns)
    return turn, read, size_of(path)


def _memory(turns: int) -> tuple[float, float]:
    from langgraph.checkpoint.memory import InMemorySaver

    turn, read, _ = _chat(InMemorySaver(), turns)
    return turn, read


def rows() -> Iterator[Row]:
    """Bytes and time per turn at 50 and 200 turns (1 000 is for the saver's own issue)."""
    with workspace() as folder:
        for turns in TURNS:
            turn, read, size = _ours(folder, turns)
            their_turn, their_read, their_size = _sqlite(folder, turns)
            memory_turn, _ = _memory(turns)
            total = 2048 * turns
            yield Row(
                f"LangGraph saver, {turns} turns of 2 KB: bytes", f"{size / turns:,.0f} a turn, {size / total:.1f} x said",
                "<= 8 KB a turn", f"SqliteSaver {their_size / turns:,.0f} a turn, {their_size / total:.0f} x", size / turns <= 8_000,
            )  # fmt: skip
            yield Row(
                f"LangGraph saver, {turns} turns: time of a turn", f"{turn * 1e3:.1f} ms",
                "printed (goals at 1 000 turns)", f"SqliteSaver {their_turn * 1e3:.1f} ms, InMemorySaver {memory_turn * 1e3:.1f} ms",
            )  # fmt: skip
            yield Row(
                f"LangGraph saver, {turns} turns: get_state",
                f"{read * 1e3:.1f} ms",
                "printed",
                f"SqliteSaver {their_read * 1e3:.1f} ms",
            )
