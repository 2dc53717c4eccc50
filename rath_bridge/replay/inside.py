"""What ran inside of calls that a replay answers as a whole: it is on record, and is not made again."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Iterable
from itertools import accumulate
from typing import cast

from rath_bridge.model.digests import Digest
from rath_bridge.model.encoding import TreeRef
from rath_bridge.model.kinds import Inference, Run, ToolCall
from rath_bridge.model.trees import read_list
from rath_bridge.replay.held import Held, HeldCall
from rath_bridge.replay.tape import Tape


def inside_of_served(tape: Tape) -> set[Digest]:
    """Return the chunks of runs that began, in the record, while a tool ran whose answer was served as a whole.

    Such a run nests in the run that called the tool (an agent used as a tool, a function that runs a graph). A call of an MCP server,
    and a connection to one, may stand in the server's own run, since not every framework tells who calls: those made while the tool
    ran, and not asked for again, are its own.
    """
    return inside(tape.held, tape.answered)


def inside(held: Held, answered: Collection[Digest]) -> set[Digest]:
    """The same for calls of which it is only known that they are answered for: ``answered`` holds all chunks of each."""
    known = frozenset(answered)
    servers: set[str] = set()
    parents: dict[str, str | None] = {}
    begun: dict[str, int] = {}
    for chunk in held.chunks:
        if chunk.kind == "run" and chunk.run is not None and chunk.run not in parents and chunk.body_bytes is not None:
            body = cast(Run, chunk.body)
            if body.phase == "begin":
                if body.type == "server":
                    servers.add(chunk.run)
                parents[chunk.run], begun[chunk.run] = body.parent, chunk.position
    served: dict[str | None, list[tuple[int, int]]] = {}
    own: list[tuple[int, int]] = []  # of tools that ran in this process: what they asked a server for was theirs
    for call in held.calls:
        end = held.position(call.end)
        if call.started and end is not None and known.issuperset(call.chunks):
            served.setdefault(call.run, []).append((call.position, end))
            if not _is_mcp(held, call):
                own.append((call.position, end))
    spans, local = {run: _Spans(found) for run, found in served.items()}, _Spans(own)
    inner: set[str] = set()
    for run, position in begun.items():
        above = parents[run]
        line: set[str] = set()
        at = above
        while at is not None and at not in line:
            line.add(at)
            at = parents.get(at)
        if (
            (run in servers and above is None and local.hold(position))
            or above in inner
            or any(spans[caller].hold(position) for caller in line if caller in spans)
        ):
            inner.add(run)
    found = {
        chunk.id for chunk in held.chunks
        if chunk.run in inner or (chunk.run in servers and chunk.kind != "run" and local.hold(chunk.position))
    }  # fmt: skip
    for call in held.calls:
        if _is_mcp(held, call) and local.hold(call.position):
            found.update(call.chunks)
    return found - known


def _is_mcp(held: Held, call: HeldCall) -> bool:
    asked = held.by_id[call.chunks[0]] if call.started and call.chunks else None
    return asked is not None and (cast(ToolCall, asked.body).type or "").startswith("mcp")


class _Spans:
    """Stretches of a line, asked many times whether they hold a place."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        found = sorted(spans)
        self._starts = [first for first, _ in found]
        self._reach = list(accumulate((last for _, last in found), max))

    def hold(self, position: int) -> bool:
        """Tell whether the place lies between the ends of one of them."""
        index = bisect_left(self._starts, position)
        return index > 0 and self._reach[index - 1] > position


def contradicted(tape: Tape, asked: Digest | None) -> Digest | None:
    """Return the recorded tool result that a recorded model call contradicts: it was not asked with it, so one of them was changed.

    Looked at are the calls that ended in the same run since its last model call. Only texts are compared: what a model is handed
    holds them word for word.

    Args:
        tape: The replay.
        asked: The ``inference`` chunk that the run's own call differs from.
    """
    held = tape.held
    chunk = held.by_id.get(asked or "")
    if chunk is None or chunk.kind != "inference" or chunk.id in held.unreadable:
        return None
    body = cast(Inference, chunk.body)
    if not isinstance(body.input, TreeRef):
        return None
    before = [c.position for c in held.chunks[: chunk.position] if c.kind == "inference" and c.run == chunk.run]
    since = before[-1] if before else -1
    backend = held.session.store.kept
    items = b"\n".join(backend.objects({raw.hex() for raw in read_list(body.input, backend.objects)}).values())
    for call in held.calls:
        end = held.position(call.end)
        if end is None or not since < end < chunk.position or not isinstance(call.value, str) or not call.value:
            continue
        if (
            json.dumps(call.value)[1:-1].encode() not in items
            and json.dumps(call.value, ensure_ascii=False)[1:-1].encode() not in items
        ):
            return call.end
    return None
