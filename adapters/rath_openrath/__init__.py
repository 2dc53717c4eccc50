"""The rath_bridge adapter for OpenRath: its session files, its lineage exports and its live sessions, in and out.

Imports without OpenRath; only `export_session` and ``encode(session, as_="session")`` need it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from rath_openrath.decode import decode, documents, recognises
from rath_openrath.encode import dumps, encode
from rath_openrath.record import export_session, import_session

if TYPE_CHECKING:
    from rath_bridge.replay import Player, Tape

name: Final = "openrath"
extra: Final = "openrath"
SUPPORTED: Final = {"openrath": ">=1.3,<3"}

__all__ = [
    "SUPPORTED", "decode", "documents", "dumps", "encode", "export_session", "extra", "import_session", "name", "player", "recognises",
]  # fmt: skip


def player(tape: Tape) -> Player | None:
    """Return OpenRath's part of a replay; None where nothing of it is on record and it is not in use."""
    on_record = any(b"rath_openrath" in (chunk.origin or "").encode() for chunk in tape.held.chunks)
    if not on_record and "rath.session" not in sys.modules:
        return None
    from rath_bridge.plugins import require

    require("rath.session", "replaying an OpenRath session", extra)
    from rath_openrath.replay import OpenRathPlayer

    return OpenRathPlayer(tape)
