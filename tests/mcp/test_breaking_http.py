"""What goes wrong around an HTTP proxy: what a client has seen is on record, and a large answer costs what its length costs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, IncompleteRead
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rath_bridge as rb
from rath_mcp.events import Events
from tests.mcp.servers import CLI, ODD, ROOT, bodies, notes, proxy, said_at, settled
from tests.waiting import started

LARGE = "x" * 20_000_000


class Server(BaseHTTPRequestHandler):
    """Answers with JSON or an event stream, whole or not; the tool that is called says how."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        tool = message["params"]["name"]
        text = LARGE if "large" in tool else "fine"
        result = {
            "content": [{"type": "text", "text": text}],
            "structuredContent": {"framing": self.headers["transfer-encoding"]},
        }
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        if "stream" in tool:
            body = b"event: message\r\ndata: %b\r\n\r\n" % body
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if "stream" in tool else "application/json")
        self.send_header("Content-Length", str(len(body) + 100 * ("cut" in tool)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = "cut" in tool

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
        server.shutdown()


def call(tool: str, number: int = 1) -> bytes:
    params = {"name": tool, "arguments": {}}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode()


def post(port: int, tool: str, **given: Any) -> bytes:
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("POST", "/mcp", given.pop("body", call(tool)), {"content-type": "application/json"}, **given)
        return connection.getresponse().read()


@contextmanager
def session(place: Path) -> Iterator[rb.Session]:
    with rb.open_store(f"sqlite:///{place / 'runs.db'}") as store:
        found = store.session("s")
        assert found.fsck() == []
        yield found


def command(place: Path, *words: str) -> list[str]:
    return [sys.executable, "-c", CLI, "mcp", "record", "--store", f"sqlite:///{place / 'runs.db'}", "--session", "s", *words]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    return {**os.environ, "PYTHONPATH": path, "RATH_BRIDGE_SPOOL": str(tmp_path / "spool")}


@pytest.mark.parametrize("tool", ["json", "stream"])
def test_a_proxy_that_is_killed_has_put_down_what_its_client_has_seen(
    tmp_path: Path, upstream: str, env: dict[str, str], tool: str
) -> None:
    args = command(tmp_path, "--http", upstream, "--listen", "127.0.0.1:0")
    with started(args, env=env, stderr=subprocess.PIPE, text=True) as process:
        port = int(said_at(process)[1])
        [keeper] = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
        os.kill(keeper, 9)  # only the spool is left
        answer = post(port, tool)
    assert b"fine" in answer
    subprocess.run(command(tmp_path, "--", *ODD, "exit", "0"), env=env, stdin=subprocess.DEVNULL, check=True, timeout=60)
    settled(tmp_path)
    with session(tmp_path) as found:
        [called] = found.calls()
        assert (called.name, called.status) == (tool, "ok")


def test_large_answers_pass_whole_and_are_on_record(tmp_path: Path, upstream: str) -> None:
    direct = {tool: post(urlsplit(upstream).port or 0, tool) for tool in ("large json", "large stream")}
    with proxy(tmp_path, upstream) as port:
        for tool, expected in direct.items():
            assert post(port, tool) == expected
    with session(tmp_path) as found:
        assert [call.status for call in found.calls()] == ["ok", "ok"]
        assert [len(result.result["content"][0]["content"]) for result in bodies(found, "tool_result")] == [len(LARGE)] * 2
    assert (tmp_path / "runs.db").stat().st_size < 5_000_000


def test_a_server_that_breaks_off_passes_as_it_did(tmp_path: Path, upstream: str) -> None:
    with proxy(tmp_path, upstream) as port:
        for tool in ("cut json", "cut stream"):
            with pytest.raises(IncompleteRead) as broken:
                post(port, tool)
            assert b"fine" in broken.value.partial
    with session(tmp_path) as found:
        assert {call.name: call.status for call in found.calls()} == {
            "cut json": "ok",
            "cut stream": "ok",
        }  # all of the answer came


def test_a_request_in_chunks_is_read_and_one_without_a_length_is_refused(tmp_path: Path, upstream: str) -> None:
    body = call("json")
    with proxy(tmp_path, upstream) as port:
        answer = json.loads(post(port, "json", body=iter([body[:10], body[10:]]), encode_chunked=True))
        assert answer["result"]["structuredContent"] == {"framing": None}
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: many\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 400 ")
    with session(tmp_path) as found:
        assert [call.status for call in found.calls()] == ["ok"]
        assert notes(found) == []


def test_a_place_that_another_program_has_is_said_in_one_line(tmp_path: Path, env: dict[str, str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        for words in (["record", "--http", "http://127.0.0.1:1/mcp", "--listen", taken], ["serve", "--listen", taken]):
            args = [sys.executable, "-c", CLI, "--store", f"sqlite:///{tmp_path / 'runs.db'}", "mcp", *words]
            done = subprocess.run(args, env=env, capture_output=True, text=True, timeout=60)
            assert (done.returncode, done.stdout) == (4, "")
            assert (
                done.stderr
                == f"rath-bridge: cannot listen at {taken}: Address already in use: give another port, or 0 for a free one\n"
            )
    settled(tmp_path)


STREAM = [
    b"data: 1",
    b"data:2\r\ndata: 3",
    b": a comment",
    b"event: x\nid: 7\ndata: {}\r",
    b"data:",
    b"retry: 1",
    b"data: \xc3\xa9",
]


@given(
    ends=st.lists(st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r"]), min_size=7, max_size=7), cuts=st.lists(st.integers(0, 140))
)
def test_events_are_the_same_wherever_the_pieces_end(ends: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(event + end for event, end in zip(STREAM, ends, strict=True)) + b"data: never whole"
    places = [0, *sorted(cuts), len(whole)]
    events = Events()
    found = [data for begin, end in pairwise(places) for data in events.feed(whole[begin:end])]
    assert found == [b"1", b"2\n3", b"{}", b"\xc3\xa9"]
    assert events.rest() == b"data: never whole"
