"""The replay form: what two runs must have in common to count as equal (law 5).

Times, spans, native records, versions, nonces, usage and volatile fields are dropped. Ids that are new in every run are
renumbered by first appearance per actor, and order counts within an actor only. Long texts and bytes stand as references:
equal when the bytes are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.model.encoding import decode, dumps, escape
from rath_bridge.model.kinds import KINDS, RESERVED, marked

_DROPPED: Final[Mapping[str, frozenset[str]]] = {"inference": frozenset({"usage"}), "checkpoint": frozenset({"envelope"})}
"""Per kind: usage, and a framework's own bookkeeping (versions, ids and times of its channels)."""
_VOLATILE: Final = {kind: marked(cls, "volatile") | RESERVED | _DROPPED.get(kind, frozenset()) for kind, cls in KINDS.items()}
_GENERATED: Final = {kind: tuple(sorted(marked(cls, "generated"))) for kind, cls in KINDS.items()}
_TASK_ID: Final = re.compile(r":[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
"""What LangGraph puts behind the name of a node for every time that it runs."""
_SPEAKER: Final = {"inference": "agent", "message": "name"}
"""Per kind: the field that says which member of a team it is of."""
_CHECKPOINT_ID: Final = re.compile(rb'"checkpoint_id":"([^"]*)"')
_MADE: Final = re.compile(rb'"lc_[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"')
"""Ids that LangChain makes up for content blocks, wherever they stand."""
_CALL_KEYS: Final = ("call_id", "tool_call_id")
_SPAN_IDS: Final = ("parent_id", "span_id", "trace_id")
"""How attributes of a foreign span are called that name spans and traces."""
_CONTENT: Final = frozenset({"arguments", "args", "input", "content", "response", "result"})
"""Keys of model output under which an ``id`` is content, not bookkeeping."""


@dataclass(frozen=True, slots=True)
class Step:
    """One chunk as it counts for equality."""

    actor: str
    """Path of run names from the root, with an ordinal among equal siblings: ``team[0]/writer[1]``; empty outside of runs. What the
    members of a team said and asked goes by their names: ``team[0]/writer``."""
    kind: str
    values: Mapping[str, Any]
    """The body without what differs between equal runs."""
    chunk: Chunk = field(compare=False, repr=False)

    @property
    def key(self) -> bytes:
        """Bytes that are equal where the steps are."""
        return dumps(escape([self.actor, self.kind, self.values], {}))


def replay_form(chunks: Iterable[Chunk]) -> list[Step]:
    """Return what counts for equality, grouped by actor, in order within each.

    ``session`` chunks are left out: they tell how a line came to be, not what was done on it.

    Args:
        chunks: A line, oldest first, or a part of one.
    """
    found = [step for step in steps(chunks) if step.kind != "session"]
    return sorted(found, key=lambda step: step.actor)


def steps(chunks: Iterable[Chunk]) -> list[Step]:
    """Return one step for each chunk, in the order given. A run that began earlier goes by its id."""
    listed = list(chunks)
    renumber = Renumber(_checkpoints(listed))
    renumber.look_ahead(listed)
    return [renumber.step(chunk) for chunk in listed]


def _checkpoints(chunks: Iterable[Chunk]) -> dict[str, int]:
    """The place of every checkpoint among those of its run."""
    found: dict[str, int] = {}
    counts: dict[str | None, int] = {}
    for chunk in chunks:
        if chunk.kind == "checkpoint" and chunk.body_bytes is not None:
            name = _CHECKPOINT_ID.search(chunk.body_bytes)
            if name is not None and name[1].decode() not in found:
                found[name[1].decode()] = counts[chunk.run] = counts.get(chunk.run, -1) + 1
    return found


class Renumber:
    """Names for ids, by first appearance per actor. Feed it a line, chunk by chunk."""

    def __init__(self, checkpoints: Mapping[str, int] | None = None) -> None:
        """Start.

        Args:
            checkpoints: Places of checkpoints, where the whole line is known: tasks go by them, since writes overtake each other.
        """
        self._checkpoints = checkpoints or {}
        self._actors: dict[str, str] = {}
        self._roots: dict[str, str] = {}
        self._siblings: dict[str, int] = {}
        self._labels: dict[tuple[str, str, str], str] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self._chunks: dict[Digest, str] = {}
        self._floating: set[str] = set()
        self._teams: set[str] = set()

    def look_ahead(self, chunks: Sequence[Chunk]) -> None:
        """Name calls in the order in which they were asked for: tools that run side by side begin in any order.

        Args:
            chunks: The whole line.
        """
        if not any(chunk.kind == "tool_call" for chunk in chunks):
            return
        asking: dict[str, list[tuple[Chunk, dict[str, Any]]]] = {"inference": [], "message": []}
        for chunk in chunks:
            body = chunk.body_bytes
            if body is None:
                continue
            if chunk.kind == "run" and chunk.run is not None:
                values = decode(body, None, f"chunk {chunk.id[:16]}")
                if values.get("phase") == "begin":
                    self._begin(chunk.run, values)
            elif chunk.kind in asking and b"call" in body:
                asking[chunk.kind].append((chunk, decode(body, None, f"chunk {chunk.id[:16]}")))
        for kind, found in asking.items():
            for chunk, values in found:
                name = partial(self._call, self._speaking(chunk, values), self._scope(chunk))
                if kind == "inference":
                    _ids(values.get("output"), name)
                elif isinstance(values.get("parts"), list):
                    for part in values["parts"]:
                        if type(part) is dict and cast("dict[str, Any]", part).get("type") == "tool_call":
                            _part(part, name)

    def step(self, chunk: Chunk) -> Step:
        """Return one chunk as it counts for equality."""
        if chunk.body_bytes is None:
            return Step(self._actor(chunk.run), chunk.kind, {"erased": chunk.body_digest}, chunk)
        body = _MADE.sub(b'"lc_"', chunk.body_bytes) if b'"lc_' in chunk.body_bytes else chunk.body_bytes
        values: dict[str, Any] = decode(body, None, f"chunk {chunk.id[:16]}")
        if chunk.kind == "run" and chunk.run is not None and values.get("phase") == "begin":
            self._begin(chunk.run, values)
        actor = self._speaking(chunk, values)
        if actor != self._actor(chunk.run):
            values.pop("position", None)
        name = partial(self._name, actor, self._scope(chunk))
        dropped = _VOLATILE.get(chunk.kind, RESERVED)
        kept = {key: value for key, value in values.items() if key not in dropped}
        _settle(chunk.kind, kept)
        for key in _GENERATED.get(chunk.kind, ()):
            if key in kept:
                kept[key] = self._actor(kept[key]) if key == "parent" else name(_category(chunk.kind, key), kept[key])
        if chunk.kind == "message" and isinstance(kept.get("parts"), list):
            kept["parts"] = [_part(part, name) for part in kept["parts"]]
        elif chunk.kind == "span" and isinstance(kept.get("attributes"), dict):
            told = cast("dict[str, Any]", kept["attributes"])
            kept["attributes"] = {key: name("span", item) if key.endswith(_SPAN_IDS) else item for key, item in told.items()}
        elif chunk.kind == "inference" and "output" in kept:
            kept["output"] = _ids(kept["output"], name)
        for key in (
            "replaces",
            "same_as",
            "after",
            "stands_for",
            "dropped",
            "stands",
            "manifest",
            "targets",
            "base",
            "ours",
            "theirs",
        ):
            if key in kept and chunk.kind in KINDS:
                kept[key] = self._places(kept[key])
        place = f"chunk {chunk.kind}"  # by kind: results of calls that ran side by side may come in another order
        number = self._counts.get((actor, place), 0)
        self._counts[actor, place] = number + 1
        self._chunks[chunk.id] = f"{actor}:{chunk.kind}{number}"
        if chunk.kind == "task":  # tasks of a step end in any order
            actor = f"{actor}/task {self._checkpoints.get(values.get('checkpoint_id', ''), '')} {kept.get('path', '')}"
        elif chunk.kind == "run" and chunk.run in self._floating and kept.get("phase") == "end":
            actor = f"{actor}/end"
        return Step(actor, chunk.kind, kept, chunk)

    def _speaking(self, chunk: Chunk, values: Mapping[str, Any]) -> str:
        actor = self._actor(chunk.run)
        if chunk.run in self._teams and (who := values.get(_SPEAKER.get(chunk.kind, ""))):
            # Its members work side by side, and who listens to them is late: what one heard of the others is in its prompts.
            return f"{actor}/{who} asks" if chunk.kind == "inference" else f"{actor}/{who}"
        return actor

    def _scope(self, chunk: Chunk) -> str:
        return self._roots.get(chunk.run, chunk.run) if chunk.run else ""

    def _name(self, actor: str, scope: str, category: str, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        place = (category, scope if category in ("call", "message") else "", value)
        if place not in self._labels:
            number = self._counts.get((actor, category), 0)
            self._counts[actor, category] = number + 1
            self._labels[place] = f"{actor}:{category}{number}"
        return self._labels[place]

    def _call(self, actor: str, scope: str, category: str, value: Any) -> Any:
        return self._name(actor, scope, category, value) if category == "call" else value

    def _begin(self, run: str, values: Mapping[str, Any]) -> None:
        if run in self._actors:
            return
        parent = values.get("parent")
        above = f"{self._actor(parent)}/" if isinstance(parent, str) else ""
        path = f"{above}{values.get('name')}"
        told = values.get("attributes")
        attributes = cast("dict[str, Any]", told) if type(told) is dict else {}
        place = attributes.get("place")
        if "namespace" in attributes:  # its checkpoints may be written when the graph around goes on
            self._floating.add(run)
        if values.get("type") == "team" or (type(attributes) is dict and "order" in attributes):
            self._teams.add(run)
        if isinstance(place, str):  # known, whoever began first
            path = f"{path}[{place}]"
        number = self._siblings.get(path, 0)
        self._siblings[path] = number + 1
        self._actors[run] = f"{path}[{number}]"
        self._roots[run] = self._roots.get(parent, parent) if isinstance(parent, str) else run

    def _actor(self, run: str | None) -> str:
        return "" if run is None else self._actors.get(run, f"run {run}")

    def _places(self, value: Any) -> Any:
        """Chunk digests become places; those outside of what is compared stay."""
        if isinstance(value, str):
            return self._chunks.get(value, value)
        if isinstance(value, list):
            return [self._places(item) for item in cast("list[Any]", value)]
        return value


def _settle(kind: str, kept: dict[str, Any]) -> None:
    """Take out what a framework's own ids have got into: namespaces of graphs, bytes of states and writes."""
    if isinstance(kept.get("namespace"), str):
        kept["namespace"] = _TASK_ID.sub("", kept["namespace"])
    if kind == "checkpoint" and "content" in kept:
        kept.pop("state", None)
    elif kind == "task":
        kept.pop("task_id", None)
        kept.pop("checkpoint_id", None)
        rows = cast("list[Any]", kept.get("writes") or [])
        kept["writes"] = [cast("list[Any]", row)[:2] if isinstance(row, list) else row for row in rows]
    elif kind == "run" and isinstance(kept.get("attributes"), dict):
        told = cast("dict[str, Any]", kept["attributes"])
        kept["attributes"] = {
            key: _TASK_ID.sub("", item) if key == "namespace" and isinstance(item, str) else item
            for key, item in told.items()
            if key not in ("session", "options")  # where it was recorded; what it was told shows in what it did
        }
        if not kept["attributes"]:
            del kept["attributes"]


_Name = Callable[[str, Any], Any]


def _category(kind: str, key: str) -> str:
    if key == "call_id":
        return "call"
    if key in ("checkpoint_id", "parent_checkpoint_id"):
        return "checkpoint"
    return kind if key == "id" else key


def _part(part: Any, name: _Name) -> Any:
    if type(part) is not dict:
        return part
    found = cast("dict[str, Any]", part)
    if found.get("type") in ("tool_call", "tool_call_response") and "id" in found:
        return {**found, "id": name("call", found["id"])}
    return found


def _ids(value: Any, name: _Name) -> Any:
    """Renumber ids in a model's output, which stands in the framework's own JSON."""
    if type(value) is list:
        return [_ids(item, name) for item in cast("list[Any]", value)]
    if type(value) is not dict:
        return value
    found = cast("dict[str, Any]", value)
    is_call = found.get("type") in ("tool_call", "tool_call_response") or ("name" in found and "args" in found)
    return {
        key: item if key in _CONTENT
        else name("call", item) if key in _CALL_KEYS or (key == "id" and is_call)
        else name("item", item) if key == "id"
        else _ids(item, name)
        for key, item in found.items()
    }  # fmt: skip
