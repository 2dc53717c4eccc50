"""Chunks -> wire JSON: the frames of a session's connections, or its tool calls as pairs of request and result. Pure.

What came from the wire goes home exactly, from the native records. Calls that other frameworks recorded are told as MCP would
have told them; what MCP has no word for is named in the report.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from rath_bridge.errors import ErasedError, UnsupportedError
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import digest
from rath_bridge.model.kinds import ToolCall, ToolResult
from rath_bridge.model.report import Loss, LossReport, ManifestEntry
from rath_bridge.session import Session
from rath_bridge.verbs.transcript import calls
from rath_mcp.content import holds, wire_result
from rath_mcp.decode import PAIR
from rath_mcp.frames import CODEC, Numbered, dumps, from_native, mapping, shape

FORMS: Final = ("results", "frames")
_CALLS: Final = ("tool_call", "tool_result")


def encode(session: Session, as_: str = "results") -> tuple[list[dict[str, Any]], LossReport]:
    """Translate a session into wire JSON.

    Args:
        session: What to hand over. Its messages, model calls and states are not MCP's business and are named as left out.
        as_: ``results``: ``{"request": {...}, "result": {...}}`` (or ``"error"``) for each answered call, in the order of the
            calls. ``frames``: every frame as it crossed the wire, connection by connection (with a key ``connection`` where there
            are several).

    Returns:
        A list of JSON objects, and the report.

    Raises:
        UnsupportedError: Another form was asked for.
    """
    chunks = list(session.chunks())
    if as_ == "frames":
        return _frames(chunks)
    if as_ == "results":
        return _results(chunks)
    raise UnsupportedError(f"rath_mcp.encode cannot write {as_!r}: use as_='results' or as_='frames'")


def _frames(chunks: Sequence[Chunk]) -> tuple[list[dict[str, Any]], LossReport]:
    tapes: dict[str, dict[int, tuple[Chunk, Numbered]]] = {}
    losses: list[Loss] = []
    for chunk in chunks:
        held = kept(chunk)
        if held is None and not _is_bookkeeping(chunk):
            losses.append(Loss(chunk.id, "body", f"a {chunk.kind} that no frame tells; left out"))
        for item in held or ():
            tapes.setdefault(item.connection, {})[item.number] = (chunk, item)
    found: list[dict[str, Any]] = []
    manifest: list[ManifestEntry] = []
    for name, tape in tapes.items():
        for number in sorted(tape):
            chunk, item = tape[number]
            frame = item.frame.to_json()
            if len(tapes) > 1:
                frame["connection"] = name
            manifest.append(ManifestEntry(len(found), chunk.id, digest(dumps(frame))))
            found.append(frame)
        missing = max(tape) + 1 - len(tape)
        if missing:
            losses.append(Loss(None, f"connection {name}", f"{missing} frame(s) are not in this line"))
    losses += [
        Loss(call.started, "result", "never answered: its request stands alone, as it did on the wire")
        for call in calls(chunks)
        if call.started is not None and call.status in ("pending", "no_response")
    ]
    return found, LossReport(tuple(losses), tuple(manifest))


def kept(chunk: Chunk) -> Sequence[Numbered] | None:
    """Return the frames that a chunk keeps; None where it has none."""
    if chunk.body_bytes is None:
        return None
    ref = chunk.native_ref
    if ref is None or ref["framework"] != "mcp" or ref["codec"] != CODEC:
        return None
    native = chunk.native
    return None if native is None else from_native(native, f"chunk {chunk.id[:16]}")


def _is_bookkeeping(chunk: Chunk) -> bool:
    """Chunks that say how a line, a run or an unanswered call went on: nothing that was ever a frame."""
    if chunk.kind in ("session", "run") or chunk.body_bytes is None:
        return chunk.body_bytes is not None
    return chunk.kind == "tool_result" and cast(ToolResult, chunk.body).status == "no_response"


def _results(chunks: Sequence[Chunk]) -> tuple[list[dict[str, Any]], LossReport]:
    by_id = {chunk.id: chunk for chunk in chunks}
    losses: list[Loss] = []
    found: list[tuple[Chunk, dict[str, Any]]] = []
    seen: set[str] = set()
    for call in calls(chunks):
        seen |= {name for name in (call.started, call.result) if name is not None}
        if call.started is None or call.result is None:
            chunk = call.asked or call.started or call.result
            what = "never answered" if call.status == "pending" else "told by messages alone"
            losses.append(Loss(chunk, f"call {call.call_id}", f"{what}: left out"))
            continue
        pair = _both(by_id[call.started], by_id[call.result], losses)
        if pair is not None:
            found.append((by_id[call.started], pair))
    for chunk in chunks:
        if chunk.id in seen or chunk.kind in ("session", "run"):
            continue
        if chunk.kind == "tool_result" and chunk.body_bytes is not None:
            found.append((chunk, _answer(chunk, cast(ToolResult, chunk.body), losses)))
        elif chunk.kind != "note":
            losses.append(Loss(chunk.id, "body", f"a {chunk.kind} is no tool call: left out"))
    rank = {chunk.id: i for i, chunk in enumerate(chunks)}
    found.sort(key=lambda item: rank[item[0].id])
    manifest = tuple(ManifestEntry(i, chunk.id, digest(dumps(pair))) for i, (chunk, pair) in enumerate(found))
    return [pair for _, pair in found], LossReport(tuple(losses), manifest)


def _both(asked: Chunk, answered: Chunk, losses: list[Loss]) -> dict[str, Any] | None:
    try:
        call, result = cast(ToolCall, asked.body), cast(ToolResult, answered.body)
    except ErasedError:
        losses.append(Loss(asked.id, "body", "the call was erased: left out"))
        return None
    if call.type not in ("mcp", "mcp.request", "mcp.server_request"):
        losses.append(Loss(asked.id, "type", f"a call of type {call.type or 'unknown'}, told as tools/call"))
    if result.status == "no_response":
        losses.append(Loss(asked.id, "result", f"never answered ({result.reason}): left out"))
        return None
    request = _native(asked, lambda m: {key: m[key] for key in ("method", "params") if key in m}, "request")
    if request is None:
        method = str(call.attributes.get("mcp.method.name", "tools/call"))
        named = {"name": call.name, "arguments": call.arguments} if method == "tools/call" else dict(mapping(call.arguments))
        if "_meta" in call.attributes:
            named["_meta"] = call.attributes["_meta"]
        request = {"method": method, "params": named}
    return {"request": request, **_answer(answered, result, losses)}


def _answer(chunk: Chunk, result: ToolResult, losses: list[Loss]) -> dict[str, Any]:
    home = _native(chunk, lambda m: {key: m[key] for key in ("result", "error") if key in m}, "answer")
    if home is not None:
        return home
    data = mapping(result.result)
    if set(data) == {"error"} and result.status == "error":
        return dict(data)
    if isinstance(data.get("content"), list):
        blocks: list[Any] = []
        for index, part in enumerate(data["content"]):
            if not holds(mapping(part)):
                losses.append(Loss(chunk.id, f"result.content[{index}]", "MCP has no such content block; told as text"))
            blocks.append(part if holds(mapping(part)) else _text(part))
        return {"result": wire_result({**data, "content": blocks})}
    return {"result": _told(chunk, result, losses)}


def _told(chunk: Chunk, result: ToolResult, losses: list[Loss]) -> dict[str, Any]:
    """Return another framework's result as MCP would have it: text, and structured content where it is an object."""
    value = result.result if result.result is not None else result.error
    found: dict[str, Any] = {"content": [{"type": "text", "text": _text(value)["content"]}]}
    if isinstance(value, Mapping):
        try:
            json.dumps(value)
            found["structuredContent"] = dict(cast("Mapping[str, Any]", value))
        except TypeError:
            losses.append(Loss(chunk.id, "result", "it holds bytes: told as text alone"))
    if result.status == "error":
        found["isError"] = True
    return found


def _text(value: Any) -> dict[str, Any]:
    return {"type": "text", "content": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)}


def _native(chunk: Chunk, take: Callable[[Mapping[str, Any]], dict[str, Any]], wanted: str) -> dict[str, Any] | None:
    """Return the request or the answer from the wire record of a chunk, where it has one."""
    ref = chunk.native_ref
    native = chunk.native if ref is not None and ref["framework"] == "mcp" else None
    if native is None:
        return None
    if native.codec == PAIR:
        return json.loads(native.data)
    messages = [item.frame.message for item in from_native(native) if item.frame.decodable]
    return next((take(message) for message in reversed(messages) if shape(message) == wanted), None)
