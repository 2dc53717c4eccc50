"""A dossier: the mixed stack's session with claims, signed, and checked by coreutils and openssh alone.

Run ``make demo`` first, then ``.venv/bin/python examples/dossier.py``; it writes ``demo-out/dossier``,
from a copy of the demo's store.
"""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import rath_bridge as rb
from rath_bridge.evidence import Claim, claim_draft
from rath_bridge.evidence.instructions import SIGNATURE_COMMAND, SIGNERS_COMMAND, SUMS_COMMAND
from rath_bridge.model.chunk import Chunk

OUT = Path("demo-out")
NAME = "ticket-4711"


def find(session: rb.Session, kind: str, words: str) -> Chunk:
    """The last chunk of a kind whose body has these words."""
    found = [c for c in session.chunks() if c.kind == kind and words.encode() in (c.body_bytes or b"")]
    if not found:
        sys.exit(f"{session.name} has no {kind} with {words!r}: run make demo again")
    return found[-1]


def claims(session: rb.Session) -> list[Claim]:
    """What the desk says about the ticket: one of each kind."""
    refused, filtered, letter = (
        find(session, "tool_result", "bank refused"),
        find(session, "tool_result", "month=10"),
        find(session, "message", "Dear Ada"),
    )
    return [
        Claim(
            id="no-refund", sentence="No refund was made: the one attempt was refused by the bank.", status="supported", by="the desk",
            evidence=(refused.id,), quotes=("the bank refused",), counts={"tool_call:refund": 1}, command=f"rath-bridge audit {NAME}",
        ),
        Claim(
            id="repaired", sentence="The export's filter was repaired, and the customer was told.", status="supported", by="the desk",
            evidence=(filtered.id, letter.id), quotes=("the filter is month=10", "your export of October is repaired"),
        ),
        Claim(
            id="rows-back", sentence="The next export has rows.", status="conditional", evidence=(filtered.id,), by="the desk",
            precondition="the customer exported anything in October",
        ),
        Claim(id="approved", sentence="A person approved the letter.", status="supported", basis="word", by="the desk"),
        Claim(id="kind", sentence="We answer every customer kindly.", status="positioning", by="the desk"),
    ]  # fmt: skip


def copy_store(source: Path, target: Path) -> None:
    """The desk claims on a copy: the demo's session keeps the head that you were told to keep."""
    for old in OUT.glob(f"{target.name}*"):
        old.unlink()
    with closing(sqlite3.connect(source)) as there, closing(sqlite3.connect(target)) as here:
        there.backup(here)


def main() -> None:
    """Write it and check it without ourselves."""
    if not (OUT / "runs.db").is_file():
        sys.exit(f"there is no {OUT / 'runs.db'} in {Path.cwd()}: run make demo first, and this in the same directory")
    place, key = OUT / "dossier", OUT / "desk"
    shutil.rmtree(place, ignore_errors=True)
    for old in (key, key.with_suffix(".pub")):
        old.unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "desk", "-f", str(key)], check=True)
    copy_store(OUT / "runs.db", OUT / "dossier.db")
    with rb.open_store(f"sqlite:///{OUT / 'dossier.db'}") as store:
        session = store.session(NAME)
        session = session.append(*map(claim_draft, claims(session)))
        rb.export_packet(session, place, sign_with=[key])
        head = session.head
    shutil.copy(key.with_suffix(".pub"), OUT / "signer.pub")
    commands = (SUMS_COMMAND, SIGNERS_COMMAND.replace("signer.pub", "../signer.pub"), SIGNATURE_COMMAND)
    print("\n".join(f"$ {command}" for command in commands), flush=True)
    subprocess.run(["bash", "-ec", "\n".join(commands)], cwd=place, check=True)
    report = rb.verify_packet(place, head=head, keys=[OUT / "signer.pub"])
    for name, verdict in report.verdicts.items():
        print(f"{name:<10} {verdict}")
    for one in report.claims:
        print(f"  {one.claim.id:<10} {one.found:<12} {'; '.join(one.reasons)}")
    print(f"Open {place / 'report.html'}")


if __name__ == "__main__":
    main()
