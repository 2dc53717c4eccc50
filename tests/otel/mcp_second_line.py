"""A host on MCP SDK 2.x, which traces itself: ``python mcp_second_line.py SERVER ARGS…`` prints the span chunks of its session."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import mcp
from mcp import StdioServerParameters, stdio_client
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import rath_bridge as rb
from rath_bridge.otel import SessionSpanProcessor


async def main(store: rb.Store, command: list[str]) -> str:
    """Call one tool; returns the run that it was called in."""
    client: Any = mcp.Client  # pyright: ignore[reportAttributeAccessIssue] - of 2.x
    server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    async with client(stdio_client(server)) as one:
        with rb.record(store, "ticket") as recorder, recorder.run("agent") as run:
            given = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
            await one.call_tool("convert_time", given)
        return run.id


if __name__ == "__main__":
    memory = rb.open_store("memory:")
    provider = TracerProvider()
    provider.add_span_processor(SessionSpanProcessor(memory))
    trace.set_tracer_provider(provider)
    made = asyncio.run(main(memory, sys.argv[1:]))
    provider.force_flush()
    spans = [chunk for chunk in memory.session("ticket") if chunk.kind == "span"]
    names = ("name", "span_kind", "attributes", "scope")
    told = [{"run": chunk.run == made, **{name: getattr(chunk.body, name) for name in names}} for chunk in spans]
    sys.stdout.write(json.dumps(told, default=dict))
