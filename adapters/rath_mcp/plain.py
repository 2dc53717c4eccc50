"""Chunks in plain JSON, for readers that are no programs of ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from rath_bridge.errors import EncodeError, ErasedError, MissingObjectError
from rath_bridge.model.chunk import Chunk, format_time
from rath_bridge.model.encoding import escape
from rath_bridge.session import Session
from rath_mcp.frames import mapping

CUT: Final = 4_000
"""Characters of a text that a listing shows."""


def shown(chunk: Chunk, session: Session | None, *, whole: bool = False) -> dict[str, Any]:
    """Return a chunk as the server shows it.

    Args:
        chunk: What to show.
        session: In whose line it stands, where that is to be told.
        whole: Long texts in full.
    """
    found: dict[str, Any] = {"id": chunk.id, "position": chunk.position, "kind": chunk.kind, "at": format_time(chunk.at)}
    if session is not None:
        found["session"] = session.name
    if chunk.run is not None:
        found["run"] = chunk.run
    try:
        body = _plain(chunk.values)
    except (ErasedError, MissingObjectError):
        return {**found, "erased": True}
    short = body if whole else _cut(body)
    return {**found, "body": short} | ({"shortened": True} if short != body else {})


def _plain(value: Any) -> Any:
    """Return a body's values in JSON: long texts as they are, what JSON has no word for tagged as in the format."""
    if isinstance(value, Mapping):
        given = mapping(value)
        return {str(key): _plain(item) for key, item in given.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("list[Any]", value)]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, bytes):
        return {"$rath": "bytes", "size": len(value)}
    try:
        return escape(value, {})
    except EncodeError:
        return str(value)


def _cut(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _cut(item) for key, item in mapping(value).items()}
    if isinstance(value, list):
        return [_cut(item) for item in cast("list[Any]", value)]
    return f"{value[:CUT]} … ({len(value)} characters)" if isinstance(value, str) and len(value) > CUT else value


def words(chunk: Chunk) -> str:
    """Return all that a chunk says, to be searched; nothing where it was erased."""
    try:
        return json.dumps(_plain(chunk.values), ensure_ascii=False)
    except (ErasedError, MissingObjectError):
        return ""
