"""diff, blame and the replay form."""

from __future__ import annotations

import json
from typing import Any

import pytest

import rath_bridge as rb
from rath_bridge.model.digests import digest
from rath_bridge.model.kinds import Inference, Message, Run, SessionStart, ToolCall, ToolResult, Usage, Workspace
from rath_bridge.model.parts import TextPart, ToolCallPart, ToolCallResponsePart
from rath_bridge.model.trees import map_tree
from rath_bridge.verbs.diff import ABSENT, difference, path_text
from rath_bridge.verbs.replay_form import replay_form, steps
from tests.rich_session import LONG, rich_session
from tests.test_verbs_log_fsck import Counting, long_session

# ---------------------------------------------------------------- diff


def kinds(diff: Any) -> list[str]:
    return [change.kind for change in diff.changes]


def test_diff_names_the_base_the_sides_and_the_first_path(store_url: str) -> None:
    with rb.open_store(store_url) as store:
        s = store.create("s").append(rb.message("user", "hello"))
        base = s.head
        fork = s.fork("f").append(rb.message("assistant", "yes"), rb.message("user", LONG), rb.message("user", "more"))
        s = s.append(rb.message("assistant", "no"), rb.message("user", LONG))
        found = s.diff(fork)
        assert found
        assert found.base == base
        assert [c.id for c in found.ours] == [c.id for c in s[2:4]]
        assert [c.id for c in found.theirs] == [c.id for c in fork[2:6]]
        assert kinds(found) == ["changed", "same", "added"]
        change = found.changes[0]
        assert (change.path, change.ours_value, change.theirs_value) == ("body.parts[0].content", "no", "yes")


def test_diff_is_false_where_both_sides_say_the_same() -> None:
    store = rb.open_store("memory:")
    s = store.create("s").append(rb.message("user", "hello"))
    fork = s.fork("f").append(rb.message("assistant", "yes"))
    assert not s.append(rb.message("assistant", "yes")).diff(fork)
    assert not fork.diff(fork)
    assert not s.diff(s.detach("copy"))
    assert s.diff(s.detach("copy2")).base is None


def test_diff_shows_long_texts_and_what_is_absent() -> None:
    store = rb.open_store("memory:")
    s = store.create("s")
    fork = s.fork("f").append(rb.draft(ToolCall(name="t", arguments={"a": LONG, "b": [1, 2.0]})))
    s = s.append(rb.draft(ToolCall(name="t", arguments={"a": "short", "b": [1, 2]})))
    (change,) = s.diff(fork).changes
    assert (change.path, change.ours_value, change.theirs_value) == ("body.arguments.a", "short", LONG)
    fork = s.fork("g").append(rb.draft(ToolCall(name="t", arguments={"b": [1, 2, 3]})))
    s = s.append(rb.draft(ToolCall(name="t", arguments={"b": [1, 2]})))
    (change,) = s.diff(fork).changes
    assert (change.path, change.ours_value, change.theirs_value) == ("body.arguments.b[2]", ABSENT, 3)
    assert "ours_value" not in change.to_json()


def test_differences_tell_numbers_apart() -> None:
    assert difference({"a": 1}, {"a": 1.0}) == ("a",)
    assert difference({"a": True}, {"a": 1}) == ("a",)
    assert difference(float("nan"), float("nan")) is None
    assert difference([1, {"b": [0]}], [1, {"b": []}]) == (1, "b", 0)
    assert path_text((1, "b", 0)) == "body[1].b[0]"


def test_diff_as_json_can_be_written() -> None:
    store = rb.open_store("memory:")
    s = store.create("s")
    fork = s.fork("f").append(rb.message("user", "lone \ud800"), rb.draft(ToolCall(name="t", arguments={"n": 2**70})))
    s = s.append(rb.message("user", "x"), rb.draft(ToolCall(name="t", arguments={"n": b"\x00"})))
    text = json.dumps(s.diff(fork).to_json())
    assert json.loads(text)["differ"] is True


def test_diff_of_long_forks_reads_only_what_differs() -> None:
    store = rb.open_store("memory:")
    s = long_session(store, 10_000)
    fork = s.fork("f").append(*[rb.message("user", f"x{n}") for n in range(10)])
    s = s.append(*[rb.message("user", f"y{n}") for n in range(10)])
    reader: Any = Counting(store.backend)
    from rath_bridge.verbs.diff import diff

    found = diff(s.head, fork.head, reader)
    assert kinds(found) == ["changed"] * 10
    assert reader.read < 200


def test_diff_after_a_merge_counts_the_base_once() -> None:
    store = rb.open_store("memory:")
    s = rich_session(store)
    side = store.session("ticket@side")
    found = side.diff(s)
    assert found.base == side.head
    assert not found.ours
    assert set(kinds(found)) == {"added"}


# ---------------------------------------------------------------- replay form


def run_of(call: str, run: str, *, order: tuple[str, str] = ("a", "b"), answer: str = "sunny") -> list[Any]:
    """A team whose two members work at the same time; ids are new in every run."""
    made = [
        rb.draft(Run(phase="begin", name="team", type="team", native_id=run), run=run),
        *[rb.draft(Run(phase="begin", name="member", parent=run), run=f"{run}-{m}") for m in ("a", "b")],
    ]
    for member in order:
        name, call_id = f"{run}-{member}", f"{call}-{member}"
        said = Message(role="assistant", id=f"m{call_id}", parts=(ToolCallPart(call_id, "weather", {"at": member}),))
        output = ({"type": "function_call", "id": f"fc{call_id}", "call_id": call_id, "arguments": '{"id": "kept"}'},)
        made += [
            rb.draft(said, run=name),
            rb.draft(Inference(model="m", output=output, duration=len(call) / 7, usage=Usage(input_tokens=len(call))), run=name),
            rb.draft(ToolCall(name="weather", call_id=call_id, arguments={"at": member}), run=name),
            rb.draft(ToolResult(call_id=call_id, result=answer, duration=len(call) / 3), run=name),
            rb.draft(Message(role="tool", parts=(ToolCallResponsePart(call_id, answer),)), run=name),
        ]
    return made


def recorded(drafts: list[Any]) -> list[Any]:
    store = rb.open_store("memory:")
    return list(store.create("s").append(*drafts).chunks())


def test_replay_form_is_blind_to_ids_times_and_the_order_between_actors() -> None:
    one = replay_form(recorded(run_of("c1", "r1")))
    two = replay_form(recorded(run_of("call_2222", "r2", order=("b", "a"))))
    assert one == two
    assert {step.actor for step in one} == {"team[0]", "team[0]/member[0]", "team[0]/member[1]"}


def test_replay_form_sees_content_and_order_within_an_actor() -> None:
    drafts = run_of("c1", "r1")
    form = replay_form(recorded(drafts))
    assert form != replay_form(recorded(run_of("c1", "r1", answer="rainy")))
    drafts[3], drafts[5] = drafts[5], drafts[3]
    assert form != replay_form(recorded(drafts))


def test_replay_form_links_an_edit_to_its_message() -> None:
    store = rb.open_store("memory:")
    forms: list[Any] = []
    for name in ("one", "two"):
        s = store.create(name).append(rb.message("user", "a"), rb.message("user", "b"))
        s = s.append(rb.draft(Message(role="user", parts=(TextPart("c"),), replaces=s[1].id)))
        forms.append(replay_form(list(s.chunks())))
    assert forms[0] == forms[1]
    assert forms[0][-1].values["replaces"] == ":message0"


def test_replay_form_leaves_out_how_a_line_came_to_be() -> None:
    chunks = recorded([rb.draft(SessionStart(op="fork", name="x"))])
    assert replay_form(chunks) == []
    assert [step.kind for step in steps(chunks)] == ["session", "session"]


def test_equal_call_ids_in_two_runs_are_two_calls() -> None:
    def two_runs(first: str, second: str) -> list[Any]:
        return recorded(
            [
                rb.draft(Run(phase="begin", name="a"), run="r1"),
                rb.draft(ToolCall(name="t", call_id=first), run="r1"),
                rb.draft(Run(phase="begin", name="b"), run="r2"),
                rb.draft(ToolCall(name="t", call_id=second), run="r2"),
            ]
        )

    assert replay_form(two_runs("1", "1")) == replay_form(two_runs("1", "2"))


# ---------------------------------------------------------------- blame


def test_blame_finds_texts_first_appearance_first(store_url: str) -> None:
    with rb.open_store(store_url) as store:
        s = rich_session(store)
        lines = s.blame("found 1")
        assert [line.chunk.kind for line in lines] == ["tool_result", "message"]
        assert lines[0].runs == ("graph", "agent")
        assert lines[0].where == "body.result"
        assert lines[0].excerpt == "found 1"
        assert lines[1].where == "body.parts[0].response"


def test_blame_looks_into_long_texts_and_merged_lines() -> None:
    store = rb.open_store("memory:")
    s = rich_session(store)
    lines = s.blame("quarterly report")
    assert lines[0].chunk.id == s[3].id
    assert lines[0].excerpt.startswith("the quarterly report says")
    assert lines[0].excerpt.endswith("…")
    assert "tried" in [line.excerpt for line in s.blame("tried")]


def test_blame_finds_files_where_they_are_new_or_changed() -> None:
    store = rb.open_store("memory:")
    s = store.create("s")
    for content in (b"one", b"one", b"two"):
        files, nodes = map_tree({f"f{n}.py": bytes.fromhex(digest(content if n == 7 else b"same")) for n in range(60)})
        s = s.append(rb.draft(Workspace(files=files), objects=nodes | {digest(content): content, digest(b"same"): b"same"}))
    assert [line.chunk.position for line in s.blame("f7.py")] == [1, 3]
    assert [line.chunk.position for line in s.blame("f8.py")] == [1]
    assert s.blame("nothing.py") == []


def test_blame_finds_digests() -> None:
    store = rb.open_store("memory:")
    s = rich_session(store)
    assert s.blame(s[3].id)[0].chunk.id == s[3].id
    assert s.blame(digest(LONG.encode()))[0].where == "body.parts[0].content"
    native = next(c for c in s.chunks() if c.native_ref)
    ref: Any = native.native_ref
    assert [(line.chunk.id, line.where) for line in s.blame(ref["digest"])] == [(native.id, "body.native.digest")]
    checkpoint = next(c for c in s.chunks() if c.kind == "checkpoint")
    body: Any = checkpoint.body
    assert s.blame(body.state.digest)[0].where == "body.state"


@pytest.mark.parametrize("text", ['say "hi"\n', "snowman ☃", "half \ud800 pair", "1234567"])
def test_blame_finds_any_text(text: str) -> None:
    store = rb.open_store("memory:")
    s = store.create("s").append(rb.message("user", f"a {text} b"), rb.draft(ToolCall(name="t", arguments={text: 1})))
    assert [line.chunk.position for line in s.blame(text)] == [1, 2]


def test_blame_needs_something_to_look_for() -> None:
    with pytest.raises(ValueError, match="nothing"):
        rb.open_store("memory:").create("s").blame("")
