"""Foreign JSON, looked at with care: what is not of the type that a format gives it is an error that names its path."""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, cast

from rath_bridge.errors import DecodeError
from rath_bridge.model.parts import BlobPart, Part, TextPart, UriPart


def table(value: Any, place: str, path: str) -> Mapping[str, Any]:
    """Return an object.

    Raises:
        DecodeError: It is something else.
    """
    if not isinstance(value, Mapping):
        raise DecodeError(place, f"an object belongs here, not {_kind(value)}", path)
    return cast("Mapping[str, Any]", value)


def rows(value: Any, place: str, path: str) -> list[Any]:
    """Return a list; an absent one is empty.

    Raises:
        DecodeError: It is something else.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise DecodeError(place, f"a list belongs here, not {_kind(value)}", path)
    return cast("list[Any]", value)


def text(value: Any, place: str, path: str) -> str:
    """Return a text.

    Raises:
        DecodeError: It is something else.
    """
    if not isinstance(value, str):
        raise DecodeError(place, f"a text belongs here, not {_kind(value)}", path)
    return value


def text_or_none(value: Any, place: str, path: str) -> str | None:
    """Return a text, or None where there is none.

    Raises:
        DecodeError: It is something else.
    """
    return None if value is None else text(value, place, path)


def number(value: Any) -> int | None:
    """Return a count of tokens, or None where there is none that could be one."""
    return value if type(value) is int and value >= 0 else None


def arguments(value: Any) -> Any:
    """Return a call's arguments: parsed where they are a JSON text, the text itself where they are not."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def moment(value: Any) -> int | None:
    """Return microseconds since 1970 of an ISO 8601 text (UTC where it names no zone), None where it is none."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    try:
        if found.tzinfo is None:
            found = found.replace(tzinfo=UTC)
        elapsed = found - datetime(1970, 1, 1, tzinfo=UTC)
    except OverflowError:
        return None
    micros = (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds
    return micros if -62_135_596_800_000_000 <= micros < 253_402_300_800_000_000 else None


def content(value: Any, place: str, path: str, part: Callable[[Any, str, str], Part]) -> list[Part]:
    """Return the parts of a message's content: none, a text, or a list of which ``part`` reads one.

    Raises:
        DecodeError: It is something else.
    """
    if value is None:
        return []
    if isinstance(value, str):
        return [TextPart(value)]
    return [part(one, place, f"{path}[{at}]") for at, one in enumerate(rows(value, place, path))]


def media(modality: str, url: str, extra: Mapping[str, Any]) -> Part:
    """Return an address as a part; of a ``data:`` address in base64, its bytes."""
    header, comma, data = url.removeprefix("data:").partition(",")
    if url.startswith("data:") and comma and header.endswith(";base64"):
        found = decoded(data)
        if found is not None:
            return BlobPart(modality, found, header.removesuffix(";base64") or None, extra)
    return UriPart(modality, url, None, extra)


def decoded(base64: str) -> bytes | None:
    """Return the bytes of a base64 text, None where it is none."""
    try:
        return b64decode(base64, validate=True)
    except (Base64Error, ValueError):
        return None


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", int: "a number", float: "a number"}
    return "nothing" if value is None else names.get(cast("type[Any]", type(value)), type(value).__name__)
