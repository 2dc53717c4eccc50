"""Standing on loopback: which places to listen at, and which requests come from a program of this machine and not from a web page.

A page that a browser shows may point its own name at 127.0.0.1 (its ``Host`` tells), or post there under its own ``Origin``. Source:
MCP, transports, security warning (2025-11-25 and 2026-07-28).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from rath_bridge.errors import UnsupportedError

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


def place(listen: str) -> tuple[str, int]:
    """Return host and port of a place on loopback, ``127.0.0.1:8931``.

    Raises:
        UnsupportedError: It is no such place.
    """
    host, _, port = listen.rpartition(":")
    if host.strip("[]") not in LOOPBACK or not port.isdecimal() or int(port) > 65535:
        raise UnsupportedError(f"this listens on loopback only, not on {listen!r}: give --listen 127.0.0.1:PORT")
    return host.strip("[]"), int(port)


def refusal(headers: Mapping[str, Any] | Any) -> str | None:
    """Return why a request is not answered; None where its ``Host`` and ``Origin`` are of this machine."""
    if _name(f"//{headers.get('host') or ''}") not in LOOPBACK:
        return "this answers on loopback only"
    origin = headers.get("origin")
    if origin is not None and _name(origin) not in LOOPBACK:
        return "this answers no page of another origin"
    return None


def _name(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None
