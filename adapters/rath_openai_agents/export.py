"""Trace exports in and home again: what ``Trace.export()`` and ``Span.export()`` give, as exporters and files hold it.

A list, JSON lines, one object, or the batches ``{"data": [...]}`` that ``BackendSpanExporter`` posts. An export is thin (no call ids, no
text of a Responses call, an output as its ``str``): what is concluded is marked *inferred*, and nothing is lost, since each entry is
kept as it came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from rath_bridge.errors import DecodeError, UnsupportedError
from rath_bridge.interchange import shapes
from rath_bridge.interchange.natives import homes
from rath_bridge.model.chunk import Draft, SpanContext
from rath_bridge.model.kinds import Usage
from rath_bridge.model.report import LossReport
from rath_bridge.session import Session
from rath_openai_agents.conversation import Conversation
from rath_openai_agents.faults import error_text
from rath_openai_agents.items import FRAMEWORK, table

CODEC: Final = "trace"
TRACE: Final = "trace"
SPAN: Final = "trace.span"
_PLACE: Final = "OpenAI Agents trace export"
POSITION: Final = "position"
"""Attribute: where an entry stood in its file."""


def is_export(obj: Any) -> bool:
    """Tell an export by the ``object`` of its entries."""
    return any(table(one).get("object") in (TRACE, SPAN) for _, one in _found(obj))


def documents(obj: Any) -> list[tuple[str | None, Any]]:
    """Split an export into what becomes one session each: a group id's traces, or a trace without one.

    Raises:
        DecodeError: An entry names no trace.
    """
    if not is_export(obj):
        return [(None, obj)]
    groups: dict[str, str] = {}
    entries = list(_entries(obj))
    for one in entries:
        if one.kind == TRACE and isinstance(one.table.get("group_id"), str) and one.table["group_id"]:
            groups[one.trace_id] = one.table["group_id"]
    split: dict[str, list[Any]] = {}
    for one in entries:
        split.setdefault(groups.get(one.trace_id, one.trace_id), []).append(one.table)
    return [(next(iter(split)), obj)] if len(split) == 1 else list(split.items())


def decode_export(obj: Any) -> tuple[Draft, ...]:
    """Translate an export's traces, one after the other, each span where it stands in its trace's tree.

    Raises:
        DecodeError: An entry is damaged; the error names its place and field.
    """
    from rath_openai_agents.exported import Trace

    traces: dict[str, list[Entry]] = {}
    for one in _entries(obj):
        traces.setdefault(one.trace_id, []).append(one)
    return tuple(item for name, entries in traces.items() for item in Trace(name, entries).drafts())


def home(session: Session) -> tuple[list[Any], LossReport]:
    """Return the entries of a session's exports, in the order in which they came.

    Raises:
        UnsupportedError: It holds none.
    """
    chunks = list(session.chunks())
    natives = {name: value for name, (codec, value) in homes(session, chunks, FRAMEWORK).items() if codec == CODEC}
    if not natives:
        raise UnsupportedError(f"{session.name} does not come from a trace export of openai_agents: use as_='items'")
    found = [(cast("Mapping[str, Any]", cast(Any, one.body).attributes), one.id) for one in chunks if one.id in natives]
    found.sort(key=lambda pair: pair[0].get(POSITION, 0))  # stable: exports that came one after the other stay so
    return [natives[name] for _, name in found], LossReport()


# ------------------------------------------------------------------ entries


@dataclass(slots=True)
class Entry:
    """One exported trace or span, and how it is written up."""

    table: Mapping[str, Any]
    path: str
    position: int
    kind: str
    """``trace``, ``trace.span``, or what a later SDK may add."""
    trace_id: str
    id: str = ""
    parent: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    type: str = ""
    """Of its span data: ``task`` and ``turn`` are exported as ``custom``."""
    began: int | None = None
    ended: int | None = None
    # known once the tree is walked
    above: Entry | None = None
    below: list[Entry] = field(default_factory=list["Entry"])
    run: str = ""
    span: SpanContext | None = None
    talk: Conversation | None = None
    agent: str | None = None
    turn: int | None = None
    call_id: str | None = None
    used: Usage | None = None
    """Tokens of the model calls inside a turn."""
    held: int | None = None
    """Where a model call of this turn was written that told no usage."""
    owns: bool = False
    """``run`` is its own."""

    @property
    def seconds(self) -> float | None:
        return None if self.began is None or self.ended is None else (self.ended - self.began) / 1e6

    @property
    def error(self) -> str | None:
        found = self.table.get("error")
        return error_text(cast("Mapping[str, Any]", found)) if isinstance(found, Mapping) else None

    def marks(self, **more: Any) -> dict[str, Any]:
        found = {"span_id": self.id, "parent_id": self.parent, POSITION: self.position, **more}
        return {name: value for name, value in found.items() if value is not None}


def _found(obj: Any) -> Iterator[tuple[str, Any]]:
    """Yield the entries of an export with their paths; nothing is looked at yet."""
    whole: list[Any] = cast("list[Any]", obj) if isinstance(obj, list) else [obj]
    for at, one in enumerate(whole):
        path = f"[{at}]" if isinstance(obj, list) else ""
        batch = cast("Mapping[str, Any]", one).get("data") if isinstance(one, Mapping) and "object" not in one else None
        if isinstance(batch, list):
            for inner, entry in enumerate(cast("list[Any]", batch)):
                yield f"{path}.data[{inner}]".lstrip("."), entry
        else:
            yield path, one


def _entries(obj: Any) -> Iterator[Entry]:
    for position, (path, value) in enumerate(_found(obj)):
        yield _entry(shapes.table(value, _PLACE, path), path, position)


def _entry(found: Mapping[str, Any], path: str, position: int) -> Entry:
    def at(name: str) -> str:
        return f"{path}.{name}".lstrip(".")

    kind = shapes.text(found.get("object"), _PLACE, at("object"))
    if kind == TRACE:
        return Entry(found, path, position, kind, shapes.text(found.get("id"), _PLACE, at("id")))
    one = Entry(found, path, position, kind, shapes.text(found.get("trace_id"), _PLACE, at("trace_id")))
    if kind != SPAN:
        return one
    one.id = shapes.text(found.get("id"), _PLACE, at("id"))
    one.parent = shapes.text_or_none(found.get("parent_id"), _PLACE, at("parent_id"))
    one.data = shapes.table(found.get("span_data"), _PLACE, at("span_data"))
    one.type = shapes.text(one.data.get("type"), _PLACE, at("span_data.type"))
    inner = one.data.get("data")
    if one.type == "custom" and isinstance(inner, Mapping):
        kept = cast("Mapping[str, Any]", inner)
        if kept.get("sdk_span_type") in ("task", "turn"):
            one.type, one.data = str(kept["sdk_span_type"]), kept
    for name in ("name", "agent_name", "from_agent", "to_agent", "model", "response_id", "server"):
        shapes.text_or_none(one.data.get(name), _PLACE, at(f"span_data.{name}"))
    for name in ("input", "output") if one.type == "generation" else ():
        shapes.rows(one.data.get(name), _PLACE, at(f"span_data.{name}"))
    if found.get("error") is not None:
        shapes.table(found["error"], _PLACE, at("error"))
    one.began, one.ended = (_moment(found.get(name), at(name)) for name in ("started_at", "ended_at"))
    return one


def _moment(value: Any, path: str) -> int | None:
    found = shapes.moment(shapes.text_or_none(value, _PLACE, path))
    if value is not None and found is None:
        raise DecodeError(_PLACE, f"a time belongs here, not {value!r:.60}", path)
    return found


__all__ = ["CODEC", "POSITION", "SPAN", "TRACE", "Entry", "decode_export", "documents", "home", "is_export"]
