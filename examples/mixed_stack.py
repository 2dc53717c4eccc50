"""The main job, offline: one Session through LangGraph, MCP, the OpenAI Agents SDK and AutoGen.

Each framework is real and goes on from what the one before left; the models are the frameworks' own scripted ones. Then the
session is forked, the fork goes another way, it is merged back, shown, checked, packed and verified, and one flipped byte is
found. Run it with ``make demo``; it writes ``demo-out/`` and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "0"
os.environ.pop("OPENAI_API_KEY", None)  # nothing here may leave the machine

from rich.console import Console
from rich.rule import Rule

import rath_bridge as rb
from rath_bridge.model.parts import ToolCallPart, ToolCallResponsePart
from rath_bridge.session import Session, Store

OUT = Path(os.environ.get("RATH_DEMO_OUT", "demo-out"))
NAME = "ticket-4711"
HERE = Path(__file__).parent
console = Console(highlight=False)


def title(number: int, text: str) -> None:
    """Announce a step."""
    console.print()
    console.print(Rule(f"[bold]{number}. {text}", align="left"))


def said(session: Session, before: int) -> None:
    """Show what a step added to the transcript."""
    for message in session.messages():
        if message.chunk.position >= before:
            calls = [f"{p.name}({p.arguments})" for p in message.parts if isinstance(p, ToolCallPart)]
            answers = [str(p.response) for p in message.parts if isinstance(p, ToolCallResponsePart)]
            text = " ".join(" ".join([message.text, *calls, *answers]).split())
            who = message.name or message.role
            console.print(f"   [cyan]{who:<10}[/] {text[:100]}", markup=True, soft_wrap=True)


def answer(result: Any) -> str:
    """Show what a server answered: its text, or what it is."""
    parts = [part.get("content", part["type"]) for part in result["content"]]
    return " ".join(" ".join(f"<{len(part)} bytes>" if isinstance(part, bytes) else str(part) for part in parts).split())


# ---------------------------------------------------------------------------------------------- 1: LangGraph


def with_langgraph(store: Store) -> None:
    """A graph with a tool; its checkpointer is ours."""
    from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.tools import tool
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    from rath_langgraph import RathCallbackHandler, RathSaver

    @tool
    def find_export(customer: str) -> str:
        """Find a customer's last export."""
        return f"{customer}: export of 2026-10, 0 rows, filter month=13"

    model = FakeMessagesListChatModel(
        responses=[
            AIMessage("", tool_calls=[{"name": "find_export", "args": {"customer": "Ada"}, "id": "call_export"}]),
            AIMessage("The export ran with the filter month=13. Somebody should repair it."),
        ]
    )

    def triage(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("triage", triage).add_node("tools", ToolNode([find_export]))
    graph = graph.add_edge(START, "triage").add_conditional_edges("triage", tools_condition).add_edge("tools", "triage")
    app = graph.compile(checkpointer=RathSaver(store))
    config: Any = {"configurable": {"thread_id": "4711"}, "callbacks": [RathCallbackHandler(store)]}
    app.invoke({"messages": [HumanMessage("Ada's export is empty.")]}, config)


# ---------------------------------------------------------------------------------------------- 2: MCP


async def with_mcp(store: Store) -> None:
    """Two servers over real pipes: PyPI's mcp-server-time, and a small one of ours."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    from rath_mcp import record_client

    clock = StdioServerParameters(command=sys.executable, args=["-m", "mcp_server_time", "--local-timezone", "UTC"])
    async with stdio_client(clock) as (read, write), ClientSession(read, write) as client:
        record_client(client, store)
        await client.initialize()
        noon = {"source_timezone": "Europe/Oslo", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        await client.call_tool("convert_time", noon)
    shop = StdioServerParameters(command=sys.executable, args=[str(HERE / "mcp_server.py")])
    async with stdio_client(shop) as (read, write), ClientSession(read, write) as client:
        record_client(client, store)
        await client.initialize()
        await client.call_tool("find_order", {"order": "A-1"})
        await client.call_tool("chart", {})
        await client.call_tool("refund", {"order": "A-1"})


# ---------------------------------------------------------------------------------------------- 3: OpenAI Agents SDK


async def with_openai_agents(store: Store, session: Session) -> None:
    """Two agents with a function tool and a handoff: the processor, a recording model and hooks."""
    from agents import Agent, RunConfig, Runner, function_tool
    from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

    from rath_openai_agents import RathRunHooks, RecordingModel, install

    install(store, replace=True)

    @function_tool
    def set_filter(month: int) -> str:
        """Set the month of the export."""
        return f"the filter is month={month}"

    script = [
        ModelStep(output=[function_call("set_filter", {"month": 10}, call_id="call_filter")]),
        ModelStep(output=[function_call("transfer_to_writer", {}, call_id="call_writer")]),
        ModelStep(output=[assistant_message("Dear Ada, your export of October is repaired.")]),
    ]
    model = RecordingModel(ScriptedModel(script, emit_traces=True), store)
    writer = Agent(name="Writer", instructions="Write to the customer.", model=model)
    fixer = Agent(name="Fixer", instructions="Repair the export.", model=model, tools=[set_filter], handoffs=[writer])
    items, report = rb.encode(session, "openai_agents")  # what LangGraph left, as this SDK's own input items
    console.print(f"   handed over: {len(report.manifest)} items, {len(report.losses)} losses", style="dim")
    await Runner.run(
        fixer, [*items, {"role": "user", "content": "Please repair it."}], hooks=RathRunHooks(store), run_config=RunConfig()
    )


# ---------------------------------------------------------------------------------------------- 4: AutoGen


async def with_autogen(store: Store, session: Session, lines: list[str], task: str) -> Session:
    """A team of two that reviews what was done."""
    from autogen_agentchat.agents import AssistantAgent
    from autogen_agentchat.conditions import MaxMessageTermination
    from autogen_agentchat.teams import RoundRobinGroupChat
    from autogen_ext.models.replay import ReplayChatCompletionClient

    from rath_autogen import RecordingChatCompletionClient, wrap

    logging.getLogger("autogen_core.events").addFilter(
        lambda line: "Token count" not in line.getMessage()
    )  # of the scripted model
    models = [RecordingChatCompletionClient(ReplayChatCompletionClient([line])) for line in lines]
    agents = [AssistantAgent(f"reviewer_{i}", model) for i, model in enumerate(models, 1)]
    team = RoundRobinGroupChat(list(agents), termination_condition=MaxMessageTermination(99), max_turns=len(lines))
    session = session.append(rb.message("user", task))
    return await wrap(team, store, session=session.name).acall(session)


# ---------------------------------------------------------------------------------------------- the story


def cli(*arguments: str, expect: int = 0) -> None:
    """Run the command line as a person would."""
    console.print(f"\n[bold]$ rath-bridge {' '.join(arguments)}", soft_wrap=True)
    sys.stdout.flush()
    width = str(min(console.width, 120))
    environment = {**os.environ, "COLUMNS": width, "RATH_BRIDGE_STORE": f"sqlite:///{OUT / 'runs.db'}"}
    if console.is_terminal:
        environment["FORCE_COLOR"] = "1"
    done = subprocess.run([sys.executable, "-m", "rath_bridge", *arguments], env=environment, check=False)
    if done.returncode != expect:
        sys.exit(f"expected exit status {expect}, got {done.returncode}")


def flip(path: Path) -> None:
    """Change one byte in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def signing_key(path: Path) -> Path | None:
    """Make a key for this demo alone, where openssh is there; a packet without a signature verifies as well."""
    if shutil.which("ssh-keygen") is None:
        return None
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "demo", "-f", str(path)], check=True)
    return path


def main() -> None:
    """Tell the whole story."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    store = rb.open_store(f"sqlite:///{OUT / 'runs.db'}")

    with rb.record(store, NAME) as recorder:
        title(1, "LangGraph answers a customer; its checkpointer is ours")
        with_langgraph(store)
        asked = recorder.session
        said(asked, 0)

        title(2, "Two MCP servers are asked over real pipes")
        asyncio.run(with_mcp(store))
        tools = [c for c in recorder.session if c.kind == "tool_result" and c.position > asked.position]
        for chunk in tools:
            body: Any = chunk.body
            console.print(f"   [cyan]{body.name:<14}[/] {body.status}: {answer(body.result)[:90]}", soft_wrap=True)

        title(3, "The OpenAI Agents SDK goes on: a function tool and a handoff")
        before = len(recorder.session)
        asyncio.run(with_openai_agents(store, recorder.session))
        said(recorder.session, before)

        title(4, "An AutoGen team goes on")
        before = len(recorder.session)
        reviews = ["The letter is polite.", "And it is true."]
        session = asyncio.run(with_autogen(store, recorder.session, reviews, "Review the letter, please."))
        said(session, before)

    title(5, "Fork after LangGraph's answer; the fork goes another way; merge it back")
    fork = store.session(NAME).fork("call-ada", at=asked.head)
    fork = asyncio.run(with_autogen(store, fork, ["I called Ada. She wants September as well."], "Call the customer instead."))
    said(fork, len(asked))
    cli("diff", NAME, fork.name, expect=1)
    session = store.session(NAME).merge(fork)
    console.print(f"   merged: {session}", style="dim", soft_wrap=True)

    title(6, "Look at it")
    for arguments in (("ls",), ("log", NAME, "-n", "14"), ("graph", NAME), ("fsck", NAME)):
        cli(*arguments)

    title(7, "An evidence packet, signed, checked without us, then with one byte flipped")
    key = signing_key(OUT / "demo-key")
    cli("packet", NAME, "-o", str(OUT / "packet"), *(["--sign", str(key)] if key else []))
    cli("verify", str(OUT / "packet"), "--head", session.head, *(["--key", f"{key}.pub"] if key else []))
    console.print("\n[bold]$ sha256sum --quiet -c SHA256SUMS")
    subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=OUT / "packet", check=True)
    console.print("every file is what SHA256SUMS says")
    shutil.copytree(OUT / "packet", OUT / "tampered")
    flip(OUT / "tampered" / "bodies.jsonl")
    cli("verify", str(OUT / "tampered"), expect=3)

    console.print(Rule())
    counts = f"{len(session)} chunks, {len(session.messages())} messages, {session.usage().total_tokens} tokens"
    console.print(f"One session, four frameworks: {counts}.")
    console.print(f"Go on from here: .venv/bin/rath-bridge --store sqlite:///{OUT / 'runs.db'} show {NAME}:2", soft_wrap=True)
    console.print(f"Open {OUT / 'packet' / 'report.html'} in a browser: the page for people.", soft_wrap=True)
    store.close()


if __name__ == "__main__":
    main()
