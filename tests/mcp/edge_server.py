"""A stdio server that does what servers should not: the tool that is called says what."""

from __future__ import annotations

import json
import os
import sys


def out(value: object) -> None:
    sys.stdout.write((value if isinstance(value, str) else json.dumps(value)) + "\n")
    sys.stdout.flush()


if sys.argv[1:] == ["banner"]:
    out("Welcome to the edge!")

late: dict[str, object] = {}
for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if number is None:
        continue
    if late:
        out(late)
        late = {}
    reply = {"jsonrpc": "2.0", "id": number}
    if method == "initialize":
        info = {"name": "edge", "version": "0"}
        out({**reply, "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}})
        continue
    if method == "tools/list":
        out({**reply, "result": {"tools": [], "futureList": [None]}})
        continue
    if method != "tools/call":
        out({**reply, "error": {"code": -32601, "message": "nope"}})
        continue
    tool = message["params"]["name"]
    if tool == "die":
        os._exit(3)
    if tool == "silent":
        continue
    if tool == "noise":
        out("debug: doing it")
    result: dict[str, object] = {"content": [{"type": "text", "text": f"{tool} done"}]}
    if tool == "unknown":
        result = {"content": [{"type": "text", "text": "t", "futureKey": None}], "futureField": {"k": [1, 2.0, 2**70]}}
    if tool == "hologram":
        result = {"content": [{"type": "hologram", "data": "z"}]}
    if tool == "text_id":
        reply["id"] = str(number)
    if tool == "wrong_id":
        reply["id"] = 9999
    if tool == "deep":
        value: object = 1
        for _ in range(180):
            value = [value]
        result["structuredContent"] = {"deep": value}
    if tool == "count":
        result["structuredContent"] = {"arguments": message["params"].get("arguments"), "id": number}
    if tool == "late":  # with the next request
        late = {**reply, "result": result}
        continue
    out({**reply, "result": result})
