"""What a what-if changes: a recorded answer by its chunk, a model or a prompt by its agent, a tool by its name."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Inference
from rath_bridge.replay.held import Held, HeldCall
from rath_bridge.verbs.calling import told

_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(-?\d+)\]")
_NAMED: Final = ("model", "prompt", "tool")


class Changed(NamedTuple):
    """An override that fits."""

    value: Any


@dataclass(slots=True)
class Overrides:
    """All changes of a replay, by what they change."""

    chunks: dict[Digest, Any] = field(default_factory=dict[Digest, Any])
    """Recorded answers: chunk to the new value, a map of paths, or a function of the old value."""
    models: dict[str, Any] = field(default_factory=dict[str, Any])
    """Agent to the framework's own model."""
    prompts: dict[str, Any] = field(default_factory=dict[str, Any])
    """Agent to its instructions, or a function of the old ones."""
    tools: dict[str, Any] = field(default_factory=dict[str, Any])
    """Tool to a function of its arguments, or to one result for all calls."""
    held: Held | None = None
    given: list[str] = field(default_factory=list[str])
    """What was named, for people."""
    taken: set[str] = field(default_factory=set[str])
    """What of it the run has asked for."""
    _labels: dict[Digest, str] = field(default_factory=dict[Digest, str])
    """Chunks of ``chunks`` to what they are called in ``given``."""
    first: int | None = None
    """Position of the first chunk that is changed."""

    @classmethod
    def read(cls, given: Mapping[Any, Any] | None, held: Held) -> Overrides:
        """Read what the caller gave.

        Args:
            given: Keys are chunks (position, digest, `Chunk`), or ``model:AGENT``, ``prompt:AGENT``, ``tool:NAME``.
            held: The record.

        Raises:
            ValueError: A key that names nothing on record, or a chunk that is no answer.
        """
        found = cls(held=held)
        changes: Any = {} if given is None else given
        if not isinstance(changes, Mapping):
            raise ValueError(f"the overrides {changes!r} are no map: give what to change, and to what")
        for key, value in cast("Mapping[Any, Any]", changes).items():
            kind, colon, name = key.partition(":") if isinstance(key, str) else ("", "", "")
            if colon and kind in _NAMED:
                getattr(found, f"{kind}s")[name] = value
                found.given.append(label(kind, name))
                continue
            chunk = _chunk(key, held)
            found.given.append(f"chunk {chunk.id[:12]}")
            call = held.call_at(chunk.id)
            if chunk.kind != "inference" and call is None:
                raise ValueError(
                    f"chunk {chunk.position} of {held.session.name} is a {chunk.kind}: only the answer of a model (inference) or of a "
                    f"tool (tool_result) can be changed; what the run itself says is changed in its code"
                )
            for one in call.chunks if call is not None else (chunk.id,):
                found.chunks[one], found._labels[one] = value, found.given[-1]
            if isinstance(value, Mapping):
                found.at(chunk.id, call)  # a path that leads nowhere is told before anything runs
            # a call's result is what is changed: the line up to where it was asked for stays
            at = held.position(call.end) if call is not None and call.end is not None else chunk.position
            at = min(
                chunk.position if at is None else at, _asked_with(held, held.by_id[call.end if call and call.end else chunk.id])
            )
            found.first = at if found.first is None else min(at, found.first)
        return found

    def __bool__(self) -> bool:
        return bool(self.chunks or self.models or self.prompts or self.tools)

    @property
    def unasked(self) -> tuple[str, ...]:
        """What was named, and nothing has asked for."""
        return tuple(one for one in dict.fromkeys(self.given) if one not in self.taken)

    def changes(self, call: HeldCall) -> bool:
        """Tell whether a recorded call's answer is changed by its chunk."""
        return any(one in self.chunks for one in call.chunks)

    def at(self, chunk: Digest | None, call: HeldCall | None) -> Changed | None:
        """Return the new answer for a recorded call, where there is one."""
        if chunk is None:
            return None
        name = next((one for one in (chunk, *(call.chunks if call is not None else ())) if one in self.chunks), None)
        if name is None:
            return None
        change = self.chunks[name]
        self.taken.add(self._labels[name])
        if call is not None:
            return Changed(_apply(change, call.value, ("result", "response")))
        assert self.held is not None
        body: Any = self.held.by_id[name].values
        return Changed(_apply(change, body.get("output", []), ("output",)))


def _asked_with(held: Held, answer: Chunk) -> int:
    """Position of the model call that was made with an answer which only a message tells; far away for all others.

    What the members of an AutoGen team say is heard by another task than the one that asks their models: such a message may stand
    behind the model call whose prompt holds it.
    """
    far = len(held.chunks)
    if answer.kind != "message":
        return far
    ids = {one.id for one in told(answer.kind, answer.values) if one.what == "answered"}
    agent: str | None = None
    found: int | None = None
    for chunk in held.chunks[: answer.position]:
        if chunk.kind != "inference" or chunk.run != answer.run or chunk.id in held.unreadable:
            continue
        body = cast(Inference, chunk.body)
        asked = (one.id for one in told("message", {"parts": list(body.output)}) if one.what == "asked")
        if any(name in ids for name in asked):
            agent, found = body.agent, None
        elif found is None and agent is not None and body.agent == agent:
            found = chunk.position
    return far if found is None else found


def label(kind: str, name: str) -> str:
    """How an override is called: ``the tool refund``, ``the model of Clerk``."""
    return f"the tool {name}" if kind == "tool" else f"the {kind} of {name}"


def _apply(change: Any, old: Any, names: tuple[str, ...]) -> Any:
    """Return the new value: given whole, as a function of the old one, or by paths into the body."""
    if callable(change):
        return cast("Callable[[Any], Any]", change)(copy.deepcopy(old))
    paths = cast("Mapping[Any, Any]", change if isinstance(change, Mapping) else {})
    if not paths or not all(isinstance(path, str) and path.partition(".")[0] == "body" for path in paths):
        return cast(Any, change)
    value = copy.deepcopy(old)
    for path, new in paths.items():
        steps = [int(index) if index else word for word, index in _STEP.findall(path)]
        if len(steps) < 2 or steps[1] not in names:
            raise ValueError(f"{path!r} is no path into this answer: begin with body.{names[0]}")
        value = set_at(value, steps[2:], new, path)
    return value


def set_at(value: Any, steps: list[str | int], new: Any, path: str) -> Any:
    """Return ``value`` with what stands at a path replaced.

    Raises:
        ValueError: There is no such place in it.
    """
    if not steps:
        return new
    step, rest = steps[0], steps[1:]
    try:
        if isinstance(value, Mapping):
            known = cast("Mapping[Any, Any]", value)
            return {**known, step: set_at(known[step] if rest else None, rest, new, path)}
        if isinstance(value, (list, tuple)) and isinstance(step, int):
            items = list(cast("list[Any]", value))
            items[step] = set_at(items[step], rest, new, path)
            return items
    except (KeyError, IndexError):
        pass
    raise ValueError(f"there is no {step!r} in the value at {path!r}")


def _chunk(key: Any, held: Held) -> Chunk:
    if isinstance(key, Chunk):
        key = key.id
    if isinstance(key, int) and not isinstance(key, bool):
        at = key + len(held.chunks) if key < 0 else key
        if 0 <= at < len(held.chunks):
            return held.chunks[at]
    elif isinstance(key, str):
        found = [chunk for chunk in held.chunks if len(key) >= 4 and chunk.id.startswith(key)]
        if len(found) == 1:
            return found[0]
    raise ValueError(
        f"the override {key!r} names no chunk of {held.session.name}: give a position, a digest, model:AGENT, prompt:AGENT or tool:NAME"
    )
