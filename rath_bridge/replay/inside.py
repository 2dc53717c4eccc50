"""What ran inside of calls that a replay answers as a whole: it is on record, and is not made again."""

from __future__ import annotations

from typing import cast

from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Run
from rath_bridge.replay.tape import Tape


def inside_of_served(tape: Tape) -> set[Digest]:
    """Return the chunks of runs that began, in the record, while a tool ran whose answer was served as a whole.

    Such a run nests in the run that called the tool (an agent used as a tool, a function that runs a graph).
    """
    held = tape.held
    parents: dict[str, str | None] = {}
    begun: dict[str, int] = {}
    for chunk in held.chunks:
        if chunk.kind == "run" and chunk.run is not None and chunk.run not in parents and chunk.body_bytes is not None:
            body = cast(Run, chunk.body)
            if body.phase == "begin":
                parents[chunk.run], begun[chunk.run] = body.parent, chunk.position
    spans: list[tuple[int, int, str]] = []
    for call in held.calls:
        end = held.position(call.end)
        if call.started and end is not None and call.run is not None and tape.answered.issuperset(call.chunks):
            spans.append((call.position, end, call.run))
    inner: set[str] = set()
    for run, position in begun.items():
        above = parents[run]
        line: set[str] = set()
        at = above
        while at is not None and at not in line:
            line.add(at)
            at = parents.get(at)
        if above in inner or any(first < position < last and caller in line for first, last, caller in spans):
            inner.add(run)
    return {chunk.id for chunk in held.chunks if chunk.run in inner} - tape.answered
