"""The command line of evidence: sign, verify with keys, claim, audit."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import rath_bridge as rb
from rath_bridge.evidence.audit import audit
from rath_bridge.maintenance import redact
from rath_bridge.model.kinds import Approval, Compaction, Inference, Run, ToolCall, ToolResult, Usage
from tests.cli_store import HOSTILE, fill, run


@pytest.fixture
def url(sqlite_url: str) -> str:
    with fill(sqlite_url):
        return sqlite_url


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen on this machine")
def test_sign_and_verify(url: str, tmp_path: Path) -> None:
    for name in ("ann", "eve"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    packet = str(tmp_path / "p.zip")
    done = run("packet", "ticket-4711", "copy", "-o", packet, "--sign", str(tmp_path / "ann"), "--no-environment", store=url)
    assert done.exit_code == 0, done.output
    assert "signed  SHA256:" in done.stdout
    good = run("verify", packet, "--key", str(tmp_path / "ann.pub"))
    assert good.exit_code == 0, good.output
    for words in ("✓ holds", "COVERAGE", "rath_langgraph (langgraph 1.0)", "coverage  no hole shows", "no adapter was active"):
        assert words in good.stdout
    wrong = run("verify", packet, "--key", str(tmp_path / "eve.pub"))
    assert wrong.exit_code == 3
    assert "this key has not signed" in wrong.stdout
    assert "Nothing shows that the packet was changed" in wrong.stdout
    assert run("verify", packet, "--key", str(tmp_path / "ann")).exit_code == 2  # a private key
    value = json.loads(run("verify", packet, "--json").stdout)
    assert value["verdicts"] == {"integrity": "holds", "coverage": "no hole shows", "claims": "none"}
    assert value["signatures"][0]["problem"] is None
    assert run("packet", "copy", "-o", str(tmp_path / "q"), "--sign", packet, store=url).exit_code == 2
    assert not (tmp_path / "q").exists()


def test_claims_are_made_and_looked_at_again(url: str, tmp_path: Path) -> None:
    good = run(
        "claim", "add", "ticket-4711", "looked-up", "The invoice was looked up.", "--status", "supported", "--evidence", ":5",
        "--quote", "look_up", "--count", "tool_call:look_up=1", "--by", "ann", store=url,
    )  # fmt: skip
    assert good.exit_code == 0, good.output
    assert "supported" in good.stdout
    bare = run(
        "claim",
        "add",
        "ticket-4711",
        "kind",
        f"We were kind. {HOSTILE.replace(chr(0xD800), '')}",
        "--status",
        "supported",
        store=url,
    )
    assert bare.exit_code == 1
    assert "pending (not supported)" in bare.stdout
    assert "\x1b[2J" not in bare.stdout
    looked = run("claim", "check", "ticket-4711", store=url)
    assert looked.exit_code == 1
    assert "1 of 2 claims lowered" in looked.stdout
    (tmp_path / "more.yaml").write_text("- {id: kind, sentence: We try to be kind., status: positioning}\n")
    assert run("claim", "check", "ticket-4711", "--claims", str(tmp_path / "more.yaml"), store=url).exit_code == 0
    assert run("packet", "ticket-4711", "-o", str(tmp_path / "p"), store=url).exit_code == 0
    assert run("claim", "check", str(tmp_path / "p")).exit_code == 1
    verified = run("verify", str(tmp_path / "p"))
    assert verified.exit_code == 1
    assert "✓ holds" in verified.stdout
    assert "1 of 2 lowered" in verified.stdout
    for arguments in (["--status", "true"], ["--count", "gap"], ["--evidence", "ffffffff"], ["--basis", "hope"]):
        assert run("claim", "add", "ticket-4711", "x", "So.", *arguments, store=url).exit_code == 2
    assert [c.kind for c in rb.open_store(url).session("ticket-4711").chunks()][-2:] == ["note", "note"]


def story(url: str) -> rb.Session:
    with rb.open_store(url) as store:
        s = store.create("refund").append(
            rb.draft(Run(phase="begin", name="desk", type="agent"), run="r1"),
            rb.message("user", "refund me"),
            rb.draft(Inference(model="m-1", agent="desk", usage=Usage(input_tokens=7, output_tokens=2, cost_usd=0.01)), run="r1"),
            rb.draft(ToolCall(name="refund", call_id="c1", arguments={"a": 1}, effect="writes"), run="r1"),
            rb.draft(ToolResult(call_id="c1", name="refund", status="error", error="busy"), run="r1"),
            rb.draft(ToolCall(name="refund", call_id="c2", arguments={"a": 1}, effect="writes"), run="r1"),
            rb.draft(ToolResult(call_id="c2", name="refund", result="done"), run="r1"),
            rb.draft(ToolCall(name="mail", call_id="c3", effect="writes"), run="r1"),
            rb.draft(ToolCall(name="peek", call_id="c4", effect="reads"), run="r1"),
            rb.draft(Approval(phase="granted", by="ann", subject="the refund"), run="r1"),
            rb.draft(Inference(model="m-2", agent="desk", usage=Usage(input_tokens=20, output_tokens=3)), run="r1"),
        )
        said = rb.message("assistant", "Your refund is on its way.")
        s = s.append(said._replace(run="r1"), rb.draft(Compaction(dropped=(s[2].id,), reason="trimmed")))
        return s.append(rb.draft(Run(phase="end", name="desk", status="ok"), run="r1"))


def test_what_stands_outside_of_any_run_is_told_in_plain_words(sqlite_url: str, tmp_path: Path) -> None:
    with rb.open_store(sqlite_url) as store:
        spent = rb.draft(Inference(model="m-1", usage=Usage(input_tokens=7, output_tokens=2)))
        store.create("bare").append(spent, rb.message("assistant", "Done."))
        store.create("named").append(rb.message("assistant", "Done.", name="Writer"))
    who = {}
    for name in ("bare", "named"):
        answers = json.loads(run("audit", name, "--json", store=sqlite_url).stdout)["answers"]
        who[name] = {one["name"]: [row["text"] for row in one["rows"]] for one in answers}
    assert who["bare"]["final_answer"][2] == "no agent is named: it was said outside of any run"
    assert who["bare"]["spending"] == ["no agent named: 7 tokens in, 2 out, 1 model call (m-1)"]
    assert who["named"]["final_answer"][2] == "by Writer"
    assert run("packet", "bare", "-o", str(tmp_path / "p"), store=sqlite_url).exit_code == 0
    page = (tmp_path / "p" / "report.html").read_text()
    assert "no agent is named: it was said outside of any run" in page
    assert "by outside" not in page


def test_audit_questions_are_answered_alike_from_the_store_and_from_the_packet(sqlite_url: str, tmp_path: Path) -> None:
    story(sqlite_url)
    value = json.loads(run("audit", "refund", "--json", store=sqlite_url).stdout)
    rows = {one["name"]: one["rows"] for one in value["answers"]}
    with rb.open_store(sqlite_url) as store:
        chunks = [c.id for c in store.session("refund").chunks()]
    texts = {name: [row["text"] for row in found] for name, found in rows.items()}
    assert texts["final_answer"][:4] == [
        "assistant: Your refund is on its way.", "on the line refund", "by desk", "the last model call before it: m-2 for desk",
    ]  # fmt: skip
    assert rows["final_answer"][3]["evidence"] == [chunks[11]]
    assert texts["approvals"] == ["granted by ann: the refund"]
    assert texts["failures"] == ["refund failed: busy; tried again: ok"]
    assert rows["failures"][0]["evidence"] == [chunks[5], chunks[6], chunks[7]]
    assert texts["spending"] == ["desk: 27 tokens in, 5 out, 2 model calls (m-1, m-2), 0.0100 USD as reported"]
    assert rows["compaction"][0]["evidence"][1:] == [chunks[2]]
    assert texts["unconfirmed"] == ["mail: it was started and has no result"]
    assert run("packet", "refund", "-o", str(tmp_path / "p.zip"), store=sqlite_url).exit_code == 0
    again = json.loads(run("audit", "refund", "--packet", str(tmp_path / "p.zip"), "--json").stdout)
    assert again["answers"] == value["answers"]
    shown = run("audit", "refund", store=sqlite_url)
    assert shown.exit_code == 0
    assert chunks[11][:8] in shown.stdout
    assert run("audit", "refunds", "--packet", str(tmp_path / "p.zip")).exit_code == 2
    assert run("audit", "refund", "--packet", str(tmp_path)).exit_code == 3


def answered(store: rb.Store, name: str) -> dict[str, list[str]]:
    return {one.name: [row.text for row in one.rows] for one in audit(store.session(name))}


def test_what_was_erased_is_told_where_it_was_asked_for(sqlite_url: str) -> None:
    story(sqlite_url)
    with rb.open_store(sqlite_url) as store:
        chunks = [c.id for c in store.session("refund").chunks() if c.kind in ("inference", "approval")]
        redact(store, chunks, reason="asked")
        texts = answered(store, "refund")
    assert texts["spending"] == ["2 model calls erased: nothing is known of them"]
    assert texts["approvals"] == ["1 approval erased: nothing is known of it"]
    assert texts["unconfirmed"] == ["mail: it was started and has no result"]


def test_a_call_that_was_interrupted_and_came_again_is_confirmed() -> None:
    """A tool of LangGraph that asks a person (``interrupt``) is begun a second time, under the same id."""
    pay = {"name": "pay", "call_id": "c1", "arguments": {"n": 5}}
    stopped = rb.draft(ToolResult(name="pay", call_id="c1", status="no_response", reason="interrupted"))
    store = rb.open_store("memory:")
    s = store.create("s").append(rb.draft(ToolCall(**pay)), stopped)
    assert answered(store, "s")["unconfirmed"] == ["pay: closed without a response (interrupted)"]
    other = rb.draft(ToolCall(**{**pay, "arguments": {"n": 6}}))
    s = s.append(other, rb.draft(ToolResult(name="pay", call_id="c1", result="paid 6")))
    assert answered(store, "s")["unconfirmed"] == ["pay: closed without a response (interrupted)"]
    s.append(rb.draft(ToolCall(**pay)), rb.draft(ToolResult(name="pay", call_id="c1", result="paid 5")))
    assert answered(store, "s")["unconfirmed"] == []


def test_a_packet_with_one_session_is_asked_without_its_name(sqlite_url: str, tmp_path: Path) -> None:
    story(sqlite_url)
    packet = str(tmp_path / "p.zip")
    assert run("packet", "refund", "-o", packet, store=sqlite_url).exit_code == 0
    assert run("audit", "--packet", packet).stdout == run("audit", "refund", "--packet", packet).stdout
    with rb.open_store(sqlite_url) as store:
        rb.export_packet([store.session("refund"), store.create("other")], packet, overwrite=True)
    both = run("audit", "--packet", packet)
    assert both.exit_code == 3
    assert "holds several sessions, name one: other, refund" in both.stderr
    assert "give NAME, or --packet PACKET" in run("audit", store=sqlite_url).stderr


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen on this machine")
def test_the_commands_of_the_page_follow_its_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[1] / "docs" / "evidence.md").read_text()
    monkeypatch.chdir(tmp_path)
    block = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    exec(block, {})
    section = page.partition("The same on the command line")[2].partition("Several signers")[0]
    lines = [line.strip() for line in section.splitlines() if line.startswith("    ")]
    assert [line.split()[0] for line in lines] == ["export", "ssh-keygen", "rath-bridge", "rath-bridge"]
    name, _, url = shlex.split(lines[0], comments=True)[1].partition("=")
    monkeypatch.setenv(name, url)
    subprocess.run(shlex.split(lines[1]), check=True, capture_output=True)
    for line in lines[2:]:
        done = run(*shlex.split(line, comments=True)[1:])
        assert done.exit_code == 0, done.output


def test_a_branch_and_a_merge_are_named(url: str) -> None:
    value = json.loads(run("audit", "ticket-4711@try-b", "--json", store=url).stdout)
    texts = [row["text"] for row in value["answers"][0]["rows"]]
    assert texts[:2] == ["assistant: I write a credit note", "on the line ticket-4711@try-b"]
    main = json.loads(run("audit", "ticket-4711", "--json", store=url).stdout)
    assert main["answers"][3]["rows"][0]["text"].startswith("triage: 120 tokens in, 30 out")


def test_usage_that_nobody_reports_is_not_told_as_zero(sqlite_url: str, tmp_path: Path) -> None:
    with rb.open_store(sqlite_url) as store:
        s = store.create("quiet")
        s = s.append(
            rb.message("user", "Hello"),
            rb.draft(Inference(model="m", agent="a")),
            rb.draft(Inference(model="m", agent="b", usage=Usage(input_tokens=0, output_tokens=0))),
        )
        s.detach("partly").append(rb.draft(Inference(model="m", agent="b", usage=Usage(input_tokens=7))))

    def spending(name: str) -> list[str]:
        found = json.loads(run("audit", name, "--json", store=sqlite_url).stdout)["answers"]
        return [row["text"] for one in found if one["name"] == "spending" for row in one["rows"]]

    def page(name: str) -> str:
        assert run("packet", name, "-o", str(tmp_path / name), store=sqlite_url).exit_code == 0
        return (tmp_path / name / "report.html").read_text()

    silent = [f"{name}: usage not on record, 1 model call (m)" for name in "ab"]
    assert spending("quiet") == silent
    assert spending("partly") == [
        "b: 7 tokens in, 0 out, 2 model calls (m); 1 of 2 model calls report usage", silent[0],
    ]  # fmt: skip
    assert "<b>–</b><span>tokens: usage not on record</span>" in page("quiet")
    assert "<b>7</b><span>tokens, 1 of 3 model calls report usage</span>" in page("partly")


def test_a_packet_says_what_it_would_not_write(url: str, tmp_path: Path) -> None:
    refused = run("packet", "copy", "-o", str(tmp_path / "p.tar"), store=url)
    assert refused.exit_code == 2
    assert "archives end in .zip" in refused.stderr
    assert not (tmp_path / "p.tar").exists()
    assert run("packet", "copy", "-o", str(tmp_path / "p.zip"), store=url).exit_code == 0
    again = run("packet", "copy", "-o", str(tmp_path / "p.zip"), store=url)
    assert again.exit_code == 2
    assert "pass --force, or choose another path" in again.stderr
    assert "overwrite=True" not in again.stderr
    asked = run("log", "copy", "--kind", "mesage", store=url)
    assert "did you mean 'message'? See:" in asked.stderr
