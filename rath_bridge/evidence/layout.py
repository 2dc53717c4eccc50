"""Names and limits of the packet format, for the writing and the reading side."""

from __future__ import annotations

import re
from typing import Final

FORMAT: Final = "rath-bridge-packet"
VERSION: Final = 1

CHUNKS: Final = "chunks.jsonl"
BODIES: Final = "bodies.jsonl"
REFS: Final = "refs.json"
MANIFEST: Final = "manifest.json"
SUMS: Final = "SHA256SUMS"
REQUIRED: Final = (CHUNKS, BODIES, REFS, MANIFEST, SUMS)

OBJECT: Final = re.compile(r"(blobs|trees)/([0-9a-f]{64})\Z")
SUM_LINE: Final = re.compile(rb"([0-9a-f]{64})  ([ -\[\]-~]+)\Z")
"""``<digest>  <name>``; coreutils' escapes for odd names do not occur."""

MAX_LINE: Final = 64 << 20
"""Bytes of one envelope or body."""
MAX_DOCUMENT: Final = 256 << 20
"""Bytes of ``refs.json``, ``manifest.json`` and ``SHA256SUMS``."""
MAX_NODE: Final = 16 << 20
"""Bytes of one tree node."""
MAX_GROWTH: Final = 200
"""How many times larger than the archive its content may be, beyond `FREE_GROWTH` bytes."""
FREE_GROWTH: Final = 1 << 30
