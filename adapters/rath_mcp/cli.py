"""``rath-bridge mcp``: the verbs of this adapter."""

from __future__ import annotations

from typing import Annotated

import typer

from rath_bridge.cli.face import Face, NameArgument, verb
from rath_bridge.verbs.inert import inert
from rath_mcp import wrapping

app = typer.Typer(name="mcp", no_args_is_help=True, help="Record, replay and serve MCP.", rich_markup_mode=None)

SessionName = Annotated[
    str | None, typer.Option("--session", metavar="NAME", help="Session to write to; default mcp/SERVER.", show_default=False)
]
Durable = Annotated[bool, typer.Option("--durable", help="Have each request on disk before it is passed on.")]
Server = Annotated[
    list[str] | None, typer.Argument(metavar="-- SERVER ARGS...", help="The server's own command line.", show_default=False)
]

Http = Annotated[
    str | None, typer.Option("--http", metavar="URL", help="Record this streamable HTTP server instead.", show_default=False)
]
Listen = Annotated[
    str,
    typer.Option(
        "--listen", metavar="HOST:PORT", help="Where to listen, on loopback; port 0 takes a free one.", show_default=False
    ),
]


def record(
    face: Face,
    server: Server = None,
    session: SessionName = None,
    durable: Durable = False,
    http: Http = None,
    listen: Listen = "",
) -> int:
    """Run a stdio server on record: put this in front of its command in the host's configuration. Or stand before an HTTP server.

    Bytes pass unchanged, and the server's exit status is returned.
    """
    if (http is None) == (not server):
        raise typer.BadParameter("give either -- SERVER ARGS..., or --http URL with --listen 127.0.0.1:PORT")
    if http is None:
        return wrapping.record(face.url, session, durable, server or ())
    return wrapping.record_http(face.url, session, durable, http, listen)


def replay(
    face: Face,
    name: NameArgument,
    no_hold: Annotated[
        bool, typer.Option("--no-hold", help="Answer at once what was given up unanswered, with an error.")
    ] = False,
) -> int:
    """Be an MCP server over stdio that answers from a session's record, and touches nothing.

    The n-th of equal requests gets the n-th recorded answer; one that is not on record is an error. Misses are listed on standard
    error at the end; then the status is 1.
    """
    from rath_mcp.replay import replay_server
    from rath_mcp.serving import serve

    server = replay_server(face.session(name), hold=not no_hold)
    serve(server)
    for miss in server.misses:
        face.err.print(f"rath-bridge: not on record: {inert(str(miss))}", soft_wrap=True)
    unused = len(server.unused)
    if server.misses or unused:
        face.err.print(
            f"rath-bridge: {server.served} served, {len(server.misses)} not on record, {unused} on record and not asked for"
        )
    return 1 if server.misses else 0


def serve(face: Face) -> int:
    """Be an MCP server over stdio that shows the store's sessions, read-only: as resources, and as tools."""
    from rath_mcp.server import session_server
    from rath_mcp.serving import serve

    serve(session_server(face.store))
    return 0


for one in (record, replay, serve):
    verb(app)(one)
