"""The claims ledger: no evidence, no *supported*; checking can only lower a claim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rath_bridge as rb
from rath_bridge.evidence import Claim, ClaimVerdict, claim_draft, read_claims
from rath_bridge.evidence.claims import BASES, STATUSES, ClaimError, check_claim, claim_of
from rath_bridge.model.kinds import Approval, SessionStart, ToolCall
from tests.rich_session import LONG
from tests.test_evidence_packet import contents
from tests.test_evidence_tamper import check, resummed


def story(store: rb.Store) -> rb.Session:
    return store.create("refund").append(
        rb.message("user", LONG),
        rb.draft(Approval(phase="granted", by="ann", call_id="c1", subject="refund of 12.50")),
        rb.draft(ToolCall(name="refund", call_id="c1", arguments={"amount": 12.5})),
        rb.draft(SessionStart(op="replay", name="again", of="refund")),
    )


def verdict(s: rb.Session, **fields: Any) -> ClaimVerdict:
    claim = Claim(**{"id": "c", "sentence": "It is so.", "status": "supported", **fields})
    chunks = {c.id: c for c in s.chunks()}
    tally = {"approval": 1, "approval:granted": 1, "tool_call:refund": 1}
    return check_claim(claim, chunks.get, tally)


def test_what_holds_and_what_does_not() -> None:
    s = story(rb.open_store("memory:"))
    user, approval, call, replay = (c.id for c in s[1:])
    for fields, found in (
        ({"evidence": (approval,)}, "supported"),
        ({"evidence": (approval,), "quotes": ("ann", "12.50"), "counts": {"approval:granted": 1, "gap": 0}}, "supported"),
        ({"evidence": (user,), "quotes": ("report says 42",)}, "supported"),  # inside of a blob
        ({"evidence": (call,), "quotes": ("12.5",)}, "supported"),
        ({}, "pending"),
        ({"basis": "word"}, "pending"),
        ({"evidence": ("a" * 64,)}, "pending"),
        ({"evidence": ("a" * 64, approval)}, "partial"),
        ({"evidence": (approval,), "quotes": ("ben",)}, "pending"),
        ({"evidence": (approval,), "counts": {"tool_call:refund": 2}}, "pending"),
        ({"evidence": (approval,), "basis": "replay"}, "partial"),
        ({"evidence": (replay,), "basis": "replay"}, "supported"),
        ({"evidence": (approval,), "status": "conditional"}, "pending"),
        ({"evidence": (approval,), "status": "conditional", "precondition": "the clock is right"}, "conditional"),
        ({"evidence": (approval, "a" * 64), "status": "partial"}, "partial"),
        ({"status": "partial"}, "pending"),
        ({"status": "positioning"}, "positioning"),
        ({"status": "pending"}, "pending"),
    ):
        got = verdict(s, **fields)
        assert got.found == found, (fields, got)
        assert got.holds or got.reasons


evidence = st.lists(st.sampled_from(["a" * 64, "b" * 64]), max_size=2, unique=True).map(tuple)


@given(st.sampled_from(STATUSES), st.sampled_from(BASES), evidence, st.booleans(), st.booleans())
def test_a_check_never_raises_a_claim(status: str, basis: str, evidence: tuple[str, ...], there: bool, condition: bool) -> None:
    s = story(rb.open_store("memory:"))
    claim = Claim(
        id="c", sentence="So.", status=status, basis=basis, evidence=evidence, precondition="x" if condition else None
    )  # fmt: skip
    found = check_claim(claim, (lambda _: s[2]) if there else (lambda _: None), {})
    rank = {"supported": 3, "partial": 2, "conditional": 2, "pending": 1, "positioning": 0}
    assert found.holds or rank[found.found] < rank[status]
    if found.found == "supported":
        assert evidence
        assert there


def test_a_claim_travels_in_its_session_and_is_looked_at_again(tmp_path: Path) -> None:
    s = story(rb.open_store("memory:"))
    first = Claim(id="approved", sentence="A person approved.", status="pending", by="ben")
    second = Claim(
        id="approved", sentence="A person approved.", status="supported", evidence=(s[2].id,), by="ben", quotes=("ann",)
    )
    s = s.append(claim_draft(first), rb.message("user", "meanwhile"), claim_draft(second))
    more = [Claim(id="tested", sentence="It was tested.", status="supported", basis="word", command="make test")]
    packet = rb.export_packet(s, tmp_path / "p", claims=more)
    report = rb.verify_packet(packet)
    assert report.ok
    assert {v.claim.id: (v.claim, v.found) for v in report.claims} == {
        "approved": (second, "supported"), "tested": (more[0], "pending"),
    }  # fmt: skip
    assert report.verdicts["claims"] == "1 of 2 lowered"
    files = contents(packet)
    assert orjson.loads(files["commands.json"])["claims"] == [{"claim": "tested", "command": "make test"}]
    assert "| tested | It was tested. | word | pending |" in files["VERIFY.md"].decode()
    with pytest.raises(ClaimError, match="another claim has this id"):
        rb.export_packet(s, tmp_path / "q", claims=[Claim(id="approved", sentence="Other.")])
    for change in (
        lambda rows: rows.pop(0),
        lambda rows: rows[0].update(sentence="A person was asked."),
    ):  # the ledger must tell what the record holds
        value = orjson.loads(files["claims.json"])
        change(value["claims"])
        again = check(resummed(files | {"claims.json": orjson.dumps(value)}), "directory")
        assert [f.object for f in again.findings] == ["approved"]


def test_a_ledger_is_yaml_or_json(tmp_path: Path) -> None:
    s = story(rb.open_store("memory:"))
    (tmp_path / "claims.yaml").write_text(
        f"claims:\n- id: approved\n  sentence: A person approved.\n  status: supported\n  evidence: [{s[2].id}]\n"
        "  counts: {'approval:granted': 1}\n- {id: kind, sentence: We are kind., status: positioning}\n"
    )
    found = read_claims(tmp_path / "claims.yaml")
    assert found[0] == Claim(
        id="approved", sentence="A person approved.", status="supported", evidence=(s[2].id,), counts={"approval:granted": 1}
    )
    (tmp_path / "claims.json").write_bytes(orjson.dumps([one.to_json() for one in found]))
    assert read_claims(tmp_path / "claims.json") == found


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({}, "id and a sentence"), ([], "no map"), ({"id": "x"}, "sentence"), ({"id": "x", "sentence": " "}, "sentence"),
        ({"id": "x", "sentence": "y", "status": "true"}, "supported, partial"), ({"id": "x", "sentence": "y", "basis": 3}, "no text"),
        ({"id": "x", "sentence": "y", "evidence": ["abc"]}, "64"), ({"id": "x", "sentence": "y", "evidence": "abc"}, "no list"),
        ({"id": "x", "sentence": "y", "counts": {"gap": -1}}, "counts"), ({"id": "x", "sentence": "y", "counts": 3}, "no map"),
        ({"id": "x", "sentence": "y", "proof": 3}, "unknown fields proof"),
    ],
)  # fmt: skip
def test_what_is_no_claim_is_refused(value: Any, told: str) -> None:
    with pytest.raises(ClaimError, match=told):
        claim_of(value)


@pytest.mark.parametrize(
    "text", ["claims: [", "3", "claims: {}", "- {id: a, sentence: b}\n- {id: a, sentence: c}", "!!python/name:os.system"]
)
def test_files_that_are_no_ledger(tmp_path: Path, text: str) -> None:
    (tmp_path / "claims.yaml").write_text(text)
    with pytest.raises(ClaimError):
        read_claims(tmp_path / "claims.yaml")


@pytest.mark.parametrize("value", [3, {"claims": 3}, {"claims": [3]}, {"claims": [{"id": "x"}]}])
def test_a_ledger_of_any_form_in_a_packet_is_a_finding(tmp_path: Path, value: Any) -> None:
    files = contents(rb.export_packet(story(rb.open_store("memory:")), tmp_path / "p"))
    report = check(resummed(files | {"claims.json": orjson.dumps(value)}), "zip")
    assert "claims.json" in {f.object for f in report.findings}


def test_a_note_that_only_looks_like_a_claim_stops_nothing(tmp_path: Path) -> None:
    from rath_bridge.model.kinds import Note

    s = rb.open_store("memory:").create("s").append(rb.draft(Note(text="x", attributes={"rath.claim": {"id": 3}})))
    report = rb.verify_packet(rb.export_packet(s, tmp_path / "p"))
    assert report.ok
    assert report.claims == ()


def test_a_claim_whose_words_are_gone_stops_nothing(tmp_path: Path) -> None:
    store = rb.open_store("memory:")
    s = store.create("s").append(claim_draft(Claim(id="long", sentence=LONG, status="supported")))
    backend: Any = store.backend
    for name in list(backend._objects):
        del backend._objects[name]
    report = rb.verify_packet(rb.export_packet(s, tmp_path / "p"))
    assert report.ok
    assert report.coverage is not None
    assert report.claims == ()
