"""A program that records its MCP calls and is replayed, under SDK 2.x (1.x has test_core_replay): ``python both_lines.py PYTHON``.

The first argument is a Python with mcp-server-time.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import mcp
from mcp import ClientSession, StdioServerParameters, stdio_client

import rath_bridge as rb
from rath_mcp import record_client, record_clients

PYTHON = sys.argv[1]
NOON = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
store = rb.open_store("memory:")


def server(command: str) -> StdioServerParameters:
    return StdioServerParameters(command=command, args=["-m", "mcp_server_time", "--local-timezone", "UTC"])


async def session_by_hand(command: str) -> str:
    with rb.record(store, "by-hand") as recorder, recorder.run("agent"):
        async with stdio_client(server(command)) as streams, ClientSession(*streams) as client:
            record_client(client)
            await client.initialize()
            await client.list_tools()
            return (await client.call_tool("convert_time", NOON)).content[0].text  # type: ignore[union-attr]


async def client_of_2x(command: str) -> str:
    kind: Any = mcp.Client  # type: ignore[attr-defined]
    with rb.record(store, "client") as recorder, record_clients(), recorder.run("agent"):
        async with kind(server(command)) as client:
            await client.list_tools()
            return (await client.call_tool("convert_time", NOON)).content[0].text


async def asked_of_2x(command: str) -> str:
    """A server that asks its person within results: what looks like one call to the program is three requests."""

    async def person(context: Any, params: Any) -> Any:
        return mcp.types.ElicitResult(action="accept", content=dict.fromkeys(params.requested_schema["properties"], "Ida"))

    kind: Any = mcp.Client  # type: ignore[attr-defined]
    asks = StdioServerParameters(command=command, args=[str(Path(__file__).parent / "asking_server_2x.py")])
    with rb.record(store, "asked") as recorder, record_clients(), recorder.run("agent"):
        async with kind(asks, elicitation_callback=person) as client:
            return (await client.call_tool("greet", {})).content[0].text


async def check(name: str, program: Callable[[str], Awaitable[str]]) -> dict[str, Any]:
    first = await program(PYTHON)
    session = store.session(name)
    begin = next(chunk for chunk in session if chunk.kind == "run" and getattr(chunk.body, "type", None) == "server")
    again = await rb.areplay(session, lambda: program("/no/such/command"))
    live = await rb.areplay(session, lambda: program(PYTHON), until=begin, then="live", allow_effects=True)
    return {
        "calls": [[call.name, call.status] for call in session.calls()], "equal": again.equal, "same": again.value == first,
        "reached": again.live, "live": live.live, "lived": live.value == first,
    }  # fmt: skip


async def main() -> None:
    programs = {"by-hand": session_by_hand, "client": client_of_2x, "asked": asked_of_2x}
    found = {name: await check(name, program) for name, program in programs.items()}
    sys.stdout.write(json.dumps(found))


asyncio.run(main())
