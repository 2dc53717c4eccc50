"""Law 10: tampering shows against a known head: any flipped, dropped, reordered, added byte is found and named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rath_bridge.model.chunk import Chunk, draft, parse_envelope
from rath_bridge.model.digests import digest
from rath_bridge.model.kinds import Body, Note
from rath_bridge.session import Session
from rath_bridge.testing import strategies
from rath_bridge.testing.strategies import session_of
from rath_bridge.verbs.fsck import fsck


class Tampered:
    """A store in which somebody has changed things: chunks by id, objects by digest."""

    def __init__(self, session: Session) -> None:
        self.backend = session.store.backend
        self.order = list(session.chunks())
        self.held = {chunk.id: chunk for chunk in self.order}
        self.changed_objects: dict[str, bytes] = {}

    def chunk(self, name: str) -> Chunk:
        return self.held[name] if name in self.held else self.backend.chunk(name)

    def line(self, head: str, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        return iter(self.order[start:stop])

    def objects(self, names: Iterable[str]) -> Mapping[str, bytes]:
        return {name: self.changed_objects.get(name) or self.backend.objects([name])[name] for name in names}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)


def flipped(data: bytes, at: int, bit: int) -> bytes:
    at %= len(data)
    return data[:at] + bytes((data[at] ^ (1 << bit),)) + data[at + 1 :]


def findings(reader: Tampered, head: str) -> list[str]:
    return [str(found) for found in fsck(reader, heads=[head], head=head)]  # pyright: ignore[reportArgumentType]


made = strategies.transcripts().map(lambda bodies: session_of([*bodies, Note(text="long " * 200)]))
where = st.integers(0, 10_000)


@given(made, where, where, st.integers(0, 7))
def test_a_flipped_bit_of_a_body(session: Session, which: int, at: int, bit: int) -> None:
    reader = Tampered(session)
    chunk = reader.order[which % len(reader.order)]
    assert chunk.body_bytes is not None
    bad = replace(chunk, raw=chunk.envelope, body_bytes=flipped(chunk.body_bytes, at, bit))
    reader.order[chunk.position] = reader.held[chunk.id] = bad
    found = findings(reader, session.head)
    assert any(chunk.id in line for line in found), found


@given(made, where, where, st.integers(0, 7))
def test_a_flipped_bit_of_an_envelope(session: Session, which: int, at: int, bit: int) -> None:
    reader = Tampered(session)
    chunk = reader.order[which % len(reader.order)]
    data = flipped(chunk.envelope, at, bit)
    bad = replace(chunk, raw=data)  # the row says it is still the same chunk
    reader.order[chunk.position] = reader.held[chunk.id] = bad
    found = findings(reader, session.head)
    assert any(chunk.id in line for line in found), found


@given(made, where, st.integers(0, 7))
def test_a_flipped_bit_of_a_long_text(session: Session, at: int, bit: int) -> None:
    reader = Tampered(session)
    name = digest(("long " * 200).encode())
    reader.changed_objects[name] = flipped(session.store.backend.objects([name])[name], at, bit)
    assert any(name in line for line in findings(reader, session.head))


@given(made, where)
def test_a_dropped_chunk(session: Session, which: int) -> None:
    reader = Tampered(session)
    chunk = reader.order.pop(which % (len(reader.order) - 1))
    del reader.held[chunk.id]
    assert findings(reader, session.head)


@given(made, where, where)
def test_two_swapped_chunks(session: Session, one: int, two: int) -> None:
    reader = Tampered(session)
    first, second = one % len(reader.order), two % len(reader.order)
    if first != second:
        reader.order[first], reader.order[second] = reader.order[second], reader.order[first]
        assert findings(reader, session.head)


@given(made, where)
def test_an_added_chunk_with_everything_after_it_hashed_again(session: Session, which: int) -> None:
    """A rebuilt line is sound in itself: only the head that is known from elsewhere tells."""
    line = list(session.chunks())
    at = 1 + which % len(line)
    other = session_of([], name="made")
    bodies = [chunk.body for chunk in line[1:at]]
    forged = other.append(*map(draft, bodies), draft(Note(text="added")), *(draft(chunk.body) for chunk in line[at:]))
    assert forged.fsck() == []
    assert any(session.head in str(found) for found in forged.fsck(head=session.head))


@given(made)
def test_a_cut_tail(session: Session) -> None:
    shorter = Session(session.store, session.session, "main", session[-2].id, session.position - 1)
    assert shorter.fsck() == []
    assert any(session.head in str(found) for found in shorter.fsck(head=session.head))


@given(strategies.transcripts())
def test_nothing_changed_and_nothing_found(bodies: tuple[Body, ...]) -> None:
    session = session_of(bodies)
    assert findings(Tampered(session), session.head) == []
    for chunk in session.chunks():
        assert parse_envelope(chunk.envelope, chunk.body_bytes).id == chunk.id
