"""Evidence packets."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import rath_bridge as rb
from benchmarks.table import Row, once, workspace
from rath_bridge.maintenance import redact
from rath_bridge.model.kinds import Inference, Message, Run, ToolCall, ToolResult, Usage
from rath_bridge.model.parts import TextPart, ToolCallPart


def rows() -> Iterator[Row]:
    """A packet of 10 000 chunks, written and verified."""
    with workspace() as folder:
        store = rb.open_store(f"sqlite:///{folder / 'p.db'}")
        session = store.create("p").append(*[rb.message("user", f"message {i} " * 20) for i in range(10_000)])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        wrote = once(lambda: rb.export_packet(session, folder / "p.zip"))
        checked = once(lambda: rb.verify_packet(folder / "p.zip"))
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        busy = store.create("busy").append(*[one for i in range(1_250) for one in turn(i)])
        wrote_busy = once(lambda: rb.export_packet(busy, folder / "b.zip"))
        checked_busy = once(lambda: rb.verify_packet(folder / "b.zip"))
        took = once(lambda: redact(store, [busy[2].id], reason="a figure"))
        store.close()
    yield Row(
        "packet of 10 000 chunks, write + verify", f"{wrote:.2f} + {checked:.2f} s, peak memory +{grown:.0f} MB", "<= 3 s, flat memory", "",
        wrote + checked <= 3,
    )  # fmt: skip
    yield Row(
        "packet of 10 000 chunks of runs, model calls and tool calls", f"{wrote_busy:.2f} + {checked_busy:.2f} s", "<= 3 s", "",
        wrote_busy + checked_busy <= 3,
    )  # fmt: skip
    yield Row("redact one of 20 000 chunks in SQLite, files rewritten", f"{took:.2f} s", "", "", None)


def turn(number: int) -> list[rb.Draft]:
    """Eight chunks of an agent's turn."""
    run, call = f"{number:016x}", f"c{number}"
    asks = Message(role="assistant", parts=(ToolCallPart(call, "find", {"n": number}),))
    return [
        rb.draft(Run(phase="begin", name="agent", type="agent"), run=run), rb.message("user", f"message {number} " * 20),
        rb.draft(Inference(model="m", usage=Usage(input_tokens=3, output_tokens=2)), run=run), rb.draft(asks, run=run),
        rb.draft(ToolCall(name="find", call_id=call, arguments={"n": number}), run=run),
        rb.draft(ToolResult(call_id=call, result="found " * (120 if number % 4 == 0 else 1)), run=run),
        rb.draft(Message(role="assistant", parts=(TextPart("done"),)), run=run),
        rb.draft(Run(phase="end", name="agent", type="agent", status="ok"), run=run),
    ]  # fmt: skip
