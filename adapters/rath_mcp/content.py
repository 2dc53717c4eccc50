"""Content blocks of MCP <-> neutral parts, exact in both directions.

Source: ``ContentBlock`` in the MCP schema (2025-11-25 and 2026-07-28): text, image, audio, resource_link, resource. A block that
a part cannot hold exactly (an unknown type, base64 with line breaks, clashing keys) is kept whole as a part ``mcp_block``.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from typing import Any, Final, cast

from rath_mcp.frames import mapping

Json = dict[str, Any]

WHOLE: Final = "mcp_block"
_MEDIA: Final = ("image", "audio", "video")
_PART_KEYS: Final = {"text": {"content"}, "blob": {"modality", "content", "mime_type"}, "uri": {"modality", "uri", "mime_type"}}


def part_of(block: Any) -> Json:
    """Return a content block as a part (the JSON of `rath_bridge.model.parts`, media as bytes)."""
    if isinstance(block, Mapping):
        data = dict(cast("Mapping[str, Any]", block))
        found = _part(data)
        if found is not None and block_of(found) == data:
            return found
        return {"type": WHOLE, "block": data}
    return {"type": WHOLE, "block": block}


def _part(block: Json) -> Json | None:
    kind = block.get("type")
    rest = {key: value for key, value in block.items() if key != "type"}
    if kind == "text":
        return _with(rest, "text", {"text": "content"})
    if kind in ("image", "audio"):
        data = from_base64(rest.get("data"))
        return None if data is None else _with({**rest, "data": data}, "blob", {"data": "content", "mimeType": "mime_type"}, kind)
    if kind == "resource_link":
        modality = modality_of(rest.get("mimeType"))
        return _with(rest, "uri", {"uri": "uri", "mimeType": "mime_type"}, modality)
    if kind == "resource" and isinstance(rest.get("resource"), Mapping):
        resource = dict(rest["resource"])
        data = from_base64(resource.get("blob"))
        return {"type": "resource", **rest, "resource": resource if data is None else {**resource, "blob": data}}
    return None


def _with(rest: Json, kind: str, names: Mapping[str, str], modality: str | None = None) -> Json | None:
    extra = {key: value for key, value in rest.items() if key not in names}
    if extra.keys() & _PART_KEYS[kind]:
        return None
    found = {**extra, "type": kind, **{names[key]: rest[key] for key in names if key in rest}}
    return found if modality is None else {**found, "modality": modality}


def block_of(part: Mapping[str, Any]) -> Any:
    """Return a part as a content block; the inverse of `part_of`, and what MCP can best say of other parts.

    A part without a counterpart (``reasoning``, ``tool_call`` ...) is returned as it is: ask `holds` first.
    """
    kind = part.get("type")
    rest = {key: value for key, value in part.items() if key not in ("type", "modality")}
    if kind == WHOLE and rest.keys() == {"block"}:
        return rest["block"]
    if kind == "text":
        return {"type": "text", **_renamed(rest, {"content": "text"})}
    if kind == "blob":
        data = rest.get("content")
        encoded = {**rest, "content": b64encode(data).decode()} if isinstance(data, bytes) else rest
        block = _renamed(encoded, {"content": "data", "mime_type": "mimeType"})
        return {"type": "audio" if part.get("modality") == "audio" else "image", **block}
    if kind == "uri":
        return {"type": "resource_link", **_renamed(rest, {"mime_type": "mimeType"})}
    if kind == "resource" and isinstance(rest.get("resource"), Mapping):
        resource = dict(cast("Mapping[str, Any]", rest["resource"]))
        if isinstance(resource.get("blob"), bytes):
            resource["blob"] = b64encode(resource["blob"]).decode()
        return {"type": "resource", **rest, "resource": resource}
    return dict(part)


def holds(part: Mapping[str, Any]) -> bool:
    """Tell whether MCP has a content block for a part."""
    kind = part.get("type")
    if kind == "blob":
        return part.get("modality") in ("image", "audio") and "mime_type" in part
    return kind in ("text", "uri", "resource", WHOLE)


def _renamed(rest: Mapping[str, Any], names: Mapping[str, str]) -> Json:
    return {names.get(key, key): value for key, value in rest.items()}


def modality_of(mime_type: Any) -> str:
    """Return ``image``, ``audio`` or ``video`` for such a media type, else ``file``."""
    major = mime_type.partition("/")[0] if isinstance(mime_type, str) else ""
    return major if major in _MEDIA else "file"


def from_base64(text: Any) -> bytes | None:
    """Decode base64 that reads back to the same text; None for all else."""
    if not isinstance(text, str):
        return None
    try:
        data = b64decode(text, validate=True)
    except (Base64Error, ValueError):
        return None
    return data if b64encode(data).decode() == text else None


def neutral_result(result: Any) -> Any:
    """Return a wire result with its content blocks as parts; every other field stays where it is."""
    data = mapping(result)
    if isinstance(data.get("content"), list):
        return {**data, "content": [part_of(block) for block in data["content"]]}
    return result


def wire_result(result: Any) -> Any:
    """Inverse of `neutral_result`."""
    data = mapping(result)
    if isinstance(data.get("content"), list):
        return {**data, "content": [block_of(part) for part in data["content"]]}
    return result


def text_of(result: Any) -> str:
    """Return all text blocks of a wire result together."""
    blocks: Any = mapping(result).get("content")
    texts: list[Any] = [mapping(block).get("text") for block in cast("list[Any]", blocks)] if isinstance(blocks, list) else []
    return "\n".join(text for text in texts if isinstance(text, str))


def too_deep(value: Any, limit: int = 150) -> bool:
    """Tell whether a value nests deeper than a chunk's body can keep; its frame is kept all the same."""
    stack: list[tuple[Any, int]] = [(value, 0)]
    while stack:
        item, depth = stack.pop()
        if depth > limit:
            return True
        inner: Any = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        stack += [(one, depth + 1) for one in inner if isinstance(one, dict | list)]
    return False
