"""Forks, merges, copies, refs, names and reflogs."""

from __future__ import annotations

import pytest

from rath_bridge.errors import ConflictError, MissingChunkError, MissingObjectError, NameInUseError
from rath_bridge.model.chunk import Key
from rath_bridge.model.digests import digest
from rath_bridge.store.protocol import Backend
from rath_bridge.testing.store.common import NOBODY, ODD_NAMES, Contract, begin, note, said, start


class Lines(Contract):
    """Forks, merges, copies, refs, names and reflogs."""

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
