"""What is erased, and what stays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from rath_bridge.errors import ErasedError, MissingChunkError, MissingObjectError
from rath_bridge.model.chunk import Native, draft
from rath_bridge.model.digests import digest
from rath_bridge.model.encoding import BlobRef
from rath_bridge.model.kinds import Note
from rath_bridge.model.trees import list_tree, read_list
from rath_bridge.session import Store
from rath_bridge.store.protocol import Backend
from rath_bridge.testing.store.common import NOBODY, Contract, begin, note, said, start


class Erasing(Contract):
    """What is erased, and what stays."""

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
