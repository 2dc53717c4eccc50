"""A wrapped agent or team that is itself what a replay runs: every run that it made is made again, with the task that is on record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from rath_autogen.natives import Registry, from_bytes
from rath_bridge.errors import UnsupportedError
from rath_bridge.model.chunk import Chunk, Draft
from rath_bridge.model.kinds import Inference, Message, Run
from rath_bridge.replay import Recorded, recorded, said
from rath_bridge.session import Session

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


def recorded_turns(program: object, session: Session, name: str) -> list[Turn | Draft] | None:
    """What a replay makes again, in order: the runs of the record, and what others wrote between them; None where there is none.

    Args:
        program: The wrapped agent or team.
        session: The scratch to begin with.
        name: Of the agent or team: where the record holds runs of it, those alone.

    Raises:
        UnsupportedError: A task is not on record as it was given.
    """
    found = recorded(program, session, name, _is_run)
    if found is None:
        return None
    with found.reading("the task of a run", INSTEAD):
        return list(_steps(found))


def _is_run(chunk: Chunk, run: Run) -> bool:
    return '"rath_autogen"' in (chunk.origin or "") and run.type in ("agent", "team")


def _steps(found: Recorded) -> Iterator[Turn | Draft]:
    before: tuple[str | None, int] | None = None
    for chunk in found.chunks:
        if chunk.id in found.own:
            body, inside = cast(Run, chunk.body), found.inside(chunk)
            task = _task(body, inside)
            first = next((cast(Inference, c.body) for c in inside if c.kind == "inference"), None)
            knows = None if first is None else (first.agent, getattr(first.input, "count", 0) - len(task))
            yield Turn(
                task, bool(body.manifest), body.attributes.get("manifest_basis") == "inferred",
                before is not None and knows == before and not body.manifest, found.failed(chunk),
            )  # fmt: skip
            before = before or (None if body.manifest else knows)
        elif (one := said(found.tape, chunk)) is not None:
            yield one


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
