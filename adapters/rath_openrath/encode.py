"""Sessions -> OpenRath: the records of a session file, a live ``rath.Session``, a row of a lineage export.

What came from OpenRath goes home as it was. Files are written so that OpenRath can load them again: the separators at which its loader
splits lines (U+2028 and its kin) are escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from rath_bridge.errors import UnsupportedError
from rath_bridge.interchange.conversation import Shape, Turn, answer_text, manifest, paired
from rath_bridge.interchange.natives import homes
from rath_bridge.interchange.openai_messages import translate
from rath_bridge.model.chunk import Chunk, format_time
from rath_bridge.model.digests import Digest
from rath_bridge.model.report import Loss, LossReport
from rath_bridge.session import Session
from rath_bridge.verbs.transcript import transcript
from rath_bridge.verbs.transcript import usage as usage_of
from rath_openrath.records import FRAMEWORK, SCHEMA, Record

FORMS: Final = ("records", "session", "lineage")
_KINDS: Final = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool_result"}
_BREAKS: Final = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def encode(session: Session, /, as_: str = "records") -> tuple[Any, LossReport]:
    """Translate a session; pure.

    Args:
        session: What to hand over.
        as_: ``records``: header, chunks and trailer, as a session file has them; ``session``: a live ``rath.Session`` (needs
            openrath); ``lineage``: rows of a lineage export.

    Raises:
        UnsupportedError: Another form was asked for.
        MissingExtraError: A live session, without openrath.
    """
    if as_ not in FORMS:
        raise UnsupportedError(f"openrath cannot encode a session as {as_!r}: use one of {', '.join(FORMS)}")
    chunks = list(session.chunks())
    out = _Out(session, chunks, homes(session, chunks, FRAMEWORK))
    rows = [out.home[chunk.id][1] for chunk in chunks if out.codec(chunk) == "lineage"]
    if rows and as_ != "session":
        return rows, _only_rows(out)
    if as_ == "lineage":
        return _lineage(out)
    if as_ == "records":
        return out.records()
    from rath_openrath.live import build

    records, report = out.records()
    return build(records), report


def dumps(native: Any, /) -> bytes:
    """One record a line, as OpenRath writes them, with its loader's line breaks escaped."""
    return "".join(f"{_line(record)}\n" for record in native).encode()


def _line(record: Any) -> str:
    return _BREAKS.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(record, ensure_ascii=False))


@dataclass(frozen=True, slots=True)
class _Out:
    """A line on its way out."""

    session: Session
    chunks: Sequence[Chunk]
    home: Mapping[Digest, tuple[str, Any]]

    def codec(self, chunk: Chunk) -> str:
        return self.home.get(chunk.id, ("", None))[0]

    def records(self) -> tuple[list[Record], LossReport]:
        """Header, rows and trailer; abandoned attempts stay where they stood."""
        losses: list[Loss] = []
        turns = self._turns(losses)
        rows = [turn.item for turn in turns]
        native = all(row["native"] for row in rows)
        body = [row["record"] if native else {**row["record"], "index": index} for index, row in enumerate(rows)]
        first = next((chunk.position for chunk in self.chunks if self.codec(chunk) == "row"), len(self.chunks))
        before: list[Record] = []
        behind: list[Record] = []
        trailer: Record | None = None
        has_header = False
        for chunk in self.chunks:
            codec = self.codec(chunk)
            if codec in ("abandoned", "header"):
                has_header |= codec == "header"
                (before if chunk.position < first else behind).append(self.home[chunk.id][1])
            elif codec == "trailer":
                trailer = self.home[chunk.id][1]
        if not has_header:
            before.append(self._header())
        if not has_header or trailer is not None:
            whole = native and len(rows) == sum(self.codec(chunk) == "row" for chunk in self.chunks)
            behind.insert(0, trailer if whole and trailer is not None else self._trailer(len(body)))
        compared = [Turn(turn.chunk, [turn.item["record"]["kind"], turn.item["record"]["payload"]]) for turn in turns]
        return [*before, *body, *behind], LossReport(tuple(losses), manifest(compared))

    def _turns(self, losses: list[Loss]) -> list[Turn]:
        turns: list[Turn] = []
        for one in transcript(self.chunks):
            if self.codec(one.chunk) == "row":
                turns.append(_home(one.id, self.home[one.id][1]))
                continue
            said = translate(one, losses)
            turns += [Turn(turn.chunk, _row(turn, one.chunk, losses), turn.asks, turn.answers) for turn in said]
        return _named(paired(self._with_notes(turns), self.chunks, losses, _SHAPE))

    def _with_notes(self, turns: list[Turn]) -> list[Turn]:
        """Put rows of unknown kinds back between the messages that they stood between."""
        notes = [chunk for chunk in self.chunks if chunk.kind == "note" and self.codec(chunk) == "row"]
        if not notes:
            return turns
        place = {chunk.id: chunk.position for chunk in self.chunks}
        found = list(turns)
        for note in notes:
            at = next((n for n, turn in enumerate(found) if place[turn.chunk] > note.position), len(found))
            found.insert(at, _home(note.id, self.home[note.id][1]))
        return found

    def _header(self) -> Record:
        """A header for what OpenRath has never seen: an id that follows from the head, and where it comes from."""
        return {
            "record_type": "header",
            "schema_version": SCHEMA,
            "id": str(UUID(self.session.head[:32])),
            "created_at": format_time(self.chunks[0].at),
            "parent_session_ids": [],
            "lineage_operator": "rath_bridge.export",
            "lineage_kind": "unknown",
            "lineage_extras": [["rath_bridge", {"session": self.session.name, "head": self.session.head}]],
            "sandbox_backend": None,
            "sandbox_spec": None,
            "sandbox_handle_id": None,
        }

    def _trailer(self, count: int) -> Record:
        total = usage_of(self.chunks)
        usage = None
        if total.total_tokens:
            prompt, completion = total.input_tokens or 0, total.output_tokens or 0
            usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        closed = format_time(self.chunks[-1].at)
        return {"record_type": "trailer", "closed_at": closed, "final_chunk_count": count, "cumulative_usage": usage}


def _lineage(out: _Out) -> tuple[list[Record], LossReport]:
    """One row for the session: all that a lineage export can tell of it."""
    records, report = out.records()
    header = next(one for one in records if one["record_type"] == "header")
    trailer: Record = next((one for one in records if one["record_type"] == "trailer"), Record())
    names = ("id", "parent_session_ids", "lineage_operator", "lineage_kind", "lineage_extras")
    row = {name: header.get(name) for name in names}
    row["chunk_count"] = sum(one["record_type"] == "chunk" for one in records)
    row["cumulative_usage"] = trailer.get("cumulative_usage")
    losses = [Loss(entry.chunk, "parts", "a lineage row counts chunks and holds none") for entry in report.manifest]
    named = {entry.chunk for entry in report.manifest}
    return [row], LossReport((*losses, *(loss for loss in report.losses if loss.chunk not in named)), ())


def _only_rows(out: _Out) -> LossReport:
    """The report of a lineage export that goes home: messages that came later have no place in it."""
    messages = transcript(out.chunks)
    return LossReport(tuple(Loss(one.id, "parts", "a lineage export holds no messages: left out") for one in messages))


# ------------------------------------------------------------------ rows


def _home(chunk: Digest, record: Any) -> Turn:
    payload = record["payload"]
    calls: list[Any] = [call.get("id") for call in payload.get("tool_calls") or ()] if record["kind"] == "assistant" else []
    answers = payload.get("tool_call_id") if record["kind"] == "tool_result" else None
    item = {"record": record, "native": True}
    return Turn(chunk, item, tuple(call for call in calls if isinstance(call, str)), answers)


def _row(turn: Turn, chunk: Chunk, losses: list[Loss]) -> Any:
    """Return a chat message as a chunk record."""
    payload = {name: value for name, value in turn.item.items() if name != "role"}
    role = turn.item["role"]
    if role == "developer":
        losses.append(Loss(chunk.id, "role", "the role 'developer' is handed over as 'system'"))
    if role == "assistant":
        payload.setdefault("tool_calls", None)
    return {"record": {"record_type": "chunk", "index": 0, "kind": _KINDS[role], "payload": payload}, "native": False}


def _named(turns: Sequence[Turn]) -> list[Turn]:
    """Give every answer the name of the tool: OpenRath keeps both."""
    names: dict[str, str] = {}
    found: list[Turn] = []
    for turn in turns:
        record = turn.item["record"]
        for call in record["payload"].get("tool_calls") or () if turn.asks else ():
            function: Record = call.get("function") or call.get("custom") or Record()
            names[str(call.get("id"))] = str(function.get("name", ""))
        if turn.answers is not None and "name" not in record["payload"]:
            payload = record["payload"]
            named = {"tool_call_id": payload["tool_call_id"], "name": names.get(turn.answers, ""), "content": payload["content"]}
            turn = Turn(turn.chunk, {**turn.item, "record": {**record, "payload": named}}, turn.asks, turn.answers)
        found.append(turn)
    return found


def _changed(item: Any, **payload: Any) -> Any:
    record = item["record"]
    return {"record": {**record, "payload": {**record["payload"], **payload}}, "native": False}


def _rename_call(item: Any, number: int, fresh: str) -> Any:
    calls = item["record"]["payload"]["tool_calls"]
    return _changed(item, tool_calls=[{**call, "id": fresh} if at == number else call for at, call in enumerate(calls)])


def _closing(call_id: str, _: Any, value: Any) -> Any:
    payload = {"tool_call_id": call_id, "content": answer_text(value)}
    return {"record": {"record_type": "chunk", "index": 0, "kind": "tool_result", "payload": payload}, "native": False}


_SHAPE: Final = Shape(_rename_call, lambda item, fresh: _changed(item, tool_call_id=fresh), _closing)
