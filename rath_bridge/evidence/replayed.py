"""A replay that was made, on record: what it served, whether it came out equal, and of which head. Claims may rest on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from rath_bridge.model.chunk import Chunk, Draft, draft
from rath_bridge.model.digests import Digest, is_digest
from rath_bridge.model.kinds import Note
from rath_bridge.session import Session

if TYPE_CHECKING:
    from rath_bridge.replay import ReplayReport

ATTRIBUTE: Final = "rath.replay"
"""Under which a note holds what came of a replay."""


def replay_draft(report: ReplayReport, *, command: str | None = None, by: str | None = None) -> Draft:
    """Return the note that records a replay: append it to the session that was replayed, and name it as a claim's evidence.

    Args:
        report: From `rath_bridge.replay.replay`.
        command: What makes it again.
        by: Who made it.
    """
    told = {**report.as_json(), "command": command}
    kept = {key: value for key, value in told.items() if value is not None and key not in ("exit_status", "branch")}
    return draft(Note(text=str(report), author=by, attributes={ATTRIBUTE: kept}))


def recorded_replay(chunk: Chunk) -> Mapping[str, Any] | None:
    """Return what a chunk records of a replay, if it does."""
    if chunk.kind != "note" or chunk.body_bytes is None or ATTRIBUTE.encode() not in chunk.body_bytes:
        return None
    body: Any = orjson.loads(chunk.body_bytes)
    attributes: Any = cast("dict[str, Any]", body).get("attributes") if type(body) is dict else None
    found: Any = cast("dict[str, Any]", attributes).get(ATTRIBUTE) if type(attributes) is dict else None
    return cast("dict[str, Any]", found) if type(found) is dict else None


def came_out_equal(chunk: Chunk) -> bool:
    """Tell whether a chunk records a replay that came out equal, with nothing called live."""
    found = recorded_replay(chunk)
    return found is not None and found.get("equal") is True and found.get("live") == 0


def as_replayed(session: Session) -> Session:
    """Return a session as it stood when its last recorded replay was made: what was said about it since is no part of the run."""
    head: Digest | None = None
    for chunk in session.chunks():
        found = recorded_replay(chunk)
        if found is not None and is_digest(found.get("head")):
            head = str(found["head"])
    if head is None:
        return session
    return Session(session.store, session.session, session.branch, head, session.store.backend.chunk(head).position)
