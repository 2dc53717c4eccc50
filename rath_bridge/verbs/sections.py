"""What two sides of a diff say, section by section: transcript, tool calls, state, and what it took. Across frameworks, too.

Ids, names of runs and the chunks around a message do not count here: a LangGraph run and an AutoGen run that say the same have the same
transcript. The cost follows the chunks that only one side holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

import orjson

from rath_bridge.errors import RathError
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.model.encoding import TreeRef, dumps, escape
from rath_bridge.model.kinds import Checkpoint, Inference, Run, ToolResult, Usage
from rath_bridge.model.parts import BlobPart, Part, TextPart, ToolCallPart, ToolCallResponsePart, part_to_json
from rath_bridge.model.trees import read_map
from rath_bridge.store.protocol import Reader
from rath_bridge.verbs.calling import What, told
from rath_bridge.verbs.changes import ABSENT, Path, difference, opcodes, path_text, plain
from rath_bridge.verbs.lineage import newest_first
from rath_bridge.verbs.matching import framework
from rath_bridge.verbs.packed import plain_value
from rath_bridge.verbs.transcript import calls, transcript, usage
from rath_bridge.verbs.wording import Piece, words

Kind = Literal["same", "changed", "added", "removed"]
REACH: Final = 4_096
"""Chunks that are looked back through for the beginning of a run that nests, and for a state before the fork."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A message, a call, or a state's key, as it counts for a comparison."""

    values: Mapping[str, Any]
    chunk: Chunk | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One row of a section."""

    kind: Kind
    """``removed`` stands on our side only, ``added`` on theirs."""
    what: str
    """``assistant``, ``pay``, ``messages``: who speaks, which tool, which key."""
    ours: Fact | None = None
    theirs: Fact | None = None
    path: Path = ()
    """First place that differs."""
    ours_value: Any = None
    theirs_value: Any = None

    @property
    def words(self) -> list[Piece]:
        """Word by word, where texts differ; else empty."""
        both = isinstance(self.ours_value, str) and isinstance(self.theirs_value, str)
        return words(self.ours_value, self.theirs_value) if both and self.kind == "changed" else []

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        found: dict[str, Any] = {"kind": self.kind, "what": plain(self.what)}
        for side, fact in (("ours", self.ours), ("theirs", self.theirs)):
            if fact is not None:
                found[side] = {"chunk": fact.chunk and fact.chunk.id, **({} if self.kind == "same" else plain(dict(fact.values)))}
        if self.kind == "changed":
            found["path"] = path_text(self.path).removeprefix("body").removeprefix(".")
            for name, value in (("ours_value", self.ours_value), ("theirs_value", self.theirs_value)):
                if value is not ABSENT:
                    found[name] = plain(value)
            if pieces := self.words:
                found["words"] = [[tag, plain(text)] for tag, text in pieces]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What one side holds by itself, and what it took."""

    chunks: int
    messages: int
    model_calls: int
    tool_calls: int
    usage: Usage
    seconds: float
    """From its first chunk to its last."""
    model_seconds: float
    tool_seconds: float
    frameworks: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        told = {name: value for name in Usage.__slots__ if (value := getattr(self.usage, name)) is not None}
        counts = {name: getattr(self, name) for name in ("chunks", "messages", "model_calls", "tool_calls")}
        times = {name: round(getattr(self, name), 6) for name in ("seconds", "model_seconds", "tool_seconds")}
        return {**counts, "usage": told, **times, "frameworks": list(self.frameworks)}


def spent(chunks: Sequence[Chunk], base: Digest | None, reader: Reader) -> Spent:
    """Count what stands on one side only."""
    bodies = [
        chunk.body for chunk in chunks if chunk.kind in ("inference", "tool_call", "tool_result") and chunk.body_bytes is not None
    ]
    asked = [body for body in bodies if isinstance(body, Inference)]
    return Spent(
        chunks=len(chunks), messages=len(messages(chunks, base, reader)), model_calls=len(asked),
        tool_calls=len(tool_calls(chunks, base, reader)), usage=usage(chunks),
        seconds=(max(c.at for c in chunks) - min(c.at for c in chunks)) / 1e6 if chunks else 0.0,
        model_seconds=sum(body.duration or 0.0 for body in asked),
        tool_seconds=sum(body.duration or 0.0 for body in bodies if isinstance(body, ToolResult)),
        frameworks=tuple(sorted({name for chunk in chunks if (name := framework(chunk)) is not None})),
    )  # fmt: skip


# ---------------------------------------------------------------- transcript


def messages(chunks: Sequence[Chunk], base: Digest | None, reader: Reader) -> list[Fact]:
    """The messages of a side, in order: role and parts, ids by order of appearance."""
    nested = _nested(chunks, base, reader)
    shown = transcript([chunk for chunk in chunks if chunk.run is None or chunk.run not in nested])
    numbers: dict[str, int] = {}
    return [Fact({"role": one.role, "parts": [_part(part, numbers) for part in one.parts]}, one.chunk) for one in shown]


def _part(part: Part, numbers: dict[str, int]) -> Any:
    if isinstance(part, TextPart):
        return part.content
    if isinstance(part, ToolCallPart):
        number = numbers.setdefault(part.id or "", len(numbers))
        return {"call": number, "name": part.name, "arguments": part.arguments}
    if isinstance(part, ToolCallResponsePart):
        return {"answer": numbers.setdefault(part.id or "", len(numbers)), "response": part.response}
    found = part_to_json(part)
    return found if not isinstance(part, BlobPart) else {**found, "content": part.content}


def _nested(chunks: Sequence[Chunk], base: Digest | None, reader: Reader) -> frozenset[str]:
    """Runs of a side that began inside of another one before the fork: their messages are not the transcript's."""
    wanted = {chunk.run for chunk in chunks if chunk.kind == "message" and chunk.run is not None}
    return frozenset(
        run for run, chunk in _begun(chunks, wanted, base, reader).items() if cast(Run, chunk.body).parent is not None
    )


def _begun(chunks: Sequence[Chunk], wanted: set[str], base: Digest | None, reader: Reader) -> dict[str, Chunk]:
    """The beginnings, before the fork, of some runs that a side goes on in, and of the runs around them."""
    own = {chunk.run for chunk in chunks if _begins(chunk)}
    missing = wanted - own
    found: dict[str, Chunk] = {}
    if missing and base is not None:
        for seen, chunk in enumerate(newest_first(base, reader)):
            if chunk.run in missing and _begins(chunk):
                found[chunk.run] = chunk
                missing.discard(chunk.run)
                above = cast(Run, chunk.body).parent
                if above is not None and above not in found and above not in own:
                    missing.add(above)
            if not missing or seen >= REACH:
                break
    return found


def _begins(chunk: Chunk) -> bool:
    return (
        chunk.kind == "run" and chunk.run is not None and chunk.body_bytes is not None and cast(Run, chunk.body).phase == "begin"
    )


# ---------------------------------------------------------------- tool calls


def tool_calls(chunks: Sequence[Chunk], base: Digest | None, reader: Reader) -> list[Fact]:
    """The calls of a side, each with how it ended. Ids are scoped by top-level run, which may have begun before the fork."""
    by_id = {chunk.id: chunk for chunk in chunks}
    found: list[Fact] = []
    wanted = {one.run for one in chunks if one.kind in ("message", "tool_call", "tool_result") and one.run is not None}
    around = reversed(_begun(chunks, wanted, base, reader).values())
    for call in calls([*around, *chunks], part=True):
        place = by_id.get(call.begun or call.ended or "")
        values: dict[str, Any] = {"name": call.name, "status": call.status}
        if (arguments := _said(place, call.call_id, ("started", "asked"))) is not ABSENT:
            values["arguments"] = arguments
        if (result := _said(by_id.get(call.ended or ""), call.call_id, ("result", "answered"))) is not ABSENT:
            values["result"] = _value(result)
        found.append(Fact(values, place))
    return found


def _said(chunk: Chunk | None, call_id: str, what: Collection[What]) -> Any:
    """What a chunk says of a call: its arguments, or its result."""
    if chunk is None or chunk.body_bytes is None:
        return ABSENT
    return next((one.value for one in told(chunk.kind, chunk.values) if one.id == call_id and one.what in what), ABSENT)


def _value(result: Any) -> Any:
    """What a result says: a model is handed text, so one framework keeps the number 3 where another keeps its digit."""
    try:
        return orjson.loads(result) if isinstance(result, str) else result
    except orjson.JSONDecodeError:
        return result


# ---------------------------------------------------------------- state


def states(ours: Sequence[Chunk], theirs: Sequence[Chunk], base: Digest | None, reader: Reader) -> list[Section]:
    """Compare the last state of each side, key by key; a side without one goes on with the one before the fork."""
    here, there = _last_states(ours), _last_states(theirs)
    before = _before(set(here) ^ set(there), base, reader)
    found: list[Section] = []
    for place in sorted(here.keys() | there.keys()):
        left, right = here.get(place) or before.get(place), there.get(place) or before.get(place)
        found += _keys(place[1], left, right, reader)
    return found


def _last_states(chunks: Iterable[Chunk]) -> dict[tuple[str, str], Chunk]:
    return {place: chunk for chunk in chunks if (place := _place(chunk)) is not None}


def _place(chunk: Chunk) -> tuple[str, str] | None:
    """Framework and namespace of a checkpoint; None for other chunks."""
    if chunk.kind != "checkpoint" or chunk.body_bytes is None:
        return None
    return framework(chunk) or "", cast(Checkpoint, chunk.body).namespace


def _before(wanted: set[tuple[str, str]], base: Digest | None, reader: Reader) -> dict[tuple[str, str], Chunk]:
    found: dict[tuple[str, str], Chunk] = {}
    if wanted and base is not None:
        for seen, chunk in enumerate(newest_first(base, reader)):
            place = _place(chunk)
            if place in wanted:
                found.setdefault(place, chunk)
            if len(found) == len(wanted) or seen >= REACH:
                break
    return found


def _keys(namespace: str, left: Chunk | None, right: Chunk | None, reader: Reader) -> Iterable[Section]:
    here, there = _entries(left, reader), _entries(right, reader)
    for key in sorted(here.keys() | there.keys()):
        one, two = here.get(key), there.get(key)
        name = f"{namespace}/{key}" if namespace else key
        if one == two:
            yield Section(kind="same", what=name, ours=Fact({}, left), theirs=Fact({}, right))
            continue
        mine = None if one is None else _fact(left, key, one, reader)
        other = None if two is None else _fact(right, key, two, reader)
        kind: Kind = "added" if mine is None else "removed" if other is None else "changed"
        values = [None if fact is None else _shown(fact) for fact in (mine, other)]
        yield Section(kind=kind, what=name, ours=mine, theirs=other, ours_value=values[0], theirs_value=values[1])


def _entries(chunk: Chunk | None, reader: Reader) -> dict[str, bytes]:
    state = None if chunk is None else cast(Checkpoint, chunk.body).state
    return read_map(state, reader.objects) if isinstance(state, TreeRef) else {}


def _fact(chunk: Chunk | None, key: str, value: bytes, reader: Reader) -> Fact:
    assert chunk is not None  # an entry stands in a checkpoint
    digest = value.hex()
    count = cast(Checkpoint, chunk.body).lists.get(key)
    if count is not None:
        return Fact({"digest": digest, "items": count}, chunk)
    try:
        data = reader.objects([digest])[digest]
    except RathError:  # erased, or a fault that fsck names
        return Fact({"digest": digest}, chunk)
    found = plain_value(data, packed=framework(chunk) == "langgraph")
    return Fact({"digest": digest, "size": len(data)} if found is data else {"digest": digest, "value": found}, chunk)


def _shown(fact: Fact) -> Any:
    if "items" in fact.values:
        return f"{fact.values['items']} items"
    return fact.values.get("value", f"<{fact.values.get('size', '?')} bytes, {fact.values['digest'][:12]}>")


# ---------------------------------------------------------------- pairing


def paired(ours: Sequence[Fact], theirs: Sequence[Fact], what: Callable[[Mapping[str, Any]], str]) -> list[Section]:
    """Align two lists: what is equal, then what is of the same sort within a stretch that differs."""
    found: list[Section] = []
    for tag, a, a_end, b, b_end in opcodes([_key(one) for one in ours], [_key(one) for one in theirs]):
        left, right = ours[a:a_end], theirs[b:b_end]
        if tag == "equal":
            pairs = zip(left, right, strict=True)
            found += [Section(kind="same", what=what(one.values), ours=one, theirs=two) for one, two in pairs]
        else:
            found += _stretch(left, right, what)
    return found


def _stretch(ours: Sequence[Fact], theirs: Sequence[Fact], what: Callable[[Mapping[str, Any]], str]) -> Iterable[Section]:
    for tag, a, a_end, b, b_end in opcodes([what(one.values) for one in ours], [what(one.values) for one in theirs]):
        if tag == "equal":
            for left, right in zip(ours[a:a_end], theirs[b:b_end], strict=True):
                path = difference(left.values, right.values) or ()
                yield Section(
                    kind="changed", what=what(left.values), ours=left, theirs=right, path=path, ours_value=_at(left.values, path),
                    theirs_value=_at(right.values, path),
                )  # fmt: skip
        else:
            yield from (Section(kind="removed", what=what(one.values), ours=one) for one in ours[a:a_end])
            yield from (Section(kind="added", what=what(one.values), theirs=one) for one in theirs[b:b_end])


def _key(fact: Fact) -> bytes:
    return dumps(escape(fact.values, {}))


def _at(values: Any, path: Path) -> Any:
    for step in path:
        try:
            values = values[step]
        except (KeyError, IndexError, TypeError):
            return ABSENT
    return values
