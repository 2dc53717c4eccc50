"""The quickstart's configuration is what it says: one line differs, and with it everything is on record."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client

import rath_bridge as rb
from tests.mcp.servers import CLI, ROOT, TIME, tool_calls

PAGE = ROOT / "docs" / "quickstart-mcp.md"


def configurations() -> tuple[str, str]:
    plain, recorded = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return plain, recorded


def test_one_line_is_changed() -> None:
    plain, recorded = (text.splitlines() for text in configurations())
    assert len(plain) == len(recorded)
    assert sum(one != other for one, other in zip(plain, recorded, strict=True)) == 1


async def test_the_changed_line_records_what_the_other_one_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATH_BRIDGE_SPOOL", str(tmp_path / "spool"))
    plain, recorded = (json.loads(text)["mcpServers"]["time"] for text in configurations())
    real = [sys.executable, *TIME]
    assert [recorded["command"], *recorded["args"]][-2:] == [plain["command"], *plain["args"]]
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    args = ["-c", CLI, *recorded["args"][:-2], *real]
    args[args.index("--store") + 1] = url
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "adapters")])}
    assert recorded["command"] == "rath-bridge"
    server = StdioServerParameters(command=sys.executable, args=args, env=env)
    async with stdio_client(server) as streams, ClientSession(*streams) as client:
        await client.initialize()
        await client.call_tool("get_current_time", {"timezone": "UTC"})
    with rb.open_store(url) as store:
        assert [call.name for call in tool_calls(store.session("desk"))] == ["get_current_time"]
