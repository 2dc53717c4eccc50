"""Which versions of frameworks a record was made with, where others are installed now."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata
from typing import Any, Final

import orjson

from rath_bridge.plugins import adapters
from rath_bridge.replay.held import Held

_RELEASE: Final = re.compile(r"\d+(\.\d+)+")
"""A release of a package; what MCP records is a version of the protocol."""


def versions(held: Held) -> Iterator[str]:
    """Yield a sentence for each framework of which another version is installed than the one that was recorded."""
    recorded: dict[str, set[str]] = {}
    for origin in {chunk.origin for chunk in held.chunks if chunk.origin and chunk.position > held.after}:
        facts: Any = orjson.loads(origin)
        if isinstance(facts.get("framework"), str) and _RELEASE.match(str(facts.get("version"))):
            recorded.setdefault(facts["framework"], set()).add(facts["version"])
    for framework, then in sorted(recorded.items()):
        now = _installed(framework)
        others = sorted(then - {now})
        if now is not None and others:
            yield f"recorded with {framework} {', '.join(others)}, replayed with {now}: what differs may be the framework's own change"


def _installed(framework: str) -> str | None:
    adapter: Any = adapters().get(framework)
    for distribution in getattr(adapter, "SUPPORTED", {}):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None
