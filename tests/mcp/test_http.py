"""``rath-bridge mcp record --http``: the same record for streamable HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import Any

import pytest
from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client

import rath_bridge as rb
from tests.mcp.servers import bodies, proxy, tool_calls, web
from tests.ports import free_port
from tests.waiting import until


@pytest.fixture
def upstream() -> Iterator[str]:
    with web() as url:
        yield url


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Any]:
    with ExitStack() as stack:

        def opened() -> rb.Session:
            return stack.enter_context(rb.open_store(f"sqlite:///{tmp_path / 'runs.db'}")).session("s")

        yield opened


async def drive(url: str) -> list[Any]:
    told: list[Any] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async def elicit(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ida"})

    async with streamable_http_client(url) as (read, write, _), ClientSession(read, write, elicitation_callback=elicit) as client:
        found: list[Any] = [
            await client.initialize(), await client.list_tools(),
            await client.call_tool("add", {"a": 1, "b": 2}, progress_callback=progress),
            await client.call_tool("greet", {}), await client.call_tool("fail", {}), await client.read_resource("web://page"),  # type: ignore[arg-type]
        ]  # fmt: skip
    return [*(one.model_dump() for one in found), told]


async def test_a_real_server_answers_the_same_through_the_proxy_and_is_on_record(
    tmp_path: Path, upstream: str, session: Any
) -> None:
    direct = await drive(upstream)
    with proxy(tmp_path, upstream) as port:
        assert await drive(f"http://127.0.0.1:{port}/mcp") == direct
    found = session()
    assert [call.name for call in tool_calls(found)] == ["add", "greet", "fail"]
    assert found.pending() == ()
    assert {call.name: call.status for call in found.calls()} == {
        "add": "ok", "greet": "ok", "elicitation/create": "ok", "fail": "error", "resources/read": "ok",
    }  # fmt: skip
    results = bodies(found, "tool_result")
    assert results[0].attributes["http.response.status_code"] == 200
    assert results[0].attributes["rath.mcp.progress"][0]["message"] == "half"
    begins = [run for run in bodies(found, "run") if run.phase == "begin"]
    assert [(run.name, run.attributes["mcp.protocol.version"]) for run in begins] == [("web", "2025-11-25")]
    assert found.fsck() == []


class Odd(BaseHTTPRequestHandler):
    """Answers as servers and gateways should not; the tool that is called says how."""

    protocol_version = "HTTP/1.1"
    given_up: Event
    both: Barrier

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        tool = message["params"]["name"]
        answer = json.dumps(
            {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [], "seen": self.headers.get("x-secret")}}
        )
        if tool.isdecimal():
            self._say(int(tool), b"the gateway says no", "text/plain")
        elif tool == "error":
            fault = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32001, "message": "no session"}}
            self._say(404, json.dumps(fault).encode(), "application/json")
        elif tool == "cut":
            self._say(
                200,
                b'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/message","params":{}}\n\n',
                "text/event-stream",
            )
        elif tool == "broken":
            self._say(200, b"{no json", "application/json")
        elif tool == "slow":
            self.given_up.wait(60)
            self._say(200, answer.encode(), "application/json")
        elif tool == "meeting":
            self.both.wait(60)
            self._say(200, answer.encode(), "application/json")
        else:
            self._say(200, answer.encode(), "application/json")

    def _say(self, status: int, body: bytes, kind: str) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            pass

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def odd() -> Iterator[str]:
    Odd.given_up, Odd.both = Event(), Barrier(2)
    with ThreadingHTTPServer(("127.0.0.1", 0), Odd) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
        server.shutdown()


def post(
    port: int, tool: str, *, number: int = 1, timeout: float = 60, host: str = "localhost", secret: str = ""
) -> tuple[int, bytes]:
    body = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool, "arguments": {}}})
    connection = HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("POST", "/mcp", body, {"content-type": "application/json", "x-secret": secret, "host": host})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_http_errors_ends_of_streams_and_answers_that_are_no_json_are_told_apart(tmp_path: Path, odd: str, session: Any) -> None:
    """python-sdk#1010, #3091 (a status that looks like a timeout), #3441 (a stream that ends), #1144 (invalid JSON), #1577."""
    with proxy(tmp_path, odd) as port:
        assert post(port, "503") == (503, b"the gateway says no")
        assert post(port, "401")[0] == 401
        assert post(port, "error")[0] == 404
        assert post(port, "cut")[0] == 200
        assert post(port, "broken") == (200, b"{no json")
        with pytest.raises(TimeoutError):
            post(port, "slow", timeout=0.5)
        status, body = post(port, "fine", secret="s3cret")
        assert (status, json.loads(body)["result"]["seen"]) == (200, "s3cret")
        until(lambda: "slow" in {result.name for result in bodies(session(), "tool_result")})
        Odd.given_up.set()
    found = session()
    told = {result.name: (result.status, result.reason) for result in bodies(found, "tool_result")}
    assert told == {
        "503": ("no_response", "http_503"), "401": ("no_response", "http_401"), "error": ("error", None),
        "cut": ("no_response", "stream_ended"), "broken": ("no_response", "stream_ended"), "slow": ("no_response", "cancelled"),
        "fine": ("ok", None),
    }  # fmt: skip
    results = {result.name: result for result in bodies(found, "tool_result")}
    assert results["503"].error == "HTTP 503 Service Unavailable: the gateway says no"
    assert results["error"].attributes["http.response.status_code"] == 404
    assert "x-secret" not in json.dumps(rb.encode(found, "mcp", as_="frames")[0])


def test_two_clients_with_the_same_ids_are_not_mixed_up(tmp_path: Path, odd: str, session: Any) -> None:
    with proxy(tmp_path, odd) as port:
        threads = [Thread(target=post, args=(port, "meeting")) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = session()
    assert [call.status for call in found.calls()] == ["ok", "ok"]
    assert len({call.call_id for call in found.calls()}) == 2


def test_a_server_that_is_not_there_and_a_name_that_is_not_loopback(tmp_path: Path, session: Any) -> None:
    with proxy(tmp_path, f"http://127.0.0.1:{free_port()}/mcp") as port:
        assert post(port, "t")[0] == 502
        assert post(port, "t", host="evil.example")[0] == 403
    (result,) = bodies(session(), "tool_result")
    assert (result.status, result.reason) == ("no_response", "unreachable")


@pytest.mark.parametrize("wrong", [
    ["--http", "ftp://x", "--listen", "127.0.0.1:0"], ["--http", "http:///mcp", "--listen", "127.0.0.1:0"],
    ["--http", "http://x:port/", "--listen", "127.0.0.1:0"], ["--http", "http://me:secret@x/", "--listen", "127.0.0.1:0"],
    ["--http", "http://x", "--listen", "0.0.0.0:1"], ["--http", "http://x"], [],
])  # fmt: skip
def test_what_cannot_be_meant_is_refused(tmp_path: Path, wrong: list[str]) -> None:
    from tests.cli_store import run

    done = run("mcp", "record", "--store", f"sqlite:///{tmp_path / 'r.db'}", *wrong)
    assert done.exit_code == 2
    assert "secret" not in done.output
