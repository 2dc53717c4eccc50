"""LangGraph at 1 000 turns, for the goals of the house plan: ``make bench ARGS=langgraph_1000``.

Not part of a plain run: SqliteSaver writes 3.7 GB and InMemorySaver holds 2.5 GB. CPU time of the last 25 turns, since disks differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import rath_bridge as rb
from benchmarks.langgraph import said
from benchmarks.table import Row, size_of, workspace

TURNS = 1000
LAST = 25


def _chat(saver: Any) -> tuple[float, float, float]:
    """CPU seconds of a turn, and seconds of ``get_state`` and of a history of 20, after 1 000 turns."""
    from langchain_core.messages import AIMessage, HumanMessage
    from langgraph.graph import END, START, MessagesState, StateGraph

    def bot(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(said())]}

    graph = StateGraph(MessagesState).add_node("bot", bot).add_edge(START, "bot").add_edge("bot", END).compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "1"}}
    start = 0.0
    for turn in range(TURNS):
        if turn == TURNS - LAST:
            start = process_time()
        graph.invoke({"messages": [HumanMessage(said())]}, config)
    turn_time = (process_time() - start) / LAST
    reads, lists = [], []
    for _ in range(5):
        start = perf_counter()
        graph.get_state(config)
        reads.append(perf_counter() - start)
        start = perf_counter()
        assert len(list(saver.list(config, limit=20))) == 20
        lists.append(perf_counter() - start)
    return turn_time, min(reads), min(lists)


def _ours(folder: Path) -> tuple[tuple[float, float, float], int]:
    from rath_langgraph import RathSaver

    path = folder / "ours.db"
    with rb.open_store(f"sqlite:///{path}") as store:
        found = _chat(RathSaver(store))
    return found, size_of(path)


def _sqlite(folder: Path) -> tuple[tuple[float, float, float], int]:
    from langgraph.checkpoint.sqlite import SqliteSaver

    path = folder / "theirs.db"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        found = _chat(saver)
    return found, size_of(path)


def rows() -> Iterator[Row]:
    """Bytes, CPU per turn, ``get_state`` and ``list(limit=20)`` at 1 000 turns."""
    from langgraph.checkpoint.memory import InMemorySaver

    with workspace() as folder:
        (turn, read, listed), size = _ours(folder)
        (their_turn, their_read, their_listed), their_size = _sqlite(folder)
        memory_turn, _, memory_listed = _chat(InMemorySaver())
    yield Row(
        "LangGraph saver, 1 000 turns of 2 KB: bytes", f"{size / 1e6:,.1f} MB", "<= 8 MB", f"SqliteSaver {their_size / 1e6:,.0f} MB",
        size <= 8_000_000,
    )  # fmt: skip
    yield Row(
        "LangGraph saver, 1 000 turns: CPU of a turn", f"{turn * 1e3:.0f} ms",
        f"<= {0.4 * their_turn * 1e3:.0f} (0.4 x SqliteSaver), <= {0.9 * memory_turn * 1e3:.0f} (0.9 x InMemorySaver)",
        f"SqliteSaver {their_turn * 1e3:.0f} ms, InMemorySaver {memory_turn * 1e3:.0f} ms",
        turn <= 0.4 * their_turn and turn <= 0.9 * memory_turn,
    )  # fmt: skip
    yield Row(
        "LangGraph saver, 1 000 turns: get_state", f"{read * 1e3:.1f} ms", "<= 1.2 x SqliteSaver", f"SqliteSaver {their_read * 1e3:.1f} ms",
        read <= 1.2 * their_read,
    )  # fmt: skip
    yield Row(
        "LangGraph saver, 1 000 turns: list(limit=20)", f"{listed * 1e3:.0f} ms", "faster than both",
        f"SqliteSaver {their_listed * 1e3:.0f} ms, InMemorySaver {memory_listed * 1e3:.0f} ms", listed < min(their_listed, memory_listed),
    )  # fmt: skip
