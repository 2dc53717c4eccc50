"""The style in which a terminal shows a chunk."""

from __future__ import annotations

from typing import Final

from rath_bridge.model.chunk import Chunk

STYLED: Final = frozenset({
    "message", "inference", "tool_call", "tool_result", "session", "merge", "run", "handoff", "route", "note", "approval", "error",
    "gap", "redaction",
})  # fmt: skip


def style_of(chunk: Chunk) -> str:
    """Return the theme's style for a chunk's kind."""
    return f"kind.{chunk.kind}" if chunk.kind in STYLED else "kind.other"
