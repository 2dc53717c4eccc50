"""AutoGen's own JSON of a message, there and back.

AutoGen dumps a ``TaskResult`` but cannot load one, its ``MessageFactory`` does not know ``SelectorEvent`` and no structured type, and a
memory item of bytes cannot be dumped at all (facts, section 1). `Registry` loads every message by its type name; reading works
without AutoGen.
"""

from __future__ import annotations

import json
import re
import sys
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from importlib import metadata
from typing import Any, ClassVar, Final, cast

import orjson

from rath_bridge.errors import DecodeError
from rath_bridge.model.chunk import Native
from rath_bridge.model.digests import Digest, digest
from rath_bridge.model.encoding import dumps
from rath_bridge.plugins import require

FRAMEWORK: Final = "autogen"
LLM_TYPES: Final = frozenset({"SystemMessage", "UserMessage", "AssistantMessage", "FunctionExecutionResultMessage"})
"""``type`` of what stands in a model context (``autogen_core.models``)."""
CHAT_TYPES: Final = frozenset({"TextMessage", "StopMessage", "MultiModalMessage", "HandoffMessage", "ToolCallSummaryMessage"})
"""``type`` of what agents say to each other (``autogen_agentchat.messages``); ``StructuredMessage[...]`` besides."""
EVENT_TYPES: Final = frozenset(
    {
        "ToolCallRequestEvent", "ToolCallExecutionEvent", "ThoughtEvent", "MemoryQueryEvent", "SelectorEvent", "SelectSpeakerEvent",
        "CodeGenerationEvent", "CodeExecutionEvent", "UserInputRequestedEvent", "ModelClientStreamingChunkEvent",
    }
)  # fmt: skip
"""``type`` of what agents show to observers."""
_EXACT: Final = (CHAT_TYPES | EVENT_TYPES) - {"MemoryQueryEvent"}
"""Types in which no float stands (pydantic writes NaN as null), nor bytes."""
VOLATILE: Final = frozenset({"id", "created_at", "models_usage", "metadata"})
"""Fields of a message that AutoGen fills in anew, or drops: no part of a comparison key."""
_BYTES: Final = "$bytes"


@lru_cache(maxsize=1)
def version() -> str:
    """The installed autogen-agentchat's version; ``unknown`` where only its JSON is here."""
    try:
        return metadata.version("autogen-agentchat")
    except metadata.PackageNotFoundError:
        return "unknown"


def origin() -> dict[str, str]:
    """Who recorded it, as it stands in envelopes."""
    return {"adapter": "rath_autogen", "framework": FRAMEWORK, "version": version()}


@lru_cache(maxsize=1)
def origin_text() -> str:
    """The same as the text that envelopes hold, made once."""
    return dumps(origin()).decode()


def is_structured(name: str) -> bool:
    """Tell whether a type name is that of a ``StructuredMessage[T]``."""
    return name.startswith("StructuredMessage[") and name.endswith("]")


def is_message(data: Any) -> bool:
    """Tell whether a JSON object is a dumped message, event or model-context message of AutoGen."""
    name = data.get("type") if isinstance(data, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return isinstance(name, str) and (name in LLM_TYPES | CHAT_TYPES | EVENT_TYPES or is_structured(name))


def dump(message: Any) -> dict[str, Any]:
    """Return a message as ``message.dump()`` gives it; bytes that JSON cannot hold become ``{"$bytes": base64}``."""
    try:
        return dict(message.dump() if hasattr(message, "dump") else message.model_dump(mode="json"))
    except (ValueError, TypeError):  # bytes that are no UTF-8: pydantic's serialisation error is a ValueError
        return _plain(message.model_dump())


def own_json(message: Any) -> bytes | None:
    """JSON of a message as pydantic writes it at once, for AutoGen's own types whose values are texts and whole numbers.

    None for all others, and for text that UTF-8 cannot hold: `to_bytes` of `dump` is exact for those, too.
    """
    cls: Any = type(message)  # pyright: ignore[reportUnknownVariableType]
    if cls.__module__ != "autogen_agentchat.messages" or cls.__name__ not in _EXACT:
        return None
    try:
        return cls.__pydantic_serializer__.to_json(message)
    except ValueError:
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return [_plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, bytes):
        return {_BYTES: b64encode(value).decode()}
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value


def unplain(value: Any) -> Any:
    """Undo what `dump` did to bytes that JSON cannot hold."""
    if isinstance(value, dict):
        found: dict[str, Any] = {key: unplain(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
        return b64decode(found[_BYTES]) if found.keys() == {_BYTES} else found
    return [unplain(item) for item in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]


def to_bytes(data: Any) -> bytes:
    """Write JSON so that `from_bytes` reads it back equal: any int, NaN, lone surrogates (orjson would change or refuse them)."""
    try:
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(data, separators=(",", ":")).encode()


def from_bytes(data: bytes, place: str = "AutoGen JSON") -> Any:
    """Read what `to_bytes` wrote.

    Raises:
        DecodeError: Not JSON.
    """
    try:
        return json.loads(data)
    except ValueError as error:
        raise DecodeError(place, f"not JSON ({error})") from error


def from_own(data: bytes) -> Any:
    """Read what `own_json` wrote: texts and whole numbers, so orjson reads it exactly where no number is beyond its range."""
    return json.loads(data) if _LONG.search(data) else orjson.loads(data)


_LONG: Final = re.compile(rb"\d{16}")


def native(data: Mapping[str, Any]) -> Native:
    """Wrap a dumped message (or state) for the trip home."""
    return Native(FRAMEWORK, version(), "json", to_bytes(data))


def message_key(data: Mapping[str, Any]) -> Digest:
    """Return the comparison key of a dumped message: everything but ids, times, usage and metadata."""
    kept = {key: value for key, value in data.items() if key not in VOLATILE}
    return digest(json.dumps(kept, sort_keys=True).encode())


def class_path(message: Any) -> str | None:
    """Where the class of a message that AutoGen does not bring itself can be found again: ``module:qualified.name``."""
    cls = cast("type[Any]", type(message))
    if is_structured(cls.__name__):
        cls = cast("type[Any]", type(message.content))
    return None if cls.__module__.startswith("autogen_") else f"{cls.__module__}:{cls.__qualname__}"


class Registry:
    """Loads dumped messages of every type, among them those that AutoGen's ``MessageFactory`` does not know.

    Classes are looked up among those that are already imported; a record never makes this process import a module.
    """

    def __init__(self) -> None:
        self._messages = require("autogen_agentchat.messages", "encoding for AutoGen", FRAMEWORK)
        self._models = require("autogen_core.models", "encoding for AutoGen", FRAMEWORK)
        self._classes: dict[str, list[type[Any]]] = {}
        stack: list[type[Any]] = [self._messages.BaseChatMessage, self._messages.BaseAgentEvent]
        while stack:
            for cls in stack.pop().__subclasses__():
                stack.append(cls)
                if not getattr(cls, "rath_stand_in", False):
                    self._classes.setdefault(cls.__name__, []).append(cls)

    def load(self, data: Mapping[str, Any], path: str | None = None) -> tuple[Any, str | None]:
        """Build the message that a dump tells of.

        Args:
            data: From `dump`.
            path: From `class_path`, for types that are not AutoGen's own.

        Returns:
            The message, and what was lost: a class that is not imported is replaced by one that dumps the same.
        """
        name = str(data.get("type", ""))
        if name in LLM_TYPES:
            return getattr(self._models, name).model_validate(data), None
        given = unplain(dict(data))
        own = getattr(self._messages, name, None) if name in CHAT_TYPES | EVENT_TYPES and path is None else None
        if own is not None:
            return own.load(given), None
        for cls in self._candidates(name, path):
            try:
                found = cls.load(given)
            except ValueError:
                continue
            if dump(found) == data:
                return found, None
        stand_in = self._stand_in(name, structured=is_structured(name))
        return stand_in.load(given), f"no imported class {path or name!r} dumps this: a class with the same fields stands in"

    def _candidates(self, name: str, path: str | None) -> list[type[Any]]:
        found: list[type[Any]] = []
        named = _imported(path) if path else None
        if not is_structured(name):
            simple = path.rpartition(":")[2].rpartition(".")[2] if path else name
            return [*([named] if named else []), *self._classes.get(simple, [])]
        if named is not None:
            found.append(self._messages.StructuredMessage[named])
        found += self._classes.get(name, [])
        inner = name[len("StructuredMessage[") : -1]
        if not found:
            found += [self._messages.StructuredMessage[cls] for cls in _models_named(inner)]
        return found

    def _stand_in(self, name: str, *, structured: bool) -> type[Any]:
        from pydantic import ConfigDict, create_model

        if structured:
            content = create_model(name[len("StructuredMessage[") : -1], __config__=ConfigDict(extra="allow"))
            found: type[Any] = self._messages.StructuredMessage[content]
            found.rath_stand_in = content.rath_stand_in = True  # type: ignore[attr-defined]
            return found

        class Event(self._messages.BaseAgentEvent):  # type: ignore[misc]
            model_config = ConfigDict(extra="allow")
            rath_stand_in: ClassVar[bool] = True

            def to_text(self) -> str:
                return str(self.model_extra)

        Event.__name__ = Event.__qualname__ = name or "UnknownMessage"
        return Event


def _imported(path: str) -> type[Any] | None:
    module, _, name = path.partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else None


def _models_named(name: str) -> list[type[Any]]:
    """Imported pydantic models of a name, newest first."""
    from pydantic import BaseModel

    found: list[type[Any]] = []
    stack: list[type[Any]] = [BaseModel]
    seen: set[type[Any]] = set()
    while stack:
        for cls in stack.pop().__subclasses__():
            if cls not in seen:
                seen.add(cls)
                stack.append(cls)
                if cls.__name__ == name and not getattr(cls, "rath_stand_in", False):
                    found.append(cls)
    return found[::-1]
