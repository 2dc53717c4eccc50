"""Ports that nobody listens at, for servers that take no 0."""

from __future__ import annotations

import secrets
import socket
from typing import Final

_PLACES: Final = range(20_000, 32_000)
"""Below what Linux gives to connections, and to whoever binds to 0 (32 768 and more): nobody is given one meanwhile."""


def free_port() -> int:
    """Return one; whoever asks next, also in another process, is unlikely to get the same."""
    while True:
        port = _PLACES[secrets.randbelow(len(_PLACES))]
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
