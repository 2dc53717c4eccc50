"""What is left of a body without its content."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from rath_bridge.model.kinds import Approval, Body, Inference, Message, Route, Run
from rath_bridge.model.parts import BlobPart, Part


def structure_only(body: Body) -> Body:
    """Return a body without content: names, ids, times and usage stay."""
    if isinstance(body, Message):
        return replace(body, parts=tuple(_without_content(part) for part in body.parts), attributes={})
    if isinstance(body, Run):
        counts = {name: value for name, value in body.attributes.items() if type(value) in (int, float, bool)}
        return replace(body, system_instructions=None, tools=(), attributes=counts, error=_error_name(body.error))
    content: dict[str, Any] = {
        "input": None, "output": () if isinstance(body, Inference) else None, "request": {}, "arguments": None, "result": None,
        "text": "", "message": "", "subject": None, "query": None, "items": (), "events": (), "envelope": None, "state": None,
        "lists": {}, "writes": (), "files": None, "spec": {}, "attributes": {},
    }  # fmt: skip
    held = {name: empty for name, empty in content.items() if hasattr(body, name)}
    if hasattr(body, "error"):
        held["error"] = _error_name(cast(Any, body).error)
    if isinstance(body, (Route, Approval)):
        held["reason"] = None
    return replace(body, **held)


def _error_name(error: str | None) -> str | None:
    """What kind of error it was, without its words."""
    if error is None:
        return None
    name = error.partition(":")[0]
    return name if name.replace(".", "").isidentifier() else "error"


def _without_content(part: Part) -> Part:
    nothing: dict[str, Any] = {"content": "", "arguments": None, "response": None, "uri": "", "extra": {}}
    if isinstance(part, BlobPart):
        nothing["content"] = b""
    return replace(part, **{name: empty for name, empty in nothing.items() if hasattr(part, name)})
