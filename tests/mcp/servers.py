"""The servers that the tests talk to, each a process behind real pipes."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from mcp import ClientSession, StdioServerParameters, stdio_client

from rath_bridge import Chunk, Session, Store
from rath_mcp import record_client

ROOT = Path(__file__).parents[2]
SHOP = [str(ROOT / "examples" / "mcp_server.py")]
EDGE = [str(Path(__file__).parent / "edge_server.py")]
ODD = [sys.executable, str(Path(__file__).parent / "odd_server.py")]
CLI = "import sys; from rath_bridge.cli import main; sys.exit(main())"
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


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextmanager
def proxy(place: Path, upstream: str, session: str = "s") -> Iterator[int]:
    """A running proxy's port; when the block ends it has ended, and all is in the store."""
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "adapters")]),
        "RATH_BRIDGE_SPOOL": str(place / "spool"),
    }
    store = f"sqlite:///{place / 'runs.db'}"
    args = ["mcp", "record", "--http", upstream, "--listen", "127.0.0.1:0", "--store", store, "--session", session]
    with subprocess.Popen([sys.executable, "-c", CLI, *args], env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = re.search(r"on http://127\.0\.0\.1:(\d+)/", process.stderr.readline())
        assert said is not None
        try:
            yield int(said[1])
        finally:
            process.terminate()
            assert process.wait(20) == 0


@contextmanager
def web(python: str = sys.executable) -> Iterator[str]:
    """The address of a streamable HTTP server of the SDK that a Python has."""
    with listening([python, str(Path(__file__).parent / "http_server.py"), "PORT"]) as port:
        yield f"http://127.0.0.1:{port}/mcp"


@contextmanager
def listening(command: list[str], **env: str) -> Iterator[int]:
    """The port at which a command that is given one listens (as ``PORT`` among its words, or in its environment)."""
    port = str(free_port())
    words = [word.replace("PORT", port) for word in command]
    with subprocess.Popen(
        words, env={**os.environ, "PORT": port, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        end = monotonic() + 60
        while monotonic() < end and process.poll() is None:
            with socket.socket() as trial:
                if trial.connect_ex(("127.0.0.1", int(port))) == 0:
                    break
            sleep(0.1)
        try:
            yield int(port)
        finally:
            process.terminate()
