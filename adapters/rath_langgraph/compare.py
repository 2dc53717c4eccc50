"""Comparison keys of LangChain messages: what stays the same when a framework hands a message back.

Ids, names, response metadata and usage are left out: LangGraph's ``add_messages`` gives ids, agents give names.
"""

from __future__ import annotations

from typing import Any, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from rath_bridge.model.digests import Digest, digest
from rath_bridge.model.encoding import encode
from rath_langgraph.neutral import plain, role_of


def compare_key(message: BaseMessage) -> Digest:
    """Return the digest of what a message says: role, content, calls."""
    content: Any = message.content
    if isinstance(content, list):
        blocks = cast("list[Any]", content)
        texts = [block if isinstance(block, str) else block.get("text") for block in blocks]
        if (
            len(blocks) == 1
            and isinstance(texts[0], str)
            and (isinstance(blocks[0], str) or set(blocks[0]) <= {"type", "text", "id"})
        ):
            content = texts[0]
    facts: list[Any] = [role_of(message), plain(content)]
    if isinstance(message, AIMessage):
        facts.append([[call["id"], call["name"], plain(call["args"])] for call in message.tool_calls])
    if isinstance(message, ToolMessage):
        facts.append(message.tool_call_id)
    return digest(encode(facts)[0])
