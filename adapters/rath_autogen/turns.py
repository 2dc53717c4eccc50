"""A wrapped agent or team that is itself what a replay runs: every run that it made is made again, with the task that is on record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from rath_autogen.natives import FRAMEWORK, Registry, from_bytes
from rath_bridge.errors import RathError, UnsupportedError
from rath_bridge.model.chunk import Chunk, Draft, draft
from rath_bridge.model.kinds import Inference, Message, Run
from rath_bridge.replay import Tape, current_tape
from rath_bridge.session import Session
from rath_bridge.verbs.transcript import by_top_run

_SAID: Final = frozenset({"message", "note", "placement"})
_BESIDE: Final = frozenset({"message", "handoff"})
INSTEAD: Final = "give rb.replay a function that runs it"


@dataclass(frozen=True, slots=True)
class Turn:
    """One run."""

    task: list[Any]
    """Messages that were given to it; empty where it went on."""
    handed: bool
    """It went on from the session: a manifest says what of it was handed over."""
    listed: bool
    """The transcript stood in its task, before what was new."""
    fresh: bool
    """Its first speaker knew nothing of the run before: another object made that one, or it was reset."""
    failed: bool


def recorded_turns(session: Session, name: str) -> list[Turn | Draft] | None:
    """What a replay makes again, in order: the runs of the record, and what others wrote between them; None where there is none.

    Args:
        session: The scratch to begin with.
        name: Of the agent or team: where the record holds runs of it, those alone.

    Raises:
        UnsupportedError: A task is not on record as it was given.
    """
    tape = current_tape()
    if tape is None or session.name != tape.session.name:
        return None
    chunks = [c for c in tape.held.chunks if c.position > session.position and c.id not in tape.held.unreadable]
    begun = [chunk for chunk in chunks if _is_run(chunk)]
    own = [chunk for chunk in begun if cast(Run, chunk.body).name == name] or begun
    if not own:
        return None
    try:
        return list(_steps(tape, chunks, {chunk.id for chunk in own}))
    except (RathError, ValueError) as error:
        known = isinstance(error, UnsupportedError)
        reason = str(error) if known else f"the task of a run cannot be read ({error}): {INSTEAD}"
        tape.player(FRAMEWORK).unread.append(reason)
        raise UnsupportedError(reason) from error


def _is_run(chunk: Chunk) -> bool:
    if chunk.kind != "run" or '"rath_autogen"' not in (chunk.origin or ""):
        return False
    body = cast(Run, chunk.body)
    return body.phase == "begin" and body.parent is None and body.type in ("agent", "team")


def _steps(tape: Tape, chunks: Sequence[Chunk], own: set[str]) -> Iterator[Turn | Draft]:
    inside = by_top_run(chunks)
    before: tuple[str | None, int] | None = None
    for chunk in chunks:
        if chunk.id in own:
            body, found = cast(Run, chunk.body), inside[cast(str, chunk.run)]
            task = _task(body, found)
            first = next((cast(Inference, c.body) for c in found if c.kind == "inference"), None)
            knows = None if first is None else (first.agent, getattr(first.input, "count", 0) - len(task))
            ends = [cast(Run, c.body).status for c in found if c.kind == "run" and c.run == chunk.run]
            yield Turn(
                task, bool(body.manifest), body.attributes.get("manifest_basis") == "inferred",
                before is not None and knows == before and not body.manifest, ends[-1] == "error",
            )  # fmt: skip
            before = before or (None if body.manifest else knows)
        elif chunk.run is None and chunk.kind in _SAID:
            yield draft(chunk.body, native=chunk.native, objects=tape.session.store.backend.objects(chunk.references))


def _task(begin: Run, inside: Sequence[Chunk]) -> list[Any]:
    """The messages with which a run began: before anything was asked, and by none of its members."""
    rows = cast("Sequence[Mapping[str, Any]]", begin.attributes.get("participants") or ())
    members = {str(row.get("name")) for row in rows} or {begin.name}
    registry, found = Registry(), list[Any]()
    for chunk in inside[1:]:
        if chunk.kind not in _BESIDE or chunk.run != inside[0].run:
            break
        if chunk.kind != "message":
            continue
        if cast(Message, chunk.body).name in members:
            break
        if chunk.native is None:
            raise UnsupportedError(f"the task of a run of {begin.name} is not on record as it was given: {INSTEAD}")
        path = cast(Message, chunk.body).attributes.get("class")
        message, lost = registry.load(from_bytes(chunk.native.data), path)
        if lost is not None:
            raise UnsupportedError(f"the task of a run of {begin.name} cannot be made again ({lost}): {INSTEAD}")
        found.append(message)
    return found


def may_go_on(error: Exception, turn: Turn) -> bool:
    """Tell whether the runs after one that failed are made all the same: it failed then, too."""
    tape = current_tape()
    expected = turn.failed and not isinstance(error, UnsupportedError)
    return expected and tape is not None and not tape.misses and tape.halted is None
