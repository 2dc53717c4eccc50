"""Codex rollouts: JSON lines of ``session_meta``, ``turn_context``, ``response_item`` and ``event_msg`` records, in and home again.

Source: rollout files of the Codex CLI. A ``response_item`` is an OpenAI Responses item, and so a message; all else is a ``note``: events
tell what the items tell already, or what is shown to a person only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from rath_bridge.errors import UnsupportedError
from rath_bridge.interchange import openai_responses, shapes
from rath_bridge.interchange.natives import lines, record
from rath_bridge.interchange.recorded import home
from rath_bridge.model.chunk import Draft, draft
from rath_bridge.model.kinds import Message, Note
from rath_bridge.model.parts import ToolCallPart, ToolCallResponsePart
from rath_bridge.model.report import LossReport
from rath_bridge.session import Session

name: Final = "codex"
VERSION: Final = "1"
_ORIGIN: Final = {"adapter": "rath_bridge.interchange", "framework": name, "version": VERSION}
_PLACE: Final = "Codex rollout"
_TYPES: Final = ("session_meta", "turn_context", "response_item", "event_msg", "compacted")


def recognises(obj: Any, /) -> bool:
    """Tell a rollout by its records' types."""
    if not isinstance(obj, list) or not obj:
        return False
    if not all(isinstance(one, Mapping) for one in cast("list[Any]", obj)):
        return False
    entries = cast("list[Mapping[str, Any]]", obj)
    return all("payload" in one and isinstance(one.get("type"), str) for one in entries) and entries[0].get("type") in _TYPES


def documents(obj: Any) -> Iterable[tuple[str | None, Any]]:
    """A rollout is one session, named by the id of its ``session_meta``."""
    for one in cast("list[Any]", obj) if recognises(obj) else []:
        payload = one["payload"]
        if one["type"] == "session_meta" and isinstance(payload, Mapping):
            found = cast("Mapping[str, Any]", payload).get("id")
            return [(found if isinstance(found, str) and found else None, obj)]
    return [(None, obj)]


def decode(obj: Any, /) -> Sequence[Draft]:
    """Translate a rollout's records.

    Raises:
        DecodeError: A record is not what it should be; the error names the path.
    """
    drafts: list[Draft] = []
    for number, one in enumerate(shapes.rows(obj, _PLACE, "")):
        path = f"[{number}]"
        found = shapes.table(one, _PLACE, path)
        kind = shapes.text(found.get("type"), _PLACE, f"{path}.type")
        body: Any
        if kind == "response_item":
            body = _item(shapes.table(found.get("payload"), _PLACE, f"{path}.payload"), f"{path}.payload")
        else:
            payload: Any = found.get("payload")
            facts = dict(cast("Mapping[str, Any]", payload)) if isinstance(payload, Mapping) else {"payload": payload}
            body = Note(text=f"Codex {kind}", attributes=facts)
        native = record(name, VERSION, "record", one, _PLACE)
        drafts.append(draft(body, origin=_ORIGIN, at=shapes.moment(found.get("timestamp")), native=native))
    return drafts


def _item(payload: Mapping[str, Any], path: str) -> Message:
    """An item; the tool search, which the neutral form has as a call, too."""
    if payload.get("type") in ("tool_search_call", "tool_search_output"):
        call_id = shapes.text_or_none(payload.get("call_id"), _PLACE, f"{path}.call_id")
        if payload["type"] == "tool_search_call":
            return Message(role="assistant", parts=(ToolCallPart(call_id, "tool_search", payload.get("arguments")),))
        return Message(role="tool", parts=(ToolCallResponsePart(call_id, payload.get("tools")),))
    return openai_responses.message(payload, _PLACE, path)


def encode(session: Session, /) -> tuple[Any, LossReport]:
    """Give a rollout's records back, as far as the line goes.

    Raises:
        UnsupportedError: The session does not come from Codex: nobody else writes rollouts.
    """
    found = home(session, name)
    if found is None:
        raise UnsupportedError("codex takes back its own rollouts only: export this session as openai_responses or atif")
    return found


def dumps(native: Any, /) -> bytes:
    """One record a line."""
    return lines(native)
