"""One packet of several sessions, of four frameworks and three kinds of stores: checked by strangers' tools, shown, asked, imported."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

import rath_bridge as rb
from rath_bridge.evidence import Claim, PacketReport, claim_draft, replay_draft
from rath_bridge.evidence.audit import audit, audit_packet
from rath_bridge.interchange.transfer import PacketOrigin, transfer
from rath_bridge.model.kinds import Approval, Compaction, Inference, Placement, ToolCall, ToolResult, Usage
from rath_langgraph import RathSaver
from tests.browser import look_at, needs_browser
from tests.replay.mixed import Answers, program
from tests.test_evidence_packet import contents
from tests.test_evidence_signing import make_key, shell_lines

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen on this machine")


@pytest.fixture(scope="module")
def dossier(tmp_path_factory: pytest.TempPathFactory, postgres_server: str) -> Iterator[tuple[Path, rb.Session]]:
    """The packet, and the session of the mixed stack."""
    from tests.postgres_server import fresh_database

    place = tmp_path_factory.mktemp("mixed")
    with (
        fresh_database(postgres_server) as url,
        rb.open_store(f"sqlite:///{place / 's.db'}") as mixed,
        rb.open_store(url) as other,
    ):
        asyncio.run(program(mixed, Answers(), wire=True)())
        s = mixed.session("ticket")
        s = s.append(
            rb.draft(Approval(phase="asked", subject="the letter")),
            rb.draft(Approval(phase="granted", by="ann", subject="the letter")),
        )
        report = rb.replay(mixed.session("ticket"), program(mixed, Answers(silent=True), wire=True))
        s = s.append(replay_draft(report, command="rath-bridge replay ticket -- python PROGRAM"))
        claim = Claim(
            id="approved", sentence="Ann approved the letter.", status="supported", evidence=(s[-2].id,), quotes=("ann",)
        )
        s = s.append(claim_draft(claim))
        side = other.create("side").append(
            rb.message("user", "and the refund?"),
            rb.draft(Inference(model="m", agent="clerk", usage=Usage(input_tokens=5, output_tokens=2))),
            rb.draft(ToolCall(name="refund", call_id="c1", arguments={"order": 1}, effect="writes")),
            rb.draft(ToolResult(name="refund", call_id="c1", status="error", error="the bank is closed")),
            rb.draft(ToolCall(name="refund", call_id="c2", arguments={"order": 1}, effect="writes")),
            rb.draft(Placement(backend="local")), rb.message("assistant", "It is on its way."),
        )  # fmt: skip
        side = side.append(rb.draft(Compaction(dropped=(side[1].id,), reason="full")))
        memory = rb.open_store("memory:").create("notes").append(rb.message("user", "kept in memory"))
        keys = [make_key(place, name) for name in ("ann", "ben")]
        packet = rb.export_packet([s, side, memory], place / "packet", sign_with=keys)
        yield packet, s


def checked(packet: Path) -> PacketReport:
    report = rb.verify_packet(packet, keys=[packet.parent / "ann.pub", packet.parent / "ben.pub"])
    assert report.findings == ()
    return report


def test_it_holds_sessions_of_every_framework_and_store(dossier: tuple[Path, rb.Session]) -> None:
    packet, s = dossier
    report = checked(packet)
    assert set(report.sessions) >= {"ticket", "side", "notes"}
    assert report.coverage is not None
    told = " ".join(report.coverage.adapters())
    for framework in ("langgraph", "openai_agents", "autogen", "mcp"):
        assert framework in told
        assert report.coverage.blind_spots[framework]
    assert [one.found for one in report.claims] == ["supported"]
    assert report.heads["ticket"] == s.head
    assert "langgraph" in {orjson.loads(line)["framework"] for line in contents(packet)["index.jsonl"].splitlines()}
    assert contents(packet)["spans.otlp.jsonl"]


def test_coreutils_and_openssh_alone_agree(dossier: tuple[Path, rb.Session]) -> None:
    packet, s = dossier
    page = (packet / "VERIFY.md").read_text()
    shutil.copy(packet.parent / "ann.pub", packet.parent / "signer.pub")
    lines = [line.replace("signer.pub", "../signer.pub") for line in shell_lines(page)]
    path = os.pathsep.join(
        {
            str(Path(tool).parent)
            for name in ("sha256sum", "ssh-keygen", "cut", "grep", "comm", "mktemp")
            if (tool := shutil.which(name))
        }
    )
    done = subprocess.run(
        ["/bin/bash", "-euc", "\n".join(lines)], cwd=packet, env={"PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert 'Good "rath-bridge-packet" signature' in done.stdout
    assert re.search(r"^\d+$", done.stdout, re.MULTILINE), "the first head's line was found"
    assert s.head in page


def test_it_comes_back_with_equal_heads_and_its_thread_is_found(dossier: tuple[Path, rb.Session]) -> None:
    packet, s = dossier
    there = rb.open_store("memory:")
    transfer(PacketOrigin(packet), there)
    assert {ref.name: ref.head for ref in there.backend.refs()} == dict(checked(packet).heads)
    assert list(there.fsck(head=s.head)) == []
    found = RathSaver(there).get_tuple({"configurable": {"thread_id": "4711"}})
    assert found is not None
    assert str(found.checkpoint["channel_values"]["messages"][-1].content).startswith("Dear Ada")


def test_every_audit_question_is_answered_with_evidence(dossier: tuple[Path, rb.Session]) -> None:
    packet, s = dossier
    answers = {one.name: one.rows for one in audit(s)}
    assert {one.name: one.rows for one in audit_packet(packet, "ticket")} == answers
    side = {one.name: one.rows for one in audit_packet(packet, "side")}
    asked = {
        "final_answer": answers, "approvals": answers, "spending": answers, "failures": side, "compaction": side, "unconfirmed": side,
    }  # fmt: skip
    assert set(asked) == set(answers)
    for name, where in asked.items():
        assert where[name], name
        assert all(row.evidence for row in where[name]), name
    final = " ".join(row.text for row in answers["final_answer"])
    assert "on the line" in final
    assert "the last model call before it" in final
    assert "tried again" in " ".join(row.text for row in side["failures"])


@needs_browser
def test_a_browser_shows_the_mixed_dossier_without_an_error_or_a_request(
    dossier: tuple[Path, rb.Session], tmp_path: Path
) -> None:
    packet, _ = dossier
    found = look_at(packet / "report.html", tmp_path, "1200,2400")
    assert "CONSOLE" not in found.said
    assert found.picture.stat().st_size > 20_000
    page = (packet / "report.html").read_text()
    assert not re.search(
        r"<(?:script|iframe|object|embed|link|img|form)\b|\bon\w+=|url\(|https?://",
        page.replace("http://www.w3.org/2000/svg", ""),
    )
    for words in ("ticket", "side", "notes", "Dear Ada", "ann", "Fixer", "reviewer_1"):
        assert words in page
