"""Where a place in a history came from: run, agent, branch, model call, tool call; back through edits, merges and hand-overs.

A link is *recorded* where the chunks themselves name each other (call ids, response ids, ``same_as``, ``replaces``, ``stands_for``, a
run's manifest), and *inferred* where it was concluded: from equal words, from the order within a run, or because the chunk says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from rath_bridge.errors import RathError
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Checkpoint, Inference, Merge, Message, Run, Task, ToolCall, ToolResult
from rath_bridge.model.parts import ToolCallPart, ToolCallResponsePart
from rath_bridge.model.report import manifest_of
from rath_bridge.store.protocol import Reader
from rath_bridge.verbs.branches import Lines
from rath_bridge.verbs.changes import Path
from rath_bridge.verbs.lineage import ancestors

_CONTENT: Final = frozenset({"message", "inference", "tool_call", "tool_result", "memory", "handoff", "note"})
"""Kinds in which the same words may come from one another."""
Basis = Literal["recorded", "inferred"]
_NEAR: Final = 16
"""Model calls before a state among which the one of its node is looked for."""
MOST: Final = 200
"""Places that are followed back one by one; of more, only run, agent and branch are told."""


@dataclass(frozen=True, slots=True)
class Found:
    """One place where it stands."""

    chunk: Chunk
    path: Path
    excerpt: str
    value: Digest | None = None
    """For a file or a state's key: the digest of its content."""


@dataclass(frozen=True, slots=True)
class Link:
    """One step back."""

    how: str
    """``model call``, ``tool call``, ``asked by``, ``answers``, ``same as``, ``edits``, ``stands for``, ``merged in by``, ``handed over``,
    ``written by``, ``said before``."""
    chunk: Digest
    basis: Basis = "recorded"

    def to_json(self) -> dict[str, str]:
        """Return it as JSON values."""
        return {"how": self.how, "chunk": self.chunk, "basis": self.basis}


@dataclass(frozen=True, slots=True)
class Provenance:
    """What one place goes back to."""

    runs: tuple[str, ...] = ()
    agent: str | None = None
    branch: str | None = None
    model_call: Link | None = None
    tool_call: Link | None = None
    links: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A chunk that shares an id with a place. Call ids may come again in other runs and turns."""

    chunk: Chunk
    basis: Basis = "recorded"
    rank: int = 1
    """0 for an id that is one message's alone."""


@dataclass(slots=True)
class _Wanted:
    """What one place asks the chunks around it."""

    calls: frozenset[str] = frozenset()
    """Ids of the calls that it tells of."""
    message: str | None = None
    """The framework's id of the message."""
    models: list[_Candidate] = field(default_factory=list["_Candidate"])
    tools: list[_Candidate] = field(default_factory=list["_Candidate"])
    askers: list[_Candidate] = field(default_factory=list["_Candidate"])
    model: Link | None = None
    tool: Link | None = None
    asked: Link | None = None
    written: Link | None = None
    key: str | None = None
    """The state's key that a checkpoint brought in,"""
    before: str | None = None
    """the checkpoint that its tasks started from,"""
    node: str | None = None
    """and the node that wrote it."""
    near: list[Chunk] = field(default_factory=list[Chunk])
    """The model calls before it, nearest first."""
    more: list[Link] = field(default_factory=list[Link])


@dataclass(slots=True)
class _Context:
    """What was learned on the way back."""

    runs: dict[str, tuple[str, str | None, Digest]] = field(default_factory=dict[str, tuple[str, str | None, Digest]])
    """Run to name, enclosing run, and the chunk where it begins."""
    handed: dict[str, frozenset[Digest]] = field(default_factory=dict[str, frozenset[Digest]])
    """Run to the chunks that it was handed when it began."""
    branches: dict[Digest, str | None] = field(default_factory=dict[Digest, str | None])

    def root(self, run: str | None) -> str | None:
        """The top-level run of a run."""
        seen: set[str] = set()
        while run is not None and run not in seen and run in self.runs and self.runs[run][1] is not None:
            seen.add(run)
            run = self.runs[run][1]
        return run

    def names(self, run: str | None) -> tuple[str, ...]:
        """Names from the top-level run down."""
        found: list[str] = []
        seen: set[str] = set()
        while run is not None and run in self.runs and run not in seen:
            seen.add(run)
            name, run, _ = self.runs[run]
            found.append(name)
        return tuple(reversed(found))


def trace(head: Digest, found: Sequence[Found], reader: Reader) -> dict[int, Provenance]:
    """Follow places back. One walk over the history, and memory for the places and the runs only.

    Args:
        head: Where the history ends.
        found: The places, oldest first.
        reader: Read access.

    Returns:
        For each place, by its number.
    """
    wanted = [_wants(one) for one in found[:MOST]]
    context = _walk(head, found, wanted, reader)
    origins: dict[int, Provenance] = {}
    for number, one in enumerate(found):
        want = wanted[number] if number < len(wanted) else _Wanted()
        _resolve(one.chunk, want, context)
        _from_other_places(one, want, found[:number] if number < MOST else (), context)
        if want.model is None and one.chunk.kind == "inference":
            want.model = Link("model call", one.chunk.id)
        if want.tool is None and one.chunk.kind == "tool_call":
            want.tool = Link("tool call", one.chunk.id)
        links = [link for link in (want.tool, want.asked, want.model, want.written, *want.more) if link is not None]
        links = [link for link in dict.fromkeys(links) if link.chunk != one.chunk.id]
        names = context.names(one.chunk.run)
        agent = want.node or _agent(one.chunk) or (names[-1] if names else None)
        origins[number] = Provenance(names, agent, context.branches.get(one.chunk.id), want.model, want.tool, tuple(links))
    return origins


def _wants(one: Found) -> _Wanted:
    """What a chunk itself names, and what has to be looked for."""
    body = _body(one.chunk)
    want = _Wanted()
    if isinstance(body, Message):
        part = body.parts[one.path[1]] if one.path[:1] == ("parts",) and isinstance(one.path[1], int) else None
        parts = [part] if isinstance(part, ToolCallPart | ToolCallResponsePart) else list(body.parts) if part is None else []
        want.calls = frozenset(p.id for p in parts if isinstance(p, ToolCallPart | ToolCallResponsePart) and p.id)
        want.message = body.id if body.role == "assistant" else None
        basis: Basis = "inferred" if body.basis == "inferred" else "recorded"
        for how, name in (("same as", body.same_as), ("edits", body.replaces)):
            want.more += [Link(how, name, basis)] if name else []
        want.more += [Link("stands for", name) for name in body.stands_for]
    elif isinstance(body, ToolCall | ToolResult):
        want.calls = frozenset([body.call_id] if body.call_id else [])
    elif isinstance(body, Checkpoint) and one.value is not None:
        want.key, want.before = str(one.path[-1]), body.parent_checkpoint_id
    return want


def _walk(head: Digest, found: Sequence[Found], wanted: Sequence[_Wanted], reader: Reader) -> _Context:
    """Go back once, newest first: runs, manifests, branches, and the chunks that the places ask for."""
    context, lines = _Context(), Lines()
    places: dict[Digest, list[int]] = {}
    for number, one in enumerate(found):
        places.setdefault(one.chunk.id, []).append(number)
    by_call: dict[str, list[int]] = {}
    by_message: dict[str, list[int]] = {}
    for number, want in enumerate(wanted):
        for call in want.calls:
            by_call.setdefault(call, []).append(number)
        if want.message is not None:
            by_message.setdefault(want.message, []).append(number)
    waiting: dict[str | None, list[int]] = {}
    """Places by run, whose model call is the next one that is met on the way back."""
    files: dict[str | None, list[int]] = {}
    """Files by run: the tool call that is met next may have written them."""
    by_checkpoint: dict[str, list[_Wanted]] = {}
    """Keys of states by the checkpoint that their tasks followed: tasks and states are written by several threads, in any order."""
    for want in wanted:
        if want.before is not None:
            by_checkpoint.setdefault(want.before, []).append(want)
    keys: list[_Wanted] = []
    for chunk in ancestors(head, reader):
        lines.see(chunk, wanted=chunk.id in places)
        here = [number for number in places.get(chunk.id, ()) if number < len(wanted)]
        if chunk.kind == "run":
            _run(chunk, context)
        elif chunk.kind == "inference":
            _inference(chunk, by_call, by_message, waiting, wanted)
            for want in keys:
                want.near.append(chunk)
            keys = [want for want in keys if len(want.near) < _NEAR]
        elif chunk.kind in ("tool_call", "message") and by_call:
            _asking(chunk, by_call, wanted)
        elif chunk.kind == "merge" and chunk.body_bytes is not None:
            _merge(chunk, found, wanted)
        if chunk.kind == "tool_call":
            for number in files.pop(chunk.run, ()):
                wanted[number].tool = Link("written by", chunk.id, "inferred")
        elif chunk.kind == "task" and by_checkpoint:
            _task(chunk, by_checkpoint)
        for number in here:
            body = _body(chunk)
            said = isinstance(body, Message) and body.role == "assistant"
            if said or chunk.kind == "tool_call":
                waiting.setdefault(chunk.run, []).append(number)
            elif chunk.kind == "workspace":
                files.setdefault(chunk.run, []).append(number)
            elif wanted[number].key is not None:
                keys.append(wanted[number])
    context.branches = lines.names(places)
    return context


def _task(chunk: Chunk, by_checkpoint: Mapping[str, Sequence[_Wanted]]) -> None:
    """The writes of a LangGraph task: they name the channel, and the checkpoint that they follow."""
    body = _body(chunk)
    if not isinstance(body, Task) or body.checkpoint_id is None:
        return
    channels = {write[1] for write in body.writes if len(write) > 1}
    for want in by_checkpoint.get(body.checkpoint_id, ()):
        if want.key in channels:
            want.written = Link("written by", chunk.id)
            want.node = body.name or body.path.rpartition(", ")[2]


def _run(chunk: Chunk, context: _Context) -> None:
    body = _body(chunk)
    if not isinstance(body, Run) or body.phase != "begin" or chunk.run is None:
        return
    context.runs[chunk.run] = (body.name, body.parent, chunk.id)
    if body.manifest:
        rows = manifest_of(body.manifest)
        context.handed[chunk.run] = frozenset(name for row in rows for name in (row.chunk, *row.stands_for))


def _inference(
    chunk: Chunk, by_call: Mapping[str, list[int]], by_message: Mapping[str, list[int]], waiting: dict[str | None, list[int]],
    wanted: Sequence[_Wanted],
) -> None:  # fmt: skip
    """A model call: one that a place names by an id, or the nearest before it in its run."""
    data = chunk.body_bytes or b""
    for rank, names in enumerate((by_message, by_call)):
        for name, numbers in names.items():
            if name.encode("utf-8", "replace") in data and _puts_out(chunk, name):
                for number in numbers:
                    wanted[number].models.append(_Candidate(chunk, rank=rank))
    for number in waiting.pop(chunk.run, ()):
        wanted[number].model = Link("model call", chunk.id, "inferred")


def _resolve(place: Chunk, want: _Wanted, context: _Context) -> None:
    """Choose among chunks that share an id with a place."""
    for how, candidates in (("model call", want.models), ("tool call", want.tools), ("asked by", want.askers)):
        found = _nearest(place, candidates, context)
        if found is None:
            continue
        link = Link(how, found.chunk.id, found.basis)
        if how == "model call":
            want.model = link
        elif how == "tool call":
            want.tool = link
        else:
            want.asked = link
    if want.node is not None:
        made = next((one for one in want.near if getattr(_body(one), "agent", None) == want.node), None)
        want.model = None if made is None else Link("model call", made.id, "inferred")


def _nearest(place: Chunk, candidates: Sequence[_Candidate], context: _Context) -> _Candidate | None:
    """The one in the same top-level run, and of those the nearest: an id is unique while its call is open."""
    root = context.root(place.run)
    same = [one for one in candidates if root is None or context.root(one.chunk.run) in (root, None)]
    return min(same, key=lambda one: (one.rank, abs(one.chunk.generation - place.generation)), default=None)


def _puts_out(chunk: Chunk, name: str) -> bool:
    """Tell whether a model call's output (not what it was asked) has an id."""
    body = _body(chunk)
    if not isinstance(body, Inference):
        return False
    if name in (body.response_id, body.attributes.get("message_id")):
        return True
    stack: list[Any] = list(body.output)
    while stack:
        value = stack.pop()
        if isinstance(value, Mapping):
            found = cast("Mapping[Any, Any]", value)
            if name in (found.get("id"), found.get("call_id")):
                return True
            stack += found.values()
        elif isinstance(value, list | tuple):
            stack += cast("Sequence[Any]", value)
    return False


def _asking(chunk: Chunk, by_call: Mapping[str, list[int]], wanted: Sequence[_Wanted]) -> None:
    data = chunk.body_bytes or b""
    if chunk.kind == "message" and b'"tool_call"' not in data:
        return
    for name, numbers in by_call.items():
        if name.encode("utf-8", "replace") not in data:
            continue
        body = _body(chunk)
        basis: Basis = "inferred" if getattr(body, "basis", None) == "inferred" else "recorded"
        if isinstance(body, ToolCall) and body.call_id == name:
            for number in numbers:
                wanted[number].tools.append(_Candidate(chunk, basis))
        elif isinstance(body, Message) and any(isinstance(p, ToolCallPart) and p.id == name for p in body.parts):
            for number in numbers:
                wanted[number].askers.append(_Candidate(chunk, basis))


def _merge(chunk: Chunk, found: Sequence[Found], wanted: Sequence[_Wanted]) -> None:
    """A merge names the block behind it, and through the block what it stands for."""
    body = _body(chunk)
    if isinstance(body, Merge):
        for number, want in enumerate(wanted):
            one = found[number].chunk
            if one.parents and one.parents[0] == chunk.id and any(link.how == "stands for" for link in want.more):
                want.more.insert(0, Link("merged in by", chunk.id))


def _from_other_places(one: Found, want: _Wanted, before: Sequence[Found], context: _Context) -> None:
    """Links to earlier places that say the same: handed over to this run, put out by its model, or only said before."""
    run, root = one.chunk.run, context.root(one.chunk.run)
    handed = (context.handed.get(run or "") or frozenset()) | (context.handed.get(root or "") or frozenset())
    named = {link.chunk for link in (want.model, want.tool, want.asked, *want.more) if link is not None}
    others = [place for place in before if place.chunk.id != one.chunk.id]
    body = _body(one.chunk)
    if isinstance(body, Message) and body.role == "assistant":
        answered = [
            p for p in others if p.chunk.kind == "inference" and context.root(p.chunk.run) == root and p.path[:1] == ("output",)
        ]
        if answered and (want.model is None or want.model.basis == "inferred"):
            want.model = Link("model call", answered[-1].chunk.id, "inferred")  # it put out the same words
            named.add(answered[-1].chunk.id)
    given = [place for place in others if place.chunk.id in handed]
    if given:
        want.more.append(Link("handed over", given[-1].chunk.id))
        return
    said = [place for place in others if place.chunk.kind in _CONTENT]
    if said and one.chunk.kind in _CONTENT and not named & {place.chunk.id for place in said}:
        want.more.append(Link("said before", said[0].chunk.id, "inferred"))


def _agent(chunk: Chunk) -> str | None:
    body = _body(chunk)
    if isinstance(body, Message):
        return body.name if body.role != "user" or body.name else None
    found = getattr(body, "agent", None) or (body.name if isinstance(body, Task) else None)
    return found if isinstance(found, str) else None


def _body(chunk: Chunk) -> Any:
    try:
        return None if chunk.body_bytes is None else chunk.body
    except RathError:  # fsck names it
        return None
