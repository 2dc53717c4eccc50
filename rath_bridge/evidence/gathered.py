"""What an audit looks at, gathered from a history as it streams by: who did what, calls and how they ended, what failed, what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

import orjson

from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest, digest
from rath_bridge.verbs.calling import Call, CallFold, Told

NOBODY: Final = "no agent named"
"""Whose model calls are those that stand outside of any run and name none."""


@dataclass(slots=True)
class Shown:
    """A call with what its chunks say."""

    call: Call
    begun: Chunk | None
    ended: Chunk | None
    arguments: Digest | None
    effect: str | None
    reason: str | None

    @property
    def evidence(self) -> tuple[Digest, ...]:
        """The chunks that tell of it."""
        return tuple(name for name in (self.call.asked, self.call.started, self.call.ended) if name is not None)


@dataclass(slots=True)
class Spent:
    """What one agent took."""

    calls: int = 0
    told: int = 0
    """Calls that report usage; no tokens at all is what frameworks write where a model told none."""
    input: int = 0
    output: int = 0
    cost: float | None = None
    models: set[str] = field(default_factory=set[str])
    evidence: list[Digest] = field(default_factory=list[Digest])


class Gathered:
    """Fed with everything that a head descends from, each chunk once, parents first."""

    def __init__(self) -> None:
        self.runs: dict[str, tuple[str, str | None]] = {}
        """Id to name and enclosing run."""
        self.above: dict[Digest, Digest] = {}
        self.branches: dict[Digest, str] = {}
        self.said: list[Chunk] = []
        """Messages of assistants that say something."""
        self.inferences: list[tuple[Chunk, dict[str, Any]]] = []
        self.folded = CallFold()
        self.telling: dict[Digest, Chunk] = {}
        """The chunks that tell of calls."""
        self.arguments: dict[tuple[Digest, str], Digest] = {}
        self.calls: list[Shown] = []
        self.approvals: list[Chunk] = []
        self.failures: list[tuple[Chunk, Told | None]] = []
        """What failed, and what the chunk says of the call that did."""
        self.merges: dict[Digest, tuple[Chunk, dict[str, Any]]] = {}
        self.blocks: dict[Digest, list[Digest]] = {}
        """Messages that a merge wrote, and what each stands for."""
        self.compactions: list[tuple[Chunk, list[Digest]]] = []
        self.dropped: set[Digest] = set()
        self.spent: dict[str, Spent] = {}
        self.line: set[Digest] = set()
        self.erased: dict[str, list[Digest]] = {}
        """Chunks whose content is gone, by kind."""

    # ---------------------------------------------------------------- feeding

    def feed(self, chunk: Chunk) -> None:
        """Take the next chunk."""
        if chunk.parents:
            self.above[chunk.id] = chunk.parents[0]
            self.branches[chunk.id] = self.branches.get(chunk.parents[0], "")
        if chunk.body_bytes is None:
            self.erased.setdefault(chunk.kind, []).append(chunk.id)
            return
        take = _TAKE.get(chunk.kind)
        if take is not None:
            value: Any = orjson.loads(chunk.body_bytes)
            take(self, chunk, cast("dict[str, Any]", value) if type(value) is dict else {})

    def finish(self, head: Digest) -> None:
        """All is fed; ``head`` is the last chunk of the line that is asked about."""
        at: Digest | None = head
        while at is not None:
            self.line.add(at)
            at = self.above.get(at)
        self.calls = [self._shown(call) for call in self.folded.calls()]

    def scope(self, run: str | None) -> str:
        """The top-level run that a run nests in; empty outside of runs."""
        seen = 0
        while run is not None and run in self.runs and self.runs[run][1] is not None and seen < 100:
            run, seen = self.runs[run][1], seen + 1
        return run or ""

    def agent(self, run: str | None) -> str | None:
        """Whose run it is; None where nothing tells."""
        return self.runs[run][0] if run in self.runs else None

    def session(self, chunk: Chunk, body: dict[str, Any]) -> None:
        name, branch = str(body.get("name")), str(body.get("branch", "main"))
        self.branches[chunk.id] = name if branch == "main" else f"{name}@{branch}"

    def run(self, chunk: Chunk, body: dict[str, Any]) -> None:
        if body.get("phase") == "begin" and chunk.run is not None:
            parent: Any = body.get("parent")
            self.runs[chunk.run] = (str(body.get("name")), parent if isinstance(parent, str) else None)
            self.folded.feed(chunk, body)
        elif body.get("status") in ("error", "abandoned"):
            self.failures.append((chunk, None))

    def message(self, chunk: Chunk, body: dict[str, Any]) -> None:
        parts = [cast("dict[str, Any]", part) for part in _list(body.get("parts")) if type(part) is dict]
        stands_for = [str(name) for name in _list(body.get("stands_for"))]
        if stands_for and chunk.parents and (chunk.parents[0] in self.blocks or chunk.parents[0] in self.merges):
            self.blocks[chunk.id] = stands_for
        by_assistant = body.get("role") == "assistant" or chunk.id in self.blocks
        if by_assistant and any(part.get("type") == "text" and part.get("content") for part in parts):
            self.said.append(chunk)
        self.call(chunk, body)

    def call(self, chunk: Chunk, body: dict[str, Any]) -> None:
        found = self.folded.feed(chunk, body)
        for one in found:
            if one.status == "error":
                self.failures.append((chunk, one))
            if one.what in ("asked", "started"):
                self.arguments[chunk.id, str(one.id)] = _sum(one.value)
        if found:
            self.telling[chunk.id] = chunk

    def merge(self, chunk: Chunk, body: dict[str, Any]) -> None:
        self.merges[chunk.id] = chunk, body

    def _shown(self, call: Call) -> Shown:
        begun, ended = (self.telling.get(name or "") for name in (call.begun, call.ended))
        started, result = (_body(self.telling.get(name or "")) for name in (call.started, call.result))
        return Shown(
            call, begun, ended, self.arguments.get((call.begun or "", call.call_id)), started.get("effect"), result.get("reason")
        )

    def inference(self, chunk: Chunk, body: dict[str, Any]) -> None:
        self.inferences.append((chunk, {"model": body.get("response_model") or body.get("model"), "agent": body.get("agent")}))
        if body.get("error"):
            self.failures.append((chunk, None))
        spent = self.spent.setdefault(str(body.get("agent") or self.agent(chunk.run) or NOBODY), Spent())
        spent.calls += 1
        spent.models.add(str(body.get("response_model") or body.get("model") or "a model"))
        spent.evidence.append(chunk.id)
        usage: Any = body.get("usage")
        if type(usage) is dict:
            found = cast("dict[str, Any]", usage)
            spent.told += any(_number(found.get(name)) for name in ("input_tokens", "output_tokens"))
            spent.input += _number(found.get("input_tokens"))
            spent.output += _number(found.get("output_tokens"))
            cost = found.get("cost_usd")
            if isinstance(cost, int | float):
                spent.cost = (spent.cost or 0) + cost

    def approval(self, chunk: Chunk, _: dict[str, Any]) -> None:
        self.approvals.append(chunk)

    def compaction(self, chunk: Chunk, body: dict[str, Any]) -> None:
        dropped = [str(name) for name in _list(body.get("dropped"))]
        self.dropped.update(dropped)
        self.compactions.append((chunk, dropped))

    def error(self, chunk: Chunk, _: dict[str, Any]) -> None:
        self.failures.append((chunk, None))


_TAKE: Final[Mapping[str, Any]] = {
    "session": Gathered.session, "run": Gathered.run, "message": Gathered.message, "error": Gathered.error, "merge": Gathered.merge,
    "tool_call": Gathered.call, "tool_result": Gathered.call, "inference": Gathered.inference,
    "approval": Gathered.approval, "compaction": Gathered.compaction,
}  # fmt: skip


def _body(chunk: Chunk | None) -> dict[str, Any]:
    return {} if chunk is None or chunk.body_bytes is None else orjson.loads(chunk.body_bytes)


def _sum(value: Any) -> Digest:
    return digest(orjson.dumps(value, option=orjson.OPT_SORT_KEYS))


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _number(value: Any) -> int:
    return value if type(value) is int else 0
