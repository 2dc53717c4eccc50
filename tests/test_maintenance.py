"""Redaction and pruning: what goes is gone, from every session and from the files; what stays verifies; and it is told."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rath_bridge as rb
from rath_bridge.errors import ErasedError, MissingChunkError
from rath_bridge.interchange.transfer import PacketOrigin, transfer
from rath_bridge.maintenance import find_text, prune, redact, where_used
from rath_bridge.model.chunk import Draft, Key, Native, draft, format_time, now
from rath_bridge.model.digests import digest
from rath_bridge.model.encoding import BlobRef
from rath_bridge.model.kinds import Note, Redaction, Run
from rath_bridge.model.reaching import ABSENT
from rath_bridge.model.trees import list_tree
from rath_bridge.session import Session, Store
from rath_bridge.store.arriving import Arrival, Landing
from tests.cli_store import run as cli

SECRET = "Katharina Blum, Kölner Straße 7"
LONG = "nothing to see here, " * 30 + SECRET + ", nothing to see here" * 30
ITEMS = [json.dumps({"content": text}).encode() for text in (*map(str, range(20)), SECRET)]


def state(text: str) -> Draft:
    """A framework's state whose last item says it."""
    tree, nodes = list_tree([bytes.fromhex(digest(item)) for item in ITEMS])
    return draft(Note(text=text, attributes={"state": tree.ref}), objects={**nodes, **{digest(item): item for item in ITEMS}})


def history(store: Store) -> Session:
    """Who said it: short and long, natively, in a state, on a branch, in a detached copy and in another session."""
    native = Native("made", "1", "json", json.dumps({"content": LONG}, ensure_ascii=False).encode())
    s = store.create("ticket").append(rb.message("user", f"I am {SECRET}"), rb.message("assistant", "Hello."))
    s = s.append(
        draft(Note(text=LONG), native=native), state("a state"), draft(Note(text="kept"), keys=[Key("made", "1", "", "k")])
    )
    s.fork("try", at=s[2].id).append(rb.message("user", f"again: {SECRET}"))
    s.detach("copy")
    store.create("other").append(rb.message("user", f"{SECRET} too"))
    return s


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with rb.open_store(store_url) as opened:
        yield opened


def redact_all(store: Store, **options: Any) -> Any:
    hits = find_text(store.backend, SECRET)
    return redact(store, hits.chunks, objects=hits.objects, reason="she asked for it", by="ann", **options)


def test_what_is_redacted_is_gone_everywhere_and_every_chain_verifies(store: Store, tmp_path: Path) -> None:
    s = history(store)
    heads = {one.name: one.head for one in store.sessions()}
    dry = redact_all(store, dry_run=True)
    assert {(use.session, use.ref) for use in dry.uses.places} == {
        ("ticket", "ticket"), ("ticket", "ticket@try"), ("copy", "copy"), ("other", "other"),
    }  # fmt: skip
    assert find_text(store.backend, SECRET).chunks
    assert not dry.notices
    done = redact_all(store)
    assert done.erasure == dry.erasure
    assert done.uses == dry.uses
    hits = find_text(store.backend, SECRET)
    assert hits.chunks == hits.objects == ()
    assert list(store.fsck()) == []
    assert done.notices.keys() == {"ticket", "copy", "other"}
    for name, notice in done.notices.items():
        session = store.session(name)
        assert session.head == notice
        assert heads[name] in {chunk.id for chunk in session}
        told = session[-1].body
        assert isinstance(told, Redaction)
        assert (told.reason, told.by, told.rule) == ("she asked for it", "ann", "redact")
        gone = {
            chunk.id
            for one in [session, *map(store.session, ("ticket@try",) * (name == "ticket"))]
            for chunk in one
            if chunk.body_bytes is None
        }
        assert set(told.targets) == gone
    assert [m.text for m in store.session("ticket").messages()] == ["Hello."]
    report = rb.verify_packet(rb.export_packet(store.sessions(), tmp_path / "p.zip"), head=s.head)
    assert report.ok
    assert report.coverage is not None
    assert any("as redactions in the record tell" in hole for hole in report.coverage.holes())


def test_an_item_of_a_state_goes_and_the_rest_of_the_state_stays(store: Store) -> None:
    s = history(store)
    name = digest(ITEMS[-1])
    done = redact(store, objects=[name], reason="r", forget=True)
    assert done.erasure.named == (name,)
    assert done.erasure.chunks == ()
    assert {place.session: place.objects for place in done.uses.places} == {"ticket": (name,), "copy": (name,)}
    assert store.session("ticket")[-1].values["objects"] == [name]
    with pytest.raises(ErasedError):
        store.backend.objects([name])
    assert store.backend.objects([digest(item) for item in ITEMS[:-1]])
    assert store.session("ticket")[s.position - 1].values["text"] == "a state"
    assert list(store.fsck()) == []


def test_what_was_erased_stays_erased_when_the_history_goes_elsewhere(store: Store, tmp_path: Path) -> None:
    s = history(store)
    redact(store, [s[1].id], objects=[digest(ITEMS[-1])], reason="r")
    packet = rb.export_packet(store.sessions(), tmp_path / "p.zip")
    assert rb.verify_packet(packet, head=s.head).ok
    for there in (rb.open_store("memory:"), rb.open_store(f"sqlite:///{tmp_path / 'there.db'}")):
        transfer(PacketOrigin(packet), there)
        assert list(there.fsck(head=s.head)) == []
        assert there.session("ticket")[1].body_bytes is None
        there.close()
    with rb.open_store("memory:") as there:  # without the notice, the absence is a fault
        lines = [ref for ref in store.backend.refs() if ref.session == "ticket"]
        chunks = [c for c in store.backend.line(lines[0].head) if c.kind != "redaction"]
        there.backend.ingest([Arrival(c, {}) for c in chunks], [Landing("ticket", "main", None, chunks[-1].id)])
        assert any(found.problem == ABSENT for found in there.fsck())


def test_index_entries_lead_to_what_is_erased_until_they_are_forgotten(store: Store) -> None:
    s = history(store)
    told = redact(store, [s.head], reason="r", dry_run=True)
    assert told.uses.entries == ((Key("made", "1", "", "k"), s.head),)
    redact(store, [s.head], reason="r")
    assert store.backend.lookup(Key("made", "1", "", "k")) is not None
    assert where_used(store.backend, [s.head]).entries
    with pytest.raises(MissingChunkError):
        redact(store, [digest(b"?")], reason="r")


def test_a_blob_that_somebody_else_stands_on_stays_and_is_told(store: Store) -> None:
    s = store.create("a").append(draft(Note(text=LONG)))
    other = store.create("b").append(draft(Note(text="x", attributes={"at": BlobRef(digest(LONG.encode()), len(LONG.encode()))})))
    done = redact(store, [s.head], reason="r")
    assert (done.erasure.objects, done.erasure.shared) == ((), (digest(LONG.encode()),))
    assert store.backend.objects([digest(LONG.encode())])
    assert list(store.fsck()) == []
    assert other.head == store.session("b").head


@given(st.data())
@settings(max_examples=15)
def test_any_chunks_of_any_history_may_go(data: st.DataObject) -> None:
    with rb.open_store("memory:") as store:
        history(store)
        everything = {chunk.id: chunk for ref in store.backend.refs() for chunk in store.backend.line(ref.head)}
        before = {name: chunk.envelope for name, chunk in everything.items()}
        wanted = data.draw(st.sets(st.sampled_from(sorted(everything)), max_size=6))
        done = redact(store, wanted, reason="r")
        assert wanted <= set(done.erasure.chunks)
        for name, envelope in before.items():
            chunk = store.backend.chunk(name)
            assert chunk.envelope == envelope
            assert (chunk.body_bytes is None) == (name in done.erasure.chunks)
            if chunk.body_bytes is not None and chunk.kind == "note":
                assert chunk.values  # whatever it stands on is there
        assert list(store.fsck()) == []


# ---------------------------------------------------------------------- the bytes


def _pieces(rows: list[tuple[Any, ...]]) -> list[bytes]:
    """Of each stored value a piece that is long enough to be unmistakable and short enough to lie on one page."""
    return [
        bytes(value)[len(value) // 2 - 8 : len(value) // 2 + 8] for (value,) in rows if value is not None and len(value) >= 48
    ]


STORED = ("SELECT data FROM rath_object WHERE digest IN ({0})", "SELECT body FROM rath_chunk WHERE id IN ({0}) AND form <> 1")


def test_the_bytes_are_gone_from_sqlite_and_its_log(sqlite_url: str) -> None:
    path = sqlite_url.removeprefix("sqlite:///")
    store = rb.open_store(sqlite_url)
    s = history(store)
    for i in range(300):  # pages split, and rows move
        s = s.append(draft(Note(text=f"{SECRET} {i} " + "filler " * 60)), draft(Note(text=f"stays {i}")))
    told = redact_all(store, dry_run=True)
    names = ", ".join(f"x'{name}'" for name in (*told.erasure.chunks, *told.erasure.objects))
    with closing(sqlite3.connect(path)) as look:
        pieces = [piece for sql in STORED for piece in _pieces(look.execute(sql.format(names)).fetchall())]

    def held() -> list[bytes]:
        data = b"".join(file.read_bytes() for file in Path(path).parent.iterdir() if file.name.startswith(Path(path).name))
        return [piece for piece in pieces if piece in data]

    assert len(pieces) > 300
    assert len(held()) == len(pieces)
    redact_all(store)
    assert held() == []
    assert Path(f"{path}-wal").stat().st_size == 0
    assert list(store.fsck()) == []
    assert len(store.session("ticket")) == len(s) + 1
    store.close()
    assert held() == []


def test_the_bytes_are_gone_from_postgresql(postgres_url: str) -> None:
    store = rb.open_store(postgres_url)
    s = history(store)
    for i in range(100):
        s = s.append(draft(Note(text=f"{SECRET} {i} " + "filler " * 600)), draft(Note(text=f"stays {i}")))
    told = redact_all(store, dry_run=True)
    names = ", ".join(f"'\\x{name}'" for name in (*told.erasure.chunks, *told.erasure.objects))
    with psycopg.connect(postgres_url, autocommit=True) as look:
        home = Path(look.execute("SHOW data_directory").fetchone()[0])  # type: ignore[index]
        pieces = [piece for sql in STORED for piece in _pieces(look.execute(sql.format(names)).fetchall())]  # type: ignore[arg-type]
        look.execute("ANALYZE")  # as autovacuum does: the planner's statistics must not keep what people said
        look.execute("CHECKPOINT")
        if not (home / "base").is_dir():
            pytest.skip("the server's files are not on this machine")

        def held(*folders: str) -> list[bytes]:
            files = [file for folder in folders for file in (home / folder).rglob("*") if file.is_file()]
            data = b"".join(file.read_bytes() for file in files)
            return [piece for piece in pieces if piece in data]

        assert len(pieces) > 100
        assert len(held("base")) == len(pieces)
        assert not look.execute(
            "SELECT 1 FROM pg_stats WHERE tablename LIKE 'rath%' AND attname IN ('body', 'data', 'raw')"
        ).fetchall()
        redact_all(store)
        assert held("base", "global") == []
    assert list(store.fsck()) == []
    assert len(store.session("ticket")) == len(s) + 1


def test_a_reader_elsewhere_is_told_that_the_log_could_not_be_emptied(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rath_bridge.store.sqlite._BUSY", 0.2)
    store = rb.open_store(sqlite_url)
    s = store.create("t").append(rb.message("user", "x"))
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM rath_chunk").fetchone()
        with pytest.raises(rb.errors.StoreUnavailableError):
            redact(store, [s.head], reason="r")
        reader.execute("COMMIT")
    assert redact(store, [s.head], reason="r").erasure.chunks == ()  # it was erased; this time its files are written anew
    assert list(store.fsck()) == []


# ---------------------------------------------------------------------- prune


def test_a_boundary_is_recorded_and_what_is_younger_stays(store: Store, tmp_path: Path) -> None:
    old, young = now() - 200 * 86_400_000_000, now() - 10 * 86_400_000_000
    key = Key("made", "1", "", "old")
    s = store.create("t").append(
        draft(Run(phase="begin", name="done"), run="r1", at=old), draft(Note(text=LONG), at=old, run="r1", keys=[key]),
        draft(Run(phase="end", name="done"), run="r1", at=old), draft(Run(phase="begin", name="works on"), run="r2", at=old),
        draft(Note(text="old"), at=old, run="r2"), draft(Note(text="young"), at=young, run="r2"),
    )  # fmt: skip
    heads = {ref.name: ref.head for ref in store.backend.refs()}
    dry = prune(store, timedelta(days=180), dry_run=True)
    assert dry.sessions == {"t": 4}
    assert len(dry.erasure.objects) == 1
    done = prune(store, timedelta(days=180), by="the clock")
    assert done.erasure == dry.erasure
    assert done.entries == 1
    there = [chunk.body_bytes is not None for chunk in store.session("t")]
    assert there == [True, False, False, False, True, False, True, True]
    told = store.session("t")[-1].body
    assert isinstance(told, Redaction)
    assert (told.rule, told.count, told.by, told.before) == ("prune", 4, "the clock", format_time(done.before))
    assert told.reason == "older than 180 days"
    assert store.backend.lookup(key) is None
    assert list(store.fsck(head=heads["t"])) == []
    report = rb.verify_packet(rb.export_packet(store.session("t"), tmp_path / "p.zip"), head=s.head)
    assert report.ok
    assert report.coverage is not None
    assert report.coverage.facts["erased"]["untold"] == []
    again = prune(store, timedelta(days=180))
    assert again.sessions == {}
    assert again.notices == {}


def test_what_an_adapter_needs_stays(store: Store) -> None:
    s = store.create("t").append(draft(Note(text="base")), draft(Note(text="top")))
    done = prune(store, timedelta(0), needed=[lambda backend, before: [s[1].id]])
    assert set(done.erasure.chunks) == {s[2].id}
    with pytest.raises(ValueError, match="time to keep"):
        prune(store, timedelta(-1))


# ---------------------------------------------------------------------- the command line


def test_redact_and_prune_on_the_command_line(sqlite_url: str) -> None:
    with rb.open_store(sqlite_url) as store:
        history(store)
    dry = cli("redact", "ticket:1", "--text", SECRET, "--dry-run", store=sqlite_url)
    assert dry.exit_code == 0
    assert "nothing was changed" in dry.output
    assert "copy" in dry.output
    for wrong in (
        ["redact"],
        ["redact", "ticket:1"],
        ["redact", "ticket:1", "--reason", "r"],
        ["prune", "--keep", "soon"],
        ["prune", "--keep", "0d"],
    ):
        assert cli(*wrong, store=sqlite_url).exit_code == 2, wrong
    done = cli("redact", "--text", SECRET, "--reason", "asked", "--by", "ann", "--yes", "--json", store=sqlite_url)
    told = json.loads(done.output)
    assert told["notices"].keys() == {"ticket", "copy", "other"}
    assert len(told["chunks"]) == 6
    shown = cli("show", told["notices"]["ticket"][:12], store=sqlite_url)
    assert "asked" in shown.output
    assert "ann" in shown.output
    assert cli("fsck", store=sqlite_url).exit_code == 0
    assert cli("redact", "--text", SECRET, "--reason", "again", "--yes", store=sqlite_url).exit_code == 0
    pruned = cli("prune", "--keep", "0d", "--yes", "--json", store=sqlite_url)
    assert pruned.exit_code == 0
    assert json.loads(pruned.output)["sessions"].keys() == {"ticket", "copy"}
    assert cli("fsck", store=sqlite_url).exit_code == 0


def test_what_says_the_same_and_stays_is_told_before_and_after(sqlite_url: str) -> None:
    said = "My number is 0171 555, call me."
    item = json.dumps({"content": said}).encode()
    tree, nodes = list_tree([bytes.fromhex(digest(item))])
    with rb.open_store(sqlite_url) as store:
        s = store.create("a").append(rb.message("user", said), rb.message("assistant", "Yes."))
        s = s.append(draft(Note(text="state", attributes={"state": tree.ref}), objects={**nodes, digest(item): item}))
        store.create("b").append(draft(Note(text=f"they wrote: {said}")))
        told = redact(store, [s[1].id], reason="r", look_around=[s[1].id], dry_run=True)
        assert [(one.session, one.position) for one in told.echoes] == [("a", 3), ("b", 1)]
        assert (
            redact(store, [s[2].id], reason="r", look_around=[s[2].id], dry_run=True).echoes == ()
        )  # too short to be known again
    dry = cli("redact", "a:1", "--dry-run", store=sqlite_url)
    assert "2 other chunks in 2 sessions say the same words and stay" in dry.output
    assert "redact --text WORDS" in dry.output
    assert [
        one["session"] for one in json.loads(cli("redact", "a:1", "--dry-run", "--json", store=sqlite_url).output)["echoes"]
    ] == ["a", "b"]
    done = cli("redact", "a:1", "--reason", "asked", "--yes", store=sqlite_url)
    assert done.exit_code == 0
    assert "1 chunk and 0 objects to erase" in dry.output
    assert "1 chunk and 0 objects erased" in done.output
    assert "to erase" not in done.output
    assert done.output.splitlines()[-1].startswith("2 other chunks in 2 sessions say the same words and stay: rath-bridge redact")
    taken = cli("redact", "--text", "0171 555", "--reason", "asked", "--yes", "--json", store=sqlite_url)
    assert json.loads(taken.output)["echoes"] == []
    with rb.open_store(sqlite_url) as store:
        hits = find_text(store.backend, "0171 555")
        assert hits.chunks == hits.objects == ()
