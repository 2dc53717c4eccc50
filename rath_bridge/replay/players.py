"""What an adapter offers to a replay: a player, which answers for its framework from the record."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from rath_bridge.errors import ErasedError, MissingObjectError, RathError
from rath_bridge.model.digests import Digest
from rath_bridge.plugins import adapters

if TYPE_CHECKING:
    from rath_bridge.replay.tape import Tape


class Player(Protocol):
    """One framework's part of a replay."""

    def installed(self) -> AbstractContextManager[Any]:
        """Let the framework's public entry points answer from the record, for contexts in which the tape is current, inside the block.

        `rath_bridge.replay.patched` does that for one function.
        """
        ...

    @property
    def unused(self) -> Sequence[Digest]:
        """Chunks of recorded calls that the run has not asked for, oldest first."""
        ...

    @property
    def reasons(self) -> Sequence[str]:
        """Why this framework's part of the record cannot be replayed whole; empty where it can be."""
        ...


def _made(make: Any, tape: Tape) -> Any:
    try:
        return make(tape)
    except (MissingObjectError, ErasedError):  # something below a chunk is gone: what can be replayed is
        tape.held.sift()
        return make(tape)


def frameworks(adapter: Any) -> tuple[str, ...]:
    """Return the top-level modules of an adapter's framework (its optional member ``frameworks``)."""
    return tuple(getattr(adapter, "frameworks", ()))


def players(tape: Tape) -> tuple[dict[str, Player], tuple[str, ...]]:
    """Ask every adapter for its player.

    Returns:
        The players by adapter, and what went wrong with those that have something on record and could not make one: nothing may
        run then, since it would run live.
    """
    found: dict[str, Player] = {}
    problems: list[str] = []
    for name, adapter in adapters().items():
        make: Any = getattr(adapter, "player", None)
        if make is None:
            continue
        if not callable(make):  # a room of that name hides the function
            problems.append(f"{name}: its player is a {type(make).__name__}, not a function")
            continue
        try:
            player: Any = _made(make, tape)
        except RathError as error:
            problems.append(f"{name}: {error}")
            continue
        if player is not None:
            found[name] = player
    return found, tuple(problems)
