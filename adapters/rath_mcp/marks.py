"""How a client that records itself tells a proxy behind it: no call stands twice in one store."""

from __future__ import annotations

import os
import re
from typing import Any, Final

from rath_bridge.model.digests import digest
from rath_mcp.frames import Frame, mapping

MARK: Final = "rath-bridge/recorded"
"""Key of ``_meta`` in the first request of such a client (MCP, basic protocol, ``_meta``: prefix and name); says to which store."""


def store_mark(url: str) -> str:
    """Return what tells a store from others, in a file's name or on the wire: nothing of its address can be read from it."""
    path = url.removeprefix("sqlite:///")
    plain = re.sub(r"(://[^/@:]*):[^/@]*@", r"\1@", url) if path == url else f"sqlite:///{os.path.abspath(path)}"
    return digest(plain.encode())[:16]


def mark_request(item: Any, url: str) -> bool:
    """Mark a request that an SDK is about to send, in place; False where it is no request, or nobody else can reach the store.

    Args:
        item: A ``SessionMessage`` or message of either SDK.
        url: Of the store that the client records to.
    """
    message = getattr(item, "message", item)
    message = getattr(message, "root", message)
    if url.startswith("memory:") or not hasattr(message, "method") or getattr(message, "id", None) is None:
        return False
    params = mapping(message.params)
    message.params = {**params, "_meta": {**mapping(params.get("_meta")), MARK: store_mark(url)}}
    return True


def is_marked(frame: Frame, store: str) -> bool:
    """Tell whether the client that sent a frame records itself to the store with this mark."""
    message = mapping(frame.message if frame.decodable else None)
    return mapping(mapping(message.get("params")).get("_meta")).get(MARK) == store
