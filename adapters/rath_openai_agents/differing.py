"""Where a model call differs from the one on record, in words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rath_bridge.model.digests import Digest
from rath_bridge.replay.divergence import Divergence
from rath_openai_agents.reading import Reply

_SHOWN: Final = 200
"""Characters of each side that a divergence shows."""


def plain_request(request: Mapping[str, Any]) -> Any:
    """Return a request in a form that compares."""
    return json.loads(json.dumps(dict(request), sort_keys=True, default=str))


def difference(
    title: str, items: Sequence[Mapping[str, Any]], keys: Sequence[Digest], request: Mapping[str, Any], wanted: Reply
) -> Divergence:
    """Name the first thing in which a request differs from the one on record."""
    for i, (one, other) in enumerate(zip(items, wanted.items, strict=False)):
        if keys[i] != wanted.keys[i]:
            return Divergence(f"{title}: input[{i}]", short(one), short(other), wanted.chunk)
    if len(items) != len(wanted.items):
        more = max(items, wanted.items, key=len)[min(len(items), len(wanted.items))]
        what = f"{title}: input, of which one side has more: {short(more)}"
        return Divergence(what, f"{len(items)} items", f"{len(wanted.items)} items", wanted.chunk)
    ours, theirs = plain_request(request), plain_request(wanted.body.request)
    name = next(name for name in sorted({*ours, *theirs}) if ours.get(name) != theirs.get(name))
    return Divergence(f"{title}: {name}", short(ours.get(name)), short(theirs.get(name)), wanted.chunk)


def title_of(one: Reply) -> str:
    """Return what a recorded model call is called."""
    return f"model call {one.chunk[:12]}" + (f" of {one.body.agent}" if one.body.agent else "")


def short(value: Any) -> str:
    """Return a value as far as a divergence shows it."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
