"""Claude Code transcripts and Codex rollouts: read, and given back record by record."""

from __future__ import annotations

from typing import Any

import pytest

import rath_bridge as rb
from rath_bridge.errors import DecodeError, UnsupportedError
from rath_bridge.interchange import claude_code, codex, decode, encode, format_of
from rath_bridge.model.kinds import Usage
from rath_bridge.model.parts import BlobPart, ReasoningPart, TextPart, ToolCallPart, ToolCallResponsePart

USAGE = {"input_tokens": 3, "output_tokens": 9, "cache_read_input_tokens": 100}
CLAUDE: list[dict[str, Any]] = [
    {"type": "summary", "summary": "a talk", "leafUuid": "a2"},
    {"type": "user", "uuid": "u1", "parentUuid": None, "isSidechain": False, "sessionId": "s-1", "timestamp": "2026-03-06T14:15:22.394Z",
     "message": {"role": "user", "content": "fix the test \u2028 " + "please " * 100}},
    {"type": "assistant", "uuid": "a1", "parentUuid": "u1", "sessionId": "s-1", "timestamp": "2026-03-06T14:15:30.000Z",
     "message": {"id": "msg_1", "role": "assistant", "model": "m-1", "usage": USAGE,
                 "content": [{"type": "thinking", "thinking": "hm", "signature": "sig"}]}},
    {"type": "assistant", "uuid": "a2", "sessionId": "s-1",
     "message": {"id": "msg_1", "role": "assistant", "model": "m-1", "usage": USAGE,
                 "content": [{"type": "text", "text": "I look."},
                             {"type": "tool_use", "id": "t1", "name": "Task", "input": {"file": "a.py", "n": 1.0}}]}},
    {"type": "user", "uuid": "x1", "isSidechain": True, "sessionId": "s-1", "message": {"role": "user", "content": "a subagent's task"}},
    {"type": "user", "uuid": "u2", "sessionId": "s-1", "toolUseResult": {"x": None}, "message": {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": [{"type": "text", "text": "no"}]},
        {"type": "text", "text": "and this"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]}},
    {"type": "system", "uuid": "y1", "content": "compacted"},
]  # fmt: skip
CODEX: list[dict[str, Any]] = [
    {"timestamp": "2026-03-30T05:38:34.432Z", "type": "session_meta", "payload": {"id": "s1", "cwd": "/w"}},
    {"timestamp": "2026-03-30T05:38:34.725Z", "type": "response_item",
     "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "commit"}]}},
    {"timestamp": "2026-03-30T05:38:45.000Z", "type": "event_msg", "payload": {"type": "agent_reasoning", "text": "Reviewing"}},
    {"type": "response_item", "payload": {"type": "custom_tool_call", "name": "apply_patch", "call_id": "B", "input": "*** Begin"}},
    {"type": "response_item", "payload": {"type": "custom_tool_call_output", "call_id": "B", "output": "Done"}},
    {"type": "response_item", "payload": {"type": "tool_search_call", "call_id": "C", "arguments": {"query": "x"}}},
    {"type": "response_item", "payload": {"type": "tool_search_output", "call_id": "C", "tools": [{"name": "read_file"}]}},
    {"type": "turn_context", "payload": None},
]  # fmt: skip


def imported(document: Any) -> rb.Session:
    return rb.open_store("memory:").create("s").append(*decode(document))


@pytest.mark.parametrize(("log", "module"), [(CLAUDE, claude_code), (CODEX, codex)])
def test_home_is_exact(log: list[Any], module: Any) -> None:
    assert format_of(log) is module
    session = imported(log)
    for line in (session, session.fork("b"), session.detach("copy")):
        native, report = encode(line, module.name)
        assert native == log
        assert report.exact
    assert session.fsck() == []
    assert {call.status for call in session.calls()} <= {"ok", "error"}
    _, report = encode(session.append(rb.message("user", "more")), module.name)
    assert [loss.path for loss in report.losses] == ["parts"]
    assert module.documents(log)[0][0] in ("s-1", "s1")
    with pytest.raises(UnsupportedError, match="atif"):
        encode(rb.open_store("memory:").create("x"), module.name)


def test_claude_code_is_read() -> None:
    session = imported(CLAUDE)
    messages = session.messages()
    assert [one.role for one in messages] == ["user", "assistant", "assistant", "tool", "user"]
    assert messages[1].parts == (ReasoningPart("hm", {"signature": "sig"}),)
    assert messages[2].parts[1] == ToolCallPart("t1", "Task", {"file": "a.py", "n": 1.0})
    assert messages[3].parts[0] == ToolCallResponsePart("t1", [{"type": "text", "text": "no"}], {"is_error": True})
    assert messages[4].parts == (TextPart("and this"), BlobPart("image", b"\0\0\0", "image/png"))
    assert session.usage() == Usage(input_tokens=103, output_tokens=9, cache_read_input_tokens=100)
    assert session.calls()[0].status == "error"


def test_codex_is_read() -> None:
    session = imported(CODEX)
    assert [one.role for one in session.messages()] == ["user", "assistant", "tool", "assistant", "tool"]
    assert [(call.call_id, call.name, call.status) for call in session.calls()] == [
        ("B", "apply_patch", "ok"),
        ("C", "tool_search", "ok"),
    ]
    _, report = encode(session.fork("early", at=session[4].id), "codex")
    assert [loss.path for loss in report.losses] == ["call_id"]


@pytest.mark.parametrize(
    ("module", "damaged", "path"),
    [
        (claude_code, [{"type": "user", "message": {"content": 5}}], "[0].message.content"),
        (claude_code, [{"type": "user", "message": {"content": [{"type": "text"}]}}], "[0].message.content[0].text"),
        (codex, [{"type": 5}], "[0].type"),
        (codex, [{"type": "response_item", "payload": {"type": "function_call"}}], "[0].payload.name"),
    ],
)
def test_damage_is_named_by_its_path(module: Any, damaged: Any, path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        module.decode(damaged)
    assert caught.value.path == path
