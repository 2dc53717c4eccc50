"""Hand-over: a session as what another framework takes, in two styles, by one table (`rath_bridge.handover.table`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from rath_bridge.errors import UnknownFormatError, UnsupportedError
from rath_bridge.given import check_session
from rath_bridge.handover.taking import take as take
from rath_bridge.interchange.formats import formats
from rath_bridge.model.chunk import Chunk, Draft, draft
from rath_bridge.model.digests import Digest, digest
from rath_bridge.model.kinds import SessionStart
from rath_bridge.model.report import Loss, LossReport
from rath_bridge.plugins import adapters
from rath_bridge.session import Session, open_store
from rath_bridge.verbs.briefing import BriefingFunction, Told, briefing, told
from rath_bridge.verbs.transcript import top_runs

TARGETS: Final = ("langgraph", "openai_agents", "autogen", "openai_messages")
"""What a session can be continued in; other adapters and formats take the same call."""
STYLES: Final = ("exact", "briefing")

__all__ = ["STYLES", "TARGETS", "Told", "encode", "take"]


def encode(
    session: Session, name: str, as_: str | None = None, *, style: str | BriefingFunction = "exact"
) -> tuple[Any, LossReport]:
    """Translate a session for a framework; pure.

    Args:
        session: What to hand over.
        name: ``langgraph``, ``openai_agents``, ``autogen``, ``openai_messages``, or any other adapter or format.
        as_: Which native form; the target's usual one when absent.
        style: ``exact``: the transcript, valid for the target: calls paired, roles and ids that it takes. ``briefing``: one marked
            summary of what was said and done, then the user's last words as they are. Or a function of
            `rath_bridge.verbs.briefing.Told` that writes the summary; its marks are ours.

    Returns:
        The native value, and what it could not hold, with the manifest of what was handed over. Give the report to
        ``wrap(x, store, continues=report)`` (or `take`), so that what comes back is known.

    Raises:
        UnknownFormatError: No adapter and no format of that name.
        UnsupportedError: A form that the target does not have, or an unknown style.
        MissingExtraError: The framework is not installed.
    """
    check_session(session, "encode")
    if not callable(style) and style not in STYLES:
        raise UnsupportedError(
            f"there is no style {style!r}: use one of {', '.join(STYLES)}, or a function that writes the briefing"
        )
    chunks = list(session.chunks())
    what = None if style == "exact" else told(session.name, chunks)
    if what is None or not what.messages:  # where only the user has spoken, there is nothing to sum up
        native, report = _native(session, name, as_)
    else:
        view, origins = _view(session, what, style if callable(style) else None)
        native, report = _native(view, name, as_)
        report = _report(report, what, origins)
    named = {loss.chunk for loss in report.losses}
    return native, replace(report, losses=(*report.losses, *(loss for loss in _erased(chunks) if loss.chunk not in named)))


def _erased(chunks: Sequence[Chunk]) -> Iterator[Loss]:
    """Messages of the transcript whose content is gone: nobody can hand them over."""
    gone = [chunk for chunk in chunks if chunk.kind == "message" and chunk.body_bytes is None]
    roots = top_runs(chunks) if gone else {}
    for chunk in gone:
        if chunk.run is None or roots.get(chunk.run, chunk.run) == chunk.run:
            yield Loss(chunk.id, "body", "its content was erased: left out")


def _native(session: Session, name: str, as_: str | None) -> tuple[Any, LossReport]:
    wanted = name.replace("-", "_")
    one = adapters().get(wanted)
    if one is not None:
        return one.encode(session) if as_ is None else one.encode(session, as_=as_)
    known = formats()
    if wanted not in known:
        raise UnknownFormatError(repr(name), sorted({*adapters(), *known}))
    if as_ is not None:
        raise UnsupportedError(f"{wanted} has one form only: leave out as_={as_!r}")
    return known[wanted].encode(session)


def _view(session: Session, what: Told, write: BriefingFunction | None) -> tuple[Session, dict[Digest, Digest]]:
    """A session in memory that holds the briefing and the user's words, which every adapter can encode; the same each time.

    Returns:
        It, and for its chunks those that they stand for.
    """
    last = what.messages[-1].chunk
    start = draft(SessionStart(op="import", name=session.session, source=last.id), at=last.at, nonce=_nonce("start", last.id))
    block = draft(briefing(what, write), at=last.at, nonce=_nonce("briefing", last.id))
    made = [start, block, *(_again(one.chunk) for one in what.rest)]
    store = open_store("memory:")
    store.backend.append(session.session, "main", made, head=None, reason="briefing")
    view = store.session(session.session)
    theirs = [last.id, *(one.id for one in what.rest)]
    return view, {chunk.id: name for chunk, name in zip(view[1:], theirs, strict=True)}


def _again(chunk: Chunk) -> Draft:
    """A message as it is, with the framework's own bytes, where it has some."""
    origin = None if chunk.origin is None else orjson.loads(chunk.origin)
    return draft(chunk.body, origin=origin, at=chunk.at, native=chunk.native, nonce=_nonce("as", chunk.id))


def _nonce(what: str, chunk: Digest) -> str:
    return digest(f"{what} {chunk}".encode())[:32]


def _report(report: LossReport, what: Told, origins: Mapping[Digest, Digest]) -> LossReport:
    """Name the session's own chunks: what the briefing stands for, and the losses of what was handed over as it is."""
    block = next(iter(origins))
    losses = [Loss(one.id, "parts", "told in the briefing, in fewer words") for one in what.messages]
    losses += [replace(loss, chunk=origins.get(loss.chunk or "")) for loss in report.losses if loss.chunk != block]
    entries = [
        replace(row, chunk=origins[row.chunk], stands_for=what.stands_for if row.chunk == block else ())
        for row in report.manifest
    ]
    return LossReport(tuple(losses), tuple(entries))
