"""A stdio server that asks the person at the other end (SDK 1.x)."""

from __future__ import annotations

from mcp.server.fastmcp import Context, FastMCP
from pydantic import BaseModel

server = FastMCP("asks", log_level="ERROR")


class Name(BaseModel):
    name: str


@server.tool()
async def greet(ctx: Context) -> str:  # type: ignore[type-arg]
    answer = await ctx.elicit("Who are you?", Name)
    return f"hello {answer.data.name}" if answer.action == "accept" else "nobody"


server.run("stdio")
