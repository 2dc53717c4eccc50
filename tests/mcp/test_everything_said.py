"""All that a server may say and ask, live: the same through the proxy as without it, on record, and the same again from the record."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client, types
from pydantic import AnyUrl, FileUrl

import rath_bridge as rb
from tests.mcp.servers import CLI, ROOT, bodies, notes, tool_calls

SERVER = [sys.executable, str(Path(__file__).parent / "talking_server.py")]


async def drive(command: list[str]) -> list[Any]:
    """What a host got, and what it was told and asked."""
    told: list[Any] = []

    async def sampling(context: object, params: Any) -> types.CreateMessageResult:
        told.append(("sampling", params.messages[0].content.text, params.maxTokens))
        return types.CreateMessageResult(role="assistant", content=types.TextContent(type="text", text="word"), model="m")

    async def roots(context: object) -> types.ListRootsResult:
        told.append("roots")
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl("file:///srv/ida"))])

    async def logging(params: types.LoggingMessageNotificationParams) -> None:
        told.append(("log", params.level, params.data))

    async def anything(message: Any) -> None:
        if isinstance(getattr(message, "root", None), types.ToolListChangedNotification):
            told.append("changed")

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        told.append(("progress", progress, total, message))

    server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    async with stdio_client(server) as streams:
        options: dict[str, Any] = {
            "sampling_callback": sampling, "list_roots_callback": roots, "logging_callback": logging, "message_handler": anything,
        }  # fmt: skip
        async with ClientSession(*streams, **options) as client:
            found: list[Any] = [await client.initialize(), await client.list_tools()]
            found += [await client.call_tool(name, {}) for name in ("media", "think", "look")]
            found.append(await client.call_tool("work", {}, progress_callback=progress))
            found += [await client.read_resource(AnyUrl("talks://file")), await client.send_ping()]
    return [*(one.model_dump(mode="json") for one in found), sorted(map(repr, told))]


async def test_it_is_the_same_through_the_proxy_and_from_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATH_BRIDGE_SPOOL", str(tmp_path / "spool"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "adapters")]))
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    verbs = [sys.executable, "-c", CLI, "--store", url, "mcp"]
    direct = await drive(SERVER)
    assert len(direct[-1]) == 5
    assert await drive([*verbs, "record", "--session", "s", "--", *SERVER]) == direct
    with rb.open_store(url) as store:
        session = store.session("s")
        assert [(call.name, call.status) for call in session.calls()] == [
            ("media", "ok"), ("think", "ok"), ("sampling/createMessage", "ok"), ("look", "ok"), ("roots/list", "ok"), ("work", "ok"),
            ("resources/read", "ok"),
        ]  # fmt: skip
        results = {result.name: result for result in bodies(session, "tool_result")}
        image, audio, file, link = results["media"].result["content"]
        assert (image["modality"], image["content"][:4]) == ("image", b"\x89PNG")
        assert (audio["modality"], audio["content"]) == ("audio", b"RIFF")
        assert file["resource"]["blob"][:4] == b"\x89PNG"
        assert (link["type"], link["uri"]) == ("uri", "talks://file")
        assert results["sampling/createMessage"].result["model"] == "m"
        assert results["roots/list"].result["roots"] == [{"uri": "file:///srv/ida"}]
        assert results["work"].attributes["rath.mcp.progress"][0]["message"] == "half"
        assert {"notifications/message", "notifications/tools/list_changed"} <= set(notes(session))
        asked = [body.name for body in bodies(session, "tool_call") if body.type == "mcp.server_request"]
        assert asked == ["sampling/createMessage", "roots/list"]
        assert [body.name for body in tool_calls(session)] == ["media", "think", "look", "work"]
        begin, end = bodies(session, "run")
        assert begin.attributes["rath.mcp.capabilities"]["tools"] == {"listChanged": False}
        assert (begin.name, begin.attributes["mcp.protocol.version"], len(end.tools)) == ("talks", "2025-11-25", 4)
        assert session.fsck() == []
    assert await drive([*verbs, "replay", "s"]) == direct
