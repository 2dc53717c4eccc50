"""What a session holds for a replay: model calls by what was asked, answers of tools by call id, decisions of guardrails in turn."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, Final, cast

from rath_bridge.errors import MissingObjectError
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.model.encoding import TreeRef
from rath_bridge.model.kinds import Guardrail, Inference, Message, Run, ToolCall, ToolResult
from rath_bridge.model.trees import read_list
from rath_bridge.redaction import DEFAULT
from rath_bridge.replay.divergence import Divergence
from rath_bridge.session import Session
from rath_openai_agents.items import FRAMEWORK, OUTPUTS, from_bytes, key

_SHOWN: Final = 200
"""Characters of each side that a divergence shows."""


@dataclass(slots=True, eq=False)
class Reply:
    """One recorded model call."""

    chunk: Digest
    body: Inference
    items: tuple[Mapping[str, Any], ...]
    """What the model was handed."""
    keys: tuple[Digest, ...]
    """Comparison keys of ``items``."""
    native: Mapping[str, Any] | None
    """The whole response as JSON; None where it was not recorded exactly."""
    nested: bool
    """Asked by an agent that served as a tool: a replay serves the tool's answer instead."""
    used: bool = False


@dataclass(slots=True)
class Answer:
    """How a recorded tool call ended."""

    chunk: Digest
    name: str | None
    output: Any
    """What the model was told, in the SDK's own form, else the tool's result."""
    exact: bool
    """``output`` is the item's own."""
    status: str = "ok"
    error: str | None = None

    @property
    def result_missing(self) -> bool:
        """It raised, or never answered."""
        return self.status == "no_response" or (self.status == "error" and self.output is None)


@dataclass(slots=True)
class Tape:
    """A record that is being replayed; what was served is not served again. Safe from any thread."""

    replies: list[Reply]
    answers: dict[str, deque[Answer]]
    guardrails: dict[tuple[str, str], deque[tuple[Digest, bool]]]
    tools: dict[str | None, list[Mapping[str, Any]]]
    """Agent to the definitions of its tools, as its first call had them."""
    reasons: tuple[str, ...] = ()
    """Why the record cannot be replayed whole; empty where it can."""
    served: int = 0
    misses: list[Divergence] = field(default_factory=list[Divergence])
    _lock: RLock = field(default_factory=RLock)

    @classmethod
    def of(cls, session: Session) -> Tape:
        """Read a session."""
        chunks = list(session.chunks())
        nested = _nested(chunks)
        seen: dict[Digest, tuple[Mapping[str, Any], Digest]] = {}
        replies = [_reply(chunk, session, seen, chunk.run in nested) for chunk in chunks if chunk.kind == "inference"]
        guardrails: dict[tuple[str, str], deque[tuple[Digest, bool]]] = {}
        for chunk in chunks:
            if chunk.kind == "guardrail" and chunk.run not in nested:
                check = cast(Guardrail, chunk.body)
                guardrails.setdefault((check.stage or "", check.name), deque()).append((chunk.id, bool(check.triggered)))
        tools: dict[str | None, list[Mapping[str, Any]]] = {}
        for one in replies:
            tools.setdefault(one.body.agent, _definitions(one.body.request.get("tools"), session))
        answers = _answers(chunks, nested)
        return cls(replies, answers, guardrails, tools, _reasons(replies, answers, [c for c in chunks if c.run not in nested]))

    @property
    def divergence(self) -> Divergence | None:
        """The first place where the run left the record."""
        return self.misses[0] if self.misses else None

    @property
    def unused(self) -> tuple[str, ...]:
        """Model calls of the record that the run did not ask for."""
        return tuple(_title(one) for one in self.replies if not one.used and not one.nested)

    @property
    def left(self) -> tuple[Digest, ...]:
        """Chunks of those calls."""
        return tuple(one.chunk for one in self.replies if not one.used and not one.nested)

    def miss(self, divergence: Divergence) -> Divergence:
        """Note a divergence and return it."""
        with self._lock:
            self.misses.append(divergence)
            return divergence

    def reply(
        self, items: Sequence[Mapping[str, Any]], request: Mapping[str, Any], agent: str | None = None
    ) -> Reply | Divergence:
        """Return the recorded answer to a model call, or where it differs from the next one on record (which is a miss)."""
        found = self.find_reply(items, request, agent)
        return self.miss(found) if isinstance(found, Divergence) else found

    def find_reply(
        self, items: Sequence[Mapping[str, Any]], request: Mapping[str, Any], agent: str | None = None
    ) -> Reply | Divergence:
        """As `reply`; a difference is only told."""
        items, request = DEFAULT.apply(list(items)), DEFAULT.apply(dict(request))
        keys = tuple(key(item) for item in items)
        asked = _plain(request)
        with self._lock:
            left = [one for one in self.replies if not one.used]
            for one in left:
                if one.keys == keys and _plain(one.body.request) == asked:
                    one.used = True
                    self.served += 1
                    return one
            wanted = next((one for one in left if not one.nested), None)
        title = "model call" if agent is None else f"model call of {agent}"
        if wanted is None:
            return Divergence(title, _short(items[-1:]), "nothing left")
        return _difference(title, items, keys, request, wanted)

    def answer(self, name: str, call_id: str, arguments: Any) -> Answer | Divergence:
        """Return how a recorded call ended; a call that is not on record is a miss."""
        found = self.find_answer(name, call_id, arguments)
        return self.miss(found) if isinstance(found, Divergence) else found

    def find_answer(self, name: str, call_id: str, arguments: Any) -> Answer | Divergence:
        """As `answer`; a difference is only told."""
        with self._lock:
            waiting = self.answers.get(call_id)
            if waiting:
                self.served += 1
                return waiting.popleft()
        return Divergence(f"tool call {name}", f"{call_id} with {_short(arguments)}", "no answer to it")

    def decision(self, stage: str, name: str) -> bool | Divergence:
        """Return what a guardrail decided; a check that is not on record is a miss."""
        found = self.find_decision(stage, name)
        return self.miss(found) if isinstance(found, Divergence) else found[1]

    def find_decision(self, stage: str, name: str) -> tuple[Digest, bool] | Divergence:
        """As `decision`, with its chunk; a difference is only told."""
        with self._lock:
            waiting = self.guardrails.get((stage, name))
            if waiting:
                self.served += 1
                return waiting.popleft()
        return Divergence(f"{stage} guardrail {name}", "a check", "none left")


# ------------------------------------------------------------------ reading


def _nested(chunks: Iterable[Chunk]) -> set[str | None]:
    """Return the runs of agents that served as tools: a task of the SDK that another agent's run began."""
    types: dict[str, tuple[str, str | None]] = {}
    for chunk in chunks:
        if chunk.kind == "run" and chunk.run is not None and chunk.run not in types:
            body = cast(Run, chunk.body)
            if body.phase == "begin":
                types[chunk.run] = (body.type or "", body.parent)
    found: set[str | None] = set()
    for run, (kind, parent) in types.items():
        above = types.get(parent) if parent else None
        if parent in found or (kind == "workflow" and above is not None and above[0] == "agent"):
            found.add(run)
    return found


def _reply(chunk: Chunk, session: Session, seen: dict[Digest, tuple[Mapping[str, Any], Digest]], nested: bool) -> Reply:
    """Read a model call; an item that several calls were handed is read once."""
    body = cast(Inference, chunk.body)
    names: list[Digest] = []
    if isinstance(body.input, TreeRef):
        backend = session.store.backend
        names = [raw.hex() for raw in read_list(body.input, backend.objects)]
        new = {name for name in names if name not in seen}
        fetched: Mapping[Digest, bytes] = backend.objects(new) if new else {}
        for name, data in fetched.items():
            item = from_bytes(data)
            seen[name] = (item, key(item))
    items, keys = (tuple(seen[name][at] for name in names) for at in (0, 1))
    ref = chunk.native_ref
    native = chunk.native if ref is not None and ref["framework"] == FRAMEWORK and ref["codec"] == "json" else None
    return Reply(
        chunk.id, body, cast(Any, items), cast(Any, keys), from_bytes(native.data) if native is not None else None, nested
    )


def _read(ref: TreeRef, session: Session) -> list[bytes]:
    backend = session.store.backend
    names = [raw.hex() for raw in read_list(ref, backend.objects)]
    found = backend.objects(set(names))
    return [found[name] for name in names]


def _definitions(ref: Any, session: Session) -> list[Mapping[str, Any]]:
    return [from_bytes(data) for data in _read(ref, session)] if isinstance(ref, TreeRef) else []


def _answers(chunks: Sequence[Chunk], nested: set[str | None]) -> dict[str, deque[Answer]]:
    """Return the answers to each call id in order: as the model was told, else as the tool gave them."""
    told: dict[str, deque[Answer]] = {}
    given: dict[str, deque[Answer]] = {}
    for chunk in chunks:
        if chunk.run in nested:
            continue
        if chunk.kind == "message" and cast(Message, chunk.body).role == "tool":
            native = chunk.native
            for item in from_bytes(native.data) if native is not None and native.framework == FRAMEWORK else ():
                if item.get("type") in OUTPUTS and item.get("call_id") is not None:
                    answer = Answer(chunk.id, None, item.get("output"), exact=True)
                    told.setdefault(str(item["call_id"]), deque()).append(answer)
        elif chunk.kind == "tool_result":
            body = cast(ToolResult, chunk.body)
            if body.call_id is not None:
                answer = Answer(chunk.id, body.name, body.result, exact=False, status=body.status, error=body.error)
                given.setdefault(body.call_id, deque()).append(answer)
    return {**given, **{name: _longer(one, given.get(name, deque())) for name, one in told.items()}}


def _longer(told: deque[Answer], given: deque[Answer]) -> deque[Answer]:
    """Add the last answers of a run that no model was told."""
    return deque([*told, *list(given)[len(told) :]])


def _reasons(replies: Sequence[Reply], answers: Mapping[str, deque[Answer]], chunks: Sequence[Chunk]) -> tuple[str, ...]:
    found: list[str] = []
    if not replies:
        found.append("no model call is on record")
    spans = sum(one.native is None and one.body.error is None and not one.nested for one in replies)
    if spans:
        found.append(f"{spans} of {len(replies)} model calls were not recorded exactly: wrap the model in RecordingModel")
    called = [cast(ToolCall, chunk.body) for chunk in chunks if chunk.kind == "tool_call"]
    inferred = sum(body.basis == "inferred" and not any(a.exact for a in answers.get(body.call_id or "", ())) for body in called)
    if inferred:
        found.append(f"{inferred} tool calls were seen by their spans alone: run with RathRunHooks")
    gaps = sum(chunk.kind == "gap" for chunk in chunks)
    if gaps:
        found.append(f"{gaps} gaps are on record")
    return tuple(found)


# ------------------------------------------------------------------ comparing


def _plain(request: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(dict(request), sort_keys=True, default=str))


def _difference(
    title: str, items: Sequence[Mapping[str, Any]], keys: Sequence[Digest], request: Mapping[str, Any], wanted: Reply
) -> Divergence:
    """Name the first thing in which a request differs from the one on record."""
    for i, (one, other) in enumerate(zip(items, wanted.items, strict=False)):
        if keys[i] != wanted.keys[i]:
            return Divergence(f"{title}: input[{i}]", _short(one), _short(other), wanted.chunk)
    if len(items) != len(wanted.items):
        more = max(items, wanted.items, key=len)[min(len(items), len(wanted.items))]
        what = f"{title}: input, of which one side has more: {_short(more)}"
        return Divergence(what, f"{len(items)} items", f"{len(wanted.items)} items", wanted.chunk)
    ours, theirs = _plain(request), _plain(wanted.body.request)
    name = next(name for name in sorted({*ours, *theirs}) if ours.get(name) != theirs.get(name))
    return Divergence(f"{title}: {name}", _short(ours.get(name)), _short(theirs.get(name)), wanted.chunk)


def _title(one: Reply) -> str:
    return f"model call {one.chunk[:12]}" + (f" of {one.body.agent}" if one.body.agent else "")


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def replayable(session: Session) -> tuple[str, ...]:
    """Return why a session cannot be replayed; empty where it can be."""
    try:
        return Tape.of(session).reasons
    except MissingObjectError as error:
        return (f"what it stands on is gone: {error}",)
