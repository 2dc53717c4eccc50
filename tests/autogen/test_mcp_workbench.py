"""Tools of an MCP server under AutoGen (``McpWorkbench``): recorded as the agent saw them, replayed with no server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams

import rath_bridge as rb
from rath_autogen import wrap
from tests.autogen.scripted import asks
from tests.autogen.test_replay import agent

SERVER = """
import sys
from mcp.server.fastmcp import FastMCP

server = FastMCP("till")

@server.tool()
def pay(n: int) -> str:
    "Pay."
    open(sys.argv[1], "a").write(f"{n} ")
    return f"paid {n}"

server.run()
"""


async def test_a_servers_tools_are_served_and_no_server_is_started(tmp_path: Path) -> None:
    store = rb.open_store("memory:")
    script, ledger = tmp_path / "server.py", tmp_path / "ledger"
    script.write_text(SERVER)

    def program(live: bool) -> Any:
        async def run() -> Any:
            server = StdioServerParams(command=sys.executable if live else "/nowhere", args=[str(script), str(ledger)])
            answers = [asks("pay", '{"n": 3}'), "done"]
            async with McpWorkbench(server) as bench:
                payer = agent("a", live, *answers, workbench=[bench], reflect_on_tool_use=True, handoffs=["b"])
                return await wrap(payer, store, "ticket").run(task="go")

        return run

    recorded = await program(True)()
    assert recorded.messages[2].content[0].content == "paid 3"
    report = await rb.areplay(store.session("ticket"), program(False))
    assert (report.equal, report.served, report.unused) == (True, 3, ()), str(report)
    assert ledger.read_text() == "3 "
