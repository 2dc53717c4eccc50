"""What the parts of the contract share: small histories, odd names, and what a store may do differently."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hypothesis import HealthCheck, settings

from rath_bridge.model.chunk import Draft, draft
from rath_bridge.model.digests import digest
from rath_bridge.model.kinds import Note, SessionStart
from rath_bridge.store.protocol import Appended, Backend

NOBODY = digest(b"nobody has this")
ODD_NAMES = ("plain", "langgraph/1", "ünï", "\U0001f600", "a\u2028b", "100%", "_", "o'brien", 'q"uote', "back\\slash", "x" * 400)
ODD_KEYS = (
    "", "a", "A", "a ", "a\0", "a\0b", "%", "_", "é", "e\u0301", "\u2028", "\ud800", "\uffff", "\U00010000", "o'b", '"', "\\",
    "k" * 900,
)  # fmt: skip
relaxed = settings(deadline=None, max_examples=20, suppress_health_check=(HealthCheck.too_slow, HealthCheck.differing_executors))


def note(text: str = "", **options: Any) -> Draft:
    """A chunk that says something."""
    return draft(Note(text=text), **options)


def start(name: str = "s") -> Draft:
    """The first chunk of a session."""
    return draft(SessionStart(op="create", name=name))


def begin(backend: Backend, name: str = "s", texts: Sequence[str] = ()) -> Appended:
    """Create a session with a chunk for each text."""
    return backend.append(name, "main", [start(name), *map(note, texts)], head=None, reason="create")


def said(backend: Backend, head: str) -> list[str]:
    """The texts of a line."""
    return [str(chunk.values.get("text", "")) for chunk in backend.line(head) if chunk.kind == "note"]


class Contract:
    """What a store may do differently."""

    def reopen(self, backend: Backend) -> Backend | None:
        """Return another backend over the same data, or None where there is no such thing (``memory:``)."""
        return None


def at_once(count: int, work: Callable[[int], None]) -> None:
    """Do something in several threads at once; the first error is raised."""
    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(work, i) for i in range(count)]:
            done.result(60)
