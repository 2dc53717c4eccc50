"""``rath-bridge mcp replay --server NAME``: a session with several servers, answered as one of them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client

import rath_bridge as rb
from rath_bridge.errors import UnsupportedError
from rath_bridge.model.kinds import ToolCall, ToolResult
from rath_mcp import record_clients, replay_command, replay_server
from tests.mcp.servers import EDGE, ROOT, SHOP, parameters

BOTH = {"shop": SHOP, "edge": EDGE}


def call(name: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": {"name": "Ann"}}}


@pytest.fixture
async def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> rb.Session:
    """One agent that asked two servers for a tool of the same name, in turn."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "adapters")]))
    store = rb.open_store(f"sqlite:///{tmp_path / 'runs.db'}")
    with rb.record(store, "desk"), record_clients():
        for server in (SHOP, EDGE, SHOP):  # the second connection to the shop is another process of it
            async with stdio_client(parameters(server)) as streams, ClientSession(*streams) as client:
                await client.initialize()
                await client.list_tools()
                await client.call_tool("greet", {"name": "Ann"})
    return store.session("desk")


def texts(answers: Any) -> list[str]:
    return [one["result"]["content"][0]["text"] for one in answers]


async def test_each_server_gives_its_own_answers_under_its_own_name(session: rb.Session) -> None:
    for name, calls, said in (("shop", 2, "Good morning, Ann!"), ("edge", 1, "greet done")):
        server = replay_server(session, server=name)
        (hello,) = server.answer({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}})
        assert hello["result"]["serverInfo"]["name"] == name
        for _ in range(calls):
            assert texts(server.answer(call("greet"))) == [said]
        (miss,) = server.answer(call("greet"))
        assert f"has {calls} such call(s), and all have been served" in miss["error"]["message"]
        assert (server.unused, server.served) == ((), calls)


async def test_a_host_has_one_line_of_configuration_for_each_server(session: rb.Session) -> None:
    for name, said in (("edge", "greet done"), ("shop", "Good morning, Ann!")):
        command = replay_command(session, server=name)
        assert command[-3:] == ["--server", name, "desk"]
        server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
        async with stdio_client(server) as streams, ClientSession(*streams) as client:
            assert (await client.initialize()).serverInfo.name == name
            tools = [tool.name for tool in (await client.list_tools()).tools]
            assert bool(tools) == (name == "shop")  # what that one listed, and nothing of the other
            answer = await client.call_tool("greet", {"name": "Ann"})
            assert answer.content[0].text == said  # type: ignore[union-attr]


async def test_misses_are_those_of_that_server_and_an_unknown_one_is_refused_with_what_there_is(session: rb.Session) -> None:
    def run(name: str, data: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(replay_command(session, server=name), input=data, capture_output=True, text=True, timeout=60)

    done = run("edge", json.dumps(call("find_order")) + "\n")
    assert json.loads(done.stdout)["error"]["code"] == -32004
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "rath-bridge: not on record: tools/call find_order: the record has no call of it",
        "rath-bridge: 0 served, 1 not on record, 1 on record and not asked for",
    ]
    done = run("bank", "")
    assert (done.returncode, done.stdout) == (2, "")
    assert "has no server 'bank' on record: it has edge, shop" in done.stderr
    with pytest.raises(UnsupportedError, match="it has edge, shop"):
        replay_server(session, server="bank")


def test_calls_that_another_framework_recorded_belong_to_the_server_that_they_name() -> None:
    session = rb.open_store("memory:").create("t")
    for server in ("shop", "bank", None):
        asked = ToolCall(name="greet", arguments={"name": "Ann"}, call_id=f"{server}", type="mcp", server=server)
        session = session.append(
            rb.draft(asked), rb.draft(ToolResult(name="greet", call_id=f"{server}", result=f"the {server}'s"))
        )
    assert texts(replay_server(session, server="bank").answer(call("greet"))) == ["the bank's"]
    with pytest.raises(UnsupportedError, match="it has bank, shop"):
        replay_server(session, server="none")
