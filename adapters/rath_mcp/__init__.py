"""The rath_bridge adapter for MCP: every tool call on the record, from any host, and back again.

``record_client(client_session, store, session="name")`` records one client in process, ``record_clients`` all that are made
inside a block; ``rath-bridge mcp record`` is the proxy for all others. ``replay_server(session)`` answers from the record,
``session_server(store)`` shows it. `rath_mcp.record` folds raw JSON frames and imports no ``mcp``; proxies use it, too.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

# The rooms have the names of the functions in them: imported here, the functions are what the package shows.
from rath_mcp.decode import decode, recognises
from rath_mcp.encode import encode

if TYPE_CHECKING:
    from rath_mcp.client import ClientRecorder as ClientRecorder
    from rath_mcp.client import record_client as record_client
    from rath_mcp.client import record_clients as record_clients
    from rath_mcp.replay import ReplayServer as ReplayServer
    from rath_mcp.replay import replay_command as replay_command
    from rath_mcp.replay import replay_server as replay_server
    from rath_mcp.server import SessionServer as SessionServer
    from rath_mcp.server import session_server as session_server
    from rath_mcp.serving import serve as serve
    from rath_mcp.streams import tee as tee

name: Final = "mcp"
extra: Final = "mcp"
frameworks: Final = ("mcp",)
SUPPORTED: Final[Mapping[str, str]] = {"mcp": ">=1.28,<3"}

_PUBLIC: Final = {
    "record_client": "client", "record_clients": "client", "tee": "streams", "ClientRecorder": "client", "replay_server": "replay",
    "replay_command": "replay", "ReplayServer": "replay", "session_server": "server", "SessionServer": "server", "serve": "serving",
}  # fmt: skip

__all__ = [
    "SUPPORTED", "ClientRecorder", "ReplayServer", "SessionServer", "decode", "encode", "extra", "name", "recognises",
    "record_client", "record_clients", "replay_command", "replay_server", "serve", "session_server", "tee",
]  # fmt: skip


def commands() -> Any:
    """Return ``rath-bridge mcp``: a `typer.Typer`."""
    return import_module("rath_mcp.cli").app


def quick(arguments: Sequence[str]) -> int | None:
    """Run a verb whose program a host waits for (`rath_mcp.wrapping.quick`); None where it is another verb."""
    return import_module("rath_mcp.wrapping").quick(arguments)


def player(tape: Any) -> Any:
    """Return what answers for MCP servers in a replay; None where nothing of them is on record and no SDK is in use."""
    on_record = any(chunk.native_ref is not None and chunk.native_ref["framework"] == "mcp" for chunk in tape.held.chunks)
    if not on_record and "mcp" not in sys.modules:
        return None
    from rath_bridge.plugins import require

    require("mcp", "replaying calls of MCP servers", extra)
    return import_module("rath_mcp.staging").McpPlayer(tape)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        value = getattr(import_module(f"rath_mcp.{_PUBLIC[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'rath_mcp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
