"""A stdio server that uses all that a server may say and ask (SDK 1.x): media, links, logs, progress, sampling, roots, changed lists."""

from __future__ import annotations

from mcp.server.fastmcp import Context, FastMCP
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    SamplingMessage,
    TextContent,
)
from pydantic import AnyUrl

server = FastMCP("talks", log_level="ERROR")
ONE = "iVBORw0KGgo="


@server.tool()
def media() -> list[ImageContent | AudioContent | EmbeddedResource | ResourceLink]:
    uri = AnyUrl("talks://file")
    blob = BlobResourceContents(uri=uri, blob=ONE, mimeType="application/zip")
    return [
        ImageContent(type="image", data=ONE, mimeType="image/png"), AudioContent(type="audio", data="UklGRg==", mimeType="audio/wav"),
        EmbeddedResource(type="resource", resource=blob), ResourceLink(type="resource_link", uri=uri, name="file"),
    ]  # fmt: skip


@server.tool()
async def work(ctx: Context) -> str:  # type: ignore[type-arg]
    await ctx.report_progress(1, 2, "half")
    await ctx.info("nearly there")
    await ctx.session.send_tool_list_changed()
    return "done"


@server.tool()
async def think(ctx: Context) -> str:  # type: ignore[type-arg]
    asked = SamplingMessage(role="user", content=TextContent(type="text", text="Say a word"))
    said = await ctx.session.create_message([asked], max_tokens=9)
    return f"{said.model} said {said.content.text}"  # type: ignore[union-attr]


@server.tool()
async def look(ctx: Context) -> str:  # type: ignore[type-arg]
    return ", ".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)


@server.resource("talks://file")
def file() -> bytes:
    return b"\x89PNG"


server.run("stdio")
