"""Look again at what a packet says about itself: count its coverage from the chunks, and check every claim against them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rath_bridge.evidence import layout
from rath_bridge.evidence.claims import Claim, ClaimError, ClaimVerdict, check_claims, ledger_of, recorded_claim
from rath_bridge.evidence.contents import packet_chunks
from rath_bridge.evidence.coverage import Coverage, compare, coverage_of
from rath_bridge.evidence.order import parents_first
from rath_bridge.evidence.reading import PacketFiles
from rath_bridge.evidence.survey import Survey
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.session import Session
from rath_bridge.verbs.fsck import Finding

if TYPE_CHECKING:
    from rath_bridge.replay import ReplayReport


@dataclass(frozen=True, slots=True)
class LookedAgain:
    """What came of it."""

    coverage: Coverage | None
    claims: tuple[ClaimVerdict, ...]
    findings: tuple[Finding, ...]
    """A ledger that cannot be read, or that is not the one that the record holds."""


def look_again(
    files: PacketFiles, documents: Mapping[str, Mapping[str, Any] | None], sessions: Sequence[str], absent: int, *, sound: bool
) -> LookedAgain:
    """Read the chunks once more, envelope and body side by side.

    Args:
        files: The packet.
        documents: ``claims.json`` and ``coverage.json``, as far as they can be read.
        sessions: What the manifest lists.
        absent: How many objects the manifest lists as absent.
        sound: Whether chunks and bodies hold; where they do not, only the form of the ledger is looked at.
    """
    findings: list[Finding] = []
    claims: list[Claim] = []
    told = documents.get(layout.CLAIMS)
    if told is not None:
        try:
            claims = ledger_of(told)
        except ClaimError as error:
            findings.append(Finding(layout.CLAIMS, str(error), layout.CLAIMS))
    if not sound:
        return LookedAgain(None, (), tuple(findings))
    wanted = {name for claim in claims for name in claim.evidence}
    evidence: dict[Digest, Chunk] = {}
    recorded: dict[str, Claim] = {}
    survey = Survey()
    try:
        for chunk in packet_chunks(files):
            survey.feed(chunk)
            if chunk.id in wanted:
                evidence[chunk.id] = chunk
            try:
                claim = recorded_claim(chunk)
            except ClaimError:
                continue
            if claim is not None:
                recorded[claim.id] = claim
        counted = coverage_of(survey, sessions, absent)
        verdicts = check_claims(claims or recorded.values(), evidence.get, survey.tally)
    except Exception:  # noqa: BLE001 - what is wrong with the lines is named elsewhere; a broken archive may raise anything
        return LookedAgain(None, (), tuple(findings))
    if told is not None and not findings:
        ledger = {claim.id: claim for claim in claims}
        findings += [
            Finding(name, "the record holds this claim, and claims.json does not tell it as it was made", layout.CLAIMS)
            for name, claim in recorded.items()
            if ledger.get(name) != claim
        ]
    return LookedAgain(compare(documents.get(layout.COVERAGE), counted), verdicts, tuple(findings))


def check_session(
    session: Session, claims: Iterable[Claim] = (), *, replay: ReplayReport | None = None
) -> tuple[ClaimVerdict, ...]:
    """Look again at what a session claims: against everything that its head descends from.

    Args:
        session: The session; its record's own claims come first.
        claims: Others to look at; one with the id of a recorded claim stands in its place.
        replay: A replay of the session that was made just now, for claims that rest on one.
    """
    reader = session.store.backend
    survey = Survey()
    known: set[Digest] = set()
    ledger: dict[str, Claim] = {}
    for chunk in parents_first(session.head, reader, known):
        survey.feed(chunk)
        try:
            claim = recorded_claim(chunk)
        except ClaimError:
            continue
        if claim is not None:
            ledger[claim.id] = claim
    ledger |= {claim.id: claim for claim in claims}
    return check_claims(ledger.values(), lambda name: reader.chunk(name) if name in known else None, survey.tally, replay)
