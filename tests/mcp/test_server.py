"""``rath-bridge mcp serve``: a store's sessions for any MCP host, read-only."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client

import rath_bridge as rb
from rath_mcp import session_server
from tests.mcp.servers import ROOT


@pytest.fixture
def store(tmp_path: Path) -> Iterator[rb.Store]:
    with rb.open_store(f"sqlite:///{tmp_path / 'runs.db'}") as store:
        ticket = store.create("team/ticket-1").append(
            rb.message("user", "Where is my Parcel?"),
            rb.message("assistant", "long " * 2000),
            rb.message("user", "\ud800 odd \x00"),
        )
        ticket.fork("try-b").append(rb.message("assistant", "On its way."))
        store.create("other").append(rb.message("user", "parcel again"))
        yield store


def ask(store: rb.Store, method: str, /, **params: Any) -> dict[str, Any]:
    (answer,) = session_server(store).answer({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    json.dumps(answer).encode()
    return answer


def call(store: rb.Store, name: str, /, **arguments: Any) -> Any:
    result = ask(store, "tools/call", name=name, arguments=arguments)["result"]
    if result.get("isError"):
        return result["content"][0]["text"]
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    schema = next(tool for tool in ask(store, "tools/list")["result"]["tools"] if tool["name"] == name)["outputSchema"]
    jsonschema.validate(result["structuredContent"], schema)
    return result["structuredContent"]


def test_every_tool_says_that_it_only_reads_and_what_it_gives(store: rb.Store) -> None:
    tools = ask(store, "tools/list")["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["list_sessions", "read_session", "read_chunk", "search_sessions", "diff_sessions"]
    for tool in tools:
        assert tool["annotations"]["readOnlyHint"] is True
        assert tool["annotations"]["destructiveHint"] is False
        jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
        jsonschema.Draft202012Validator.check_schema(tool["outputSchema"])


def test_sessions_are_listed_read_and_searched(store: rb.Store) -> None:
    listed = call(store, "list_sessions")
    assert [(one["name"], one["branches"]) for one in listed["sessions"]] == [
        ("other", ["main"]),
        ("team/ticket-1", ["main", "try-b"]),
    ]
    assert call(store, "list_sessions", prefix="team/")["total"] == 1
    first = call(store, "list_sessions", limit=1)
    assert (first["next"], len(first["sessions"])) == (1, 1)
    read = call(store, "read_session", name="team/ticket-1", start=1, limit=2)
    assert [chunk["kind"] for chunk in read["chunks"]] == ["message", "message"]
    assert (read["next"], read["total"]) == (3, 4)
    assert read["chunks"][1]["shortened"] is True
    whole = call(store, "read_chunk", id=read["chunks"][1]["id"][:12])
    assert whole["body"]["parts"][0]["content"] == "long " * 2000
    assert "next" not in call(store, "read_session", name="team/ticket-1", kind="session")
    found = call(store, "search_sessions", text="PARCEL")
    assert [chunk["session"] for chunk in found["chunks"]] == ["other", "team/ticket-1"]
    assert call(store, "search_sessions", text="parcel", limit=1)["more"] is True
    assert len(call(store, "search_sessions", text="parcel", session="other")["chunks"]) == 1


def test_branches_are_compared(store: rb.Store) -> None:
    found = call(store, "diff_sessions", a="team/ticket-1", b="team/ticket-1@try-b")
    assert (found["differ"], found["total"]) == (True, 1)
    assert found["changes"][0]["kind"] == "added"
    assert found["changes"][0]["b"]["body"]["parts"][0]["content"] == "On its way."
    assert call(store, "diff_sessions", a="other", b="other") == {"differ": False, "total": 0, "changes": []}


def test_what_cannot_be_meant_is_said_to_the_model(store: rb.Store) -> None:
    assert call(store, "read_session", name="nobody").startswith("no session 'nobody'")
    assert call(store, "read_session") == "name is missing: give it as text"
    assert "start must be a whole number" in call(store, "read_session", name="other", start=-1)
    assert call(store, "list_sessions", wrong=1) == "there is no argument 'wrong': give prefix, start, limit"
    assert "no chunk" in call(store, "read_chunk", id="zzzz")
    assert ask(store, "tools/call", name="drop_all")["error"]["code"] == -32602
    assert ask(store, "sampling/x")["error"]["code"] == -32601
    assert ask(store, "resources/read", uri="file:///etc/passwd")["error"]["code"] == -32002
    assert ask(store, "resources/read", uri="session://nobody/log")["error"]["code"] == -32002


def test_resources_show_the_same(store: rb.Store) -> None:
    listed = [one["uri"] for one in ask(store, "resources/list")["result"]["resources"]]
    assert listed == ["session://index", "session://other/log", "session://team%2Fticket-1/log"]

    def read(uri: str) -> Any:
        (content,) = ask(store, "resources/read", uri=uri)["result"]["contents"]
        assert (content["uri"], content["mimeType"]) == (uri, "application/json")
        return json.loads(content["text"])

    assert read("session://index") == call(store, "list_sessions", limit=500)
    log = read("session://team%2Fticket-1@try-b/log")
    assert [chunk["kind"] for chunk in log["chunks"]] == ["session", "message", "message", "message", "session", "message"]
    transcript = read("session://team%2Fticket-1/transcript")
    assert [one["role"] for one in transcript["messages"]] == ["user", "assistant", "user"]
    assert read(f"session://other/chunk/{log['chunks'][1]['id']}")["body"]["parts"][0]["content"] == "Where is my Parcel?"
    templates = [one["uriTemplate"] for one in ask(store, "resources/templates/list")["result"]["resourceTemplates"]]
    assert templates == ["session://{name}/log", "session://{name}/transcript", "session://{name}/chunk/{digest}"]


async def test_a_host_reads_sessions_and_the_store_stays_as_it_was(store: rb.Store) -> None:
    heads = {session.name: session.heads() for session in store.sessions()}
    args = ["-c", "from rath_bridge.cli import main; main()", "mcp", "serve", "--store", store.url]
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    server = StdioServerParameters(command=sys.executable, args=args, env={**os.environ, "PYTHONPATH": path})
    async with stdio_client(server) as streams, ClientSession(*streams) as client:
        hello = await client.initialize()
        assert hello.serverInfo.name == "rath-bridge"
        assert len((await client.list_tools()).tools) == 5
        found = await client.call_tool("search_sessions", {"text": "parcel"})  # the SDK checks it against the output schema
        assert found.structuredContent is not None
        assert len(found.structuredContent["chunks"]) == 2
        log = await client.read_resource("session://other/log")  # type: ignore[arg-type]
        assert "parcel again" in log.contents[0].text  # type: ignore[union-attr]
    assert {session.name: session.heads() for session in store.sessions()} == heads
