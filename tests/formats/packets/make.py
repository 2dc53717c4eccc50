"""Write a packet of today's version: ``python -m tests.formats.packets.make tests/formats/packets/v3.zip``.

Run it once for each new version of the packet; what older versions wrote stays as it is. Version 1 lies in ``tests/formats/v1``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import rath_bridge as rb
from rath_bridge.evidence import Claim, claim_draft
from rath_bridge.model.chunk import draft
from rath_bridge.model.kinds import Gap
from tests.formats.make import fill

KEY = bytes(range(32))
"""A signer whom nobody should trust."""


def main(path: Path) -> None:
    """Write it, signed twice."""
    store = rb.open_store("memory:")
    session = fill(store).append(draft(Gap(count=2, reason="the spool was full")))
    claim = Claim(id="answered", sentence="The call was answered.", status="supported", evidence=(session[6].id,), by="ann")
    session = session.append(claim_draft(claim))
    other = Claim(id="kind", sentence="The agent was kind.", status="supported", basis="word")
    keys = [Ed25519PrivateKey.from_private_bytes(data) for data in (KEY, KEY[::-1])]
    rb.export_packet(session, path, claims=[other], sign_with=keys, environment=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
