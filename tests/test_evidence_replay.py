"""Claims that rest on a replay: the replay is made, what came of it is on record, and a check makes it again."""

from __future__ import annotations

import json
from pathlib import Path

import orjson
import pytest

import rath_bridge as rb
from rath_bridge.evidence import Claim, replay_draft
from rath_bridge.evidence.judging import check_session
from rath_bridge.evidence.replayed import as_replayed, recorded_replay
from rath_bridge.replay.script import script
from tests.cli_store import run
from tests.test_evidence_packet import contents

SCRIPT = str(Path(__file__).parent / "replay" / "script_of_a_user.py")
WORDS = ("python", SCRIPT)


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store into which the script has recorded one run."""
    monkeypatch.chdir(tmp_path)
    for name, value in {"STORE": "sqlite:///runs.db", "RAN": "ran", "OPENAI_AGENTS_DISABLE_TRACING": "0"}.items():
        monkeypatch.setenv(name, value)
    script(list(WORDS))()
    Path("ran").unlink()
    return "sqlite:///runs.db"


def test_a_claim_rests_on_a_replay_that_is_on_record_and_is_made_again(url: str, tmp_path: Path) -> None:
    made = run(
        "claim", "add", "ticket", "again", "The run comes out the same.", "--status", "supported", "--by", "ann", "--json", "--", *WORDS,
        store=url,
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    (claim,) = json.loads(made.stdout)["claims"]
    assert (claim["found"], claim["basis"], claim["command"]) == (
        "supported",
        "replay",
        f"rath-bridge replay ticket -- python {SCRIPT}",
    )
    with rb.open_store(url) as store:
        s = store.session("ticket")
        told = recorded_replay(store.backend.chunk(claim["evidence"][0]))
        assert told is not None
        assert (told["equal"], told["served"], told["live"], told["head"]) == (True, 3, 0, as_replayed(s).head)
        assert len(as_replayed(s)) == len(s) - 2
        packet = rb.export_packet(s, tmp_path / "p.zip", environment=False)
    assert run("claim", "check", "ticket", "--", *WORDS, store=url).exit_code == 0
    lowered = run("claim", "check", "ticket", "--json", "--", *WORDS, "something else", store=url)
    assert lowered.exit_code == 1
    (again,) = json.loads(lowered.stdout)["claims"]
    assert again["found"] == "pending"
    assert "the replay diverged: model call of Solo" in again["reasons"][0]
    assert not Path("ran").exists()  # nothing ran
    report = rb.verify_packet(packet)
    assert report.ok
    assert [one.found for one in report.claims] == ["supported"]
    commands = orjson.loads(contents(packet)["commands.json"])
    assert "rath-bridge replay ticket -- python PROGRAM" in commands["replay"]["commands"]
    assert commands["claims"] == [{"claim": "again", "command": claim["command"]}]


def test_a_replay_that_diverged_is_no_evidence(url: str) -> None:
    made = run(
        "claim",
        "add",
        "ticket",
        "again",
        "The run comes out the same.",
        "--status",
        "supported",
        "--",
        *WORDS,
        "other words",
        store=url,
    )
    assert made.exit_code == 1, made.output
    assert "came out equal" in made.output
    with rb.open_store(url) as store:
        report = rb.replay(as_replayed(store.session("ticket")), script(list(WORDS)))
        s = store.session("ticket").append(replay_draft(report))
        claim = Claim(id="c", sentence="s", status="supported", basis="replay", evidence=(s.head,))
        assert [one.found for one in check_session(s, [claim]) if one.claim.id == "c"] == ["supported"]
    assert run("claim", "check", "ticket", "p.zip", "--", "python", store=url).exit_code != 0


def test_a_packet_is_not_replayed_where_it_lies(url: str, tmp_path: Path) -> None:
    with rb.open_store(url) as store:
        place = rb.export_packet(store.session("ticket"), tmp_path / "p.zip")
    assert run("claim", "check", str(place), "--", *WORDS, store=url).exit_code == 2
