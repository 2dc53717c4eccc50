"""What a chunk says, and where else the store says the same: erasing one chunk leaves the same words in others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, cast

from rath_bridge.errors import RathError
from rath_bridge.maintenance.searching import find_text
from rath_bridge.maintenance.uses import Use, where_used
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.store.protocol import Reader

SHORTEST: Final = 8
"""Characters: shorter texts ("yes", "Hello.") stand everywhere by chance, and are not looked for."""
_SAYS: Final = {
    "message": ("parts",), "tool_call": ("arguments",), "tool_result": ("result", "error"), "inference": ("output",), "note": ("text",),
    "handoff": ("input",), "approval": ("subject", "reason"), "memory": ("query", "items"), "error": ("message",),
    "guardrail": ("output",),
}  # fmt: skip
"""Fields in which somebody says something; the others are names and structure."""
_NAMES: Final = frozenset({"type", "role", "name", "model", "status", "mime_type", "modality", "media_type", "schema"})


def texts_of(chunk: Chunk) -> frozenset[str]:
    """Return the texts of a chunk that are long enough to be known again; none where it is erased or cannot be read."""
    try:
        values = chunk.values
    except RathError:
        return frozenset()
    found: set[str] = set()
    stack: list[Any] = [values.get(name) for name in _SAYS.get(chunk.kind, ())]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            if len(value) >= SHORTEST:
                found.add(value)
        elif isinstance(value, Mapping):
            entries = cast("Mapping[Any, Any]", value)
            stack += [one for key, one in entries.items() if key not in _NAMES and not str(key).endswith("id")]
        elif isinstance(value, (list, tuple)):
            stack += cast("list[Any]", value)
    return frozenset(found)


def echoes(reader: Reader, texts: Iterable[str], without: Collection[Digest] = ()) -> tuple[Use, ...]:
    """Return every place that says one of some texts: in its body, a long text, a native record or an item of a state.

    Args:
        reader: The store, which is read as a whole.
        texts: What to look for.
        without: Chunks that are not meant.
    """
    wanted = tuple(texts)
    if not wanted:
        return ()
    hits = find_text(reader, *wanted)
    return tuple(place for place in where_used(reader, hits.chunks, hits.objects).places if place.chunk not in without)
