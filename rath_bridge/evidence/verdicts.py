"""What came of checking a packet: a frozen value with a JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rath_bridge.evidence.claims import ClaimVerdict
from rath_bridge.evidence.coverage import Coverage
from rath_bridge.evidence.signing import Signature
from rath_bridge.model.digests import Digest
from rath_bridge.verbs.fsck import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketReport:
    """What a packet is, and everything that is wrong with it."""

    findings: tuple[Finding, ...] = ()
    """Every fault, the container and the sums first, then chunks, bodies, objects and refs."""
    sessions: tuple[str, ...] = ()
    chunks: int = 0
    """Envelopes that it holds."""
    heads: Mapping[str, Digest] = field(default_factory=dict[str, Digest])
    """Tip of each ref by name."""
    notes: tuple[str, ...] = ()
    """What a reader should know although it is no fault: what was erased or absent, what a newer version added."""
    signatures: tuple[Signature, ...] = ()
    """Every signature that it carries; those that do not hold are findings too."""
    coverage: Coverage | None = None
    """What the record covers, counted from the chunks; None where they cannot be read."""
    claims: tuple[ClaimVerdict, ...] = ()
    """Every claim, looked at again."""
    judged: bool = True
    """False where chunks, bodies or refs are damaged: what is missing or claimed cannot be told from what is left."""

    @property
    def ok(self) -> bool:
        """True when its integrity holds. Coverage and claims are verdicts of their own."""
        return not self.findings

    @property
    def verdicts(self) -> dict[str, str]:
        """Integrity, coverage and claims, each in a few words: one says nothing about the others."""
        lowered = sum(not one.holds for one in self.claims)
        many = len(self.claims)
        stand = "1 stands as it was made" if many == 1 else f"{many} stand as they were made"
        claims = f"{lowered} of {many} lowered" if lowered else stand
        return {
            "integrity": "holds" if self.ok else f"{len(self.findings)} findings",
            "coverage": self.coverage.verdict if self.coverage is not None else "unknown",
            "claims": claims if self.claims else "none" if self.judged else "unknown",
        }

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "ok": self.ok,
            "sessions": list(self.sessions),
            "chunks": self.chunks,
            "heads": dict(self.heads),
            "verdicts": self.verdicts,
            "notes": list(self.notes),
            "signatures": [{"file": one.file, "key": one.key, "problem": one.problem} for one in self.signatures],
            "coverage": None if self.coverage is None else self.coverage.to_json(),
            "claims": [one.to_json() for one in self.claims],
            "findings": [
                {"object": f.object, "problem": f.problem, "path": f.path, "because": f.because or None} for f in self.findings
            ],
        }
