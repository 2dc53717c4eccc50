"""Deterministic JSON with tagged escapes: the bytes that are hashed.

Plain JSON values stand as they are (keys sorted by their UTF-8 bytes, no spaces, UTF-8). What JSON
cannot hold exactly is one object with the key ``$rath``:

====================  =============================================================================
``int``               ``{"$rath": "int", "v": "0x20000000000000"}``: beyond 2**53 - 1, signed hex
``float``             ``{"$rath": "float", "v": "nan" | "inf" | "-inf"}``
``surrogates``        text with surrogates: ``v`` = base64 of its UTF-8, surrogates encoded like any code point
                      (not UTF-16, in which two surrogates in a row would come back as one character)
``bytes``             ``v`` = base64
``map``               an object with a key that is not text, or has lone surrogates, or is ``$rath``:
                      ``v`` = list of ``[key, value]``, sorted by the encoded key
``text``              text of 512 UTF-8 bytes and more, kept as a blob: ``digest``, ``size``
``blob`` ``tree``     a reference that is not read in with the body: ``digest`` and facts about it
====================  =============================================================================

``surrogates`` and ``bytes`` of 512 bytes and more carry ``digest`` and ``size`` in place of ``v`` as well. Every
reference uses the key ``digest``, so a reader can collect references without knowing the kind. Numbers are written
in the shortest
form that reads back equal (orjson's); nobody re-serialises: identity is over the bytes as they stand.
"""

from __future__ import annotations

import marshal
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import orjson

from rath_bridge.errors import DecodeError, EncodeError, in_words
from rath_bridge.model.digests import Digest, digest

INLINE_LIMIT: Final = 512
"""Text and bytes of this many bytes and more become blobs."""

MAX_DEPTH: Final = 200
"""Deepest nesting that is kept; deeper values are refused (JSON readers differ beyond it)."""

_MAX_INT: Final = 2**53 - 1

Blobs = dict[Digest, bytes]
Loader = Callable[[Iterable[Digest]], Mapping[Digest, bytes]]


@dataclass(frozen=True, slots=True)
class BlobRef:
    """A reference to bytes that are not read in with the body."""

    digest: Digest
    size: int
    """Bytes."""
    media_type: str | None = None

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"$rath": "blob", "digest": self.digest, "size": self.size}
        if self.media_type is not None:
            found["media_type"] = self.media_type
        return found


@dataclass(frozen=True, slots=True)
class TreeRef:
    """A reference to a tree: an ordered list, or a map, of digests (``model.trees``)."""

    digest: Digest
    count: int
    """Items in the list, or entries in the map."""
    form: str = "list"
    """``list`` or ``map``."""

    def to_json(self) -> dict[str, Any]:
        return {"$rath": "tree", "digest": self.digest, "count": self.count, "form": self.form}


@dataclass(frozen=True, slots=True)
class Encoded:
    """A value that was encoded before and is taken as it is: tools that are offered with every model call are the same bytes.

    Made by `encoded`; it brings no blobs.
    """

    data: bytes


def dumps(value: Any) -> bytes:
    """Serialise a value that is already escaped: sorted keys, UTF-8, no spaces."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def encode(value: Any, path: str = "body") -> tuple[bytes, Blobs]:
    """Encode ``value``; the second result holds the long texts and bytes that it refers to.

    Args:
        value: JSON values, any int, float and str, bytes, maps with any keys, `BlobRef`, `TreeRef`.
        path: What to call the root in errors.

    Raises:
        EncodeError: A value cannot be kept; the error names its path.
    """
    blobs: Blobs = {}
    return dumps(escape(value, blobs, path)), blobs


_SMALL: Final = (
    orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER | orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
)  # fmt: skip
_LONG: Final = re.compile(rb'"[^"]{%d}' % INLINE_LIMIT)
_FLAT: Final = 400
"""Bytes in which nothing is nested deeper than is kept."""


def encoded(value: Any) -> Any:
    """Encode a value that comes again and again; the value itself where it needs blobs, or holds what JSON cannot."""
    blobs: Blobs = {}
    try:
        data = dumps(escape(value, blobs, depth=_MARGIN))
    except EncodeError:
        return value
    return value if blobs or b"$rath" in data else Encoded(data)


_MARGIN: Final = 16
"""Levels of a body above what was encoded before."""


_PUT_IN: Final = frozenset({Encoded, TreeRef, BlobRef})


class _Spliced:
    """What `small` puts in that is no plain JSON type, and what of it `small` must not mistake for something else."""

    def __init__(self) -> None:
        self.size = self.dollars = self.nulls = 0

    def __call__(self, value: Any) -> Any:
        if type(value) is Encoded:
            self.size += len(value.data)
            self.dollars += value.data.count(b"$")
            self.nulls += value.data.count(b"null")
            return orjson.Fragment(value.data)
        if type(value) is TreeRef or type(value) is BlobRef:
            self.size += len(value.digest) + 36  # at least: no text of it becomes a blob
            self.dollars += 1
            return value.to_json()
        raise TypeError


def small(value: Any, *, plain: bool = False) -> bytes | None:
    """Encode a small value of plain JSON types in one step; None where `encode` has to look at what is in it.

    The same bytes as `encode` makes.

    Args:
        value: As for `encode`, or with values that were `encoded` before in it.
        plain: The caller knows that all types are JSON's own: no enum, no UUID, which would be taken for what they hold.
    """
    put_in = _Spliced()
    try:
        data = orjson.dumps(value, put_in, _SMALL)
        size = len(data) - put_in.size
        if (size >= INLINE_LIMIT and _long(data)) or data.count(b"$") != put_in.dollars or data.count(b"null") != put_in.nulls:
            return None  # a blob, perhaps; "$rath"; NaN, which is written as null
        if size >= _FLAT and data.count(b"[") + data.count(b"{") > MAX_DEPTH - _MARGIN:
            return None
        if not plain:
            marshal.dumps(_bare(value) if put_in.size else value)  # refuses whatever is not exactly of a built-in type
    except (orjson.JSONEncodeError, ValueError):
        return None
    return data


def _bare(value: Any) -> Any:
    """A map without what `_Spliced` puts in."""
    if type(value) is not dict:
        return value
    return {key: one for key, one in cast("dict[Any, Any]", value).items() if type(one) not in _PUT_IN}


def _long(data: bytes) -> bool:
    """Tell whether a text in some JSON may be as long as a blob."""
    return b"\\" in data or _LONG.search(data) is not None


def spliced(value: Any) -> bytes | None:
    """Encode what `small` has taken, with texts added to it; None where one of them is no plain text."""
    try:
        return orjson.dumps(value, _Spliced(), _SMALL)
    except orjson.JSONEncodeError:
        return None


def escape(value: Any, blobs: Blobs, path: str = "body", depth: int = 0) -> Any:
    """Return ``value`` with everything that JSON cannot hold replaced by tagged escapes."""
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is str:
        return value if len(value) < 128 and value.isascii() else _escape_text(value, blobs)
    if kind is int:
        return value if -_MAX_INT <= value <= _MAX_INT else {"$rath": "int", "v": hex(value)}
    if value is None or kind is bool:
        return value
    if kind is float:
        return value if value - value == 0.0 else {"$rath": "float", "v": str(value)}
    if depth > MAX_DEPTH:
        raise EncodeError(path[:200], f"a value nested deeper than {MAX_DEPTH} levels", "flatten it, or keep it as bytes")
    if kind is dict:
        return _escape_map(value, blobs, path, depth)
    if kind is list or kind is tuple:
        return [
            item if type(item) is str and len(item) < 128 and item.isascii() else escape(item, blobs, f"{path}[{i}]", depth + 1)
            for i, item in enumerate(value)
        ]
    if kind is bytes:
        return _escape_bytes("bytes", value, blobs)
    if kind is BlobRef or kind is TreeRef:
        return value.to_json()
    if kind is Encoded:
        return orjson.Fragment(value.data)
    if isinstance(value, Mapping):
        return _escape_map(dict(value), blobs, path, depth)  # pyright: ignore[reportUnknownArgumentType]
    raise EncodeError(path, f"a {kind.__module__}.{kind.__qualname__}")


def _escape_text(value: str, blobs: Blobs) -> Any:
    try:
        data = value.encode()
    except UnicodeEncodeError:
        return _escape_bytes("surrogates", value.encode("utf-8", "surrogatepass"), blobs)
    if len(data) < INLINE_LIMIT:
        return value
    name = digest(data)
    blobs[name] = data
    return {"$rath": "text", "digest": name, "size": len(data)}


def _escape_bytes(tag: str, data: bytes, blobs: Blobs) -> Any:
    if len(data) < INLINE_LIMIT:
        return {"$rath": tag, "v": b64encode(data).decode()}
    name = digest(data)
    blobs[name] = data
    return {"$rath": tag, "digest": name, "size": len(data)}


def _escape_map(value: dict[Any, Any], blobs: Blobs, path: str, depth: int) -> Any:
    for key in value:  # all keys first: a value that was escaped twice on every level would cost 2 ** depth
        if type(key) is not str or key == "$rath" or not (key.isascii() or _is_unicode(key)):
            break
    else:
        found: dict[str, Any] = {}
        for key, item in value.items():  # leaves without a call
            kind: type[Any] = type(item)  # pyright: ignore[reportUnknownVariableType]
            if kind is str:
                found[key] = item if len(item) < 128 and item.isascii() else _escape_text(item, blobs)
            elif item is None or kind is bool or (kind is int and -_MAX_INT <= item <= _MAX_INT):
                found[key] = item
            else:
                found[key] = escape(item, blobs, f"{path}.{key}", depth + 1)
        return found
    pairs = [
        (escape(key, blobs, f"{path}.keys()", depth + 3), escape(item, blobs, f"{path}[{key!r}]", depth + 3))
        for key, item in value.items()  # three levels deeper: the escape, its list, the pair
    ]
    pairs.sort(key=lambda pair: (dumps(pair[0]), dumps(pair[1])))  # two NaN keys are told apart by their values
    return {"$rath": "map", "v": [list(pair) for pair in pairs]}


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def decode(data: bytes, load: Loader | None = None, place: str = "body") -> Any:
    """Read encoded bytes back into values equal to those that were given (tuples come back as lists).

    Args:
        data: What `encode` returned.
        load: Fetches blobs by digest; without it, long texts stay `BlobRef` values.
        place: What to call the bytes in errors.

    Raises:
        DecodeError: The bytes are not JSON, or hold an escape that is not of this format.
        MissingObjectError: Raised by ``load`` for a blob that is gone.
    """
    value = parsed(data, place)
    if b'"$rath"' not in data:
        return value
    blobs: Mapping[Digest, bytes] | None = None
    if load is not None:
        found = set(references(value, loadable=True))
        blobs = load(found) if found else {}
    try:
        return _unescape(value, blobs, place)
    except RecursionError as error:
        raise DecodeError(place, f"nested deeper than {MAX_DEPTH} levels") from error


def parsed(data: bytes, place: str = "body") -> Any:
    """Read encoded bytes as JSON, escapes in place.

    Raises:
        DecodeError: They are not JSON.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise DecodeError(place, f"not JSON ({error})") from error


_LOADED: Final = ("text", "surrogates", "bytes")


def references(value: Any, *, loadable: bool = False) -> Iterable[Digest]:
    """Yield every digest that an *escaped* value refers to.

    Args:
        value: Parsed JSON of a body, escapes in place.
        loadable: Only those that are read in with the body (``text``, ``surrogates``, ``bytes``).
    """
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        kind: type[Any] = type(item)  # pyright: ignore[reportUnknownVariableType]
        if kind is list:
            stack.extend(item)
        elif kind is dict:
            tag = item.get("$rath")
            if tag is None:
                stack.extend(item.values())
            elif tag == "map":
                stack.append(item.get("v"))
            elif type(name := item.get("digest")) is str and (not loadable or tag in _LOADED):
                yield name


def _unescape(value: Any, blobs: Mapping[Digest, bytes] | None, place: str) -> Any:
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is list:
        return [_unescape(item, blobs, place) for item in value]
    if kind is not dict:
        return value
    if "$rath" not in value:
        return {key: _unescape(item, blobs, place) for key, item in value.items()}
    tag = value["$rath"]
    try:
        if tag == "int":
            return int(value["v"], 16)
        if tag == "float":
            return float(value["v"])
        if tag == "map":
            return {_key(_unescape(key, blobs, place)): _unescape(item, blobs, place) for key, item in value["v"]}
        if tag == "blob":
            return BlobRef(value["digest"], value["size"], value.get("media_type"))
        if tag == "tree":
            return TreeRef(value["digest"], value["count"], value.get("form", "list"))
        if tag in _LOADED:
            if "v" in value:
                raw = b64decode(value["v"])
            elif blobs is None:
                return BlobRef(value["digest"], value["size"], None)
            else:
                raw = blobs[value["digest"]]
            if tag == "bytes":
                return raw
            return raw.decode() if tag == "text" else raw.decode("utf-8", "surrogatepass")
    except (KeyError, TypeError, ValueError) as error:
        raise DecodeError(place, f"a malformed {tag!r} escape ({in_words(error)})") from error
    return value  # an escape of a later version: kept and shown as it is


def _key(key: Any) -> Any:
    return tuple(map(_key, key)) if isinstance(key, list) else key  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
