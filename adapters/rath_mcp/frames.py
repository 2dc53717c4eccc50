"""Frames: one JSON-RPC message as it crossed the wire, and the lines in which a chunk keeps it.

This is what every recorder of MCP works on, in process or as a proxy; it imports no ``mcp``, since the SDK's typed objects drop
unknown fields and two majors of it are in use. Exported, a frame is one JSON object::

    {"t": 1796000000000000000, "dir": "c2s", "msg": {"jsonrpc": "2.0", "id": 1, "method": "tools/call", ...}}

``t`` is in nanoseconds since 1970 (absent where nobody took the time), ``dir`` is ``c2s`` or ``s2c``. What is no JSON stands in
``raw`` as text (bytes that are no UTF-8: ``raw_base64``), and ``exc`` tells why. Other keys (``headers``) are kept.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from rath_bridge.errors import DecodeError
from rath_bridge.model.chunk import Native

Direction = Literal["c2s", "s2c"]
"""Client to server, or server to client."""
CODEC: Final = "frames"
"""``Native.codec`` of a chunk that holds frames: JSON lines ``[connection, number, frame]``."""

_KNOWN: Final = frozenset({"t", "dir", "msg", "raw", "raw_base64", "exc"})
_NOTHING: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One message of a connection, or what stood in its place."""

    direction: Direction
    message: Any = _NOTHING
    """The JSON value; look at `decodable` first."""
    t: int | None = None
    """Nanoseconds since 1970."""
    raw: bytes | None = None
    """What came instead of JSON."""
    problem: str | None = None
    """Why it could not be read."""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def decodable(self) -> bool:
        """It is JSON; whether it is JSON-RPC shows in `shape`."""
        return self.message is not _NOTHING

    @property
    def at(self) -> int | None:
        """Microseconds since 1970."""
        return None if self.t is None else self.t // 1000

    def to_json(self) -> dict[str, Any]:
        """Return the frame as it is exported."""
        found: dict[str, Any] = {**self.extra, "dir": self.direction}
        if self.t is not None:
            found["t"] = self.t
        if self.decodable:
            found["msg"] = self.message
        if self.raw is not None:
            try:
                found["raw"] = self.raw.decode()
            except UnicodeDecodeError:
                found["raw_base64"] = b64encode(self.raw).decode()
        if self.problem is not None:
            found["exc"] = self.problem
        return found


def parse_line(line: bytes, direction: Direction, t: int | None = None) -> Frame:
    """Read one line of a stdio connection; a line that is no JSON is a frame, too, never an error."""
    try:
        return Frame(direction=direction, message=json.loads(line), t=t)
    except (ValueError, RecursionError) as error:
        return Frame(direction=direction, t=t, raw=line.rstrip(b"\r\n"), problem=f"{type(error).__name__}: {error}")


def frame_from_json(value: Any, place: str = "frame") -> Frame:
    """Read an exported frame back.

    Raises:
        DecodeError: No object, no direction, or nothing in it.
    """
    if not isinstance(value, Mapping):
        raise DecodeError(place, "a frame is a JSON object with 'dir' and 'msg'")
    data = cast("Mapping[str, Any]", value)
    if data.get("dir") not in ("c2s", "s2c"):
        raise DecodeError(place, "'dir' must be 'c2s' or 's2c'", "dir")
    t = data.get("t")
    if t is not None and (not isinstance(t, int) or isinstance(t, bool)):
        raise DecodeError(place, "'t' must be whole nanoseconds since 1970", "t")
    if not {"msg", "raw", "raw_base64", "exc"} & data.keys():
        raise DecodeError(place, "a frame holds 'msg', 'raw' or 'exc'")
    raw = b64decode(data["raw_base64"]) if "raw_base64" in data else data["raw"].encode() if "raw" in data else None
    return Frame(
        direction=data["dir"], message=data.get("msg", _NOTHING), t=t, raw=raw, problem=data.get("exc"),
        extra={key: item for key, item in data.items() if key not in _KNOWN},
    )  # fmt: skip


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a JSON object, or an empty one for all else: what is malformed is recorded, never refused."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def shape(message: Any) -> Literal["request", "notification", "answer", "batch", "other"]:
    """Tell what kind of JSON-RPC message it is (JSON-RPC 2.0, sections 4 to 6)."""
    if isinstance(message, list):
        return "batch"
    if not isinstance(message, Mapping):
        return "other"
    if isinstance(message.get("method"), str):  # pyright: ignore[reportUnknownMemberType]
        return "request" if "id" in message else "notification"
    return "answer" if "id" in message and ("result" in message or "error" in message) else "other"


def dumps(value: Any) -> bytes:
    """Serialise wire JSON: any number, any text; nothing is reordered."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half a surrogate pair can only be written as an escape
        return json.dumps(value, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Numbered:
    """A frame with its place in its connection."""

    connection: str
    number: int
    frame: Frame


def to_native(frames: Iterable[Numbered], version: str) -> Native:
    """Return the native record of a chunk: the frames that it was folded from."""
    lines = [dumps([item.connection, item.number, item.frame.to_json()]) for item in frames]
    return Native("mcp", version, CODEC, b"\n".join(lines))


def from_native(native: Native, place: str = "native record") -> Sequence[Numbered]:
    """Read the frames of a native record.

    Raises:
        DecodeError: Its bytes are not what `to_native` writes.
    """
    found: list[Numbered] = []
    for index, line in enumerate(native.data.splitlines()):
        try:
            connection, number, frame = json.loads(line)
        except ValueError as error:
            raise DecodeError(place, f"line {index + 1} holds no frame ({error})") from error
        found.append(Numbered(connection, number, frame_from_json(frame, f"{place}, line {index + 1}")))
    return found
