"""What an erasure takes and what it leaves: one plan for every store, made while nobody writes.

A body goes with all its copies, since they are the same bytes; an object goes when no body that stays stands on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Final, NamedTuple

import orjson

from rath_bridge.errors import RathError
from rath_bridge.model.digests import Digest, digest
from rath_bridge.model.reaching import Reference, body_references, check_object

Bodies = Callable[[], Iterator[tuple[Digest, bytes]]]
"""Id and body of every chunk of the store that has one."""
Fetch = Callable[[list[Digest]], Mapping[Digest, bytes]]
"""Reads objects; what is not there is left out."""

_BATCH: Final = 256
_FEW: Final = 2_000
_PART: Final = 8


class Erasure(NamedTuple):
    """What was erased, or would be."""

    chunks: tuple[Digest, ...]
    """Chunks whose bodies are gone: those that were asked for, and copies of them on detached lines."""
    objects: tuple[Digest, ...]
    """Blobs, native records, tree nodes and items that nothing else stands on, and those that were asked for."""
    shared: tuple[Digest, ...] = ()
    """Objects that the erased bodies stood on and that stay, since other bodies do, too."""
    left: tuple[Digest, ...] = ()
    """Chunks that were asked for and stay, since others have the same body (``copies=False``)."""
    named: tuple[Digest, ...] = ()
    """Erased objects that bodies which stay still name; reading them raises `ErasedError`."""


class Plan(NamedTuple):
    """An erasure, and what is left of each body."""

    erasure: Erasure
    stubs: Mapping[Digest, tuple[Digest, int]]
    """By chunk: digest and size of the body."""


def plan(
    wanted: Mapping[Digest, bytes],
    objects: AbstractSet[Digest],
    bodies: Bodies,
    fetch: Fetch,
    *,
    copies: bool,
    unused: Iterable[Digest],
) -> Plan:
    """Work out what goes.

    Args:
        wanted: Bodies of the chunks to erase, by chunk.
        objects: Objects to erase whoever uses them.
        bodies: Walks the whole store; asked for twice.
        fetch: Reads tree nodes.
        copies: Erase the same body wherever it stands; else a body that another chunk has, too, stays.
        unused: Objects to drop where no body stands on them.
    """
    stubs = {name: (digest(body), len(body)) for name, body in wanted.items()}
    targets, sizes = set(stubs.values()), {len(body) for body in wanted.values()}
    twins = {
        name: stub for name, body in (bodies() if targets else ())
        if name not in stubs and len(body) in sizes and (stub := (digest(body), len(body))) in targets
    }  # fmt: skip
    left: set[Digest] = set()
    if copies:
        stubs |= twins
    else:
        left = {name for name, stub in stubs.items() if stub in twins.values()}
        stubs = {name: stub for name, stub in stubs.items() if name not in left}
    reached = set(closure((body for name, body in wanted.items() if name in stubs), fetch))
    spare = set(unused)
    live: set[Digest] = set()
    if reached or objects or spare:
        live.update(closure((body for name, body in bodies() if name not in stubs), fetch))
    gone = (reached - live) | objects | (spare - live)
    done = Erasure(
        chunks=tuple(sorted(stubs)),
        objects=tuple(sorted(gone)),
        shared=tuple(sorted((reached & live) - objects)),
        left=tuple(sorted(left)),
        named=tuple(sorted(gone & live)),
    )
    return Plan(done, stubs)


def bodies_alone(wanted: Mapping[Digest, bytes], shared: AbstractSet[Digest]) -> Plan:
    """Work out what goes where only bodies are looked at.

    Args:
        wanted: Bodies of the chunks to erase, by chunk.
        shared: Those of them that chunks outside have, too.
    """
    stubs = {name: (digest(body), len(body)) for name, body in wanted.items() if name not in shared}
    return Plan(Erasure(chunks=tuple(sorted(stubs)), objects=(), left=tuple(sorted(shared))), stubs)


def many(unswept: int, objects: int) -> bool:
    """Tell whether so many bodies have gone unswept that it is time to look at the whole store.

    Reading it costs as much as it holds, so this keeps the cost of a deleted chunk bounded, and what waits a small part of the whole.
    """
    return unswept >= max(_FEW, objects // _PART)


def closure(bodies: Iterable[bytes], fetch: Fetch) -> Iterator[Digest]:
    """Yield every object that some bodies stand on, down to the items of trees; only nodes are read, each once."""
    seen: set[Reference] = set()
    waiting = iter(bodies)
    while page := list(islice(waiting, _BATCH)):
        queue: deque[Reference] = deque()
        for body in page:
            queue += [reference for reference in _references(body) if reference not in seen]
        while queue:
            nodes: dict[Digest, Reference] = {}
            for reference in queue:
                if reference not in seen:
                    seen.add(reference)
                    yield reference.digest
                    if reference.tree:
                        nodes[reference.digest] = reference
            queue.clear()
            names = list(nodes)
            for at in range(0, len(names), _BATCH):
                for name, data in fetch(names[at : at + _BATCH]).items():
                    queue += check_object(nodes[name], data)[1]


def _references(body: bytes) -> list[Reference]:
    if b'"digest"' not in body:
        return []
    try:
        return list(body_references(orjson.loads(body)))
    except (RathError, TypeError, ValueError, AttributeError):
        return []  # malformed: fsck names it
