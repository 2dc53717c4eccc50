"""Being an MCP server over streamable HTTP: on loopback, for whoever has the token. Who answers is another matter.

Stateless, so clients of both protocol eras are served alike: each POST is answered with JSON; there is no session to name, and no
stream to GET. Source: MCP, transports (2025-11-25, 2026-07-28); RFC 6750 for the token.
"""

from __future__ import annotations

from collections.abc import Callable
from hmac import compare_digest
from typing import Final

from rath_mcp.frames import dumps
from rath_mcp.loopback import LoopbackHandler, LoopbackServer, refusal
from rath_mcp.serving import INVALID_REQUEST, LATER, UNSUPPORTED_VERSION, VERSIONS, Answerer, answers, error

PATH: Final = "/mcp"
MOST: Final = 4_000_000
"""Bytes of a request that are read."""


class Handler(LoopbackHandler):
    """One connection of a client."""

    timeout = 120
    server: Listener  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:  # noqa: N802 - the name that http.server calls
        """Answer one message, or a batch."""
        length = self.headers.get("content-length") or ""
        if not length.isdecimal() or int(length) > MOST:
            self._say(413 if length else 411)
            return
        body = self.rfile.read(int(length))
        if not self._may_pass():
            return
        version = self.headers.get("mcp-protocol-version")
        if version is not None and version not in (*VERSIONS, *LATER):
            fault = error(
                None, UNSUPPORTED_VERSION, f"there is no {version} here", {"supported": [*VERSIONS, *LATER], "requested": version}
            )
            self._say(400, dumps(fault))
            return
        found = answers(self.server.answerer, body)
        if not found:
            self._say(202)
        elif len(found) == 1 and not body.lstrip().startswith(b"["):
            bad = found[0].get("id") is None and found[0].get("error", {}).get("code") is not None
            self._say(400 if bad else 200, dumps(found[0]))
        else:
            self._say(200, dumps(list(found)))

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
        """Refuse: there are no streams, no sessions to end."""
        if self._may_pass():
            self._say(405)

    do_DELETE = do_GET  # noqa: N815 - the name that http.server calls

    def _may_pass(self) -> bool:
        """Say no to web pages, to who has no token, and to other addresses."""
        why = refusal(self.headers)
        if why is not None:
            self._say(403, dumps(error(None, INVALID_REQUEST, why)))
            return False
        kind, _, token = (self.headers.get("authorization") or "").partition(" ")
        if kind.lower() != "bearer" or not compare_digest(token.strip().encode(), self.server.token.encode()):
            self._say(401, dumps(error(None, INVALID_REQUEST, "the token is missing or wrong: Authorization: Bearer TOKEN")))
            return False
        if self.path.partition("?")[0].rstrip("/") not in ("", PATH):
            self._say(404)
            return False
        return True

    def _say(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        if status == 401:
            self.send_header("WWW-Authenticate", 'Bearer realm="rath-bridge"')
        if status == 405:
            self.send_header("Allow", "POST")
        if body:
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)
        if status in (411, 413):
            self.close_connection = True  # what it sent was not read


class Listener(LoopbackServer):
    """The listening side.

    Args:
        at: Host and port, on loopback; port 0 takes a free one.
        answerer: Who answers; from several threads at once.
        token: What a client must show.
    """

    def __init__(self, at: tuple[str, int], answerer: Answerer, token: str) -> None:
        super().__init__(at, Handler)
        self.answerer, self.token = answerer, token

    @property
    def url(self) -> str:
        """Where clients find it."""
        return self.address(PATH)


def listen(answerer: Answerer, at: tuple[str, int], token: str, ready: Callable[[str], None]) -> None:
    """Answer over HTTP until a signal comes.

    Args:
        answerer: Who answers.
        at: Host and port, on loopback.
        token: What a client must show.
        ready: Told the address when it can be reached.

    Raises:
        PlaceError: Another program listens there.
    """
    with Listener(at, answerer, token) as listener:
        listener.end_by_signal()
        ready(listener.url)
        listener.serve_forever(poll_interval=0.1)
