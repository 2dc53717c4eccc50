"""What a translation lost, and what it handed over: `LossReport`, its manifest, and the alignment of what comes back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, cast

from rath_bridge.model.digests import Digest

_NUMBER: Final = re.compile(r"\[\d+\]")


@dataclass(frozen=True, slots=True)
class Loss:
    """One thing that the target cannot hold."""

    chunk: Digest | None
    """The chunk it stands in."""
    path: str
    """Where in the body: ``parts[1]``, ``name`` ..."""
    what: str
    """What did not come along, and what stands in its place."""


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One item that was handed over."""

    position: int
    """Place in the native list, from 0."""
    chunk: Digest
    """The message chunk that it came from."""
    digest: Digest
    """The adapter's comparison key of the encoded item: ids and defaults that the framework may add are left out of it."""
    stands_for: tuple[Digest, ...] = ()
    """Message chunks that a briefing stands for; `chunk` is the last of them."""

    def row(self) -> list[object]:
        """The entry as it stands in a ``run`` body: ``[position, chunk, digest]``, and what it stands for, if anything."""
        found: list[object] = [self.position, self.chunk, self.digest]
        return [*found, list(self.stands_for)] if self.stands_for else found


@dataclass(frozen=True, slots=True)
class LossReport:
    """The honest half of ``encode``: what was lost (empty when exact), and what was handed over."""

    losses: tuple[Loss, ...] = ()
    manifest: tuple[ManifestEntry, ...] = ()

    @property
    def exact(self) -> bool:
        """True when nothing was lost."""
        return not self.losses

    def told(self) -> list[tuple[Loss, int]]:
        """Each kind of loss once, by the first of its kind, and how many there are: the rarest first, since what repeats hides it."""
        found: dict[tuple[str, str], list[Loss]] = {}
        for loss in self.losses:
            found.setdefault((_NUMBER.sub("[]", loss.path), loss.what), []).append(loss)
        return sorted(((some[0], len(some)) for some in found.values()), key=lambda one: one[1])

    def rows(self) -> tuple[list[object], ...]:
        """The manifest as it stands in a ``run`` body."""
        return tuple(entry.row() for entry in self.manifest)

    def __str__(self) -> str:
        handed = f"{len(self.manifest)} item{'' if len(self.manifest) == 1 else 's'} handed over"
        if not self.losses:
            return f"nothing lost; {handed}"
        lines = [
            f"  {(loss.chunk or '-')[:12]} {loss.path}: {loss.what}{f' (and {many - 1} more like it)' if many > 1 else ''}"
            for loss, many in self.told()
        ]
        return "\n".join([f"{len(self.losses)} loss{'' if len(self.losses) == 1 else 'es'}; {handed}", *lines])


def manifest_of(rows: Iterable[Sequence[object]]) -> tuple[ManifestEntry, ...]:
    """Read a manifest back from a ``run`` body."""
    found: list[ManifestEntry] = []
    for row in rows:
        stands = cast("Sequence[object]", row[3]) if len(row) > 3 else ()
        found.append(ManifestEntry(int(str(row[0])), str(row[1]), str(row[2]), tuple(str(name) for name in stands)))
    return tuple(found)


def align(manifest: Sequence[ManifestEntry], items: Sequence[Digest]) -> list[Digest | None]:
    """Find the known messages in a list that a framework hands back (law 12).

    Walks both lists in order. An item is known when its comparison key stands in the manifest behind the last one found; a
    framework may have dropped some, and what follows the last known item is new. Content alone never decides: a second
    "yes" behind the known items stays a second message.

    Args:
        manifest: What was handed over.
        items: Comparison keys of the list that came back, in order.

    Returns:
        For each item, the chunk that it is, or None where it is new.
    """
    found: list[Digest | None] = [None] * len(items)
    at = 0
    for index, item in enumerate(items):
        ahead = next((i for i in range(at, len(manifest)) if manifest[i].digest == item), None)
        if ahead is not None:
            found[index] = manifest[ahead].chunk
            at = ahead + 1
        if at == len(manifest):
            break
    return found
