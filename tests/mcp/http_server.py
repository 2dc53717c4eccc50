"""A streamable HTTP server of the SDK that is installed: ``python http_server.py PORT [json]``."""

from __future__ import annotations

import asyncio
import sys

from mcp.server.fastmcp import Context, FastMCP
from pydantic import BaseModel

server = FastMCP("web", host="127.0.0.1", port=int(sys.argv[1]), log_level="ERROR", json_response=sys.argv[2:] == ["json"])


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


server.run("streamable-http")
