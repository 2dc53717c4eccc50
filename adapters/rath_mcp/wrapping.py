"""``record`` without the command line's own imports: a host waits for its servers to start."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rath_bridge.errors import StoreAddressError, UnsupportedError
from rath_bridge.session import split_name
from rath_bridge.store import DEFAULT_URL


def quick(arguments: Sequence[str]) -> int | None:
    """Run ``rath-bridge mcp record`` where it is written plainly.

    Args:
        arguments: What follows ``rath-bridge mcp``.

    Returns:
        The exit status, or None where it is another verb, or not in this form.
    """
    words = list(arguments)
    if words[:1] != ["record"] or "--" not in words:
        return None
    cut = words.index("--")
    ours, server = words[1:cut], words[cut + 1 :]
    given: dict[str, str | None] = {"--store": None, "--session": None}
    durable = False
    while ours:
        option, equals, value = ours.pop(0).partition("=")
        if option == "--durable" and not equals:
            durable = True
        elif option in given and (equals or ours):
            given[option] = value if equals else ours.pop(0)
        else:
            return None
    return record(given["--store"], given["--session"], durable, server) if server else None


def address(url: str | None) -> str:
    """Return the store's address: as given, from the environment, or the default.

    Raises:
        StoreAddressError: It lives in one process only.
    """
    found = url or os.environ.get("RATH_BRIDGE_STORE") or DEFAULT_URL
    if found.partition(":")[0] not in ("sqlite", "postgresql", "postgres") or found.endswith(":memory:"):
        why = "what a proxy records must outlive its process" if "memory" in found else "give sqlite:///… or postgresql://…"
        raise StoreAddressError(found, why)
    return found


def record(url: str | None, session: str | None, durable: bool, server: Sequence[str]) -> int:
    """Check what was given, and be the proxy."""
    if session is not None:
        split_name(session)
    from rath_mcp.stdio import record as run

    return run(address(url), server, session, durable)


def record_http(url: str | None, session: str | None, durable: bool, upstream: str, listen: str) -> int:
    """Check what was given, and be the HTTP proxy.

    Raises:
        UnsupportedError: Not an address of an HTTP server, or not a place on loopback.
    """
    from rath_mcp.loopback import place
    from rath_mcp.streamable import record as run

    if session is not None:
        split_name(session)
    if not _is_http(upstream):
        why = "credentials are for the host's own headers, which pass unchanged"
        raise UnsupportedError(f"--http takes http://HOST... or https://HOST...; {why}")
    return run(address(url), upstream, place(listen), session, durable)


def _is_http(address: str) -> bool:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None and parts.port != 0
    except ValueError:  # a port that is none
        return False
