"""A wrapped runnable that is itself what a replay runs: which runs of the record it makes again, and what others wrote between them.

How a framework's run is made again is its adapter's business; which ones, in what order, and what becomes of a failure is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, cast

from rath_bridge.errors import RathError, UnsupportedError
from rath_bridge.model.chunk import Chunk, Draft, draft
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Run
from rath_bridge.replay.tape import Tape, current_tape
from rath_bridge.session import Session
from rath_bridge.verbs.transcript import by_top_run

_SAID: Final = frozenset({"message", "note", "placement"})


@dataclass(frozen=True, slots=True)
class Recorded:
    """The part of a record that a wrapped runnable makes again."""

    tape: Tape
    chunks: Sequence[Chunk]
    """All that stands behind where the run begins, oldest first."""
    own: frozenset[Digest]
    """The beginnings of the runs to make."""
    _inside: Mapping[str, Sequence[Chunk]]

    def inside(self, begin: Chunk) -> Sequence[Chunk]:
        """The chunks of a run, its beginning first, those of runs inside of it among them."""
        return self._inside[cast(str, begin.run)]

    def failed(self, begin: Chunk) -> bool:
        """Whether a run ended with an error."""
        found = (cast(Run, one.body).status for one in reversed(self.inside(begin)) if one.kind == "run" and one.run == begin.run)
        return next(found, None) == "error"

    @contextmanager
    def reading(self, what: str, instead: str) -> Generator[None]:
        """Where the block cannot read what a run was given, that is a reason of the report.

        Args:
            what: What is read there, in words.
            instead: What to do.

        Raises:
            UnsupportedError: It could not be read.
        """
        try:
            yield
        except (RathError, ValueError) as error:
            known = isinstance(error, UnsupportedError)
            reason = str(error) if known else f"{what} cannot be read ({error}): {instead}"
            self.tape.reasons.append(reason)
            raise UnsupportedError(reason) from error


def tape_of(program: object, session: Session) -> Tape | None:
    """The tape of a replay that runs just this, on this scratch; None where it is called by a program, which says itself what it runs.

    Args:
        program: A wrapped runnable.
        session: What it is called with.
    """
    tape = current_tape()
    if tape is None or session.name != tape.session.name:
        return None
    return tape if program is tape.program or program is getattr(tape.program, "__self__", None) else None


def said(tape: Tape, chunk: Chunk) -> Draft | None:
    """What was written outside of all runs, to be appended again; None for any other chunk."""
    if chunk.run is not None or chunk.kind not in _SAID:
        return None
    return draft(chunk.body, native=chunk.native, objects=tape.session.store.backend.objects(chunk.references))


def recorded(program: object, session: Session, name: str, is_run: Callable[[Chunk, Run], bool]) -> Recorded | None:
    """Return what of the record a wrapped runnable makes again; None where it is not what a replay runs, or has no runs on record.

    Args:
        program: The runnable.
        session: The scratch to begin with.
        name: Of the runnable: where the record holds runs of it, those alone.
        is_run: Whether a run that began at the top is one of the framework's.
    """
    tape = tape_of(program, session)
    if tape is None:
        return None
    chunks = [one for one in tape.held.chunks if one.position > session.position and one.id not in tape.held.unreadable]
    begun = [(one, cast(Run, one.body)) for one in chunks if one.kind == "run"]
    begun = [(one, run) for one, run in begun if run.phase == "begin" and run.parent is None and is_run(one, run)]
    own = [one.id for one, run in begun if run.name == name] or [one.id for one, _ in begun]
    return Recorded(tape, chunks, frozenset(own), by_top_run(chunks)) if own else None


def may_go_on(error: Exception, *, failed: bool, last: bool) -> bool:
    """Tell whether the runs after one that raised are made all the same.

    Args:
        error: What it raised now.
        failed: It failed when it was recorded, too.
        last: No run comes after it.
    """
    tape = current_tape()
    expected = failed and not last and not isinstance(error, UnsupportedError)
    return expected and tape is not None and not tape.misses and tape.halted is None
