"""OpenRath's records as JSON values: the two kinds of JSON lines, and a live session in the shape of the first.

Sources: ``rath.session.persistence`` (header, chunk and trailer records; `SessionWriter` writes them) and ``rath.session.graph.export``
(one row for each session, without its chunks). Both are the same in openrath 1.3 and 2.0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

FRAMEWORK: Final = "openrath"
SCHEMA: Final = 1
KINDS: Final = {"system": "system", "user": "user", "assistant": "assistant", "tool_result": "tool"}
"""Chunk kind to role."""
RECORDS: Final = ("header", "chunk", "trailer")
_ROW: Final = frozenset({"id", "parent_session_ids", "lineage_operator", "lineage_kind", "chunk_count"})

Record = dict[str, Any]


def is_live(obj: Any) -> bool:
    """Tell a ``rath.Session``; imports nothing."""
    return type(obj).__module__ == "rath.session.session" and type(obj).__name__ == "Session"


def are_records(obj: Any) -> bool:
    """Tell the records of a session file."""
    if not isinstance(obj, list) or not obj:
        return False
    return all(
        isinstance(one, Mapping) and cast("Mapping[str, Any]", one).get("record_type") in RECORDS
        for one in cast("list[Any]", obj)
    )


def are_rows(obj: Any) -> bool:
    """Tell the rows of a lineage export."""
    if not isinstance(obj, list) or not obj:
        return False
    return all(isinstance(one, Mapping) and cast("Mapping[str, Any]", one).keys() >= _ROW for one in cast("list[Any]", obj))


def live_records(session: Any) -> list[Record]:
    """Return a live session as the records that ``SessionWriter`` would write; waits for work that is pending.

    Two things are kept that the file drops: the details of token usage, and the producers of a loop's output (``lineage``). Providers
    and open sandboxes are live resources and stay out.
    """
    rows = session.chunk_table.rows
    header: Record = {
        "record_type": "header",
        "schema_version": SCHEMA,
        "id": str(session.id),
        "created_at": None,
        "parent_session_ids": [str(parent) for parent in session.parent_session_ids],
        "lineage_operator": session.lineage_operator,
        "lineage_kind": str(getattr(session.lineage_kind, "value", session.lineage_kind)),
        "lineage_extras": [[str(key), _jsonable(value)] for key, value in session.lineage_extras],
        "sandbox_backend": session.sandbox_backend,
        "sandbox_spec": _spec(getattr(session, "_sandbox_open_spec", None)),
        "sandbox_handle_id": None,
    }
    if session.lineage is not None:
        header["lineage"] = {
            "producer_user_session_id": str(session.lineage.producer_user_session_id),
            "producer_system_session_id": str(session.lineage.producer_system_session_id),
            "operator": session.lineage.operator,
        }
    chunks = [
        {"record_type": "chunk", "index": index, "kind": str(getattr(row.kind, "value", row.kind)), "payload": row.payload}
        for index, row in enumerate(rows)
    ]
    trailer: Record = {
        "record_type": "trailer",
        "closed_at": None,
        "final_chunk_count": len(rows),
        "cumulative_usage": _usage(session.cumulative_usage),
    }
    return [header, *chunks, trailer]


def _usage(usage: Any) -> Record | None:
    if usage is None:
        return None
    found: Record = {name: getattr(usage, name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
    for name in ("completion_tokens_details", "prompt_tokens_details"):
        details = getattr(usage, name, None)
        if details is not None:
            found[name] = dict(details)
    return found


def _spec(spec: Any) -> Record | None:
    if spec is None:
        return None
    return {
        "image": spec.image,
        "entrypoint": None if spec.entrypoint is None else list(spec.entrypoint),
        "env": None if spec.env is None else dict(spec.env),
        "timeout_seconds": None if spec.timeout is None else spec.timeout.total_seconds(),
        "working_dir": spec.working_dir,
    }


def _jsonable(value: Any) -> Any:
    """As OpenRath's own export has it: what JSON cannot hold becomes its text."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return str(value)
    return value


def attempts(records: Sequence[Any]) -> tuple[int, int]:
    """Return which records are the session: a writer that came back after a crash began again behind what was there.

    Returns:
        Number of its first and behind its last record. It is the last stretch with chunks; what stands before it was abandoned.
    """
    starts = [number for number, one in enumerate(records) if one.get("record_type") == "header"]
    if not starts or starts[0]:
        starts.insert(0, 0)
    ends = [*starts[1:], len(records)]
    for start, end in zip(reversed(starts), reversed(ends), strict=True):
        if any(one.get("record_type") == "chunk" for one in records[start:end]):
            return start, end
    return starts[-1], len(records)
