"""A host: calls what it is told to, and prints what it got as wire JSON. Runs under SDK 1.28+ and 2.x alike.

``python driver.py '[["tool", {...}], ...]' SERVER ARGS…``
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import mcp
from mcp import ClientSession, StdioServerParameters, stdio_client


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


async def main() -> None:
    calls, command = json.loads(sys.argv[1]), sys.argv[2:]
    server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    client: Any = getattr(mcp, "Client", None)
    if client is not None:
        async with client(server) as one:
            sys.stdout.write(json.dumps([one.protocol_version, *await ask(one, calls)]))
        return
    async with stdio_client(server) as streams, ClientSession(*streams) as one:
        hello = await one.initialize()
        sys.stdout.write(json.dumps([hello.protocolVersion, *await ask(one, calls)]))


asyncio.run(main())
