"""What users of MCP reported, as tests. Those that other files show:

==  ======================  ===============================================================================
1   python-sdk#1577         test_http: ..._are_told_apart; test_stdio: a_request_is_on_record_before_...
2   python-sdk#3441         test_http: http_errors_ends_of_streams_and_answers_..._are_told_apart
3   python-sdk#1010         the same
4   python-sdk#3091         the same
8   python-sdk#360          test_stdio: a_host_that_is_gone_takes_a_stubborn_server_with_it
9   python-sdk#2454         test_stdio: bytes_pass_unchanged_banner_blank_lines_and_invalid_utf8_...
10  open-webSearch#35       the same
13  python-sdk#1144         test_http: http_errors_ends_of_streams_and_answers_..._are_told_apart
14  python-sdk#817, #671    test_stdio: a_child_that_holds_the_servers_output_does_not_hold_the_host
15  openai-agents#1393      test_stdio: a_proxy_that_is_killed_loses_nothing_and_leaves_nobody_behind
17  meta-ads-mcp PR#150     test_stdio: a_result_of_20_mb_passes_and_stands_once; here, for the replay
==  ======================  ===============================================================================
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack
from datetime import timedelta
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from mcp import ClientSession, McpError, StdioServerParameters, stdio_client

import rath_bridge as rb
from rath_mcp import encode, record_client, record_clients, replay_server
from rath_mcp.serving import serve
from tests.mcp.servers import CLI, ROOT, SHOP, bodies, body, parameters, recorded, settled

SLY = [str(Path(__file__).parent / "sly_server.py")]


@pytest.fixture
def store() -> rb.Store:
    return rb.open_store("memory:")


async def test_5_python_sdk_79_a_session_that_is_closed_in_another_task_loses_nothing(store: rb.Store) -> None:
    """https://github.com/modelcontextprotocol/python-sdk/issues/79: the cancel scope's error comes, and the record is whole."""
    stack = AsyncExitStack()

    async def opened() -> ClientSession:
        streams = await stack.enter_async_context(stdio_client(parameters(SHOP)))
        client = await stack.enter_async_context(ClientSession(*streams))
        record_client(client, store, "ticket")
        await client.initialize()
        return client

    client = await asyncio.create_task(opened())
    await client.call_tool("greet", {"name": "Ann"})
    with pytest.raises(BaseException, match="cancel scope"):
        await stack.aclose()
    session = store.session("ticket")
    assert [(call.name, call.status) for call in session.calls()] == [("greet", "ok")]
    assert session.pending() == ()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:  # what the SDK leaves behind
        task.cancel()
    await asyncio.sleep(0.1)


async def test_6_python_sdk_922_two_sessions_closed_first_opened_first_are_both_on_record(store: rb.Store) -> None:
    """https://github.com/modelcontextprotocol/python-sdk/issues/922: each has a task of its own; the record does not mind the order."""
    with rb.record(store, "ticket"):
        ready, over = asyncio.Event(), asyncio.Event()

        async def one(name: str, wait_for: asyncio.Event, then: asyncio.Event) -> None:
            async with recorded(SHOP) as client:
                await client.call_tool("greet", {"name": name})
                then.set()
                await wait_for.wait()
                await client.call_tool("greet", {"name": name})

        await asyncio.gather(one("first", ready, over), one("second", over, ready))
    session = store.session("ticket")
    assert (
        sorted(body(chunk).arguments["name"] for chunk in session if chunk.kind == "tool_call") == ["first"] * 2 + ["second"] * 2
    )
    ends = [run for run in bodies(session, "run") if run.phase == "end"]
    assert [run.status for run in ends] == ["ok", "ok"]


async def test_7_python_sdk_915_one_server_that_cannot_be_reached_is_named_and_the_others_go_on(store: rb.Store) -> None:
    """https://github.com/modelcontextprotocol/python-sdk/issues/915: the one that failed is on record as such."""

    async def one(args: list[str]) -> str:
        try:
            async with stdio_client(parameters(args)) as streams, ClientSession(*streams) as client:
                record_client(client, label=Path(args[0]).stem)
                await client.initialize()
                return (await client.call_tool("greet", {"name": "Ann"})).content[0].text  # type: ignore[union-attr]
        except BaseException as error:  # noqa: BLE001 - groups, too
            return type(error).__name__

    with rb.record(store, "ticket"):
        good, bad, other = await asyncio.gather(one(SHOP), one(["/no/such/server.py"]), one(SHOP))
    assert good == other == "Good morning, Ann!"
    assert "Error" in bad or "Exception" in bad
    ends = {run.name: (run.status, run.error) for run in bodies(store.session("ticket"), "run") if run.phase == "end"}
    assert ends["shop"] == ("ok", None)
    status, error = ends["server"]
    assert (status, "with 1 request(s) open" in error) == ("error", True)


async def test_11_python_sdk_1796_structured_content_without_content_is_kept_and_the_refusal_is_a_second_fact(
    store: rb.Store,
) -> None:
    """https://github.com/modelcontextprotocol/python-sdk/issues/1796."""
    async with recorded(SLY, store, "ticket") as client:
        with pytest.raises(Exception, match="content"):
            await client.call_tool("bare", {})
    session = store.session("ticket")
    (result,) = bodies(session, "tool_result")
    assert (result.status, result.result) == ("ok", {"structuredContent": {"n": 1}})
    (error,) = bodies(session, "error")
    assert (error.type, error.where) == ("ValidationError", "mcp client")
    assert encode(session)[0][0]["result"] == {"structuredContent": {"n": 1}}


async def test_12_python_sdk_2429_the_tools_own_error_is_on_record_not_what_the_client_made_of_it(store: rb.Store) -> None:
    """https://github.com/modelcontextprotocol/python-sdk/issues/2429: output schema validation hides why the tool failed."""
    async with recorded(SLY, store, "ticket") as client:
        await client.list_tools()
        with pytest.raises(RuntimeError, match=r"structured content|output schema"):
            await client.call_tool("typed", {})
    session = store.session("ticket")
    (result,) = bodies(session, "tool_result")
    assert result.result["content"] == [{"type": "text", "content": "the database is down"}]
    assert [error.type for error in bodies(session, "error")] == ["RuntimeError"]
    (answer,) = replay_server(session).answer({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "typed"}})
    assert answer["result"]["content"][0]["text"] == "the database is down"


async def test_16_what_frameworks_drop_is_on_record_structured_content_and_meta(store: rb.Store) -> None:
    """https://github.com/OpenHands/software-agent-sdk/issues/4776, https://github.com/agno-agi/agno/issues/7658."""
    from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams

    with rb.record(store, "ticket"), record_clients():
        async with McpWorkbench(StdioServerParams(command=sys.executable, args=SHOP)) as bench:
            told = (await bench.call_tool("find_order", {"order": "A-1"})).to_text()
    assert "north" not in told
    (result,) = bodies(store.session("ticket"), "tool_result")
    assert result.result["structuredContent"]["state"] == "shipped"
    assert result.result["_meta"] == {"shop.example/region": "north"}


def test_17_meta_ads_mcp_pr_150_a_replayed_answer_that_some_hosts_refuse_is_told_of(
    store: rb.Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """https://github.com/byadsco/meta-ads-mcp/pull/150: the TypeScript SDK closes the pipe above 10 MiB."""
    ask = [{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name}} for name in ("small", "large")]
    told = [
        {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": text}]}} for text in ("x", "x" * (10 << 20))
    ]
    tape = [frame for pair in zip(ask, told, strict=True) for frame in pair]
    frames = [{"dir": "c2s" if "method" in message else "s2c", "msg": message} for message in tape]
    server = replay_server(store.create("ticket").append(*rb.decode(frames)))
    out = BytesIO()
    serve(server, BytesIO(b"".join(json.dumps(one).encode() + b"\n" for one in ask)), out)
    assert [json.loads(line) for line in out.getvalue().splitlines()] == told  # served all the same
    (line,) = capsys.readouterr().err.splitlines()
    assert "hosts that stand on the TypeScript SDK end the connection at 10 MiB" in line


async def test_18_python_sdk_pr_2589_progress_stands_with_its_times_beside_the_timeout_that_it_did_not_hold_up(
    store: rb.Store,
) -> None:
    """https://github.com/modelcontextprotocol/python-sdk/pull/2589: Python's timeout does not begin again with progress."""

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        return

    for seconds in (0.5, 5, 30):  # until both steps have come in time
        async with recorded(SLY, store, f"ticket-{seconds}") as client:
            with pytest.raises(McpError, match="Timed out"):
                await client.call_tool("steps", {}, read_timeout_seconds=timedelta(seconds=seconds), progress_callback=progress)
        (result,) = bodies(store.session(f"ticket-{seconds}"), "tool_result")
        assert (result.status, result.reason) == ("no_response", "timeout")
        steps = result.attributes.get("rath.mcp.progress", [])
        if len(steps) == 2:
            break
    assert len(steps) == 2
    assert all(one["at"] <= other["at"] for one, other in pairwise(steps))
    assert result.duration > (steps[1]["at"] - steps[0]["at"]) / 1e6


async def test_11_and_12_are_the_same_through_the_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the client makes of a result never reaches the proxy; the server's word is there all the same."""
    monkeypatch.setenv("RATH_BRIDGE_SPOOL", str(tmp_path / "spool"))
    url, path = f"sqlite:///{tmp_path / 'runs.db'}", os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    args = ["-c", CLI, "mcp", "record", "--store", url, "--session", "s", "--", sys.executable, *SLY]
    server = StdioServerParameters(command=sys.executable, args=args, env={**os.environ, "PYTHONPATH": path})
    async with stdio_client(server) as streams, ClientSession(*streams) as client:
        await client.initialize()
        for tool in ("bare", "typed"):
            with anyio.fail_after(60), pytest.raises(Exception):  # noqa: B017, PT011 - whatever the SDK raises
                await client.call_tool(tool, {})
    settled(tmp_path)
    with rb.open_store(url) as opened:
        results = {result.name: result for result in bodies(opened.session("s"), "tool_result")}
    assert results["bare"].result == {"structuredContent": {"n": 1}}
    assert json.dumps(results["typed"].result).count("the database is down") == 1
