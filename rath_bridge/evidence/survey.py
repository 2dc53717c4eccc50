"""What a record covers, folded from chunks as they stream by: who recorded from when to when, and every hole that shows.

Writing and verifying fold the same chunks in the same order, so what ``coverage.json`` tells can be computed again by anybody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import orjson

from rath_bridge.model.chunk import Chunk, format_time
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import KINDS
from rath_bridge.verbs.calling import Told, told

_DETAIL: Final = {
    "tool_call": "name", "tool_result": "status", "approval": "phase", "message": "role", "inference": "model", "error": "type",
    "merge": "strategy", "run": "phase", "session": "op",
}  # fmt: skip
"""The field by which chunks of a kind are counted."""
MOST: Final = 1000
"""Entries that each list keeps; totals count all."""


@dataclass(slots=True)
class _Adapter:
    origin: str
    first: int
    last: int
    chunks: int = 0


@dataclass(slots=True)
class _Call:
    name: str
    chunk: Digest
    asked: int = 0
    started: int = 0
    closed: int = 0
    answered: int = 0

    @property
    def open(self) -> bool:
        return max(self.asked, self.started) > max(self.closed, self.answered)


class Survey:
    """Fed with every chunk of a packet, parents before children."""

    def __init__(self) -> None:
        self.chunks = 0
        self.tally: Counter[str] = Counter()
        """Chunks by kind and by ``kind:detail`` (``tool_call:refund``, ``approval:granted``)."""
        self.tokens = [0, 0]
        """Input and output."""
        self.told = 0
        """Model calls that report their tokens."""
        self.cost: float | None = None
        """US dollars, where a framework reports them."""
        self.models: set[str] = set()
        self.agents: set[str] = set()
        self.since: int | None = None
        self.until: int | None = None
        self.sessions: set[str] = set()
        """Names of the sessions whose beginnings went by."""
        self.derived: dict[str, str] = {}
        """Sessions that others were forked, detached or replayed from: name to what was done."""
        self._adapters: dict[str | None, _Adapter] = {}
        self._runs: dict[str, tuple[str, Digest]] = {}
        self._roots: dict[str, str] = {}
        self._unattributed: set[str] = set()
        self._adrift = 0
        self._calls: dict[tuple[str, str], _Call] = {}
        self._gaps: list[dict[str, Any]] = []
        self._lost = 0
        self._silent: list[dict[str, Any]] = []
        self._redactions: list[dict[str, Any]] = []
        self._told: set[Digest] = set()
        self._boundary: str = ""
        """What is older was pruned, as the record tells."""
        self._erased: list[tuple[Digest, int]] = []
        self._masked = self._inferred = 0
        self._unknown: Counter[str] = Counter()

    def feed(self, chunk: Chunk) -> None:
        """Take one chunk."""
        self.chunks += 1
        self.tally[chunk.kind] += 1
        self.since = chunk.at if self.since is None else min(self.since, chunk.at)
        self.until = chunk.at if self.until is None else max(self.until, chunk.at)
        seen = self._adapters.get(chunk.origin)
        if seen is None:
            seen = self._adapters[chunk.origin] = _Adapter(chunk.origin or "{}", chunk.at, chunk.at)
        seen.chunks += 1
        seen.first, seen.last = min(seen.first, chunk.at), max(seen.last, chunk.at)
        if chunk.kind not in KINDS:
            self._unknown[chunk.kind] += 1
        body = chunk.body_bytes
        if body is not None:
            self._masked += b"[redacted" in body
            self._inferred += b'"basis":"inferred"' in body
            if chunk.kind in _DETAIL or chunk.kind in ("gap", "redaction"):
                value: Any = orjson.loads(body)
                if type(value) is dict:
                    self._tell(chunk, cast("dict[str, Any]", value))
        else:
            self._erased.append((chunk.id, chunk.at))
        if chunk.run is not None and chunk.run in self._unattributed:
            self._adrift += 1

    def facts(self) -> dict[str, Any]:
        """What was seen, as JSON values."""
        untold = [name for name, at in self._erased if name not in self._told and format_time(at) >= self._boundary]
        return {
            "chunks": self.chunks,
            "adapters": [
                {**_origin(seen.origin), "chunks": seen.chunks, "from": format_time(seen.first), "until": format_time(seen.last)}
                for seen in sorted(self._adapters.values(), key=lambda seen: (seen.first, seen.origin))
            ],
            "unattributed": {"runs": len(self._unattributed), "chunks": self._adrift},
            "gaps": {"lost": self._lost, "list": self._gaps[:MOST]},
            "open_runs": _listed({"run": run, "name": name, "chunk": chunk} for run, (name, chunk) in self._runs.items()),
            "open_calls": _listed(self._open_calls()),
            "no_response": _listed(self._silent),
            "redactions": _listed(self._redactions),
            "erased": {"count": len(self._erased), "told": len(self._erased) - len(untold), "untold": untold[:MOST]},
            "masked": self._masked,
            "inferred": self._inferred,
            "unknown_kinds": dict(sorted(self._unknown.items())),
        }

    # ---------------------------------------------------------------- inside

    def _tell(self, chunk: Chunk, body: Mapping[str, Any]) -> None:
        detail = body.get(_DETAIL.get(chunk.kind, ""))
        if isinstance(detail, str):
            self.tally[f"{chunk.kind}:{detail[:100]}"] += 1
        if chunk.kind in ("inference", "tool_call") and isinstance(agent := body.get("agent"), str):
            self.agents.add(agent[:100])
        if chunk.kind == "run":
            self._run(chunk, body)
        elif chunk.kind == "inference":
            self._inference(body)
        elif chunk.kind == "session":
            self.sessions.add(_text(body.get("name")))
            if body.get("of"):
                self.derived.setdefault(_text(body["of"]).partition("@")[0], _text(body.get("op")))
        elif chunk.kind == "gap":
            count = body.get("count")
            lost = count if type(count) is int else 1
            self._lost += lost
            self._gaps.append(
                {"chunk": chunk.id, "at": format_time(chunk.at), "count": lost, "reason": _text(body.get("reason"))}
            )
        elif chunk.kind == "redaction":
            targets = [_text(name) for name in _list(body.get("targets"))]
            self._told.update(targets)
            self._boundary = max(self._boundary, _text(body.get("before")))
            facts = {"chunk": chunk.id, "at": format_time(chunk.at), "targets": len(targets)}
            self._redactions.append(facts | {key: _text(body[key]) for key in ("rule", "reason", "by", "before") if key in body})
        for one in told(chunk.kind, body):
            if one.id is not None:
                self._call(chunk, one, body)

    def _run(self, chunk: Chunk, body: Mapping[str, Any]) -> None:
        run = chunk.run
        if run is None:
            return
        if body.get("phase") == "begin":
            parent: Any = body.get("parent")
            self._roots.setdefault(run, self._roots.get(parent, parent) if isinstance(parent, str) else run)
            self._runs[run] = (_text(body.get("name")), chunk.id)
            if body.get("type") == "agent":
                self.agents.add(_text(body.get("name"))[:100])
            if body.get("type") == "unattributed" or parent in self._unattributed:
                self._unattributed.add(run)
                self._runs.pop(run)
            elif body.get("type") == "thread":  # a conversation lasts; only what runs on it can be left open
                self._runs.pop(run)
        else:
            self._runs.pop(run, None)

    def _inference(self, body: Mapping[str, Any]) -> None:
        model = body.get("response_model") or body.get("model")
        if isinstance(model, str):
            self.models.add(model[:100])
        usage = body.get("usage")
        if type(usage) is not dict:
            return
        found = cast("dict[str, Any]", usage)
        self.told += any(type(found.get(name)) is int and found[name] for name in ("input_tokens", "output_tokens"))
        for number, name in enumerate(("input_tokens", "output_tokens")):
            self.tokens[number] += found[name] if type(found.get(name)) is int else 0
        if isinstance(cost := found.get("cost_usd"), int | float):
            self.cost = (self.cost or 0) + cost

    def _call(self, chunk: Chunk, one: Told, body: Mapping[str, Any]) -> None:
        key = (self._roots.get(chunk.run, chunk.run) if chunk.run else "", _text(one.id))
        if one.what == "answered":
            call = self._calls.get(key)
            if call is not None:
                call.answered += 1
            return
        call = self._calls.setdefault(key, _Call(_text(one.name), chunk.id))
        if one.what == "asked":
            call.asked += 1
        elif one.what == "started":
            call.started += 1
        else:
            call.closed += 1
            if one.status == "no_response":
                reason = _text(body.get("reason") or "not told")
                self._silent.append({"call": key[1], "name": call.name, "chunk": chunk.id, "reason": reason})

    def _open_calls(self) -> Iterable[dict[str, Any]]:
        """Calls that nothing in the packet answers; one that was asked in one run and carried out in a later one is answered."""
        elsewhere = Counter(
            (name, call.name) for (_, name), call in self._calls.items() if not call.asked and not call.open and call.closed
        )
        for (_, name), call in self._calls.items():
            if call.open and not elsewhere[name, call.name]:
                yield {"call": name, "name": call.name, "chunk": call.chunk}


def _listed(entries: Iterable[dict[str, Any]]) -> dict[str, Any]:
    found = list(entries)
    return {"count": len(found), "list": found[:MOST]}


def _origin(text: str) -> dict[str, str]:
    value: Any = orjson.loads(text)
    found = {key: _text(item) for key, item in cast("dict[str, Any]", value).items()}
    return {key: found[key] for key in ("adapter", "framework", "version") if key in found} or {"adapter": "the program itself"}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _text(value: Any) -> str:
    """A name as it stands; what is no short text is described (names are short, unless somebody plays)."""
    if isinstance(value, str):
        return value[:400]
    return "" if value is None else orjson.dumps(value).decode()[:400]
