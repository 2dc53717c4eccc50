"""`merge_state`: two branches of a graph become one checkpoint, by the graph's own reducers (law 4).

Channel by channel: what one side left as it was is the other side's; what both changed goes through the channel's reducer, as if the other
side's updates had come after ours; what has no reducer is a conflict. The updates are the writes that LangGraph itself saved, taken only
where they lead from the base to what the other side has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, cast

from langchain_core.messages import BaseMessage, RemoveMessage
from langgraph.channels.base import BaseChannel  # pyright: ignore[reportMissingTypeStubs]
from langgraph.channels.binop import BinaryOperatorAggregate  # pyright: ignore[reportMissingTypeStubs]
from langgraph.channels.delta import DeltaChannel  # pyright: ignore[reportMissingTypeStubs]
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.types import _DeltaSnapshot  # pyright: ignore[reportPrivateUsage]
from langgraph.graph.message import add_messages  # pyright: ignore[reportMissingTypeStubs]

from rath_bridge.errors import MergeConflict
from rath_bridge.given import check_store
from rath_bridge.model.chunk import Chunk, Draft, Key, draft
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Checkpoint, Compaction, Run
from rath_bridge.model.report import align
from rath_bridge.session import Store
from rath_bridge.store.protocol import Backend
from rath_bridge.verbs.transcript import transcript
from rath_langgraph.compare import compare_key
from rath_langgraph.deltas import rebuilt, unwrapped
from rath_langgraph.items import Encoder
from rath_langgraph.lift import difference, feed_items, ids_of, message_channel
from rath_langgraph.native import encode_chunks
from rath_langgraph.neutral import message_body, message_draft, origin
from rath_langgraph.saver import RathSaver
from rath_langgraph.state import State, checkpoint_body, load_values, load_writes, read_metadata, read_state
from rath_langgraph.threads import FRAMEWORK

_SHOWN: Final = 120
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class _Side:
    """One checkpoint that takes part."""

    chunk: Chunk | None
    body: Checkpoint | None
    state: State
    values: Mapping[str, Any]
    thread_id: str = ""

    def digest(self, channel: str) -> bytes | None:
        value = self.state.values.get(channel)
        return None if value is None else value.type.encode() + value.digest


class StateMerger:
    """Merges checkpoints: pass it to ``session.merge(other, strategy="state", merge_state=...)``."""

    def __init__(self, store: Store, graph: Any = None) -> None:
        """Merge states.

        Args:
            store: Where both branches live.
            graph: The compiled graph, whose channels know their reducers; without it, lists of messages are merged as
                ``add_messages`` does, and whatever else both sides changed is a conflict.
        """
        self._store, self._backend = store, store.backend
        self._saver = RathSaver(store)
        self._channels: Mapping[str, Any] | None = None if graph is None else graph.channels

    def __call__(self, base: Chunk | None, ours: Chunk | None, theirs: Chunk | None) -> Sequence[Draft]:
        """Return the merged checkpoint, behind the messages and removals that it brings; nothing where theirs brings nothing.

        Raises:
            MergeConflict: Both sides changed a channel that has no reducer, or the same message; all conflicts are listed.
        """
        if theirs is None or (base is not None and theirs.id == base.id):
            return ()
        one, other = self._side(ours or theirs), self._side(theirs)
        root = self._side(base)
        conflicts: list[str] = []
        merged = dict(one.values)
        changed: list[str] = []
        for channel in dict.fromkeys([*one.state.values, *other.state.values, *self._delta(one, other)]):
            if channel.startswith(("__", "branch:", "join:")):
                continue
            made = self._channel(channel, root, one, other, conflicts)
            if made is not _MISSING:
                merged[channel] = made
                changed.append(channel)
        if conflicts:
            raise MergeConflict(conflicts)
        return self._drafts(one, other, merged, changed, whole=ours is None)

    # ---------------------------------------------------------------- channels

    def _channel(self, name: str, root: _Side, one: _Side, other: _Side, conflicts: list[str]) -> Any:
        """The merged value of a channel; `_MISSING` where ours stands as it is."""
        spec: Any = (self._channels or {}).get(name)
        if isinstance(spec, DeltaChannel):
            return self._delta_channel(name, cast("DeltaChannel[Any]", spec), root, one, other, conflicts)
        before, here, there = root.digest(name), one.digest(name), other.digest(name)
        if there == before:
            return _MISSING
        if here == before:
            return other.values[name] if there is not None else _MISSING
        old, ours, theirs = (cast(Any, side.values.get(name)) for side in (root, one, other))
        said = _is_messages(ours) and _is_messages(theirs)
        if said:
            conflicts += _edited(name, old or [], ours, theirs)
        if isinstance(spec, BinaryOperatorAggregate):
            channel = cast("BinaryOperatorAggregate[Any]", spec)
            if said:
                updates: list[list[Any]] | None = [[said_since(old or [], theirs, ours)]]
            else:
                updates = self._updates(name, channel, root, other) or _grown(old, theirs)
            made = _MISSING if updates is None else _reduced(channel, ours, updates)
            if made is not _MISSING:
                return made
        elif self._channels is None and said:
            return _any(add_messages)(ours, said_since(old or [], theirs, ours))
        if here != there:  # without a reducer, two sides that say the same agree
            conflicts.append(f"state[{name!r}]: ours has {_short(ours)}, theirs has {_short(theirs)}")
        return _MISSING

    def _updates(self, name: str, spec: BaseChannel[Any, Any, Any], root: _Side, other: _Side) -> list[list[Any]] | None:
        """What was written to a channel since the base, step by step; None where that does not lead to what is there."""
        steps = list(self._writes(name, root, other))
        made = _reduced(spec, root.values.get(name, _MISSING), steps)
        return steps if steps and _same(made, other.values.get(name)) else None

    def _writes(self, name: str, root: _Side, other: _Side) -> Iterator[list[Any]]:
        """The writes to a channel of every checkpoint between two, oldest first."""
        stop = root.body.checkpoint_id if root.body else None
        found: list[list[Any]] = []
        at = other.body.parent_checkpoint_id if other.body else None
        while at is not None:
            entries = self._backend.scan(FRAMEWORK, other.thread_id, "", exact=at)
            tasks = [chunk for key, chunk in entries if key.sub.startswith("w")]
            written = load_writes(tasks, self._saver.serde, self._backend.objects, channels={name})
            found.append([value for _, _, value in written])
            body = next((cast(Checkpoint, chunk.body) for key, chunk in entries if key.sub == ""), None)
            at = None if body is None or at == stop else body.parent_checkpoint_id
        yield from (values for values in reversed(found) if values)

    def _delta(self, *sides: _Side) -> list[str]:
        names = [name for name, spec in (self._channels or {}).items() if isinstance(spec, DeltaChannel)]
        return [name for name in names if any(name in side.state.versions for side in sides)]

    def _delta_channel(
        self, name: str, spec: DeltaChannel[Any], root: _Side, one: _Side, other: _Side, conflicts: list[str]
    ) -> Any:
        """A channel that is not kept whole: rebuilt on all sides, merged, and kept whole in the merged checkpoint."""
        if other.state.versions.get(name) == one.state.versions.get(name) and other.chunk == one.chunk:
            return _MISSING
        old, ours, theirs = (self._rebuilt(name, spec, side) for side in (root, one, other))
        if _same(theirs, old) or _same(theirs, ours):
            return _MISSING
        if _is_messages(ours) and _is_messages(theirs):
            conflicts += _edited(name, old or [], ours, theirs)
        updates: list[list[Any]] | None = list(self._writes(name, root, other))
        if _is_messages(ours) and _is_messages(theirs):
            updates = [[said_since(old or [], theirs, ours)]]
        elif not _same(_reduced(spec, old, updates), theirs):
            updates = _grown(old, theirs)
        if updates is None:
            conflicts.append(f"state[{name!r}]: ours has {_short(ours)}, theirs has {_short(theirs)}")
            return _MISSING
        return _DeltaSnapshot(_reduced(spec, ours, updates))

    def _rebuilt(self, name: str, spec: DeltaChannel[Any], side: _Side) -> Any:
        if side.body is None:
            return None
        held = side.values.get(name, _MISSING)
        if held is not _MISSING:
            return spec.from_checkpoint(held).get()
        where: Any = {"thread_id": side.thread_id, "checkpoint_ns": "", "checkpoint_id": side.body.checkpoint_id}
        history = self._saver.get_delta_channel_history(config={"configurable": where}, channels=[name])[name]
        return rebuilt(spec, history)

    # ---------------------------------------------------------------- sides

    def _side(self, chunk: Chunk | None) -> _Side:
        if chunk is None:
            return _Side(None, None, State({}, {}), {})
        body = cast(Checkpoint, chunk.body)
        state = read_state(body, self._backend.objects)
        place = f"checkpoint {body.checkpoint_id}"
        values = load_values(state, self._saver.serde, self._backend.objects, place)
        return _Side(chunk, body, state, values, thread_of(self._backend, chunk))

    def _drafts(self, one: _Side, other: _Side, merged: dict[str, Any], changed: Sequence[str], whole: bool) -> Sequence[Draft]:
        assert one.body is not None
        assert one.chunk is not None
        rest, metadata = read_metadata(one.body, self._saver.serde, f"checkpoint {one.body.checkpoint_id}")
        step = max((side.body.step or 0 for side in (one, other) if side.body), default=0) + 1
        versions = dict(cast("Mapping[str, Any]", rest.get("channel_versions") or {}))
        newest = max(versions.values(), default=None)
        version = self._saver.get_next_version(newest, None)
        versions.update(dict.fromkeys(changed, version))
        made: dict[str, Any] = {
            **rest, "id": str(uuid6(clock_seq=step)), "ts": datetime.now(UTC).isoformat(), "channel_values": merged,
            "channel_versions": versions, "updated_channels": sorted(changed),
        }  # fmt: skip
        facts: dict[str, Any] = {**metadata, "source": "update", "step": step, "parents": {}}
        encoder = Encoder(self._saver.serde)
        body, state = checkpoint_body("", one.body.checkpoint_id, cast(Any, made), facts, encoder, one.state, changed)
        said = self._said(one, other, state, merged, encoder, whole)
        key = Key(FRAMEWORK, one.thread_id, "", made["id"])
        return [*said, draft(body, run=one.chunk.run, objects=encoder.objects, origin=origin(), keys=(key,))]

    def _said(
        self, one: _Side, other: _Side, state: State, merged: Mapping[str, Any], encoder: Encoder, whole: bool
    ) -> Iterator[Draft]:
        """Chunks for the messages that the merged state has and ours had not (all of them, where it is theirs alone).

        Each names theirs as what it stands for.
        """
        assert one.chunk is not None
        assert other.chunk is not None
        feed = message_channel({name: unwrapped(value) for name, value in merged.items()})
        if feed is None:
            return
        items: Sequence[BaseMessage] = unwrapped(merged[feed])
        before, olds = ((), []) if whole else self._listed(one, feed, encoder)
        after = feed_items(state.values.get(feed)) or [encoder.item(item) for item in items]
        found = difference(before, after, lambda: ids_of(items), lambda places: ids_of([olds[i] for i in places]))
        ours, theirs = self._chunks(one, feed, encoder), self._chunks(other, feed, encoder)
        for said in found.said:
            item, name = items[said.place], after[said.place]
            stands = tuple(theirs[name] for _ in (0,) if name in theirs)
            body = replace(
                message_body(item), stands_for=stands,
                replaces=None if said.replaces is None else ours.get(before[said.replaces]),
                after=None if said.after is None else ours.get(before[said.after]),
            )  # fmt: skip
            data = encoder.bytes.get(name) or self._backend.objects([name.hex()])[name.hex()]
            yield message_draft(item, data, body=body, run=one.chunk.run)
        dropped = tuple(chunk for i in found.dropped if (chunk := ours.get(before[i])) is not None)
        if dropped:
            yield draft(Compaction(dropped=dropped, reason="removed"), run=one.chunk.run, origin=origin())

    def _listed(self, side: _Side, feed: str, encoder: Encoder) -> tuple[Sequence[bytes], list[Any]]:
        """The messages of a channel, with the digests of their bytes."""
        spec: Any = (self._channels or {}).get(feed)
        if not isinstance(spec, DeltaChannel):
            return feed_items(side.state.values.get(feed)), cast("list[Any]", side.values.get(feed) or [])
        messages = cast("list[Any]", self._rebuilt(feed, cast("DeltaChannel[Any]", spec), side) or [])
        return [encoder.item(item) for item in messages], messages

    def _chunks(self, side: _Side, feed: str, encoder: Encoder) -> dict[bytes, Digest]:
        """The message chunk of each item of a channel: by its bytes, else by what it says."""
        assert side.chunk is not None
        items, messages = self._listed(side, feed, encoder)
        chunks = list(self._backend.line(side.chunk.id))
        natives = {(entry.chunk.native_ref or {}).get("digest"): entry.id for entry in transcript(chunks)}
        _, report = encode_chunks(chunks)
        aligned = align(report.manifest, [compare_key(message) for message in messages])
        found = {item: natives.get(item.hex()) or other for item, other in zip(items, aligned, strict=True)}
        return {item: chunk for item, chunk in found.items() if chunk is not None}


def merge_state(store: Store, graph: Any = None) -> StateMerger:
    """Return what merges the states of two branches: ``session.merge(other, strategy="state", merge_state=merge_state(store, graph))``.

    Args:
        store: Where both branches live.
        graph: The compiled graph whose reducers merge what both sides changed.
    """
    check_store(store, "merge_state")
    return StateMerger(store, graph)


def thread_of(backend: Backend, chunk: Chunk) -> str:
    """The thread that a checkpoint is found in: its run says it; a copied thread goes on in the run of the one it was copied from."""
    run = next((one for one in backend.line(chunk.id) if one.kind == "run" and one.run == chunk.run and one.body_bytes), None)
    name = cast(Run, run.body).native_id or "" if run is not None else ""
    checkpoint_id = cast(Checkpoint, chunk.body).checkpoint_id or ""
    for thread_id in dict.fromkeys([name, *(found for found, namespace in backend.scopes(FRAMEWORK) if not namespace)]):
        found = backend.lookup(Key(FRAMEWORK, thread_id, "", checkpoint_id))
        if found is not None and found.id == chunk.id:
            return thread_id
    return name


def _reduced(spec: BaseChannel[Any, Any, Any], value: Any, steps: Sequence[list[Any]]) -> Any:
    """Run updates through a channel's own reducer, a step at a time; `_MISSING` where it refuses them."""
    channel = spec.copy() if value is _MISSING else spec.from_checkpoint(value)
    try:
        for values in steps:
            channel.update(values)
        return channel.get()
    except Exception:  # noqa: BLE001 - the user's reducer, on what it was never given
        return _MISSING


def _is_messages(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(cast(Any, value))
        and all(isinstance(item, BaseMessage) for item in cast("list[Any]", value))
    )


def _same(one: Any, other: Any) -> bool:
    if _is_messages(one) and _is_messages(other):
        return [compare_key(item) for item in one] == [compare_key(item) for item in other]
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # noqa: BLE001 - a value that cannot be compared
        return False


def _grown(old: Any, new: Any) -> list[list[Any]] | None:
    """The update that lets a list grow; None where it did something else."""
    if isinstance(new, list) and isinstance(old, (list, type(None))):
        before, after = cast("list[Any]", old or []), cast("list[Any]", new)
        if after[: len(before)] == before:
            return [[after[len(before) :]]]
    return None


def said_since(old: Sequence[BaseMessage], new: Sequence[BaseMessage], onto: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The update for ``add_messages`` that leads from one list to another: what is new or edited, and what is gone."""
    before = {message.id: compare_key(message) for message in old}
    held, kept = {message.id for message in onto}, {message.id for message in new}
    fresh = [message for message in new if before.get(message.id) != compare_key(message)]
    gone = [RemoveMessage(id=message.id) for message in old if message.id and message.id not in kept and message.id in held]
    return [*fresh, *gone]


def _edited(name: str, old: Sequence[BaseMessage], ours: Sequence[BaseMessage], theirs: Sequence[BaseMessage]) -> Iterator[str]:
    """Messages of the base that both sides changed, differently."""
    here, there = ({m.id: m for m in side} for side in (ours, theirs))
    for place, message in enumerate(old):
        was = compare_key(message)
        one, other = (None if m is None else compare_key(m) for m in (here.get(message.id), there.get(message.id)))
        if was not in (one, other) and one != other:
            what = [_short(m.content) if m is not None else "removed" for m in (here.get(message.id), there.get(message.id))]
            yield f"state[{name!r}][{place}]: ours has {what[0]}, theirs has {what[1]}"


def _any(value: object) -> Any:
    """Types that the framework leaves partly open."""
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


__all__ = ["StateMerger", "merge_state", "said_since", "thread_of"]
