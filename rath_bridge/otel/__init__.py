"""OpenTelemetry: sessions out as spans by the GenAI and MCP conventions, and anybody's spans in.

Importing this package loads no OpenTelemetry; using it needs ``pip install "rath-bridge[otel]"``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rath_bridge.otel.export import export_spans as export_spans
    from rath_bridge.otel.live import LiveSpans as LiveSpans
    from rath_bridge.otel.processor import SessionSpanProcessor as SessionSpanProcessor

_PUBLIC: Final = {"export_spans": "export", "LiveSpans": "live", "SessionSpanProcessor": "processor"}

__all__ = ["LiveSpans", "SessionSpanProcessor", "export_spans"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        value = getattr(import_module(f"rath_bridge.otel.{_PUBLIC[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'rath_bridge.otel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
