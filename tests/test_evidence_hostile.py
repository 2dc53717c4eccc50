"""Packets made to do harm: nothing is followed, written or unpacked without measure, and nothing is raised."""

from __future__ import annotations

import os
import stat
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rath_bridge as rb
from rath_bridge.errors import PacketError
from rath_bridge.evidence import layout, reading
from rath_bridge.interchange.transfer import PacketOrigin, transfer
from tests.test_evidence_tamper import check, named, packet, resummed


def archive_with(path: Path, entries: list[tuple[ZipInfo | str, bytes]]) -> Path:
    """The sound packet, and these entries behind it."""
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for name, data in packet()[0].items():
            archive.writestr(name, data)
        for info, data in entries:
            archive.writestr(info, data)
    return path


def link(name: str) -> ZipInfo:
    info = ZipInfo(name)
    info.create_system = 3
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


# ---------------------------------------------------------------- names and links


ESCAPES = (
    "../outside", "/etc/passwd", "blobs/../../outside", "..\\outside", "C:/x", "a//b", "./x", "x\x1b[2J", "\u202egnp.exe",
    "a" * 300, "blobs/ ",
)  # fmt: skip


@pytest.mark.parametrize("name", ESCAPES)
def test_names_that_leave_the_packet_are_findings(tmp_path: Path, name: str) -> None:
    where = archive_with(tmp_path / "p.zip", [(name, b"x")])
    report = rb.verify_packet(where)
    assert not report.ok
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.zip"]
    for finding in report.findings:
        assert finding.object.isprintable()
        assert len(finding.object) <= 301


def test_doubles_and_names_that_differ_in_case_only(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        where = archive_with(tmp_path / "p.zip", [("refs.json", b"{}"), ("REFS.json", b"{}")])
    found = [(f.object, f.problem) for f in rb.verify_packet(where).findings]
    assert [name for name, problem in found if "second file" in problem] == ["refs.json", "REFS.json"]


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    report = rb.verify_packet(archive_with(tmp_path / "p.zip", [(link("blobs/" + "a" * 64), b"/etc/passwd")]))
    assert any("link" in f.problem for f in report.findings)
    with ZipFile(tmp_path / "p.zip") as archive:
        archive.extractall(tmp_path / "p")
    blob = next((tmp_path / "p" / "blobs").iterdir())
    blob.unlink()
    blob.symlink_to(tmp_path / "secret")
    (tmp_path / "p" / "trees" / "more").symlink_to(tmp_path)
    report = rb.verify_packet(tmp_path / "p")
    assert {f.object for f in report.findings if "link" in f.problem} == {f"blobs/{blob.name}", "trees/more"}
    assert any("missing" in f.problem for f in report.findings)


def test_pipes_and_deep_directories_do_not_stop_the_check(tmp_path: Path) -> None:
    with ZipFile(archive_with(tmp_path / "p.zip", [])) as archive:
        archive.extractall(tmp_path / "p")
    os.mkfifo(tmp_path / "p" / "pipe")
    deep = tmp_path / "p"
    for n in range(12):
        deep /= f"d{n}"
        deep.mkdir()
    os.close(os.open(os.fsencode(tmp_path / "p") + b"/\xff\xfe.txt", os.O_CREAT | os.O_WRONLY))
    report = rb.verify_packet(tmp_path / "p")
    problems = {f.object: f.problem for f in report.findings}
    assert "regular" in problems["pipe"]
    assert "directory" in problems["d0"]
    assert "no packet has" in problems["\\udcff\\udcfe.txt"]


# ---------------------------------------------------------------- sizes


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FREE_GROWTH", 1 << 20)
    where = archive_with(tmp_path / "p.zip", [("blobs/" + "a" * 64, bytes(50 << 20))])
    opened: list[str] = []
    monkeypatch.setattr(ZipFile, "open", lambda self, name, *_: opened.append(name))
    report = rb.verify_packet(where)
    assert "no packet does" in report.findings[0].problem
    assert opened == []


@pytest.mark.parametrize("size", [2**31, 2**32 - 2])
def test_sizes_that_are_lies(tmp_path: Path, size: int) -> None:
    where = archive_with(tmp_path / "p.zip", [])
    data = bytearray(where.read_bytes())
    entry = data.rindex(b"PK\x01\x02")
    for offset, field in ((24, size), (20, size)):
        changed = bytearray(data)
        changed[entry + offset : entry + offset + 4] = struct.pack("<I", field)
        where.write_bytes(changed)
        assert not rb.verify_packet(where).ok


def test_lines_and_documents_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    files, _, _ = packet()
    monkeypatch.setattr(layout, "MAX_LINE", 1 << 16)
    monkeypatch.setattr(layout, "MAX_DOCUMENT", 1 << 16)
    lines = files["bodies.jsonl"].splitlines(keepends=True)
    for long in (b"x" * (1 << 20) + b"\n", b"x" * (3 << 20) + b"\n"):
        report = check(resummed(files | {"bodies.jsonl": b"".join([*lines[:3], long, *lines[3:]])}), "directory")
        assert [(f.object, f.path) for f in report.findings] == [
            ("bodies.jsonl", "bodies.jsonl:4"),
            ("manifest.json", "manifest.json"),
        ]
    report = check(files | {"bodies.jsonl": files["bodies.jsonl"] + b"y" * (1 << 20)}, "zip")
    assert named(report, "bodies.jsonl")
    report = check(files | {"refs.json": b" " * (1 << 20)}, "zip")
    assert any("not read" in f.problem for f in report.findings)


def test_what_is_no_packet_at_all(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "dir").mkdir()
    with ZipFile(tmp_path / "empty.zip", "w"):
        pass
    for name in ("text", "empty", "dir", "empty.zip"):
        report = rb.verify_packet(tmp_path / name, head="a" * 64)
        assert not report.ok
        assert report.chunks == 0
    (tmp_path / "dir" / layout.CHUNKS).write_bytes(b"")  # a packet of which nothing else is left
    assert {f.object for f in rb.verify_packet(tmp_path / "dir").findings} >= set(layout.REQUIRED) - {layout.CHUNKS}


def test_encrypted_and_oddly_packed_entries(tmp_path: Path) -> None:
    where = archive_with(tmp_path / "p.zip", [])
    data = where.read_bytes()
    first = data.index(b"PK\x01\x02")
    for offset, value in ((8, 1), (10, 99)):  # the encryption flag; a method that nobody has
        changed = bytearray(data)
        changed[first + offset] = value
        where.write_bytes(changed)
        assert any("cannot be read" in f.problem for f in rb.verify_packet(where).findings)


def test_bytes_before_the_archive_and_comments_are_foreign(tmp_path: Path) -> None:
    _, archive, _ = packet()
    (tmp_path / "p.zip").write_bytes(b"#!/bin/sh\nexit\n" + archive)
    assert not rb.verify_packet(tmp_path / "p.zip").ok
    where = archive_with(tmp_path / "q.zip", [])
    with ZipFile(where, "a", ZIP_STORED) as changed:
        changed.comment = b"hidden"
    assert not rb.verify_packet(where).ok


# ---------------------------------------------------------------- content

WORDS = (
    "$rath", "digest", "size", "form", "lists", "state", "v", "parts", "type", "id", "call_id", "phase", "parent", "refs",
    "reflog", "session", "branch", "head", "old", "new", "position", "kind", "parents", "body", "at", "origin", "run", "span",
    "erased", "absent", "version", "format", "heads", "sessions",
)  # fmt: skip
VALUES = ("a" * 64, "main", "list", "map", "tree", "text", "tool_call", "begin")

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=8) | st.sampled_from(VALUES),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.sampled_from(WORDS), below, max_size=6),
    max_leaves=20,
)


@given(name=st.sampled_from(["refs.json", "manifest.json"]), value=json_values)
def test_documents_of_any_form_are_read(name: str, value: Any) -> None:
    files, _, _ = packet()
    assert not check(resummed(files | {name: orjson.dumps(value)}), "zip").ok


def line_of(change: Callable[[dict[str, Any]], Any]) -> bytes:
    value = orjson.loads(packet()[0]["chunks.jsonl"].splitlines()[5])
    change(value)
    return orjson.dumps(value)


@given(name=st.sampled_from(["chunks.jsonl", "bodies.jsonl"]), values=st.lists(json_values, min_size=1, max_size=4))
def test_lines_of_any_form_are_read(name: str, values: list[Any]) -> None:
    files, _, _ = packet()
    more = b"".join(orjson.dumps(value) + b"\n" for value in values)
    assert named(check(resummed(files | {name: files[name] + more}), "zip"), name)


@given(
    field=st.sampled_from(["at", "body", "kind", "origin", "parents", "run", "size", "span"]),
    value=json_values | st.sampled_from(["9999-99-99T99:99:99.000000Z", "0000-01-01T00:00:00.000000Z", "2026-11-29T00:00:00.1Z"]),
)
def test_envelopes_of_any_form_are_read(field: str, value: Any) -> None:
    files, _, _ = packet()
    line = line_of(lambda envelope: envelope.update({field: value}))
    assert named(check(resummed(files | {"chunks.jsonl": files["chunks.jsonl"] + line + b"\n"}), "zip"), "chunks.jsonl")


@pytest.mark.parametrize("name", ["chunks.jsonl", "bodies.jsonl", "refs.json", "manifest.json", "SHA256SUMS"])
@pytest.mark.parametrize(
    "data", [b"", b"\n", b"[" * 100_000, b'{"a":' * 5_000, b"\xff\xfe", b"\x00" * 100, b"null\n", b"[]\n", b'""\n']
)
def test_files_of_any_content_are_read(name: str, data: bytes) -> None:
    files, _, _ = packet()
    assert named(check(files | {name: data}, "zip"), name)


def test_sums_with_odd_lines(tmp_path: Path) -> None:
    files, _, _ = packet()
    sums = files["SHA256SUMS"]
    for more in (
        b"\\" + sums[:80] + b"\n",
        b"a" * 64 + b"  ../x\n",
        b"a" * 64 + b" *refs.json\n",
        b"a" * 64 + b"  \xff\n",
        b"x\n",
    ):
        report = check(files | {"SHA256SUMS": sums + more}, "zip")
        assert [f.path.partition(":")[0] for f in report.findings] == ["SHA256SUMS"] * len(report.findings)
        assert report.findings


def test_findings_are_not_endless(monkeypatch: pytest.MonkeyPatch) -> None:
    from rath_bridge.evidence import verify

    monkeypatch.setattr(verify, "_MOST", 10)
    files, _, _ = packet()
    report = check(files | {"SHA256SUMS": b"x\n" * 500}, "zip")
    assert len(report.findings) == 11
    assert "more faults" in report.findings[-1].problem


def test_nothing_is_written_while_a_packet_is_checked(tmp_path: Path) -> None:
    where = archive_with(tmp_path / "p.zip", [("../x", b"x")])
    before = where.read_bytes()
    with tempfile.TemporaryDirectory() as place:
        here = os.getcwd()
        os.chdir(place)
        try:
            rb.verify_packet(where)
        finally:
            os.chdir(here)
        assert os.listdir(place) == []
    assert where.read_bytes() == before
    assert os.listdir(tmp_path) == ["p.zip"]


def test_a_directory_that_is_no_packet_is_one_finding(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"x" * 100)
    report = rb.verify_packet(tmp_path)
    assert [finding.problem.partition(":")[0] for finding in report.findings] == ["it is no packet"]


# ---------------------------------------------------------------- nothing of them comes in


def nul(name: str) -> ZipInfo:
    """An entry whose name goes on behind a NUL: some tools see the front, others the whole."""
    info = ZipInfo("x")
    info.filename = name
    return info


def inner() -> bytes:
    with tempfile.TemporaryDirectory() as place:
        return archive_with(Path(place) / "inner.zip", [("blobs/" + "c" * 64, bytes(1 << 20))]).read_bytes()


HOSTILE: dict[str, Callable[[], list[tuple[ZipInfo | str, bytes]]]] = {
    "path traversal": lambda: [("blobs/../../outside", b"x")],
    "absolute path": lambda: [("/tmp/outside", b"x")],
    "drive": lambda: [("C:\\Windows\\x", b"x")],
    "link": lambda: [(link("blobs/" + "a" * 64), b"/etc/passwd")],
    "case": lambda: [("MANIFEST.JSON", b"{}")],
    "nested": lambda: [("blobs/inner.zip", inner())],
    "nested as a blob": lambda: [("blobs/" + "b" * 64, inner())],
    "nul": lambda: [(nul("refs.json\0.txt"), b"x")],
    "device": lambda: [("CON", b"x"), ("blobs/AUX.txt", b"x"), ("NUL.json", b"x"), ("trees/COM1", b"x")],
    "stream": lambda: [("chunks.jsonl:hidden", b"x")],
    "trailing dot": lambda: [("chunks.jsonl.", b"x"), ("refs.json ", b"x")],
    "many": lambda: [(f"blobs/{n:064x}", b"") for n in range(3000)],
    "bomb": lambda: [("blobs/" + "a" * 64, bytes(50 << 20))],
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_archive_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(reading, "FREE_GROWTH", 1 << 20)
    monkeypatch.setattr(layout, "MAX_LISTING", 200_000)
    (tmp_path / "there").mkdir()
    where = archive_with(tmp_path / "there" / "p.zip", HOSTILE[kind]())
    assert rb.verify_packet(where).findings, kind
    store = rb.open_store("memory:")
    with pytest.raises(PacketError):
        transfer(PacketOrigin(where), store)
    assert store.sessions() == []
    assert [path.name for path in tmp_path.rglob("*")] == ["there", "p.zip"]


def test_a_directory_of_too_many_files_is_not_walked_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "MAX_FILES", 20)
    with ZipFile(archive_with(tmp_path / "p.zip", [])) as archive:
        archive.extractall(tmp_path / "p")
    found = rb.verify_packet(tmp_path / "p").findings
    assert any("more than 20 files" in one.problem for one in found)


@pytest.mark.parametrize("at", [10**6, 2**62])
def test_an_archive_that_lies_about_its_list_is_not_read(tmp_path: Path, at: int) -> None:
    where = archive_with(tmp_path / "p.zip", [])
    data = where.read_bytes()
    end = data.rindex(b"PK\x05\x06")
    record = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 1, 1, at, 0)
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, end, 1)
    where.write_bytes(data[:end] + record + locator + data[end:])
    assert rb.verify_packet(where).findings
