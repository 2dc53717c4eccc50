"""``rath-bridge mcp drift``: what a live server's tools have become since they were recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import rath_bridge as rb
from rath_bridge.model.kinds import Run
from rath_mcp import session_server
from rath_mcp.drift import NoToolsError, drift, recorded_tools
from rath_mcp.listening import Listener
from rath_mcp.probe import ServerError, tools_at, tools_of
from tests.cli_store import run
from tests.mcp.servers import EDGE, ODD, ROOT, SHOP, recorded, web


def tool(name: str, description: str = "d", **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": sorted(properties)}
    return {"name": name, "description": description, "inputSchema": schema}


def test_what_changed_is_named_with_both_sides() -> None:
    before = [tool("add", a={"type": "integer"}, b={"type": "integer"}), tool("gone"), {**tool("same"), "annotations": {}}]
    now = [tool("add", "D", a={"type": "number"}, c={"type": "integer"}), {**tool("same"), "annotations": {}}, tool("new")]
    found = drift(before, now)
    assert [str(change) for change in found] == [
        'add: description was "d", is "D"',
        'add: inputSchema.properties.a.type was "integer", is "number"',
        'add: inputSchema.properties.b is gone: {"type": "integer"}',
        'add: inputSchema.properties.c is new: {"type": "integer"}',
        'add: inputSchema.required was ["a", "b"], is ["a", "c"]',
        "gone: is gone",
        "new: is new",
    ]
    assert found[1].to_json() == {
        "tool": "add", "kind": "changed", "path": "inputSchema.properties.a.type", "recorded": "integer", "live": "number",
    }  # fmt: skip
    shuffled = [{**before[0], "inputSchema": {**before[0]["inputSchema"], "required": ["b", "a"]}}, *before[:0:-1]]
    assert drift(before, shuffled) == ()


def test_the_record_says_whose_tools_they_are() -> None:
    store = rb.open_store("memory:")
    session = store.create("s")
    with pytest.raises(NoToolsError, match="never asked for tools/list"):
        recorded_tools(session)
    session = session.append(rb.draft(Run(phase="end", name="one", type="server", tools=({"name": "a"},))))
    assert recorded_tools(session) == recorded_tools(session, "one") == [{"name": "a"}]
    session = session.append(rb.draft(Run(phase="end", name="two", type="server", tools=({"name": "b"},))))
    assert recorded_tools(session, "two") == [{"name": "b"}]
    with pytest.raises(NoToolsError, match="those of one, two: name one with --server"):
        recorded_tools(session)


async def test_a_real_server_is_compared_with_its_record(sqlite_url: str, tmp_path: Path) -> None:
    with rb.open_store(sqlite_url) as store:
        async with recorded(SHOP, store, "ticket") as client:
            await client.list_tools()
    same = run("mcp", "drift", "--store", sqlite_url, "ticket", "--", sys.executable, *SHOP)
    assert (same.exit_code, same.stdout) == (0, "")
    changed = tmp_path / "shop.py"
    changed.write_text((ROOT / "examples" / "mcp_server.py").read_text().replace('"refund"', '"give_back"'))
    found = run("mcp", "drift", "--store", sqlite_url, "ticket", "--json", "--", sys.executable, str(changed))
    assert found.exit_code == 1
    told = json.loads(found.stdout)
    assert (told["server"], {change["tool"]: change["kind"] for change in told["changes"]}) == (
        "shop", {"refund": "removed", "give_back": "added"},
    )  # fmt: skip
    assert run("mcp", "drift", "--store", sqlite_url, "ticket").exit_code == 2
    assert run("mcp", "drift", "--store", sqlite_url, "ticket", "--", "/no/such/server").exit_code == 4


def test_servers_over_http_are_asked_too() -> None:
    store = rb.open_store("memory:")
    with Listener(("127.0.0.1", 0), session_server(store), "t0ken") as listener:
        Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        name, tools = tools_at(listener.url, "t0ken")
        assert (name, len(tools)) == ("rath-bridge", 5)
        with pytest.raises(ServerError, match="HTTP 401"):
            tools_at(listener.url)
        listener.shutdown()
    with pytest.raises(ServerError, match="cannot be reached"):
        tools_at(listener.url, "t0ken")
    with web() as url:  # a session, and event streams
        assert [tool["name"] for tool in tools_at(url)[1]] == ["add", "greet", "slow", "fail"]


def test_a_server_that_does_not_say_is_an_error_in_time() -> None:
    assert tools_of([sys.executable, *EDGE, "banner"]) == ("edge", [])
    with pytest.raises(ServerError, match="before it (answered|was asked) initialize"):
        tools_of([*ODD, "exit", "3"])
    with pytest.raises(ServerError, match="said nothing in time"):
        tools_of([*ODD, "stubborn"], patience=0.5)


def test_a_server_that_ended_before_it_was_asked_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = subprocess.Popen

    def late(*given: Any, **options: Any) -> Any:
        process = plain(*given, **options)
        process.wait()
        return process

    monkeypatch.setattr("rath_mcp.probe.subprocess.Popen", late)
    with pytest.raises(ServerError, match="before it was asked initialize"):
        tools_of([*ODD, "exit", "3"])
