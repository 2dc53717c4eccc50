"""JSON as it goes home: bytes that read back equal, and the native records of a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, cast

import orjson

from rath_bridge.errors import DecodeError, MissingObjectError
from rath_bridge.model.chunk import Chunk, Native
from rath_bridge.model.digests import Digest, digest
from rath_bridge.session import Session


def to_bytes(value: Any, place: str = "document") -> bytes:
    """Return JSON bytes that read back equal: key order kept, any int, float and str.

    Raises:
        DecodeError: Something in it is no JSON value.
    """
    try:
        data = orjson.dumps(value)
        if b"null" not in data:  # orjson writes NaN as null
            return data
    except (TypeError, orjson.JSONEncodeError, RecursionError):
        pass
    try:
        return json.dumps(value, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise DecodeError(place, f"not JSON ({error})") from error


def from_bytes(data: bytes, place: str = "native record") -> Any:
    """Inverse of `to_bytes`.

    Raises:
        DecodeError: Not JSON.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DecodeError(place, f"not JSON ({error})") from error


def pretty(value: Any) -> bytes:
    """Return a document as a file has it: indented, in UTF-8, with a newline at the end."""
    return text_bytes(json.dumps(value, ensure_ascii=False, indent=2) + "\n", lambda: json.dumps(value, indent=2) + "\n")


def lines(values: Iterable[Any]) -> bytes:
    """Return one JSON value a line."""
    found: list[bytes] = []
    for value in values:
        text = json.dumps(value, ensure_ascii=False) + "\n"
        found.append(text_bytes(text, lambda value=value: json.dumps(value) + "\n"))
    return b"".join(found)


def text_bytes(text: str, escaped: Any) -> bytes:
    """Return UTF-8, or what ``escaped()`` gives where the text holds half of a surrogate pair."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return cast("str", escaped()).encode()


def key(item: Any) -> Digest:
    """Comparison key of an item: its JSON with sorted keys."""
    try:
        return digest(orjson.dumps(item, option=orjson.OPT_SORT_KEYS))
    except (TypeError, orjson.JSONEncodeError):
        return digest(json.dumps(item, sort_keys=True, separators=(",", ":")).encode())


def json_text(value: Any) -> str:
    """Return a value as compact JSON text; what JSON cannot hold becomes its text."""
    return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))


def plain(value: Any) -> Any:
    """Return a value of a body as JSON values: bytes and references become texts, odd keys too."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {k if isinstance(k, str) else str(k): plain(v) for k, v in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, bytes):
        from base64 import b64encode

        return b64encode(value).decode()
    return str(value)


def is_json(value: Any) -> bool:
    """Tell whether a value is made of JSON values alone, so that `plain` keeps it."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Mapping):
            found = cast("Mapping[Any, Any]", item)
            if not all(isinstance(k, str) for k in found):
                return False
            stack.extend(found.values())
        elif isinstance(item, list):
            stack.extend(cast("list[Any]", item))
        elif isinstance(item, float):
            if not isfinite(item):
                return False
        elif item is not None and not isinstance(item, bool | int | str):
            return False
    return True


def record(framework: str, version: str, codec: str, value: Any, place: str) -> Native:
    """Return a JSON value as a native record."""
    return Native(framework, version, codec, to_bytes(value, place))


def homes(session: Session, chunks: Iterable[Chunk], framework: str) -> dict[Digest, tuple[str, Any]]:
    """Read the native records of a format, in one go.

    Returns:
        Chunk id to codec and parsed JSON. A record that was erased is left out: its chunk is translated instead.
    """
    wanted: dict[Digest, tuple[str, Digest]] = {}
    for chunk in chunks:
        ref = chunk.native_ref if chunk.body_bytes is not None else None
        if ref is not None and ref["framework"] == framework:
            wanted[chunk.id] = (ref["codec"], ref["digest"])
    if not wanted:
        return {}
    names = {name for _, name in wanted.values()}
    backend = session.store.backend
    try:
        found = dict(backend.objects(names))
    except MissingObjectError:
        found: dict[Digest, bytes] = {}
        for name in names:
            try:
                found.update(backend.objects([name]))
            except MissingObjectError:
                continue
    return {
        chunk: (codec, from_bytes(found[name], f"chunk {chunk[:16]}")) for chunk, (codec, name) in wanted.items() if name in found
    }
