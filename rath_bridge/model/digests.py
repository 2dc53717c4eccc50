"""The only place that hashes: identity is the sha256 of the exact bytes that are exported."""

from __future__ import annotations

import re
from hashlib import sha256
from os import urandom

Digest = str
"""64 lowercase hexadecimal characters."""

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


def digest(data: bytes) -> Digest:
    """Return the sha256 of ``data`` as 64 lowercase hexadecimal characters."""
    return sha256(data).hexdigest()


def is_digest(text: object) -> bool:
    """Tell whether ``text`` has the form of a digest."""
    return isinstance(text, str) and _DIGEST.match(text) is not None


def new_id(size: int = 8) -> str:
    """Return a random id of ``size`` bytes in hex (8 for spans and runs, 16 for traces)."""
    return urandom(size).hex()
