"""What attackers, killed processes and odd words do to packets, claims, signatures, redactions and boundaries."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

import rath_bridge as rb
from rath_bridge.errors import PacketError, PacketExistsError, StoreUnavailableError
from rath_bridge.evidence import Claim, aside, claim_draft, countersigning, sign_packet
from rath_bridge.evidence.claims import ClaimError, claim_of
from rath_bridge.evidence.history import History
from rath_bridge.interchange.transfer import PacketOrigin
from rath_bridge.maintenance import prune, redact
from rath_bridge.model.chunk import Draft, draft, now
from rath_bridge.model.kinds import Gap, Note, Run
from rath_bridge.verbs.fsck import Finding
from tests.cli_store import run
from tests.test_evidence_packet import contents
from tests.test_evidence_tamper import Files, check, packet, resummed

HALF = "\ud800 half"

# ---------------------------------------------------------------- an attacker who makes every sum anew


def changed_refs(change: Callable[[dict[str, Any]], object], session: Any = None) -> Files:
    """The packet with a change in its first ref; manifest and sums say the same."""
    files = packet()[0]
    refs, manifest = orjson.loads(files["refs.json"]), orjson.loads(files["manifest.json"])
    change(refs["refs"][0])
    if session is not None:
        for ref in refs["refs"]:
            ref["session"] = session
        manifest["sessions"] = [str(session)]
    manifest["heads"] = {
        str(ref["session"]) if ref["branch"] == "main" else f"{ref['session']}@{ref['branch']}": ref["head"]
        for ref in refs["refs"]
    }
    return resummed(files | {"refs.json": orjson.dumps(refs), "manifest.json": orjson.dumps(manifest)})


@pytest.mark.parametrize("name", ["", " ", "a b", "x\ny", "\x1b[2J", "a" * 401, 5, True], ids=repr)
def test_a_session_of_an_impossible_name_is_found_and_not_imported(tmp_path: Path, name: Any) -> None:
    files = changed_refs(lambda _: None, name)
    assert any(
        "a ref that cannot be read" in one.problem and one.path.startswith("refs.json") for one in check(files, "zip").findings
    )
    for file, data in files.items():
        (tmp_path / "p" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "p" / file).write_bytes(data)
    with pytest.raises(PacketError, match="rath-bridge verify"):
        PacketOrigin(tmp_path / "p")


@pytest.mark.parametrize(
    "change",
    [
        lambda ref: ref.update(branch="b\n@x"),
        lambda ref: ref.update(position=float(ref["position"])),
        lambda ref: ref["reflog"][0].update(at="yesterday"),
        lambda ref: ref["reflog"][0].pop("at"),
        lambda ref: ref["reflog"][0].update(reason=7),
    ],
)  # fmt: skip
def test_a_ref_of_another_form_is_found(change: Callable[[dict[str, Any]], object]) -> None:
    assert any(one.path.startswith("refs.json") for one in check(changed_refs(change), "directory").findings)


@pytest.mark.parametrize(
    "told", [{"erased": 5}, {"erased": [7]}, {"absent": "x"}, {"absent": ["zz"]}, {"absent": ["a" * 64]}], ids=repr
)
def test_a_manifest_that_lists_what_cannot_be_is_found(told: dict[str, Any]) -> None:
    files, _, head = packet()
    manifest = orjson.dumps(orjson.loads(files["manifest.json"]) | told)
    assert any(one.path == "manifest.json" for one in check(resummed(files | {"manifest.json": manifest}), "zip", head).findings)


def test_a_history_beside_the_known_one_is_told(tmp_path: Path) -> None:
    store = rb.open_store("memory:")
    known = store.create("kept-elsewhere").append(rb.message("user", "Do not pay."))
    forged = store.create("ticket").append(rb.message("user", "Pay."))
    report = rb.verify_packet(rb.export_packet([known, forged], tmp_path / "p.zip"), head=known.head)
    assert any("does not vouch for ticket:" in note for note in report.notes)
    alone = rb.verify_packet(rb.export_packet(known, tmp_path / "alone.zip"), head=known.head)
    assert not any("vouch" in note for note in alone.notes)


def test_what_follows_a_known_head_and_what_leaves_it_are_told_apart(tmp_path: Path) -> None:
    s = rb.open_store("memory:").create("a").append(rb.message("user", "one"))
    side = s.fork("side")
    s.append(rb.message("user", "two"))
    report = rb.verify_packet(rb.export_packet(s, tmp_path / "p.zip"), head=s.head)
    assert report.ok
    assert any("added after the known head" in note for note in report.notes)
    assert not any("not vouch" in note for note in report.notes)
    assert any("does not vouch for a:" in note for note in rb.verify_packet(tmp_path / "p.zip", head=side.head).notes)


def test_coverage_that_hides_its_holes_is_contradicted(tmp_path: Path) -> None:
    s = rb.open_store("memory:").create("a").append(draft(Gap(count=3, reason="the disk was full")))
    files = contents(rb.export_packet(s, tmp_path / "p.zip"))
    told = orjson.loads(files["coverage.json"])
    assert told["holes"]
    report = check(resummed(files | {"coverage.json": orjson.dumps(told | {"holes": []})}), "zip", s.head)
    assert report.verdicts["coverage"] == "contradicted"


def test_equal_bodies_out_of_order_are_looked_at_once() -> None:
    """Looking for a free one from the start each time took hours for a packet of some megabytes."""
    findings: list[Finding] = []
    history = History(findings)
    many = 20_000
    for number in range(1, 2 * many, 2):
        history.body(number, b"{}")
        history.body(number + 1, b"[]")
    line = b'{"at":"2026-11-29T22:19:47.464249Z","body":"%b","kind":"note","n":%d,"size":2}'
    name = b"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    begun = time.process_time()
    for number in range(many):
        history.chunk(number + 1, line % (name, number), set())
    assert time.process_time() - begun < 10
    assert not any("is missing or was changed" in one.problem for one in findings if one.path.startswith("chunks"))


# ---------------------------------------------------------------- odd words and huge values


@pytest.mark.parametrize(
    "odd",
    [
        {"sentence": HALF}, {"id": HALF}, {"by": HALF}, {"command": HALF}, {"precondition": HALF}, {"quotes": (HALF,)},
        {"counts": {HALF: 1}}, {"counts": {1: 1}}, {"counts": {"gap": 1 << 70}},
    ],
    ids=repr,
)  # fmt: skip
def test_a_claim_that_no_ledger_can_hold_is_refused(odd: dict[str, Any]) -> None:
    with pytest.raises(ClaimError):
        Claim(**{"id": "x", "sentence": "y", **odd})


@pytest.mark.parametrize("field", ["id", "sentence", "status", "basis"])
def test_a_claim_without_what_it_needs_is_refused(field: str) -> None:
    with pytest.raises(ClaimError):
        claim_of({"id": "x", "sentence": "y", field: None})


def test_a_record_that_holds_such_a_claim_still_makes_a_packet(tmp_path: Path) -> None:
    one: Draft = draft(Note(text="x", attributes={"rath.claim": {"id": "x", "sentence": HALF, "counts": {"gap": 1 << 70}}}))
    s = rb.open_store("memory:").create("a").append(one, claim_draft(Claim(id="z", sentence="It holds.")))
    report = rb.verify_packet(rb.export_packet(s, tmp_path / "p.zip"), head=s.head)
    assert report.ok
    assert [verdict.claim.id for verdict in report.claims] == ["z"]


def test_a_packet_that_no_check_would_read_is_not_written(tmp_path: Path) -> None:
    s = rb.open_store("memory:").create("a")
    with pytest.raises(PacketError, match=r"claims\.json would have .* make it shorter"):
        rb.export_packet(s, tmp_path / "p.zip", claims=[Claim(id="x", sentence="long " * (4 << 20))])
    with pytest.raises(PacketError, match=r"environment\.json cannot be written"):
        rb.export_packet(s, tmp_path / "p.zip", environment={"x": {1, 2}})
    assert list(tmp_path.iterdir()) == []


def test_a_packet_is_not_written_over_the_directory_one_works_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    s = rb.open_store("memory:").create("a")
    for place in (".", "..", "new/..", "../here"):
        with pytest.raises(PacketExistsError, match="choose the name of a new one"):
            rb.export_packet(s, place)
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "here"]


# ---------------------------------------------------------------- processes that die, and two at once


def keys(place: Path, *names: str) -> list[Path]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    for name in names:
        key = Ed25519PrivateKey.generate()
        (place / name).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return [place / name for name in names]


def test_a_signer_that_dies_leaves_the_packet_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (key,) = keys(tmp_path, "key")
    s = rb.open_store("memory:").create("a")
    where = rb.export_packet(s, tmp_path / "p")

    def died(_: int) -> None:
        assert sorted(path.name for path in where.glob("*.sig")) == []
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", died)
        with pytest.raises(KeyboardInterrupt):
            sign_packet(where, [key])
    assert rb.verify_packet(where).ok
    assert [one.file for one in sign_packet(where, [key])] == ["SHA256SUMS.sig"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key", "p"]


@pytest.mark.parametrize("form", ["p", "p.zip"])
def test_of_two_signers_at_once_one_wins_and_the_other_is_told(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = keys(tmp_path, "one", "two")
    s = rb.open_store("memory:").create("a")
    where = rb.export_packet(s, tmp_path / form)
    looked = countersigning.verify_packet

    def slow(place: Path) -> Any:
        report = looked(place)
        monkeypatch.setattr(countersigning, "verify_packet", looked)
        with pytest.raises(PacketError, match="sign it once more"):
            sign_packet(where, [second])
        return report

    monkeypatch.setattr(countersigning, "verify_packet", slow)
    assert len(sign_packet(where, [first])) == 1
    assert len(sign_packet(where, [second])) == 1
    assert len(rb.verify_packet(where).signatures) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["one", "two", form])


@pytest.mark.parametrize("form", ["p", "p.zip"])
def test_without_locks_a_packet_that_changed_meanwhile_is_left_as_it_is(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aside, "fcntl", None)
    first, second = keys(tmp_path, "one", "two")
    s = rb.open_store("memory:").create("a")
    where = rb.export_packet(s, tmp_path / form)
    looked = countersigning.verify_packet

    def slow(place: Path) -> Any:
        report = looked(place)
        monkeypatch.setattr(countersigning, "verify_packet", looked)
        sign_packet(where, [second])
        return report

    monkeypatch.setattr(countersigning, "verify_packet", slow)
    with pytest.raises(PacketError, match="sign it once more"):
        sign_packet(where, [first])
    assert len(rb.verify_packet(where, keys=[]).signatures) == 1
    assert len(sign_packet(where, [first])) == 1
    assert len(rb.verify_packet(where).signatures) == 2


KILLED = """
import os, signal, sys
from pathlib import Path
import rath_bridge as rb
s = rb.open_store("memory:").create("a").append(*(rb.message("user", f"{n} " * 300) for n in range(20)))
def die(done):
    os.kill(os.getpid(), signal.SIGKILL)
rb.export_packet(s, sys.argv[1], progress=die)
"""


@pytest.mark.parametrize("form", ["p", "p.zip", "p[1]*.zip"])
def test_the_next_run_removes_what_a_killed_one_left_and_nothing_that_lives(tmp_path: Path, form: str) -> None:
    where = tmp_path / form
    assert subprocess.run([sys.executable, "-c", KILLED, str(where)], timeout=60).returncode == -9
    assert list(tmp_path.iterdir())
    s = rb.open_store("memory:").create("a").append(rb.message("user", "hello"))
    mine = tmp_path / f".{form}.mine.part"
    mine.write_text("nobody else's business")
    faster: list[Path] = []

    def another(_: int) -> None:  # a second run that is faster than the first
        if not faster:
            faster.append(where)
            rb.export_packet(s, where)

    with pytest.raises(PacketExistsError):
        rb.export_packet(s.append(rb.message("user", "slow")), where, progress=another)
    assert rb.verify_packet(where).chunks == 3
    assert {path.name for path in tmp_path.iterdir()} == {form, mine.name}
    rb.export_packet(s.append(rb.message("user", "more")), where, overwrite=True)
    assert rb.verify_packet(where).chunks == 4
    assert {path.name for path in tmp_path.iterdir()} == {form, mine.name}


def test_many_runs_at_one_place_leave_one_whole_packet(tmp_path: Path) -> None:
    s = rb.open_store("memory:").create("a").append(rb.message("user", "hello"))
    for form in ("p", "p.zip"):
        with ThreadPoolExecutor(6) as pool:
            for done in [pool.submit(rb.export_packet, s, tmp_path / form, overwrite=True) for _ in range(24)]:
                done.result()
        assert rb.verify_packet(tmp_path / form).ok
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p", "p.zip"]


def test_a_prune_that_was_cut_short_is_completed_by_the_next(tmp_path: Path) -> None:
    store = rb.open_store(f"sqlite:///{tmp_path / 's.db'}")
    store.create("a").append(rb.message("user", "ZEBRA " * 100))
    prune(store, timedelta(0), scrub=False)  # as if it had died before it wrote the file anew
    prune(store, timedelta(0))
    store.close()
    assert not any(b"ZEBRA" in path.read_bytes() for path in tmp_path.iterdir())


def test_a_run_that_still_works_in_a_fork_keeps_its_beginning_everywhere() -> None:
    store = rb.open_store("memory:")
    s = store.create("a").append(draft(Run(phase="begin", name="r"), run="a" * 16), rb.message("user", "x"))
    other = s.fork(session="other")
    time.sleep(0.02)
    middle = now()
    time.sleep(0.02)
    other.append(draft(Run(phase="end", name="r", status="ok"), run="a" * 16))
    prune(store, timedelta(microseconds=now() - middle))
    kept = [(chunk.kind, chunk.body_bytes is not None) for chunk in store.session("other")[:3]]
    assert kept == [("session", True), ("run", True), ("message", False)]
    assert list(store.fsck()) == []


def test_a_forgotten_reader_is_named_and_does_not_hold_up_a_rewrite_for_ever(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    from rath_bridge.store import postgres

    monkeypatch.setattr(postgres, "_PATIENCE", 1)
    with rb.open_store(postgres_url) as store:
        s = store.create("a").append(rb.message("user", "ZEBRA"))
        with psycopg.connect(postgres_url) as reader:
            reader.execute("SELECT count(*) FROM rath_ref")
            with pytest.raises(StoreUnavailableError, match="until it is scrubbed again"):
                redact(store, [s[1].id], reason="asked")
        redact(store, [s[1].id], reason="asked")
        assert list(store.fsck()) == []


# ---------------------------------------------------------------- the command line


@pytest.fixture
def cli(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 's.db'}"
    with rb.open_store(url) as store:
        store.create("a").append(rb.message("user", "the word ZEBRA"))
    return url


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("redact", "--text", "", "--reason", "x", "--yes"), "--text is empty"),
        (("redact", "--text", "ZEBRA", "--reason", "remove ZEBRA", "--yes"), "stay on record"),
        (("redact", "--text", "ZEBRA", "--reason", "x", "--by", "ZEBRA", "--yes"), "stay on record"),
        (("prune", "--keep", "999999y", "--dry-run"), "before the year 1"),
        (("redact", "--object", "a" * 64, "--reason", "x", "--yes"), "no such object"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(cli: str, arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments, store=cli)
    assert done.exit_code == (1 if arguments[1] == "--object" else 2)
    assert words in " ".join(done.stderr.split())
    assert run("fsck", store=cli).exit_code == 0
    with rb.open_store(cli) as store:
        assert len(store.session("a")) == 2
