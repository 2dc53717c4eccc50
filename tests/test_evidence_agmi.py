"""The public tamper suite ``agent-memory-integrity`` (agmi), run as it is against packets and against a SQLite store.

Its nine edits at rest apply whole (T1 to T9). Its other half does not: memory injection, cross-session bleed, retrieval hijacks, indirect
prompt injection, update and metadata poisoning, and its mutations ask what a *retriever* serves to a model; nothing is retrieved here.
Its authorisation checks ask a server who may write; a packet has no server. The suite's own premise, that the attacker can write the
store and holds no key, is ours: he may even rebuild everything, and only a head (or a key) from elsewhere finds him.
"""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from agmi.adapters.base import MemoryAdapter, Record
from agmi.attacks.at_rest import AT_REST_ATTACKS_WITH_SNAPSHOT

import rath_bridge as rb
from rath_bridge.model.chunk import now, parse_envelope
from rath_bridge.store import rows
from rath_bridge.store.arriving import Arrival, Landing

Entry = tuple[dict[str, Any], str]
"""Envelope and body."""


class Ours(MemoryAdapter):  # type: ignore[misc]
    """What packets and stores have in common: a record is a message, its metadata are the envelope's."""

    supports_replay = supports_metadata = supports_snapshot = True
    store: rb.Store

    def setup(self) -> None:
        self.home = Path(tempfile.mkdtemp())
        self.head, self.clock = "", now()
        self.begin()

    def teardown(self) -> None:
        shutil.rmtree(self.home)

    def begin(self) -> None:
        raise NotImplementedError

    def publish(self) -> None:
        raise NotImplementedError

    def entries(self, session: str) -> list[Entry]:
        raise NotImplementedError

    def put(self, entries: list[Entry]) -> None:
        raise NotImplementedError

    def say(self, session: str, *texts: str) -> None:
        drafts = [rb.message("user", text)._replace(at=self.clock + i) for i, text in enumerate(texts)]
        self.clock += len(drafts)  # no two at one moment: it names the record
        self.store.session(session, create=True).append(*drafts)
        self.publish()

    def seed(self, n: int) -> None:
        self.say("a", *(f"seed {i}" for i in range(n)))

    def seed_other(self, n: int) -> None:
        self.say("b", *(f"other {i}" for i in range(n)))

    def append_genuine(self) -> None:
        self.say("a", "one more")

    def reload(self) -> None:
        """Nothing is kept open."""

    def records(self, session: str) -> list[Record]:
        found = self.entries(session)[1:]
        return [
            Record(
                i,
                {
                    "id": told["at"],
                    "owner": session,
                    "body": body,
                    "meta": {k: v for k, v in told.items() if k not in ("parents", "body", "size")},
                },
            )
            for i, (told, body) in enumerate(found)
        ]

    def read_all_raw(self) -> list[Record]:
        return self.records("a")

    def read_other_raw(self) -> list[Record]:
        return self.records("b")

    def payload_of(self, record: Record) -> str:
        return str(record.fields["body"])

    def owner_of(self, record: Record) -> str:
        return str(record.fields["owner"])

    def mutate_payload(self, record: Record) -> Record:
        record.fields["body"] = record.fields["body"].replace('"content":"', '"content":"not ')
        return record

    def write_raw(self, record: Record) -> None:
        found = self.entries("a")
        told = found[min(record.seq + 1, len(found) - 1)][0]
        found[record.seq + 1 : record.seq + 2] = [({**told, **record.fields["meta"]}, record.fields["body"])]
        self.put(found)

    def delete_raw(self, seq: int) -> None:
        found = self.entries("a")
        del found[seq + 1]
        self.put(found)

    def replay_onto(self, victim_seq: int, donor: Record) -> None:
        found = self.entries("a")
        found[victim_seq + 1] = (found[victim_seq + 1][0], donor.fields["body"])
        self.put(found)

    def read_meta(self, seq: int) -> dict[str, Any]:
        return dict(self.records("a")[seq].fields["meta"])

    def write_meta(self, seq: int, meta: dict[str, Any]) -> None:
        found = self.entries("a")
        found[seq + 1] = ({**found[seq + 1][0], **meta}, found[seq + 1][1])
        self.put(found)


def chained(entries: list[Entry]) -> list[tuple[bytes, bytes]]:
    """Hash everything again, as somebody does who knows how it is made."""
    found: list[tuple[bytes, bytes]] = []
    for told, body in entries:
        parents = [hashlib.sha256(found[-1][0]).hexdigest()] if found else []
        again = {**told, "body": hashlib.sha256(body.encode()).hexdigest(), "size": len(body.encode())}
        again.pop("parents", None)
        found.append(
            (orjson.dumps({**again, "parents": parents} if parents else again, option=orjson.OPT_SORT_KEYS), body.encode())
        )
    return found


class Packet(Ours):
    """Somebody changes lines of a packet and makes new sums; or he rebuilds the packet whole."""

    def __init__(self, rebuilds: bool) -> None:
        self.rebuilds = rebuilds
        self.name = "a packet, rebuilt" if rebuilds else "a packet, with new sums"

    def begin(self) -> None:
        self.store = rb.open_store("memory:")

    @property
    def place(self) -> Path:
        return self.home / "packet"

    def publish(self) -> None:
        rb.export_packet(self.store.sessions(), self.place, overwrite=True, environment=False)
        self.head = self.store.session("a").head

    def lines(self) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        name = ""
        for envelope, body in zip(
            *((self.place / f"{name}.jsonl").read_bytes().splitlines() for name in ("chunks", "bodies")), strict=True
        ):
            told = orjson.loads(envelope)
            name = orjson.loads(body)["name"] if told["kind"] == "session" else name
            found.setdefault(name, []).append((told, body.decode()))
        return found

    def entries(self, session: str) -> list[Entry]:
        return self.lines()[session]

    def put(self, entries: list[Entry]) -> None:
        everything = self.lines() | {"a": entries}
        if self.rebuilds:
            there = rb.open_store("memory:")
            for name, found in everything.items():
                chunks = [parse_envelope(envelope, body) for envelope, body in chained(found)]
                there.backend.ingest([Arrival(chunk, {}) for chunk in chunks], [Landing(name, "main", None, chunks[-1].id)])
            rb.export_packet(there.sessions(), self.place, overwrite=True, environment=False)
            return
        flat = [entry for found in everything.values() for entry in found]
        (self.place / "chunks.jsonl").write_bytes(
            b"".join(orjson.dumps(told, option=orjson.OPT_SORT_KEYS) + b"\n" for told, _ in flat)
        )
        (self.place / "bodies.jsonl").write_text("".join(f"{body}\n" for _, body in flat))
        files = sorted(path.relative_to(self.place).as_posix() for path in self.place.rglob("*") if path.is_file())
        sums = [
            f"{hashlib.sha256((self.place / name).read_bytes()).hexdigest()}  {name}\n" for name in files if name != "SHA256SUMS"
        ]
        (self.place / "SHA256SUMS").write_text("".join(sums))

    def verify(self) -> bool:
        report = rb.verify_packet(self.place, head=self.head)
        self.verify_detail = str(report.findings[0]) if report.findings else None
        return report.ok and report.heads["a"] == self.head  # a forged end is not behind a head, but after it

    def snapshot_store(self) -> object:
        return self._copy_store(self.place)

    def restore_store(self, token: Any) -> None:
        self._restore_store(token, self.place)


class File(Ours):
    """Somebody edits the rows of a SQLite store, and hashes them again."""

    name = "a SQLite store"

    @property
    def path(self) -> Path:
        return self.home / "s.db"

    def begin(self) -> None:
        self.url = f"sqlite:///{self.path}"

    def say(self, session: str, *texts: str) -> None:
        with rb.open_store(self.url) as self.store:
            super().say(session, *texts)
        self.store = rb.open_store("memory:")

    def publish(self) -> None:
        self.head = self.store.session("a").head

    def entries(self, session: str) -> list[Entry]:
        with rb.open_store(self.url) as store:
            return [
                (orjson.loads(chunk.envelope), (chunk.body_bytes or b"").decode()) for chunk in store.session(session).chunks()
            ]

    def put(self, entries: list[Entry]) -> None:
        made = chained(entries)
        with closing(sqlite3.connect(self.path)) as db:
            ref, tip = db.execute("SELECT n, tip FROM rath_ref WHERE session = 'a' OR session = x'61'").fetchone()
            first = tip >> 24 << 24
            example = list(db.execute("SELECT * FROM rath_chunk WHERE n = ?", (tip,)).fetchone())
            db.execute("DELETE FROM rath_chunk WHERE n >> 24 = ?", (tip >> 24,))
            for number, (envelope, body) in enumerate(made):
                chunk = parse_envelope(envelope, body)
                form, data = rows.pack(body)
                row = [first + number, bytes.fromhex(chunk.id), *example[2:]]
                row[2] = self.terms(db, chunk.kind)
                row[3], row[9], row[10], row[11] = chunk.at, form, data, envelope if chunk.raw is not None else None
                db.execute(f"INSERT INTO rath_chunk VALUES ({', '.join('?' * len(row))})", row)
            last = hashlib.sha256(made[-1][0]).digest()
            db.execute("UPDATE rath_ref SET tip = ?, head = ? WHERE n = ?", (first + len(made) - 1, last, ref))
            db.execute("DELETE FROM rath_reflog WHERE ref = ? AND old IS NOT NULL", (ref,))
            db.execute("UPDATE rath_reflog SET new = ? WHERE ref = ?", (first + len(made) - 1, ref))
            db.commit()

    @staticmethod
    def terms(db: sqlite3.Connection, text: str) -> int:
        return int(db.execute("SELECT n FROM rath_term WHERE text = ?", (text.encode(),)).fetchone()[0])

    def verify(self) -> bool:
        with rb.open_store(self.url) as store:
            findings = list(store.fsck(head=self.head))
            head = store.session("a").head
        self.verify_detail = str(findings[0]) if findings else None
        return not findings and head == self.head

    def snapshot_store(self) -> object:
        return self._copy_store(self.path)

    def restore_store(self, token: Any) -> None:
        self._restore_store(token, self.path)


@pytest.mark.parametrize("attack", AT_REST_ATTACKS_WITH_SNAPSHOT, ids=lambda attack: attack.name)
@pytest.mark.parametrize(
    "make", [lambda: Packet(rebuilds=False), lambda: Packet(rebuilds=True), File], ids=["sums", "rebuilt", "sqlite"]
)
def test_every_edit_at_rest_is_found(make: Any, attack: Any) -> None:
    result = attack().run(make())
    assert (result.error, result.guard) == (None, None)
    assert result.status == "safe", result.detail
