"""A streamable HTTP server of the SDK that is installed, 1.x or 2.x: ``python http_server.py PORT``."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import mcp
from pydantic import BaseModel

LATER = hasattr(mcp, "Client")
room: Any = import_module("mcp.server.mcpserver" if LATER else "mcp.server.fastmcp")
PORT = {"host": "127.0.0.1", "port": int(sys.argv[1])}
server = room.MCPServer("web", log_level="ERROR") if LATER else room.FastMCP("web", log_level="ERROR", **PORT)
if TYPE_CHECKING:
    from mcp.server.fastmcp import Context
else:
    Context = room.Context


class Name(BaseModel):
    name: str


@server.tool()
async def add(a: int, b: int, ctx: Context) -> int:  # type: ignore[type-arg]
    await ctx.report_progress(1, 2, "half")
    return a + b


@server.tool()
async def greet(ctx: Context) -> str:  # type: ignore[type-arg]
    answer = await ctx.elicit("Who are you?", Name)
    return f"hello {answer.data.name}" if answer.action == "accept" else "nobody"


@server.tool()
async def slow() -> str:
    await asyncio.sleep(30)
    return "late"


@server.tool()
def fail() -> str:
    raise ValueError("no")


@server.resource("web://page")
def page() -> str:
    return "a page"


server.run("streamable-http", **(PORT if LATER else {}))
