"""Records -> a live ``rath.Session``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from rath_bridge.plugins import require
from rath_openrath.records import Record, attempts


def build(records: Sequence[Record]) -> Any:
    """Build the session that a file's records tell of, with what OpenRath's own loader drops: id, parents, kind and usage.

    Raises:
        MissingExtraError: openrath is not installed.
    """
    rath: Any = require("rath.session", "a live OpenRath session", "openrath")
    chunks: Any = require("rath.session.chunk", "a live OpenRath session", "openrath")
    graph: Any = require("rath.session.graph", "a live OpenRath session", "openrath")
    header: Record = next((one for one in reversed(records) if one["record_type"] == "header"), Record())
    trailer: Record = next((one for one in reversed(records) if one["record_type"] == "trailer"), Record())
    start, end = attempts(records)
    live = [one for one in records[start:end] if one["record_type"] == "chunk"]
    kinds = {kind.value: kind for kind in chunks.ChunkKind}
    rows = tuple(chunks.ChunkRow(kind=kinds[one["kind"]], payload=one["payload"]) for one in live if one["kind"] in kinds)
    known = {kind.value: kind for kind in graph.LineageKind}
    return rath.Session(
        chunks.ChunkTable(rows=rows),
        id=UUID(header["id"]),
        sandbox_backend=header.get("sandbox_backend"),
        _sandbox_open_spec=_spec(header.get("sandbox_spec")),
        lineage=_lineage(header.get("lineage")),
        parent_session_ids=tuple(UUID(parent) for parent in header.get("parent_session_ids") or ()),
        lineage_operator=header.get("lineage_operator") or "implicit",
        lineage_kind=known.get(str(header.get("lineage_kind")), graph.LineageKind.UNKNOWN),
        lineage_extras=tuple((str(key), value) for key, value in header.get("lineage_extras") or ()),
        cumulative_usage=_usage(trailer.get("cumulative_usage")),
    )


def _spec(found: Record | None) -> Any:
    if found is None:
        return None
    backend: Any = require("rath.backend", "a sandbox of OpenRath", "openrath")
    seconds, entrypoint = found.get("timeout_seconds"), found.get("entrypoint")
    return backend.BackendSandboxSpec(
        image=found.get("image"),
        entrypoint=None if entrypoint is None else tuple(entrypoint),
        env=found.get("env"),
        timeout=None if seconds is None else timedelta(seconds=seconds),
        working_dir=found.get("working_dir"),
    )


def _lineage(found: Record | None) -> Any:
    if found is None:
        return None
    legacy: Any = require("rath.session.graph.legacy", "a live OpenRath session", "openrath")
    return legacy.SessionLineage(
        producer_user_session_id=UUID(found["producer_user_session_id"]),
        producer_system_session_id=UUID(found["producer_system_session_id"]),
        operator=found["operator"],
    )


def _usage(found: Record | None) -> Any:
    if found is None:
        return None
    llm: Any = require("rath.llm.chat_response", "a live OpenRath session", "openrath")
    names = ("prompt_tokens", "completion_tokens", "total_tokens", "completion_tokens_details", "prompt_tokens_details")
    return llm.RathLLMTokenUsage(**{name: found[name] for name in names if name in found})
