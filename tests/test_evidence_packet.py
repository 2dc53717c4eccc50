"""Evidence packets: what is written, that it holds, and that coreutils agree."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import orjson
import pytest

import rath_bridge as rb
from rath_bridge.errors import CorruptStoreError, NameInUseError, NotFoundError, PacketError, PacketExistsError
from rath_bridge.model.digests import digest
from rath_bridge.verbs.lineage import walk
from tests.rich_session import LONG, rich_session


def contents(packet: Path) -> dict[str, bytes]:
    """Every file of a packet by name."""
    if packet.is_dir():
        return {p.relative_to(packet).as_posix(): p.read_bytes() for p in packet.rglob("*") if p.is_file()}
    with ZipFile(packet) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize("name", ["packet", "packet.zip"])
def test_a_packet_holds_and_can_be_read_line_by_line(store_url: str, tmp_path: Path, name: str) -> None:
    with rb.open_store(store_url) as store:
        s = rich_session(store)
        assert rb.export_packet(s, tmp_path / name) == tmp_path / name
        chunks = {c.id: c for c in walk(list(s.heads().values()), store.backend)}
        heads = {"ticket": s.head} | {f"ticket@{b}": h for b, h in s.heads().items() if b != "main"}
    report = rb.verify_packet(tmp_path / name, head=s.head)
    assert report.findings == ()
    assert report.ok
    assert report.notes == ()
    assert (report.sessions, report.chunks, report.heads) == (("ticket",), len(chunks), heads)
    files = contents(tmp_path / name)
    envelopes = files["chunks.jsonl"].splitlines()
    assert {digest(line): line for line in envelopes} == {c.id: c.envelope for c in chunks.values()}
    assert [orjson.loads(e)["body"] for e in envelopes] == [digest(b) for b in files["bodies.jsonl"].splitlines()]
    assert files[f"blobs/{digest(LONG.encode())}"] == LONG.encode()
    assert all(digest(data) == file[6:] for file, data in files.items() if "/" in file)
    seen: set[str] = set()
    for line in envelopes:
        assert seen.issuperset(orjson.loads(line).get("parents", ()))
        seen.add(digest(line))


def test_trees_go_in_down_to_their_items(tmp_path: Path) -> None:
    store = rb.open_store("memory:")
    rb.export_packet(rich_session(store), tmp_path / "p")
    files = contents(tmp_path / "p")
    for text in ("item 23 of a list that grows", "file 8", "2"):
        assert files[f"blobs/{digest(text.encode())}"] == text.encode()
    assert sum(name.startswith("trees/") for name in files) > 4


def test_coreutils_agree(tmp_path: Path) -> None:
    rb.export_packet(rich_session(rb.open_store("memory:")), tmp_path / "p")
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    done = subprocess.run(check, cwd=tmp_path / "p", capture_output=True, text=True, check=True)
    assert done.stdout.count(": OK") == len(contents(tmp_path / "p")) - 1
    (tmp_path / "p" / "refs.json").write_bytes(b"{}")
    assert subprocess.run(check, cwd=tmp_path / "p", capture_output=True, check=False).returncode == 1


def test_equal_stores_give_equal_packets(tmp_path: Path, sqlite_url: str) -> None:
    with rb.open_store(sqlite_url) as store:
        s = rich_session(store)
        for name in ("a.zip", "b.zip", "a", "b"):
            rb.export_packet(s, tmp_path / name)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    assert contents(tmp_path / "a") == contents(tmp_path / "b") == contents(tmp_path / "a.zip")


def test_a_zip_packet_unpacks_to_a_directory_packet(tmp_path: Path) -> None:
    s = rich_session(rb.open_store("memory:"))
    rb.export_packet(s, tmp_path / "p.zip")
    shutil.unpack_archive(tmp_path / "p.zip", tmp_path / "p")
    assert rb.verify_packet(tmp_path / "p", head=s.head).ok
    shutil.make_archive(str(tmp_path / "again"), "zip", tmp_path / "p")  # with entries for its directories
    assert rb.verify_packet(tmp_path / "again.zip", head=s.head).ok


def test_several_sessions_of_several_stores(tmp_path: Path, sqlite_url: str) -> None:
    memory = rb.open_store("memory:")
    with rb.open_store(sqlite_url) as store:
        one, two = rich_session(memory, "one"), rich_session(store, "two")
        copy = two.detach("three")
        rb.export_packet([two, one, copy, store.session("two@side")], tmp_path / "p")
        report = rb.verify_packet(tmp_path / "p")
        assert report.findings == ()
        assert report.sessions == ("one", "three", "two")
        assert {one.head, two.head, copy.head} <= set(report.heads.values())
        rich_session(store, "one")
        with pytest.raises(NameInUseError):
            rb.export_packet([one, store.session("one")], tmp_path / "q")
    assert not (tmp_path / "q").exists()
    with pytest.raises(PacketError):
        rb.export_packet([], tmp_path / "q")


def test_a_fork_into_another_session_carries_what_it_descends_from(tmp_path: Path) -> None:
    store = rb.open_store("memory:")
    s = rich_session(store)
    fork = s.fork(session="child").append(rb.message("user", "on"))
    rb.export_packet(fork, tmp_path / "p")
    report = rb.verify_packet(tmp_path / "p", head=s.head)
    assert report.ok
    assert report.sessions == ("child",)


def test_deep_forks_and_crossed_merges(tmp_path: Path) -> None:
    store = rb.open_store("memory:")
    s = store.create("deep")
    for n in range(300):
        s = s.fork(f"b{n}")
    other = store.session("deep@b100").append(rb.message("user", "left"))
    for _ in range(5):  # each is merged into the other, in turn
        s, other = s.merge(other), other.append(rb.message("user", "x"))
        other = other.merge(s)
    rb.export_packet(s, tmp_path / "p.zip")
    report = rb.verify_packet(tmp_path / "p.zip", head=other.head)
    assert report.findings == ()


def test_erased_bodies_and_absent_objects_are_told_and_hold(tmp_path: Path, sqlite_url: str) -> None:
    with rb.open_store(sqlite_url) as store:
        s = rich_session(store)
        secret = s[3]
        with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as db:
            gone = bytes.fromhex(secret.body_digest) + bytes([secret.size & 127 | 128, secret.size >> 7])
            db.execute("UPDATE rath_chunk SET form = 5, body = ? WHERE id = ?", (gone, bytes.fromhex(secret.id)))
        db.close()
        with rb.open_store(sqlite_url) as again:
            s = again.session("ticket")
            assert s[3].body_bytes is None
            assert s.fsck() == []
            rb.export_packet(s, tmp_path / "p")
    report = rb.verify_packet(tmp_path / "p", head=s.head)
    assert report.findings == ()
    assert len(report.notes) == 1
    assert LONG.encode() not in (tmp_path / "p" / "bodies.jsonl").read_bytes()


def test_objects_that_the_store_does_not_hold_are_listed_as_absent(tmp_path: Path) -> None:
    store = rb.open_store("memory:")
    s = rich_session(store)
    backend: Any = store.backend
    del backend._objects[digest(b"item 20 of a list that grows")]
    rb.export_packet(s, tmp_path / "p")
    report = rb.verify_packet(tmp_path / "p")
    assert report.ok
    assert report.notes == ("1 object not in the store when the packet was written",)


def test_a_damaged_store_gives_no_packet(tmp_path: Path) -> None:
    store = rb.open_store("memory:")
    s = rich_session(store)
    backend: Any = store.backend
    backend._objects[digest(LONG.encode())] = b"other"
    for name in ("p", "p.zip"):
        with pytest.raises(CorruptStoreError):
            rb.export_packet(s, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_what_stands_at_the_place_is_left_alone(tmp_path: Path) -> None:
    store = rb.open_store("memory:")
    s = rich_session(store)
    for name in ("p", "p.zip"):
        rb.export_packet(s, tmp_path / name)
        with pytest.raises(PacketExistsError):
            rb.export_packet(s, tmp_path / name)
    s = s.append(rb.message("user", "more"))
    for name in ("p", "p.zip"):
        rb.export_packet(s, tmp_path / name, overwrite=True)
        assert rb.verify_packet(tmp_path / name, head=s.head).ok
    (tmp_path / "mine").mkdir()
    rb.export_packet(s, tmp_path / "mine")  # empty
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "thesis.txt").write_text("years")
    with pytest.raises(PacketExistsError, match="no packet"):
        rb.export_packet(s, tmp_path / "work", overwrite=True)
    (tmp_path / "link").symlink_to(tmp_path / "work")
    with pytest.raises(PacketExistsError):
        rb.export_packet(s, tmp_path / "link", overwrite=True)
    assert (tmp_path / "work" / "thesis.txt").read_text() == "years"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "mine", "p", "p.zip", "work"]


def test_an_interrupted_export_leaves_nothing(tmp_path: Path) -> None:
    def stop(_: int) -> None:
        raise KeyboardInterrupt

    s = rich_session(rb.open_store("memory:"))
    for name in ("p", "p.zip"):
        with pytest.raises(KeyboardInterrupt):
            rb.export_packet(s, tmp_path / name, progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_progress_is_told(tmp_path: Path) -> None:
    written: list[int] = []
    checked: list[int] = []
    s = rb.open_store("memory:").create("s").append(*[rb.message("user", f"m {n}") for n in range(600)])
    rb.export_packet(s, tmp_path / "p", progress=written.append)
    rb.verify_packet(tmp_path / "p", progress=checked.append)
    assert written == sorted(written)
    assert written[-1] == 601
    assert checked


def test_the_reader_is_told_where_there_is_no_packet(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no packet"):
        rb.verify_packet(tmp_path / "nothing")


def test_memory_does_not_grow_with_content(tmp_path: Path) -> None:
    """60 MB of long texts in 1 MB pieces; neither side may hold more than a few of them."""
    script = """
import resource, sys
import rath_bridge as rb
def fill(name, count):
    with rb.open_store(f"sqlite:///{sys.argv[1]}/{name}.db") as store:
        s = store.create("s")
        for n in range(count):
            s = s.append(rb.message("user", f"{n} " + chr(97 + n % 26) * 1_000_000))
def carry(name):
    with rb.open_store(f"sqlite:///{sys.argv[1]}/{name}.db") as store:
        rb.export_packet(store.session("s"), f"{sys.argv[1]}/{name}.zip")
        assert rb.verify_packet(f"{sys.argv[1]}/{name}.zip").ok
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
fill("small", 8), fill("large", 60)
print(carry("small"), carry("large"))
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    small, large = map(int, done.stdout.split())
    assert large - small < 20
