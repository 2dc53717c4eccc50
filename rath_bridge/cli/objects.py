"""``show DIGEST`` of what is no chunk: a blob, or a tree with what stands in it."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final, cast

import orjson
from rich.text import Text

from rath_bridge.cli.face import Face
from rath_bridge.cli.prompts import lines, read_items
from rath_bridge.errors import AmbiguousDigestError, CorruptStoreError, ErasedError, MissingObjectError, NotFoundError
from rath_bridge.model.digests import Digest
from rath_bridge.model.encoding import TreeRef
from rath_bridge.model.trees import children, read_list, read_map
from rath_bridge.store.protocol import Backend
from rath_bridge.verbs.inert import inert, one_line
from rath_bridge.verbs.words import size

_PREFIX: Final = re.compile(r"[0-9a-f]{8,64}\Z")


class NoSuchDigestError(NotFoundError):
    """Nothing in a store begins with these digits.

    Attributes:
        digest: What was asked for.
    """

    def __init__(self, digest: str) -> None:
        self.digest = digest
        hint = "" if len(digest) >= 8 else " (blobs and trees need 8 digits)"
        super().__init__(f"no chunk, blob or tree begins with {digest}{hint}. rath-bridge log NAME lists chunks")


def find_object(backend: Backend, prefix: str) -> tuple[Digest, bytes]:
    """Return the one blob, native record or tree node that begins with 8 or more hexadecimal digits.

    Raises:
        NoSuchDigestError, AmbiguousDigestError, ErasedError: None, several, or one that was erased.
    """
    prefix = prefix.lower()
    if not _PREFIX.match(prefix):
        raise NoSuchDigestError(prefix)
    find = getattr(backend, "find_objects", None)
    names: list[Digest] = [prefix] if len(prefix) == 64 else find(prefix) if find is not None else []
    if len(names) > 1:
        raise AmbiguousDigestError(prefix, names)
    try:
        return names[0], backend.objects(names)[names[0]]
    except (IndexError, MissingObjectError):
        raise NoSuchDigestError(prefix) from None


def show_object(face: Face, name: Digest, data: bytes, *, full: bool, as_json: bool) -> None:
    """Print a blob or a tree: what stands in it, long texts cut unless ``full``."""
    found = _read(face.store.backend, name, data)
    if as_json:
        face.json({**found, "next_actions": face.next(f"show {name[:12]} --raw")})
        return
    face.line(("object  ", "head"), (name, "id"))
    face.line(("what    ", "head"), f"{found['what']}, {size(len(data))}")
    face.out.print()
    if "items" not in found:
        value = found.get("text") if "text" in found else found.get("value", found.get("bytes"))
        text = value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
        face.show(Text(inert(text if full else text[:4000], keep="\n\t") + ("" if full or len(text) <= 4000 else "… (--full)")))
        return
    for digest, message in zip(found["items"], found["messages"], strict=True):
        who, said = next(lines([message], full))
        face.show(Text.assemble((f"{digest[:8]}  ", "id"), (f"{who}: ", "head"), said))
    for key, digest in cast("Mapping[str, Digest]", found.get("entries", {})).items():
        face.line((f"{digest[:12]}  ", "id"), one_line(key, 200))


def _read(backend: Backend, name: Digest, data: bytes) -> dict[str, Any]:
    base: dict[str, Any] = {"digest": name, "size": len(data)}
    try:
        form, _, pairs = children(data, name)
        ref = TreeRef(name, len(pairs), "list" if form == "L" else "map")
        if form == "M":
            entries = {key: raw.hex() for key, raw in read_map(ref, backend.objects).items()}
            return {**base, "what": f"map of {len(entries)}", "items": [], "messages": [], "entries": entries}
        items = [raw.hex() for raw in read_list(ref, backend.objects)]
        held = backend.objects(dict.fromkeys(items))
        return {**base, "what": f"list of {len(items)}", "items": items, "messages": read_items([held[one] for one in items])}
    except (CorruptStoreError, MissingObjectError, ErasedError):
        pass  # a blob; or a tree of which something is gone: then its own bytes are all that can be told
    try:
        text = data.decode()
    except UnicodeDecodeError:
        told = read_items([data])
        if told[0]["role"] != "unknown":
            return {**base, "what": "message", "items": [name], "messages": told}
        return {**base, "what": "blob", "bytes": b64encode(data).decode()}
    try:
        return {**base, "what": "JSON", "value": orjson.loads(text)}
    except orjson.JSONDecodeError:
        return {**base, "what": "text", "text": text}
