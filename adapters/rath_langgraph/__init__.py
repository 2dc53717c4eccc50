"""The rath_bridge adapter for LangGraph: a checkpointer that grows with what is said, a callback handler, wrapped graphs.

Imports without LangGraph; the names below are loaded when they are first used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from rath_bridge.model.chunk import Draft
    from rath_bridge.model.report import LossReport
    from rath_bridge.session import Session
    from rath_langgraph.record import RathCallbackHandler as RathCallbackHandler
    from rath_langgraph.saver import RathSaver as RathSaver
    from rath_langgraph.wrap import wrap as wrap

name: Final = "langgraph"
extra: Final = "langgraph"
SUPPORTED: Final[Mapping[str, str]] = {"langgraph": ">=1.0", "langgraph-checkpoint": ">=3.0", "langchain-core": ">=1.0"}

_PUBLIC: Final = {"RathCallbackHandler": "record", "RathSaver": "saver", "wrap": "wrap"}

__all__ = [
    "SUPPORTED", "RathCallbackHandler", "RathSaver", "decode", "encode", "extra", "name", "recognises", "wrap",
]  # fmt: skip


def recognises(obj: Any, /) -> bool:
    """Tell whether `decode` reads it: LangChain messages, a state with them, a CheckpointTuple or a StateSnapshot."""
    if isinstance(obj, list):
        items = cast("list[Any]", obj)
        return bool(items) and all(_is_message(item) for item in items)
    if isinstance(obj, Mapping):
        return recognises(cast("Mapping[str, Any]", obj).get("messages"))
    if _is_message(obj):
        return True
    return type(obj).__module__.startswith("langgraph.") and type(obj).__name__ in ("CheckpointTuple", "StateSnapshot")


def _is_message(obj: Any) -> bool:
    return any(cls.__module__ == "langchain_core.messages.base" and cls.__name__ == "BaseMessage" for cls in type(obj).__mro__)


def decode(obj: Any, /) -> Sequence[Draft]:
    """Translate LangChain messages or LangGraph states into chunks; see `rath_langgraph.decode.decode`."""
    _require("decode")
    from rath_langgraph.decode import decode as read

    return read(obj)


def encode(session: Session, /, as_: str = "messages") -> tuple[Any, LossReport]:
    """Translate a session into LangChain messages; see `rath_langgraph.encode.encode`."""
    _require("encode")
    from rath_langgraph.encode import encode as write

    return write(session, as_)


def _require(wanted: str) -> None:
    from rath_bridge.plugins import require

    require("langgraph.checkpoint.base", f"rath_langgraph.{wanted}", extra)


def __getattr__(wanted: str) -> Any:
    if wanted not in _PUBLIC:
        raise AttributeError(f"module 'rath_langgraph' has no attribute {wanted!r}")
    _require(wanted)
    value = getattr(import_module(f"rath_langgraph.{_PUBLIC[wanted]}"), wanted)
    globals()[wanted] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
