"""Keys under which frameworks find their chunks."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rath_bridge.errors import ConflictError, NameInUseError
from rath_bridge.model.chunk import Key
from rath_bridge.session import Store
from rath_bridge.store.protocol import Backend
from rath_bridge.testing.store.common import ODD_KEYS, Contract, begin, note, relaxed, said, start


class Index(Contract):
    """Keys under which frameworks find their chunks."""

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

        @relaxed
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
