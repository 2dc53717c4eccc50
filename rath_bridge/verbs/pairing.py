"""Law 8 along every line of a history that branches: a call has one result.

`rath_bridge.verbs.transcript.calls` folds one line. Here the fold's state is kept per stretch of history, so that
shared history is folded once, however many lines go through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.verbs.calling import CALLS, told

_What = Literal["run", "asked", "started", "result"]


@dataclass(frozen=True, slots=True)
class CallEvent:
    """What one chunk tells about one call (or, for ``run``, about the nesting of runs)."""

    chunk: Digest
    position: int
    what: _What
    run: str | None
    id: object
    """The call's id; for ``run``, the enclosing run."""


def call_events(chunk: Chunk, body: Any) -> list[CallEvent]:
    """Return what a chunk tells about calls.

    Args:
        chunk: The chunk.
        body: Parsed JSON of its body.
    """
    if chunk.kind not in CALLS or type(body) is not dict:
        return []
    value = cast("dict[str, Any]", body)
    found: list[tuple[_What, Any]] = []
    if chunk.kind == "run":
        if value.get("phase") == "begin":
            found.append(("run", value.get("parent")))
    else:
        found.extend((one.what, one.id) for one in told(chunk.kind, value) if one.what != "answered")
    return [
        CallEvent(chunk.id, chunk.position, what, chunk.run, name if name is None or type(name) is str else repr(name))
        for what, name in found
        if what == "run" or name is not None
    ]


@dataclass(frozen=True, slots=True)
class _State:
    asked: bool = False
    started: bool = False
    result: Digest | None = None


class Pairing:
    """Finds second results along all lines. Stretches are fed parents before children, events oldest first."""

    def __init__(self) -> None:
        self._roots: dict[str, str] = {}
        self._stretches: list[tuple[int, int] | None] = []
        self._states: dict[tuple[str, object], list[tuple[int, int, _State]]] = {}
        self._chain: tuple[int, dict[int, int]] = (-1, {})

    def stretch(self, parent: tuple[int, int] | None = None) -> int:
        """Begin a stretch of history.

        Args:
            parent: The stretch and position of the chunk that it goes on from.
        """
        self._stretches.append(parent)
        return len(self._stretches) - 1

    def join(self, stretch: int, parent: tuple[int, int] | None) -> None:
        """Tell where a stretch goes on from, once that is known and before it is fed."""
        self._stretches[stretch] = parent

    def feed(self, stretch: int, events: Iterable[CallEvent]) -> Iterator[tuple[CallEvent, Digest]]:
        """Fold events in; yield each result that is not the first of its call, with the first one."""
        for event in events:
            if event.what == "run":
                if event.run is not None and event.run not in self._roots:
                    parent = cast("str | None", event.id)
                    self._roots[event.run] = self._roots.get(parent, parent) if parent else event.run
                continue
            scope = self._roots.get(event.run, event.run) if event.run else ""
            states = self._states.setdefault((scope, event.id), [])
            before = self._before(stretch, states)
            if event.what == "result":
                if before is not None and before.result is not None:
                    yield event, before.result
                    continue
                after = _State(before is not None and before.asked, before is not None and before.started, event.chunk)
            elif event.what == "asked":
                after = _State(True) if before is None or before.asked else _State(True, before.started, before.result)
            else:
                after = _State(False, True) if before is None or before.started else _State(before.asked, True, before.result)
            states.append((stretch, event.position, after))

    def _before(self, stretch: int, states: list[tuple[int, int, _State]]) -> _State | None:
        """The state that stands at the end of a stretch: the nearest one on its own line."""
        if not states:
            return None
        if states[-1][0] == stretch:
            return states[-1][2]
        line = self._line(stretch)
        found = [(line[s], p, i) for i, (s, p, _) in enumerate(states) if s in line and p <= line[s]]
        return states[max(found, key=lambda item: (item[1], item[2]))[2]][2] if found else None

    def _line(self, stretch: int) -> dict[int, int]:
        """Which stretches a stretch goes through, each with the last position that it shares."""
        if self._chain[0] != stretch:
            found: dict[int, int] = {stretch: 1 << 62}
            at = self._stretches[stretch]
            while at is not None:
                found[at[0]] = min(at[1], found.get(at[0], at[1]))
                at = self._stretches[at[0]]
            self._chain = (stretch, found)
        return self._chain[1]
