"""Asking a live server for its tools, over stdio or streamable HTTP, with no ``mcp`` imported and nothing else asked of it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from threading import Timer
from typing import Any, Final
from urllib.parse import urlsplit

from rath_bridge.errors import RathError
from rath_mcp.frames import dumps, mapping, parse_line, shape
from rath_mcp.serving import VERSIONS

Json = dict[str, Any]
Ask = Callable[[Json], Mapping[str, Any]]
"""Sends a request and returns its answer; a notification is sent, and nothing returned."""
PATIENCE: Final = 60.0
"""Seconds that a server may take in all: some are fetched first."""
PAGES: Final = 1000


class ServerError(RathError, ConnectionError):
    """A live server cannot be asked."""

    exit_status = 4


def tools_of(command: Sequence[str], patience: float = PATIENCE) -> tuple[str | None, list[Json]]:
    """Start a stdio server, and return its name and its tools.

    Raises:
        ServerError: It cannot be started, or does not say.
    """
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    except OSError as error:
        raise ServerError(f"cannot start {command[0]}: {error.strerror}") from error
    assert process.stdin is not None
    assert process.stdout is not None
    into, out = process.stdin, process.stdout
    late = Timer(patience, process.kill)
    late.start()

    def ask(message: Json) -> Mapping[str, Any]:
        try:
            into.write(dumps(message) + b"\n")
            into.flush()
        except OSError as error:
            raise ServerError(f"{command[0]} ended before it was asked {message['method']}") from error
        return _answer(out, message, command[0])

    try:
        return _tools(ask)
    finally:
        late.cancel()
        with suppress(OSError):  # what it was to be asked is not written yet, and never will be
            into.close()
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        out.close()


def tools_at(url: str, token: str | None = None, patience: float = PATIENCE) -> tuple[str | None, list[Json]]:
    """Ask a streamable HTTP server for its name and its tools.

    Raises:
        ServerError: It cannot be reached, or does not say.
    """
    to = urlsplit(url)
    kind = HTTPSConnection if to.scheme == "https" else HTTPConnection
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"

    def ask(message: Json) -> Mapping[str, Any]:
        connection = kind(to.hostname or "", to.port, timeout=patience)
        try:
            connection.request("POST", f"{to.path or '/'}{'?' if to.query else ''}{to.query}", dumps(message), headers)
            response = connection.getresponse()
            if response.status >= 300:
                told = response.read(500).decode("utf-8", "replace")
                raise ServerError(f"{url} answers {message['method']} with HTTP {response.status} {response.reason}: {told}")
            session = response.getheader("mcp-session-id")
            if session is not None:
                headers["mcp-session-id"] = session
            return _answer(_lines(response), message, url)
        except (OSError, HTTPException) as error:
            if isinstance(error, ServerError):
                raise
            raise ServerError(f"{url} cannot be reached: {type(error).__name__}: {error}") from error
        finally:
            connection.close()

    return _tools(ask)


def _lines(response: HTTPResponse) -> Iterable[bytes]:
    if "text/event-stream" not in (response.getheader("content-type") or ""):
        return [response.read()]
    return (line[5:] for line in response if line.startswith(b"data:"))


def _answer(lines: Iterable[bytes], message: Json, who: str) -> Mapping[str, Any]:
    """Read up to the answer to a message; what else a server says is passed over."""
    if "id" not in message:
        return {}
    for line in lines:
        frame = parse_line(line, "s2c")
        found = mapping(frame.message if frame.decodable else None)
        if shape(found) == "answer" and found["id"] == message["id"]:
            if "error" in found:
                raise ServerError(f"{who} answers {message['method']} with an error: {json.dumps(found['error'])[:500]}")
            return mapping(found["result"])
    raise ServerError(f"{who} ended, or said nothing in time, before it answered {message['method']}")


def _tools(ask: Ask) -> tuple[str | None, list[Json]]:
    client = {"name": "rath-bridge", "version": "1"}
    greeting = {"protocolVersion": VERSIONS[-1], "capabilities": {}, "clientInfo": client}
    hello = ask({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": greeting})
    ask({"jsonrpc": "2.0", "method": "notifications/initialized"})
    found: list[Json] = []
    params: Json = {}
    for page in range(1, PAGES):
        listed = ask({"jsonrpc": "2.0", "id": page, "method": "tools/list", "params": params})
        tools: list[Any] = listed.get("tools") or []
        found += [dict(mapping(tool)) for tool in tools]
        if listed.get("nextCursor") is None:
            break
        params = {"cursor": listed["nextCursor"]}
    name = mapping(hello.get("serverInfo")).get("name")
    return name if isinstance(name, str) else None, found
