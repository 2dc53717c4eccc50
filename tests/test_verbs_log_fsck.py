"""log and fsck: order, paging, and every kind of damage on memory and SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

import rath_bridge as rb
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import digest
from rath_bridge.model.kinds import Message, ToolCall, ToolResult
from rath_bridge.model.parts import TextPart
from rath_bridge.store.protocol import RefMove
from rath_bridge.verbs import lineage
from rath_bridge.verbs.fsck import Finding, fsck
from rath_bridge.verbs.log import log
from tests.rich_session import rich_session


class Counting:
    """A reader that counts the chunks it hands out."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.read = 0
        self.most = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def chunk(self, name: str) -> Chunk:
        self.read += 1
        return self._backend.chunk(name)

    def line(self, head: str, start: int = 0, stop: int | None = None) -> Any:
        page = list(self._backend.line(head, start, stop))
        self.read += len(page)
        self.most = max(self.most, len(page))
        return iter(page)


def long_session(store: rb.Store, length: int, name: str = "long") -> rb.Session:
    return store.create(name).append(*[rb.message("user", f"hello {n}") for n in range(length - 1)])


# ---------------------------------------------------------------- log


def test_log_of_a_line_is_newest_first_with_ref_names(store_url: str) -> None:
    with rb.open_store(store_url) as store:
        s = rich_session(store)
        entries = list(s.log())
        assert [e.chunk.id for e in entries] == [c.id for c in s.chunks()][::-1]
        assert entries[0].refs == ("ticket",)
        assert [e.refs for e in entries if e.refs] == [("ticket",)]


def test_log_of_all_branches_has_each_chunk_once_and_children_first(store_url: str) -> None:
    with rb.open_store(store_url) as store:
        s = rich_session(store)
        seen: set[str] = set()
        entries = list(s.log(all=True))
        for entry in entries:
            assert entry.chunk.id not in seen
            assert seen.isdisjoint(entry.chunk.parents)
            seen.add(entry.chunk.id)
        assert seen == {c.id for c in lineage.ancestors(s.head, store.backend)} | set(s.heads().values())
        assert {name for e in entries for name in e.refs} == {"ticket", "ticket@side", "ticket@try"}


def test_log_of_several_lines_follows_first_parents_only() -> None:
    store = rb.open_store("memory:")
    s = rich_session(store)
    side = store.session("ticket@side")
    found = [e.chunk.id for e in log([s.head, side.head], store.backend)]
    assert sorted(found) == sorted({c.id for c in s.chunks()} | {c.id for c in side.chunks()})


def test_the_first_lines_of_a_log_read_little() -> None:
    store = rb.open_store("memory:")
    s = long_session(store, 5_000)
    reader: Any = Counting(store.backend)
    entries = log([s.head], reader)
    first = [next(entries).chunk.position for _ in range(5)]
    assert first == [4999, 4998, 4997, 4996, 4995]
    assert reader.read < 100
    assert sum(1 for _ in entries) == 4_995
    assert reader.most <= 1024


def test_log_goes_through_1500_forks_in_a_row() -> None:
    store = rb.open_store("memory:")
    s = store.create("deep")
    for n in range(1_500):
        s = s.fork(f"b{n}")
    assert len(list(s.log())) == 1_501
    assert len(list(s.log(all=True))) == 1_501
    assert list(store.fsck()) == []


# ---------------------------------------------------------------- walks


def test_apart_reads_what_the_distance_needs() -> None:
    store = rb.open_store("memory:")
    s = long_session(store, 10_000)
    fork = s.fork("f").append(*[rb.message("user", f"x{n}") for n in range(9)])
    s = s.append(*[rb.message("user", f"y{n}") for n in range(10)])
    reader: Any = Counting(store.backend)
    base, ours, theirs = lineage.apart(s.head, fork.head, reader)
    assert (base, len(ours), len(theirs)) == (s[9_999].id, 10, 10)
    assert reader.read < 200


def test_pages_let_old_chunks_go() -> None:
    store = rb.open_store("memory:")
    s = long_session(store, 3_000)
    pages = lineage.Pages(store.backend, keep=256)
    name: str | None = s.head
    count = 0
    while name is not None:
        chunk = pages.chunk(name)
        count += 1
        name = chunk.parents[0] if chunk.parents else None
    assert count == 3_000
    assert len(pages._known) + len(pages._older) < 3_000


# ---------------------------------------------------------------- fsck, sound


def test_a_sound_store_has_no_findings(store_url: str) -> None:
    with rb.open_store(store_url) as store:
        s = rich_session(store)
        s.detach("copy")
        assert list(store.fsck()) == []
        assert s.fsck() == []
        assert s.fsck(head=s[5].id) == []


def test_shared_history_is_checked_once() -> None:
    store = rb.open_store("memory:")
    s = long_session(store, 2_000)
    for n in range(40):
        s.fork(f"b{n}")
    reader: Any = Counting(store.backend)
    assert list(fsck(reader)) == []
    assert reader.read < 2_000 + 42 * 600  # a page to find where each branch parts, not its whole line
    assert reader.most <= 512


def test_a_head_known_from_elsewhere_must_be_in_the_history() -> None:
    store = rb.open_store("memory:")
    s, other = rich_session(store), store.create("other")
    assert [f.object for f in s.fsck(head=other.head)] == [other.head]
    assert [f.object for f in store.fsck(head="0" * 64)] == ["0" * 64]
    side = store.session("ticket@side")
    assert s.fsck(head=side.head) == []  # it was merged in, by way of `try`


@pytest.mark.parametrize("writes", [1, 2, 100])
def test_a_ref_that_moves_while_it_is_checked_is_no_finding(store_url: str, writes: int) -> None:
    class Busy(Counting):
        left = writes

        def write(self) -> None:
            if self.left:
                self.left -= 1
                store.session("s").append(rb.message("user", "meanwhile"))

        def reflog(self, session: str, branch: str) -> list[RefMove]:
            self.write()
            return self._backend.reflog(session, branch)

        def ref(self, session: str, branch: str) -> Any:
            self.write()
            return self._backend.ref(session, branch)

    with rb.open_store(store_url) as store:
        store.create("s").append(rb.message("user", "one"))
        reader: Any = Busy(store.backend)
        assert list(fsck(reader)) == []


def test_findings_print_as_one_line() -> None:
    assert str(Finding("abc", "it is gone", "ticket[3]")) == "abc: it is gone (ticket[3])"
    assert str(Finding("abc", "it is gone")) == "abc: it is gone"


# ---------------------------------------------------------------- fsck, damaged: memory

Damage = Callable[[Any, rb.Session], str]
"""Damages a backend; returns the object that must be named."""


def put_row(backend: Any, row: Any, **changes: Any) -> None:
    new = row._replace(**changes)
    backend._rows[row.id] = new
    line = row.line.rows
    line[line.index(row)] = new


def row_at(backend: Any, s: rb.Session, position: int) -> Any:
    return backend._rows[s[position].id]


def altered_body(backend: Any, s: rb.Session) -> str:
    row = row_at(backend, s, 7)
    put_row(backend, row, draft=row.draft._replace(body=row.draft.body.replace(b"found", b"bound")))
    return row.id


def altered_kind(backend: Any, s: rb.Session) -> str:
    row = row_at(backend, s, 7)
    put_row(backend, row, draft=row.draft._replace(kind="note"))
    return row.id


def altered_time(backend: Any, s: rb.Session) -> str:
    row = row_at(backend, s, 0)
    put_row(backend, row, draft=row.draft._replace(at=row.draft.at + 1))
    return row.id


def body_that_is_no_json(backend: Any, s: rb.Session) -> str:
    row = row_at(backend, s, 7)
    put_row(backend, row, draft=row.draft._replace(body=b"{"))
    return row.id


def body_without_a_required_field(backend: Any, s: rb.Session) -> str:
    row = row_at(backend, s, 7)
    put_row(backend, row, draft=row.draft._replace(body=b"{}"))
    return row.id


def missing_in_the_middle(backend: Any, s: rb.Session) -> str:
    row = row_at(backend, s, 7)
    row.line.rows.remove(row)
    del backend._rows[row.id]
    return row.id


def missing_parent_of_a_merge(backend: Any, s: rb.Session) -> str:
    merge = next(c for c in s.chunks() if len(c.parents) == 2)
    del backend._rows[merge.parents[1]]
    return merge.parents[1]


def swapped(backend: Any, s: rb.Session) -> str:
    rows = row_at(backend, s, 7).line.rows
    rows[7], rows[8] = rows[8], rows[7]
    return rows[7].id


def wrong_parent(backend: Any, s: rb.Session) -> str:
    row = row_at(backend, s, 7)
    put_row(backend, row, parents=(s[2].id,))
    return row.id


def wrong_generation(backend: Any, s: rb.Session) -> str:
    row = row_at(backend, s, 7)
    put_row(backend, row, generation=99)
    return row.id


def missing_blob(backend: Any, s: rb.Session) -> str:
    from tests.rich_session import LONG

    name = digest(LONG.encode())
    del backend._objects[name]
    return name


def altered_blob(backend: Any, s: rb.Session) -> str:
    from tests.rich_session import LONG

    name = digest(LONG.encode())
    backend._objects[name] = LONG.encode()[:-1] + b"!"
    return name


def missing_native(backend: Any, s: rb.Session) -> str:
    ref = next(c.native_ref for c in s.chunks() if c.native_ref)
    del backend._objects[ref["digest"]]
    return ref["digest"]


def missing_tree_node(backend: Any, s: rb.Session) -> str:
    body: Any = next(c.body for c in reversed(list(s.chunks())) if c.kind == "checkpoint")
    del backend._objects[body.state.digest]
    return body.state.digest


def missing_item_of_a_list_in_a_state(backend: Any, s: rb.Session) -> str:
    name = digest(b"item 20 of a list that grows")
    del backend._objects[name]
    return name


def node_that_is_no_node(backend: Any, s: rb.Session) -> str:
    body: Any = next(c.body for c in s.chunks() if c.kind == "workspace")
    backend._objects[body.files.digest] = b"nonsense"
    return body.files.digest


def ref_to_nowhere(backend: Any, s: rb.Session) -> str:
    tip = backend._tips["ticket", "side"]
    tip.row = tip.row._replace(id="f" * 64)
    return "f" * 64


def cut_reflog(backend: Any, s: rb.Session) -> str:
    backend._tips["ticket", "main"].moves.pop()
    return "ticket"


def reflog_to_nowhere(backend: Any, s: rb.Session) -> str:
    moves = backend._tips["ticket", "main"].moves
    moves.insert(1, RefMove(0, moves[0].new, "e" * 64, "append"))
    return "e" * 64


def reflog_with_a_hole(backend: Any, s: rb.Session) -> str:
    del backend._tips["ticket", "main"].moves[1]
    return "ticket"


DAMAGES = [
    altered_body, altered_kind, altered_time, body_that_is_no_json, body_without_a_required_field, missing_in_the_middle,
    missing_parent_of_a_merge, swapped, wrong_parent, wrong_generation, missing_blob, altered_blob, missing_native,
    missing_tree_node, missing_item_of_a_list_in_a_state, node_that_is_no_node, ref_to_nowhere, cut_reflog, reflog_to_nowhere,
    reflog_with_a_hole,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__)
def test_fsck_names_what_is_damaged(damage: Damage) -> None:
    store = rb.open_store("memory:")
    s = rich_session(store)
    named = damage(store.backend, s)
    findings = list(store.fsck())
    assert named in [f.object for f in findings]
    assert all(f.problem for f in findings)


def test_fsck_goes_on_behind_the_first_fault() -> None:
    store = rb.open_store("memory:")
    s = rich_session(store)
    named = {altered_body(store.backend, s), missing_blob(store.backend, s), cut_reflog(store.backend, s)}
    assert named <= {f.object for f in store.fsck()}


def test_two_results_for_one_call_are_a_fault_on_their_own_line_only() -> None:
    store = rb.open_store("memory:")
    s = rich_session(store)
    end = next(c for c in s.chunks() if c.kind == "tool_result")
    before = s[end.position - 1]
    left = s.fork("left", at=before.id).append(rb.draft(ToolResult(call_id="call-0", result="L"), run="r2"))
    right = s.fork("right", at=before.id).append(rb.draft(ToolResult(call_id="call-0", result="R"), run="r2"))
    assert list(store.fsck()) == []
    left = left.append(rb.draft(ToolResult(call_id="call-0", result="again"), run="r2"))
    findings = list(store.fsck())
    assert [f.object for f in findings] == [left.head]
    assert "second result" in findings[0].problem
    assert right.fsck() == []


def test_a_call_id_may_be_used_again_once_its_call_was_answered() -> None:
    store = rb.open_store("memory:")
    s = store.create("s")
    for result in ("one", "two"):
        s = s.append(rb.draft(ToolCall(name="t", call_id="1")), rb.draft(ToolResult(call_id="1", result=result)))
    assert list(store.fsck()) == []


def test_targets_that_do_not_exist_are_named() -> None:
    store = rb.open_store("memory:")
    s = store.create("s").append(rb.draft(Message(role="user", parts=(TextPart("x"),), replaces="a" * 64)))
    assert [(f.object, f.path) for f in s.fsck()] == [("a" * 64, "s[1]")]


# ---------------------------------------------------------------- fsck, damaged: SQLite


def chunk_number(db: sqlite3.Connection, name: str) -> int:
    return db.execute("SELECT n FROM rath_chunk WHERE id = ?", (bytes.fromhex(name),)).fetchone()[0]


def sql_altered_body(db: sqlite3.Connection, s: rb.Session) -> str:
    n = chunk_number(db, s[7].id)
    db.execute("UPDATE rath_chunk SET form = 0, body = ? WHERE n = ?", (b'{"name":"other"}', n))
    return s[7].id


def sql_broken_body(db: sqlite3.Connection, s: rb.Session) -> str:
    n = chunk_number(db, s[7].id)
    db.execute("UPDATE rath_chunk SET form = 8, body = ? WHERE n = ?", (b"garbage", n))
    return s[7].id


def sql_altered_time(db: sqlite3.Connection, s: rb.Session) -> str:
    db.execute("UPDATE rath_chunk SET at = at + 1 WHERE id = ?", (bytes.fromhex(s[7].id),))
    return s[7].id


def sql_missing_chunk(db: sqlite3.Connection, s: rb.Session) -> str:
    db.execute("DELETE FROM rath_chunk WHERE id = ?", (bytes.fromhex(s[7].id),))
    return "ticket[7]"  # a row names its parent by its place only, so the digest went with it


def sql_altered_id(db: sqlite3.Connection, s: rb.Session) -> str:
    db.execute("UPDATE rath_chunk SET id = ? WHERE id = ?", (b"\xee" * 32, bytes.fromhex(s[7].id)))
    return "ee" * 32


def sql_altered_object(db: sqlite3.Connection, s: rb.Session) -> str:
    from tests.rich_session import LONG

    name = digest(LONG.encode())
    db.execute("UPDATE rath_object SET form = 0, data = ? WHERE digest = ?", (b"other", bytes.fromhex(name)))
    return name


def sql_missing_object(db: sqlite3.Connection, s: rb.Session) -> str:
    from tests.rich_session import LONG

    name = digest(LONG.encode())
    db.execute("DELETE FROM rath_object WHERE digest = ?", (bytes.fromhex(name),))
    return name


def sql_moved_ref(db: sqlite3.Connection, s: rb.Session) -> str:
    db.execute("UPDATE rath_ref SET head = ? WHERE branch = ?", (b"\xdd" * 32, b"side"))
    return "dd" * 32


def sql_cut_reflog(db: sqlite3.Connection, s: rb.Session) -> str:
    last = "SELECT max(l.n) FROM rath_reflog l, rath_ref r WHERE l.ref = r.n AND r.branch = ?"
    db.execute(f"DELETE FROM rath_reflog WHERE n = ({last})", (b"main",))
    return "ticket"


SQL_DAMAGES = [
    sql_altered_body, sql_broken_body, sql_altered_time, sql_missing_chunk, sql_altered_id, sql_altered_object, sql_missing_object,
    sql_moved_ref, sql_cut_reflog,
]  # fmt: skip


@pytest.mark.parametrize("damage", SQL_DAMAGES, ids=lambda d: d.__name__)
def test_fsck_names_what_is_damaged_in_a_file(damage: Callable[[sqlite3.Connection, rb.Session], str], sqlite_url: str) -> None:
    with rb.open_store(sqlite_url) as store:
        s = rich_session(store)
        db = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
        with db:
            named = damage(db, s)
        db.close()
    with rb.open_store(sqlite_url) as store:
        findings = list(store.fsck())
    assert named in [f.object for f in findings]
