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
from mcp import ClientSession, McpError, StdioServerParameters, stdio_client, types

import rath_bridge as rb
from rath_bridge.model.kinds import ToolCall, ToolResult
from rath_mcp import record_client, replay_server
from rath_mcp.serving import answers
from tests.mcp.servers import CLI, EDGE, ROOT, SHOP, parameters, recorded


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


def tape_of(*messages: tuple[str, dict[str, Any]]) -> rb.Session:
    return rb.open_store("memory:").create("tape").append(*rb.decode([{"dir": way, "msg": one} for way, one in messages]))


SAMPLING = {"messages": [{"role": "user", "content": {"type": "text", "text": "Say a word"}}], "maxTokens": 9}
SAID = {"role": "assistant", "content": {"type": "text", "text": "word"}, "model": "m"}


def asking() -> rb.Session:
    """A call in whose middle the server asks its client for a completion, for its roots (which it does not give), and for nothing."""
    return tape_of(
        ("c2s", call("t", {})),
        ("s2c", ask("sampling/createMessage", 0, **SAMPLING)),
        ("c2s", {"jsonrpc": "2.0", "id": 0, "result": SAID}),
        ("s2c", {"jsonrpc": "2.0", "id": 1, "method": "roots/list"}),
        ("c2s", {"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "no roots"}}),
        ("s2c", ask("ping", 2)),
        ("c2s", {"jsonrpc": "2.0", "id": 2, "result": {}}),
        ("s2c", {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}),
    )


def greeted(session: rb.Session, **capabilities: Any) -> Any:
    server = replay_server(session)
    list(server.answer(ask("initialize", 0, protocolVersion="2025-06-18", capabilities=capabilities)))
    return server


def test_what_the_server_asked_is_asked_again_where_it_was_asked() -> None:
    server = greeted(asking(), sampling={}, roots={})
    (question,) = server.answer({**call("t", {}), "id": 7})
    assert (question["method"], question["params"]) == ("sampling/createMessage", SAMPLING)
    assert [one["id"] for one in server.answer(ask("ping", 8))] == [8]  # others are served meanwhile
    given = {"jsonrpc": "2.0", "id": question["id"], "result": {**SAID, "_meta": {"its": "own"}}}
    (question,) = server.answer(given)
    assert (question["method"], "params" in question) == ("roots/list", False)
    refused = {"jsonrpc": "2.0", "id": question["id"], "error": {"code": -32601, "message": "in other words"}}
    (answer,) = server.answer(refused)
    assert answer == {"jsonrpc": "2.0", "id": 7, "result": {"content": []}}
    assert (server.misses, server.unused, server.served) == ([], (), 1)
    assert server.answer(refused) == []  # it has been answered


def test_a_client_that_says_something_else_has_left_the_record() -> None:
    server = greeted(asking(), sampling={})
    (question,) = server.answer(call("t", {}))
    given = {"jsonrpc": "2.0", "id": question["id"], "result": {**SAID, "content": {"type": "text", "text": "another"}}}
    (answer,) = server.answer(given)
    assert (answer["error"]["code"], answer["error"]["data"]) == (-32004, {"recorded": {"result": SAID}})
    assert [str(one) for one in server.misses] == [
        "tools/call t: the client answered sampling/createMessage otherwise than on record"
    ]


def test_a_client_is_asked_only_what_it_can_answer_and_not_after_it_gave_up() -> None:
    assert [one["result"] for one in greeted(asking()).answer(call("t", {}))] == [{"content": []}]
    assert [one["result"] for one in replay_server(asking()).answer(call("t", {}))] == [{"content": []}]  # of the later era
    server = greeted(asking(), sampling={})
    (question,) = server.answer(call("t", {}))
    server.answer({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    assert server.answer({"jsonrpc": "2.0", "id": question["id"], "result": SAID}) == []


def test_what_was_asked_because_of_a_notification_is_asked_then() -> None:
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    roots = {"jsonrpc": "2.0", "id": 0, "result": {"roots": []}}
    session = tape_of(
        ("c2s", ready), ("s2c", ask("roots/list", 0)), ("c2s", roots), ("c2s", call("t")), ("s2c", {"id": 1, "result": {}})
    )
    server = greeted(session, roots={})
    (question,) = server.answer(ready)
    assert (question["method"], server.answer({**roots, "id": question["id"]})) == ("roots/list", [])
    assert server.answer(ready) == []
    assert [one["result"] for one in server.answer(call("t"))] == [{}]
    assert (server.misses, server.unused, server.served) == ([], (), 1)


def test_a_question_of_the_later_era_stands_in_its_result_and_is_matched_with_its_answers() -> None:
    wants = {"resultType": "input_required", "inputRequests": {"who": {"method": "elicitation/create"}}, "requestState": "s1"}
    answers_given: dict[str, Any] = {
        "inputResponses": {"who": {"action": "accept", "content": {"name": "Ida"}}},
        "requestState": "s1",
    }
    done = {"content": [], "resultType": "complete"}
    session = frames(
        call("t", {}), {"jsonrpc": "2.0", "id": 1, "result": wants},
        {**call("t", {}, **answers_given), "id": 2}, {"jsonrpc": "2.0", "id": 2, "result": done},
    )  # fmt: skip
    older = greeted(session, elicitation={})  # to a client of the era in which servers ask by themselves
    (question,) = older.answer({**call("t", {}), "id": 5})
    assert question["method"] == "elicitation/create"
    said = {"jsonrpc": "2.0", "id": question["id"], "result": answers_given["inputResponses"]["who"]}
    assert older.answer(said) == [{"jsonrpc": "2.0", "id": 5, "result": done}]
    assert older.unused == ()
    server = replay_server(session)
    assert [one["result"] for one in server.answer(call("t", {}))] == [wants]
    wrong = {**answers_given, "inputResponses": {"who": {"action": "decline"}}}
    assert [one["error"]["code"] for one in server.answer(call("t", {}, **wrong))] == [-32004]
    assert [one["result"] for one in server.answer(call("t", {}, **answers_given))] == [done]


async def test_a_person_is_asked_again_by_a_real_client(store: rb.Store) -> None:
    asked: list[str] = []

    async def person(context: object, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"name": "Ida"})

    def shaken(streams: Any) -> ClientSession:
        return ClientSession(*streams, elicitation_callback=person)

    server = str(ROOT / "tests" / "mcp" / "asking_server.py")
    async with stdio_client(parameters([server])) as streams, shaken(streams) as client:
        record_client(client, store, "ticket")
        await client.initialize()
        first = await client.call_tool("greet", {})
    async with stdio_client(replayed(store, "ticket")) as streams, shaken(streams) as client:
        await client.initialize()
        assert await client.call_tool("greet", {}) == first
    assert first.content[0].text == "hello Ida"  # type: ignore[union-attr]
    assert asked == ["Who are you?"] * 2
