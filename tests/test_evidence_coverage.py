"""Coverage: who recorded from when to when, and every hole that shows; counted again by whoever verifies."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import orjson
import pytest

import rath_bridge as rb
from rath_bridge.evidence.coverage import blind_spots
from rath_bridge.model.kinds import Gap, Message, Redaction, Run, ToolCall, ToolResult
from rath_bridge.model.parts import TextPart, ToolCallPart, ToolCallResponsePart
from tests.test_evidence_packet import contents
from tests.test_evidence_tamper import check, resummed

LANG = {"adapter": "rath_langgraph", "framework": "langgraph", "version": "1.2.0"}
MCP = {"adapter": "rath_mcp", "framework": "mcp", "version": "1.28"}
HOUR = 3_600_000_000


def asks(call: str, name: str = "search") -> Message:
    return Message(role="assistant", parts=(ToolCallPart(call, name, {}),))


def answers(call: str) -> Message:
    return Message(role="tool", parts=(ToolCallResponsePart(call, "found"),))


def holes(store: rb.Store) -> rb.Session:
    """A session in which everything is missing once."""
    s = store.create("ticket").append(
        rb.draft(Run(phase="begin", name="graph", type="graph"), run="r1", origin=LANG, at=10 * HOUR),
        rb.draft(asks("open"), run="r1", origin=LANG, at=11 * HOUR),
        rb.draft(asks("answered"), run="r1"),
        rb.draft(answers("answered"), run="r1"),
        rb.draft(ToolCall(name="refund", call_id="silent"), run="r1"),
        rb.draft(ToolResult(call_id="silent", status="no_response", reason="timeout"), run="r1"),
        rb.draft(Gap(count=7, reason="the spool was full"), origin=LANG, at=12 * HOUR),
        rb.draft(Run(phase="begin", name="?", type="unattributed"), run="r2", origin=MCP, at=HOUR),
        rb.draft(ToolCall(name="list", call_id="x"), run="r2", origin=MCP, at=2 * HOUR),
        rb.draft(ToolResult(call_id="x"), run="r2", origin=MCP, at=3 * HOUR),
        rb.message("user", "my key is [redacted:openai-key]"),
        rb.draft(Message(role="user", parts=(TextPart("yes"),), basis="inferred")),
    )
    return s.append(rb.draft(Redaction(targets=(s[5].id,), reason="a person asked", rule="person")))


def facts(packet: Path) -> dict[str, Any]:
    report = rb.verify_packet(packet)
    assert report.ok, report
    assert report.coverage is not None
    written = orjson.loads(contents(packet)["coverage.json"])
    assert written["facts"] == report.coverage.facts
    assert written["holes"] == list(report.coverage.holes())
    return dict(report.coverage.facts)


def test_every_hole_is_told(tmp_path: Path) -> None:
    s = holes(rb.open_store("memory:"))
    found = facts(rb.export_packet(s, tmp_path / "p"))
    ours, mcp, lang = sorted(found["adapters"], key=lambda one: one["adapter"])[2], found["adapters"][0], found["adapters"][1]
    assert (mcp["from"], mcp["until"], mcp["chunks"]) == ("1970-01-01T01:00:00.000000Z", "1970-01-01T03:00:00.000000Z", 3)
    assert (lang["adapter"], lang["version"], lang["chunks"]) == ("rath_langgraph", "1.2.0", 3)
    assert ours == {"adapter": "the program itself", "chunks": 8, "from": ours["from"], "until": ours["until"]}
    assert found["unattributed"] == {"runs": 1, "chunks": 3}
    assert [(gap["count"], gap["reason"]) for gap in found["gaps"]["list"]] == [(7, "the spool was full")]
    assert [one["call"] for one in found["open_calls"]["list"]] == ["open"]
    assert [(one["call"], one["reason"]) for one in found["no_response"]["list"]] == [("silent", "timeout")]
    assert [one["run"] for one in found["open_runs"]["list"]] == ["r1"]
    assert [one["reason"] for one in found["redactions"]["list"]] == ["a person asked"]
    assert (found["masked"], found["inferred"], found["erased"]["count"]) == (1, 1, 0)


def test_a_whole_record_shows_no_hole_and_still_says_what_nobody_sees(tmp_path: Path) -> None:
    s = rb.open_store("memory:").create("s").append(rb.draft(Run(phase="begin", name="g"), run="r", origin=LANG))
    s = s.append(rb.draft(Run(phase="end", name="g", status="ok"), run="r", origin=LANG))
    report = rb.verify_packet(rb.export_packet(s, tmp_path / "p"))
    assert report.coverage is not None
    assert report.coverage.verdict == "no hole shows"
    assert "raw threading.Thread" in " ".join(report.coverage.blind_spots["langgraph"])
    assert any("no adapter was active" in text for text in report.coverage.not_in_packet)


def test_a_call_that_a_later_run_carries_out_and_one_that_two_branches_answer_are_closed(tmp_path: Path) -> None:
    s = rb.open_store("memory:").create("s").append(
        rb.draft(Run(phase="begin", name="a"), run="r1"),
        rb.draft(asks("c1", "refund"), run="r1"),
        rb.draft(asks("c2"), run="r1"),
        rb.draft(Run(phase="end", name="a", status="interrupted"), run="r1"),
    )  # fmt: skip
    s.fork("other").append(rb.draft(answers("c2"), run="r1"))
    s = s.append(rb.draft(answers("c2"), run="r1"), rb.draft(Run(phase="begin", name="a"), run="r2"))
    s = s.append(rb.draft(ToolCall(name="refund", call_id="c1"), run="r2"), rb.draft(ToolResult(call_id="c1"), run="r2"))
    found = facts(rb.export_packet(s, tmp_path / "p"))
    assert found["open_calls"]["count"] == 0


def test_what_a_detached_session_comes_from_is_said_not_to_be_there(tmp_path: Path) -> None:
    s = holes(rb.open_store("memory:"))
    report = rb.verify_packet(rb.export_packet(s.detach("copy"), tmp_path / "p"))
    assert report.coverage is not None
    assert "The session ticket, from which one was detached." in report.coverage.not_in_packet


def test_a_coverage_that_tells_other_than_the_chunks_is_contradicted(tmp_path: Path) -> None:
    files = contents(rb.export_packet(holes(rb.open_store("memory:")), tmp_path / "p"))
    value = orjson.loads(files["coverage.json"])
    value["facts"]["gaps"] = {"lost": 0, "list": []}
    report = check(resummed(files | {"coverage.json": orjson.dumps(value)}), "directory")
    assert report.coverage is not None
    assert report.coverage.contradictions == ("coverage.json tells other gaps than the chunks",)
    assert report.verdicts["coverage"] == "contradicted"


@pytest.mark.parametrize("value", [None, [], 3, {"facts": 3}, {"facts": {"gaps": []}}, {"blind_spots": [], "not_in_packet": {}}])
def test_a_coverage_of_any_form_is_read(tmp_path: Path, value: Any) -> None:
    files = contents(rb.export_packet(holes(rb.open_store("memory:")), tmp_path / "p"))
    report = check(resummed(files | {"coverage.json": orjson.dumps(value)}), "zip")
    assert report.coverage is not None
    assert report.coverage.facts["gaps"]["lost"] == 7


def test_an_adapter_may_name_its_blind_spots_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    import rath_langgraph

    assert blind_spots("langgraph")[0].startswith("Work in a raw")
    monkeypatch.setattr(rath_langgraph, "BLIND_SPOTS", ("It looks away on Sundays.",), raising=False)
    assert blind_spots("langgraph") == ("It looks away on Sundays.",)
    assert blind_spots("nobody") == ("Nothing is known about what this adapter does not see.",)


def test_the_environment_is_an_allow_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_PASSWORD", "hunter2hunter2")
    monkeypatch.setenv("RATH_BRIDGE_STORE", "postgresql://ann:hunter2hunter2@db/runs")
    s = rb.open_store("memory:").create("s")
    data = contents(rb.export_packet(s, tmp_path / "p"))["environment.json"]
    assert b"hunter2" not in data
    value = orjson.loads(data)
    assert value["variables"]["RATH_BRIDGE_STORE"].endswith("@db/runs")
    assert value["packages"]["orjson"]
    assert set(value) == {"platform", "python", "packages", "git", "command", "variables"}
    for given, written in ((False, {}), ({"machine": "ours"}, {"machine": "ours"})):
        files = contents(rb.export_packet(s, tmp_path / "p", overwrite=True, environment=given))
        assert orjson.loads(files["environment.json"]) == written
    assert rb.verify_packet(tmp_path / "p").ok


@pytest.mark.parametrize("told", [True, False])
def test_what_was_erased_is_tied_to_the_redaction_that_tells_why(tmp_path: Path, told: bool) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    with rb.open_store(url) as store:
        s = store.create("s").append(rb.message("user", "my secret"), rb.message("user", "more"))
        secret = s[1]
        with sqlite3.connect(tmp_path / "s.db") as db:
            gone = bytes.fromhex(secret.body_digest) + bytes([secret.size & 127 | 128, secret.size >> 7])
            db.execute("UPDATE rath_chunk SET form = 5, body = ? WHERE id = ?", (gone, bytes.fromhex(secret.id)))
        db.close()
    with rb.open_store(url) as store:
        s = store.session("s")
        if told:
            s = s.append(rb.draft(Redaction(targets=(secret.id,), reason="a person asked")))
        found = facts(rb.export_packet(s, tmp_path / "p"))
    assert found["erased"] == {"count": 1, "told": int(told), "untold": [] if told else [secret.id]}
    why = "as redactions in the record tell" if told else "1 of them without a redaction that tells why"
    report = rb.verify_packet(tmp_path / "p")
    assert report.coverage is not None
    assert f"the content of 1 chunk was erased, {why}" in report.coverage.holes()


def test_what_is_left_open_is_named_with_its_chunk(tmp_path: Path) -> None:
    s = holes(rb.open_store("memory:"))
    report = rb.verify_packet(rb.export_packet(s, tmp_path / "p.zip"))
    assert report.coverage is not None
    told = report.coverage.holes()
    assert f"1 run has no end: graph (r1, chunk {s[1].id[:12]})" in told
    assert f"1 tool call has no result, what it did is unknown: search (open, chunk {s[2].id[:12]})" in told
    assert f"1 tool call was closed without a response: refund (silent, chunk {s[6].id[:12]})" in told


@pytest.mark.parametrize("damage", ["dropped chunk", "changed body", "cut tail"])
def test_a_damaged_packet_is_not_said_to_have_holes_or_to_contradict_itself(tmp_path: Path, damage: str) -> None:
    files = contents(rb.export_packet(holes(rb.open_store("memory:")), tmp_path / "p.zip"))
    chunks, bodies = (files[name].splitlines(keepends=True) for name in ("chunks.jsonl", "bodies.jsonl"))
    if damage == "dropped chunk":
        del chunks[4]
    elif damage == "changed body":
        bodies[4] = bodies[4].replace(b"answered", b"answereD")
    else:
        chunks, bodies = chunks[:-3], bodies[:-3]
    report = check(resummed(files | {"chunks.jsonl": b"".join(chunks), "bodies.jsonl": b"".join(bodies)}), "zip")
    assert not report.ok
    assert report.coverage is None
    assert report.verdicts["coverage"] == report.verdicts["claims"] == "unknown"
    assert all("coverage" not in found.path for found in report.findings)
