"""diff by sections: transcript, tool calls, state and what it took, across branches and frameworks; word by word."""

from __future__ import annotations

import json
from typing import Any

import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rath_bridge as rb
from rath_bridge.model.digests import digest
from rath_bridge.model.kinds import Checkpoint, Inference, Message, Run, ToolCall, ToolResult, Usage
from rath_bridge.model.parts import TextPart, ToolCallPart, ToolCallResponsePart
from rath_bridge.model.trees import map_tree
from rath_bridge.verbs.packed import plain_value
from rath_bridge.verbs.wording import words
from tests.handover.stacks import TARGETS, turn
from tests.test_verbs_log_fsck import Counting, long_session


def kinds(rows: Any) -> list[tuple[str, str]]:
    return [(row.kind, row.what) for row in rows]


# ---------------------------------------------------------------- words


@given(st.text("ab c.\n", max_size=30), st.text("ab c.\n", max_size=30))
def test_words_give_both_texts_back(ours: str, theirs: str) -> None:
    found = words(ours, theirs)
    assert "".join(text for tag, text in found if tag != "added") == ours
    assert "".join(text for tag, text in found if tag != "removed") == theirs


def test_words_are_whole() -> None:
    assert words("the answer is four, I think", "the answer is five hundred, I guess") == [
        ("same", "the answer is "), ("removed", "four"), ("added", "five hundred"), ("same", ", I "), ("removed", "think"),
        ("added", "guess"),
    ]  # fmt: skip
    assert words("a b", "c d") == [("removed", "a b"), ("added", "c d")]
    assert words("same", "same") == [("same", "same")]
    long = " ".join(str(n) for n in range(3_000))
    assert len(words(f"x {long} y", f"x {long[::-1]} y")) == 4, "what is too long to be compared stands as one piece"


# ---------------------------------------------------------------- transcript and calls


def test_a_call_that_a_fork_cuts_counts_once() -> None:
    """Its run began before the fork, inside of another: the result and the message that answers belong to one call."""
    store = rb.open_store("memory:")
    call = ToolCallPart("c1", "book", {"seat": 7})
    base = store.create("s").append(
        rb.draft(Run(phase="begin", name="workflow", type="workflow"), run="w"),
        rb.draft(Run(phase="begin", name="Clerk", type="agent", parent="w"), run="a"),
        rb.draft(Message(role="assistant", parts=(call,)), run="w"),
        rb.draft(ToolCall(name="book", arguments={"seat": 7}, call_id="c1"), run="a"),
    )

    def go(session: rb.Session, result: str) -> rb.Session:
        return session.append(
            rb.draft(ToolResult(name="book", call_id="c1", result=result), run="a"),
            rb.draft(Message(role="tool", parts=(ToolCallResponsePart("c1", result),)), run="w"),
        )

    other = base.fork("x")
    found = go(base, "booked").diff(go(other, "sold out"))
    assert [(one.tool_calls, one.messages) for one in found.spent()] == [(1, 1), (1, 1)]
    assert [row.kind for row in found.calls()] == ["changed"]


def test_two_branches_by_section() -> None:
    store = rb.open_store("memory:")
    base = store.create("s").append(rb.message("user", "pay"))

    def go(branch: str, amount: int, status: str, said: str) -> rb.Session:
        call = f"call-{branch}"
        return base.fork(branch).append(
            rb.draft(Run(phase="begin", name="clerk", type="agent"), run=branch),
            rb.draft(Message(role="assistant", parts=(ToolCallPart(call, "pay", {"n": amount}),)), run=branch),
            rb.draft(ToolCall(name="pay", call_id=call, arguments={"n": amount}), run=branch),
            rb.draft(ToolResult(name="pay", call_id=call, status=status, result="paid", duration=0.5), run=branch),
            rb.draft(Message(role="tool", parts=(ToolCallResponsePart(call, "paid"),)), run=branch),
            rb.draft(Inference(model="m", usage=Usage(input_tokens=7, cost_usd=0.25), duration=1.5), run=branch),
            rb.draft(_said(said), run=branch),
        )

    one, two = go("a", 3, "ok", "I paid three."), go("b", 4, "ok", "I paid four.")
    found = one.diff(two)
    assert kinds(found.transcript()) == [("changed", "assistant"), ("same", "tool"), ("changed", "assistant")]
    assert [row.path for row in found.transcript() if row.kind == "changed"] == [("parts", 0, "arguments", "n"), ("parts", 0)]
    (call,) = found.calls()
    assert (call.kind, call.what, call.path, call.ours_value, call.theirs_value) == ("changed", "pay", ("arguments", "n"), 3, 4)
    ours, theirs = found.spent()
    assert (ours.messages, ours.tool_calls, ours.model_calls) == (3, 1, 1)
    assert (ours.usage.input_tokens, ours.usage.cost_usd, ours.model_seconds, ours.tool_seconds) == (7, 0.25, 1.5, 0.5)
    assert theirs.chunks == len(found.theirs)
    text = json.loads(json.dumps(found.to_json()))
    assert text["transcript"][2]["words"][1:3] == [["removed", "three"], ["added", "four"]]
    assert text["calls"][0]["path"] == "arguments.n"
    assert [row.kind for row in one.diff(go("c", 3, "error", "I paid three.")).calls()] == ["changed"]


def _said(text: str) -> Message:
    return Message(role="assistant", parts=(TextPart(text),))


@pytest.mark.parametrize("other", [name for name in TARGETS if name != "langgraph"])
async def test_the_same_said_in_two_frameworks_is_the_same_transcript(other: str) -> None:
    base = rb.open_store("memory:").create("s").append(rb.message("user", "hello"), rb.message("assistant", "hi"))
    one = (await turn(base.fork("a"), "langgraph")).session
    two = (await turn(base.fork("b"), other)).session
    found = one.diff(two)
    assert found, "the chunks differ"
    assert {row.kind for row in found.transcript()} == {"same"}
    (call,) = found.calls()
    assert call.kind == "same"
    ours, theirs = found.spent()
    assert ours.usage.total_tokens == theirs.usage.total_tokens == 30
    assert (ours.frameworks, theirs.frameworks) == (("langgraph",), (other,))


def test_a_run_that_nests_and_began_before_the_fork_is_no_transcript() -> None:
    store = rb.open_store("memory:")
    s = store.create("s").append(
        rb.draft(Run(phase="begin", name="team"), run="t"), rb.draft(Run(phase="begin", name="inner", parent="t"), run="i")
    )
    side = s.fork("b").append(rb.draft(_said("inside"), run="i"), rb.draft(_said("outside"), run="t"))
    assert [row.theirs.values["parts"] for row in s.diff(side).transcript() if row.theirs] == [["outside"]]


# ---------------------------------------------------------------- state


def state(framework: str = "made", **values: bytes) -> Any:
    tree, nodes = map_tree({key: bytes.fromhex(digest(value)) for key, value in values.items()})
    objects = nodes | {digest(value): value for value in values.values()}
    return rb.draft(Checkpoint(state=tree), objects=objects, origin={"adapter": f"rath_{framework}", "framework": framework})


def test_state_is_compared_key_by_key() -> None:
    s = rb.open_store("memory:").create("s").append(state(plan=b'"a"', note=b'"draft one"', gone=b"1", blob=b"\xff\x00"))
    side = s.fork("b").append(state(plan=b'"a"', note=b'"draft two"', new=b"[1]", blob=b"\xff\x01"))
    rows = {row.what: row for row in s.diff(side).state()}
    assert {what: row.kind for what, row in rows.items()} == {
        "plan": "same", "note": "changed", "gone": "removed", "new": "added", "blob": "changed",
    }  # fmt: skip
    assert rows["note"].words == [("same", "draft "), ("removed", "one"), ("added", "two")]
    assert rows["blob"].ours_value.startswith("<2 bytes, ")
    assert s.diff(s.fork("c").append(rb.message("user", "x"))).state() == [], "no side has a state of its own"


def test_a_langgraph_state_is_read() -> None:
    from rath_langgraph import RathSaver
    from tests.langgraph.graphs import asking, thread

    store = rb.open_store("memory:")
    for name in ("one", "two"):
        app = asking(checkpointer=RathSaver(store, session=name))
        app.invoke({"messages": [("user", f"hi {name}")], "note": "start"}, thread(name))
    rows = {row.what: row for row in store.session("one").diff(store.session("two")).state()}
    assert rows["note"].kind == "same"
    assert rows["messages"].kind == "changed"
    assert rows["messages"].ours_value == "1 items"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=40)
        | st.binary(max_size=40),
        lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=5), inner, max_size=20),
        max_leaves=20,
    )
)  # fmt: skip
def test_packed_values_read_as_they_are(value: Any) -> None:
    assert plain_value(ormsgpack.packb(value), packed=True) == value


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_can_be_shown(data: bytes, packed: bool) -> None:
    plain_value(data, packed=packed)


# ---------------------------------------------------------------- cost


def test_the_cost_follows_the_difference() -> None:
    """10 000-chunk forks that differ in 10: what is read is a few pages, sections included."""
    store = rb.open_store("memory:")
    s = long_session(store, 10_000)
    fork = s.fork("f").append(*[rb.message("user", f"x{n}") for n in range(5)])
    s = s.append(*[rb.message("user", f"y{n}") for n in range(5)])
    reader: Any = Counting(store.backend)
    from rath_bridge.verbs.diff import diff

    found = diff(s.head, fork.head, reader)
    found.to_json()
    assert reader.read < 200
