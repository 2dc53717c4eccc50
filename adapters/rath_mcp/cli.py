"""``rath-bridge mcp``: the verbs of this adapter."""

from __future__ import annotations

import os
from pathlib import Path
from secrets import token_urlsafe
from typing import Annotated

import typer

from rath_bridge.cli.face import AsJson, Face, NameArgument, verb, without_password
from rath_bridge.errors import UnsupportedError
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
    as_server: Annotated[
        str | None,
        typer.Option("--server", metavar="NAME", help="Answer as this one of the session's servers.", show_default=False),
    ] = None,
) -> int:
    """Be an MCP server over stdio that answers from a session's record, and touches nothing.

    The n-th of equal requests gets the n-th recorded answer; one that is not on record is an error. Misses are listed on standard
    error at the end; then the status is 1.
    """
    from rath_mcp.replay import replay_server
    from rath_mcp.serving import serve

    server = replay_server(face.session(name), hold=not no_hold, server=as_server)
    serve(server)
    for miss in server.misses:
        face.err.print(f"rath-bridge: not on record: {inert(str(miss))}", soft_wrap=True)
    unused = len(server.unused)
    if server.misses or unused:
        face.err.print(
            f"rath-bridge: {server.served} served, {len(server.misses)} not on record, {unused} on record and not asked for"
        )
    return 1 if server.misses else 0


def drift(
    face: Face,
    name: NameArgument,
    command: Server = None,
    http: Annotated[
        str | None, typer.Option("--http", metavar="URL", help="Ask this streamable HTTP server instead.", show_default=False)
    ] = None,
    server: Annotated[
        str | None,
        typer.Option("--server", metavar="NAME", help="Which of the session's servers to compare.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Compare the tools of a live server with those on record, and say what changed. The server is asked for nothing else.

    The status is 1 where something did, 4 where the server cannot be asked, 125 where the record has no list of tools.
    """
    from rath_mcp.drift import drift as changes
    from rath_mcp.drift import recorded_tools
    from rath_mcp.probe import tools_at, tools_of

    if (http is None) == (not command):
        raise typer.BadParameter("give either -- SERVER ARGS..., or --http URL")
    session = face.session(name)
    known = recorded_tools(session, server)
    told, live = tools_of(command or ()) if http is None else tools_at(http, os.environ.get("RATH_BRIDGE_MCP_TOKEN"))
    found = changes(known, live)
    if as_json:
        rows = [change.to_json() for change in found]
        face.json({"session": session.name, "server": told, "recorded": len(known), "live": len(live), "changes": rows})
    else:
        for change in found:
            face.line(inert(str(change)))
        face.err.print(f"rath-bridge: {len(known)} tool(s) on record, {len(live)} live, {len(found)} change(s)")
    return 1 if found else 0


def serve(
    face: Face,
    listen: Listen = "",
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="The token that clients must show, with --listen.", show_default=False),
    ] = None,
) -> int:
    """Be an MCP server over stdio that shows the store's sessions, read-only: as resources, and as tools.

    With --listen it is one over streamable HTTP, for clients that show its token (Authorization: Bearer TOKEN): the content of
    --token-file, else $RATH_BRIDGE_MCP_TOKEN, else a new one, said once on standard error.
    """
    from rath_mcp.server import session_server

    server = session_server(face.store)
    if not listen:
        if token_file is not None:
            raise typer.BadParameter("--token-file goes with --listen 127.0.0.1:PORT")
        from rath_mcp.serving import serve

        serve(server)
        return 0
    from rath_mcp.listening import listen as run
    from rath_mcp.loopback import place

    given = _token(token_file)
    token = given or token_urlsafe(24)

    def ready(url: str) -> None:
        shown = "" if given else f"; its token, Authorization: Bearer {token}"
        face.err.print(f"rath-bridge: {without_password(face.store.url)} on {url}{shown}", soft_wrap=True)

    run(server, place(listen), token, ready)
    return 0


def _token(file: Path | None) -> str | None:
    """Return the token that was given, by a file or by the environment."""
    given = os.environ.get("RATH_BRIDGE_MCP_TOKEN") if file is None else file.read_text(encoding="utf-8")
    if given is None:
        return None
    if not given.strip():
        raise UnsupportedError(f"the token is empty: put one into {file or '$RATH_BRIDGE_MCP_TOKEN'}")
    return given.strip()


for one in (record, replay, drift, serve):
    verb(app)(one)
