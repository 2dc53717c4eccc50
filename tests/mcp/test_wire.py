"""Wire JSON in, wire JSON out: results and tapes of frames go home exactly, whatever a server put into them (law 1)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.types import CallToolResult, ImageContent, TextContent

import rath_bridge as rb
from rath_bridge.errors import DecodeError, UnsupportedError
from rath_bridge.model.chunk import Draft
from rath_bridge.model.kinds import ToolCall, ToolResult
from rath_bridge.verbs.transcript import calls
from rath_mcp import decode, encode, recognises
from rath_mcp.content import block_of, neutral_result, part_of, wire_result
from rath_mcp.frames import Frame, frame_from_json, parse_line, shape
from rath_mcp.record import Book, Connection
from tests.mcp.servers import ROOT, body

texts = st.text(st.characters(codec=None), max_size=12) | st.sampled_from(["x" * 700, "\ud800", "\u2028\0"])
leaves = st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False) | texts
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8)
keys = st.sampled_from(["_meta", "annotations", "futureKey", "content", "modality", "mime_type", "$rath", "type"])
unknown = st.dictionaries(keys, values, max_size=2)
data = st.binary(max_size=40).map(lambda raw: b64encode(raw).decode()) | st.sampled_from(["not base64", "aGk", "aGk=\n"])
mime = st.sampled_from(["image/png", "audio/wav", "video/mp4", "text/plain", "odd"])
resource = st.fixed_dictionaries({"uri": texts}, optional={"mimeType": mime, "text": texts, "blob": data})
blocks = st.one_of(
    st.tuples(unknown, st.fixed_dictionaries({"type": st.just("text"), "text": texts})),
    st.tuples(unknown, st.fixed_dictionaries({"type": st.sampled_from(["image", "audio"]), "data": data, "mimeType": mime})),
    st.tuples(
        unknown,
        st.fixed_dictionaries({"type": st.just("resource_link"), "uri": texts, "name": texts}, optional={"mimeType": mime}),
    ),
    st.tuples(unknown, st.fixed_dictionaries({"type": st.just("resource"), "resource": resource})),
    st.tuples(unknown, st.fixed_dictionaries({"type": st.sampled_from(["hologram", "blob", "uri", "mcp_block"])})),
).map(lambda pair: {**pair[0], **pair[1]})
results = st.fixed_dictionaries(
    {"content": st.lists(blocks, max_size=3)},
    optional={"structuredContent": values, "isError": st.booleans(), "_meta": values, "futureField": values},
)
errors = st.fixed_dictionaries({"code": st.integers(-33000, 0), "message": texts}, optional={"data": values})
answers = st.one_of(results.map(lambda r: {"result": r}), errors.map(lambda e: {"error": e}))
requests = st.builds(
    lambda name, arguments, meta: {"method": "tools/call", "params": {"name": name, "arguments": arguments, **meta}},
    texts, st.dictionaries(texts, values, max_size=3), st.dictionaries(st.just("_meta"), values, max_size=1),
)  # fmt: skip


def stored(drafts: list[Draft]) -> rb.Session:
    return rb.open_store("memory:").create("s").append(*drafts)


@given(block=blocks)
def test_a_block_is_what_its_part_says_also_without_the_native_record(block: dict[str, Any]) -> None:
    part = part_of(block)
    assert block_of(part) == block
    drafts = [rb.draft(ToolResult(result={"content": [part]}))]
    again = stored(drafts)[-1].values["result"]["content"][0]
    assert block_of(again) == block


@given(pairs=st.lists(st.tuples(requests, answers), min_size=1, max_size=3))
def test_pairs_go_home_exactly(pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    given_pairs = [{"request": request, **answer} for request, answer in pairs]
    assert recognises(given_pairs)
    session = stored(list(decode(given_pairs)))
    home, report = encode(session)
    assert home == given_pairs
    assert report.exact
    assert [entry.position for entry in report.manifest] == list(range(len(home)))
    assert session.pending() == ()


@given(result=results)
def test_a_result_goes_home_exactly(result: dict[str, Any]) -> None:
    home, report = encode(stored(list(decode(result))))
    assert home == [{"result": result}]
    assert report.exact
    assert wire_result(neutral_result(result)) == result


@st.composite
def tapes(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A connection in any disorder: interleaved requests, answers that come late, twice or never, noise."""
    clock = 1_796_000_000_000_000_000
    tape: list[dict[str, Any]] = []

    def add(direction: str, **rest: Any) -> None:
        nonlocal clock
        clock += draw(st.integers(0, 10**9))
        tape.append({"t": clock, "dir": direction, **rest})

    def hello() -> None:
        add("c2s", msg={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}})
        if draw(st.booleans()):
            add("s2c", raw="Welcome!", exc="ValueError: no JSON")
        info = {"name": draw(texts), "version": "1"}
        add("s2c", msg={"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": "2025-06-18", "serverInfo": info}})
        add("c2s", msg={"jsonrpc": "2.0", "method": "notifications/initialized"})

    if draw(st.booleans()):
        hello()
    ids = draw(st.lists(st.integers(0, 3) | st.sampled_from(["1", "x"]), max_size=8))
    for number in ids:
        step = draw(st.sampled_from(["ask", "list", "answer", "progress", "cancel", "log", "odd", "sample", "batch"]))
        if step == "ask":
            params = {**draw(requests)["params"], "_meta": {"progressToken": number}}
            add("c2s", msg={"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}, headers={"a": "b"})
        elif step == "list":
            add("c2s", msg={"jsonrpc": "2.0", "id": number, "method": "tools/list"})
        elif step == "answer":
            add("s2c", msg={"jsonrpc": "2.0", "id": number, **draw(answers)})
        elif step == "progress":
            told = {"progressToken": number, "progress": draw(st.integers(0, 9))}
            add("s2c", msg={"jsonrpc": "2.0", "method": "notifications/progress", "params": told})
        elif step == "cancel":
            add("c2s", msg={"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        elif step == "log":
            add("s2c", msg={"jsonrpc": "2.0", "method": "notifications/message", "params": draw(values)})
        elif step == "odd":
            add(draw(st.sampled_from(["c2s", "s2c"])), msg=draw(values))
        elif step == "sample":
            add("s2c", msg={"jsonrpc": "2.0", "id": number, "method": "sampling/createMessage", "params": draw(values)})
        else:
            ask = {"jsonrpc": "2.0", "id": number, **draw(requests)}
            add("c2s", msg=[ask, {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}])
    return tape


@given(tape=tapes())
def test_a_tape_goes_home_exactly_and_no_call_stays_open(tape: list[dict[str, Any]]) -> None:
    session = stored(list(decode(tape)))
    home, report = encode(session, "frames")
    assert home == tape
    assert all("answered" in loss.what for loss in report.losses)
    for call in calls(list(session)):
        assert call.status in ("ok", "error", "no_response")
        assert not call.extra
    results_too, _ = encode(session, "results")
    assert json.dumps(results_too)


def test_two_connections_are_kept_apart() -> None:
    def ask(name: str, number: int) -> list[dict[str, Any]]:
        call = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name}}
        answer = {"jsonrpc": "2.0", "id": number, "result": {"content": [], "structuredContent": {"of": name}}}
        return [{"dir": "c2s", "msg": call, "connection": name}, {"dir": "s2c", "msg": answer, "connection": name}]

    (a, a2), (b, b2) = ask("a", 1), ask("b", 1)
    session = stored(list(decode([a, b, b2, a2])))
    assert [body(chunk).result["structuredContent"] for chunk in session if chunk.kind == "tool_result"] == [
        {"of": "b"},
        {"of": "a"},
    ]
    frames, report = encode(session, "frames")
    assert report.exact
    assert [(frame["dir"], frame["msg"]) for frame in frames] == [(one["dir"], one["msg"]) for one in (a, a2, b, b2)]
    assert len({frame["connection"] for frame in frames}) == 2


def test_a_traceparent_joins_the_callers_trace() -> None:
    meta = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t", "_meta": meta}}
    session = stored(list(decode([{"dir": "c2s", "msg": call}])))
    chunk = next(chunk for chunk in session if chunk.kind == "tool_call")
    assert chunk.span is not None
    assert (chunk.span.trace_id, chunk.span.parent_id) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    assert body(chunk).attributes["_meta"] == meta
    answer = next(chunk for chunk in session if chunk.kind == "tool_result")
    assert answer.span == chunk.span
    assert body(answer).reason == "record_ended"


def test_the_modern_era_has_no_handshake_and_says_its_name_in_results() -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    told = {"io.modelcontextprotocol/serverInfo": {"name": "modern", "version": "3"}}
    tape = [
        {"dir": "c2s", "msg": {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t", "_meta": meta}}},
        {"dir": "s2c", "msg": {"jsonrpc": "2.0", "id": 1, "result": {"content": [], "resultType": "complete", "_meta": told}}},
        {"dir": "c2s", "msg": {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "t", "_meta": meta}}},
    ]
    session = stored(list(decode(tape)))
    begin, end = (body(chunk) for chunk in session if chunk.kind == "run")
    assert (begin.name, end.name) == ("mcp", "modern")
    assert end.attributes["mcp.protocol.version"] == "2026-07-28"
    assert [body(chunk).server for chunk in session if chunk.kind == "tool_call"] == [None, "modern"]


def test_a_server_that_refuses_discover_is_greeted_the_older_way() -> None:
    def msg(direction: str, **fields: Any) -> dict[str, Any]:
        return {"dir": direction, "msg": {"jsonrpc": "2.0", **fields}}

    session = stored(list(decode([
        msg("c2s", id=0, method="server/discover"),
        msg("s2c", id=0, error={"code": -32601, "message": "no"}),
        msg("c2s", id=1, method="initialize", params={"clientInfo": {"name": "host"}}),
        msg("s2c", id=1, result={"protocolVersion": "2025-11-25", "serverInfo": {"name": "old"}, "instructions": "Be kind."}),
    ])))  # fmt: skip
    begin = body(next(chunk for chunk in session if chunk.kind == "run"))
    assert (begin.name, begin.system_instructions) == ("old", "Be kind.")
    assert begin.attributes["rath.mcp.client"] == {"name": "host"}
    assert len(encode(session, "frames")[0]) == 4


def test_a_timeout_that_the_client_announces_is_one() -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}}
    gone = {"requestId": 1, "reason": "timed out after 0.3s"}
    tape = [{"dir": "c2s", "msg": call}, {"dir": "c2s", "msg": {"method": "notifications/cancelled", "params": gone}}]
    session = stored(list(decode(tape)))
    assert [body(chunk).reason for chunk in session if chunk.kind == "tool_result"] == ["timeout"]


def test_the_sdks_own_result_is_read() -> None:
    image = ImageContent(type="image", data="aGk=", mimeType="image/png")
    result = CallToolResult(content=[TextContent(type="text", text="t"), image], structuredContent={"n": 1})
    assert recognises(result)
    (draft,) = decode(result)
    body = stored([draft])[-1].body
    assert isinstance(body, ToolResult)
    assert body.result["content"][1]["content"] == b"hi"
    assert rb.decode(result)[0].kind == "tool_result"


def test_calls_of_other_frameworks_are_told_as_mcp_would_and_the_rest_is_named() -> None:
    session = stored([
        rb.message("user", "hello"),
        rb.draft(ToolCall(name="add", arguments={"a": 1}, call_id="c1", type="function")),
        rb.draft(ToolResult(name="add", call_id="c1", result={"sum": 3})),
        rb.draft(ToolCall(name="say", arguments={}, call_id="c2", type="function")),
        rb.draft(ToolResult(name="say", call_id="c2", status="error", error="no voice")),
        rb.draft(ToolCall(name="wait", call_id="c3", type="mcp")),
        rb.draft(ToolCall(name="gone", call_id="c4", type="mcp")),
        rb.draft(ToolResult(name="gone", call_id="c4", status="no_response", reason="timeout")),
    ])  # fmt: skip
    pairs, report = encode(session)
    assert [pair["request"]["params"]["name"] for pair in pairs] == ["add", "say"]
    assert pairs[0]["result"]["structuredContent"] == {"sum": 3}
    assert pairs[1]["result"] == {"content": [{"type": "text", "text": "no voice"}], "isError": True}
    named = {loss.chunk: loss.what for loss in report.losses}
    assert named[session[1].id] == "a message is no tool call: left out"
    assert named[session[6].id] == "never answered: left out"
    assert named[session[7].id] == "never answered (timeout): left out"
    frames, report = encode(session, "frames")
    assert frames == []
    assert len(report.losses) >= 5
    with pytest.raises(UnsupportedError, match="'results' or as_='frames'"):
        encode(session, "messages")


@pytest.mark.parametrize("wrong", [{"dir": "up", "msg": {}}, {"dir": "c2s"}, {"dir": "c2s", "msg": {}, "t": "noon"}, 3])
def test_what_is_no_frame_is_named(wrong: Any) -> None:
    with pytest.raises(DecodeError, match="frame 1"):
        decode([{"dir": "c2s", "msg": {}}, wrong])


@pytest.mark.parametrize("other", [None, 3, "text", {"role": "user", "content": []}, [], [{"type": "text"}], {"messages": []}])
def test_other_things_are_not_recognised(other: Any) -> None:
    assert not recognises(other)


def test_lines_that_are_no_json_are_frames_too() -> None:
    bad = parse_line(b"\xff\xfe not utf8\r\n", "s2c", 5)
    assert not bad.decodable
    assert frame_from_json(bad.to_json()) == bad
    assert bad.to_json()["raw_base64"]
    assert parse_line(b'{"a": 1}\n', "c2s").message == {"a": 1}
    assert shape([]) == "batch"
    assert shape({"id": 1}) == "other"


def test_progress_without_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rath_mcp.record.PROGRESS_LIMIT", 3)
    drafts: list[Draft] = []

    def emit(body: Any, **given_: Any) -> Draft:
        drafts.append(rb.draft(body, **given_))
        return drafts[-1]

    connection = Connection(Book(emit, "0" * 31 + "1"))
    meta = {"_meta": {"progressToken": "p"}, "name": "t"}
    connection.see(Frame(direction="c2s", message={"id": 1, "method": "tools/call", "params": meta}))
    for step in range(10):
        params = {"progressToken": "p", "progress": step}
        connection.see(Frame(direction="s2c", message={"method": "notifications/progress", "params": params}))
    connection.close()
    session = stored(drafts)
    result = next(body(chunk) for chunk in session if chunk.kind == "tool_result")
    assert len(result.attributes["rath.mcp.progress"]) == 3
    assert sum(chunk.kind == "note" for chunk in session) == 7
    assert len(encode(session, "frames")[0]) == 11


def test_the_recording_core_imports_no_mcp() -> None:
    code = (
        "import sys, rath_mcp, rath_mcp.frames, rath_mcp.record, rath_mcp.client\n"
        "rath_mcp.encode, rath_mcp.decode, rath_mcp.record_client, rath_mcp.tee\n"
        "print([n for n in sys.modules if n.partition('.')[0] in ('mcp', 'anyio', 'httpx')], callable(rath_mcp.decode))"
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.stdout.strip() == "[] True", done.stderr
