"""Wire JSON -> chunks: a tape of frames, pairs of request and result, or one ``CallToolResult``. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from rath_bridge.errors import DecodeError, EncodeError, UnsupportedError
from rath_bridge.model.chunk import Draft, Native, draft
from rath_bridge.model.digests import new_id
from rath_bridge.model.kinds import Body
from rath_mcp.bodies import call_body, result_body
from rath_mcp.frames import Frame, dumps, frame_from_json, mapping
from rath_mcp.record import Book, Connection

PAIR: Final = "pair"
"""``Native.codec`` of a chunk that holds one side of a pair."""
ORIGIN: Final = {"adapter": "rath_mcp", "framework": "mcp", "version": "unknown"}


def recognises(obj: Any) -> bool:
    """Tell whether `decode` reads it, by its shape alone."""
    if _is_model(obj):
        return type(obj).__name__ == "CallToolResult"
    if isinstance(obj, Mapping):
        return _is_result(cast("Mapping[str, Any]", obj))
    if not isinstance(obj, Sequence) or isinstance(obj, str | bytes) or not obj:
        return False
    return all(isinstance(item, Frame) or _is_frame(item) or _is_pair(item) for item in cast("Sequence[Any]", obj))


def decode(obj: Any) -> list[Draft]:
    """Translate what MCP put on the wire into chunks to append.

    Args:
        obj: Frames (`rath_mcp.frames.Frame`, or their JSON ``{"dir": "c2s", "msg": {...}}``) in the order of the wire, of one
            connection or, with a key ``connection``, of several; or pairs ``{"request": {"method": "tools/call", ...}, "result":
            {...}}`` (``"error"`` for a protocol error) or ``(request, result)``; or one ``CallToolResult``, as an object of the
            SDK or as wire JSON.

    Returns:
        Drafts. A call that the tape does not answer is closed ``no_response`` with reason ``record_ended``.

    Raises:
        DecodeError: It is not what it seems; the error names the place.
        UnsupportedError: It is none of these.
    """
    if _is_model(obj) or isinstance(obj, Mapping):
        result: Any = _wire(obj)
        if not _is_result(mapping(result)):
            raise UnsupportedError("rath_mcp.decode reads results, pairs and frames, and this object is none of them")
        return [_result({"result": result}, None, None)]
    items = list(cast("Sequence[Any]", obj))
    if items and all(_is_pair(item) for item in items):
        return [one for item in items for one in _pair(item)]
    frames = [item if isinstance(item, Frame) else frame_from_json(item, f"frame {i}") for i, item in enumerate(items)]
    return _tape(frames)


def _tape(frames: Sequence[Frame]) -> list[Draft]:
    drafts: list[Draft] = []

    def emit(body: Body, **given: Any) -> Draft:
        try:
            one = draft(body, **given)
        except EncodeError as error:
            raise DecodeError("MCP frames", str(error)) from error
        drafts.append(one)
        return one

    trace, connections = new_id(16), dict[str, Connection]()
    last: int | None = None
    for frame in frames:
        name = str(frame.extra.get("connection", ""))
        if name not in connections:
            connections[name] = Connection(Book(emit, trace))
        connections[name].see(frame)
        last = frame.at or last
    for connection in connections.values():
        connection.close("record_ended", at=last)
    return drafts


def _pair(item: Any) -> list[Draft]:
    request: Any
    if isinstance(item, Mapping):
        pair = cast("Mapping[str, Any]", item)
        request, answer = pair.get("request"), {key: value for key, value in pair.items() if key != "request"}
    else:
        request, answer = _wire(item[0]), {"result": _wire(item[1])}
    if request is None:
        return [_result(answer, None, None)]
    data = mapping(request)
    method = str(data.get("method", "tools/call"))
    body = call_body(method, data.get("params"), call_id=f"mcp-{new_id(8)}")
    asked = draft(body, origin=ORIGIN, native=Native("mcp", "", PAIR, dumps(request)))
    return [asked, _result(answer, body.name, body.call_id)]


def _result(answer: Mapping[str, Any], name: str | None, call_id: str | None) -> Draft:
    body = result_body(answer, name=name, call_id=call_id)
    return draft(body, origin=ORIGIN, native=Native("mcp", "", PAIR, dumps(answer)))


def _wire(obj: Any) -> Any:
    return obj.model_dump(by_alias=True, mode="json", exclude_unset=True) if _is_model(obj) else obj


def _is_model(obj: Any) -> bool:
    return type(obj).__module__.partition(".")[0] in ("mcp", "mcp_types") and hasattr(obj, "model_dump")


def _is_result(obj: Mapping[str, Any]) -> bool:
    """A wire result of tools/call: a list of typed blocks (and no role: that is a message), or structured content alone."""
    content = obj.get("content")
    if not isinstance(content, list):
        return "structuredContent" in obj
    blocks = cast("list[Any]", content)
    return "role" not in obj and all("type" in mapping(block) for block in blocks)


def _is_frame(item: Any) -> bool:
    return isinstance(item, Mapping) and item.get("dir") in ("c2s", "s2c")  # pyright: ignore[reportUnknownMemberType]


def _is_pair(item: Any) -> bool:
    if isinstance(item, Mapping):
        keys = cast("Mapping[str, Any]", item).keys()
        return "dir" not in keys and "request" in keys and len(keys & {"result", "error"}) == 1
    if isinstance(item, tuple) and len(cast("tuple[Any, ...]", item)) == 2:
        request, result = cast("tuple[Any, Any]", item)
        return mapping(_wire(request)).get("method") == "tools/call" and isinstance(_wire(result), Mapping)
    return False
