"""Exceptions, raised again: a replay fails where the run failed, with an error that says and shows the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rath_bridge.errors import RathError
from rath_bridge.replay.raising import raised_again as of_its_class
from rath_bridge.verbs.raised import stand_in


class RecordedError(RathError, RuntimeError):
    """What was asked for failed when it was recorded, with these words, and its own class is not imported here."""


def raised_again(words: str, facts: Any) -> Exception:
    """Return an exception to raise: of the same class where that is imported and can be made again, else one that reads the same.

    Args:
        words: ``Type: message``.
        facts: From `rath_bridge.verbs.raised.described`, where they were kept.
    """
    name, _, text = words.partition(": ")
    known: dict[str, Any] = {"name": name, "text": text}
    known |= cast("Mapping[str, Any]", facts) if isinstance(facts, Mapping) else {}
    return of_its_class(facts, words) or stand_in(known, RecordedError)
