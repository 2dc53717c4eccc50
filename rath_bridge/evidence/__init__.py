"""Evidence packets: a session, whole, as files that a person can check with ``sha256sum`` alone.

Layout (``docs/format/packet.md``)::

    chunks.jsonl        each line exactly an envelope; its sha256 is the chunk's id; parents before children
    bodies.jsonl        each line exactly a body, in the order of the envelopes; erased ones absent
    blobs/<digest>      long texts, native records, files and items of trees
    trees/<digest>      nodes of trees, raw
    refs.json           every ref of the sessions, with its reflog
    index.jsonl         under which names frameworks find chunks again
    spans.otlp.jsonl    the record as spans, for tracing tools
    manifest.json       format version, sessions, heads, counts, software, what is erased or absent
    coverage.json       who recorded from when to when, every hole that shows, what is not in the packet
    claims.json         what is claimed, and how much of it holds
    commands.json       what checks it, asks it, replays it
    environment.json    where it was written
    report.html         the record, for people
    VERIFY.md           how to check it with coreutils and openssh
    SHA256SUMS          for ``sha256sum -c``: every other file, sorted
    SHA256SUMS.sig      a signature, for ``ssh-keygen -Y verify``; a second one is SHA256SUMS.2.sig
"""

from rath_bridge.evidence.claims import Claim as Claim
from rath_bridge.evidence.claims import ClaimVerdict as ClaimVerdict
from rath_bridge.evidence.claims import claim_draft as claim_draft
from rath_bridge.evidence.claims import read_claims as read_claims
from rath_bridge.evidence.countersigning import sign_packet as sign_packet
from rath_bridge.evidence.coverage import Coverage as Coverage
from rath_bridge.evidence.export import export_packet as export_packet
from rath_bridge.evidence.replayed import replay_draft as replay_draft
from rath_bridge.evidence.signing import Signature as Signature
from rath_bridge.evidence.signing import load_signer as load_signer
from rath_bridge.evidence.verdicts import PacketReport as PacketReport
from rath_bridge.evidence.verify import verify_packet as verify_packet

__all__ = [
    "Claim", "ClaimVerdict", "Coverage", "PacketReport", "Signature", "claim_draft", "export_packet", "load_signer", "read_claims",
    "replay_draft", "sign_packet", "verify_packet",
]  # fmt: skip
