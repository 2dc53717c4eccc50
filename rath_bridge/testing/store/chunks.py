"""What is appended and read: envelopes, bodies, objects, lines by the page."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rath_bridge.errors import MissingChunkError, MissingObjectError, MissingSessionError, NameInUseError
from rath_bridge.model.chunk import Draft, Key, Native, SpanContext, draft, render_envelope
from rath_bridge.model.digests import digest
from rath_bridge.model.encoding import BlobRef, TreeRef
from rath_bridge.model.kinds import Unknown
from rath_bridge.model.trees import list_tree, open_list, read_list
from rath_bridge.store.protocol import Backend
from rath_bridge.testing import strategies
from rath_bridge.testing.store.common import NOBODY, Contract, begin, note, relaxed, said, start


class Chunks(Contract):
    """What is appended and read: envelopes, bodies, objects, lines by the page."""

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

        @relaxed
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
