"""A host: calls what it is told to, and prints what it got as wire JSON. Runs under SDK 1.28+ and 2.x alike.

``python driver.py '[["tool", {...}], ...]' SERVER ARGS…``, or the address of a streamable HTTP server (``$DRIVER_TOKEN``). Whoever asks
its person something is told what the question's own words are: ``{"name": "Who are you?"}``.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

import mcp
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client


def wire(value: Any) -> Any:
    return value.model_dump(by_alias=True, mode="json", exclude_none=True)


async def ask(client: Any, calls: list[Any]) -> list[Any]:
    tools = await client.list_tools()
    found: list[Any] = [[tool.name for tool in tools.tools]]
    for name, arguments in calls:
        try:
            found.append(wire(await client.call_tool(name, arguments)))
        except Exception as error:  # noqa: BLE001 - whatever the SDK makes of it is compared
            found.append(f"{type(error).__name__}: {error}")
    return found


async def person(context: Any, params: Any) -> Any:
    schema = wire(params)["requestedSchema"]
    return mcp.types.ElicitResult(action="accept", content=dict.fromkeys(schema["properties"], params.message))


@asynccontextmanager
async def connected(command: list[str]) -> AsyncIterator[tuple[Any, Any]]:
    """The transport's streams."""
    if not command[0].startswith("http"):
        server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
        async with stdio_client(server) as streams:
            yield streams
        return
    http: Any = import_module("httpx2" if hasattr(mcp, "Client") else "httpx")
    headers = {"authorization": f"Bearer {os.environ.get('DRIVER_TOKEN', 'none')}"}
    async with http.AsyncClient(headers=headers) as client, streamable_http_client(command[0], http_client=client) as streams:
        yield streams[:2]


async def main() -> None:
    calls, command = json.loads(sys.argv[1]), sys.argv[2:]
    client: Any = getattr(mcp, "Client", None)
    if client is not None:
        async with client(connected(command), elicitation_callback=person) as one:
            sys.stdout.write(json.dumps([one.protocol_version, *await ask(one, calls)]))
        return
    async with connected(command) as streams, ClientSession(*streams, elicitation_callback=person) as one:
        hello = await one.initialize()
        sys.stdout.write(json.dumps([hello.protocolVersion, *await ask(one, calls)]))


asyncio.run(main())
