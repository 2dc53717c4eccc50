"""Issue 8014: AutoGen's MCP tools do not import with MCP SDK 2.x. What was recorded with them is replayed, and goes on, beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams

import rath_autogen
import rath_bridge as rb
from rath_autogen import wrap
from rath_bridge.cli.versions import satisfies
from tests.autogen.scripted import asks
from tests.autogen.test_mcp_workbench import SERVER
from tests.autogen.test_replay import agent
from tests.environments import PYTHON, made

ROOT = Path(__file__).parents[2]
NEEDS = (
    "mcp>=2.3,<3", "autogen-agentchat>=0.7,<0.8", "autogen-ext[openai]>=0.7,<0.8", "cryptography", "orjson", "rich", "tenacity", "typer",
    "zstandard",
)  # fmt: skip


async def recorded(tmp_path: Path) -> str:
    url, script, ledger = f"sqlite:///{tmp_path / 'runs.db'}", tmp_path / "server.py", tmp_path / "ledger"
    script.write_text(SERVER)
    with rb.open_store(url) as store:
        async with McpWorkbench(StdioServerParams(command=sys.executable, args=[str(script), str(ledger)])) as bench:
            answers: list[Any] = [asks("pay", '{"n": 3}'), "done"]
            payer = agent("a", True, *answers, workbench=[bench], reflect_on_tool_use=True, handoffs=["b"])
            await wrap(payer, store, "ticket").run(task="go")
    return url


def used(python: str, url: str) -> dict[str, Any]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "adapters")])}
    command = [python, str(Path(__file__).with_name("second_line.py")), url]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


async def test_8014_a_record_of_mcp_tools_needs_no_mcp_to_be_replayed_and_continued(tmp_path: Path) -> None:
    found = used(sys.executable, await recorded(tmp_path))
    assert found["replayed"][-1] == "done"
    assert (found["unused"], found["goes on"], found["pending"]) == (0, "goes on", 0)
    assert (tmp_path / "ledger").read_text() == "3 "


@pytest.mark.timeout(900)  # who comes second waits for the one who sets it up
async def test_8014_beside_the_second_sdk_line(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    commands = ([sys.executable, "-m", "venv", "PLACE/env"], [PYTHON, "-m", "pip", "install", "-q", *NEEDS])
    place = made("autogen-mcp-2", tmp_path_factory, "RATH_AUTOGEN_MCP_2X", *commands)
    found = used(str(place / "env" / "bin" / "python"), await recorded(tmp_path))
    assert found.pop("mcp").startswith("2.")
    assert "import" in found  # the pain itself: AutoGen's own MCP tools cannot be imported there
    assert found["replayed"][-1] == "done"
    assert (found["unused"], found["goes on"], found["pending"]) == (0, "goes on", 0)
    assert (tmp_path / "ledger").read_text() == "3 "


def test_8014_the_doctor_is_told_and_our_extra_brings_no_mcp() -> None:
    specifier, advice = rath_autogen.BESIDE["mcp"]
    assert satisfies("1.30.0", specifier)
    assert not satisfies("2.3.0", specifier)
    assert 'pip install "mcp<2"' in advice
    ours = [one for one in metadata.requires("rath-bridge") or () if one.endswith("extra == 'autogen'")]
    assert ours
    assert not any("mcp" in one for one in ours)
