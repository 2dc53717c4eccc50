"""What a record holds for a replay, read from its chunks: model calls, answers of tools, and why it may not be replayable whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.model.encoding import TreeRef
from rath_bridge.model.kinds import Inference, Message, Run, Span, ToolCall, ToolResult
from rath_bridge.model.trees import read_list
from rath_bridge.session import Session
from rath_openai_agents.items import FRAMEWORK, NATIVE, OUTPUTS, PAIRS, from_bytes, key, table


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
    exception: Any = None
    """What else was kept of an exception."""
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
    begun: bool = False
    """A step of it was carried out."""
    verdict: Any = None
    """What becomes of the whole call, decided when its first step was carried out."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a recorded call."""

    call: Stepped
    begins: Digest | None
    """At the first step: the chunk of the call's answer."""
    answer: Answer | None
    """Where this step gives it."""


def nested_runs(chunks: Iterable[Chunk]) -> set[str | None]:
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


def reply_of(chunk: Chunk, session: Session, seen: dict[Digest, tuple[Mapping[str, Any], Digest]], nested: bool) -> Reply:
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


def definitions_at(ref: Any, session: Session) -> list[Mapping[str, Any]]:
    """Read the definitions of tools that a model was told of."""
    return [from_bytes(data) for data in _read(ref, session)] if isinstance(ref, TreeRef) else []


def answers_of(chunks: Sequence[Chunk], nested: set[str | None]) -> dict[str, deque[Answer]]:
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
                answer = Answer(
                    chunk.id, body.name, body.result, exact=False, status=body.status, error=body.error,
                    exception=body.attributes.get("exception"),
                )  # fmt: skip
                given.setdefault(body.call_id, deque()).append(answer)
    return {**given, **{name: _longer(one, given.get(name, deque())) for name, one in told.items()}}


def _longer(told: deque[Answer], given: deque[Answer]) -> deque[Answer]:
    """Add what the tools themselves gave, and the last answers of a run that no model was told."""
    for one, other in zip(told, given, strict=False):
        one.text, one.status, one.error = other.output, other.status, other.error
        if one.item.get("type") not in ("function_call_output", "custom_tool_call_output"):
            one.chunk = other.chunk  # such an output is no answer in the transcript's own terms: the tool's chunk is
    return deque([*told, *list(given)[len(told) :]])


def asked_in(chunks: Iterable[Chunk], nested: set[str | None]) -> Iterable[Mapping[str, Any]]:
    """Yield the items in which a model asked for a call."""
    for chunk in chunks:
        if chunk.kind == "message" and chunk.run not in nested and cast(Message, chunk.body).role == "assistant":
            native = chunk.native
            if native is not None and native.framework == FRAMEWORK:
                yield from (item for item in from_bytes(native.data) if str(item.get("type")) in PAIRS)


def rejected_in(chunks: Iterable[Chunk]) -> frozenset[str]:
    """Return the calls that a tool's own guardrail kept from running."""
    calls = [cast(ToolCall, chunk.body) for chunk in chunks if chunk.kind == "tool_call"]
    if all(call.basis == "inferred" for call in calls):
        return frozenset()  # nobody saw tools start
    return frozenset(
        call.call_id for call in calls if call.basis == "inferred" and call.call_id is not None and call.type == "function"
    )


def listed_in(chunks: Iterable[Chunk]) -> dict[str, Sequence[str]]:
    """Return the names of the tools that each MCP server listed."""
    found: dict[str, Sequence[str]] = {}
    for chunk in chunks:
        if chunk.kind == "span" and cast(Span, chunk.body).name == "mcp_tools":
            about = cast(Span, chunk.body).attributes
            if isinstance(about.get("server"), str):
                found[about["server"]] = tuple(map(str, cast("Sequence[Any]", about.get("result") or ())))
    return found


def stepped_of(asked: Iterable[Mapping[str, Any]]) -> dict[str, list[Stepped]]:
    """Return the calls that are carried out in steps of which none tells its id, by tool."""
    found: dict[str, list[Stepped]] = {}
    for item in asked:
        kind, call_id = str(item.get("type")), str(item.get("call_id"))
        if kind == "apply_patch_call":
            given: Any = item.get("operations") or [item.get("operation")]
            steps = [operation_of(table(one).get) for one in given]
        elif kind == "computer_call":
            steps = _actions(cast("Sequence[Any]", item.get("actions") or [item.get("action")]))
        else:
            continue
        found.setdefault(NATIVE[kind], []).append(Stepped(call_id, deque(steps), first=kind == "apply_patch_call"))
    return found


def operation_of(get: Callable[[str], Any]) -> dict[str, Any]:
    """Return an operation as the SDK hands it to an editor (source: ``agents.editor.ApplyPatchOperation``)."""
    names = ("type", "path", "move_to") if get("type") == "delete_file" else ("type", "path", "diff", "move_to")
    return {name: value for name in names if (value := get(name)) is not None}


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


NO_MODEL: Final = "no model call is on record: wrap the model in RecordingModel, and run with RathRunHooks"


def reasons_of(replies: Sequence[Reply], answers: Mapping[str, deque[Answer]], chunks: Sequence[Chunk]) -> tuple[str, ...]:
    """Return why a record cannot be replayed whole."""
    found: list[str] = []
    if not replies and not any(chunk.kind == "guardrail" for chunk in chunks):
        found.append(NO_MODEL)
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
