"""One Session from a mixed stack of agent frameworks: fork it, merge it, replay it, prove it.

The public names are loaded when they are first used, so that importing this package stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rath_bridge.evidence import export_packet as export_packet
    from rath_bridge.evidence import verify_packet as verify_packet
    from rath_bridge.handover import encode as encode
    from rath_bridge.model.chunk import Chunk as Chunk
    from rath_bridge.model.chunk import Draft as Draft
    from rath_bridge.model.chunk import draft as draft
    from rath_bridge.plugins import decode as decode
    from rath_bridge.recorder import Recorder as Recorder
    from rath_bridge.recorder import record as record
    from rath_bridge.replay import ReplayReport as ReplayReport
    from rath_bridge.replay import areplay as areplay
    from rath_bridge.replay import replay as replay
    from rath_bridge.session import Session as Session
    from rath_bridge.session import Store as Store
    from rath_bridge.session import message as message
    from rath_bridge.session import open_store as open_store

__version__ = "0.1.0"

_PUBLIC: Final = {
    "Chunk": "model.chunk", "Draft": "model.chunk", "draft": "model.chunk",
    "Session": "session", "Store": "session", "message": "session", "open_store": "session",
    "Recorder": "recorder", "record": "recorder", "areplay": "replay", "ReplayReport": "replay",
    "decode": "plugins", "encode": "handover",
    "export_packet": "evidence", "verify_packet": "evidence",
}  # fmt: skip

__all__ = [
    "Chunk", "Draft", "Recorder", "ReplayReport", "Session", "Store", "areplay", "decode", "draft", "encode", "export_packet",
    "message", "open_store", "record", "replay", "verify_packet",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "replay":  # the package of that name can be called
        return import_module("rath_bridge.replay")
    if name in _PUBLIC:
        value = getattr(import_module(f"rath_bridge.{_PUBLIC[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'rath_bridge' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC, "replay"})
