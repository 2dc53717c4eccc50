"""Chunks that come from elsewhere with the ids that they have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rath_bridge.errors import ConflictError, CorruptStoreError, MissingChunkError, NameInUseError, RathError
from rath_bridge.model.chunk import Key, Native, SpanContext, parse_envelope, render_envelope
from rath_bridge.session import Store
from rath_bridge.store.arriving import Arrival, Landing
from rath_bridge.store.memory import MemoryBackend
from rath_bridge.store.protocol import Backend
from rath_bridge.testing.store.common import NOBODY, ODD_KEYS, Contract, begin, note
from rath_bridge.verbs.lineage import ancestors


class Arriving(Contract):
    """Chunks that come from elsewhere with the ids that they have."""

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

    def test_index_entries_that_stand_already_stay(self, backend: Backend) -> None:
        """Also those of copies, and odd ones; what was dropped comes again."""
        other = Store(MemoryBackend())
        keys = [Key("made", "1", space, key) for space in ("", "ns") for key in ODD_KEYS]
        s = other.create("s").append(note("theirs", keys=keys))
        mine = begin(backend, "mine").ref
        first, last = keys[: len(keys) // 2], keys[len(keys) // 2 :]
        mine = backend.append("mine", "main", [note("mine", keys=first)], head=mine.head).ref
        backend.copy_keys("made", "1", "2")
        backend.drop_keys("made", "1", "", [first[1].key])
        copied = [replace(key, native_id="2") for key in keys]
        backend.ingest([Arrival(chunk, {}, tuple(keys + copied) if chunk.id == s.head else ()) for chunk in s], [])
        there = dict(backend.entries())
        assert {key for key, name in there.items() if name == mine.head} == {*first, *copied[: len(first)]} - {first[1]}
        assert {key for key, name in there.items() if name == s.head} == {*last, *copied[len(first) :], first[1]}

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
