"""Message chunks for a checkpoint: what its message channel says that the parent's did not, each message once (law 12)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from langchain_core.messages import BaseMessage

from rath_bridge.model.chunk import Chunk, Draft, draft
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Compaction, Message, Run
from rath_bridge.model.report import ManifestEntry, align, manifest_of
from rath_bridge.recorder import Recorder, current_recorder, structure_only
from rath_bridge.redaction import DEFAULT
from rath_bridge.store.protocol import Backend
from rath_bridge.verbs.transcript import transcript
from rath_langgraph.compare import compare_key
from rath_langgraph.items import Encoder, Value, join_list
from rath_langgraph.lift import TRANSCRIPT, Difference, difference, feed_items, ids_of, message_channel
from rath_langgraph.native import built_alone, encode_chunks, native_message
from rath_langgraph.neutral import message_body, message_draft, origin
from rath_langgraph.state import Fetch
from rath_langgraph.threads import Known, Line, Threads

_OURS: Final = re.compile(r"rath-([0-9a-f]{32}\Z|[0-9a-f]{24}(?=-[0-9]+\Z))")


@dataclass(frozen=True, slots=True)
class Lifted:
    """Message and compaction drafts of one checkpoint."""

    drafts: tuple[Draft, ...] = ()
    feed: str | None = None
    ids: tuple[Digest | None, ...] = ()
    """The message chunk of each item; None where it is one of ``drafts``, or not known."""
    places: tuple[int, ...] = ()
    """For each message draft, the index of its item."""

    def named(self, chunks: Sequence[Chunk]) -> tuple[Digest | None, ...]:
        """``ids`` with the chunks that the drafts have become."""
        found = list(self.ids)
        for place, chunk in zip(self.places, chunks, strict=False):
            found[place] = chunk.id
        return tuple(found)


def lift(
    line: Line,
    channels: Mapping[str, Any],
    values: Mapping[str, Value],
    old: Known | None,
    encoder: Encoder,
    threads: Threads,
    head: Digest,
    handed: Sequence[ManifestEntry],
    parents: Sequence[Known],
) -> Lifted:
    """Work out the message chunks of a checkpoint.

    Args:
        line: The thread's namespace.
        channels: Channel values of the new checkpoint, with what its delta channels hold.
        values: The same, as they are stored; delta channels as if they were.
        old: The parent checkpoint.
        encoder: Holds the bytes of fresh items; what goes into a message chunk is taken out of its objects.
        threads: To read what the difference needs.
        head: The chunk behind which the checkpoint will stand.
        handed: Manifest of what the graph was given since the parent.
        parents: For a subgraph, the checkpoint of the enclosing namespace.
    """
    if not encoder.open:
        return Lifted()
    feed = message_channel(channels, lambda name: _is_mirrored(values.get(name), encoder))
    if feed is None:
        feed = old.feed if old is not None and not channels.get(old.feed or "") else None
        if feed is None:
            return Lifted()
    backend = threads.store.backend
    new = feed_items(values.get(feed))
    before = old.items(feed) if old is not None else ()
    ids = old.ids if old is not None and old.feed in (None, feed) and len(old.ids) == len(before) else (None,) * len(before)
    if new is before or new == before:
        return Lifted(feed=feed, ids=ids)
    items = cast("list[BaseMessage]", channels.get(feed) or [])
    found = difference(before, new, lambda: ids_of(items), lambda places: _old_ids(encoder, threads.shelf, before, places))
    known = _known(line, items, new, found, before, backend, head, handed, parents)
    anchors = {} if line.namespace else _anchors(found, known)
    ids = _resolve(ids, _needed(found, anchors, known), line, old, encoder, backend, before)
    return _drafts(line, feed, items, new, ids, found, known, anchors, encoder, threads.shelf)


def _is_mirrored(value: Value | None, encoder: Encoder) -> bool:
    """Only lists of messages have mirrors."""
    return value is not None and (value.digest in encoder.mirrors or value.digest in encoder.seen.mirrors)


def _anchors(found: Difference, known: Mapping[int, Digest]) -> dict[int, int]:
    """Messages that nobody has said, in front of some that stand on the line: each with the place of what it stands behind.

    The answer that closes a call is one: a graph is given it, and it is on record as soon as the graph has it.
    """
    if not known:
        return {}
    last = max(known)
    fresh = {said.place for said in found.said if said.place not in known}
    held: dict[int, int] = {}
    for place in (said.place for said in found.said if said.replaces is None and said.after is None):
        if place in known or place > last:
            continue
        anchor = next((i for i in range(place - 1, -1, -1) if i not in fresh), None)
        if anchor is not None:
            held[place] = anchor
    return held


def _needed(found: Difference, anchors: Mapping[int, int], known: Mapping[int, Digest]) -> set[int]:
    """Places in the old list of messages whose chunks are named."""
    needed = {*found.dropped, *(i for s in found.said for i in (s.replaces, s.after, *s.stands_for) if i is not None)}
    return needed | {i if found.appended else found.kept[i] for i in anchors.values() if i not in known}


def _drafts(
    line: Line, feed: str, items: Sequence[BaseMessage], new: Sequence[bytes], ids: Sequence[Digest | None], found: Difference,
    known: Mapping[int, Digest], anchors: Mapping[int, int], encoder: Encoder, fetch: Fetch,
) -> Lifted:  # fmt: skip
    drafts: list[Draft] = []
    places: list[int] = []
    names: list[Digest | None]
    if found.appended:
        names = [*ids, *(known.get(i) for i in range(len(ids), len(items)))]
    else:
        names = [ids[found.kept[i]] if i in found.kept else known.get(i) for i in range(len(items))]
    # Several behind one anchor: each goes directly behind it, so the last is written first.
    for said in sorted(found.said, key=lambda said: -said.place if said.place in anchors else 0):
        if said.place in known:
            continue
        item, name = items[said.place], new[said.place]
        body = _linked(message_body(item), said.replaces, said.after, said.stands_for, ids)
        if said.place in anchors:
            body = replace(body, after=names[anchors[said.place]])
        drafts.append(_observed(body, item, encoder.bytes.get(name), name, line.run, fetch))
        if name.hex() in drafts[-1].objects:
            encoder.objects.pop(name.hex(), None)
        places.append(said.place)
    dropped = tuple(chunk for i in found.dropped if (chunk := ids[i]) is not None)
    if dropped:
        drafts.append(draft(Compaction(dropped=dropped, reason="removed"), run=line.run, origin=origin()))
    return Lifted(tuple(drafts), feed, tuple(names), tuple(places))


def _linked(
    body: Message, replaces: int | None, after: int | None, stands_for: Sequence[int], ids: Sequence[Digest | None]
) -> Message:
    if replaces is None and after is None:
        return body
    return replace(
        body,
        replaces=None if replaces is None else ids[replaces],
        after=None if after is None else ids[after],
        stands_for=tuple(name for i in stands_for if (name := ids[i]) is not None),
    )


def _observed(body: Message, item: BaseMessage, data: bytes | None, name: bytes, run: str, fetch: Fetch) -> Draft:
    """The chunk of a message: neutral parts redacted, the framework's own bytes as given."""
    recorder: Recorder | None = current_recorder()
    if recorder is not None and not recorder.record_content:
        return draft(structure_only(body), run=run, origin=origin())
    redactor = DEFAULT if recorder is None else recorder.redactor
    if redactor is not None:
        body = redactor.apply(body)
    if data is None:  # an item that stands in the store already: it was written by a task, say
        data = fetch([name.hex()])[name.hex()]
    return message_draft(item, data, body=body, run=run)


def _old_ids(encoder: Encoder, fetch: Fetch, before: Sequence[bytes], places: Sequence[int]) -> list[str | None]:
    names = [before[i].hex() for i in places]
    found = fetch(names)
    return ids_of(encoder.serde.loads_typed(("msgpack", join_list([found[name] for name in names]))))


def _resolve(
    ids: tuple[Digest | None, ...], needed: Iterable[int], line: Line, old: Known | None, encoder: Encoder, backend: Backend,
    before: Sequence[bytes],
) -> tuple[Digest | None, ...]:  # fmt: skip
    """Find the message chunks of old items where an edit, an insertion or a removal has to name them."""
    if old is None or all(ids[i] is not None for i in needed):
        return ids
    chunks = list(backend.line(old.chunk))
    entries = transcript(chunks, line.run if line.namespace else None)
    natives = {(entry.chunk.native_ref or {}).get("digest"): entry.id for entry in entries}
    resolved = [name or natives.get(item.hex()) for name, item in zip(ids, before, strict=True)]
    if any(resolved[i] is None for i in needed):  # said by another framework: compare what they say
        stored = backend.objects([name.hex() for name in before])
        items: list[Any] = encoder.serde.loads_typed(("msgpack", join_list([stored[name.hex()] for name in before])))
        _, report = encode_chunks(chunks, line.run if line.namespace else None)
        aligned = align(report.manifest, [compare_key(item) for item in items])
        resolved = [name or other for name, other in zip(resolved, aligned, strict=True)]
    return tuple(resolved)


# ------------------------------------------------------------------------------------------- messages that are known


def _known(
    line: Line, items: Sequence[BaseMessage], new: Sequence[bytes], found: Difference, before: Sequence[bytes], backend: Backend,
    head: Digest, handed: Sequence[ManifestEntry], parents: Sequence[Known],
) -> dict[int, Digest]:  # fmt: skip
    """Messages of the new list that the session holds already: written by others, or by the graph around a subgraph."""
    said = [s.place for s in found.said if s.replaces is None]
    if not said:
        return {}
    if line.namespace:
        return _from_parents(new, said, parents)
    known = _by_our_ids(items, said, backend)
    if before:
        if handed:
            aligned = align(handed, [compare_key(items[i]) for i in said])
            known.update({i: name for i, name in zip(said, aligned, strict=True) if name is not None and i not in known})
        return known
    chunks = list(backend.line(head))
    rows = manifest(chunks)
    keys = [compare_key(item) for item in items] if rows or any(c.kind == "message" for c in chunks) else []
    if rows:
        known.update({i: name for i, name in enumerate(align(rows, keys)) if name is not None})
    elif keys and not known:
        messages, report = encode_chunks(chunks)
        stands = [compare_key(message) for message in messages]
        if len(keys) > len(stands) > 0 and keys[: len(stands)] == stands:
            known.update({entry.position: entry.chunk for entry in report.manifest})
    return known


def _from_parents(new: Sequence[bytes], said: Iterable[int], parents: Sequence[Known]) -> dict[int, Digest]:
    known: dict[int, Digest] = {}
    for parent in parents:
        names = parent.items(parent.feed or TRANSCRIPT)
        ids = parent.ids if len(parent.ids) == len(names) else (None,) * len(names)
        chunks = {item: name or parent.chunk for item, name in zip(names, ids, strict=True)}
        known.update({i: chunks[new[i]] for i in said if new[i] in chunks})
    return known


def _by_our_ids(items: Sequence[BaseMessage], said: Iterable[int], backend: Backend) -> dict[int, Digest]:
    """Messages that `encode` built carry their chunk in their id: a hint, taken only where they still say the same."""
    known: dict[int, Digest] = {}
    for i in said:
        match = _OURS.match(items[i].id or "")
        names = backend.find(match[1]) if match else []
        if len(names) == 1:
            entries = transcript([backend.chunk(names[0])])
            if not entries or native_message(entries[0]) is not None:
                continue
            if any(compare_key(message) == compare_key(items[i]) for message in built_alone(entries[0])):
                known[i] = names[0]
    return known


def manifest(chunks: Iterable[Chunk]) -> tuple[ManifestEntry, ...]:
    """The last manifest that was handed to LangGraph."""
    found: tuple[ManifestEntry, ...] = ()
    for chunk in chunks:
        if chunk.kind == "run" and chunk.body_bytes is not None and '"langgraph"' in (chunk.origin or ""):
            rows = cast(Run, chunk.body).manifest
            if rows:
                found = manifest_of(rows)
    return found
