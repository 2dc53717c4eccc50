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
from typing import Any

from mcp import ClientSession, StdioServerParameters, stdio_client

from rath_bridge import Chunk, Session, Store
from rath_mcp import record_client
from tests.ports import free_port
from tests.waiting import started, until

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


def settled(place: Path) -> None:
    """Wait until all is in the store: a keeper goes on by itself where its proxy could not wait for it."""
    until(lambda: not list((place / "spool").iterdir()))


def without_patience(said: bytes) -> str:
    """What was said; that a keeper is not done yet is no news on a machine that has other work."""
    return "".join(line for line in said.decode().splitlines(keepends=True) if "is still being written" not in line)


def said_at(process: subprocess.Popen[Any]) -> re.Match[str]:
    """The address that a listening command says first: its port, and what else it says."""
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.search(r"on http://127\.0\.0\.1:(\d+)(.*)$", line)
    assert found is not None, line
    return found


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
    with started([sys.executable, "-c", CLI, *args], env=env, stderr=subprocess.PIPE, text=True) as process:
        yield int(said_at(process)[1])
        process.terminate()
        assert process.wait(60) == 0
    settled(place)


@contextmanager
def web(python: str = sys.executable) -> Iterator[str]:
    """The address of a streamable HTTP server of the SDK that a Python has."""
    with listening([python, str(Path(__file__).parent / "http_server.py"), "PORT"]) as port:
        yield f"http://127.0.0.1:{port}/mcp"


@contextmanager
def listening(command: list[str], **env: str) -> Iterator[int]:
    """The port at which a command that is given one listens (as ``PORT`` among its words, or in its environment)."""
    port = free_port()
    words = [word.replace("PORT", str(port)) for word in command]
    with started(
        words, env={**os.environ, "PORT": str(port), **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:

        def reached() -> bool:
            assert process.poll() is None, f"{words[0]} has ended"
            with socket.socket() as trial:
                return trial.connect_ex(("127.0.0.1", port)) == 0

        until(reached)
        yield port
