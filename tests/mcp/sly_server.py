"""A stdio server whose answers the SDKs refuse, or wait for in vain: the tool that is called says how."""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def out(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS = [
    {"name": "bare", "inputSchema": {"type": "object"}},
    {"name": "typed", "inputSchema": {"type": "object"}, "outputSchema": SCHEMA},
    {"name": "steps", "inputSchema": {"type": "object"}},
]

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "initialize":
        info = {"name": "sly", "version": "0"}
        out({**reply, "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}})
    elif message["method"] == "tools/list":
        out({**reply, "result": {"tools": TOOLS}})
    elif message["params"]["name"] == "bare":
        out({**reply, "result": {"structuredContent": {"n": 1}}})
    elif message["params"]["name"] == "typed":
        out({**reply, "result": {"content": [{"type": "text", "text": "the database is down"}]}})
    else:
        token = message["params"]["_meta"]["progressToken"]
        for step in range(2):  # and no more: SDK 1.30 breaks when a server speaks while its session is being closed
            params = {"progressToken": token, "progress": step}
            out({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
            time.sleep(0.1)
