"""Values of bodies as plain JSON for scripts: what JSON cannot hold stays a tagged escape, long texts are read in."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, cast

from rath_bridge.model.digests import Digest
from rath_bridge.model.encoding import escape


def jsonable(value: Any) -> Any:
    """Return ``value`` with the escapes of the format (``{"$rath": "bytes", "v": …}``) and long texts in place."""
    blobs: dict[Digest, bytes] = {}
    return _inline(escape(value, blobs), blobs)


def _inline(value: Any, blobs: dict[Digest, bytes]) -> Any:
    if isinstance(value, list):
        return [_inline(item, blobs) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    found = cast("dict[str, Any]", value)
    data = blobs.get(found.get("digest", "")) if "$rath" in found else None
    if data is None:
        return {key: _inline(item, blobs) for key, item in found.items()}
    return data.decode() if found["$rath"] == "text" else {"$rath": found["$rath"], "v": b64encode(data).decode()}
