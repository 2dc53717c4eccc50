"""Message parts: the OpenTelemetry GenAI message schema, with its words.

Source: ``gen_ai.input.messages`` / ``gen_ai.output.messages`` of open-telemetry/semantic-conventions-genai. One difference:
the content of a `BlobPart` is bytes here (kept once, as a blob), base64 only where a format demands it.
Keys that a part does not name are kept in ``extra`` and written back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, cast

from rath_bridge.errors import DecodeError, EncodeError
from rath_bridge.model.encoding import BlobRef

_NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text for people or models."""

    type: ClassVar[str] = "text"
    content: str
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ReasoningPart:
    """A model's reasoning, where it is shown; providers' signatures stand in ``extra``."""

    type: ClassVar[str] = "reasoning"
    content: str
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """A model asks for a tool."""

    type: ClassVar[str] = "tool_call"
    id: str | None
    name: str
    arguments: Any
    """Parsed where it was JSON; the text itself where it was not."""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ToolCallResponsePart:
    """What a tool answered. The key ``result`` is read as ``response`` (the schema and its prose differ)."""

    type: ClassVar[str] = "tool_call_response"
    id: str | None
    response: Any
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class BlobPart:
    """Media inside the message."""

    type: ClassVar[str] = "blob"
    modality: str
    """``image``, ``video``, ``audio`` or ``document``."""
    content: bytes
    mime_type: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class FilePart:
    """Media by a provider's file id."""

    type: ClassVar[str] = "file"
    modality: str
    file_id: str
    mime_type: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class UriPart:
    """Media by address."""

    type: ClassVar[str] = "uri"
    modality: str
    uri: str
    mime_type: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class GenericPart:
    """Any other part (``server_tool_call`` among them), kept as it came."""

    type: str
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


Part = TextPart | ReasoningPart | ToolCallPart | ToolCallResponsePart | BlobPart | FilePart | UriPart | GenericPart

_KNOWN: Final[dict[str, tuple[type[Any], tuple[str, ...]]]] = {
    "text": (TextPart, ("content",)),
    "reasoning": (ReasoningPart, ("content",)),
    "tool_call": (ToolCallPart, ("id", "name", "arguments")),
    "tool_call_response": (ToolCallResponsePart, ("id", "response")),
    "blob": (BlobPart, ("modality", "content", "mime_type")),
    "file": (FilePart, ("modality", "file_id", "mime_type")),
    "uri": (UriPart, ("modality", "uri", "mime_type")),
}
_OPTIONAL: Final = frozenset({"id", "mime_type"})


def shortened(text: str, limit: int = 60) -> str:
    """Return a text for a ``repr``: quoted, cut, nothing in it that a terminal obeys."""
    return repr(text if len(text) <= limit else f"{text[: limit - 1]}…")


def words_of(parts: Any) -> str:
    """Return what parts say for a ``repr``: their texts, else their types. Works on parts and on their JSON, and never raises."""
    if not isinstance(parts, (list, tuple)):
        return ""
    found = [
        cast("Mapping[str, Any]", one)
        if isinstance(one, Mapping)
        else {"type": getattr(one, "type", "…"), "content": getattr(one, "content", None)}
        for one in cast("list[Any]", parts)[:20]
    ]
    texts = [one.get("content") for one in found if one.get("type") == "text"]
    said = "".join(text if isinstance(text, str) else "…" for text in texts)
    return said or ", ".join(str(one.get("type")) for one in found)


def known_parts() -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Yield each part type of the schema with its required and its optional keys."""
    for name, (_, keys) in _KNOWN.items():
        yield name, tuple(key for key in keys if key not in _OPTIONAL), tuple(key for key in keys if key in _OPTIONAL)


def part_to_json(part: Part) -> dict[str, Any]:
    """Return the part as a JSON object; absent optional keys are left out.

    Raises:
        EncodeError: It is no part, or could not be read again.
    """
    if type(part) is TextPart and not part.extra and type(part.content) is str:
        return {"type": "text", "content": part.content}
    if not isinstance(part, Part):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise EncodeError("body.parts", f"a {type(part).__qualname__}", "give parts of rath_bridge.model.parts, or a text alone")
    taken = {"type"} if type(part) is GenericPart else {"type", *_KNOWN[part.type][1]}
    if not taken.isdisjoint(part.extra):
        raise EncodeError(
            "body.parts", f"a {part.type!r} part with {sorted(taken & set(part.extra))} in 'extra'", "rename what is extra"
        )
    if isinstance(part, (TextPart, ReasoningPart)) and type(part.content) not in (str, BlobRef):
        raise EncodeError(f"the content of a {part.type!r} part", f"a {type(part.content).__qualname__}", "give a text")
    found: dict[str, Any] = {**part.extra, "type": part.type}
    if type(part) is GenericPart:
        try:
            part_from_json(found)
        except DecodeError as error:
            raise EncodeError("body.parts", f"a generic part that cannot be read again ({error.problem})") from error
        return found
    for name in _KNOWN[part.type][1]:
        value = getattr(part, name)
        if value is not None or name not in _OPTIONAL:
            found[name] = value
    return found


def foreign_part(value: Mapping[str, Any]) -> GenericPart:
    """Keep a part of another schema as it came: under its own type, or whole as ``foreign`` where that type is one of ours.

    Args:
        value: An object with a ``type``, which says something that no other part can hold.
    """
    kind = str(value["type"])
    if kind in _KNOWN:
        return GenericPart("foreign", {"value": dict(value)})
    return GenericPart(kind, {key: one for key, one in value.items() if key != "type"})


def part_from_json(value: Any, place: str = "part") -> Part:
    """Read a part; an unknown type is a `GenericPart`, unknown keys go to ``extra``.

    Raises:
        DecodeError: The value is no object with a ``type``, or a required key is missing.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):  # pyright: ignore[reportUnknownMemberType]
        raise DecodeError(place, "a message part is an object with a 'type'")
    data: dict[str, Any] = dict(value)  # pyright: ignore[reportUnknownArgumentType]
    name: str = data.pop("type")
    known = _KNOWN.get(name)
    if known is None:
        return GenericPart(name, data)
    cls, keys = known
    if name == "tool_call_response" and "response" not in data and "result" in data:
        data["response"] = data.pop("result")
    missing = [key for key in keys if key not in data and key not in _OPTIONAL]
    if missing:
        raise DecodeError(place, f"a {name!r} part lacks {', '.join(missing)}")
    fields = {key: data.pop(key) for key in keys if key in data}
    if "id" in keys:
        fields.setdefault("id", None)
    return cls(**fields, extra=data)
