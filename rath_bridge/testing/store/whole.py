"""The store as a whole: clean, there again, closed."""

from __future__ import annotations

import pytest

from rath_bridge.errors import RathError
from rath_bridge.model.chunk import Chunk, Key
from rath_bridge.session import Store
from rath_bridge.store.protocol import Backend
from rath_bridge.testing.store.common import Contract, begin, note, said, start


class Whole(Contract):
    """The store as a whole: clean, there again, closed."""

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
