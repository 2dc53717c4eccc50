"""The mapping table is what the adapters really do, in the documentation too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rath_bridge.handover import TARGETS
from rath_bridge.handover.table import KEPT, MAPPING, Row, markdown
from tests.handover.probes import PROBES, fate, handed_over
from tests.handover.stacks import ROLES, calls_and_answers, roles

PAGE = Path(__file__).parents[2] / "docs/hand-over.md"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("row", MAPPING, ids=lambda row: row.what.replace(" ", "-"))
def test_each_row_is_what_happens(row: Row, target: str) -> None:
    before, after, report, native = handed_over(PROBES[row.what], target)
    cell = getattr(row, target)
    assert fate(before, after) == cell.fate, (before, after)
    assert report.exact == (cell.fate == KEPT), "what is not kept is named, and nothing else is (law 2)"
    assert all(loss.chunk and loss.path and loss.what for loss in report.losses)
    valid(native, target, other_roles=row.what == "role: any other")


def valid(native: list[Any], target: str, *, other_roles: bool = False) -> None:
    """Calls paired, each answered behind it, ids and names of the form and length that the target takes; its roles."""
    waiting: list[str] = []
    for kind, call_id, name in calls_and_answers(native, target):
        assert call_id.replace("_", "").replace("-", "").isalnum()
        assert len(call_id) <= (64 if target == "openai_agents" else 40)
        if kind == "call":
            assert name.replace("_", "").replace("-", "").isalnum()
            assert len(name) <= 64
            assert call_id not in waiting
            waiting.append(call_id)
        else:
            waiting.remove(call_id)
    assert not waiting
    assert roles(native, target) <= ROLES[target] | ({"chat"} if other_roles and target == "langgraph" else set())


def test_every_row_has_its_probe() -> None:
    assert [row.what for row in MAPPING] == list(PROBES)


def test_the_page_has_this_table() -> None:
    assert "\n".join(markdown()) in PAGE.read_text(), "run: python -m rath_bridge.handover.table"
