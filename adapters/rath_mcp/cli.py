"""``rath-bridge mcp``: the verbs of this adapter."""

from __future__ import annotations

from typing import Annotated

import typer

from rath_bridge.cli.face import Face, verb
from rath_mcp import wrapping

app = typer.Typer(name="mcp", no_args_is_help=True, help="Record, replay and serve MCP.", rich_markup_mode=None)

SessionName = Annotated[
    str | None, typer.Option("--session", metavar="NAME", help="Session to write to; default mcp/SERVER.", show_default=False)
]
Durable = Annotated[bool, typer.Option("--durable", help="Have each request on disk before it is passed on.")]
Server = Annotated[
    list[str], typer.Argument(metavar="-- SERVER ARGS...", help="The server's own command line.", show_default=False)
]


def record(face: Face, server: Server, session: SessionName = None, durable: Durable = False) -> int:
    """Run a stdio server on record: put this in front of its command in the host's configuration.

    Bytes pass unchanged, and the server's exit status is returned.
    """
    return wrapping.record(face.url, session, durable, server)


verb(app)(record)
