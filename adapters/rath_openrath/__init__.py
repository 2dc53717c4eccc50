"""The rath_bridge adapter for OpenRath: its session files, its lineage exports and its live sessions, in and out.

Imports without OpenRath; only `export_session` and ``encode(session, as_="session")`` need it.
"""

from __future__ import annotations

from typing import Final

from rath_openrath.decode import decode, documents, recognises
from rath_openrath.encode import dumps, encode
from rath_openrath.record import export_session, import_session

name: Final = "openrath"
extra: Final = "openrath"
SUPPORTED: Final = {"openrath": ">=1.3,<3"}

__all__ = [
    "SUPPORTED", "decode", "documents", "dumps", "encode", "export_session", "extra", "import_session", "name", "recognises",
]  # fmt: skip
