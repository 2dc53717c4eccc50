"""Content blocks of providers whose type is a word of ours, and means something else."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint

import rath_bridge as rb
from rath_bridge.model.parts import GenericPart
from rath_langgraph import RathSaver


@pytest.mark.parametrize("block", [{"type": "reasoning", "id": "rs_1", "summary": []}, {"type": "text", "text": None}])
def test_a_block_under_one_of_our_names_is_kept(block: dict[str, Any]) -> None:
    """OpenAI's reasoning items without a summary stand in an answer's content as ``{"type": "reasoning", "summary": []}``."""
    store = rb.open_store("memory:")
    saver = RathSaver(store)
    said = [HumanMessage("hi", id="1"), AIMessage([block, {"type": "text", "text": "hello"}], id="2")]
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"messages": said}
    checkpoint["channel_versions"] = {"messages": "1"}
    config = saver.put(
        {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, checkpoint, {"source": "loop"}, {"messages": "1"}
    )
    found = saver.get_tuple(config)
    assert found is not None
    assert found.checkpoint["channel_values"]["messages"] == said
    assert store.session("langgraph/t").messages()[1].parts[0] == GenericPart("foreign", {"value": block})
