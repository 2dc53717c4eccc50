"""LangGraph at 1 000 turns, for the goals of the house plan: ``make bench ARGS=langgraph_1000``.

Not part of a plain run: SqliteSaver writes 3.7 GB and InMemorySaver holds 2.5 GB. CPU time of the last 25 turns, since disks differ.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter, process_time
from typing import Annotated, Any, NamedTuple, TypedDict

import rath_bridge as rb
from benchmarks.langgraph import said
from benchmarks.table import Row, size_of, workspace

TURNS = 1000
EARLY = 200
LAST = 25


class _Figures(NamedTuple):
    """Of one saver."""

    turn: float
    """CPU seconds of one of the last turns."""
    read: float
    """Seconds of ``get_state``, after them."""
    listed: float
    """Seconds of ``list(limit=20)``."""
    early: int = 0
    """Bytes after 200 turns."""
    late: int = 0
    """Bytes after 1 000."""


def _chat(saver: Any, size: Callable[[], int] = int, window: int | None = None) -> _Figures:
    """Run a chat of 1 000 turns.

    Args:
        saver: The checkpointer.
        size: Tells its bytes.
        window: Keep only so many messages in the state.
    """
    from langchain_core.messages import AIMessage, HumanMessage
    from langgraph.graph import END, START, StateGraph, add_messages

    def joined(old: list[Any], new: list[Any]) -> list[Any]:
        found: Any = add_messages(old, new)
        return found[-window:] if window else found

    State = TypedDict("State", {"messages": Annotated[list[Any], joined]})  # noqa: UP013 - a local reducer has no name to look up

    def bot(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage(said())]}

    graph = StateGraph(State).add_node("bot", bot).add_edge(START, "bot").add_edge("bot", END).compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "1"}}
    start, early = 0.0, 0
    for turn in range(TURNS):
        if turn == TURNS - LAST:
            start = process_time()
        if turn == EARLY:
            early = size()
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
    return _Figures(turn_time, min(reads), min(lists), early, size())


def _settled(path: Path) -> int:
    """Bytes of a database file once its log is folded in; by another process, since closing a file here would drop SQLite's locks."""
    fold = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('PRAGMA wal_checkpoint(TRUNCATE)')"
    subprocess.run([sys.executable, "-c", fold, str(path)], check=True)
    return size_of(path)


def _ours(folder: Path, window: int | None = None) -> _Figures:
    from rath_langgraph import RathSaver

    path = folder / f"ours-{window}.db"
    with rb.open_store(f"sqlite:///{path}") as store:
        return _chat(RathSaver(store), lambda: _settled(path), window)


def _sqlite(folder: Path) -> _Figures:
    from langgraph.checkpoint.sqlite import SqliteSaver

    path = folder / "theirs.db"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        return _chat(saver, lambda: _settled(path))


def rows() -> Iterator[Row]:
    """Bytes, CPU per turn, ``get_state`` and ``list(limit=20)`` at 1 000 turns, and with a window of 50 messages."""
    from langgraph.checkpoint.memory import InMemorySaver

    with workspace() as folder:
        ours, window = _ours(folder), _ours(folder, 50)
        theirs, memory = _sqlite(folder), _chat(InMemorySaver())
    yield Row(
        "LangGraph saver, 1 000 turns of 2 KB: bytes", f"{ours.late / 1e6:,.1f} MB", "<= 8 MB", f"SqliteSaver {theirs.late / 1e6:,.0f} MB",
        ours.late <= 8_000_000,
    )  # fmt: skip
    yield Row(
        "LangGraph saver, 1 000 turns: growth since 200", f"x {ours.late / ours.early:.1f}", "<= x 5.5 (linear)",
        f"SqliteSaver x {theirs.late / theirs.early:.1f}", ours.late <= 5.5 * ours.early,
    )  # fmt: skip
    yield Row(
        "LangGraph saver, 1 000 turns, the last 50 messages kept: bytes", f"{window.late / 1e6:,.1f} MB", "<= 8 MB",
        f"x {window.late / window.early:.1f} since 200", window.late <= min(8_000_000, 5.5 * window.early),
    )  # fmt: skip
    yield Row(
        "LangGraph saver, 1 000 turns: CPU of a turn", f"{ours.turn * 1e3:.0f} ms",
        f"<= {0.4 * theirs.turn * 1e3:.0f} (0.4 x SqliteSaver), <= {0.9 * memory.turn * 1e3:.0f} (0.9 x InMemorySaver)",
        f"SqliteSaver {theirs.turn * 1e3:.0f} ms, InMemorySaver {memory.turn * 1e3:.0f} ms",
        ours.turn <= 0.4 * theirs.turn and ours.turn <= 0.9 * memory.turn,
    )  # fmt: skip
    yield Row(
        "LangGraph saver, 1 000 turns: get_state", f"{ours.read * 1e3:.1f} ms", "<= 1.2 x SqliteSaver",
        f"SqliteSaver {theirs.read * 1e3:.1f} ms", ours.read <= 1.2 * theirs.read,
    )  # fmt: skip
    yield Row(
        "LangGraph saver, 1 000 turns: list(limit=20)", f"{ours.listed * 1e3:.0f} ms", "faster than both",
        f"SqliteSaver {theirs.listed * 1e3:.0f} ms, InMemorySaver {memory.listed * 1e3:.0f} ms",
        ours.listed < min(theirs.listed, memory.listed),
    )  # fmt: skip
