"""OpenRath files that another writer made: what is odd in them is never asked for, and ends no replay."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import rath_bridge as rb
from rath_bridge.replay import Divergence
from rath_openrath import decode
from rath_openrath.replay import OpenRathPlayer
from tests.interchange.test_mutated import HEADER


def row(index: int, kind: str, **payload: Any) -> dict[str, Any]:
    return {"record_type": "chunk", "index": index, "kind": kind, "payload": payload}


def test_odd_rows_are_passed_over() -> None:
    records = [
        HEADER,
        row(0, "user"),
        row(1, "assistant", tool_calls=[{"id": "c0", "type": "custom", "custom": {"name": "f", "input": "x"}}]),
        row(2, "tool_result", content="nobody asked"),
        row(3, "assistant", tool_calls=[{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]),
        row(4, "tool_result", tool_call_id="c1", content="42"),
        row(5, "someday", content=["new"]),
    ]
    session = rb.open_store("memory:").create("s").append(*decode(records))
    player = OpenRathPlayer(cast("Any", SimpleNamespace(held=SimpleNamespace(chunks=list(session.chunks())))))
    found = player.answer("f", {})
    assert not isinstance(found, Divergence)
    assert found.payload["content"] == "42"
    assert isinstance(player.answer("f", {}), Divergence)
    assert isinstance(player.reply([]), Divergence)
