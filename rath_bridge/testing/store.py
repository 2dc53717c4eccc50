"""What every store must do: subclass `StoreContract`, give it a ``backend`` fixture, and run pytest.

Source of the contract: `rath_bridge.store.protocol.Backend`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from threading import Barrier
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rath_bridge.errors import (
    ConflictError,
    CorruptStoreError,
    ErasedError,
    MissingChunkError,
    MissingObjectError,
    MissingSessionError,
    NameInUseError,
    RathError,
)
from rath_bridge.model.chunk import Chunk, Draft, Key, Native, SpanContext, draft, parse_envelope, render_envelope
from rath_bridge.model.digests import digest
from rath_bridge.model.encoding import BlobRef, TreeRef
from rath_bridge.model.kinds import Note, SessionStart, Unknown
from rath_bridge.model.trees import list_tree, open_list, read_list
from rath_bridge.session import Store
from rath_bridge.store.arriving import Arrival, Landing
from rath_bridge.store.memory import MemoryBackend
from rath_bridge.store.protocol import Appended, Backend
from rath_bridge.testing import strategies
from rath_bridge.verbs.lineage import ancestors

NOBODY = digest(b"nobody has this")
ODD_NAMES = ("plain", "langgraph/1", "ünï", "\U0001f600", "a\u2028b", "100%", "_", "o'brien", 'q"uote', "back\\slash", "x" * 400)
ODD_KEYS = (
    "", "a", "A", "a ", "a\0", "a\0b", "%", "_", "é", "e\u0301", "\u2028", "\ud800", "\uffff", "\U00010000", "o'b", '"', "\\",
    "k" * 900,
)  # fmt: skip
_relaxed = settings(deadline=None, max_examples=20, suppress_health_check=(HealthCheck.too_slow, HealthCheck.differing_executors))


def note(text: str = "", **options: Any) -> Draft:
    """A chunk that says something."""
    return draft(Note(text=text), **options)


def start(name: str = "s") -> Draft:
    """The first chunk of a session."""
    return draft(SessionStart(op="create", name=name))


def begin(backend: Backend, name: str = "s", texts: Sequence[str] = ()) -> Appended:
    """Create a session with a chunk for each text."""
    return backend.append(name, "main", [start(name), *map(note, texts)], head=None, reason="create")


def said(backend: Backend, head: str) -> list[str]:
    """The texts of a line."""
    return [str(chunk.values.get("text", "")) for chunk in backend.line(head) if chunk.kind == "note"]


class StoreContract:
    """Subclass it with a ``backend`` fixture that gives an empty store; override `reopen` where data outlives the process."""

    def reopen(self, backend: Backend) -> Backend | None:
        """Return another backend over the same data, or None where there is no such thing (``memory:``)."""
        return None

    # ---------------------------------------------------------------- append and read

    def test_a_new_store_is_empty(self, backend: Backend) -> None:
        assert backend.refs() == []
        assert backend.ref("s", "main") is None
        assert backend.reflog("s", "main") == []
        assert backend.find("00") == []
        assert list(backend.objects([])) == []
        assert backend.scopes("made") == []

    def test_append_creates_and_continues(self, backend: Backend) -> None:
        made = begin(backend, texts=["a"])
        assert (made.written, len(made.chunks)) == (2, 2)
        assert made.ref == backend.ref("s", "main")
        assert (made.ref.name, made.ref.head, made.ref.position) == ("s", made.chunks[-1].id, 1)
        more = backend.append("s", "main", [note("b"), note("c")], head=made.ref.head)
        assert said(backend, more.ref.head) == ["a", "b", "c"]
        line = list(backend.line(more.ref.head))
        assert [c.position for c in line] == [c.generation for c in line] == [0, 1, 2, 3]
        assert [c.parents for c in line] == [(), *((c.id,) for c in line[:-1])]
        assert line == [*made.chunks, *more.chunks]

    def test_a_chunk_is_its_envelope(self, backend: Backend) -> None:
        item = note(
            "x", run="r\u2028", origin={"adapter": "made", "version": "1"}, span=SpanContext("1" * 32, "2" * 16, "3" * 16),
            at=1_700_000_000_123_456, native=Native("made", "1", "raw", b"\xff\0native"),
        )  # fmt: skip
        made = backend.append("s", "main", [start(), item], head=None)
        chunk = backend.chunk(made.ref.head)
        for one in (chunk, made.chunks[1], list(backend.line(made.ref.head))[1]):
            assert one.envelope == render_envelope(item, (made.chunks[0].id,))
            assert digest(one.envelope) == one.id == made.ref.head
            assert one.body_bytes == item.body
            assert one.body_digest == digest(item.body)
            assert one.native == Native("made", "1", "raw", b"\xff\0native")
            assert (one.at, one.run, one.span, one.origin) == (item.at, item.run, item.span, item.origin)
            assert (one.size, one.kind, one.raw) == (len(item.body), "note", None)

    def test_anything_that_can_be_drafted_is_kept(self, backend: Backend) -> None:
        made = begin(backend)
        head = made.ref.head

        @_relaxed
        @given(st.lists(strategies.drafts(), min_size=1, max_size=4))
        def check(items: list[Draft]) -> None:
            nonlocal head
            done = backend.append("s", "main", items, head=head)
            parent, head = head, done.ref.head
            assert done.written == len(items)
            for item, given_back, stands in zip(items, done.chunks, backend.line(head, done.chunks[0].position), strict=True):
                for chunk in (given_back, stands, backend.chunk(stands.id)):
                    assert chunk.envelope == render_envelope(item, (parent,))
                    assert (chunk.body_bytes, chunk.id) == (item.body, digest(chunk.envelope))
                assert backend.objects(item.objects) == item.objects
                assert stands.values.keys() == given_back.values.keys()
                parent = stands.id

        check()

    def test_an_empty_session_and_unknown_kinds(self, backend: Backend) -> None:
        later = draft(Unknown(name="later.kind", fields={"x": [1, {"$rath": 2}], "long": "y" * 2000}))
        made = backend.append("s", "main", [later], head=None)
        assert backend.chunk(made.ref.head).body == Unknown(
            name="later.kind", fields={"x": [1, {"$rath": 2}], "long": "y" * 2000}
        )

    def test_the_line_is_paged(self, backend: Backend) -> None:
        made = begin(backend, texts=[str(i) for i in range(700)])
        whole = list(backend.line(made.ref.head))
        assert [c.id for c in whole] == [c.id for c in made.chunks]
        for first, stop in (
            (0, None),
            (0, 0),
            (0, 1),
            (5, 9),
            (255, 258),
            (640, None),
            (700, 701),
            (701, None),
            (9, 5),
            (0, 9999),
        ):
            assert list(backend.line(made.ref.head, first, stop)) == whole[first:stop]
        middle = whole[300].id
        assert list(backend.line(middle)) == whole[:301]
        assert list(backend.line(middle, 298)) == whole[298:301]
        reading = backend.line(made.ref.head)  # a reader that stops in the middle leaves nothing behind
        next(reading)
        backend.append("s", "main", [note("more")], head=made.ref.head)
        assert len(list(reading)) == 700

    def test_missing_things_are_named(self, backend: Backend) -> None:
        head = begin(backend).ref.head
        with pytest.raises(MissingChunkError):
            backend.chunk(NOBODY)
        with pytest.raises(MissingChunkError):
            list(backend.line(NOBODY))
        with pytest.raises(MissingObjectError):
            backend.objects([NOBODY])
        with pytest.raises(MissingChunkError):
            backend.append("t", "main", [start()], head=None, parents=(NOBODY,))
        with pytest.raises(MissingSessionError):
            backend.append("nobody", "main", [note()], head=head)
        with pytest.raises(NameInUseError):
            begin(backend)
        with pytest.raises(MissingChunkError):
            backend.copy("t", "main", NOBODY, start())
        assert [ref.name for ref in backend.refs()] == ["s"]
        assert backend.lookup(Key("made", "1", "", "nothing")) is None

    def test_find(self, backend: Backend) -> None:
        made = begin(backend, texts=[str(i) for i in range(60)])
        some = made.chunks[7].id
        assert backend.find(some) == [some]
        assert backend.find(some[:20]) == [some]
        assert backend.find(some[:19]) == [some]
        by_digit = [name for digit in "0123456789abcdef" for name in backend.find(digit)]
        assert set(by_digit) <= {c.id for c in made.chunks}
        assert len(backend.find(some[0])) == min(10, sum(c.id[0] == some[0] for c in made.chunks))
        assert backend.find(NOBODY) == []

    # ---------------------------------------------------------------- objects

    def test_objects_are_kept_once_and_exactly(self, backend: Backend) -> None:
        long, data = "long text " * 100, bytes(range(256)) * 9
        ref = BlobRef(digest(data), len(data), "image/png")
        body = Unknown(name="x", fields={"text": long, "again": [long], "blob": ref, "small": b"\0"})
        made = backend.append("s", "main", [draft(body, objects={ref.digest: data})], head=None)
        found = backend.objects([ref.digest, digest(long.encode()), ref.digest])
        assert found == {ref.digest: data, digest(long.encode()): long.encode()}
        assert backend.chunk(made.ref.head).body == body
        empty = digest(b"")
        backend.append("s", "main", [note(objects={empty: b""})], head=made.ref.head)
        assert backend.objects([empty]) == {empty: b""}

    def test_a_native_record_with_a_long_text_comes_back_exactly(self, backend: Backend) -> None:
        long = "text with \u2028, é and \U0001f600; " * 60
        head = begin(backend).ref.head
        for data in (b'{"content":"' + long.encode() + b'"}', long.encode(), long.encode() * 3, b"\0" + long.encode() + b"\xff"):
            done = backend.append("s", "main", [note(long, native=Native("made", "1", "raw", data))], head=head)
            head = done.ref.head
            for chunk in (done.chunks[0], backend.chunk(head)):
                assert chunk.native is not None
                assert chunk.native.data == data
                assert chunk.values["text"] == long
            assert backend.objects([digest(data)]) == {digest(data): data}

    def test_a_growing_tree(self, backend: Backend) -> None:
        head, tree = begin(backend).ref.head, None
        items: list[bytes] = []
        for turn in range(40):
            items += [b"item %d.%d" % (turn, i) for i in range(3)]
            names = [bytes.fromhex(digest(item)) for item in items]
            tree, nodes = list_tree(names, tree)
            objects = {**nodes, **{digest(item): item for item in items[-3:]}}
            body = Unknown(name="x", fields={"state": tree.ref})
            head = backend.append("s", "main", [draft(body, objects=objects)], head=head).ref.head
        assert tree is not None
        ref = backend.chunk(head).values["state"]
        assert isinstance(ref, TreeRef)
        names = read_list(ref, backend.objects)
        held = backend.objects([name.hex() for name in names])
        assert [held[name.hex()] for name in names] == items
        assert open_list(ref, backend.objects).ref == ref

    # ---------------------------------------------------------------- forks and races

    def test_a_fork_begins_at_any_chunk(self, backend: Backend) -> None:
        made = begin(backend, texts=["a", "b", "c"])
        for at in range(4):
            done = backend.append(f"f{at}", "main", [start()], head=None, parents=(made.chunks[at].id,), reason="fork")
            assert (done.ref.position, done.chunks[0].parents) == (at + 1, (made.chunks[at].id,))
            assert list(backend.line(done.ref.head)) == [*made.chunks[: at + 1], *done.chunks]
            more = backend.append(f"f{at}", "main", [note("x")], head=done.ref.head)
            assert said(backend, more.ref.head) == [*"abc"[:at], "x"]
        assert said(backend, made.ref.head) == ["a", "b", "c"]
        assert backend.ref("s", "main") == made.ref

    def test_forks_of_forks(self, backend: Backend) -> None:
        head, texts = begin(backend).ref.head, list[str]()
        for i in range(150):
            done = backend.append("s", f"b{i}", [start(), note(str(i))], head=None, parents=(head,))
            head = done.ref.head
            texts.append(str(i))
            if i % 3 == 0:
                backend.append("s", f"b{i}", [note("aside")], head=head)
        assert said(backend, head) == texts
        assert len(list(backend.line(head, 200, 210))) == 10

    def test_a_moved_ref_raises(self, backend: Backend) -> None:
        old = begin(backend).ref.head
        new = backend.append("s", "main", [note("first")], head=old).ref.head
        with pytest.raises(ConflictError) as caught:
            backend.append("s", "main", [note("second")], head=old, on_conflict="raise")
        assert (caught.value.expected, caught.value.found) == (old, new)
        assert said(backend, new) == ["first"]
        assert len(backend.refs()) == 1

    def test_a_moved_ref_serialises(self, backend: Backend) -> None:
        old = begin(backend).ref.head
        backend.append("s", "main", [note("first")], head=old)
        done = backend.append("s", "main", [note("second")], head=old, on_conflict="serialise")
        assert said(backend, done.ref.head) == ["first", "second"]
        assert backend.ref("s", "main") == done.ref

    def test_a_moved_ref_branches(self, backend: Backend) -> None:
        made = begin(backend)
        first = backend.append("s", "main", [note("first")], head=made.ref.head)
        done = backend.append(
            "s", "main", [note("second"), note("third")], head=made.ref.head, on_conflict="branch", reason="race!"
        )
        assert done.ref.branch == f"race-{done.ref.head[:8]}"
        assert said(backend, done.ref.head) == ["second", "third"]
        assert backend.ref("s", "main") == first.ref
        assert {ref.head for ref in backend.refs("s")} == {first.ref.head, done.ref.head}
        more = backend.append("s", done.ref.branch, [note("more")], head=done.ref.head)
        assert said(backend, more.ref.head) == ["second", "third", "more"]

    def test_a_merge_has_two_parents_and_goes_on_from_the_first(self, backend: Backend) -> None:
        made = begin(backend, texts=["base"])
        ours = backend.append("s", "main", [note("ours")], head=made.ref.head)
        theirs = backend.append("s", "x", [start(), note("1"), note("2"), note("3")], head=None, parents=(made.ref.head,))
        done = backend.append("s", "main", [note("m"), note("n")], head=ours.ref.head, parents=(ours.ref.head, theirs.ref.head))
        merged, after = done.chunks
        assert merged.parents == (ours.ref.head, theirs.ref.head)
        assert (merged.position, merged.generation) == (3, 6)
        assert (after.position, after.generation) == (4, 7)
        assert said(backend, done.ref.head) == ["base", "ours", "m", "n"]
        again = backend.chunk(after.id)
        assert (again.position, again.generation, backend.chunk(merged.id).parents) == (4, 7, merged.parents)
        other = backend.append("s", "main", [note("t")], head=done.ref.head, parents=(theirs.ref.head, done.ref.head))
        assert said(backend, other.ref.head) == ["1", "2", "3", "t"] or said(backend, other.ref.head) == [
            "base",
            "1",
            "2",
            "3",
            "t",
        ]
        assert backend.ref("s", "main") == other.ref

    @pytest.mark.parametrize("first", ["ours", "theirs"])
    def test_a_serialised_merge_loses_nothing(self, backend: Backend, first: str) -> None:
        made = begin(backend, texts=["base"])
        theirs = backend.append("s", "x", [start(), note("theirs")], head=None, parents=(made.ref.head,))
        backend.append("s", "main", [note("meanwhile")], head=made.ref.head)
        parents = (made.ref.head, theirs.ref.head) if first == "ours" else (theirs.ref.head, made.ref.head)
        done = backend.append("s", "main", [note("merge")], head=made.ref.head, parents=parents, on_conflict="serialise")
        reached = {text for parent in done.chunks[0].parents for text in said(backend, parent)}
        assert reached == {"base", "theirs", "meanwhile"}

    def test_parents_that_leave_the_ref_out_cannot_be_serialised(self, backend: Backend) -> None:
        made = begin(backend, texts=["base"])
        moved = backend.append("s", "main", [note("meanwhile")], head=made.ref.head)
        with pytest.raises(ConflictError):
            backend.append("s", "main", [note("x")], head=made.ref.head, parents=(made.chunks[0].id,), on_conflict="serialise")
        assert backend.ref("s", "main") == moved.ref

    def test_a_failed_append_leaves_nothing(self, backend: Backend) -> None:
        made = begin(backend)
        item = note("lost " * 200, keys=(Key("made", "1", "", "k"),))
        with pytest.raises(ConflictError):
            backend.append("s", "main", [item], head=NOBODY)
        with pytest.raises(MissingChunkError):
            backend.append("s", "main", [item], head=made.ref.head, parents=(made.ref.head, NOBODY))
        assert backend.ref("s", "main") == made.ref
        assert backend.lookup(Key("made", "1", "", "k")) is None
        assert len(backend.reflog("s", "main")) == 1
        with pytest.raises(MissingObjectError):
            backend.objects([digest(("lost " * 200).encode())])

    # ---------------------------------------------------------------- copy, refs, reflog

    def test_a_copy_shares_bodies_and_no_parents(self, backend: Backend) -> None:
        made = begin(backend, texts=["a", "b" * 900])
        ref = backend.copy("copy", "main", made.ref.head, start("copy"))
        old, new = made.chunks, list(backend.line(ref.head))
        assert (ref.session, ref.branch, ref.position) == ("copy", "main", 3)
        assert new[0].parents == ()
        assert [c.body_digest for c in new[1:]] == [c.body_digest for c in old]
        assert [c.values for c in new[1:]] == [c.values for c in old]
        assert not {c.id for c in new} & {c.id for c in old}
        assert [c.parents for c in new[1:]] == [(c.id,) for c in new[:-1]]
        assert all(digest(c.envelope) == c.id for c in new)
        assert [(c.position, c.generation) for c in new] == [(i, i) for i in range(4)]
        more = backend.append("copy", "main", [note("c")], head=ref.head)
        assert said(backend, more.ref.head) == ["a", "b" * 900, "c"]
        assert backend.ref("s", "main") == made.ref
        with pytest.raises(NameInUseError):
            backend.copy("copy", "main", made.ref.head, start())

    def test_a_copy_of_a_fork_and_of_a_merge(self, backend: Backend) -> None:
        made = begin(backend, texts=["base"])
        ours = backend.append("s", "main", [note("ours")], head=made.ref.head)
        theirs = backend.append("s", "x", [start(), note("theirs")], head=None, parents=(made.ref.head,))
        done = backend.append("s", "main", [note("merge")], head=ours.ref.head, parents=(ours.ref.head, theirs.ref.head))
        for source, texts in ((theirs.ref.head, ["base", "theirs"]), (done.ref.head, ["base", "ours", "merge"])):
            ref = backend.copy(f"copy-{source[:4]}", "main", source, start())
            assert said(backend, ref.head) == texts
            copied = list(backend.line(ref.head))
            known = {chunk.id for chunk in copied}
            assert all(parent in known for chunk in copied for parent in chunk.parents)

    def test_refs_are_sorted_with_main_first(self, backend: Backend) -> None:
        for name in ("b", "a", "B"):
            head = begin(backend, name).ref.head
            for branch in ("a", "z", "Main"):
                backend.append(name, branch, [start()], head=None, parents=(head,))
        names = [(ref.session, ref.branch) for ref in backend.refs()]
        assert names == [(s, b) for s in ("B", "a", "b") for b in ("main", "Main", "a", "z")]
        assert [ref.branch for ref in backend.refs("b")] == ["main", "Main", "a", "z"]
        assert backend.refs("nobody") == []

    @pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
    def test_odd_names(self, backend: Backend, name: str) -> None:
        begin(backend, "other")
        made = begin(backend, name, ["x"])
        branch = backend.append(name, name, [start()], head=None, parents=(made.ref.head,))
        assert backend.ref(name, "main") == made.ref
        assert backend.refs(name) == [made.ref, branch.ref]
        assert said(backend, branch.ref.head) == ["x"]
        assert len(backend.reflog(name, name)) == 1

    def test_names_are_told_apart_exactly(self, backend: Backend) -> None:
        names = ["a", "A", "é", "e\u0301", "a%", "a_", "ab"]
        made = {name: begin(backend, name).ref for name in names}
        assert {ref.session: ref for ref in backend.refs()} == made
        assert all(backend.refs(name) == [made[name]] for name in names)

    def test_the_reflog_tells_every_move(self, backend: Backend) -> None:
        made = begin(backend)
        done = backend.append("s", "main", [note("a"), note("b")], head=made.ref.head, reason="because")
        moves = backend.reflog("s", "main")
        assert [(m.old, m.new, m.reason) for m in moves] == [
            (None, made.ref.head, "create"), (made.ref.head, done.ref.head, "because"),
        ]  # fmt: skip
        assert moves[0].at <= moves[1].at
        assert moves[0].at > 1_600_000_000_000_000

    # ---------------------------------------------------------------- keys

    def test_a_key_finds_its_chunk_and_moves_on(self, backend: Backend) -> None:
        key = Key("made", "1", "ns", "k", "sub")
        made = backend.append("s", "main", [start(), note("a", keys=(key,))], head=None)
        assert backend.lookup(key) == made.chunks[1]
        done = backend.append("s", "main", [note("b", keys=(key,)), note("c")], head=made.ref.head)
        assert backend.lookup(key) == done.chunks[0]
        assert len(backend.scan("made", "1", "ns")) == 1
        for other in (
            replace(key, framework="x"),
            replace(key, native_id="2"),
            replace(key, namespace=""),
            replace(key, key="K"),
            replace(key, sub=""),
        ):
            assert backend.lookup(other) is None

    def test_once_is_once(self, backend: Backend) -> None:
        key = Key("made", "1", "", "turn-1")
        made = begin(backend)
        first = backend.append("s", "main", [note("a", once=key), note("b")], head=made.ref.head)
        again = backend.append("s", "main", [note("a", once=key), note("c"), note("d", once=key)], head=first.ref.head)
        assert (again.written, said(backend, again.ref.head)) == (1, ["a", "b", "c"])
        assert again.chunks == (first.chunks[0], again.chunks[1], first.chunks[0])
        assert again.chunks[1].parents == (first.ref.head,)
        nothing = backend.append("s", "main", [note("a", once=key)], head=again.ref.head)
        assert (nothing.written, nothing.ref, nothing.chunks) == (0, again.ref, (first.chunks[0],))
        assert len(backend.reflog("s", "main")) == 3
        elsewhere = begin(backend, "other")
        assert backend.append("other", "main", [note("a", once=key)], head=elsewhere.ref.head).written == 0

    def test_a_ref_needs_a_chunk_of_its_own(self, backend: Backend) -> None:
        key = Key("made", "1", "", "turn-1")
        first = backend.append("s", "main", [note("a", once=key)], head=begin(backend).ref.head)
        with pytest.raises(ConflictError):
            backend.append("s", "other", [note("a", once=key)], head=None, parents=[first.ref.head])
        assert backend.ref("s", "other") is None

    def test_once_in_one_batch(self, backend: Backend) -> None:
        key = Key("made", "1", "", "k")
        done = backend.append("s", "main", [start(), note("a", once=key), note("b", once=key), note("c")], head=None)
        assert said(backend, done.ref.head) == ["a", "c"]
        assert (done.written, done.chunks[1]) == (3, done.chunks[2])

    def test_once_in_a_race_that_has_nothing_to_say(self, backend: Backend) -> None:
        key = Key("made", "1", "", "k")
        made = begin(backend)
        first = backend.append("s", "main", [note("a", once=key)], head=made.ref.head)
        retry = backend.append("s", "main", [note("a", once=key)], head=made.ref.head, on_conflict="branch")
        assert (retry.written, retry.ref) == (0, first.ref)
        assert len(backend.refs()) == 1

    def test_scan_goes_from_the_greatest_key_down(self, backend: Backend) -> None:
        items = [note(f"{key}{sub}", keys=(Key("made", "1", "", key, sub),)) for key in ("b", "a", "c") for sub in ("2", "", "1")]
        backend.append("s", "main", [start(), *items], head=None)

        def scan(**options: Any) -> list[str]:
            return [str(chunk.values.get("text")) for _, chunk in backend.scan("made", "1", "", **options)]

        assert scan() == ["c", "c1", "c2", "b", "b1", "b2", "a", "a1", "a2"]
        assert scan(before="c") == ["b", "b1", "b2", "a", "a1", "a2"]
        assert scan(before="bb") == ["b", "b1", "b2", "a", "a1", "a2"]
        assert scan(before="a") == []
        assert scan(exact="b") == ["b", "b1", "b2"]
        assert scan(exact="b", sub="1") == ["b1"]
        assert scan(sub="2") == ["c2", "b2", "a2"]
        assert scan(sub="2", limit=2) == ["c2", "b2"]
        assert scan(limit=4) == ["c", "c1", "c2", "b"]
        assert scan(before="c", limit=1, sub="") == ["b"]
        assert scan(exact="bb") == scan(exact="z") == scan(limit=0) == []
        assert backend.scan("made", "2", "") == backend.scan("x", "1", "") == backend.scan("made", "1", "n") == []

    def test_odd_keys_sort_by_code_point_and_are_told_apart(self, backend: Backend) -> None:
        scope = ("made", "id\0\u2028\ud800", "näme\0space")
        items = [note(str(i), keys=(Key(*scope, key, key),)) for i, key in enumerate(ODD_KEYS)]
        backend.append("s", "main", [start(), *items], head=None)
        found = [key for key, _ in backend.scan(*scope)]
        assert [key.key for key in found] == sorted(ODD_KEYS, reverse=True)
        assert all((key.framework, key.native_id, key.namespace, key.sub) == (*scope, key.key) for key in found)
        for i, key in enumerate(ODD_KEYS):
            chunk = backend.lookup(Key(*scope, key, key))
            assert chunk is not None
            assert chunk.values.get("text") == str(i)
            assert [k.key for k, _ in backend.scan(*scope, exact=key)] == [key]
            assert [k.key for k, _ in backend.scan(*scope, before=key)] == sorted((k for k in ODD_KEYS if k < key), reverse=True)
        assert backend.scopes("made") == [scope[1:]]

    def test_scopes_and_dropping(self, backend: Backend) -> None:
        keys = [Key("made", i, n, k) for i in ("1", "2") for n in ("", "n") for k in ("a", "b")]
        made = backend.append("s", "main", [start(), *(note(keys=(key,)) for key in keys)], head=None)
        assert backend.scopes("made") == [("1", ""), ("1", "n"), ("2", ""), ("2", "n")]
        assert backend.scopes("made", "2") == [("2", ""), ("2", "n")]
        assert backend.drop_keys("made", "1", "", ["a", "z"]) == 1
        assert [key.key for key, _ in backend.scan("made", "1", "")] == ["b"]
        assert backend.drop_keys("made", "1", "", []) == 0
        assert backend.drop_keys("made", "1", "n") == 2
        assert backend.scopes("made") == [("1", ""), ("2", ""), ("2", "n")]
        assert backend.drop_keys("made", "2") == 4
        assert backend.drop_keys("made", "2") == backend.drop_keys("x", "1") == 0
        assert len(list(backend.line(made.ref.head))) == 9
        done = backend.append("s", "main", [note("new", once=keys[-1])], head=made.ref.head)
        assert done.written == 1

    def test_keys_are_found_under_another_id_too(self, backend: Backend) -> None:
        keys = [Key("made", "1", ns, key, sub) for ns in ("", "n") for key in ("a", "b") for sub in ("", "w")]
        made = begin(backend)
        made = backend.append("s", "main", [note(key.key, keys=(key,)) for key in keys], head=made.ref.head)
        backend.append("s", "main", [note("own", keys=(Key("made", "2", "", "b", "w"),))], head=made.ref.head)
        assert backend.copy_keys("made", "1", "2")
        assert backend.scopes("made") == [("1", ""), ("1", "n"), ("2", ""), ("2", "n")]
        for namespace in ("", "n"):
            here, there = backend.scan("made", "1", namespace), backend.scan("made", "2", namespace)
            assert [(k.namespace, k.key, k.sub) for k, _ in here] == [(k.namespace, k.key, k.sub) for k, _ in there]
            assert sum(a.id != b.id for (_, a), (_, b) in zip(here, there, strict=True)) == (namespace == "")
        for target in ("1", "2"):  # itself, and a copy that stands
            with pytest.raises(NameInUseError):
                backend.copy_keys("made", "1", target)
        backend.drop_keys("made", "1")
        assert len(backend.scan("made", "2", "n")) == 4
        assert not backend.copy_keys("made", "nobody", "3")
        assert backend.scopes("made", "1") == backend.scopes("made", "3") == []
        assert backend.drop_keys("made", "2") == 8
        assert backend.copy_keys("made", "1", "2") == backend.copy_keys("made", "2", "1") is False

    def test_neither_side_of_a_copied_index_sees_the_other(self, backend: Backend) -> None:
        """Any steps on any side, against dictionaries that are really copied."""
        head = begin(backend).ref.head
        model: dict[str, dict[tuple[str, str, str], str]] = {}
        names, spaces, keys, subs = ("1", "2", "3", "4"), ("", "n"), ("a", "b", "c"), ("", "w")
        step = st.one_of(
            st.tuples(
                st.just("put"), st.sampled_from(names), st.sampled_from(spaces), st.sampled_from(keys), st.sampled_from(subs)
            ),
            st.tuples(st.just("copy"), st.sampled_from(names), st.sampled_from(names)),
            st.tuples(st.just("drop"), st.sampled_from(names), st.sampled_from([*spaces, None]), st.sampled_from([*keys, None])),
        )

        @_relaxed
        @given(st.lists(step, max_size=14))
        def check(steps: list[tuple[Any, ...]]) -> None:
            nonlocal head
            for name in names:
                backend.drop_keys("made", name)
            model.clear()
            for number, (what, name, *rest) in enumerate(steps):
                mine = model.setdefault(name, {})
                if what == "put":
                    space, key, sub = rest
                    done = backend.append("s", "main", [note(str(number), keys=(Key("made", name, space, key, sub),))], head=head)
                    head = mine[space, key, sub] = done.ref.head
                elif what == "copy":
                    with suppress(NameInUseError):  # a copy that stands
                        if backend.copy_keys("made", name, rest[0]):
                            model[rest[0]] = {**mine, **model.get(rest[0], {})}
                else:
                    space, key = rest
                    gone = [p for p in mine if space in (None, p[0]) and key in (None, p[1])]
                    assert backend.drop_keys("made", name, space, None if key is None else [key]) == len(gone)
                    for place in gone:
                        del mine[place]
            for name, mine in model.items():
                assert backend.scopes("made", name) == sorted({(name, space) for space, _, _ in mine})
                for space in spaces:
                    listed = sorted((p[1:] for p in mine if p[0] == space), key=lambda p: p[1])
                    listed.sort(key=lambda p: p[0], reverse=True)
                    wanted = [(*p, mine[space, *p]) for p in listed]
                    for limit in (None, 1, 3):
                        found = backend.scan("made", name, space, limit=limit)
                        assert [(k.key, k.sub, c.id) for k, c in found] == wanted[:limit]
                    for key, sub, chunk in wanted:
                        standing = backend.lookup(Key("made", name, space, key, sub))
                        assert standing is not None
                        assert standing.id == chunk
                        found = backend.scan("made", name, space, exact=key, sub=sub)
                        assert [c.id for _, c in found] == [chunk]
                    assert [k.key for k, _ in backend.scan("made", name, space, before="b", sub="w")] == [
                        p[0] for p in listed if p == ("a", "w")
                    ]

        check()
        assert list(Store(backend).fsck()) == []

    # ---------------------------------------------------------------- many at once

    def test_writers_in_threads_lose_nothing(self, backend: Backend) -> None:
        head = begin(backend).ref.head
        writers, each = 8, 25
        together = Barrier(writers)

        def write(writer: int) -> None:
            together.wait()
            for i in range(each):
                backend.append("s", "main", [note(f"{writer}.{i}"), note("+")], head=head, on_conflict="serialise")

        self._together(writers, write)
        ref = backend.ref("s", "main")
        assert ref is not None
        texts = said(backend, ref.head)
        assert ref.position == len(texts) == 2 * writers * each
        for writer in range(writers):
            mine = [text for text in texts if text.startswith(f"{writer}.")]
            assert mine == [f"{writer}.{i}" for i in range(each)]
        assert all(pair[1] == "+" for pair in zip(texts[::2], texts[1::2], strict=True))  # batches stay whole
        assert len(backend.reflog("s", "main")) == 1 + writers * each

    def test_of_racing_writers_one_stays_and_the_others_branch(self, backend: Backend) -> None:
        head = begin(backend).ref.head
        writers = 6
        together = Barrier(writers)

        def write(writer: int) -> None:
            together.wait()
            backend.append("s", "main", [note(str(writer))], head=head, on_conflict="branch")

        self._together(writers, write)
        refs = backend.refs("s")
        assert len(refs) == writers
        assert sorted(text for ref in refs for text in said(backend, ref.head)) == [str(i) for i in range(writers)]

    def test_of_racing_creators_one_wins(self, backend: Backend) -> None:
        together = Barrier(6)
        won: list[int] = []

        def create(number: int) -> None:
            together.wait()
            try:
                begin(backend, "s", [str(number)])
            except NameInUseError:
                return
            won.append(number)

        self._together(6, create)
        ref = backend.ref("s", "main")
        assert ref is not None
        assert said(backend, ref.head) == [str(number) for number in won]

    def test_once_holds_between_racing_writers(self, backend: Backend) -> None:
        heads = {i: begin(backend, f"s{i}").ref.head for i in range(6)}
        together = Barrier(6)
        done: list[Appended] = []

        def write(number: int) -> None:
            together.wait()
            for turn in range(10):
                item = note(f"turn {turn}", once=Key("made", "1", "", str(turn)))
                done.append(backend.append(f"s{number}", "main", [item], head=heads[number], on_conflict="serialise"))

        self._together(6, write)
        assert sum(one.written for one in done) == 10
        assert len({one.chunks[0].id for one in done}) == 10

    def test_readers_see_whole_batches_while_others_write(self, backend: Backend) -> None:
        made = begin(backend)
        stop: list[bool] = []

        def write(_: int) -> None:
            for i in range(60):
                backend.append("s", "main", [note(f"{i}"), note(f"{i}")], head=made.ref.head, on_conflict="serialise")
            stop.append(True)

        def read(_: int) -> None:
            while not stop:
                ref = backend.ref("s", "main")
                assert ref is not None
                chunk = backend.chunk(ref.head)
                assert chunk.position == ref.position
                texts = said(backend, ref.head)
                assert texts == [str(i // 2) for i in range(ref.position)]
                assert len(texts) % 2 == 0
                backend.find(ref.head[:3])
                assert len(backend.refs()) == 1

        self._together(3, lambda i: write(i) if i == 0 else read(i))

    def _together(self, count: int, work: Callable[[int], None]) -> None:
        with ThreadPoolExecutor(count) as pool:
            for done in [pool.submit(work, i) for i in range(count)]:
                done.result(60)

    # ---------------------------------------------------------------- the whole of it

    def test_what_was_written_is_clean(self, backend: Backend) -> None:
        made = begin(backend, texts=["a", "b" * 900])
        theirs = backend.append("s", "x", [start(), note("theirs")], head=None, parents=(made.chunks[1].id,))
        backend.append("s", "main", [note("m")], head=made.ref.head, parents=(made.ref.head, theirs.ref.head))
        backend.copy("t", "main", theirs.ref.head, start("t"))
        assert list(Store(backend).fsck()) == []

    def test_it_is_all_there_when_the_store_is_opened_again(self, backend: Backend) -> None:
        key = Key("made", "1", "", "k")
        made = begin(backend, texts=["a", "b" * 900])
        theirs = backend.append("s", "x", [start(), note("theirs", keys=(key,))], head=None, parents=(made.chunks[1].id,))
        done = backend.append("s", "main", [note("m")], head=made.ref.head, parents=(made.ref.head, theirs.ref.head))
        before: list[Chunk] = [*backend.line(done.ref.head), *backend.line(theirs.ref.head)]
        moves, refs = backend.reflog("s", "main"), backend.refs()
        again = self.reopen(backend)
        if again is None:
            pytest.skip("this store does not outlive its process")
        try:
            assert again.refs() == refs
            assert again.reflog("s", "main") == moves
            after = [*again.line(done.ref.head), *again.line(theirs.ref.head)]
            assert [(c.envelope, c.values, c.position, c.generation) for c in after] == [
                (c.envelope, c.values, c.position, c.generation) for c in before
            ]
            assert again.lookup(key) == theirs.chunks[1]
            more = again.append("s", "main", [note("more")], head=done.ref.head)
            assert backend.ref("s", "main") == more.ref  # both look at the same data
            assert said(backend, more.ref.head)[-1] == "more"
        finally:
            again.close()

    def test_closing_twice_is_fine(self, backend: Backend) -> None:
        begin(backend)
        backend.close()
        backend.close()

    def test_faults_are_errors_of_this_project(self, backend: Backend) -> None:
        head = begin(backend).ref.head
        for wrong in (lambda: backend.append("s", "main", [note()], head="not a digest"), lambda: backend.chunk("x")):
            with pytest.raises(RathError):
                wrong()
        assert said(backend, head) == []

    def test_index_entries_are_listed_and_arrive_with_their_chunks(self, backend: Backend) -> None:
        other = Store(MemoryBackend())
        keys = [Key("made", "1", "", "a"), Key("made", "1", "ns", "\ud800", "s"), Key("else", "", "", "")]
        s = other.create("s").append(note("a", keys=keys[:2]), note("b", keys=keys[2:]))
        other.backend.copy_keys("made", "1", "2")
        there = dict(other.backend.entries())
        assert there == {**dict.fromkeys(keys[:2], s[1].id), keys[2]: s[2].id} | {
            replace(key, native_id="2"): s[1].id for key in keys[:2]
        }
        standing = begin(backend, "mine").ref
        mine = backend.append("mine", "main", [note("mine", keys=keys[:1])], head=standing.head).ref
        arrivals = [Arrival(chunk, {}, tuple(key for key, name in there.items() if name == chunk.id)) for chunk in s]
        backend.ingest(arrivals, [Landing("s", "main", None, s.head)])
        assert dict(backend.entries()) == {**there, keys[0]: mine.head}
        assert list(Store(backend).fsck()) == []

    # ---------------------------------------------------------------- erase

    def test_an_erased_body_leaves_its_envelope(self, backend: Backend) -> None:
        made = begin(backend, texts=["a", "secret " * 100, "b"])
        gone = made.chunks[2]
        native = backend.append("s", "main", [note("n", native=Native("made", "1", "raw", b"native bytes"))], head=made.ref.head)
        before = [chunk.envelope for chunk in backend.line(native.ref.head)]
        told = backend.erase([gone.id], dry_run=True)
        assert (told.chunks, told.objects, told.shared, told.left) == ((gone.id,), tuple(gone.references), (), ())
        assert backend.chunk(gone.id).body == gone.body
        assert backend.erase([gone.id, native.ref.head]).chunks == tuple(sorted((gone.id, native.ref.head)))
        line = list(backend.line(native.ref.head))
        assert [chunk.envelope for chunk in line] == before
        assert [chunk.body_bytes is None for chunk in line] == [False, False, True, False, True]
        for chunk in (backend.chunk(gone.id), line[2]):
            assert (chunk.body_digest, chunk.size) == (gone.body_digest, gone.size)
            with pytest.raises(ErasedError):
                chunk.body  # noqa: B018
        for name in (*gone.references, *native.chunks[0].references):
            with pytest.raises(MissingObjectError):
                backend.objects([name])
        assert backend.erase([gone.id]).chunks == ()
        assert list(Store(backend).fsck()) == []
        again = self.reopen(backend)
        if again is not None:
            assert again.chunk(gone.id).body_bytes is None
            again.close()

    def test_what_others_stand_on_stays(self, backend: Backend) -> None:
        text = "long text " * 100
        made = begin(backend, texts=[text])
        more = backend.append(
            "s", "main", [note("x", native=Native("made", "1", "raw", text.encode() + b"!")), note(text)], head=made.ref.head
        )
        done = backend.erase([made.ref.head])
        assert (done.objects, done.shared) == ((), (digest(text.encode()),))
        assert backend.chunk(more.ref.head).values["text"] == text
        last = backend.erase([more.ref.head])
        assert last.objects == (digest(text.encode()),)
        assert backend.chunk(more.chunks[0].id).native == Native("made", "1", "raw", text.encode() + b"!")
        assert list(Store(backend).fsck()) == []

    def test_copies_go_too_unless_they_are_to_stay(self, backend: Backend) -> None:
        s = Store(backend).create("s").append(note("kept"), note("secret " * 100))
        d = s.detach("d")
        first, last = backend.erase([s[1].id], copies=False), backend.erase([s[2].id])
        assert (first.chunks, first.left) == ((), (s[1].id,))
        assert last.chunks == tuple(sorted((s[2].id, d[3].id)))
        assert [chunk.body_bytes is None for chunk in (*s, *d)] == [False, False, True, False, False, False, True]
        assert backend.erase([s[1].id, d[2].id], copies=False).chunks == tuple(sorted((s[1].id, d[2].id)))
        assert d.detach("e").fsck() == list(Store(backend).fsck()) == []

    def test_erased_items_of_a_tree_are_named_and_may_be_said_again(self, backend: Backend) -> None:
        items = [b"item %d" % i * 20 for i in range(40)]
        tree, nodes = list_tree([bytes.fromhex(digest(item)) for item in items])
        objects = {**nodes, **{digest(item): item for item in items}}
        made = backend.append(
            "s", "main", [start(), draft(Note(text="t", attributes={"tree": tree.ref}), objects=objects)], head=None
        )
        name, before = digest(items[7]), backend.erasures()
        assert backend.erase([], objects=[name]).objects == (name,)
        assert backend.erasures() == before + 1
        with pytest.raises(ErasedError):
            backend.objects([name])
        assert read_list(tree.ref, backend.objects) == list(tree.items)
        assert list(Store(backend).fsck()) == []
        more = backend.append(
            "s",
            "main",
            [draft(Note(text="u", attributes={"x": BlobRef(name, len(items[7]))}), objects={name: items[7]})],
            head=made.ref.head,
        )
        assert backend.objects([name]) == {name: items[7]}
        done = backend.erase([made.ref.head])
        assert set(done.objects) == {*nodes, *map(digest, items)} - {name}
        assert backend.objects([name]) == {name: items[7]}
        assert backend.chunk(more.ref.head).body_bytes is not None
        assert list(Store(backend).fsck()) == []

    def test_unused_objects_are_dropped(self, backend: Backend) -> None:
        extra = {digest(b"nobody names me"): b"nobody names me"}
        made = begin(backend, texts=["long " * 200])
        backend.append("s", "main", [note("x", objects=extra)], head=made.ref.head)
        assert backend.erase([], unused=True).objects == tuple(extra)
        assert backend.erase([], unused=True).objects == ()
        assert list(Store(backend).fsck()) == []

    def test_bodies_go_at_once_and_what_they_stood_on_later(self, backend: Backend) -> None:
        s = Store(backend).create("s").append(note("copied " * 100))
        d = s.detach("d")
        s = s.append(note("secret " * 100), note("spoken " * 100))
        long = {n: digest(s[n].values["text"].encode()) for n in (1, 2, 3)}
        told = backend.erase([s[1].id, s[2].id], later=True, dry_run=True)
        assert (told.chunks, told.left, told.objects) == ((s[2].id,), (s[1].id,), ())
        assert backend.erase([s[1].id, s[2].id], later=True) == told
        assert [chunk.body_bytes is None for chunk in (*s, *d)] == [False, False, True, False, False, False, False]
        assert backend.objects([long[2]])
        assert list(Store(backend).fsck()) == []
        backend.scrub()
        with pytest.raises(MissingObjectError):
            backend.objects([long[2]])
        assert set(backend.objects([long[1], long[3]])) == {long[1], long[3]}
        assert d[2].values["text"] == "copied " * 100
        assert backend.erase([s[1].id, d[2].id], later=True).chunks == tuple(sorted((s[1].id, d[2].id)))
        assert list(Store(backend).fsck()) == []

    def test_many_bodies_take_along_what_they_stood_on(self, backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("rath_bridge.store.erasing._FEW", 3)
        made = begin(backend, texts=[f"{i} " * 300 for i in range(6)])
        first = backend.erase([chunk.id for chunk in made.chunks[1:3]], later=True)
        second = backend.erase([made.chunks[3].id], later=True)
        names = [name for chunk in made.chunks[1:4] for name in chunk.references]
        assert (first.objects, set(second.objects)) == ((), set(names))
        assert backend.erase([], unused=True).objects == ()
        assert list(Store(backend).fsck()) == []

    def test_erasing_what_is_not_there(self, backend: Backend) -> None:
        made = begin(backend, texts=["a"])
        with pytest.raises(MissingChunkError):
            backend.erase([made.ref.head, NOBODY])
        assert said(backend, made.ref.head) == ["a"]

    def test_a_long_history_is_erased_and_written_anew(self, backend: Backend) -> None:
        made = begin(backend, texts=[f"text {i} " * (100 if i % 7 == 0 else 1) for i in range(1200)])
        done = backend.erase([chunk.id for chunk in made.chunks[1:-1]])
        backend.scrub()
        assert len(done.chunks) == 1199
        assert backend.chunk(made.ref.head).values["text"] == "text 1199 "
        more = backend.append("s", "main", [note("goes on")], head=made.ref.head)
        assert backend.chunk(more.ref.head).values["text"] == "goes on"
        assert list(Store(backend).fsck()) == []

    def test_writers_go_on_while_others_erase(self, backend: Backend) -> None:
        text = "the same long text " * 60
        heads = {f"s{i}": begin(backend, f"s{i}", [text]).ref.head for i in range(3)}

        def write(name: str) -> str:
            head = heads[name]
            for _ in range(12):
                head = backend.append(name, "main", [note(text)], head=head).ref.head
            return head

        def erase(_: int) -> None:
            for name in heads:
                ref = backend.ref(name, "main")
                assert ref is not None
                backend.erase([chunk.id for chunk in backend.line(ref.head, 1)])

        with ThreadPoolExecutor(4) as pool:
            erasing = pool.submit(lambda: [erase(i) for i in range(4)])
            ends = list(pool.map(write, heads))
            erasing.result()
        assert list(Store(backend).fsck()) == []
        for end in ends:
            texts = [chunk.values["text"] for chunk in backend.line(end) if chunk.kind == "note" and chunk.body_bytes is not None]
            assert set(texts) <= {text}

    # ---------------------------------------------------------------- ingest

    def test_ingest_keeps_ids_and_continues(self, backend: Backend) -> None:
        other = Store(MemoryBackend())
        s = other.create("s").append(note("a", native=Native("made", "1", "raw", b"n" * 700)), note("long " * 300))
        b = s.fork("b", at=s[1].id).append(note("on b"))
        m = s.append(note("more")).merge(b)
        landings = [Landing("s", "main", None, m.head), Landing("s", "b", None, b.head)]
        assert backend.ingest(arrivals_of(other, [m.head, b.head]), landings) == len({c.id for c in (*m, *b)})
        assert {ref.name: (ref.head, ref.position) for ref in backend.refs("s")} == {
            "s": (m.head, m.position), "s@b": (b.head, b.position),
        }  # fmt: skip
        there = Store(backend).session("s")
        assert [c.envelope for c in there] == [c.envelope for c in m]
        assert [(c.values, c.native, c.position, c.generation) for c in there] == [
            (c.values, c.native, c.position, c.generation) for c in m
        ]
        assert list(Store(backend).fsck()) == []
        assert [move.reason for move in backend.reflog("s", "main")] == ["import"]
        assert backend.ingest(arrivals_of(other, [m.head]), []) == 0
        grown = m.append(note("grown"))
        assert backend.ingest(arrivals_of(other, [grown.head]), [Landing("s", "main", m.head, grown.head)]) == 1
        for name, head in (("s", grown.head), ("s@b", b.head)):  # each goes on in its own way
            gone_on = Store(backend).session(name).append(note("here"))
            assert gone_on[-2].id == head
            assert gone_on.detach(f"copy-{gone_on.branch}").fsck() == []
        assert list(Store(backend).fsck()) == []
        again = self.reopen(backend)
        if again is not None:
            assert [c.id for c in Store(again).session("s")][: len(grown)] == [c.id for c in grown]

    def test_ingest_keeps_what_it_does_not_know(self, backend: Backend) -> None:
        first = Store(MemoryBackend()).create("s")[0]
        text = first.envelope.decode().replace('"kind"', '"future":{"b":[1,2]},"kind"')
        root = parse_envelope(text.encode(), first.body_bytes)
        item = note("erased")
        told = render_envelope(item, (root.id,))
        erased = parse_envelope(told, None)
        odd = parse_envelope(render_envelope(note("odd", span=SpanContext("abc", "d")), (erased.id,)), None)
        arrivals = [Arrival(one, {}) for one in (root, erased, odd)]
        assert backend.ingest(arrivals, [Landing("s", "main", None, odd.id)]) == 3
        line = list(backend.line(odd.id))
        assert [c.envelope for c in line] == [root.envelope, told, odd.envelope]
        assert line[0].body == first.body
        assert line[0].raw == text.encode()
        assert (line[1].body_bytes, line[1].body_digest, line[1].size) == (None, item.body_digest, len(item.body))
        copy = Store(backend).session("s").detach("copy")
        assert copy.fsck() == []
        assert copy[2].body_digest == item.body_digest

    def test_ids_of_spans_that_are_no_hexadecimal_of_their_size_are_kept(self, backend: Backend) -> None:
        spans = [SpanContext("abc", "d"), SpanContext("A" * 32, "b" * 16), SpanContext("1" * 32, "2" * 16, "Z")]
        s = Store(backend).create("s").append(*[note("x", span=span) for span in spans])
        again = self.reopen(backend)
        found = [s, s.detach("copy")] + ([Store(again).session("s")] if again is not None else [])
        for line in found:
            assert line.fsck() == []
            assert [chunk.span for chunk in line[-3:]] == spans

    def test_an_ingest_that_fails_keeps_nothing(self, backend: Backend) -> None:
        begin(backend, "taken")
        s = Store(MemoryBackend()).create("s").append(note("a"), note("b"))
        root, a, b = (Arrival(chunk, {}) for chunk in s)
        wrong = replace(b.chunk, at=b.chunk.at + 1)
        blob = {NOBODY: b"something else"}
        cases: list[tuple[list[Arrival], list[Landing], type[RathError]]] = [
            ([a, b], [], MissingChunkError),
            ([root, a, Arrival(wrong, {})], [], CorruptStoreError),
            ([root, Arrival(a.chunk, blob)], [], CorruptStoreError),
            ([root, a], [Landing("s", "main", None, b.chunk.id)], MissingChunkError),
            ([root], [Landing("taken", "main", None, root.chunk.id)], NameInUseError),
            ([root], [Landing("taken", "main", NOBODY, root.chunk.id)], ConflictError),
            ([root], [Landing("s", "main", NOBODY, root.chunk.id)], ConflictError),
        ]
        for arrivals, landings, error in cases:
            with pytest.raises(error):
                backend.ingest(arrivals, landings)
            assert [ref.name for ref in backend.refs()] == ["taken"]
            with pytest.raises(MissingChunkError):
                backend.chunk(root.chunk.id)
        assert backend.ingest([root, a, b], [Landing("s", "main", None, b.chunk.id)]) == 3
        assert list(Store(backend).fsck()) == []


def arrivals_of(store: Store, heads: Sequence[str]) -> list[Arrival]:
    """Everything behind some heads, parents first."""
    found = sorted({c for head in heads for c in ancestors(head, store.backend)}, key=lambda c: c.generation)
    return [Arrival(c, store.backend.objects(c.references)) for c in found]
