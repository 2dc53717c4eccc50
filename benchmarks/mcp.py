"""The MCP stdio proxy beside a raw pipe: the same server behind each, the same client before each, block after block in turn.

A block is more than a second of calls without a pause through one connection while the others rest, so what a proxy does beside the
pipe (its keeper writes the store when the pipe is quiet, but once a second all the same) falls on its own calls and on nobody else's.
Ratios are those of neighbouring blocks. Two servers of one kind differ by some hundredths for as long as they live, so each round has
new ones; the figure is the median of all blocks' ratios, and in brackets stand the rounds' own medians, from the least to the greatest.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.table import Row, fsync_time, workspace

ROOT = Path(__file__).parents[1]
TIME = [sys.executable, "-m", "mcp_server_time", "--local-timezone", "Europe/Oslo"]
RAW = [sys.executable, str(ROOT / "benchmarks" / "raw_pipe.py")]
ROUNDS = 5
BLOCKS = 3
CALLS = 300
WARM = 20
BIG_BLOCKS = 5
BIG_CALLS = 5
BIG = 20_000_000
ECHO = f"import sys\nfor _ in sys.stdin: sys.stdout.write('x' * {BIG} + chr(10)); sys.stdout.flush()"


def rows() -> Iterator[Row]:
    """Calls through pipes, and large results."""
    with workspace() as folder:
        raw_pipe, ours = RAW + TIME, _ours(folder) + TIME
        durable = [*_ours(folder)[:-1], "--durable", "--", *TIME]
        direct, synced = (statistics.median(times) for times in asyncio.run(_blocks([TIME, durable], folder)))
        rounds = [asyncio.run(_blocks([raw_pipe, ours], folder)) for _ in range(ROUNDS)]
        raw, recorded = (statistics.median(chain(*times)) for times in zip(*rounds, strict=True))
        ratios = [[one / other for other, one in zip(*found, strict=True)] for found in rounds]
        ratio, between = statistics.median(chain(*ratios)), _between([statistics.median(found) for found in ratios])
        yield Row(
            f"MCP stdio proxy, p50 of {ROUNDS} x {BLOCKS} x {CALLS} calls", f"{recorded * 1e3:.2f} ms = {ratio:.2f} x ({between})",
            "<= 1.05 x a raw pipe, frames flushed", f"raw pipe {raw * 1e3:.2f} ms, no proxy {direct * 1e3:.2f} ms", ratio <= 1.05,
        )  # fmt: skip
        yield Row(
            "the same, --durable",
            f"{synced * 1e3:.2f} ms",
            "(each request synced)",
            f"fsync here {fsync_time(folder) * 1e3:.2f} ms",
        )
        large = [(_large(RAW, folder), _large(_ours(folder), folder)) for _ in range(BIG_BLOCKS)]
        raw, recorded = (statistics.median(times) for times in zip(*large, strict=True))
        ratios = [one / other for other, one in large]
        ratio, between = statistics.median(ratios), _between(ratios)
        yield Row(
            f"MCP stdio proxy, results of 20 MB, {BIG_BLOCKS} x {BIG_CALLS}",
            f"{recorded:.3f} s = {ratio:.2f} x ({between})", "<= 1.5 x a raw pipe",
            f"raw pipe {raw:.3f} s", ratio <= 1.5,
        )  # fmt: skip


def _ours(folder: Path) -> list[str]:
    program = str(Path(sys.executable).with_name("rath-bridge"))
    return [program, "mcp", "record", "--store", f"sqlite:///{folder / 'mcp.db'}", "--"]


def _between(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


async def _blocks(commands: Sequence[list[str]], folder: Path) -> list[list[float]]:
    """Median seconds of a call, for each of new connections block by block."""
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
        for block in range(BLOCKS + 1):
            order = list(range(len(clients)))
            for number in order if block % 2 else reversed(order):
                times: list[float] = []
                for _ in range(CALLS if block else WARM):
                    start = perf_counter()
                    await clients[number].call_tool("convert_time", given)
                    times.append(perf_counter() - start)
                if block:
                    found[number].append(statistics.median(times))
                await asyncio.sleep(0.3)  # what is done beside this pipe must not fall on the next one
    return found


@contextmanager
def _echoing(proxy: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [*proxy, sys.executable, "-c", ECHO]
    env = {"XDG_STATE_HOME": str(folder)}
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        process.wait()  # with its keeper: the next block has the machine for itself


def _large(proxy: list[str], folder: Path) -> float:
    """Median seconds from a request to the end of its 20 MB, one request after the other."""
    times: list[float] = []
    with _echoing(proxy, folder) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(BIG_CALLS):
            start = perf_counter()
            process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": "big"}).encode() + b"\n")
            process.stdin.flush()
            process.stdout.readline()
            times.append(perf_counter() - start)
    return statistics.median(times[1:])  # the first one warms up
