"""A small MCP server over stdio, in the standard library alone: a shop's back office.

Its tools answer with text, structured content, an image, an error and progress; it has one resource and one prompt.
Give ``python examples/mcp_server.py`` to any MCP host as the server's command.
"""

from __future__ import annotations

import base64
import json
import struct
import sys
import zlib
from typing import Any

ORDERS = {"A-1": {"order": "A-1", "state": "shipped", "items": 3}, "B-2": {"order": "B-2", "state": "paid", "items": 1}}
ORDER_ID = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}
TOOLS = [
    {
        "name": "find_order",
        "description": "Look an order up by its number.",
        "inputSchema": ORDER_ID,
        "outputSchema": {
            "type": "object",
            "properties": {"order": {"type": "string"}, "state": {"type": "string"}, "items": {"type": "integer"}},
            "required": ["order", "state", "items"],
        },
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "greet",
        "description": "Greet a customer.",
        "inputSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    },
    {"name": "chart", "description": "Draw the month's sales: one pixel of them.", "inputSchema": {"type": "object"}},
    {
        "name": "export",
        "description": "Export orders, reporting progress.",
        "inputSchema": {"type": "object", "properties": {"steps": {"type": "integer"}}, "required": ["steps"]},
    },
    {"name": "refund", "description": "Refund an order; the bank always says no.", "inputSchema": ORDER_ID},
]


class ProtocolError(Exception):
    """Answered as a JSON-RPC error, not as a tool's result."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def send(message: dict[str, Any]) -> None:
    """Write one message as one line."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def pixel() -> str:
    """Return a PNG of one red pixel, in base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    data = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + chunk(b"IEND", b"")
    return base64.b64encode(data).decode()


def text(said: str, **fields: Any) -> dict[str, Any]:
    """Return a result of one text block."""
    return {"content": [{"type": "text", "text": said}], **fields}


def call(name: str, arguments: dict[str, Any], token: Any) -> dict[str, Any]:
    """Run a tool and return its result."""
    if name == "find_order":
        order = ORDERS.get(arguments["order"])
        if order is None:
            return text(f"no order {arguments['order']}", isError=True)
        return text(json.dumps(order), structuredContent=order, _meta={"shop.example/region": "north"})
    if name == "greet":
        return text(f"Good morning, {arguments['name']}!")
    if name == "chart":
        return {
            "content": [
                {"type": "image", "data": pixel(), "mimeType": "image/png"},
                {"type": "resource_link", "uri": "shop://orders", "name": "orders", "mimeType": "application/json"},
            ]
        }
    if name == "export":
        steps = arguments["steps"]
        for step in range(steps if token is not None else 0):
            told = {"progressToken": token, "progress": step + 1, "total": steps, "message": f"step {step + 1}"}
            send({"method": "notifications/progress", "params": told})
        return text(f"exported {steps} pages")
    if name == "refund":
        return text(f"the bank refused to refund {arguments['order']}", isError=True)
    raise ProtocolError(-32602, f"Unknown tool: {name}")


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a request."""
    if method == "initialize":
        return {
            "protocolVersion": params.get("protocolVersion", "2025-11-25"),
            "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
            "serverInfo": {"name": "shop", "version": "1.0"},
            "instructions": "Orders have numbers such as A-1.",
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return call(params["name"], params.get("arguments") or {}, params.get("_meta", {}).get("progressToken"))
    if method == "resources/list":
        return {"resources": [{"uri": "shop://orders", "name": "orders", "mimeType": "application/json"}]}
    if method == "resources/read" and params["uri"] == "shop://orders":
        return {"contents": [{"uri": "shop://orders", "mimeType": "application/json", "text": json.dumps(sorted(ORDERS))}]}
    if method == "prompts/list":
        return {"prompts": [{"name": "complaint", "arguments": [{"name": "order", "required": True}]}]}
    if method == "prompts/get":
        said = f"Write to the customer about order {params['arguments']['order']}."
        return {"messages": [{"role": "user", "content": {"type": "text", "text": said}}]}
    if method == "ping":
        return {}
    raise ProtocolError(-32601, f"Method not found: {method}")


def main() -> None:
    """Answer until standard input ends."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        try:
            send({"id": message["id"], "result": answer(message["method"], message.get("params") or {})})
        except ProtocolError as error:
            send({"id": message["id"], "error": {"code": error.code, "message": str(error)}})
        except KeyError as error:
            send({"id": message["id"], "error": {"code": -32602, "message": f"Invalid params: {error} is missing"}})


if __name__ == "__main__":
    main()
