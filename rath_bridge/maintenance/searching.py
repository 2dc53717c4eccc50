"""Find everything in a store that says something: bodies, long texts, native records, items of framework states."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice

import orjson

from rath_bridge.errors import RathError
from rath_bridge.model.digests import Digest
from rath_bridge.model.reaching import Memo, Reference, body_references, reach
from rath_bridge.store.protocol import Reader
from rath_bridge.verbs.lineage import walk


@dataclass(frozen=True, slots=True)
class Hits:
    """What says it."""

    chunks: tuple[Digest, ...]
    """Whose bodies, long texts or native records say it."""
    objects: tuple[Digest, ...]
    """Texts, native records and items of trees (messages in a framework's state) that say it. Of chunks that hold one only in a
    tree, the bodies say nothing: they are not among ``chunks``."""


def find_text(reader: Reader, *texts: str) -> Hits:
    """Read the whole store and find a text, or any of several, as it is written and as JSON escapes it.

    What is compressed, encoded (base64) or encrypted inside of a framework's own bytes is not seen through.

    Raises:
        ValueError: A text is empty, or there is none.
    """
    if not texts or not all(texts):
        raise ValueError("find_text needs a text, it was given none")
    needles: set[bytes] = set()
    for text in texts:
        needles.update((text.encode("utf-8", "surrogatepass"), json.dumps(text)[1:-1].encode()))
        needles.add(orjson.dumps(text.encode("utf-8", "replace").decode())[1:-1])
    chunks: list[Digest] = []
    said: set[Digest] = set()
    direct: dict[Digest, list[Digest]] = {}
    seen = Memo(1 << 62)
    waiting = walk([ref.head for ref in reader.refs()], reader)
    while page := list(islice(waiting, 256)):
        found: list[Reference] = []
        for chunk in page:
            body = chunk.body_bytes
            if body is None:
                continue
            if any(needle in body for needle in needles):
                chunks.append(chunk.id)
            if b'"digest"' in body:
                try:
                    mine = list(body_references(orjson.loads(body)))
                except (RathError, TypeError, ValueError):
                    continue  # malformed: fsck names it
                found += mine
                for reference in mine:
                    if not reference.tree:
                        direct.setdefault(reference.digest, []).append(chunk.id)
        for reached in reach(found, reader.objects, seen):
            if reached.data is not None and any(needle in reached.data for needle in needles):
                said.add(reached.reference.digest)
    chunks += [chunk for name in said for chunk in direct.get(name, ())]
    return Hits(tuple(dict.fromkeys(chunks)), tuple(sorted(said)))
