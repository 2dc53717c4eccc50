"""Who records, and with which version of the SDK."""

from __future__ import annotations

from functools import lru_cache
from importlib import metadata

from rath_bridge.model.encoding import dumps
from rath_openai_agents.items import FRAMEWORK


@lru_cache(maxsize=1)
def version() -> str:
    """Return the installed version of the SDK; ``unknown`` without it (items can be read all the same)."""
    try:
        return metadata.version("openai-agents")
    except metadata.PackageNotFoundError:
        return "unknown"


@lru_cache(maxsize=1)
def signature() -> str:
    """Return `origin` as the text that stands in envelopes."""
    return dumps(origin()).decode()


def origin() -> dict[str, str]:
    """Who records: for the envelope."""
    return {"adapter": "rath_openai_agents", "framework": FRAMEWORK, "version": version()}
