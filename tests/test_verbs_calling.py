"""A tool call is read alike whether chunks of its own tell of it, or the parts of messages, or both; and it is one call."""

from __future__ import annotations

import json
from typing import Any

import pytest

import rath_bridge as rb
from rath_bridge.evidence.audit import Row, audit
from rath_bridge.model.kinds import Message, Run, ToolCall, ToolResult
from rath_bridge.model.parts import TextPart, ToolCallPart, ToolCallResponsePart
from rath_bridge.otel.export import session_spans
from rath_bridge.verbs.calling import told
from tests.cli_store import run

FORMS = ("chunks", "parts", "both")
FAILED = [{"is_error": True}, {"status": "error"}]


def story(store: rb.Store, form: str, failed: dict[str, Any], name: str = "s", said: str = "no luck") -> rb.Session:
    """A call that fails, and is tried again with the same arguments."""

    def asks(call_id: str, n: int) -> list[Any]:
        part = Message(role="assistant", parts=(ToolCallPart(call_id, "pay", {"n": n}),))
        started = ToolCall(name="pay", call_id=call_id, arguments={"n": n})
        return [*([part] if form != "chunks" else []), *([started] if form != "parts" else [])]

    def answers(call_id: str, text: str, extra: dict[str, Any], status: str) -> list[Any]:
        result = ToolResult(name="pay", call_id=call_id, result=text, status=status)
        part = Message(role="tool", parts=(ToolCallResponsePart(call_id, text, extra),))
        return [*([result] if form != "parts" else []), *([part] if form != "chunks" else [])]

    bodies = [Message(role="user", parts=(TextPart("pay"),)), *asks("c1", 13), *answers("c1", said, failed, "error")]
    bodies += [*asks("c2", 13), *answers("c2", "paid", {}, "ok"), Message(role="assistant", parts=(TextPart("done"),))]
    return store.create(name).append(*(rb.draft(body, run=None) for body in bodies))


def failures(session: rb.Session) -> tuple[Row, ...]:
    return next(one.rows for one in audit(session) if one.name == "failures")


@pytest.mark.parametrize("failed", FAILED, ids=json.dumps)
@pytest.mark.parametrize("form", FORMS)
def test_calls_audit_and_spans_tell_the_same(form: str, failed: dict[str, Any]) -> None:
    s = story(rb.open_store("memory:"), form, failed)
    assert [(call.name, call.status) for call in s.calls()] == [("pay", "error"), ("pay", "ok")]
    (row,) = failures(s)
    assert row.text == "pay failed: no luck; tried again: ok"
    begun, ended = s.calls()[1].begun, s.calls()[1].ended
    assert row.evidence == (s.calls()[0].ended, begun, ended)
    spans = [span for span in session_spans(s) if span.name == "execute_tool pay"]
    assert [span.error is not None for span in spans] == [True, False]
    assert not s.fsck()


@pytest.mark.parametrize("form", FORMS)
def test_filters_find_the_answers_that_do_not_say_whose_they_are(form: str, sqlite_url: str) -> None:
    with rb.open_store(sqlite_url) as store:
        s = story(store, form, {"is_error": True})
        touching = [c.id for c in s.chunks() if b'"tool_call' in (c.body_bytes or b"") or c.kind in ("tool_call", "tool_result")]
    for verb in ("log", "show"):
        found = json.loads(run(verb, "s", "--tool", "pay", "--json", store=sqlite_url).stdout)["chunks"]
        assert [row["id"] for row in found] == touching[::-1]
    assert json.loads(run("log", "s", "--tool", "refund", "--json", store=sqlite_url).stdout)["chunks"] == []


def test_sides_that_say_the_same_in_other_forms_have_the_same_calls() -> None:
    store = rb.open_store("memory:")
    sides = [story(store, form, {"is_error": True}, form) for form in FORMS]
    for one in sides[1:]:
        found = sides[0].diff(one)
        assert [row.kind for row in found.calls()] == ["same", "same"]
        assert [side.tool_calls for side in found.spent()] == [2, 2]


def test_a_long_answer_is_read_in() -> None:
    s = story(rb.open_store("memory:"), "parts", {"is_error": True}, said="no luck " * 200)
    assert failures(s)[0].text.startswith("pay failed: no luck no luck")


def test_an_answer_to_a_call_that_is_not_on_record_is_told() -> None:
    part = ToolCallResponsePart("c9", "gone", {"is_error": True, "name": "pay"})
    s = rb.open_store("memory:").create("s").append(rb.draft(Message(role="tool", parts=(part,))))
    assert [row.text for row in failures(s)] == ["pay failed: gone"]


def test_a_call_that_is_answered_in_a_later_run_is_one_call() -> None:
    """Asked for in one run, carried out in the next one, which did not ask (an approval)."""
    asked = Message(role="assistant", parts=(ToolCallPart("c1", "pay", {"n": 1}),))
    bodies = [(Run(phase="begin", name="a", type="agent"), "r1"), (asked, "r1"), (Run(phase="end", name="a", status="ok"), "r1")]
    bodies += [(Run(phase="begin", name="a", type="agent"), "r2")]
    bodies += [(ToolResult(name="pay", call_id="c1", status="error", error="no"), "r2")]
    s = rb.open_store("memory:").create("s").append(*(rb.draft(body, run=name) for body, name in bodies))
    assert [call.status for call in s.calls()] == ["error"]
    assert [call.status for call in s.calls()] == ["error"]
    assert len(failures(s)) == 1


@pytest.mark.parametrize(
    "body", [None, [], {"parts": 3}, {"parts": [3, {"type": "tool_call"}, {"type": "tool_call_response", "id": {"x": 1}}]}]
)
def test_nothing_in_a_body_is_taken_for_granted(body: Any) -> None:
    for kind in ("message", "tool_call", "tool_result", "run", "note"):
        list(told(kind, body))


@pytest.mark.parametrize("form", ["chunks", "both"])
def test_an_id_that_is_used_again_behind_a_fork_in_the_middle_of_a_call_is_another_call(form: str) -> None:
    def asks(n: int) -> list[Any]:
        part = Message(role="assistant", parts=(ToolCallPart("c1", "stock", {"n": n}),))
        started = ToolCall(name="stock", call_id="c1", arguments={"n": n})
        return [rb.draft(body) for body in [*([part] if form == "both" else []), started]]

    def answers(left: int) -> list[Any]:
        result = ToolResult(name="stock", call_id="c1", result=left)
        part = Message(role="tool", parts=(ToolCallResponsePart("c1", str(left), {}),))
        return [rb.draft(body) for body in [result, *([part] if form == "both" else [])]]

    base = rb.open_store("memory:").create("s").append(*asks(1))
    other = base.fork("what-if").append(*answers(0), *asks(2), *answers(7))
    rows = [section.to_json() for section in base.append(*answers(3)).diff(other).calls()]
    assert [(row["kind"], row.get("path")) for row in rows] == [("changed", "result"), ("added", None)]
    assert (rows[0]["ours_value"], rows[0]["theirs_value"]) == (3, 0)
    assert (rows[1]["theirs"]["arguments"], rows[1]["theirs"]["result"]) == ({"n": 2}, 7)
