"""The session server: ``rath-bridge mcp serve`` shows a store's sessions to any MCP host, and changes nothing.

Resources (``session://index``, ``session://NAME/log``, ``session://NAME/transcript``, ``session://NAME/chunk/DIGEST``) for hosts
that show resources, the same reads as tools for hosts that show only those to a model. Names in addresses are percent-encoded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote

from rath_bridge.errors import RathError
from rath_bridge.given import check_store
from rath_bridge.session import Store, resolve
from rath_mcp.frames import mapping, shape
from rath_mcp.plain import shown, words
from rath_mcp.serving import INVALID_PARAMS, METHOD_NOT_FOUND, Json, complete, discovered, error, hello, is_later, result

NOT_FOUND: Final = -32002
"""Resource not found (MCP, server features, resources)."""
PAGE: Final = 50
MOST: Final = 500
_JSON: Final = "application/json"
_READS: Final = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
_INSTRUCTIONS: Final = (
    "Recorded agent sessions, read-only. A session is NAME or NAME@BRANCH; a chunk is one recorded event, named by its digest. "
    "Begin with list_sessions or search_sessions, then read_session; read_chunk shows one chunk whole."
)


_OFFERS: Final[Json] = {"tools": {}, "resources": {}}


class BadRequestError(Exception):
    """What was asked cannot be meant."""


def _object(properties: Json, *required: str) -> Json:
    return {"type": "object", "properties": properties, "required": list(required)}


_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_CHUNK: Final = _object(
    {
        "id": _TEXT, "session": _TEXT, "position": _COUNT, "kind": _TEXT, "at": _TEXT, "run": _TEXT, "body": {"type": "object"},
        "erased": {"type": "boolean"}, "shortened": {"type": "boolean"},
    },
    "id", "position", "kind", "at",
)  # fmt: skip
_NAME: Final = {"type": "string", "description": "NAME or NAME@BRANCH"}
_LIMIT: Final = {"type": "integer", "minimum": 1, "maximum": MOST, "default": PAGE}
_CHUNKS: Final = {"type": "array", "items": _CHUNK}
_NEXT: Final = {"type": "integer", "description": "Give this as start to go on; absent at the end."}
_NAMES: Final = {"type": "array", "items": _TEXT}
_SESSION: Final = _object({"name": _TEXT, "head": _TEXT, "chunks": _COUNT, "branches": _NAMES}, "name", "head", "chunks")
_KIND: Final = {"type": "string", "description": "Only chunks of this kind"}
_CHANGES: Final = {"type": "array", "items": {"type": "object"}}


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool of the server."""

    description: str
    asks: Json
    gives: Json
    run: Callable[[SessionServer, Mapping[str, Any]], Json]


class SessionServer:
    """Answers for a store; see `rath_mcp.serving.serve`."""

    def __init__(self, store: Store) -> None:
        check_store(store, "session_server")
        self._store = store
        self._methods: Mapping[str, Callable[[Mapping[str, Any]], Json]] = {
            "initialize": self._initialize, "server/discover": self._discover, "ping": self._nothing,
            "logging/setLevel": self._nothing, "tools/list": self._tools, "tools/call": self._call,
            "resources/list": self._resources, "resources/read": self._read, "resources/templates/list": self._templates,
        }  # fmt: skip

    def answer(self, message: Any) -> Iterable[Json]:
        """Return the answer to a request."""
        if shape(message) != "request":
            return []
        request_id, method, params = message["id"], message["method"], mapping(message.get("params"))
        handler = self._methods.get(method)
        if handler is None:
            return [error(request_id, METHOD_NOT_FOUND, f"this server has no {method}")]
        try:
            value = handler(params)
            return [result(request_id, complete(value, _info()) if is_later(params) else value)]
        except BadRequestError as problem:
            return [error(request_id, INVALID_PARAMS, str(problem))]
        except (RathError, LookupError) as problem:
            return [error(request_id, NOT_FOUND, str(problem), {"uri": params.get("uri")})]

    # ---------------------------------------------------------------- protocol

    def _initialize(self, params: Mapping[str, Any]) -> Json:
        return hello(params, _info(), _OFFERS, _INSTRUCTIONS)

    def _discover(self, params: Mapping[str, Any]) -> Json:
        return discovered(_info(), _OFFERS, _INSTRUCTIONS)

    def _tools(self, params: Mapping[str, Any]) -> Json:
        return {
            "tools": [
                {
                    "name": name, "description": tool.description, "inputSchema": tool.asks, "outputSchema": tool.gives,
                    "annotations": {"title": name.replace("_", " "), **_READS},
                }
                for name, tool in TOOLS.items()
            ]
        }  # fmt: skip

    def _call(self, params: Mapping[str, Any]) -> Json:
        tool = TOOLS.get(str(params.get("name")))
        if tool is None:
            raise BadRequestError(f"Unknown tool: {params.get('name')}; there are {', '.join(TOOLS)}")
        try:
            given = mapping(params.get("arguments"))
            unknown = [name for name in given if name not in tool.asks["properties"]]
            if unknown:
                raise BadRequestError(f"there is no argument {unknown[0]!r}: give {', '.join(tool.asks['properties']) or 'none'}")
            found = tool.run(self, given)
        except (BadRequestError, RathError) as problem:  # the model may correct itself
            return {"content": [{"type": "text", "text": str(problem)}], "isError": True}
        return {"content": [{"type": "text", "text": _dump(found)}], "structuredContent": found, "isError": False}

    def _resources(self, params: Mapping[str, Any]) -> Json:
        index = {"uri": "session://index", "name": "index", "description": "All sessions", "mimeType": _JSON}
        names = [session.name for session in self._store.sessions()]
        start = _whole(params, "cursor", 0)
        page = names[start : start + PAGE]
        logs = [{"uri": f"session://{quote(name, safe='')}/log", "name": f"{name} log", "mimeType": _JSON} for name in page]
        found: Json = {"resources": ([] if start else [index]) + logs}
        if start + PAGE < len(names):
            found["nextCursor"] = str(start + PAGE)
        return found

    def _templates(self, params: Mapping[str, Any]) -> Json:
        told = {"log": "Its chunks, oldest first", "transcript": "Its messages", "chunk/{digest}": "One chunk, whole"}
        return {
            "resourceTemplates": [
                {
                    "uriTemplate": f"session://{{name}}/{path}",
                    "name": path.partition("/")[0],
                    "description": what,
                    "mimeType": _JSON,
                }
                for path, what in told.items()
            ]
        }

    def _read(self, params: Mapping[str, Any]) -> Json:
        uri = str(params.get("uri"))
        name, _, path = uri.removeprefix("session://").partition("/")
        name = unquote(name)
        if uri == "session://index":
            found: Json = self.list_sessions({"limit": MOST})
        elif uri.startswith("session://") and path == "log":
            found = self.read_session({"name": name, "limit": MOST})
        elif uri.startswith("session://") and path == "transcript":
            found = self._transcript(name)
        elif uri.startswith("session://") and path.startswith("chunk/"):
            found = self.read_chunk({"id": path.removeprefix("chunk/")})
        else:
            raise LookupError(f"there is no resource {uri}: see session://index")
        return {"contents": [{"uri": uri, "mimeType": _JSON, "text": _dump(found)}]}

    def _nothing(self, params: Mapping[str, Any]) -> Json:
        return {}

    # ---------------------------------------------------------------- reads

    def list_sessions(self, given: Mapping[str, Any]) -> Json:
        """Sessions by name, from ``start``."""
        start, limit = _whole(given, "start", 0), _limit(given)
        prefix = str(given.get("prefix") or "")
        all_of = [session for session in self._store.sessions() if session.name.startswith(prefix)]
        rows = [
            {"name": one.name, "head": one.head, "chunks": len(one), "branches": list(one.heads())}
            for one in all_of[start : start + limit]
        ]
        return {"sessions": rows, "total": len(all_of)} | ({"next": start + limit} if start + limit < len(all_of) else {})

    def read_session(self, given: Mapping[str, Any]) -> Json:
        """Chunks of a session's line, oldest first, from ``start``."""
        session = self._store.session(_text(given, "name"))
        start, limit = _whole(given, "start", 0), _limit(given)
        kind = given.get("kind")
        found: list[Json] = []
        position = min(start, len(session))
        for chunk in self._store.backend.line(session.head, position):
            if len(found) == limit:
                break
            position = chunk.position + 1
            if kind is None or chunk.kind == kind:
                found.append(shown(chunk, session))
        more = {"next": position} if position < len(session) else {}
        return {"session": session.name, "head": session.head, "total": len(session), "chunks": found, **more}

    def read_chunk(self, given: Mapping[str, Any]) -> Json:
        """One chunk, whole."""
        backend = self._store.backend
        return shown(backend.chunk(resolve(backend, _text(given, "id"))), None, whole=True)

    def search_sessions(self, given: Mapping[str, Any]) -> Json:
        """Chunks whose content holds a text, newest session position last; capital letters do not matter."""
        wanted, limit = _text(given, "text").casefold(), _limit(given)
        name = given.get("session")
        sessions = [self._store.session(str(name))] if name else self._store.sessions()
        found: list[Json] = []
        for session in sessions:
            for chunk in session.chunks():
                if wanted in words(chunk).casefold():
                    if len(found) == limit:
                        return {"chunks": found, "more": True}
                    found.append(shown(chunk, session))
        return {"chunks": found, "more": False}

    def diff_sessions(self, given: Mapping[str, Any]) -> Json:
        """Where two sessions or branches part."""
        one, two = self._store.session(_text(given, "a")), self._store.session(_text(given, "b"))
        changes = [change for change in one.diff(two).changes if change.kind != "same"]
        found: list[Json] = []
        for change in changes[:MOST]:
            row = change.to_json()
            for side, chunk in (("a", change.ours), ("b", change.theirs)):
                if chunk is not None:
                    row[side] = shown(chunk, None)
            found.append({key: row[key] for key in ("kind", "chunk_kind", "path", "a", "b") if row.get(key) is not None})
        return {"differ": bool(changes), "total": len(changes), "changes": found}

    def _transcript(self, name: str) -> Json:
        session = self._store.session(name)
        told = [{"id": one.id, "role": one.role, "name": one.name, "text": one.text} for one in session.messages()]
        return {"session": session.name, "messages": told}


def _info() -> Json:
    from rath_bridge import __version__

    return {"name": "rath-bridge", "title": "Agent sessions", "version": __version__}


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _text(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value:
        raise BadRequestError(f"{name} is missing: give it as text")
    return value


def _whole(given: Mapping[str, Any], name: str, usual: int) -> int:
    value = given.get(name, usual)
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadRequestError(f"{name} must be a whole number from 0, not {value!r}")
    return value


def _limit(given: Mapping[str, Any]) -> int:
    return max(1, min(_whole(given, "limit", PAGE), MOST))


TOOLS: Final[Mapping[str, Tool]] = {
    "list_sessions": Tool(
        "List recorded sessions by name.",
        _object({"prefix": {"type": "string", "description": "Only names that begin with this"}, "start": _COUNT, "limit": _LIMIT}),
        _object({"sessions": {"type": "array", "items": _SESSION}, "total": _COUNT, "next": _NEXT}, "sessions", "total"),
        SessionServer.list_sessions,
    ),
    "read_session": Tool(
        "Read the events of a session, oldest first: messages, model calls, tool calls and their results, runs.",
        _object({"name": _NAME, "start": _COUNT, "limit": _LIMIT, "kind": _KIND}, "name"),
        _object({"session": _TEXT, "head": _TEXT, "total": _COUNT, "chunks": _CHUNKS, "next": _NEXT}, "session", "head", "total", "chunks"),
        SessionServer.read_session,
    ),
    "read_chunk": Tool(
        "Read one event whole.",
        _object({"id": {"type": "string", "description": "Its digest, or four or more digits of it"}}, "id"),
        _CHUNK,
        SessionServer.read_chunk,
    ),
    "search_sessions": Tool(
        "Find events whose content holds a text, in one session or in all.",
        _object({"text": _TEXT, "session": _NAME, "limit": _LIMIT}, "text"),
        _object({"chunks": _CHUNKS, "more": {"type": "boolean"}}, "chunks", "more"),
        SessionServer.search_sessions,
    ),
    "diff_sessions": Tool(
        "Show where two sessions or branches part; times and generated ids do not count.",
        _object({"a": _NAME, "b": _NAME}, "a", "b"),
        _object({"differ": {"type": "boolean"}, "total": _COUNT, "changes": _CHANGES}, "differ", "total", "changes"),
        SessionServer.diff_sessions,
    ),
}  # fmt: skip


def session_server(store: Store) -> SessionServer:
    """Return a read-only MCP server over a store's sessions.

    Args:
        store: Whose sessions to show.

    Returns:
        A server for `rath_mcp.serving.serve`, or for your own transport: ``answer(message)`` returns the messages to send.
    """
    return SessionServer(store)
