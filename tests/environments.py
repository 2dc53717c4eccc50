"""What a test needs beside the development environment: another version of a framework, a package of another registry.

Set up once for all workers of a run, and only where ``RATH_CI`` is set (`.ci/run`); a variable that names a place which is set up already
is taken instead.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import sleep

import pytest

PLACE = "PLACE"
"""Stands for the directory in a command."""
PYTHON = f"{PLACE}/env/bin/python"
PIP = [sys.executable, "-m", "pip", "install", "-q"]


def made(name: str, factory: pytest.TempPathFactory, variable: str, *commands: Sequence[str]) -> Path:
    """Return a directory in which some commands have been carried out; skips the test where that is not asked for.

    Args:
        name: Of the directory.
        factory: Pytest's.
        variable: Of the environment: a directory that is set up already.
        *commands: What sets it up; ``PLACE`` is the directory.
    """
    given = os.environ.get(variable)
    if given:
        return Path(given)
    if not os.environ.get("RATH_CI"):
        pytest.skip(f"{name} is set up where RATH_CI or {variable} is set")
    base = factory.getbasetemp().parent
    place = base / name
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "ready").exists():
            place.mkdir(exist_ok=True)
            for command in commands:
                for pause in (2, 20, None):  # registries have bad moments
                    done = subprocess.run([word.replace(PLACE, str(place)) for word in command], capture_output=True, text=True)
                    if not done.returncode:
                        break
                    if pause is None:
                        pytest.fail(f"{name} cannot be set up: {done.stderr.strip()[-600:]}")
                    sleep(pause)
            (place / "ready").touch()
    return place


def second_mcp(factory: pytest.TempPathFactory) -> str:
    """Return a Python with MCP SDK 2.x, two public servers, OpenTelemetry, and what our core stands on."""
    needs = ["mcp>=2.3,<3", "mcp-server-git", "mcp-server-time", "opentelemetry-sdk", "orjson", "tenacity", "zstandard"]
    commands = ([sys.executable, "-m", "venv", f"{PLACE}/env"], [PYTHON, "-m", "pip", "install", "-q", *needs])
    return str(made("mcp-2", factory, "RATH_MCP_2X", *commands) / "env" / "bin" / "python")
