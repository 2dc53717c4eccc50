"""Being an MCP server: JSON-RPC over standard streams, in frames, with no ``mcp`` imported. Who answers is another matter."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO, Final, Protocol

from rath_mcp.frames import dumps, mapping, parse_line, shape

Json = dict[str, Any]

VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Protocol versions with a handshake. A client of the later era falls back to it where ``server/discover`` is refused."""
LATER: Final = ("2026-07-28",)
"""Protocol versions without one: every request names its version in its ``_meta``."""
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
UNSUPPORTED_VERSION: Final = -32022
INVALID_PARAMS: Final = -32602
LONG: Final = 10 << 20
"""Bytes of one message beyond which the TypeScript SDK ends a connection over pipes."""


class Answerer(Protocol):
    """What a server says to one message of its client."""

    def answer(self, message: Any, /) -> Iterable[Json]:
        """Return the messages to send, the answer last; none for a notification, or where no answer ever came."""
        ...


def serve(server: Answerer, source: BinaryIO | None = None, target: BinaryIO | None = None) -> None:
    """Answer line by line until the client's end of the pipe closes.

    Args:
        server: Who answers.
        source: Where requests come from; standard input, when absent.
        target: Where answers go; standard output, when absent.
    """
    out = target or sys.stdout.buffer
    for line in source or sys.stdin.buffer:
        try:
            for message in map(dumps, answers(server, line)):
                if len(message) > LONG:
                    why = "hosts that stand on the TypeScript SDK end the connection at 10 MiB"
                    print(f"rath-bridge: an answer of {len(message)} bytes: {why}", file=sys.stderr, flush=True)  # noqa: T201 - the face prints
                out.write(message + b"\n")
            out.flush()
        except BrokenPipeError:
            return


def answers(server: Answerer, data: bytes) -> Sequence[Json]:
    """Return what to send for one line, or one HTTP body; whatever it holds, it is answered or taken."""
    if not data.strip():
        return []
    frame = parse_line(data, "c2s")
    if not frame.decodable:
        return [error(None, PARSE_ERROR, "the message is no JSON")]
    kind = shape(frame.message)
    if kind == "batch" and frame.message:
        return [message for one in frame.message for message in _one(server, one)]
    return _one(server, frame.message)


def _one(server: Answerer, message: Any) -> Sequence[Json]:
    kind = shape(message)
    if kind in ("batch", "other"):
        return [error(mapping(message).get("id"), INVALID_REQUEST, "the message is no JSON-RPC request")]
    return list(server.answer(message))


def result(request_id: Any, value: Any) -> Json:
    """Return a response."""
    return {"jsonrpc": "2.0", "id": request_id, "result": value}


def error(request_id: Any, code: int, message: str, data: Any = None) -> Json:
    """Return an error response."""
    fault = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return {"jsonrpc": "2.0", "id": request_id, "error": fault}


def agreed(params: Any, known: Sequence[str] = VERSIONS) -> str:
    """Return the protocol version to go on with: the client's, where it is one of those, else our newest."""
    asked = mapping(params).get("protocolVersion")
    return asked if isinstance(asked, str) and asked in known else known[-1]


def hello(params: Any, info: Mapping[str, Any], capabilities: Any, instructions: str | None = None) -> Json:
    """Return the result of ``initialize``."""
    found: Json = {"protocolVersion": agreed(params), "capabilities": capabilities, "serverInfo": dict(info)}
    return found if instructions is None else {**found, "instructions": instructions}


def is_later(params: Any) -> bool:
    """Tell whether a request is of the era without a handshake."""
    return mapping(mapping(params).get("_meta")).get("io.modelcontextprotocol/protocolVersion") in LATER


def discovered(info: Mapping[str, Any], capabilities: Any, instructions: str | None = None) -> Json:
    """Return the result of ``server/discover``."""
    found: Json = {"supportedVersions": list(LATER), "capabilities": capabilities}
    return complete(found if instructions is None else {**found, "instructions": instructions}, info)


def complete(value: Mapping[str, Any], info: Mapping[str, Any]) -> Json:
    """Return a result as the later era has it: it says that it is one, who gives it, and that it is not to be kept."""
    meta = {**mapping(value.get("_meta")), "io.modelcontextprotocol/serverInfo": dict(info)}
    return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **value, "_meta": meta}
