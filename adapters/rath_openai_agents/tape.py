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
from rath_bridge.model.kinds import Guardrail, Inference, Message, Run, Span, ToolCall, ToolResult
from rath_bridge.model.trees import read_list
from rath_bridge.redaction import DEFAULT
from rath_bridge.replay.divergence import Divergence
from rath_bridge.session import Session
from rath_openai_agents.items import FRAMEWORK, NATIVE, OUTPUTS, PAIRS, from_bytes, key, parse, table

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
    item: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The item in which the model was told."""
    text: Any = None
    """What the tool itself gave, where both are on record."""

    @property
    def result_missing(self) -> bool:
        """It raised, or never answered."""
        return self.status == "no_response" or (self.status == "error" and self.output is None)


@dataclass(slots=True)
class Stepped:
    """A recorded call that is carried out in steps of which none tells its id: operations of an editor, actions of a computer."""

    call_id: str
    left: deque[Any]
    first: bool
    """The first step gives the answer (an editor's), not the last (the screen)."""


@dataclass(slots=True)
class Tape:
    """A record that is being replayed; what was served is not served again. Safe from any thread."""

    replies: list[Reply]
    answers: dict[str, deque[Answer]]
    guardrails: dict[tuple[str, str], deque[tuple[Digest, bool, Any]]]
    """Stage and name to what was decided: chunk, whether it tripped, what it told."""
    tools: dict[str | None, list[Mapping[str, Any]]]
    """Agent to the definitions of its tools, as its first call had them."""
    asked: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Call id to the last item that asked for it."""
    stepped: dict[str, list[Stepped]] = field(default_factory=dict[str, list[Stepped]])
    """Tool to its calls that are carried out in steps."""
    listed: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """MCP server to the names of its tools, as it listed them."""
    rejected: frozenset[str] = frozenset()
    """Calls that a tool's own guardrail kept from running: hooks saw others start, and not these."""
    reasons: tuple[str, ...] = ()
    """Why the record cannot be replayed whole; empty where it can."""
    servers: Mapping[str, str] = field(default_factory=dict[str, str])
    """MCP tool to its server's name."""
    served: int = 0
    misses: list[Divergence] = field(default_factory=list[Divergence])
    _lock: RLock = field(default_factory=RLock)

    @classmethod
    def of(cls, session: Session) -> Tape:
        """Read a session."""
        chunks = list(session.chunks())
        nested = _nested(chunks)
        seen: dict[Digest, tuple[Mapping[str, Any], Digest]] = {}
        chunks = [chunk for chunk in chunks if chunk.kind == "gap" or "rath_openai_agents" in (chunk.origin or "")]
        replies = [_reply(chunk, session, seen, chunk.run in nested) for chunk in chunks if chunk.kind == "inference"]
        guardrails: dict[tuple[str, str], deque[tuple[Digest, bool, Any]]] = {}
        for chunk in chunks:
            if chunk.kind == "guardrail" and chunk.run not in nested:
                check = cast(Guardrail, chunk.body)
                guardrails.setdefault((check.stage or "", check.name), deque()).append(
                    (chunk.id, bool(check.triggered), check.output)
                )
        tools: dict[str | None, list[Mapping[str, Any]]] = {}
        for one in replies:
            tools.setdefault(one.body.agent, _definitions(one.body.request.get("tools"), session))
        answers = _answers(chunks, nested)
        asked = list(_asked(chunks, nested))
        reasons = _reasons(replies, answers, [c for c in chunks if c.run not in nested])
        by_id = {str(item.get("call_id")): item for item in asked}
        calls = [cast(ToolCall, chunk.body) for chunk in chunks if chunk.kind == "tool_call"]
        servers = {call.name: call.server for call in calls if call.server is not None}
        return cls(
            replies,
            answers,
            guardrails,
            tools,
            by_id,
            _stepped(asked),
            _listed(chunks),
            _rejected(chunks),
            reasons,
            servers=servers,
        )

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
            asked = self.asked.get(call_id)
            if waiting and asked is not None and "arguments" in asked and parse(asked["arguments"]) != DEFAULT.apply(arguments):
                held = f"{call_id} with {_short(asked['arguments'])}"
                return Divergence(f"tool call {name}", f"{call_id} with {_short(arguments)}", held, waiting[0].chunk, "arguments")
            if waiting:
                self.served += 1
                return waiting.popleft()
        return Divergence(f"tool call {name}", f"{call_id} with {_short(arguments)}", "no answer to it")

    def find_step(self, name: str, step: Any) -> Answer | Divergence | None:
        """Return the answer to a call of which one step is carried out; None where another step of it gives the answer."""
        step = DEFAULT.apply(step)
        with self._lock:
            calls = self.stepped.get(name, [])
            found = next((one for one in calls if one.left[0] == step), None)
            if found is None:
                held = _short(calls[0].left[0]) if calls else "no call left"
                chunk = self.answers[calls[0].call_id][0].chunk if calls and self.answers.get(calls[0].call_id) else None
                return Divergence(f"tool call {name}", _short(step), held, chunk)
            found.left.popleft()
            answers = found.first or not found.left
            found.first = False
            if not found.left:
                calls.remove(found)
        return self.find_answer(name, found.call_id, step) if answers else None

    def decision(self, stage: str, name: str) -> tuple[Digest, bool, Any] | Divergence:
        """Return what a guardrail decided and told; a check that is not on record is a miss."""
        found = self.find_decision(stage, name)
        return self.miss(found) if isinstance(found, Divergence) else found

    def find_decision(self, stage: str, name: str) -> tuple[Digest, bool, Any] | Divergence:
        """As `decision`; a difference is only told."""
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
                if str(item.get("type")) in OUTPUTS and item.get("call_id") is not None:
                    answer = Answer(chunk.id, None, item.get("output"), exact=True, item=item)
                    told.setdefault(str(item["call_id"]), deque()).append(answer)
        elif chunk.kind == "tool_result":
            body = cast(ToolResult, chunk.body)
            if body.call_id is not None:
                answer = Answer(chunk.id, body.name, body.result, exact=False, status=body.status, error=body.error)
                given.setdefault(body.call_id, deque()).append(answer)
    return {**given, **{name: _longer(one, given.get(name, deque())) for name, one in told.items()}}


def _longer(told: deque[Answer], given: deque[Answer]) -> deque[Answer]:
    """Add what the tools themselves gave, and the last answers of a run that no model was told."""
    for one, other in zip(told, given, strict=False):
        one.text, one.status, one.error = other.output, other.status, other.error
        if one.item.get("type") not in ("function_call_output", "custom_tool_call_output"):
            one.chunk = other.chunk  # such an output is no answer in the transcript's own terms: the tool's chunk is
    return deque([*told, *list(given)[len(told) :]])


def _asked(chunks: Iterable[Chunk], nested: set[str | None]) -> Iterable[Mapping[str, Any]]:
    for chunk in chunks:
        if chunk.kind == "message" and chunk.run not in nested and cast(Message, chunk.body).role == "assistant":
            native = chunk.native
            if native is not None and native.framework == FRAMEWORK:
                yield from (item for item in from_bytes(native.data) if str(item.get("type")) in PAIRS)


def _rejected(chunks: Iterable[Chunk]) -> frozenset[str]:
    calls = [cast(ToolCall, chunk.body) for chunk in chunks if chunk.kind == "tool_call"]
    if all(call.basis == "inferred" for call in calls):
        return frozenset()  # nobody saw tools start
    return frozenset(
        call.call_id for call in calls if call.basis == "inferred" and call.call_id is not None and call.type == "function"
    )


def _listed(chunks: Iterable[Chunk]) -> dict[str, Sequence[str]]:
    found: dict[str, Sequence[str]] = {}
    for chunk in chunks:
        if chunk.kind == "span" and cast(Span, chunk.body).name == "mcp_tools":
            about = cast(Span, chunk.body).attributes
            if isinstance(about.get("server"), str):
                found[about["server"]] = tuple(map(str, cast("Sequence[Any]", about.get("result") or ())))
    return found


def _stepped(asked: Iterable[Mapping[str, Any]]) -> dict[str, list[Stepped]]:
    found: dict[str, list[Stepped]] = {}
    for item in asked:
        kind, call_id = str(item.get("type")), str(item.get("call_id"))
        if kind == "apply_patch_call":
            given: Any = item.get("operations") or [item.get("operation")]
            steps = [{name: value for name, value in table(one).items() if value is not None} for one in given]
        elif kind == "computer_call":
            steps = _actions(cast("Sequence[Any]", item.get("actions") or [item.get("action")]))
        else:
            continue
        found.setdefault(NATIVE[kind], []).append(Stepped(call_id, deque(steps), first=kind == "apply_patch_call"))
    return found


def _actions(actions: Sequence[Any]) -> list[Any]:
    """Return what the SDK does to a computer for one call: each action, and a screenshot at the end (source: ``agents.computer``)."""
    found: list[Any] = [[action.get("type"), *_arguments(action)] for action in map(table, actions)]
    return found if found and found[-1][0] == "screenshot" else [*found, ["screenshot"]]


def _arguments(action: Mapping[str, Any]) -> list[Any]:
    if action.get("type") == "drag":
        return [[[table(point).get("x"), table(point).get("y")] for point in action.get("path") or ()]]
    names: Mapping[str, tuple[str, ...]] = {
        "click": ("x", "y", "button"), "double_click": ("x", "y"), "keypress": ("keys",), "move": ("x", "y"),
        "scroll": ("x", "y", "scroll_x", "scroll_y"), "type": ("text",),
    }  # fmt: skip
    return [action.get(name) for name in names.get(str(action.get("type")), ())]


def _reasons(replies: Sequence[Reply], answers: Mapping[str, deque[Answer]], chunks: Sequence[Chunk]) -> tuple[str, ...]:
    found: list[str] = []
    if not replies and not any(chunk.kind == "guardrail" for chunk in chunks):
        found.append("no model call is on record: wrap the model in RecordingModel, and run with RathRunHooks")
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
