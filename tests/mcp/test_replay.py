"""``rath-bridge mcp replay``: a host is answered from the record, and nothing else runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, McpError, StdioServerParameters, stdio_client

import rath_bridge as rb
from rath_bridge.model.kinds import ToolCall, ToolResult
from rath_mcp import replay_server
from rath_mcp.serving import answers
from tests.mcp.servers import EDGE, ROOT, SHOP, recorded

CLI = "import sys; from rath_bridge.cli import main; sys.exit(main())"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "adapters")]))
    return tmp_path


@pytest.fixture
def store(place: Path) -> Iterator[rb.Store]:
    with rb.open_store(f"sqlite:///{place / 'runs.db'}") as store:
        yield store


def replayed(store: rb.Store, name: str, *options: str) -> StdioServerParameters:
    args = ["-c", CLI, "mcp", "replay", "--store", store.url, name, *options]
    return StdioServerParameters(command=sys.executable, args=args, env=dict(os.environ))


def ask(method: str, number: int = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def call(name: str, arguments: Any = None, **more: Any) -> dict[str, Any]:
    return ask("tools/call", name=name, arguments=arguments, **more)


def frames(*messages: dict[str, Any]) -> rb.Session:
    """A session with a tape: requests and answers, in order."""
    tape = [{"dir": "c2s" if "method" in one and "id" in one else "s2c", "msg": one} for one in messages]
    return rb.open_store("memory:").create("tape").append(*rb.decode(tape))


async def drive(client: ClientSession) -> list[Any]:
    """Everything that the shop can do, and what it refuses."""
    told: list[Any] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    hello = await client.initialize()
    found: list[Any] = [
        hello,
        await client.list_tools(), await client.call_tool("find_order", {"order": "A-1"}), await client.call_tool("chart", {}),
        await client.call_tool("find_order", {"order": "none"}), await client.call_tool("refund", {"order": "A-1"}),
        await client.call_tool("export", {"steps": 3}, progress_callback=progress), await client.list_resources(),
        await client.read_resource("shop://orders"), await client.list_prompts(),  # type: ignore[arg-type]
        await client.get_prompt("complaint", {"order": "A-1"}), await client.send_ping(),
    ]  # fmt: skip
    with pytest.raises(McpError) as caught:
        await client.call_tool("nothing", {})
    return [*(one.model_dump() for one in found), caught.value.error.model_dump(), told]


async def test_every_recorded_call_is_answered_as_it_was(store: rb.Store) -> None:
    async with recorded(SHOP, store, "ticket") as client:
        live = await drive(client)
    async with stdio_client(replayed(store, "ticket")) as streams, ClientSession(*streams) as client:
        again = await drive(client)
    assert again == live
    session = store.session("ticket")
    async with recorded(SHOP, store, "direct") as client:
        pass
    assert len(store.session("ticket")) == len(session)  # a replay records nothing as newly executed


def test_the_nth_equal_call_gets_the_nth_answer_and_meta_does_not_count() -> None:
    """mcp-rec, mcp-cassette: matchers that compare ``_meta`` miss every call with progress or a trace."""
    tape: list[dict[str, Any]] = []
    for number, said in enumerate(("one", "two")):
        asked = call("roll", {"sides": 6, "of": "wood"}, _meta={"progressToken": number, "traceparent": "x"})
        tape += [
            {**asked, "id": number},
            {"jsonrpc": "2.0", "id": number, "result": {"content": [{"type": "text", "text": said}]}},
        ]
    server = replay_server(frames(*tape))
    for said in ("one", "two"):
        (answer,) = server.answer(call("roll", {"of": "wood", "sides": 6}, _meta={"other": 1}))
        assert answer["result"]["content"][0]["text"] == said
    (miss,) = server.answer(call("roll", {"of": "wood", "sides": 6}))
    assert miss["error"]["code"] == -32004
    assert "the record has 2 such call(s), and all have been served" in miss["error"]["message"]
    assert [str(one) for one in server.misses] == ["tools/call roll: the record has 2 such call(s), and all have been served"]


def test_a_miss_is_a_clear_error_and_misses_are_listed_at_the_end(place: Path, store: rb.Store) -> None:
    store.create("t").append(
        rb.draft(ToolCall(name="add", arguments={"a": 1}, call_id="c1", type="function")),
        rb.draft(ToolResult(name="add", call_id="c1", result={"sum": 3})),
    )
    asked = [call("add", {"a": 2}), call("subtract", {}), ask("tools/list"), ask("completion/complete"), {"method": "ping"}]
    data = "".join(json.dumps(one) + "\n" for one in asked) + "no json\n[1]\n\n"
    command = [sys.executable, "-c", CLI, "mcp", "replay", "--store", store.url, "t"]
    done = subprocess.run(command, input=data, capture_output=True, text=True, timeout=60)
    answered = [json.loads(line) for line in done.stdout.splitlines()]
    assert (
        answered[0]["error"]["message"] == "not on record: tools/call add: the record has 1 call(s) of it, with other arguments"
    )
    assert answered[0]["error"]["data"] == {"recorded": [{"name": "add", "arguments": {"a": 1}}]}
    assert answered[2]["result"]["tools"] == [{"name": "add", "inputSchema": {"type": "object"}}]
    assert answered[2]["result"]["_meta"] == {"rath-bridge/basis": "inferred"}
    assert [one["error"]["code"] for one in answered if "error" in one] == [-32004, -32004, -32004, -32700, -32600]
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "rath-bridge: not on record: tools/call add: the record has 1 call(s) of it, with other arguments",
        "rath-bridge: not on record: tools/call subtract: the record has no call of it",
        "rath-bridge: not on record: completion/complete: the record has no call of it",
        "rath-bridge: 0 served, 3 not on record, 1 on record and not asked for",
    ]


def test_calls_of_other_frameworks_are_served_as_mcp_would_tell_them() -> None:
    session = rb.open_store("memory:").create("t").append(
        rb.draft(ToolCall(name="add", arguments={"a": 1}, call_id="c1", type="function")),
        rb.draft(ToolResult(name="add", call_id="c1", result={"sum": 3})),
    )  # fmt: skip
    server = replay_server(session)
    (hello,) = server.answer(ask("initialize", protocolVersion="2025-06-18"))
    assert (hello["result"]["protocolVersion"], hello["result"]["capabilities"]) == ("2025-06-18", {"tools": {}})
    (answer,) = server.answer(call("add", {"a": 1}))
    assert answer["result"]["structuredContent"] == {"sum": 3}
    assert (server.misses, server.unused, server.served) == ([], (), 1)


async def test_a_recorded_timeout_is_a_timeout_again(store: rb.Store) -> None:
    async with recorded(EDGE, store, "ticket") as client:
        with pytest.raises(McpError):
            await client.call_tool("silent", {}, read_timeout_seconds=timedelta(seconds=0.2))
        await client.call_tool("count", {})
    async with stdio_client(replayed(store, "ticket")) as streams, ClientSession(*streams) as client:
        await client.initialize()
        with pytest.raises(McpError, match="Timed out"):
            await client.call_tool("silent", {}, read_timeout_seconds=timedelta(seconds=0.2))
        assert not (await client.call_tool("count", {})).isError
    (answer,) = replay_server(store.session("ticket"), hold=False).answer(call("silent", {}))
    assert (answer["error"]["code"], "timeout" in answer["error"]["message"]) == (-32001, True)


async def test_a_server_that_died_is_an_error_not_a_wait(store: rb.Store) -> None:
    with pytest.raises(BaseException, match=r"unhandled|closed"):
        async with recorded(EDGE, store, "ticket") as client:
            await client.call_tool("die", {})
    (answer,) = replay_server(store.session("ticket")).answer(call("die", {}))
    assert answer["error"] == {"code": -32000, "message": "on record this call was never answered: stream_ended"}


def test_the_later_eras_record_serves_the_handshake_era_and_its_own() -> None:
    info = {"io.modelcontextprotocol/serverInfo": {"name": "late", "version": "9"}}
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientInfo": {"name": "c"}}
    found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete", "_meta": info}
    result = {"content": [{"type": "text", "text": "hi"}], "resultType": "complete"}
    session = frames(
        ask("server/discover", 1, _meta=meta), {"jsonrpc": "2.0", "id": 1, "result": found},
        {**call("greet", {"n": 1}, _meta=meta), "id": 2}, {"jsonrpc": "2.0", "id": 2, "result": result},
    )  # fmt: skip
    server = replay_server(session)
    (discovered,) = server.answer(ask("server/discover"))
    assert discovered["result"] == found
    (hello,) = server.answer(ask("initialize", protocolVersion="2025-11-25"))
    assert hello["result"]["serverInfo"] == {"name": "late", "version": "9"}
    assert hello["result"]["capabilities"] == {"tools": {}}
    (answer,) = server.answer(call("greet", {"n": 1}))
    assert answer["result"] == result


def test_a_handshake_record_sends_a_later_client_to_the_handshake() -> None:
    said = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "old", "version": "1"}, "odd": 1}
    server = replay_server(frames(ask("initialize", 1), {"jsonrpc": "2.0", "id": 1, "result": said}))
    (refused,) = server.answer(ask("server/discover"))
    assert refused["error"]["code"] == -32601
    (hello,) = server.answer(ask("initialize", protocolVersion="2025-11-25"))
    assert hello["result"] == {**said, "protocolVersion": "2025-11-25"}
    (hello,) = server.answer(ask("initialize", protocolVersion="1999-01-01"))
    assert hello["result"]["protocolVersion"] == "2025-06-18"


def test_listings_may_be_asked_again_calls_may_not() -> None:
    pages = [({}, "2"), ({"cursor": "2"}, None)]
    tape: list[dict[str, Any]] = []
    for number, (params, after) in enumerate(pages):
        value = {"tools": [{"name": f"t{number}"}]} | ({"nextCursor": after} if after else {})
        tape += [ask("tools/list", number, **params), {"jsonrpc": "2.0", "id": number, "result": value}]
    server = replay_server(frames(*tape))
    for _ in range(3):
        for number, (params, _after) in enumerate(pages):
            (answer,) = server.answer(ask("tools/list", **params))
            assert answer["result"]["tools"] == [{"name": f"t{number}"}]
    assert server.misses == []


def test_progress_comes_back_under_the_token_of_the_one_who_asks_now() -> None:
    def step(token: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}

    log = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "working"}}
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}
    session = frames(call("t", {}, _meta={"progressToken": 7}), step(7), log, answer)
    told = list(replay_server(session).answer({**call("t", {}, _meta={"progressToken": "mine"}), "id": 5}))
    assert told == [step("mine"), log, {**answer, "id": 5}]
    assert list(replay_server(session).answer({**call("t"), "id": 5})) == [log, {**answer, "id": 5}]


def test_a_batch_is_answered_one_by_one() -> None:
    server = replay_server(frames(call("t", {}), {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}))
    data = json.dumps([ask("ping", 1), {"jsonrpc": "2.0", "method": "notifications/initialized"}, ask("ping", 2), 3]).encode()
    found = answers(server, data)
    assert [(one["id"], "result" in one) for one in found] == [(1, True), (2, True), (None, False)]
