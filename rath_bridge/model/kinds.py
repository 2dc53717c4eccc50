"""The closed core set of chunk kinds: what can happen in a session.

Every body is a frozen dataclass. Absent values (None, and empty tuples and maps) are not written. A field marked *generated*
holds an id that is new in every run; one marked *volatile* differs between equal runs. `replay_form` renumbers the
first and drops
the second.
Names are the OpenTelemetry GenAI conventions' where they have one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from operator import attrgetter
from typing import Any, ClassVar, Final, cast

from rath_bridge.errors import DecodeError, EncodeError
from rath_bridge.model.encoding import TreeRef
from rath_bridge.model.parts import Part, part_from_json, part_to_json, shortened, words_of


def _generated() -> Any:
    return field(default=None, metadata={"generated": True})


def _volatile() -> Any:
    return field(default=None, metadata={"volatile": True})


def _map() -> Any:
    return field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """Base of all bodies."""

    kind: ClassVar[str] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one model call (``gen_ai.usage.*``)."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    reasoning_output_tokens: int | None = None
    cost_usd: float | None = None
    """Only where the framework itself reports one."""

    def __add__(self, other: Usage) -> Usage:
        total: dict[str, Any] = {}
        for name in _USAGE:
            ours, theirs = getattr(self, name), getattr(other, name)
            total[name] = ours if theirs is None else theirs if ours is None else ours + theirs
        return Usage(**total)

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return (self.input_tokens or 0) + (self.output_tokens or 0)


_USAGE: Final = tuple(f.name for f in fields(Usage))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStart(Body):
    """How this line came to be."""

    kind: ClassVar[str] = "session"
    op: str
    """``create``, ``fork``, ``detach``, ``import`` or ``replay``."""
    name: str
    """The session."""
    branch: str = "main"
    """The branch that begins here."""
    of: str | None = None
    """The ref that was forked, detached, imported or replayed."""
    source: str | None = None
    """Digest of the chunk where the old line stood (a detached line has no parent to tell it)."""
    renamed: Mapping[str, Any] = _map()
    """In a detached line, whose bodies still name chunks of the old one: old digest to position in this line."""
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Body):
    """An agent, graph, team, tool server or workflow begins or ends; runs nest."""

    kind: ClassVar[str] = "run"
    phase: str
    """``begin`` or ``end``."""
    name: str
    type: str | None = None
    """At the beginning: ``agent``, ``graph``, ``team``, ``workflow``, ``node``, ``server``, ``thread`` (lasts) or ``unattributed``."""
    parent: str | None = _generated()
    """The enclosing run's id; absent for a top-level run."""
    status: str | None = None
    """At the end: ``ok``, ``error``, ``cancelled``, ``interrupted`` or ``abandoned``."""
    native_id: str | None = _generated()
    """The framework's own id: thread_id, trace_id, group_id."""
    error: str | None = None
    manifest: tuple[Any, ...] = ()
    """What `encode` handed over: ``[position, chunk, digest]`` for each item that the run starts with; then what a briefing stands for."""
    tools: tuple[Any, ...] = ()
    """Tool definitions (``gen_ai.tool.definitions``)."""
    system_instructions: str | None = None
    attributes: Mapping[str, Any] = _map()
    """At the beginning, ``place`` says where the run stands among those of the same name, however they took turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Body):
    """One message of a transcript."""

    kind: ClassVar[str] = "message"
    role: str
    """``system``, ``user``, ``assistant``, ``tool``, or what the framework says."""
    parts: tuple[Part, ...] = ()
    name: str | None = None
    """Who speaks, where several share a role."""
    id: str | None = _generated()
    """The framework's id: a hint, never a key (frameworks drop and repeat them)."""
    replaces: str | None = None
    """Digest of the message chunk that this one edits."""
    same_as: str | None = None
    """Digest of an earlier chunk that is this message: shown once."""
    after: str | None = None
    """Digest of the message chunk behind which this one was inserted, where that is not the end."""
    turn: int | None = None
    position: int | None = None
    """Place in its run and turn: with them, appends are idempotent."""
    finish_reason: str | None = None
    stands_for: tuple[str, ...] = ()
    """Digests of what this block sums up (a merged branch, a compaction)."""
    basis: str | None = None
    """``inferred`` where a fact was not recorded but concluded."""
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any], metadata={"volatile": True})

    def __repr__(self) -> str:
        who = f"{self.role} {self.name}" if self.name else self.role
        return f"Message({who}: {shortened(words_of(self.parts))})"

    @property
    def text(self) -> str:
        """All text parts together. What a tool answered is no text part: it is the ``response`` of a `ToolCallResponsePart`."""
        return "".join(part.content for part in self.parts if part.type == "text")  # type: ignore[union-attr]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference(Body):
    """One model call. Only this kind carries usage (law 7)."""

    kind: ClassVar[str] = "inference"
    provider: str | None = None
    model: str | None = None
    response_model: str | None = _volatile()
    observer: str = "model"
    """Who saw it: ``model`` (a wrapper, exact) beats ``callback`` beats ``span``."""
    agent: str | None = None
    request: Mapping[str, Any] = _map()
    """``system``, ``tools``, ``params``, ``output_schema``, ``handoffs`` ..."""
    input: TreeRef | tuple[Any, ...] | None = None
    """Input items: a list tree of their native bytes, so that a repeated prefix costs nothing."""
    output: tuple[Any, ...] = ()
    """Output items or parts, in the framework's own JSON."""
    streamed: bool | None = None
    response_id: str | None = _generated()
    finish_reasons: tuple[str, ...] = ()
    usage: Usage | None = None
    time_to_first_chunk: float | None = _volatile()
    """Seconds."""
    duration: float | None = _volatile()
    """Seconds."""
    error: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any], metadata={"volatile": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall(Body):
    """A tool is about to run. Its result, or the lack of one, is a `ToolResult`."""

    kind: ClassVar[str] = "tool_call"
    name: str
    arguments: Any = None
    call_id: str | None = _generated()
    type: str | None = None
    """``function``, ``mcp``, ``handoff`` ..."""
    server: str | None = None
    """The MCP server's name."""
    effect: str | None = None
    """``pure``, ``reads`` or ``writes``; absent counts as writes."""
    agent: str | None = None
    basis: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any], metadata={"volatile": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult(Body):
    """How a call ended."""

    kind: ClassVar[str] = "tool_result"
    name: str | None = None
    call_id: str | None = _generated()
    status: str = "ok"
    """``ok``, ``error`` or ``no_response`` (the call was never answered)."""
    result: Any = None
    error: str | None = None
    reason: str | None = None
    """Why there is no response: ``timeout``, ``cancelled``, ``stream_ended``, ``server_exit``, ``merge`` ..."""
    duration: float | None = _volatile()
    """Seconds."""
    basis: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any], metadata={"volatile": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(Body):
    """A framework's state, as a tree."""

    kind: ClassVar[str] = "checkpoint"
    namespace: str = ""
    checkpoint_id: str | None = _generated()
    parent_checkpoint_id: str | None = _generated()
    step: int | None = None
    source: str | None = None
    state: TreeRef | None = None
    """A map tree: channel, or part of the state, to the digest of its value (or of its list tree)."""
    lists: Mapping[str, Any] = _map()
    """Which entries of ``state`` are list trees: name to number of items."""
    content: str | None = None
    """Digest of what ``state`` says beside its messages, without ids that are new in every run: with it, it is what replays compare (the
    messages are compared as ``message`` chunks)."""
    envelope: Any = None
    """The framework's bookkeeping around the state (channel versions, ids, metadata)."""
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any], metadata={"volatile": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Body):
    """The writes of one LangGraph task."""

    kind: ClassVar[str] = "task"
    namespace: str = ""
    checkpoint_id: str | None = _generated()
    task_id: str | None = _generated()
    path: str = ""
    name: str | None = None
    writes: tuple[Any, ...] = ()
    """``[index, channel, serde type, value]``; a value is a digest reference."""
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any], metadata={"volatile": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoff(Body):
    """One agent passes the work to another."""

    kind: ClassVar[str] = "handoff"
    from_agent: str | None = None
    to_agent: str | None = None
    call_id: str | None = _generated()
    input: Any = None
    basis: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any], metadata={"volatile": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Route(Body):
    """A router or selector decides."""

    kind: ClassVar[str] = "route"
    router: str | None = None
    chosen: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    reason: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any], metadata={"volatile": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrail(Body):
    """A check on input, output, or a tool's."""

    kind: ClassVar[str] = "guardrail"
    name: str
    stage: str | None = None
    """``input``, ``output``, ``tool_input`` or ``tool_output``."""
    triggered: bool | None = None
    output: Any = None
    agent: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any], metadata={"volatile": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval(Body):
    """A person is asked, and answers."""

    kind: ClassVar[str] = "approval"
    phase: str
    """``asked``, ``granted`` or ``denied``."""
    call_id: str | None = _generated()
    subject: Any = None
    by: str | None = None
    reason: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any], metadata={"volatile": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory(Body):
    """Something was recalled from, or committed to, a memory."""

    kind: ClassVar[str] = "memory"
    op: str
    """``recall`` or ``commit``."""
    store: str | None = None
    query: Any = None
    items: tuple[Any, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any], metadata={"volatile": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement(Body):
    """Where the work runs from here on."""

    kind: ClassVar[str] = "placement"
    backend: str
    root: str | None = _volatile()
    spec: Mapping[str, Any] = _map()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace(Body):
    """Files, by digest."""

    kind: ClassVar[str] = "workspace"
    files: TreeRef | None = None
    root: str | None = _volatile()
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any], metadata={"volatile": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction(Body):
    """What was dropped from a transcript, by id, and what stands for it."""

    kind: ClassVar[str] = "compaction"
    dropped: tuple[str, ...] = ()
    """Digests of message chunks."""
    stands: str | None = None
    """Digest of the message chunk that stands for them."""
    reason: str | None = None
    """``removed``, ``summarised``, ``popped``, ``cleared``, ``trimmed``, ``deleted`` ..."""
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any], metadata={"volatile": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge(Body):
    """Two lines become one. The first parent in the envelope is the line that goes on."""

    kind: ClassVar[str] = "merge"
    strategy: str
    """``summary``, ``ours``, ``theirs`` or ``function``."""
    base: str | None = None
    """Digest of the nearest chunk that both histories hold; absent where there is none."""
    ours: str
    theirs: str
    of: str | None = None
    """The ref that was folded in."""
    state: str = "ours"
    """Whose framework state goes on: ``ours``, ``theirs`` or ``merged`` (by the adapter's reducers)."""
    resolutions: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction(Body):
    """Content was erased or masked."""

    kind: ClassVar[str] = "redaction"
    targets: tuple[str, ...] = ()
    """Chunks whose bodies were erased."""
    objects: tuple[str, ...] = ()
    """Objects that were erased although other chunks stand on them."""
    rule: str | None = None
    """``redact``, ``prune``, or the name of a recorder's rule."""
    reason: str | None = None
    by: str | None = None
    """Who asked for it."""
    before: str | None = None
    """A boundary (``prune``): what is older was erased, except for the frame: sessions, open runs, placements, redactions, gaps."""
    count: int | None = None
    """How many chunks a boundary stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap(Body):
    """A counted loss: something happened that is not on record."""

    kind: ClassVar[str] = "gap"
    count: int
    reason: str
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any], metadata={"volatile": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Error(Body):
    """Something failed that is not a tool's or a model's own answer."""

    kind: ClassVar[str] = "error"
    type: str
    message: str = ""
    where: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any], metadata={"volatile": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Span(Body):
    """A foreign OpenTelemetry span."""

    kind: ClassVar[str] = "span"
    name: str
    span_kind: str | None = None
    status: str | None = None
    duration: float | None = _volatile()
    """Seconds."""
    attributes: Mapping[str, Any] = _map()
    events: tuple[Any, ...] = ()
    links: tuple[Any, ...] = ()
    scope: str | None = None
    resource: Mapping[str, Any] = _map()


@dataclass(frozen=True, slots=True, kw_only=True)
class Note(Body):
    """A remark by a person or a tool; never part of a transcript."""

    kind: ClassVar[str] = "note"
    text: str = ""
    author: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any], metadata={"volatile": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown(Body):
    """A kind that this version does not know: kept byte for byte, shown as unknown."""

    kind: ClassVar[str] = "unknown"
    name: str
    """The kind that the envelope gives."""
    fields: Mapping[str, Any]


KINDS: Final[dict[str, type[Body]]] = {
    cls.kind: cls
    for cls in (
        SessionStart, Run, Message, Inference, ToolCall, ToolResult, Checkpoint, Task, Handoff, Route, Guardrail, Approval,
        Memory, Placement, Workspace, Compaction, Merge, Redaction, Gap, Error, Span, Note,
    )
}  # fmt: skip

RESERVED: Final = frozenset({"nonce", "native"})
"""Keys of a body that no kind may use: the nonce, and the reference to the framework's own bytes."""

_FIELDS: Final = {cls: {f.name: f.metadata for f in fields(cls)} for cls in KINDS.values()}
_EMPTY: Final = {
    cls: frozenset(f.name for f in fields(cls) if f.default == () or f.default_factory is not MISSING) for cls in KINDS.values()
}
"""Fields that are left out when empty (in a free field such as ``arguments``, an empty value is a value)."""
_READ: Final = {cls: (names := tuple(f.name for f in fields(cls)), attrgetter(*names), _EMPTY[cls]) for cls in KINDS.values()}
"""How `body_fields` reads a body: names, all values at once, and what to leave out when empty."""
_TEXTS: Final = {cls: frozenset(f.name for f in fields(cls) if f.type in ("str", "str | None")) for cls in KINDS.values()}
_REQUIRED: Final = {
    cls: frozenset(f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING and f.type == "str")
    for cls in KINDS.values()
}
_TUPLES: Final = {cls: frozenset(f.name for f in fields(cls) if str(f.type).startswith("tuple")) for cls in KINDS.values()}


def marked(cls: type[Body], mark: str) -> frozenset[str]:
    """Names of the fields that carry ``mark``: ``generated`` or ``volatile``."""
    return frozenset(name for name, metadata in _FIELDS.get(cls, {}).items() if mark in metadata)


def body_fields(body: Body) -> dict[str, Any]:
    """Return a body as the map that is encoded; absent values are left out.

    Raises:
        EncodeError: A text is none, or a message part is none: it could be written, and never be read again.
    """
    if type(body) is Unknown:
        return dict(body.fields)
    found: dict[str, Any] = {}
    cls = type(body)
    names, values, empty = _READ[cls]
    texts = _TEXTS[cls]
    for name, value in zip(names, values(body), strict=True):
        if value is None or (not value and name in empty):
            if value is None and name in _REQUIRED[cls]:
                raise EncodeError(f"body.{name}", "nothing", f"a {cls.kind!r} body needs a text there")
            continue
        if name in texts:
            if type(value) is not str:
                raise EncodeError(f"body.{name}", f"a {type(value).__qualname__}", "give a text")
        elif name == "parts":
            value = [part_to_json(part) for part in cast("tuple[Part, ...]", value)]
        elif type(value) is Usage:
            value = {key: getattr(value, key) for key in _USAGE if getattr(value, key) is not None}
        found[name] = value
    return found


def body_of(kind: str, values: Mapping[str, Any], place: str = "body") -> Body:
    """Build the body of a kind from its decoded map; unknown fields are dropped from the view (the bytes keep them).

    Raises:
        DecodeError: A required field is missing, or a part is malformed.
    """
    cls = KINDS.get(kind)
    if cls is None:
        return Unknown(name=kind, fields={k: v for k, v in values.items() if k not in RESERVED})
    found: dict[str, Any] = {}
    known = _FIELDS[cls]
    value: Any
    for name, value in values.items():
        if name not in known:
            continue
        if name == "parts":
            if not isinstance(value, list):
                raise DecodeError(place, f"the parts of a {kind!r} body are a list, not {value!r:.60}", "parts")
            value = tuple(part_from_json(part, f"{place}.parts[{i}]") for i, part in enumerate(cast("list[Any]", value)))
        elif name == "usage" and isinstance(value, Mapping):
            value = Usage(**{key: cast(Any, value)[key] for key in _USAGE if key in value})
        elif isinstance(value, list) and (name in _TUPLES[cls] or name == "input"):
            value = tuple(cast("list[Any]", value))
        found[name] = value
    try:
        return cls(**found)
    except TypeError as error:
        raise DecodeError(place, f"a {kind!r} body is incomplete ({error})") from error
