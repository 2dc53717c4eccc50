"""The servers that the tests talk to, each a process behind real pipes."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import ClientSession, StdioServerParameters, stdio_client

from rath_bridge import Chunk, Session, Store
from rath_mcp import record_client

ROOT = Path(__file__).parents[2]
SHOP = [str(ROOT / "examples" / "mcp_server.py")]
EDGE = [str(Path(__file__).parent / "edge_server.py")]
TIME = ["-m", "mcp_server_time", "--local-timezone", "Europe/Oslo"]


def parameters(args: list[str]) -> StdioServerParameters:
    return StdioServerParameters(command=sys.executable, args=args)


@asynccontextmanager
async def recorded(
    args: list[str], store: Store | None = None, session: str | None = None, **options: Any
) -> AsyncIterator[ClientSession]:
    """An initialised client session that was recorded from the start."""
    async with stdio_client(parameters(args)) as (read, write), ClientSession(read, write) as client:
        record_client(client, store, session, **options)
        await client.initialize()
        yield client


def bodies(session: Session, kind: str) -> list[Any]:
    return [chunk.body for chunk in session.latest() if chunk.kind == kind]


def body(chunk: Chunk) -> Any:
    return chunk.body


def tool_calls(session: Session) -> list[Any]:
    return [body for body in bodies(session, "tool_call") if body.type == "mcp"]


def notes(session: Session) -> list[str]:
    return [body.text for body in bodies(session, "note")]
