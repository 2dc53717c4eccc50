"""The spool of a proxy that runs for long: its beginning is given back to the disk, and whoever comes later can go on from there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rath_bridge as rb
from rath_mcp import keeper
from rath_mcp.keeper import Proxy, fold_file, recover
from rath_mcp.marks import store_mark
from rath_mcp.spool import CLIENT, EVENT, SERVER, Spool
from tests.mcp.servers import ROOT, bodies, notes

INFO = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "shop", "version": "1"}}
TOOL = {"name": "t", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}


class Waiting(Proxy):
    """A proxy that still lives when its keeper stops."""

    def __init__(self) -> None:
        super().__init__(None)

    def wait(self, seconds: float | None = None) -> bool:
        raise KeyboardInterrupt


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("RATH_BRIDGE_SPOOL", str(tmp_path / "spool"))
    monkeypatch.setattr(keeper, "RECLAIM", 100_000)
    return f"sqlite:///{tmp_path / 'runs.db'}"


def say(spool: Spool, tag: bytes, **message: Any) -> None:
    spool.write(tag, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def calls(spool: Spool, numbers: range) -> None:
    for number in numbers:
        say(spool, CLIENT, id=number, method="tools/call", params={"name": "t", "arguments": {"n": number, "text": "x" * 1000}})
        say(spool, SERVER, id=number, result={"content": [{"type": "text", "text": f"{number} " + "y" * 1000}]})


def stopped(spool: Spool, url: str) -> None:
    """A keeper that works up to here, and is killed."""
    with rb.open_store(url) as store, pytest.raises(KeyboardInterrupt):
        fold_file(spool.path, spool.descriptor, store, store_mark(url), Waiting())


def test_a_long_spool_is_given_back_and_a_later_keeper_goes_on(url: str) -> None:
    spool = Spool.create(url)
    spool.event(session="s", label="l", command=["x"])
    spool.event(group=2**22 + 1)
    say(spool, CLIENT, id="hello", method="initialize", params={"clientInfo": {"name": "host"}})
    say(spool, SERVER, id="hello", result=INFO)
    say(spool, CLIENT, id="list", method="tools/list")
    say(spool, SERVER, id="list", result={"tools": [TOOL]})
    calls(spool, range(100))
    meta = {"progressToken": "p"}
    say(spool, CLIENT, id=900, method="tools/call", params={"name": "long", "arguments": {}, "_meta": meta})
    say(spool, SERVER, method="notifications/progress", params={"progressToken": "p", "progress": 1})
    spool.write(SERVER, b'{"jsonrpc": "2.0", "id": 900, "res')  # a line that has no end yet
    size = os.fstat(spool.descriptor).st_size
    stopped(spool, url)
    assert os.fstat(spool.descriptor).st_size == size  # nobody who writes there notices
    assert os.fstat(spool.descriptor).st_blocks * 512 < size / 2
    spool.write(SERVER, b'ult": {"content": []}}\n')
    calls(spool, range(100, 200))
    say(spool, CLIENT, id=901, method="tools/call", params={"name": "never", "arguments": {}})
    stopped(spool, url)
    os.close(spool.descriptor)
    with rb.open_store(url) as store:
        assert recover(store, url) == 1
        session = store.session("s")
        told = [(call.name, call.status) for call in session.calls()]
        assert told == [("t", "ok")] * 100 + [("long", "ok")] + [("t", "ok")] * 100 + [("never", "no_response")]
        [long] = [result for result in bodies(session, "tool_result") if result.name == "long"]
        assert [step["progress"] for step in long.attributes["rath.mcp.progress"]] == [1]
        begin, end = bodies(session, "run")
        assert (begin.name, end.name, [tool["name"] for tool in end.tools]) == ("shop", "shop", ["t"])
        assert bodies(session, "tool_call")[-1].server == "shop"
        assert {call.effect for call in bodies(session, "tool_call") if call.name == "t"} == {"reads"}
        assert notes(session) == ["tools/list"]
        frames, report = rb.encode(session, "mcp", as_="frames")
        assert len(frames) == 2 + 2 + 400 + 3 + 1
        assert not [loss for loss in report.losses if "frame" in loss.what]
        assert session.fsck() == []
    assert list(spool.path.parent.iterdir()) == []


def test_connections_of_an_http_proxy_rest_too(url: str) -> None:
    spool = Spool.create(url)
    spool.event(session="s", label="web")

    def frame(connection: str, way: str, **message: Any) -> None:
        spool.event(connection=connection, frame={"dir": way, "t": 1, "msg": {"jsonrpc": "2.0", **message}})

    for number in range(100):
        for connection in ("a", "b"):
            text = f"{connection}{number}" + "z" * 1000
            frame(connection, "c2s", id=number, method="tools/call", params={"name": connection, "arguments": {"t": text}})
    stopped(spool, url)
    for number in range(100):
        for connection in ("b", "a"):
            frame(connection, "s2c", id=number, result={"content": [], "structuredContent": {"of": connection}})
    spool.write(EVENT, json.dumps({"connection": "a", "close": "client_closed"}).encode())
    spool.event(exit=0, reason="client_closed")
    os.close(spool.descriptor)
    with rb.open_store(url) as store:
        assert recover(store, url) == 1
        session = store.session("s")
        results = bodies(session, "tool_result")
        assert len(results) == 200
        assert all(result.result["structuredContent"] == {"of": result.name} for result in results)
        assert session.fsck() == []


def test_pieces_on_both_sides_of_a_loss_are_never_sewn_together(url: str) -> None:
    """A disk that was full for a moment: head and tail of two messages may look like one."""
    spool = Spool.create(url)
    spool.event(session="s", label="l")
    say(spool, CLIENT, id=1, method="tools/call", params={"name": "t", "arguments": {"n": 1}})
    spool.write(SERVER, b'{"jsonrpc": "2.0", "id": 1, "result": {"content": [], ')
    spool.write(CLIENT, b'{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "rm", "arguments": {"path": "')
    spool.event(lost=2, ways=">")
    spool.write(CLIENT, b'/"}}}\n')
    spool.write(SERVER, b'"isError": false}}\n')  # this way nothing was lost
    spool.event(exit=0, reason="server_exit")
    os.close(spool.descriptor)
    with rb.open_store(url) as store:
        assert recover(store, url) == 1
        session = store.session("s")
        assert [(call.name, call.status) for call in session.calls()] == [("t", "ok")]
        (gap,) = bodies(session, "gap")
        assert gap.count == 2
        assert notes(session) == ["unreadable"] * 2


def test_a_loss_is_told_before_anything_that_comes_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATH_BRIDGE_SPOOL", str(tmp_path / "spool"))
    script = """
import resource
from rath_mcp.spool import CLIENT, SERVER, Spool, Tail
spool = Spool.create("sqlite:///x.db")
most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
spool.write(CLIENT, b"a" * 100)
resource.setrlimit(resource.RLIMIT_FSIZE, (120, most))
spool.write(SERVER, b"b" * 100)
spool.write(CLIENT, b"c" * 100)
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
spool.write(SERVER, b"d")
print([record.event if record.tag == b"{" else record.data[:1].decode() for record in Tail(spool.descriptor).records()])
"""
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", script], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "['a', {'lost': 2, 'ways': '<>'}, 'd']\n", done.stderr
