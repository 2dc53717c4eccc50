"""Equal calls at one time: which of them is which, when the run comes again?

A call that a model asked for has an id that the record gives again. A call that code makes by itself has none: equal ones are told
apart by the order in which they come, and at one time that order is nobody's.
"""

from __future__ import annotations

from itertools import pairwise

from rath_bridge.model.encoding import dumps, escape
from rath_bridge.replay.held import Held, HeldCall


def at_once(held: Held) -> list[str]:
    """Return a note for each tool that was called twice at one time with equal arguments, in one run, with different answers."""
    found: dict[str, int] = {}
    by_key: dict[tuple[str | None, str, bytes], list[HeldCall]] = {}
    for call in held.calls:
        if call.started and not call.asked and call.position > held.after:
            by_key.setdefault((call.run, call.name, call.key), []).append(call)
    for (_, name, _), calls in by_key.items():
        for one, other in pairwise(calls):
            end = held.position(one.end)
            if (end is None or other.position < end) and _answer(one) != _answer(other):
                found[name] = found.get(name, 1) + 1
    return [
        f"{count} equal calls of {name} ran at one time and were answered differently: they are served in the order in which they come"
        for name, count in found.items()
    ]


def _answer(call: HeldCall) -> tuple[str, bytes]:
    return call.status, dumps(escape({"a": call.value}, {}))
