"""Standing on loopback: which places to listen at, and which requests come from a program of this machine and not from a web page.

A page that a browser shows may point its own name at 127.0.0.1 (its ``Host`` tells), or post there under its own ``Origin``. Source:
MCP, transports, security warning (2025-11-25 and 2026-07-28).
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final
from urllib.parse import urlsplit

from rath_bridge.errors import AdapterError, UnsupportedError

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


class PlaceError(AdapterError):
    """A place that cannot be listened at, such as a port that another program has."""

    exit_status = 4

    def __init__(self, at: tuple[str, int], error: OSError) -> None:
        self.at = at
        super().__init__(f"cannot listen at {_written(*at)}: {error.strerror}: give another port, or 0 for a free one")


class LoopbackHandler(BaseHTTPRequestHandler):
    """One connection of a client: kept open, and quiet on our side."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    """A body does not wait for the client's word that its headers came: that costs 40 ms for each answer but the first."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Say nothing: standard error is the user's."""


class LoopbackServer(ThreadingHTTPServer):
    """The listening side, until a signal comes.

    Args:
        at: Host and port; port 0 takes a free one.
        handler: Of one connection of a client.

    Raises:
        PlaceError: Another program listens there.
    """

    daemon_threads = True

    def __init__(self, at: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in at[0] else socket.AF_INET
        try:
            super().__init__(at, handler)
        except OSError as error:
            raise PlaceError(at, error) from error

    def address(self, path: str) -> str:
        """Where clients find a path of it."""
        return f"http://{_written(str(self.server_address[0]), self.server_address[1])}{path}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that hang up: standard error is the user's."""

    def end_by_signal(self) -> None:
        """Have the signals that end a program end the serving; on the main thread alone."""

        def stop(*_: object) -> None:
            Thread(target=self.shutdown, daemon=True).start()  # it waits for the loop that we are in

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, stop)


def _written(host: str, port: int) -> str:
    return f"{f'[{host}]' if ':' in host else host}:{port}"


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
