"""One edit of a packet shows in many places: the first cause stands first, and what follows from it is told as that."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

import rath_bridge as rb
from rath_bridge.evidence import Claim, PacketReport, claim_draft, export_packet, verify_packet
from rath_bridge.verbs.fsck import Finding
from tests.cli_store import run
from tests.rich_session import rich_session

Edit = Callable[[Path], None]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(export_packet(rich_session(rb.open_store("memory:")), tmp_path_factory.mktemp("sound") / "packet"))


@pytest.fixture
def packet(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "packet"))


def replaced(file: str, old: bytes, new: bytes) -> Edit:
    def edit(packet: Path) -> None:
        data = (packet / file).read_bytes()
        assert old in data
        (packet / file).write_bytes(data.replace(old, new, 1))

    return edit


def without_line(file: str, number: int) -> Edit:
    def edit(packet: Path) -> None:
        lines = (packet / file).read_bytes().splitlines(keepends=True)
        (packet / file).write_bytes(b"".join(lines[: number - 1] + lines[number:]))

    return edit


def first_of(kind: str, change: Callable[[Path], object]) -> Edit:
    return lambda packet: (change(min((packet / kind).iterdir())), None)[1]


def summed_again(packet: Path) -> None:
    names = sorted(str(file.relative_to(packet)) for file in packet.rglob("*") if file.is_file() and file.name != "SHA256SUMS")
    lines = [f"{sha256((packet / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (packet / "SHA256SUMS").write_text("".join(lines))


def roots(report: PacketReport) -> list[Finding]:
    """What no other finding explains; each explanation is a finding of its own."""
    objects = {one.object for one in report.findings}
    assert all(one.because in objects for one in report.findings if one.because)
    return [one for one in report.findings if not one.because]


EDITS: dict[str, tuple[Edit, str]] = {
    "a body": (replaced("bodies.jsonl", b"found 1", b"fund 99"), "bodies.jsonl"),
    "a body that is gone": (without_line("bodies.jsonl", 3), "bodies.jsonl"),
    "an envelope": (replaced("chunks.jsonl", b'"kind":"inference"', b'"kind":"inferring"'), "chunks.jsonl"),
    "an envelope that is gone": (without_line("chunks.jsonl", 6), "chunks.jsonl"),
    "refs": (replaced("refs.json", b'"position":', b'"position":1'), "refs.json"),
    "the manifest": (replaced("manifest.json", b'"chunks":', b'"chunks":1'), "manifest.json"),
    "a node": (first_of("trees", lambda file: file.write_bytes(file.read_bytes()[:-1] + b"x")), "trees/"),
    "a node that is gone": (first_of("trees", lambda file: file.unlink()), "trees/"),
    "a blob": (first_of("blobs", lambda file: file.write_bytes(b"other")), "blobs/"),
    "an index entry": (replaced("index.jsonl", b'"chunk":"', b'"chunk":"0'), "index.jsonl"),
}


@pytest.mark.parametrize(("edit", "file"), EDITS.values(), ids=EDITS)
def test_one_edited_file_is_one_cause(packet: Path, edit: Edit, file: str) -> None:
    edit(packet)
    report = verify_packet(packet)
    (root,) = roots(report)
    assert root == report.findings[0], "the first cause stands first"
    assert root.object.startswith(file)
    assert len(report.findings) > 1


@pytest.mark.parametrize("name", ["a body", "a node", "a node that is gone"])
def test_new_sums_leave_the_chunk_or_object_as_the_cause(packet: Path, name: str) -> None:
    EDITS[name][0](packet)
    summed_again(packet)
    report = verify_packet(packet)
    assert [root.object for root in roots(report)] == [report.findings[0].object]
    assert len(report.findings) > 1


@pytest.mark.parametrize("size", [0, 1, 500])
def test_a_cut_list_of_sums_is_one_cause(packet: Path, size: int) -> None:
    data = (packet / "SHA256SUMS").read_bytes()
    (packet / "SHA256SUMS").write_bytes(data[:size])
    (root,) = roots(verify_packet(packet))
    assert root.object == "SHA256SUMS"
    assert root.problem == ("its last line is cut" if size else "it is empty")


def test_a_cut_archive_is_told_from_a_file_that_is_none(tmp_path: Path) -> None:
    whole = Path(export_packet(rb.open_store("memory:").create("t"), tmp_path / "p.zip")).read_bytes()
    cut = tmp_path / "cut.zip"
    for size in (4, len(whole) // 2, len(whole) - 30):
        cut.write_bytes(whole[:size])
        (found,) = verify_packet(cut).findings
        assert found.problem == "the archive ends before its list of files: it was cut, or copied in part; get it anew"
    done = run("audit", "t", "--packet", str(cut), store="memory:")
    assert (done.exit_code, "cut.zip cannot be asked: the archive ends" in " ".join(done.stderr.split())) == (3, True), (
        done.stderr
    )
    cut.write_bytes(b"no archive")
    (found,) = verify_packet(cut).findings
    assert found.problem == "it is no packet: neither a directory nor a zip archive; nothing of it was checked"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (b'"kind":', b'"kinds":', "the line is no envelope (not an envelope (it has no 'kind'))"),
        (b'"body":"', b'"body":"x', "the line is no envelope (not an envelope ("),
    ],
)
def test_what_is_wrong_is_told_without_python(tmp_path: Path, old: bytes, new: bytes, told: str) -> None:
    packet = Path(export_packet(rb.open_store("memory:").create("t"), tmp_path / "p"))
    lines = packet / "chunks.jsonl"
    lines.write_bytes(lines.read_bytes().replace(old, new))
    problems = [one.problem for one in verify_packet(packet).findings]
    assert [one for one in problems if one.startswith(told)], problems
    assert not [one for one in problems if "Error" in one]


def test_one_claim_and_one_chunk_are_told_as_one(tmp_path: Path) -> None:
    s = rb.open_store("memory:").create("t").append(rb.message("user", "x"))
    s = s.append(claim_draft(Claim(id="x", sentence="It says x.", status="supported", evidence=(s[1].id,))))
    report = verify_packet(export_packet(s, tmp_path / "p"))
    assert report.verdicts["claims"] == "1 stands as it was made"
    assert report.coverage is not None
    assert not [text for text in report.coverage.adapters() if " 1 chunks" in text]


FULL = """
import os, resource, signal, sys
import rath_bridge as rb

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
os.chdir(sys.argv[1])
s = rb.open_store("memory:").create("t").append(rb.message("user", os.urandom(200_000).hex()))
resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, resource.RLIM_INFINITY))
for name in ("packet", "packet.zip"):
    try:
        rb.export_packet(s, name)
    except OSError as error:
        print(error.filename, os.listdir())
"""


def test_no_packet_is_half_written_where_the_disk_is_full(tmp_path: Path) -> None:
    """A write may take a part only, and say nothing: a text came out short, in a packet that was said to be written."""
    words = [sys.executable, "-c", FULL, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "packet []\npacket.zip []\n"), done.stderr


def test_two_edits_are_two_causes(packet: Path) -> None:
    EDITS["a body"][0](packet)
    EDITS["a node"][0](packet)
    assert [root.object[:6] for root in roots(verify_packet(packet))] == ["bodies", "trees/"]


def test_every_edited_body_stands_beside_its_chunk(packet: Path) -> None:
    data = (packet / "bodies.jsonl").read_bytes()
    (packet / "bodies.jsonl").write_bytes(data.replace(b"found", b"lost!"))
    summed_again(packet)
    report = verify_packet(packet)
    places = {one.object: one.path.partition(":")[2] for one in roots(report)}
    assert len(places) == 6
    assert all(one.path == f"bodies.jsonl:{places[one.because]}" for one in report.findings if one.because)


def test_the_command_tells_it(packet: Path) -> None:
    EDITS["a body"][0](packet)
    done = run("verify", str(packet), store="memory:")
    assert done.exit_code == 3
    rows = [line for line in done.stdout.splitlines() if "jsonl" in line]
    assert rows[0].startswith("bodies.jsonl ")
    assert [row.startswith("  ") and "follows from it: " in row for row in rows] == [False, True, True]
    assert "✗ 1 finding, and 2 more that follow from it" in done.stdout
    found = json.loads(run("verify", str(packet), "--json", store="memory:").stdout)
    assert found["verdicts"]["integrity"] == "3 findings"
    assert [set(one) for one in found["findings"]] == [{"object", "problem", "path", "because"}] * 3
    assert [one["because"] for one in found["findings"]] == [None, "bodies.jsonl", "bodies.jsonl"]
