"""Several writers and readers at once."""

from __future__ import annotations

from threading import Barrier

from rath_bridge.errors import NameInUseError
from rath_bridge.model.chunk import Key
from rath_bridge.store.protocol import Appended, Backend
from rath_bridge.testing.store.common import Contract, at_once, begin, note, said


class Races(Contract):
    """Several writers and readers at once."""

    def test_writers_in_threads_lose_nothing(self, backend: Backend) -> None:
        head = begin(backend).ref.head
        writers, each = 8, 25
        together = Barrier(writers)

        def write(writer: int) -> None:
            together.wait()
            for i in range(each):
                backend.append("s", "main", [note(f"{writer}.{i}"), note("+")], head=head, on_conflict="serialise")

        at_once(writers, write)
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

        at_once(writers, write)
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

        at_once(6, create)
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

        at_once(6, write)
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

        at_once(3, lambda i: write(i) if i == 0 else read(i))
