"""A client session over stdio pipes, recorded: what crossed the wire is in the session, whoever called is known."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import ClientSession, McpError, stdio_client, types
from mcp.server.fastmcp import Context, FastMCP
from mcp.shared.memory import create_connected_server_and_client_session
from pydantic import BaseModel

import rath_bridge as rb
from rath_bridge.errors import UnsupportedError
from rath_bridge.recorder import RunHandle
from rath_mcp import ClientRecorder, encode, record_client, tee
from tests.mcp.servers import EDGE, ROOT, SHOP, TIME, bodies, body, notes, parameters, recorded, tool_calls
from tests.waiting import soon


@pytest.fixture
def store() -> rb.Store:
    return rb.open_store("memory:")


async def test_a_real_server_is_on_record_with_its_name_version_tools_and_results(store: rb.Store) -> None:
    async with recorded(TIME, store, "ticket") as client:
        tools = await client.list_tools()
        given = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        answer = await client.call_tool("convert_time", given)
        bad = await client.call_tool("convert_time", {**given, "time": "noon"})
    session = store.session("ticket")
    begin, end = bodies(session, "run")
    assert (begin.phase, begin.name, begin.type) == ("begin", "mcp-time", "server")
    assert begin.attributes["mcp.protocol.version"] == "2025-11-25"
    assert begin.attributes["rath.mcp.server"]["name"] == "mcp-time"
    assert "tools" in begin.attributes["rath.mcp.capabilities"]
    assert (end.phase, end.status) == ("end", "ok")
    assert [tool["name"] for tool in end.tools] == [tool.name for tool in tools.tools]
    assert end.tools[0]["inputSchema"] == tools.tools[0].inputSchema
    good, failed = bodies(session, "tool_result")
    assert good.status == "ok"
    assert good.result["content"] == [{"type": "text", "content": answer.content[0].text}]  # type: ignore[union-attr]
    assert (failed.status, failed.attributes["error.type"]) == ("error", "tool_error")
    assert failed.result["isError"] is True
    assert failed.error == bad.content[0].text  # type: ignore[union-attr]
    assert session.pending() == ()


async def test_structured_content_images_links_progress_and_meta_are_kept(store: rb.Store) -> None:
    told: list[Any] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async with recorded(SHOP, store, "ticket") as client:
        await client.call_tool("find_order", {"order": "A-1"})
        await client.call_tool("chart", {})
        await client.call_tool("export", {"steps": 3}, progress_callback=progress)
    session = store.session("ticket")
    order, chart, export = bodies(session, "tool_result")
    assert order.result["structuredContent"] == {"order": "A-1", "state": "shipped", "items": 3}
    assert order.result["_meta"] == {"shop.example/region": "north"}
    image, link = chart.result["content"]
    assert (image["type"], image["modality"], image["mime_type"]) == ("blob", "image", "image/png")
    assert image["content"].startswith(b"\x89PNG")
    assert (link["type"], link["uri"], link["name"]) == ("uri", "shop://orders", "orders")
    steps = export.attributes["rath.mcp.progress"]
    assert [(step["progress"], step["total"], step["message"]) for step in steps] == told
    assert [step["at"] for step in steps] == sorted(step["at"] for step in steps)
    assert all(type(step["at"]) is int for step in steps)
    asked = tool_calls(session)[0]
    assert (asked.name, asked.arguments, asked.server, asked.type) == ("find_order", {"order": "A-1"}, "shop", "mcp")


async def test_a_protocol_error_is_not_a_tools_error(store: rb.Store) -> None:
    async with recorded(SHOP, store, "ticket") as client:
        await client.call_tool("refund", {"order": "A-1"})
        with pytest.raises(McpError, match="Unknown tool"):
            await client.call_tool("nothing", {})
    tool_error, protocol_error = bodies(store.session("ticket"), "tool_result")
    assert tool_error.attributes["error.type"] == "tool_error"
    assert tool_error.result["content"][0]["content"] == tool_error.error == "the bank refused to refund A-1"
    assert protocol_error.attributes["rpc.response.status_code"] == "-32602"
    assert protocol_error.result == {"error": {"code": -32602, "message": "Unknown tool: nothing"}}
    assert tool_error.status == protocol_error.status == "error"


async def test_resources_and_prompts_are_calls_of_another_type_and_listings_are_notes(store: rb.Store) -> None:
    async with recorded(SHOP, store, "ticket") as client:
        await client.list_resources()
        await client.read_resource("shop://orders")  # type: ignore[arg-type]
        await client.get_prompt("complaint", {"order": "A-1"})
        await client.send_ping()
    session = store.session("ticket")
    read, prompt = bodies(session, "tool_call")
    assert (read.name, read.type, read.arguments) == ("resources/read", "mcp.request", {"uri": "shop://orders"})
    assert (prompt.name, prompt.arguments["arguments"]) == ("prompts/get", {"order": "A-1"})
    assert bodies(session, "tool_result")[0].result["contents"][0]["text"] == '["A-1", "B-2"]'
    assert notes(session) == ["notifications/initialized", "resources/list", "ping"]


async def test_calls_stand_under_the_run_that_makes_them_also_from_two_tasks_at_once(store: rb.Store) -> None:
    handles: dict[str, RunHandle] = {}
    with rb.record(store, "ticket") as recorder:
        async with recorded(SHOP) as client:

            async def work(name: str) -> None:
                with recorder.run(name) as handles[name]:
                    for turn in range(5):
                        await client.call_tool("greet", {"name": f"{name} {turn}"})
                        await asyncio.sleep(0)

            await asyncio.gather(work("anna"), work("bert"))
            await client.call_tool("greet", {"name": "nobody"})
    session = store.session("ticket")
    server = next(chunk for chunk in session if chunk.kind == "run" and body(chunk).type == "server")
    whose = {handles["anna"].id: "anna", handles["bert"].id: "bert", server.run: "nobody"}
    seen: dict[str, list[str]] = {}
    for chunk in session:
        if chunk.kind in ("tool_call", "tool_result"):
            who = whose[chunk.run]
            text = json.dumps(chunk.values, default=repr)
            assert who in text or chunk.kind == "tool_call"
            seen.setdefault(who, []).append(chunk.kind)
            assert chunk.span is not None
            assert chunk.span.trace_id == recorder.trace_id
            if who in handles:
                assert chunk.span.parent_id == handles[who].span.span_id
    assert {who: len(kinds) for who, kinds in seen.items()} == {"anna": 10, "bert": 10, "nobody": 2}
    assert session.pending() == ()


async def test_concurrent_calls_with_the_same_arguments_are_told_apart(store: rb.Store) -> None:
    async with recorded(EDGE, store, "ticket") as client:
        found = await asyncio.gather(*(client.call_tool("count", {"same": 1}) for _ in range(6)))
    session = store.session("ticket")
    calls = session.calls()
    assert len(calls) == 6 == len({call.call_id for call in calls})
    assert all(call.status == "ok" and not call.extra for call in calls)
    ids = {body.call_id: body.result["structuredContent"]["id"] for body in bodies(session, "tool_result")}
    assert {call_id: int(call_id.rsplit(":", 1)[1]) for call_id in ids} == ids
    assert len(found) == 6


async def test_a_server_that_dies_mid_call_leaves_no_call_open(store: rb.Store) -> None:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - SDK 1.30 wraps it in groups
        async with recorded(EDGE, store, "ticket") as client:
            await client.call_tool("die", {})
    assert "Connection closed" in repr(caught.value)
    session = store.session("ticket")
    (result,) = bodies(session, "tool_result")
    assert (result.status, result.reason) == ("no_response", "stream_ended")
    end = bodies(session, "run")[-1]
    assert (end.phase, end.status) == ("end", "error")
    assert session.pending() == ()


async def test_a_client_that_stops_waiting_is_a_timeout_and_the_late_answer_is_kept_apart(store: rb.Store) -> None:
    async with recorded(EDGE, store, "ticket") as client:
        with pytest.raises(McpError):
            await client.call_tool("late", {}, read_timeout_seconds=timedelta(seconds=0.2))
        await client.call_tool("count", {})
    session = store.session("ticket")
    late, count = bodies(session, "tool_result")
    assert (late.status, late.reason) == ("no_response", "timeout")
    assert "Timed out" in late.error
    assert count.status == "ok"
    (note,) = [body for body in bodies(session, "note") if body.text == "answer"]
    assert note.attributes["rath.mcp.unmatched"] == "it answers no open request"
    assert all(not call.extra for call in session.calls())


async def cancelled(client: ClientSession, store: rb.Store) -> None:
    """A call that is given up once it is on its way."""
    async with anyio.create_task_group() as group:
        group.start_soon(client.call_tool, "silent", {})
        await soon(lambda: store.session("ticket").pending())
        group.cancel_scope.cancel()


async def test_a_cancelled_call_is_closed_as_cancelled(store: rb.Store) -> None:
    async with recorded(EDGE, store, "ticket") as client:
        await cancelled(client, store)
        await client.call_tool("count", {})
    first, second = bodies(store.session("ticket"), "tool_result")
    assert (first.status, first.reason) == ("no_response", "cancelled")
    assert second.status == "ok"


async def test_what_the_client_closes_with_a_call_open_is_closed_too(store: rb.Store) -> None:
    async with stdio_client(parameters(EDGE)) as streams:
        read, write = tee(*streams, ClientRecorder(store, "ticket"))
        async with ClientSession(read, write) as client:  # type: ignore[arg-type]
            await client.initialize()
            await cancelled(client, store)
    (result,) = bodies(store.session("ticket"), "tool_result")
    assert (result.status, result.reason) == ("no_response", "client_closed")  # the streams alone cannot tell more


async def test_fields_that_nobody_knows_go_home_exactly(store: rb.Store) -> None:
    async with recorded(EDGE, store, "ticket") as client:
        await client.call_tool("unknown", {"none": None, "big": 2**70})
        with pytest.raises(ValueError, match="hologram"):  # the SDK's own refusal
            await client.call_tool("hologram", {})
    session = store.session("ticket")
    (known, hologram), report = encode(session)
    assert not report.losses or all("error" in loss.what for loss in report.losses)
    assert known == {
        "request": {"method": "tools/call", "params": {"name": "unknown", "arguments": {"none": None, "big": 2**70}}},
        "result": {"content": [{"type": "text", "text": "t", "futureKey": None}], "futureField": {"k": [1, 2.0, 2**70]}},
    }
    assert hologram["result"] == {"content": [{"type": "hologram", "data": "z"}]}
    (error,) = bodies(session, "error")
    assert error.type == "ValidationError"  # a second fact, beside the server's answer
    assert bodies(session, "tool_result")[1].status == "ok"


async def test_noise_on_standard_output_is_kept_and_marked(store: rb.Store) -> None:
    async with recorded([*EDGE, "banner"], store, "ticket") as client:
        await client.call_tool("noise", {})
    session = store.session("ticket")
    assert [body.status for body in bodies(session, "tool_result")] == ["ok"]
    marked = [body for body in bodies(session, "note") if body.text == "unreadable"]
    assert len(marked) == 2
    frames, _ = encode(session, "frames")
    assert [frame["raw"] for frame in frames if "raw" in frame] == ["Welcome to the edge!", "debug: doing it"]


async def test_an_id_that_came_back_as_text_is_matched_and_marked_and_a_wrong_one_is_not(store: rb.Store) -> None:
    async with recorded(EDGE, store, "ticket") as client:
        await client.call_tool("text_id", {})
        with pytest.raises(McpError):
            await client.call_tool("wrong_id", {}, read_timeout_seconds=timedelta(seconds=0.3))
        await client.call_tool("count", {})  # before it is answered, the wrong one has come
    session = store.session("ticket")
    text, wrong, _ = bodies(session, "tool_result")
    assert (text.status, text.basis) == ("ok", "inferred")
    assert (wrong.status, wrong.reason) == ("no_response", "timeout")
    assert "answer" in notes(session)


async def test_a_result_deeper_than_a_body_can_be_is_kept_in_its_frame(store: rb.Store) -> None:
    async with recorded(EDGE, store, "ticket") as client:
        await client.call_tool("deep", {})
    session = store.session("ticket")
    (result,) = bodies(session, "tool_result")
    assert (result.status, result.result, result.attributes["rath.mcp.kept"]) == ("ok", None, "in the frame only")
    (pair,), _ = encode(session)
    value, depth = pair["result"]["structuredContent"]["deep"], 0
    while isinstance(value, list):
        value, depth = value[0], depth + 1
    assert (value, depth) == (1, 180)


@pytest.mark.parametrize("when", ["before entering", "entered", "initialised"])
async def test_a_session_may_be_given_at_any_time_and_no_frame_is_lost_from_there_on(store: rb.Store, when: str) -> None:
    async with stdio_client(parameters(SHOP)) as (read, write):
        client = ClientSession(read, write)
        if when == "before entering":
            record_client(client, store, "ticket")
        async with client:
            if when == "entered":
                record_client(client, store, "ticket")
            await client.initialize()
            await asyncio.sleep(0.05)  # the receive loop waits for a message now
            assert record_client(record_client(client, store, "ticket", label="late"), store, "ticket") is client
            await client.call_tool("greet", {"name": "Ann"})
            await client.list_tools()
    session = store.session("ticket")
    frames, report = encode(session, "frames")
    sent = [frame["msg"].get("method", "answer") for frame in frames]
    shaken = [] if when == "initialised" else ["initialize", "answer", "notifications/initialized"]
    assert sent == [*shaken, "tools/call", "answer", "tools/list", "answer", "tools/list", "answer"]
    assert report.exact
    assert bodies(session, "run")[0].name == ("late" if when == "initialised" else "shop")


async def test_frames_are_the_very_ones_of_the_pipe(store: rb.Store, tmp_path: Path) -> None:
    spy = tmp_path / "spy.py"
    spy.write_text(
        "import subprocess, sys, threading\n"
        "p = subprocess.Popen([sys.executable, *sys.argv[2:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "log = open(sys.argv[1], 'ab', buffering=0)\n"
        "def up():\n"
        "    for line in iter(sys.stdin.buffer.readline, b''):\n"
        "        log.write(b'c2s ' + line); p.stdin.write(line); p.stdin.flush()\n"
        "    p.stdin.close()\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "for line in iter(p.stdout.readline, b''):\n"
        "    log.write(b's2c ' + line); sys.stdout.buffer.write(line); sys.stdout.buffer.flush()\n"
    )
    async with recorded([str(spy), str(tmp_path / "log"), *SHOP], store, "ticket") as client:

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            return

        await client.list_tools()
        await client.call_tool("find_order", {"order": "A-1", "none": None, "deep": {"none": None}})
        await client.call_tool("export", {"steps": 2}, progress_callback=progress)
        await client.read_resource("shop://orders")  # type: ignore[arg-type]
    frames, report = encode(store.session("ticket"), "frames")
    lines = (tmp_path / "log").read_text().splitlines()
    assert [(frame["dir"], frame["msg"]) for frame in frames] == [(line[:3], json.loads(line[4:])) for line in lines]
    assert report.exact


async def test_a_connection_may_outlive_the_block_that_records_it(store: rb.Store) -> None:
    async with stdio_client(parameters(SHOP)) as (read, write), ClientSession(read, write) as client:
        with rb.record(store, "ticket"):
            record_client(client)
            await client.initialize()
            await client.call_tool("greet", {"name": "Ann"})
    assert [body.phase for body in bodies(store.session("ticket"), "run")] == ["begin", "end"]


async def test_a_call_goes_to_the_recorder_around_it_unless_a_session_is_named(store: rb.Store) -> None:
    async with recorded(SHOP, store, "own") as client, recorded(SHOP, store) as open_client:
        with rb.record(store, "ticket") as recorder, recorder.run("agent") as run:
            await client.call_tool("greet", {"name": "named"})
            await open_client.call_tool("greet", {"name": "ambient"})
    (own,) = tool_calls(store.session("own"))
    assert own.attributes["rath.mcp.caller"] == {"session": "ticket", "run": run.id, "name": "agent"}
    assert own.arguments == {"name": "named"}
    (ambient,) = tool_calls(store.session("ticket"))
    assert ambient.arguments == {"name": "ambient"}
    runs = [body for body in bodies(store.session("ticket"), "run") if body.type == "server"]
    assert [(body.phase, body.name) for body in runs] == [("begin", "shop"), ("end", "shop")]


async def test_a_broken_recorder_never_breaks_the_session(
    store: rb.Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rath_mcp.record.Connection._answer", lambda *_: 1 / 0)
    async with recorded(SHOP, store, "ticket") as client:
        found = await client.call_tool("greet", {"name": "Ann"})
    assert found.content[0].text == "Good morning, Ann!"  # type: ignore[union-attr]
    assert "could not be recorded" in caplog.text
    assert bodies(store.session("ticket"), "gap")
    assert not store.session("ticket").pending()


async def test_known_secrets_are_taken_out_and_structure_alone_can_be_kept(store: rb.Store) -> None:
    secret = "sk-proj-" + "a" * 30
    async with recorded(SHOP, store, "redacted") as client:
        await client.call_tool("greet", {"name": secret})
    async with recorded(SHOP, store, "structure", record_content=False) as client:
        await client.call_tool("greet", {"name": "Ann"})
    for name, word in (("redacted", secret), ("structure", "Ann")):
        for chunk in store.session(name):
            held = store.backend.objects(chunk.references)
            assert word.encode() not in b"".join([chunk.body_bytes or b"", *held.values()])
    assert bodies(store.session("structure"), "tool_result")[0].status == "ok"


class Confirm(BaseModel):
    ok: bool


async def test_an_elicitation_is_a_request_of_the_server(store: rb.Store) -> None:
    server = FastMCP("asks")

    @server.tool()
    async def ask(ctx: Context) -> str:  # type: ignore[type-arg]
        answer = await ctx.elicit("Proceed?", Confirm)
        return answer.action

    async def elicited(context: object, params: object) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"ok": True})

    with rb.record(store, "ticket"):
        async with create_connected_server_and_client_session(server, elicitation_callback=elicited) as client:
            record_client(client)
            found = await client.call_tool("ask", {})
    assert found.content[0].text == "accept"  # type: ignore[union-attr]
    session = store.session("ticket")
    asked = next(body for body in bodies(session, "tool_call") if body.type == "mcp.server_request")
    assert (asked.name, asked.arguments["message"]) == ("elicitation/create", "Proceed?")
    answered = next(body for body in bodies(session, "tool_result") if body.call_id == asked.call_id)
    assert answered.result == {"action": "accept", "content": {"ok": True}}
    assert session.pending() == ()


def test_a_session_without_streams_is_refused(store: rb.Store) -> None:
    with pytest.raises(UnsupportedError, match="needs a ClientSession over streams"):
        record_client(object(), store)


KILLED = """
import asyncio, os, signal, sys
import rath_bridge as rb
from mcp import ClientSession, StdioServerParameters, stdio_client
from rath_mcp import record_client

async def main():
    async with stdio_client(StdioServerParameters(command=sys.executable, args=[sys.argv[2]])) as streams:
        async with ClientSession(*streams) as client:
            record_client(client, rb.open_store(sys.argv[1]), "ticket", durable=True)
            await client.initialize()
            plain = streams[1].send
            def send(item):
                if item.message.root.method == "tools/call":
                    os.kill(os.getpid(), signal.SIGKILL)
                return plain(item)
            streams[1].send = send
            await client.call_tool("greet", {"name": "Ann"})

asyncio.run(main())
"""


async def test_a_durable_call_is_on_record_before_it_is_sent(sqlite_url: str) -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    command = [sys.executable, "-c", KILLED, sqlite_url, *SHOP]
    process = await asyncio.create_subprocess_exec(*command, env={**os.environ, "PYTHONPATH": path})
    assert await process.wait() == -signal.SIGKILL
    with rb.open_store(sqlite_url) as store:
        session = store.session("ticket")
        assert [(call.name, call.status) for call in session.pending()] == [("greet", "pending")]
        assert session.fsck() == []


async def test_it_is_the_same_on_sqlite(sqlite_url: str) -> None:
    with rb.open_store(sqlite_url) as store:
        async with recorded(SHOP, store, "ticket") as client:
            await client.call_tool("chart", {})
    with rb.open_store(sqlite_url) as store:
        session = store.session("ticket")
        assert bodies(session, "tool_result")[0].result["content"][0]["content"].startswith(b"\x89PNG")
        assert [frame["dir"] for frame in encode(session, "frames")[0]][:2] == ["c2s", "s2c"]
        assert session.fsck() == []
