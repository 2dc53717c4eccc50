"""Law 4: a merge keeps the base once. Law 7: usage adds up. Law 11: no answer is lost to a race."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rath_bridge as rb
from rath_bridge.errors import ConflictError, MergeConflict
from rath_bridge.model.chunk import Chunk, draft
from rath_bridge.model.kinds import Body, Inference, Merge, Message, Usage
from rath_bridge.model.parts import TextPart
from rath_bridge.session import Session
from rath_bridge.testing import strategies
from rath_bridge.testing.strategies import session_of
from rath_bridge.verbs.lineage import ancestors
from rath_bridge.verbs.merge import MergeSides

STRATEGIES = ["summary", "ours", "theirs", lambda sides: f"{len(sides.theirs)} said something"]


def two_lines(base: tuple[Body, ...], ours: tuple[Body, ...], theirs: tuple[Body, ...]) -> tuple[Session, Session, Session]:
    root = session_of(base)
    return root, root.append(*map(draft, ours)), root.fork("other").append(*map(draft, theirs))


transcripts = strategies.transcripts()


@given(transcripts, transcripts, transcripts, st.sampled_from(STRATEGIES))
def test_the_base_stands_once_and_both_parents_are_kept(base: Any, ours: Any, theirs: Any, strategy: Any) -> None:
    root, left, right = two_lines(base, ours, theirs)
    merged = left.merge(right, strategy)
    chunk = next(c for c in merged.chunks() if c.kind == "merge")
    assert set(chunk.parents) == {left.head, right.head}
    assert isinstance(chunk.body, Merge)
    assert (chunk.body.base, chunk.body.ours, chunk.body.theirs, chunk.body.of) == (
        root.head,
        left.head,
        right.head,
        "made@other",
    )
    everything = [c.id for c in ancestors(merged.head, merged.store.backend)]
    assert len(everything) == len(set(everything))
    assert {c.id for c in [*left.chunks(), *right.chunks()]} < set(everything)
    line = [c.id for c in merged.chunks()]
    assert len(line) == len(set(line))
    assert line[: len(root)] == [c.id for c in root.chunks()]  # the base, once
    goes_on = right if strategy == "theirs" else left
    assert line[: len(goes_on)] == [c.id for c in goes_on.chunks()]
    assert merged.fsck() == []
    ids = [call.call_id for call in merged.calls() if call.asked]
    assert Counter(ids) == Counter(call.call_id for call in goes_on.calls() if call.asked)


@given(transcripts, transcripts, transcripts)
def test_usage_adds_up(base: Any, ours: Any, theirs: Any) -> None:
    root, left, right = two_lines(base, ours, theirs)

    def total(*lists: tuple[Body, ...]) -> Usage:
        return sum((b.usage for bodies in lists for b in bodies if isinstance(b, Inference) and b.usage), Usage())

    assert root.usage() == total(base)
    assert left.usage() == total(base, ours)
    assert right.usage() == root.fork("again").append(*map(draft, theirs)).usage() == total(base, theirs)
    merged = left.merge(right)
    assert merged.usage() == total(base, ours, theirs)  # the base once
    assert left.detach("copy").usage() == left.usage()
    assert merged.merge(right).usage() == merged.usage()
    back = right.merge(merged)
    assert back.usage() == merged.usage()


@given(transcripts, transcripts, transcripts)
def test_a_summary_is_one_marked_block_that_says_what_it_stands_for(base: Any, ours: Any, theirs: Any) -> None:
    _, left, right = two_lines(base, ours, theirs)
    merged = left.merge(right)
    known = [m.id for m in left.messages()]
    said = tuple(m.id for m in right.messages() if m.id not in known)
    shown = merged.messages()
    assert [m.id for m in shown][: len(known)] == known
    assert len(shown) == len(known) + bool(said)  # where nothing was said, the merge chunk alone tells of it
    for block in shown[len(known) :]:
        assert block.body.stands_for == said
        assert block.text.startswith("[merged from made@other: ")
        assert block.name == "merge"
    again = left.store.session("made@other").fork("twin").merge(left, "ours")
    assert again.messages() == right.messages() or [m.id for m in again.messages()] == [m.id for m in right.messages()]


def test_a_summary_is_deterministic() -> None:
    texts: list[str] = []
    for _ in range(2):
        _, left, right = two_lines((), (), (Message(role="assistant", parts=(TextPart("the answer"),)),))
        texts.append(left.merge(right).messages()[-1].text)
    assert (
        texts[0] == texts[1] == "[merged from made@other: 1 message, 2 chunks; its last message follows]\nassistant: the answer"
    )


def test_a_function_writes_the_block() -> None:
    root, left, right = two_lines(
        (Message(role="user", parts=(TextPart("q"),)),), (), (Message(role="user", parts=(TextPart("t"),)),)
    )
    seen: list[MergeSides] = []

    def write(sides: MergeSides) -> list[Message]:
        seen.append(sides)
        return [
            Message(role="system", parts=(TextPart("1"),)),
            Message(role="user", parts=(TextPart("2"),), stands_for=(right.head,)),
        ]

    merged = left.merge(right, write)
    (sides,) = seen
    assert ([m.text for m in sides.base], [m.text for m in sides.ours], [m.text for m in sides.theirs]) == (["q"], [], ["t"])
    one, two = merged.messages()[-2:]
    assert (one.text, one.body.stands_for, two.body.stands_for) == ("1", (sides.theirs[0].id,), (right.head,))
    assert root.latest().name == "made"


def test_a_conflict_lists_everything_and_writes_nothing() -> None:
    root = session_of([Message(role="user", parts=(TextPart(t),)) for t in "ab"])
    a, b = (m.id for m in root.messages())

    def edit(text: str, name: str) -> Any:
        return draft(Message(role="user", parts=(TextPart(text),), replaces=name))

    left = root.append(edit("A", a), edit("B", b)).place("local")
    right = root.fork("x").append(edit("AA", a), edit("BB", b)).place("docker")
    before = left.store.backend.refs()
    for strategy in ("summary", lambda sides: "x"):
        with pytest.raises(MergeConflict) as caught:
            left.merge(right, strategy)
        assert len(caught.value.conflicts) == 3
        assert all(name[:12] in str(caught.value) for name in (a, b))
        assert "placement" in str(caught.value)
    assert left.store.backend.refs() == before
    assert [m.text for m in left.merge(right, "ours").messages()] == ["A", "B"]
    assert [m.text for m in right.merge(left.latest(), "theirs").messages()][:2] == ["A", "B"]


def test_what_is_held_already_is_not_merged_again() -> None:
    root, left, right = two_lines((), (), ())
    merged = left.merge(right)
    assert merged.merge(right) is merged
    assert merged.merge(root) is merged
    assert left.merge(left) is left
    assert right.merge(merged).head != right.head  # the other way round there is something to take


def test_unrelated_lines_merge_with_no_base() -> None:
    store = rb.open_store("memory:")
    one, two = store.create("one").append(rb.message("user", "1")), store.create("two").append(rb.message("user", "2"))
    merged = one.merge(two)
    body = next(c.body for c in merged.chunks() if c.kind == "merge")
    assert isinstance(body, Merge)
    assert body.base is None
    assert merged.fsck() == []


def test_states_are_merged_by_the_adapters_function() -> None:
    from rath_bridge.model.kinds import Checkpoint

    root, left, right = two_lines(
        (Checkpoint(step=0),), (Checkpoint(step=1),), (Checkpoint(step=2), Checkpoint(step=9, namespace="sub"))
    )
    seen: list[Any] = []

    def merge_state(base: Chunk | None, ours: Chunk | None, theirs: Chunk | None) -> Any:
        seen.append(tuple(c and c.values["step"] for c in (base, ours, theirs)))
        return draft(Checkpoint(step=3))

    merged = left.merge(right, merge_state=merge_state)
    assert seen == [(0, 1, 2)]
    assert merged[-1].values["step"] == 3
    assert root.head


# ---------------------------------------------------------------- law 11


@pytest.mark.parametrize("on_conflict", ["serialise", "branch", "raise"])
def test_no_answer_is_lost_to_a_race(store_url: str, on_conflict: Any) -> None:
    with rb.open_store(store_url) as store:
        stale = store.create("s")
        together = threading.Barrier(4)
        refused: list[int] = []

        def write(number: int) -> None:
            together.wait()
            try:
                stale.append(rb.message("user", str(number)), on_conflict=on_conflict)
            except ConflictError:
                refused.append(number)

        threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        heads = store.session("s").heads()
        lines = [Session(store, "s", branch, head, store.backend.chunk(head).position) for branch, head in heads.items()]
        found = [m.text for line in lines for m in line.messages()]
        assert sorted(found + [str(number) for number in refused]) == ["0", "1", "2", "3"]
        assert len(heads) == (4 if on_conflict == "branch" else 1)
        assert len(refused) == (3 if on_conflict == "raise" else 0)
        assert list(store.fsck()) == []


def test_a_merge_in_a_race(store_url: str) -> None:
    with rb.open_store(store_url) as store:
        left = store.create("s")
        right = left.fork("x").append(rb.message("user", "theirs"))
        left.append(rb.message("user", "meanwhile"))
        with pytest.raises(ConflictError):
            left.merge(right)
        merged = left.merge(right, on_conflict="serialise")
        assert merged.messages()[0].text == "meanwhile"
        again = left.merge(right, on_conflict="branch")
        assert again.branch.startswith("race-")
        assert {m.text for m in store.session("s").messages()} >= {"meanwhile"}
        assert list(store.fsck()) == []
