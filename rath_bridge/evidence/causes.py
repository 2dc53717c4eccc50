"""What of a packet's findings follows from another one: a file that was changed shows in what leans on it, too.

Nothing is left out: a finding that another one explains may have a cause of its own, which shows once the first is mended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from rath_bridge.evidence import layout
from rath_bridge.verbs.fsck import Finding

_LEANS_ON: Final = {
    layout.CHUNKS: (layout.BODIES, layout.REFS),
    layout.BODIES: (layout.CHUNKS,),
    layout.REFS: (layout.CHUNKS,),
    layout.INDEX: (layout.CHUNKS,),
    layout.MANIFEST: (layout.REFS, layout.CHUNKS, layout.BODIES),
}
"""File to those whose damage shows as a fault of it."""
_OBJECTS: Final = ("blobs/", "trees/")


def explained(sums: Iterable[Finding], found: Sequence[Finding]) -> list[Finding]:
    """Return what was found, each with the file (or chunk) whose own finding explains it, where there is one.

    Args:
        sums: What the list of sums shows: files that were changed, dropped or added.
        found: Everything else.
    """
    damaged = {one.object: None for one in sums}
    node = next((name for name in damaged if name.startswith("trees/")), "")
    return [replace(one, because=_cause(one, damaged, node) or one.because) for one in found]


def _cause(one: Finding, damaged: dict[str, None], node: str) -> str:
    return next((name for name in _looked_at(one, node) if name in damaged), "")


def _looked_at(one: Finding, node: str) -> Iterator[str]:
    """The files that may explain a finding: its own first, then what that leans on."""
    own = one.path.partition(":")[0] or one.object
    yield from (f"{kind}{one.object}" for kind in _OBJECTS)
    yield own
    yield from _LEANS_ON.get(own, ())
    if own.startswith(_OBJECTS):
        yield from (layout.BODIES, layout.CHUNKS, node)


def by_cause(found: Sequence[Finding]) -> list[Finding]:
    """Return findings in their order, each followed by those that it explains."""
    standing = {one.object for one in found if not one.because}
    follows: dict[str, list[Finding]] = {}
    for one in found:
        if one.because in standing:
            follows.setdefault(one.because, []).append(one)
    ordered: list[Finding] = []
    for one in found:
        if one.because not in standing:
            ordered += [one, *follows.pop(one.object, ())]
    return ordered
