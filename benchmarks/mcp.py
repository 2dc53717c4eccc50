"""The MCP stdio proxy beside a raw pipe: one client of the SDK, one real server behind each, calls in turn."""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from benchmarks.table import Row, fsync_time, workspace

ROOT = Path(__file__).parents[1]
TIME = [sys.executable, "-m", "mcp_server_time", "--local-timezone", "Europe/Oslo"]
RAW = [sys.executable, str(ROOT / "benchmarks" / "raw_pipe.py")]
CALLS = 300
BIG = 20_000_000
ECHO = f"import sys\nfor _ in sys.stdin: sys.stdout.write('x' * {BIG} + chr(10)); sys.stdout.flush()"


def rows() -> Iterator[Row]:
    """Calls through pipes, and one large result."""
    with workspace() as folder:
        ours = _ours(folder)
        found = asyncio.run(_in_turn([TIME, RAW + TIME, ours + TIME, [*ours[:-1], "--durable", "--", *TIME]], folder))
        direct, raw, recorded, durable = (statistics.median(times) for times in found)
        yield Row(
            f"MCP stdio proxy, {CALLS} calls, p50", f"{recorded * 1e3:.2f} ms = {recorded / raw:.2f} x",
            "<= 1.05 x a raw pipe, frames flushed", f"raw pipe {raw * 1e3:.2f} ms, no proxy {direct * 1e3:.2f} ms", recorded <= raw * 1.05,
        )  # fmt: skip
        yield Row(
            "the same, --durable",
            f"{durable * 1e3:.2f} ms",
            "(each request synced)",
            f"fsync here {fsync_time(folder) * 1e3:.2f} ms",
        )
        raw, recorded = _large(RAW), _large(ours)
        yield Row(
            "MCP stdio proxy, a result of 20 MB", f"{recorded:.3f} s = {recorded / raw:.2f} x", "<= 1.5 x a raw pipe",
            f"raw pipe {raw:.3f} s", recorded <= raw * 1.5,
        )  # fmt: skip


def _ours(folder: Path) -> list[str]:
    return [
        str(Path(sys.executable).with_name("rath-bridge")),
        "mcp",
        "record",
        "--store",
        f"sqlite:///{folder / 'mcp.db'}",
        "--",
    ]


async def _in_turn(commands: Sequence[list[str]], folder: Path) -> list[list[float]]:
    """Call through each of several connections in turn, so that what else the machine does falls on all of them."""
    from mcp import ClientSession, StdioServerParameters, stdio_client

    found: list[list[float]] = [[] for _ in commands]
    given = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    async with AsyncExitStack() as stack:
        clients: list[Any] = []
        for command in commands:
            server = StdioServerParameters(command=command[0], args=command[1:], env={"XDG_STATE_HOME": str(folder)})
            streams = await stack.enter_async_context(stdio_client(server))
            client = await stack.enter_async_context(ClientSession(*streams))
            await client.initialize()
            await client.list_tools()
            clients.append(client)
        for turn in range(CALLS + 20):
            for client, times in random.sample(list(zip(clients, found, strict=True)), len(clients)):
                start = perf_counter()
                await client.call_tool("convert_time", given)
                if turn >= 20:
                    times.append(perf_counter() - start)
    return found


def _large(proxy: list[str], rounds: int = 5) -> float:
    """Seconds from a request to the end of its 20 MB: the best of several."""
    process = subprocess.Popen([*proxy, sys.executable, "-c", ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    best = float("inf")
    for number in range(rounds):
        start = perf_counter()
        process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": "big"}).encode() + b"\n")
        process.stdin.flush()
        process.stdout.readline()
        best = min(best, perf_counter() - start)
        sleep(0.5)  # the keeper writes it: beside the pipe, not in it
    process.stdin.close()
    process.wait()
    return best
