"""Law 8: calls come in pairs. Law 12: one message, once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import rath_bridge as rb
from rath_bridge.model.chunk import Key, draft
from rath_bridge.model.digests import digest
from rath_bridge.model.kinds import Body, Message, Run, ToolCall, ToolResult
from rath_bridge.model.parts import TextPart, ToolCallPart, ToolCallResponsePart
from rath_bridge.model.report import ManifestEntry, align, manifest_of
from rath_bridge.testing import strategies
from rath_bridge.testing.strategies import session_of

RESULTS = ["ok", "error", "no_response", None]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(RESULTS), st.booleans()), max_size=8), st.data())
def test_a_call_has_one_result_is_pending_or_is_closed(plan: list[tuple[str, str | None, bool]], data: st.DataObject) -> None:
    """Calls overlap; an id may be used again for another call once the first was answered."""
    bodies: list[Body] = []
    expected: list[tuple[str, str]] = []
    answers: list[Body] = []
    open_: set[str] = set()
    for name, status, started in plan:
        if name in open_:
            bodies += answers
            answers, open_ = [], {n for n in open_ if (n, "pending") in expected}
        if name in open_:
            continue  # still pending: its id cannot mean another call
        bodies.append(Message(role="assistant", parts=(ToolCallPart(name, "f", {}),)))
        if started:
            bodies.append(ToolCall(name="f", call_id=name))
        open_.add(name)
        expected.append((name, status or "pending"))
        if status is not None:
            answers.insert(data.draw(st.integers(0, len(answers))), ToolResult(call_id=name, status=status))
    session = session_of([*bodies, *answers])
    assert [(call.call_id, call.status) for call in session.calls()] == expected
    assert [call.call_id for call in session.pending()] == [name for name, status in expected if status == "pending"]
    assert session.fsck() == []


def test_equal_ids_in_two_runs_are_two_calls() -> None:
    session = rb.open_store("memory:").create("s")
    for run in ("r1", "r2"):
        session = session.append(
            draft(Run(phase="begin", name="agent"), run=run),
            draft(Run(phase="begin", name="tool", parent=run), run=f"{run}.1"),
            draft(Message(role="assistant", parts=(ToolCallPart("call-1", "f", {}),)), run=run),
            draft(ToolCall(name="f", call_id="call-1"), run=f"{run}.1"),
        )
    session = session.append(draft(ToolResult(call_id="call-1"), run="r2.1"))
    assert [(call.scope, call.status) for call in session.calls()] == [("r1", "pending"), ("r2", "ok")]


def test_an_answer_in_a_message_closes_a_call() -> None:
    session = session_of(
        [
            Message(role="assistant", parts=(ToolCallPart("1", "f", {}), ToolCallPart("2", "f", {}))),
            Message(role="tool", parts=(ToolCallResponsePart("2", "done"),)),
        ]
    )
    assert [call.call_id for call in session.pending()] == ["1"]


# ---------------------------------------------------------------- law 12

items = st.lists(st.sampled_from(["yes", "no", "hello", "7"]), max_size=8)


def entries(texts: list[str]) -> tuple[ManifestEntry, ...]:
    return tuple(ManifestEntry(i, digest(f"chunk {i}".encode()), digest(text.encode())) for i, text in enumerate(texts))


def keys(texts: list[str]) -> list[str]:
    return [digest(text.encode()) for text in texts]


@given(items, items)
def test_what_was_handed_over_is_known_and_what_follows_is_new(handed: list[str], said: list[str]) -> None:
    manifest = entries(handed)
    assert manifest_of([entry.position, entry.chunk, entry.digest] for entry in manifest) == manifest
    found = align(manifest, keys([*handed, *said]))
    assert found[: len(handed)] == [entry.chunk for entry in manifest]
    assert found[len(handed) :] == [None] * len(said)  # two turns that both say "yes" stay two


@given(items, st.data())
def test_no_message_is_known_twice_and_the_order_holds(handed: list[str], data: st.DataObject) -> None:
    manifest = entries(handed)
    kept = [text for text in handed if data.draw(st.booleans())]  # frameworks drop items
    found = [name for name in align(manifest, keys(kept)) if name is not None]
    order = [entry.chunk for entry in manifest]
    assert len(found) == len(kept)
    assert [order.index(name) for name in found] == sorted({order.index(name) for name in found})


@given(strategies.transcripts(), st.integers(1, 3))
def test_appending_a_turn_again_adds_nothing(bodies: tuple[Body, ...], times: int) -> None:
    """Idempotent by (run, turn, position), never by content."""
    session = rb.open_store("memory:").create("s")
    for _ in range(times):
        session = session.append(*(draft(body, once=Key("made", "run-1", "turn-1", str(i))) for i, body in enumerate(bodies)))
    assert len(session) == 1 + len(bodies)
    session = session.append(*(draft(body, once=Key("made", "run-1", "turn-2", str(i))) for i, body in enumerate(bodies)))
    assert len(session) == 1 + 2 * len(bodies)
    assert len(session.messages()) == 2 * sum(isinstance(body, Message) for body in bodies)


def test_the_same_message_seen_twice_is_shown_once() -> None:
    session = rb.open_store("memory:").create("s").append(rb.message("user", "yes"), rb.message("user", "yes"))
    first = session.messages()[0]
    again = session.append(draft(Message(role="user", parts=(TextPart("yes"),), same_as=first.id)))
    assert [m.text for m in again.messages()] == ["yes", "yes"]
    edited = again.append(draft(Message(role="user", parts=(TextPart("Yes!"),), replaces=again[-1].id)))
    assert [m.text for m in edited.messages()] == ["Yes!", "yes"]


def test_a_call_that_is_carried_out_in_a_later_run_is_one_call() -> None:
    """A call waits for an approval; the resumed run carries it out and does not ask again."""
    ask = Message(role="assistant", parts=(ToolCallPart("c9", "delete_file", {"path": "/x"}),))
    answer = Message(role="tool", parts=(ToolCallResponsePart("c9", "deleted"),))
    start = rb.open_store("memory:").create("s").append(
        draft(Run(phase="begin", name="first"), run="a"), draft(ask, run="a"), draft(Run(phase="end", name="first"), run="a"),
        draft(Run(phase="begin", name="resumed"), run="b"),
    )  # fmt: skip
    assert [call.status for call in start.calls()] == ["pending"]
    by_message = start.append(draft(answer, run="b"))
    observed = start.append(draft(ToolCall(name="delete_file", call_id="c9"), run="b"), on_conflict="branch").append(
        draft(ToolResult(name="delete_file", call_id="c9", result="deleted"), run="b"), draft(answer, run="b")
    )
    for session in (by_message, observed):
        (call,) = session.calls()
        assert (call.scope, call.status) == ("a", "ok")
        assert not session.pending()
        assert not session.fsck()
    other = start.append(draft(ask, run="b"), draft(ToolResult(name="delete_file", call_id="c9"), run="b"))
    assert [call.status for call in other.calls()] == ["pending", "ok"], "a run that asks itself means its own call"
