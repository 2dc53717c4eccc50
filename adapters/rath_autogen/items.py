"""What a session holds for AutoGen, in the order in which AutoGen lists it: the transcript with the events between."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from rath_autogen.natives import FRAMEWORK, from_bytes
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.kinds import Message, ToolResult
from rath_bridge.session import Session
from rath_bridge.verbs.transcript import calls, top_runs, transcript

NO_RESPONSE: Final = "[no response]"
"""Content of the result that closes a call which was never answered (law 8)."""


@dataclass(frozen=True, slots=True)
class Item:
    """A message of the transcript, or an event of AutoGen's that stands between two of them."""

    chunk: Chunk
    message: Message | None
    """None for events."""
    data: Mapping[str, Any] | None
    """AutoGen's own JSON, where it came from there."""
    cls: str | None = None
    """Where its class is found, where AutoGen does not bring it."""


@dataclass(frozen=True, slots=True)
class History:
    """A session as AutoGen may read it."""

    items: tuple[Item, ...]
    chunks: Sequence[Chunk]
    closed: Mapping[tuple[str, str], ToolResult]
    """(asking message chunk, call id) -> the ``tool_result`` chunk that closed it, where no message holds the answer."""

    @property
    def messages(self) -> tuple[Item, ...]:
        """The transcript alone."""
        return tuple(item for item in self.items if item.message is not None)


def history(session: Session, run: str | None = None) -> History:
    """Read a session: its transcript, events, and how its calls ended.

    Args:
        session: What to read.
        run: Only this run; by default what is outside of runs and in top-level runs.
    """
    chunks = list(session.chunks())
    roots = top_runs(chunks)
    shown = transcript(chunks, run)
    natives = _natives(session, chunks)
    places = [m.chunk.position for m in shown]
    order = sorted(range(len(shown)), key=places.__getitem__)
    sorted_places = [places[index] for index in order]
    keyed: list[tuple[tuple[int, int, int], Item]] = [
        ((index, 0, 0), Item(m.chunk, m.body, natives.get(m.chunk.id), m.body.attributes.get("class")))
        for index, m in enumerate(shown)
    ]
    for chunk in chunks:
        if chunk.kind in ("message", "checkpoint") or chunk.id not in natives:
            continue
        if (chunk.run != run) if run is not None else (chunk.run is not None and roots.get(chunk.run, chunk.run) != chunk.run):
            continue
        before = bisect_left(sorted_places, chunk.position)
        attributes = cast("Mapping[str, Any]", getattr(chunk.body, "attributes", {}))
        keyed.append(
            (
                (order[before - 1] if before else -1, 1, chunk.position),
                Item(chunk, None, natives[chunk.id], attributes.get("class")),
            )
        )
    keyed.sort(key=lambda pair: pair[0])
    return History(tuple(item for _, item in keyed), chunks, _closed(chunks))


def _natives(session: Session, chunks: Sequence[Chunk]) -> dict[str, Mapping[str, Any]]:
    """AutoGen's own JSON by chunk, in one read."""
    wanted = {
        chunk.id: str(ref["digest"])
        for chunk in chunks
        if chunk.kind != "inference"
        and chunk.body_bytes is not None
        and (ref := chunk.native_ref) is not None
        and ref["framework"] == FRAMEWORK
    }
    held = session.store.backend.objects(dict.fromkeys(wanted.values()))
    return {name: from_bytes(held[ref], f"chunk {name[:16]}") for name, ref in wanted.items()}


def _closed(chunks: Sequence[Chunk]) -> dict[tuple[str, str], ToolResult]:
    by_id = {chunk.id: chunk for chunk in chunks if chunk.kind == "tool_result"}
    return {
        (call.asked, call.call_id): cast(ToolResult, by_id[call.result].body)
        for call in calls(chunks)
        if call.asked and call.result and not call.answered and call.result in by_id
    }
