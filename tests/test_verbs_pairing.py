"""fsck's pairing agrees with the fold of one line, wherever a history branches."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import rath_bridge as rb
from rath_bridge.model.kinds import Message, Run, ToolCall, ToolResult
from rath_bridge.model.parts import ToolCallPart

STEPS = st.lists(
    st.tuples(st.sampled_from(["asked", "started", "result"]), st.sampled_from("12"), st.sampled_from([None, "r", "n"]))
)


def drafts(steps: list[tuple[str, str, str | None]]) -> list[Any]:
    made: list[Any] = []
    for what, call, run in steps:
        if what == "asked":
            made.append(rb.draft(Message(role="assistant", parts=(ToolCallPart(call, "t", {}),)), run=run))
        elif what == "started":
            made.append(rb.draft(ToolCall(name="t", call_id=call), run=run))
        else:
            made.append(rb.draft(ToolResult(call_id=call), run=run))
    return made


@given(trunk=STEPS, left=STEPS, right=STEPS)
def test_second_results_are_those_that_the_fold_of_each_line_finds(trunk: Any, left: Any, right: Any) -> None:
    store = rb.open_store("memory:")
    s = store.create("s").append(
        rb.draft(Run(phase="begin", name="top"), run="r"), rb.draft(Run(phase="begin", name="nested", parent="r"), run="n")
    )
    s = s.append(*drafts(trunk))
    other = s.fork("other").append(*drafts(right))
    s = s.append(*drafts(left))
    wanted = {name for line in (s, other) for call in line.calls() for name in call.extra}
    assert {finding.object for finding in store.fsck()} == wanted
    assert {finding.object for finding in other.fsck()} == {name for call in other.calls() for name in call.extra}
