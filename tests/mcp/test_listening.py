"""``rath-bridge mcp serve --listen``: the session server over streamable HTTP, on loopback, for whoever has the token."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

import rath_bridge as rb
from rath_mcp import listening, session_server, streamable
from rath_mcp.listening import Listener
from tests.cli_store import run
from tests.mcp.servers import CLI, ROOT, said_at
from tests.waiting import started

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[rb.Store]:
    with rb.open_store(f"sqlite:///{tmp_path / 'runs.db'}") as store:
        store.create("ticket").append(rb.message("user", "Where is my parcel?"))
        yield store


@pytest.fixture
def listener(store: rb.Store) -> Iterator[Listener]:
    with Listener(("127.0.0.1", 0), session_server(store), "t0ken") as found:
        Thread(target=found.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield found
        found.shutdown()


def say(
    listener: Listener, message: Any, method: str = "POST", path: str = "/mcp", **headers: str | None
) -> tuple[int, Any, dict[str, str]]:
    given = {"authorization": "Bearer t0ken", "content-type": "application/json", "host": "localhost"}
    given |= {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
    for name in [name for name, value in headers.items() if value is None]:
        del given[name]
    connection = HTTPConnection("127.0.0.1", listener.server_address[1], timeout=60)
    try:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        connection.request(method, path, None if method == "GET" else body, given)
        response = connection.getresponse()
        data = response.read()
        return response.status, json.loads(data) if data else None, {k.lower(): v for k, v in response.getheaders()}
    finally:
        connection.close()


PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@contextmanager
def serving(store: rb.Store, *options: str, **env: str) -> Iterator[tuple[str, str]]:
    """The command as a user runs it: its address, and what else it said."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    args = ["mcp", "serve", "--store", store.url, "--listen", "127.0.0.1:0", *options]
    with started(
        [sys.executable, "-c", CLI, *args], env={**os.environ, "PYTHONPATH": path, **env}, stderr=subprocess.PIPE, text=True
    ) as process:
        said = said_at(process)
        path, _, more = said[2].partition(";")
        assert path == "/mcp"
        yield f"http://127.0.0.1:{said[1]}/mcp", more
        process.terminate()
        assert process.wait(60) == 0


async def listed(url: str, token: str) -> list[str]:
    async with (
        httpx.AsyncClient(headers={"authorization": f"Bearer {token}"}) as http,
        streamable_http_client(url, http_client=http) as (read, write, _),
        ClientSession(read, write) as client,
    ):
        hello = await client.initialize()
        assert hello.serverInfo.name == "rath-bridge"
        log = await client.read_resource("session://ticket/log")  # type: ignore[arg-type]
        assert "parcel" in log.contents[0].text  # type: ignore[union-attr]
        found = await client.call_tool("list_sessions", {})
        assert found.structuredContent is not None
        return [one["name"] for one in found.structuredContent["sessions"]]


async def test_the_sdks_client_connects_with_the_token_that_was_said(store: rb.Store) -> None:
    with serving(store) as (url, more):
        token = more.rpartition(" ")[2]
        assert await listed(url, token) == ["ticket"]
        with pytest.raises(BaseException) as caught:  # noqa: PT011 - the SDK wraps it in groups
            await listed(url, "wrong")
        assert "401" in repr(caught.value) or "Unauthorized" in repr(caught.value) or isinstance(caught.value, BaseExceptionGroup)


async def test_a_token_may_be_given_and_is_not_said_again(store: rb.Store, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of-a-file\n")
    with serving(store, "--token-file", str(tmp_path / "token"), RATH_BRIDGE_MCP_TOKEN="of-the-environment") as (url, more):
        assert more == ""
        assert await listed(url, "of-a-file") == ["ticket"]


def test_without_the_token_nobody_learns_anything(listener: Listener) -> None:
    for given in (None, "Bearer", "Bearer wrong", "Basic dDBrZW4=", "t0ken", "Bearer t0ken2"):
        status, answer, headers = say(listener, PING, authorization=given)
        assert (status, answer["error"]["code"]) == (401, -32600)
        assert headers["www-authenticate"].startswith("Bearer")
        assert "parcel" not in json.dumps(answer)
    assert say(listener, PING)[:2] == (200, {"jsonrpc": "2.0", "id": 1, "result": {}})
    assert say(listener, PING, authorization="bearer t0ken")[0] == 200
    assert say(listener, None, "GET", authorization=None)[0] == 401


@pytest.mark.parametrize(("header", "value", "status"), [
    ("host", "evil.example", 403), ("host", "evil.example:80", 403), ("host", "127.0.0.1.evil.example", 403), ("host", "[::1]:9", 200),
    ("origin", "https://evil.example", 403), ("origin", "null", 403), ("origin", "http://[odd", 403),
    ("origin", "http://localhost:6274", 200),
    ("mcp_protocol_version", "1999-01-01", 400), ("mcp_protocol_version", "2025-11-25", 200),
    ("mcp_protocol_version", "2026-07-28", 200),
])  # fmt: skip
def test_web_pages_and_other_protocols_are_refused(listener: Listener, header: str, value: str, status: int) -> None:
    assert say(listener, PING, **{header: value})[0] == status


def test_what_is_no_request_is_answered_as_the_transport_wants_it(listener: Listener) -> None:
    assert say(listener, {"jsonrpc": "2.0", "method": "notifications/initialized"})[:2] == (202, None)
    assert say(listener, b"no json")[0] == 400
    assert say(listener, [PING, {**PING, "id": 2}])[1] == [
        {"jsonrpc": "2.0", "id": 1, "result": {}}, {"jsonrpc": "2.0", "id": 2, "result": {}},
    ]  # fmt: skip
    for method in ("GET", "DELETE"):
        status, _, headers = say(listener, b"", method)
        assert (status, headers["allow"]) == (405, "POST")
    assert say(listener, PING, path="/elsewhere")[0] == 404
    assert say(listener, b"", content_length="99999999")[0] == 413
    assert say(listener, {**PING, "method": "nothing"})[1]["error"]["code"] == -32601


def test_the_later_era_needs_no_handshake(listener: Listener) -> None:
    def ask(method: str, **params: Any) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
        return say(listener, message, mcp_protocol_version="2026-07-28", mcp_method=method)[1]["result"]

    found = ask("server/discover")
    assert (found["supportedVersions"], found["resultType"], found["ttlMs"]) == (["2026-07-28"], "complete", 0)
    listed = ask("tools/call", name="list_sessions", arguments={})
    assert (listed["resultType"], listed["structuredContent"]["total"]) == ("complete", 1)
    assert listed["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "rath-bridge"


@pytest.mark.parametrize(("options", "why"), [
    (["--listen", "0.0.0.0:1"], "loopback only"), (["--listen", "127.0.0.1:x"], "loopback only"),
    (["--token-file", "t"], "goes with --listen"),
])  # fmt: skip
def test_what_cannot_be_meant_is_refused(store: rb.Store, options: list[str], why: str) -> None:
    found = run("mcp", "serve", "--store", store.url, *options)
    assert found.exit_code == 2
    assert why in found.output


def test_an_empty_token_lets_nobody_in_but_is_said(store: rb.Store, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(" \n")
    found = run("mcp", "serve", "--store", store.url, "--listen", "127.0.0.1:0", "--token-file", str(tmp_path / "token"))
    assert (found.exit_code, "the token is empty" in found.output) == (2, True)


@pytest.mark.parametrize("kind", [listening.Handler, streamable.Handler])
def test_an_answer_on_a_connection_that_stays_open_is_not_held_back(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, kind: type[Any]
) -> None:
    """Nagle's algorithm and a client's delayed acknowledgement cost 40 ms for each call but the first."""
    found: list[int] = []

    def handle(self: Any) -> None:
        found.append(self.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        plain(self)

    plain = kind.handle
    monkeypatch.setattr(kind, "handle", handle)
    with ExitStack() as stack:
        address: Any = listener.server_address
        if kind is streamable.Handler:
            proxy = stack.enter_context(streamable.Proxy(("127.0.0.1", 0), listener.url, streamable.Tape(None, None, False)))
            Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
            stack.callback(proxy.shutdown)
            address = proxy.server_address
        connection = stack.enter_context(closing(HTTPConnection(*address[:2], timeout=60)))
        for _ in range(2):
            connection.request("POST", "/mcp", json.dumps(PING), {"authorization": "Bearer t0ken"})
            assert json.loads(connection.getresponse().read())["result"] == {}
    assert len(found) == 1
    assert found[0]
