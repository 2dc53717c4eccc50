"""Packets of every version that was ever written still verify, and are found out when they are changed."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

import rath_bridge as rb
from rath_bridge.evidence import layout
from rath_bridge.evidence.beside import index_entry
from tests.formats.packets.make import KEY
from tests.test_evidence_packet import contents
from tests.test_evidence_tamper import check, resummed, rewrite

PLACE = Path(__file__).parent / "formats"
PACKETS = [PLACE / "v1" / "packet.zip", *sorted((PLACE / "packets").glob("*.zip"))]


@pytest.mark.parametrize("path", PACKETS, ids=lambda path: path.parent.name + path.stem)
def test_it_verifies_without_a_finding(path: Path) -> None:
    report = rb.verify_packet(path)
    assert report.findings == ()
    assert report.coverage is not None
    assert report.coverage.contradictions == ()
    assert report.coverage.facts["chunks"] == report.chunks


def test_version_1_has_neither_claims_nor_signatures_nor_room_for_them() -> None:
    files = contents(PACKETS[0])
    assert set(files) >= set(layout.REQUIRED)
    assert not set(files) & set(layout.ADDED)
    report = rb.verify_packet(PACKETS[0])
    assert (report.claims, report.signatures) == ((), ())
    added = check(resummed(files | {"coverage.json": b"{}"}), "zip")
    assert [f.object for f in added.findings] == ["coverage.json"]


def test_version_2_is_signed_and_claims(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.from_private_bytes(KEY).public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    (tmp_path / "key.pub").write_bytes(key)
    report = rb.verify_packet(PACKETS[1], keys=[tmp_path / "key.pub"])
    assert report.ok
    assert len(report.signatures) == 2
    assert [(one.claim.id, one.found) for one in report.claims] == [("answered", "supported"), ("kind", "pending")]
    assert report.coverage is not None
    assert report.coverage.facts["gaps"]["lost"] == 2


def test_a_version_2_packet_cannot_pass_as_version_1() -> None:
    files = contents(PACKETS[1])
    lowered = rewrite(files, "manifest.json", lambda value: value.update(version=1))
    assert {f.object for f in check(lowered, "directory").findings} >= {"coverage.json", "claims.json", "SHA256SUMS.sig"}
    bare = {name: data for name, data in files.items() if name not in layout.ADDED and not layout.SIGNATURE.match(name)}
    assert {f.object for f in check(resummed(bare), "zip").findings} == set(layout.ADDED)


def test_todays_version_is_among_them() -> None:
    assert orjson.loads(contents(PACKETS[-1])["manifest.json"])["version"] == layout.VERSION
    assert PACKETS[-1].stem == f"v{layout.VERSION}"


def test_version_3_carries_the_index_and_the_spans() -> None:
    files = contents(PACKETS[2])
    assert [index_entry(line) for line in files["index.jsonl"].splitlines()]
    assert set(files) >= set(layout.INDEXED)
    lowered = rewrite(files, "manifest.json", lambda value: value.update(version=2))
    assert "index.jsonl" in {found.object for found in check(resummed(lowered), "zip").findings}
