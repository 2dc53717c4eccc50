"""Nothing that runs in a test reaches beyond this machine: one audit hook refuses what would."""

from __future__ import annotations

import ipaddress
import socket
import sys
from typing import Any

LOCAL_NAMES = {"", "localhost", socket.gethostname()}
ADDRESSED = {"socket.connect", "socket.sendto", "socket.sendmsg"}
LOOKED_UP = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}


class OutsideNetworkError(RuntimeError):
    """A test asked for another machine.

    Deliberately no `OSError`: HTTP clients retry those, and observers swallow them.
    """

    def __init__(self, event: str, host: str) -> None:
        super().__init__(
            f"{event} to {host!r}: tests talk to this machine only; use a scripted model, a stdio server or a server on 127.0.0.1"
        )
        self.event = event
        self.host = host


def refuse_other_hosts() -> None:
    """Install the hook in this process; it stays until the process ends."""
    sys.addaudithook(_check)


def _check(event: str, args: tuple[Any, ...]) -> None:
    if event in ADDRESSED:
        sock, address = args
        if sock.family not in (socket.AF_INET, socket.AF_INET6) or not address:
            return
        host = address[0]
    elif event in LOOKED_UP:
        host = args[0]
    else:
        return
    name = host.decode() if isinstance(host, bytes) else host or ""
    if not _is_here(name):
        raise OutsideNetworkError(event, name)


def _is_here(host: str) -> bool:
    if host in LOCAL_NAMES:
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
