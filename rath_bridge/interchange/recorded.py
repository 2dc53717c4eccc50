"""Logs that go home record by record: what came later on the line is named, never written into somebody else's log."""

from __future__ import annotations

from typing import Any

from rath_bridge.interchange.natives import homes, key
from rath_bridge.model.report import Loss, LossReport, ManifestEntry
from rath_bridge.session import Session
from rath_bridge.verbs.transcript import pending, transcript


def home(session: Session, framework: str) -> tuple[list[Any], LossReport] | None:
    """Return the records of a framework on a session's line, and what is not among them; None where there is no record at all."""
    chunks = list(session.chunks())
    natives = homes(session, chunks, framework)
    if not natives:
        return None
    found: list[Any] = []
    entries: list[ManifestEntry] = []
    losses: list[Loss] = []
    shown = {one.id for one in transcript(chunks)}
    waiting: list[str] = []
    for chunk in chunks:
        if chunk.id in natives:
            if chunk.id in shown:
                entries.append(ManifestEntry(len(found), chunk.id, key(natives[chunk.id][1])))
            found.append(natives[chunk.id][1])
            waiting.clear()
        elif chunk.id in shown and chunk.origin is not None and f'"{framework}"' in chunk.origin:
            waiting.append(chunk.id)  # its record follows, with the last chunk that it made
        elif chunk.id in shown:
            losses.append(Loss(chunk.id, "parts", f"{framework} did not say this: left out"))
    losses += [Loss(name, "parts", "its record is cut in the middle by the fork: left out") for name in waiting]
    losses += [Loss(call.asked, "call_id", f"the call {call.call_id!r} is pending in the record") for call in pending(chunks)]
    return found, LossReport(tuple(losses), tuple(entries))
