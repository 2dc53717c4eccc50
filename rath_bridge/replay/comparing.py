"""Two lines over their replay forms: equal, or where they part first (law 5).

Order counts within an actor. How tool calls *end* floats: calls that ran side by side may finish in another order, so each result is
compared with the result of the same call.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from rath_bridge.errors import RathError
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.model.encoding import BlobRef, TreeRef
from rath_bridge.model.trees import read_list
from rath_bridge.replay.divergence import Divergence
from rath_bridge.verbs.replay_form import Step, steps

SHOWN: Final = 200
"""Characters of each side that a divergence shows."""
NOTHING: Final = "nothing"
"""What a divergence says of a side that lacks it."""
_ABSENT: Final = object()


def first_difference(
    record: Iterable[Chunk], run: Iterable[Chunk], *, until: int | None = None, after: int = -1, excused: Collection[Digest] = ()
) -> Divergence | None:
    """Return the first difference of a run from a record, in the order of the record; None where they are equal.

    Args:
        record: The line that was recorded, oldest first.
        run: The line that the replay made.
        until: Compare the record up to this position; what the run has beyond it does not count.
        after: What stands at or before this position is the same on both.
        excused: Chunks of the record that a replay does not make again (what ran inside of a call that was served).
    """
    ours = _streams(steps(run), after)
    # what a replay does not make again numbers nothing either: ids that models reuse would take their names from it
    counted = [chunk for chunk in record if chunk.id not in excused]
    theirs = _streams([step for step in steps(counted) if until is None or step.chunk.position <= until], after)
    asked = _askers(theirs.values())
    ends = {
        step.values.get("call_id"): step.chunk.position
        for stream in theirs.values()
        for step in stream
        if step.kind == "tool_result"
    }
    found: list[tuple[int, Divergence]] = []
    for name, expected in theirs.items():
        made = ours.get(name, [])
        for first, last in side_by_side(expected, ends, asked):
            made[first : last + 1] = _in_order(made[first : last + 1], expected[first : last + 1])
        for index, step in enumerate(expected):
            if index >= len(made):
                found.append((step.chunk.position, Divergence(_what(step), NOTHING, _held(step), step.chunk.id)))
                break
            if made[index].key != step.key:
                found.append((step.chunk.position, _differing(made[index], step)))
                break
    if found:
        return min(found, key=lambda one: one[0])[1]
    if until is not None:
        return None
    more = [made[len(theirs.get(name, ()))] for name, made in ours.items() if len(made) > len(theirs.get(name, ()))]
    if not more:
        return None
    step = min(more, key=lambda one: one.chunk.position)
    return Divergence(_what(step), _held(step), "nothing left")


def _streams(found: Iterable[Step], after: int) -> dict[tuple[str, ...], list[Step]]:
    streams: dict[tuple[str, ...], list[Step]] = {}
    for step in found:
        if step.kind == "session" or step.chunk.position <= after or _is_elsewhere(step):
            continue
        streams.setdefault(stream_of(step), []).append(step)
    return streams


def _is_elsewhere(step: Step) -> bool:
    """A task whose checkpoint stands on another branch: which of the two was handed over first decides where the task stands."""
    return step.kind == "task" and "/task  " in step.actor


def _askers(streams: Iterable[Iterable[Step]]) -> dict[Any, Digest]:
    """For a call's id, the message that asks for it."""
    found: dict[Any, Digest] = {}
    for step in (step for stream in streams for step in stream if step.kind == "message"):
        parts: Any = step.values.get("parts")
        for part in cast("list[Any]", parts) if isinstance(parts, list) else ():
            if isinstance(part, Mapping) and cast("Mapping[str, Any]", part).get("type") == "tool_call":
                found.setdefault(cast("Mapping[str, Any]", part).get("id"), step.chunk.id)
    return found


def side_by_side(found: Sequence[Step], ends: Mapping[Any, int], asked: Mapping[Any, Digest]) -> list[tuple[int, int]]:
    """Return where in a stream tool calls stand that may begin in any order: first and last of each group.

    They are asked for in one message, or one began before the one before had ended.

    Args:
        found: The steps of one stream.
        ends: For a call's id, the position of its result.
        asked: For a call's id, the message that asks for it.
    """
    groups: list[tuple[int, int]] = []
    reach, asker = -1, None
    for index, step in enumerate(found):
        if step.kind != "tool_call":
            reach, asker = -1, None
            continue
        name = step.values.get("call_id")
        together = asker is not None and asked.get(name) == asker
        if together or step.chunk.position < reach:
            groups[-1] = (groups[-1][0], index)
        else:
            groups.append((index, index))
        reach, asker = max(reach, ends.get(name, -1)), asked.get(name)
    return [group for group in groups if group[1] > group[0]]


def _in_order(ours: Sequence[Step], theirs: Sequence[Step]) -> list[Step]:
    """Put calls that may begin in any order into the order of the record, as far as they are the same."""
    left, found = list(ours), list[Step | None]()
    for step in theirs[: len(ours)]:
        at = next((index for index, one in enumerate(left) if one.key == step.key), None)
        found.append(None if at is None else left.pop(at))
    return [left.pop(0) if one is None else one for one in found]


def stream_of(step: Step) -> tuple[str, ...]:
    """Return the stream within which the order of a step counts: its actor, or, for a result, its call."""
    if step.kind == "tool_result" and "call_id" in step.values:
        return (step.actor, str(step.values["call_id"]))
    return (step.actor,)


def _differing(ours: Step, theirs: Step) -> Divergence:
    what = _what(theirs)
    if ours.kind != theirs.kind:
        return Divergence(
            what, f"a {ours.kind}: {shown(ours.values, SHOWN)}", f"a {theirs.kind}: {shown(theirs.values)}", theirs.chunk.id
        )
    path, left, right = parting(ours.values, theirs.values)
    deeper, left, right = _read_in(ours.chunk, left, theirs.chunk, right)
    return Divergence(what, *sides(left, right), theirs.chunk.id, path + deeper or None)


def _read_in(one: Chunk, ours: Any, other: Chunk, theirs: Any) -> tuple[str, Any, Any]:
    """Follow references to where the two sides part: texts and items that stand outside of the bodies."""
    try:
        if (
            isinstance(ours, TreeRef)
            and isinstance(theirs, TreeRef)
            and one.load
            and other.load
            and ours.form == theirs.form == "list"
        ):
            left, right = read_list(ours, one.load), read_list(theirs, other.load)
            index = next((i for i in range(min(len(left), len(right))) if left[i] != right[i]), min(len(left), len(right)))
            found = [
                _text(load([raw.hex() for raw in items[index : index + 1]]))
                for load, items in ((one.load, left), (other.load, right))
            ]
            return f"[{index}]", found[0], found[1]
        if isinstance(ours, BlobRef) and one.load:
            ours = _text(one.load([ours.digest]))
        if isinstance(theirs, BlobRef) and other.load:
            theirs = _text(other.load([theirs.digest]))
    except RathError:  # it was erased: the references say that they differ
        pass
    return "", ours, theirs


def _text(found: Mapping[Digest, bytes]) -> Any:
    return next((data.decode("utf-8", "replace") for data in found.values()), _ABSENT)


def sides(ours: Any, theirs: Any) -> tuple[str, str]:
    """Return both sides in a line each; of long texts, what surrounds the place where they part."""
    if isinstance(ours, str) and isinstance(theirs, str) and max(len(ours), len(theirs)) > SHOWN:
        same = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
        start = max(0, same - SHOWN // 4)
        return tuple(("…" if start else "") + shown(text[start:]) for text in (ours, theirs))  # pyright: ignore[reportReturnType]
    return shown(ours), shown(theirs)


def _what(step: Step) -> str:
    if step.kind == "run":
        return _run(step)
    name = step.values.get("name")
    named = f" {name}" if isinstance(name, str) and step.kind in ("tool_call", "tool_result", "guardrail") else ""
    return f"{step.kind}{named} of {step.actor}" if step.actor else f"{step.kind}{named}"


def _run(step: Step) -> str:
    """``beginning of LangGraph, run 2 of that name in thread[0]``."""
    above, _, own = step.actor.rpartition("/")
    place = own.rpartition("[")[2].removesuffix("]")
    nth = f", run {int(place) + 1} of that name" if place.isdecimal() and place != "0" else ""
    word = "beginning" if step.values.get("phase") == "begin" else "end"
    return f"{word} of {_named(step)}{nth}{' in ' + above if above else ''}"


def _named(step: Step) -> str:
    name, kind = step.values.get("name"), step.values.get("type")
    return f"the {kind} {name}" if isinstance(kind, str) and kind != name else f"the {name}" if kind == name else str(name)


def _held(step: Step) -> str:
    return _named(step).replace("the ", "a run of the ", 1) if step.kind == "run" else shown(step.values)


def parting(ours: Any, theirs: Any) -> tuple[str, Any, Any]:
    """Return the path at which two values part first, and what stands there on each side (a word where nothing does)."""
    path = ""
    while True:
        step: tuple[str, Any, Any] | None = None
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
            step = _in_maps(cast(Any, ours), cast(Any, theirs))
        elif isinstance(ours, (list, tuple)) and isinstance(theirs, (list, tuple)):
            step = _in_lists(cast(Any, ours), cast(Any, theirs))
        if step is None:
            return path.removeprefix("."), cast(Any, ours), cast(Any, theirs)
        path, ours, theirs = path + step[0], step[1], step[2]


def _in_maps(ours: Mapping[Any, Any], theirs: Mapping[Any, Any]) -> tuple[str, Any, Any] | None:
    for name in sorted({*ours, *theirs}, key=str):
        if not _same(ours.get(name, _ABSENT), theirs.get(name, _ABSENT)):
            return f".{name}", ours.get(name, _ABSENT), theirs.get(name, _ABSENT)
    return None


def _in_lists(ours: Sequence[Any], theirs: Sequence[Any]) -> tuple[str, Any, Any] | None:
    for index in range(max(len(ours), len(theirs))):
        one = ours[index] if index < len(ours) else _ABSENT
        other = theirs[index] if index < len(theirs) else _ABSENT
        if not _same(one, other):
            return f"[{index}]", one, other
    return None


def _same(ours: Any, theirs: Any) -> bool:
    return type(ours) is type(theirs) and ours == theirs


def shown(value: Any, limit: int = SHOWN) -> str:
    """Return a value in a line, cut."""
    if value is _ABSENT:
        return NOTHING
    if isinstance(value, (BlobRef, TreeRef)):
        return f"{'a text or bytes' if isinstance(value, BlobRef) else 'a list or map'} of {value.digest[:12]}"
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
