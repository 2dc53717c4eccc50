"""Run by test_mcp_second_line.py where MCP SDK 2.x stands beside AutoGen: a record that was made with MCP tools is used there."""

from __future__ import annotations

import asyncio
import json
import sys
from importlib import metadata
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import ModelInfo
from autogen_ext.models.replay import ReplayChatCompletionClient

import rath_bridge as rb
from rath_autogen import RathReplayChatCompletionClient, RathReplayWorkbench, RecordingChatCompletionClient, encode, wrap
from rath_autogen.tape import Tape

INFO = ModelInfo(vision=False, function_calling=True, json_output=True, family="unknown", structured_output=True)


async def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


async def main(url: str) -> None:
    found: dict[str, Any] = {"mcp": metadata.version("mcp")}
    try:
        import autogen_ext.tools.mcp  # noqa: F401
    except ImportError as error:
        found["import"] = str(error)
    with rb.open_store(url) as store:
        session = store.session("ticket")
        tape = Tape.of(session)
        offered: Any = [schema for schema in tape.schemas("a") or () if not schema["name"].startswith("transfer_to_")]
        bench, model = RathReplayWorkbench(tape, offered), RathReplayChatCompletionClient(tape)
        agent = AssistantAgent("a", model, workbench=[bench], reflect_on_tool_use=True, handoffs=["b"])
        found["replayed"] = [m.to_text() for m in (await agent.run(task="go")).messages]
        found["unused"] = len(tape.unused)
        said, _ = encode(session, as_="llm_messages")
        again = RecordingChatCompletionClient(ReplayChatCompletionClient(["goes on"], model_info=INFO))
        fresh = AssistantAgent("a", again, tools=[pay])
        context = {"messages": [one.model_dump() for one in said]}
        await fresh.load_state({"type": "AssistantAgentState", "version": "1.0.0", "llm_context": context})
        found["goes on"] = (await wrap(fresh, store, "later").run(task="and now?")).messages[-1].to_text()
        found["pending"] = len(store.session("later").pending())
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
