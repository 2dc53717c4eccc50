"""The reading verbs over 10 000 and 100 000 chunks of a mixed session in SQLite, each in a process of its own: CPU time and peak memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rath_bridge as rb
from benchmarks.table import Row, workspace
from rath_bridge.model.kinds import Inference, Message, Run, ToolCall, ToolResult, Usage
from rath_bridge.model.parts import TextPart, ToolCallPart, ToolCallResponsePart

SHORT, LONG = 10_000, 100_000
NAME = "long"
FLAT = 1.3
"""Peak memory at 100 000 chunks over that at 10 000."""
_ORIGIN = {"adapter": "rath_langgraph", "framework": "langgraph", "version": "1"}
_WATCHED = """
import atexit, runpy, sys
atexit.register(lambda: sys.__stderr__.write(next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))))
if sys.argv[1] == "messages":
    import rath_bridge as rb
    print(len(rb.open_store().session(sys.argv[2]).messages()))
else:
    runpy.run_module("rath_bridge", run_name="__main__", alter_sys=True)
"""


def rows() -> Iterator[Row]:
    """Every figure of this file."""
    verbs: list[tuple[str, list[str], bool]] = [
        ("log, first page of 50", ["log", NAME, "-n", "50"], True),
        ("log, whole, as JSON", ["log", NAME, "--json"], True),
        ("log --grep, whole", ["log", NAME, "--grep", "number 774 "], True),
        ("log --tool, whole", ["log", NAME, "--tool", "refund"], True),
        ("graph", ["graph", NAME], True),
        ("blame of a sentence", ["blame", NAME, "answer number 773 is"], True),
        ("messages(), in Python", ["messages", NAME], False),
    ]
    with workspace() as folder:
        urls = {count: _made(folder, count) for count in (SHORT, LONG)}
        nothing = _child(["--version"], "memory:")[1]
        for what, command, streams in verbs:
            (_, small), (took, large) = (_child(command, urls[count]) for count in (SHORT, LONG))
            yield Row(
                f"{what}, 100 000 chunks", f"{took:.2f} s CPU, {large:.0f} MB", f"<= {FLAT} x memory of 10 000" if streams else "for scale",
                f"10 000 chunks: {small:.0f} MB (a bare start: {nothing:.0f} MB)", large <= FLAT * small if streams else None,
            )  # fmt: skip


def _made(folder: Path, count: int) -> str:
    """A session of so many chunks with a run every 100, a fork every tenth of its length, and the last fork merged."""
    url = f"sqlite:///{folder / f'{count}.db'}"
    with rb.open_store(url) as store:
        session = store.create(NAME)
        tenth = count // 10
        for part in range(10):
            session = session.append(*_drafts(part * tenth, tenth))
            side = session.fork(f"side-{part}").append(rb.message("assistant", f"aside {part}"))
        session.merge(side)
    return url


def _drafts(start: int, count: int) -> list[Any]:
    found: list[Any] = []
    run = ""
    for number in range(start, start + count):
        place = number % 100
        if place == 0:
            run = f"{number:016x}"
            found.append(rb.draft(Run(phase="begin", name="agent", type="agent"), run=run, origin=_ORIGIN))
        elif place == 99:
            found.append(rb.draft(Run(phase="end", name="agent", status="ok"), run=run, origin=_ORIGIN))
        else:
            found.append(rb.draft(_body(number), run=run, origin=_ORIGIN))
    return found


def _body(number: int) -> Any:
    call = f"call_{number // 6}"
    text = f"the answer number {number} is long " + "and so on " * (60 if number % 50 == 0 else 1)
    return (
        Message(role="user", parts=(TextPart(f"question number {number} asks"),)),
        Message(role="assistant", parts=(ToolCallPart(call, "refund" if number % 1_000 < 6 else "look_up", {"n": number}),)),
        ToolCall(name="refund" if number % 1_000 < 6 else "look_up", call_id=call, arguments={"n": number}),
        ToolResult(name="refund" if number % 1_000 < 6 else "look_up", call_id=call, result=f"found {number}"),
        Message(role="tool", parts=(ToolCallResponsePart(call, f"found {number}"),)),
        Message(role="assistant", parts=(TextPart(text),)) if number % 12 else Inference(model="m", usage=Usage(input_tokens=9)),
    )[number % 6]


def _child(arguments: list[str], url: str) -> tuple[float, float]:
    """Run the command line (or ``messages``) in a process of its own; returns CPU seconds and peak memory in MB.

    The peak is the child's own (``VmHWM`` begins anew with each program; what ``wait4`` tells begins with the parent's).
    """
    environment = {**os.environ, "RATH_BRIDGE_STORE": url}
    command = [sys.executable, "-c", _WATCHED, *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stderr is not None
        told = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{arguments} ended with status {process.returncode}: {told}")
    return used.ru_utime + used.ru_stime, int(told.split()[-2]) / 1024
