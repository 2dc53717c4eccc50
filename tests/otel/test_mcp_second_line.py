"""MCP SDK 2.x traces itself: its spans come into the session that the call was made in."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.environments import second_mcp

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(900)  # who comes second waits for the one who sets it up
def test_spans_of_the_second_sdk_line(tmp_path_factory: pytest.TempPathFactory) -> None:
    python = second_mcp(tmp_path_factory)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "adapters")])}
    command = [python, str(Path(__file__).with_name("mcp_second_line.py")), python, "-m", "mcp_server_time"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    found = {span["attributes"]["mcp.method.name"]: span for span in json.loads(done.stdout)}
    call = found["tools/call"]
    assert (call["run"], call["span_kind"], call["scope"]) == (True, "client", "mcp-python-sdk")
    assert call["name"].endswith("tools/call convert_time")
