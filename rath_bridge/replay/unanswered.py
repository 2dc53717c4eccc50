"""Calls on record that no player answers: written by the program itself, or by an adapter that has none. A program would make them live.

They are told before anything is run. A program is run all the same where the policy says ``live`` of each of them, and where those that
write may be done again; what it then makes is counted as live.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import orjson

from rath_bridge.errors import RathError
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.kinds import Run
from rath_bridge.plugins import adapters
from rath_bridge.replay.inside import inside
from rath_bridge.replay.tape import Tape
from rath_bridge.verbs.words import counted

SHOWN: Final = 5
"""How many tools and models a reason names."""
_CALLS: Final = ("inference", "tool_call", "tool_result")


class Unanswered(NamedTuple):
    """One call that no player answers."""

    title: str
    """As the tape calls it: ``tool refund``, ``model call of Writer``."""
    pattern: str
    """As a policy calls it: ``refund``, ``model:Writer``."""
    writes: bool
    let: bool
    """The policy lets the program make it."""


def unanswered(tape: Tape) -> list[Unanswered]:
    """Find the calls of what is replayed that no player answers, oldest first."""
    found: list[Unanswered] = []
    begun = _begun(tape)
    for chunk in _not_answered(tape):
        call = tape.held.call_at(chunk.id)
        if (call is not None and call.chunks[0] != chunk.id) or _is_beyond(tape, chunk.run, begun):
            continue  # the result of a call that was told
        body = _body(tape, chunk)
        if chunk.kind == "inference":
            title = _title("model", getattr(body, "agent", None))
            pattern, writes = f"model:{getattr(body, 'agent', None) or '*'}", False
            let = tape.rules.on_miss(pattern) == "live"
        else:
            pattern = getattr(body, "name", None) or (call.name if call is not None else "")
            title = _title("tool", pattern)
            writes = tape.rules.effect(pattern, call.effect if call is not None else None) == "writes"
            let = tape.rules.on_miss(pattern) == "live" and (tape.allow_effects or not writes)
        found.append(Unanswered(title, pattern, writes, let))
    return found


def reason(refused: Sequence[Unanswered]) -> str:
    """Tell what is not answered, and what to do."""
    titles = Counter(one.title for one in refused)
    told = [title if number == 1 else f"{title}, {number} times" for title, number in titles.most_common(SHOWN)]
    more = f"; {len(titles) - SHOWN} others" if len(titles) > SHOWN else ""
    tools = sum(one.title.startswith("tool") for one in refused)
    kinds = ((len(refused) - tools, "model call"), (tools, "tool call"))
    numbers = " and ".join(counted(number, kind) for number, kind in kinds if number)
    verb, it = ("is", "it") if len(refused) == 1 else ("are", "them")
    patterns = list(dict.fromkeys(one.pattern for one in refused))[:SHOWN]
    policy = ", ".join(f"{pattern!r}: 'live'" for pattern in patterns)
    options = " ".join(f"--on-miss {shlex.quote(pattern + '=live')}" for pattern in patterns)
    writes = any(one.writes for one in refused)
    return (
        f"{numbers} on record {verb} answered by no player ({'; '.join(told)}{more}): the program would make {it} for real. It was not "
        f"run. Record {it} through an adapter that has a player. To let the program make {it} all the same: policy={{{policy}}}"
        f"{', allow_effects=True' if writes else ''} ({options}{' --allow-effects' if writes else ''})"
    )


def made_itself(tape: Tape, let: Iterable[Unanswered], made: Iterable[Chunk]) -> list[str]:
    """Return which of the calls that the program was let make it has made, by what it has left."""
    titles, found = {one.title for one in let}, list[str]()
    for chunk in made if titles else ():
        if chunk.kind in ("inference", "tool_call") and chunk.id not in tape.held.by_id and not _has_player(chunk):
            body: Any = chunk.body
            title = _title("model", body.agent) if chunk.kind == "inference" else _title("tool", body.name)
            found += [title] if title in titles else []
    return found


# ---------------------------------------------------------------- inside


def _not_answered(tape: Tape) -> Iterator[Chunk]:
    held = tape.held
    served = {name for player in tape.players.values() for name in player.unused}
    asked = [c for c in held.chunks if c.kind in _CALLS and c.position > tape.after]
    open_ = [c for c in asked if c.id not in served and not _has_player(c)]
    if not open_:
        return
    left = {c.id for c in open_}
    told = {c.id for c in asked}
    for call in held.calls:  # one half of it has a player: the whole call does
        own = told.intersection(call.chunks)
        if not left.issuperset(own):
            left -= own
    within = inside(held, {name for call in held.calls for name in call.chunks} - left)  # a tool that is answered as a whole
    yield from (c for c in open_ if c.id in left and c.id not in within)


def _has_player(chunk: Chunk) -> bool:
    """Whether the adapter that recorded it answers for its framework."""
    if chunk.origin is None:
        return False
    found: Any = orjson.loads(chunk.origin).get("adapter")
    return any(
        found in (name, f"rath_{name}", getattr(one, "__name__", name)) and callable(getattr(one, "player", None))
        for name, one in adapters().items()
    )


def _begun(tape: Tape) -> dict[str, tuple[int, str | None]]:
    """Where each run began, and in which one; nothing where the replay comes to every run."""
    begun: dict[str, tuple[int, str | None]] = {}
    for one in tape.held.chunks if tape.until is not None and tape.then == "halt" else ():
        if one.kind == "run" and one.run is not None and one.run not in begun and one.id not in tape.held.unreadable:
            begun[one.run] = (one.position, cast(Run, one.body).parent)
    return begun


def _is_beyond(tape: Tape, run: str | None, begun: Mapping[str, tuple[int, str | None]]) -> bool:
    """A replay that halts at ``until`` does not come to the runs that began behind it."""
    at, seen = run, set[str]()
    while at is not None and at in begun and at not in seen:
        seen.add(at)
        place, at = begun[at]
        if at not in begun:
            return tape.until is not None and place > tape.until
    return False


def _body(tape: Tape, chunk: Chunk) -> Any:
    if chunk.id in tape.held.unreadable:
        return None
    try:
        return chunk.body
    except RathError:
        return None


def _title(kind: str, name: str | None) -> str:
    """As the tape calls it."""
    return f"tool {name}" if kind == "tool" else f"model call of {name}" if name else "model call"
