"""The claims ledger: what somebody says about a record, what it rests on, and how much of it holds when it is looked at again.

A claim is recorded in its session as a ``note`` chunk (so it is in the hash chain: who said what, when), or given with the packet. Checking
can only lower a claim: no evidence, no *supported*.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from rath_bridge.errors import PacketError, RathError
from rath_bridge.evidence.replayed import came_out_equal, recorded_replay
from rath_bridge.model.chunk import Chunk, Draft, draft
from rath_bridge.model.digests import Digest, is_digest
from rath_bridge.model.encoding import escape
from rath_bridge.model.kinds import Note
from rath_bridge.plugins import require

if TYPE_CHECKING:
    from rath_bridge.replay import ReplayReport

STATUSES: Final = ("supported", "partial", "conditional", "pending", "positioning")
"""From what the record carries to what it does not: *conditional* names its precondition, *pending* waits for evidence,
*positioning* is an opinion or an intention that no record can carry."""
BASES: Final = ("replay", "record", "word")
"""What a claim rests on: a replay that came out equal, what was recorded, or somebody's word."""
ATTRIBUTE: Final = "rath.claim"
"""Under which a note holds a claim."""


class ClaimError(PacketError):
    """Not a claim.

    Attributes:
        claim: Its id, as far as it has one.
        problem: What is wrong with it.
    """

    exit_status = 2

    def __init__(self, claim: str, problem: str) -> None:
        self.claim, self.problem = claim, problem
        super().__init__(f"claim {claim!r} cannot be taken: {problem}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One sentence, and what it rests on."""

    id: str
    """A short name, unique in its ledger: ``refund-approved``."""
    sentence: str
    status: str = "pending"
    """One of `STATUSES`, as its author says."""
    basis: str = "record"
    """One of `BASES`."""
    evidence: tuple[Digest, ...] = ()
    """The chunks that support it."""
    quotes: tuple[str, ...] = ()
    """Words that must stand in the evidence, each in at least one chunk."""
    counts: Mapping[str, int] | None = None
    """How many chunks of a kind there are in all: ``{"approval:granted": 1, "gap": 0, "tool_call:refund": 1}``."""
    precondition: str | None = None
    """Under which a *conditional* claim holds."""
    command: str | None = None
    """What reproduces it."""
    by: str | None = None
    """Who says so."""

    def __post_init__(self) -> None:
        if not self.id or len(self.id) > 100 or not self.sentence.strip():
            raise ClaimError(self.id[:100], "it needs an id of at most 100 characters, and a sentence")
        if self.status not in STATUSES:
            raise ClaimError(self.id, f"its status is {self.status!r}; use one of {', '.join(STATUSES)}")
        if self.basis not in BASES:
            raise ClaimError(self.id, f"its basis is {self.basis!r}; use one of {', '.join(BASES)}")
        wrong = next((name for name in self.evidence if not is_digest(name)), None)
        if wrong is not None:
            raise ClaimError(self.id, f"its evidence {wrong!r:.80} is no chunk id (64 hexadecimal digits)")
        counts: Mapping[Any, Any] = self.counts or {}
        if not all(type(kind) is str and type(number) is int and 0 <= number < 1 << 63 for kind, number in counts.items()):
            raise ClaimError(self.id, 'its counts are not of the form {"approval:granted": 1}')
        texts = (self.id, self.sentence, *self.quotes, *counts, self.precondition or "", self.command or "", self.by or "")
        if not all(map(_is_unicode, texts)):
            raise ClaimError(
                self.id, "a text of it holds half of a surrogate pair (bytes that are no UTF-8); write it in Unicode"
            )

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values; what is absent is left out."""
        found: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        found |= {"evidence": list(self.evidence), "quotes": list(self.quotes), "counts": dict(self.counts or {})}
        return {key: value for key, value in found.items() if value not in (None, [], {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimVerdict:
    """A claim, looked at again."""

    claim: Claim
    found: str
    """The status that holds; never higher than the one that is claimed."""
    reasons: tuple[str, ...] = ()
    """Why it was lowered."""

    @property
    def holds(self) -> bool:
        """True when it is what its author says."""
        return self.found == self.claim.status

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**self.claim.to_json(), "found": self.found, "reasons": list(self.reasons)}


def claim_of(value: Any) -> Claim:
    """Read a claim from JSON or YAML values.

    Raises:
        ClaimError: It is none; the error says why.
    """
    if not isinstance(value, Mapping):
        raise ClaimError("?", "it is no map of id, sentence, status ...")
    given = {str(key): item for key, item in cast("Mapping[Any, Any]", value).items() if key not in ("found", "reasons")}
    name = str(given.get("id", "?"))
    unknown = given.keys() - {f.name for f in fields(Claim)}
    if unknown:
        raise ClaimError(name, f"unknown fields {', '.join(sorted(unknown))}")
    for key in ("evidence", "quotes"):
        item = given.get(key, [])
        if not isinstance(item, list | tuple) or not all(isinstance(one, str) for one in cast("Sequence[Any]", item)):
            raise ClaimError(name, f"its {key} is no list of texts")
        given[key] = tuple(cast("Sequence[str]", item))
    for key in ("id", "sentence", "status", "basis", "precondition", "command", "by"):
        optional = key in ("precondition", "command", "by")
        if not isinstance(given.get(key, ""), str) and not (optional and given[key] is None):
            raise ClaimError(name, f"its {key} is no text")
    if not isinstance(given.get("counts") or {}, Mapping):
        raise ClaimError(name, "its counts are no map")
    try:
        return Claim(**given)
    except TypeError as error:
        raise ClaimError(name, "it needs an id and a sentence") from error


def read_claims(path: str | os.PathLike[str]) -> list[Claim]:
    """Read a ledger: ``claims:`` with a list, or the list itself; JSON, or YAML where PyYAML is installed.

    Raises:
        ClaimError: One is none.
        MissingExtraError: It is YAML, and PyYAML is not installed.
    """
    data = Path(path).read_bytes()
    try:
        if Path(path).suffix.lower() == ".json":
            value = orjson.loads(data)
        else:
            yaml = require("yaml", "a ledger in YAML", "evidence")
            try:
                value = yaml.safe_load(data)
            except yaml.YAMLError as error:
                raise ValueError(" ".join(str(error).split())) from error
    except ValueError as error:
        raise ClaimError(str(path), f"the file cannot be read ({error})") from error
    return ledger_of(value)


def ledger_of(value: Any) -> list[Claim]:
    """Read a list of claims, or a map that has one under ``claims``; an id stands once.

    Raises:
        ClaimError: One is none, or an id stands twice.
    """
    rows: Any = cast("Mapping[str, Any]", value).get("claims") if isinstance(value, Mapping) else value
    if not isinstance(rows, list):
        raise ClaimError("?", "there is no list of claims")
    found: dict[str, Claim] = {}
    for row in cast("list[Any]", rows):
        claim = claim_of(row)
        if claim.id in found:
            raise ClaimError(claim.id, "two claims have this id")
        found[claim.id] = claim
    return list(found.values())


def claim_draft(claim: Claim) -> Draft:
    """Return the note that records a claim in a session: append it; a later one of the same id replaces it."""
    return draft(Note(text=claim.sentence, author=claim.by, attributes={ATTRIBUTE: claim.to_json()}))


def recorded_claim(chunk: Chunk) -> Claim | None:
    """Return the claim that a chunk records, if it does.

    Raises:
        ClaimError: It says that it does, and does not.
    """
    if chunk.kind != "note" or chunk.body_bytes is None or ATTRIBUTE.encode() not in chunk.body_bytes:
        return None
    try:
        body = chunk.body
    except RathError:  # its text is not there any more: it claims nothing
        return None
    value = body.attributes.get(ATTRIBUTE) if isinstance(body, Note) else None
    return None if value is None else claim_of(value)


def recorded_claims(chunks: Iterable[Chunk]) -> list[Claim]:
    """Return every claim that is recorded in these chunks, oldest first; a later one of the same id replaces it."""
    found: dict[str, Claim] = {}
    for chunk in chunks:
        claim = recorded_claim(chunk)
        if claim is not None:
            found[claim.id] = claim
    return list(found.values())


def check_claim(
    claim: Claim, chunk: Callable[[Digest], Chunk | None], tally: Mapping[str, int], replay: ReplayReport | None = None
) -> ClaimVerdict:
    """Look at a claim again: compute what can be computed, and lower it where it does not hold. No command is run.

    Args:
        claim: The claim.
        chunk: Finds evidence; None where it is not there.
        tally: How many chunks there are by kind and by ``kind:detail``.
        replay: A replay that was made just now: a claim that rests on one does not hold where it did not come out equal.
    """
    if claim.status in ("pending", "positioning"):
        return ClaimVerdict(claim=claim, found=claim.status)
    reasons: list[str] = []
    there = [found for name in claim.evidence if (found := chunk(name)) is not None]
    readable = [one for one in there if one.body_bytes is not None]
    wrong = False
    if not claim.evidence:
        reasons.append("no evidence is named" + (": it is somebody's word alone" if claim.basis == "word" else ""))
    absent = sorted(set(claim.evidence) - {one.id for one in there})
    reasons += [f"the evidence {name[:12]} is not there" for name in absent]
    reasons += [f"the content of the evidence {one.id[:12]} was erased" for one in there if one.body_bytes is None]
    texts = [_words(one) for one in readable] if claim.quotes else []
    for quote in claim.quotes:
        if not any(quote in text for text in texts):
            wrong = True
            reasons.append(f"no evidence says {quote!r:.80}")
    for name, wanted in (claim.counts or {}).items():
        if (number := tally.get(name, 0)) != wanted:
            wrong = True
            reasons.append(f"there are {number} of {name!r:.60}, not {wanted}")
    if claim.basis == "replay" and readable and not any(_is_replay(one) for one in readable):
        reasons.append("it rests on a replay, but no evidence is a replay's that came out equal" + _why_not(readable))
    if claim.basis == "replay" and replay is not None and not replay.equal:
        wrong = True
        reasons.append(_outcome(replay))
    if claim.status == "conditional" and not claim.precondition:
        reasons.append("it is conditional, but names no condition")
    if not reasons:
        return ClaimVerdict(claim=claim, found=claim.status)
    lowest = wrong or not readable or claim.status == "conditional"
    return ClaimVerdict(claim=claim, found="pending" if lowest else "partial", reasons=tuple(reasons))


def check_claims(
    claims: Iterable[Claim], chunk: Callable[[Digest], Chunk | None], tally: Mapping[str, int], replay: ReplayReport | None = None
) -> tuple[ClaimVerdict, ...]:
    """Look at every claim again."""
    return tuple(check_claim(claim, chunk, tally, replay) for claim in claims)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _words(chunk: Chunk) -> str:
    """All texts of a body, long ones read in, one a line."""
    try:
        waiting: list[Any] = [chunk.values]
    except RathError:
        return ""
    found: list[str] = []
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, Mapping):
            waiting += [*cast("Mapping[Any, Any]", value).keys(), *cast("Mapping[Any, Any]", value).values()]
        elif isinstance(value, list | tuple):
            waiting += list(cast("Sequence[Any]", value))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.append(orjson.dumps(escape(value, {})).decode())
    return "\n".join(found)


def _is_replay(chunk: Chunk) -> bool:
    return came_out_equal(chunk) or (chunk.kind == "session" and b'"op":"replay"' in (chunk.body_bytes or b""))


def _why_not(evidence: Iterable[Chunk]) -> str:
    """What a replay that is on record says of itself, where it could not be compared."""
    reasons: Any = next((found.get("reasons") for one in evidence if (found := recorded_replay(one)) is not None), None)
    told = [one for one in cast("list[Any]", reasons) if isinstance(one, str)] if isinstance(reasons, list) else []
    return f": {'; '.join(told)}" if told else ""


def _outcome(report: ReplayReport) -> str:
    if report.equal is None:
        return f"it could not be replayed: {'; '.join(report.reasons)[:200] or 'no reason is told'}"
    found = report.divergence
    return f"the replay diverged{f': {found.what}, the run has {found.found}'[:200] if found is not None else ''}"
