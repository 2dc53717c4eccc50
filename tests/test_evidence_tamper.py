"""Law 10: whatever is flipped, dropped, added or moved in a packet is found and named, in a directory and in an archive."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rath_bridge as rb
from rath_bridge.evidence import PacketReport, layout
from rath_bridge.model.digests import digest
from rath_bridge.model.kinds import ToolResult
from tests.rich_session import rich_session
from tests.test_evidence_packet import contents

LINES = ("chunks.jsonl", "bodies.jsonl", "SHA256SUMS", "refs.json", "manifest.json")
FORMS = ("directory", "zip")
Files = dict[str, bytes]


@cache
def packet() -> tuple[Files, bytes, str]:
    """One packet: its files, its archive and its head."""
    with tempfile.TemporaryDirectory() as place:
        s = rich_session(rb.open_store("memory:"), turns=2)
        rb.export_packet(s, Path(place) / "p.zip")
        return contents(Path(place) / "p.zip"), (Path(place) / "p.zip").read_bytes(), s.head


def check(files: Files, form: str, head: str | None = None) -> PacketReport:
    with tempfile.TemporaryDirectory() as place:
        where = Path(place) / "p"
        if form == "zip":
            with ZipFile(where, "w", ZIP_DEFLATED) as archive:
                for name, data in files.items():
                    archive.writestr(name, data)
        else:
            for name in ("blobs", "trees"):
                (where / name).mkdir(parents=True)
            for name, data in files.items():
                (where / name).parent.mkdir(parents=True, exist_ok=True)
                (where / name).write_bytes(data)
        return rb.verify_packet(where, head=head)


def named(report: PacketReport, *names: str) -> bool:
    """Tell whether a finding names one of these files or objects."""
    places = {f.object for f in report.findings} | {f.path.partition(":")[0] for f in report.findings}
    return not places.isdisjoint(names)


def resummed(files: Files) -> Files:
    """What somebody does who knows how SHA256SUMS is made."""
    rest = {name: data for name, data in files.items() if name != "SHA256SUMS"}
    return rest | {"SHA256SUMS": "".join(f"{digest(rest[n])}  {n}\n" for n in sorted(rest)).encode()}


names = st.sampled_from(sorted(packet()[0]))
hashed = st.sampled_from(sorted(name for name in packet()[0] if "/" in name or name in ("chunks.jsonl", "bodies.jsonl")))
"""Files whose content is held by digests, whatever the sums say."""


def test_the_packet_itself_is_sound() -> None:
    files, _, head = packet()
    for form in FORMS:
        assert check(files, form, head).findings == ()
        assert check(resummed(files), form, head).findings == ()


# ---------------------------------------------------------------- bytes


@given(name=names, form=st.sampled_from(FORMS), at=st.integers(0, 10**6), flip=st.integers(1, 255))
def test_a_flipped_byte_is_found(name: str, form: str, at: int, flip: int) -> None:
    files, _, head = packet()
    data = bytearray(files[name])
    data[at % len(data)] ^= flip
    assert named(check(files | {name: bytes(data)}, form, head), name)


@given(name=names, form=st.sampled_from(FORMS), at=st.integers(0, 10**6), size=st.integers(1, 400))
def test_dropped_bytes_are_found(name: str, form: str, at: int, size: int) -> None:
    files, _, _ = packet()
    start = at % len(files[name])
    assert named(check(files | {name: files[name][:start] + files[name][start + size :]}, form), name)


@given(name=names, form=st.sampled_from(FORMS), at=st.integers(0, 10**6), more=st.binary(min_size=1, max_size=40))
def test_added_bytes_are_found(name: str, form: str, at: int, more: bytes) -> None:
    files, _, _ = packet()
    start = at % (len(files[name]) + 1)
    assert named(check(files | {name: files[name][:start] + more + files[name][start:]}, form), name)


@given(name=hashed, at=st.integers(0, 10**6), flip=st.integers(1, 255), cut=st.booleans())
def test_new_sums_do_not_hide_a_changed_byte(name: str, at: int, flip: int, cut: bool) -> None:
    files, _, _ = packet()
    data = bytearray(files[name])
    if cut:
        del data[at % len(data)]
    else:
        data[at % len(data)] ^= flip
    assert check(resummed(files | {name: bytes(data)}), "directory").findings


# ---------------------------------------------------------------- lines


def lines_of(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


def drop_line(lines: list[bytes], one: int, _: int) -> list[bytes]:
    return lines[:one] + lines[one + 1 :]


def double_line(lines: list[bytes], one: int, other: int) -> list[bytes]:
    return [*lines[:other], lines[one], *lines[other:]]


def swap_lines(lines: list[bytes], one: int, other: int) -> list[bytes]:
    found = list(lines)
    found[one], found[other] = found[other], found[one]
    return found


def cut_tail(lines: list[bytes], one: int, _: int) -> list[bytes]:
    return lines[:one]


EDITS: list[Callable[[list[bytes], int, int], list[bytes]]] = [drop_line, double_line, swap_lines, cut_tail]


@given(
    name=st.sampled_from(LINES), edit=st.sampled_from(EDITS), one=st.integers(0, 10**4), other=st.integers(0, 10**4),
    form=st.sampled_from(FORMS), sums=st.booleans(),
)  # fmt: skip
def test_lines_that_are_dropped_doubled_swapped_or_cut_are_found(
    name: str, edit: Callable[[list[bytes], int, int], list[bytes]], one: int, other: int, form: str, sums: bool
) -> None:
    files, _, _ = packet()
    lines = lines_of(files[name])
    changed = b"".join(edit(lines, one % len(lines), other % len(lines)))
    if changed == files[name]:
        return
    tampered = files | {name: changed}
    if sums and name.endswith(".jsonl"):
        report = check(resummed(tampered), form)
        assert named(report, "chunks.jsonl", "bodies.jsonl")
    else:
        assert named(check(tampered, form), name)


def test_each_of_several_faults_is_named() -> None:
    files, _, _ = packet()
    lines = lines_of(files["chunks.jsonl"])
    blob = next(n for n in files if n.startswith("blobs/"))
    tree = next(n for n in files if n.startswith("trees/"))
    tampered = files | {"chunks.jsonl": b"".join(drop_line(lines, 6, 0)), blob: b"other"}
    del tampered[tree]
    report = check(tampered, "directory")
    for name in ("chunks.jsonl", blob, tree, digest(lines[6][:-1])):
        assert named(report, name)
    missing = next(f for f in report.findings if f.object == digest(lines[6][:-1]))
    assert missing.path == "chunks.jsonl:7"  # the line that names it as its parent


# ---------------------------------------------------------------- files


@given(name=names, form=st.sampled_from(FORMS), sums=st.booleans())
def test_a_dropped_file_is_found(name: str, form: str, sums: bool) -> None:
    files, _, _ = packet()
    rest = {n: data for n, data in files.items() if n != name}
    if sums and name != "SHA256SUMS":
        rest = resummed(rest)
    assert named(check(rest, form), name, name.rpartition("/")[2])


@given(
    name=st.sampled_from(["notes.txt", "blobs/x", "blobs/" + "a" * 64, "trees/" + "b" * 64, "sub/dir/file", "blobs/../x.txt", "refs.JSON"]),
    data=st.binary(max_size=30), form=st.sampled_from(FORMS), sums=st.booleans(),
)  # fmt: skip
def test_a_foreign_file_is_found(name: str, data: bytes, form: str, sums: bool) -> None:
    files, _, _ = packet()
    if form == "directory":
        name = name.replace("blobs/../", "")
    more = files | {name: data}
    report = check(resummed(more) if sums else more, form)
    assert named(report, name, name.rpartition("/")[2])


@given(data=st.data(), sums=st.booleans())
def test_swapped_objects_are_found(data: st.DataObject, sums: bool) -> None:
    files, _, _ = packet()
    objects = sorted(n for n in files if "/" in n)
    one, other = data.draw(st.sampled_from(objects)), data.draw(st.sampled_from(objects))
    if files[one] == files[other]:
        return
    swapped = files | {one: files[other], other: files[one]}
    assert named(check(resummed(swapped) if sums else swapped, "directory"), one)


def test_a_blob_that_is_really_one_but_that_nothing_names_is_foreign() -> None:
    files, _, _ = packet()
    name = digest(b"planted")
    report = check(resummed(files | {f"blobs/{name}": b"planted"}), "directory")
    assert [(f.object, f.path) for f in report.findings] == [(name, f"blobs/{name}")]


@given(at=st.integers(0, 10**6), flip=st.integers(1, 255))
def test_an_archive_that_passes_says_the_same_byte_for_byte(at: int, flip: int) -> None:
    files, archive, head = packet()
    data = bytearray(archive)
    data[at % len(data)] ^= flip
    with tempfile.TemporaryDirectory() as place:
        where = Path(place) / "p.zip"
        where.write_bytes(data)
        report = rb.verify_packet(where, head=head)
        if report.ok:
            assert contents(where) == files
        else:
            assert all(f.object and f.problem for f in report.findings)


@given(at=st.integers(0, 10**6), keep=st.booleans())
def test_a_cut_archive_is_found(at: int, keep: bool) -> None:
    _, archive, _ = packet()
    size = at % len(archive)
    with tempfile.TemporaryDirectory() as place:
        where = Path(place) / "p.zip"
        where.write_bytes(archive[:size] if keep else archive[size + 1 :])
        assert rb.verify_packet(where).findings


# ---------------------------------------------------------------- what is told elsewhere


def rewrite(files: Files, name: str, change: Callable[[dict[str, object]], object]) -> Files:
    value = orjson.loads(files[name])
    change(value)
    return resummed(files | {name: orjson.dumps(value)})


def test_a_moved_ref_is_found() -> None:
    files, _, _ = packet()
    earlier = digest(files["chunks.jsonl"].splitlines()[4])

    def move(value: dict[str, object]) -> None:
        ref = value["refs"][0]  # type: ignore[index]
        ref["head"] = earlier
        ref["reflog"][-1]["new"] = earlier

    report = check(rewrite(files, "refs.json", move), "directory")
    assert named(report, "ticket", "refs.json")
    assert named(report, "manifest.json")


@pytest.mark.parametrize("key", ["sessions", "heads", "chunks", "bodies"])
def test_a_manifest_that_tells_something_else_is_found(key: str) -> None:
    files, _, _ = packet()
    report = check(rewrite(files, "manifest.json", lambda value: value.pop(key)), "directory")
    assert [f.object for f in report.findings] == ["manifest.json"]
    assert key in report.findings[0].problem


def test_a_body_cannot_be_dropped_and_called_erased_in_part() -> None:
    files, _, _ = packet()
    chunk = digest(files["chunks.jsonl"].splitlines()[4])
    report = check(rewrite(files, "manifest.json", lambda value: value.update(erased=[chunk])), "directory")
    assert [f.object for f in report.findings] == [chunk]


def test_a_second_result_is_found() -> None:
    store = rb.open_store("memory:")
    s = rich_session(store).append(rb.draft(ToolResult(call_id="call-0", result="again"), run="r2"))
    with tempfile.TemporaryDirectory() as place:
        rb.export_packet(s, Path(place) / "p")
        report = rb.verify_packet(Path(place) / "p")
    assert [f.object for f in report.findings] == [s.head]
    assert "second result" in report.findings[0].problem


def test_a_packet_that_was_rebuilt_wholly_is_found_by_a_known_head() -> None:
    """Somebody writes another history with the same names: sums, digests and refs all agree, only the head does not."""
    store = rb.open_store("memory:")
    other = rich_session(store)
    with tempfile.TemporaryDirectory() as place:
        rb.export_packet(other, Path(place) / "p")
        assert rb.verify_packet(Path(place) / "p").ok
        _, _, head = packet()
        report = rb.verify_packet(Path(place) / "p", head=head)
    assert [f.object for f in report.findings] == [head]


def test_a_newer_version_may_hold_more() -> None:
    files, _, _ = packet()
    newer = rewrite(files | {"later.json": b"{}"}, "manifest.json", lambda value: value.update(version=layout.VERSION + 1))
    report = check(newer, "zip")
    assert report.findings == ()
    assert any("later.json" in note for note in report.notes)
    assert any(f"version {layout.VERSION + 1}" in note for note in report.notes)
    assert not check(newer | {"later.json": b"{ }"}, "zip").ok
