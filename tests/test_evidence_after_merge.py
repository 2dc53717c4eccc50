"""The final answer of a line into which another one was merged is that of the merged line."""

from __future__ import annotations

from typing import Any

import pytest

import rath_bridge as rb
from rath_bridge.evidence.audit import audit
from rath_bridge.model.kinds import Message
from rath_bridge.model.parts import TextPart


def both(store: rb.Store) -> tuple[rb.Session, rb.Session]:
    s = store.create("t").append(rb.message("user", "q"), rb.message("assistant", "first"))
    theirs = s.fork("x").append(rb.message("user", "more"), rb.message("assistant", "their answer"))
    return s.append(rb.message("user", "again"), rb.message("assistant", "our answer")), theirs


def final(session: rb.Session) -> list[str]:
    return [row.text for row in audit(session)[0].rows]


@pytest.mark.parametrize(
    ("strategy", "first", "line"), [("ours", "our answer", "t"), ("theirs", "their answer", "t@x")]
)  # fmt: skip
def test_one_side_wins(strategy: str, first: str, line: str) -> None:
    ours, theirs = both(rb.open_store("memory:"))
    merged = ours.merge(theirs, strategy=strategy)
    assert merged.messages()[-1].text == first
    assert final(merged)[:3] == [
        f"assistant: {first}", f"on the line {line}", f"before the merge of t@x (strategy {strategy})",
    ]  # fmt: skip


def _written(_: Any) -> Message:
    return Message(role="assistant", parts=(TextPart("both are right"),))


@pytest.mark.parametrize("strategy", ["summary", _written])
def test_a_union_of_both_names_the_block_and_what_it_stands_for(strategy: Any) -> None:
    ours, theirs = both(rb.open_store("memory:"))
    merged = ours.merge(theirs, strategy=strategy)
    rows = audit(merged)[0].rows
    block = merged.messages()[-1]
    assert rows[0].evidence == (block.id,)
    assert rows[0].text.startswith("what the merge wrote, no assistant has spoken since: ")
    assert "user merge" not in rows[0].text
    assert rows[0].text.endswith("their answer" if strategy == "summary" else "both are right")
    assert rows[2].text == f"after the merge of t@x (strategy {strategy if strategy == 'summary' else 'function'})"
    assert "it stands for what was said on t@x: assistant: their answer" in final(merged)
    assert "before it, this line said: assistant: our answer" in final(merged)


def test_what_is_said_after_a_merge_is_the_answer() -> None:
    ours, theirs = both(rb.open_store("memory:"))
    merged = ours.merge(theirs).append(rb.message("assistant", "in the end"))
    assert final(merged)[:3] == ["assistant: in the end", "on the line t", "after the merge of t@x (strategy summary)"]


def test_a_branch_that_was_merged_elsewhere_keeps_its_answer() -> None:
    ours, theirs = both(rb.open_store("memory:"))
    ours.merge(theirs)
    assert final(theirs)[:2] == ["assistant: their answer", "on the line t@x"]
    assert not any("merge" in text for text in final(theirs))


def test_a_briefing_is_no_answer() -> None:
    """It stands for messages of another line, too, but nobody merged."""
    s = rb.open_store("memory:").create("t").append(rb.message("user", "q"), rb.message("assistant", "yes"))
    brief = Message(role="user", parts=(TextPart("so far: yes"),), stands_for=(s.messages()[-1].id,))
    assert final(s.append(rb.draft(brief)))[0] == "assistant: yes"
