"""A recorded failure fails again: with the exception that the program caught then, where this process knows its class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rath_bridge.replay.tape import current_tape
from rath_bridge.verbs.raised import made_again


def raised_again(facts: Any, words: str) -> Exception | None:
    """Return the exception to raise, of the class that it had; None where that class is not at hand, and the report tells so.

    Args:
        facts: From `rath_bridge.verbs.raised.described`, where they were kept.
        words: ``Type: message``, for the report.
    """
    error, lacking = made_again(facts)
    tape = current_tape()
    if tape is None:
        return error
    known: Mapping[str, Any] = cast("Mapping[str, Any]", facts) if isinstance(facts, Mapping) else {}
    name = ".".join(str(known[key]) for key in ("module", "name") if known.get(key)) or words.partition(":")[0]
    told = ""
    if error is None:
        told = (
            f"{name}, which was raised then, could not be given back as what it was (its class is not imported here under that name, or "
            "cannot be made without its own code): what catches it by its class does not catch it now"
        )
    elif lacking:
        told = f"{name}, which was raised then, came back without {', '.join(lacking)}: these are no plain data"
    if told and told not in tape.lacking:
        tape.lacking.append(told)
    return error
