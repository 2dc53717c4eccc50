"""What delta channels of messages hold: LangGraph stores their writes, and the whole value now and then.

Source: ``langgraph.channels.delta.DeltaChannel``. A checkpointer does not know a channel's reducer: lists of messages are put together as
``_messages_delta_reducer`` does, and where LangGraph stores a value whole, that is what counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import CheckpointTuple, PendingWrite
from langgraph.checkpoint.serde.types import _DeltaSnapshot  # pyright: ignore[reportPrivateUsage]

from rath_bridge.model.digests import Digest
from rath_bridge.model.trees import Tree
from rath_langgraph.items import Encoder, Value, join_list

COUNTERS: Final = "counters_since_delta_snapshot"
"""Metadata that name a checkpoint's delta channels."""
_OVERWRITE: Final = "__overwrite__"


@dataclass(frozen=True, slots=True)
class Unfolded:
    """The messages of one delta channel at one checkpoint."""

    names: Sequence[bytes]
    """Digests of their bytes."""
    items: Sequence[BaseMessage]
    """As they were loaded; nobody else holds them."""

    @property
    def value(self) -> Value:
        """As if the channel were stored by item."""
        return Value("msgpack", b"", Tree(self.names, ()))


Deltas = Mapping[str, Unfolded | None]
"""The delta channels of a checkpoint; None for one that holds something else than messages."""


@dataclass(frozen=True, slots=True)
class Reads:
    """How a saver reads the parent of a checkpoint that is put."""

    find: Callable[[], CheckpointTuple | None]
    """The parent itself."""
    history: Callable[[Sequence[str]], Mapping[str, Any]]
    """The writes that lead to it, as ``get_delta_channel_history`` tells them."""
    writes: Callable[[set[str]], Sequence[PendingWrite]]
    """Its writes to some channels."""
    objects: Callable[[list[Digest]], Mapping[Digest, bytes]]


def delta_channels(values: Mapping[str, Any], facts: Mapping[str, Any]) -> list[str]:
    """The delta channels of a checkpoint, by its values and its metadata."""
    whole = [name for name, value in values.items() if isinstance(value, _DeltaSnapshot)]
    return [*whole, *(name for name in facts.get(COUNTERS) or () if name not in values)]


def known_at(names: Sequence[str], known: Deltas, encoder: Encoder, reads: Reads) -> Deltas:
    """Tell what some delta channels hold at the parent; what is not known is read.

    Args:
        names: The channels.
        known: What is known of the parent.
        encoder: Gives items their digests.
        reads: The parent.
    """
    missing = [name for name in names if name not in known]
    parent = reads.find() if missing else None
    if parent is None:
        return {**dict.fromkeys(missing, Unfolded((), ())), **known}
    held = parent.checkpoint["channel_values"]
    away = [name for name in missing if name not in held]
    older: Mapping[str, Any] = reads.history(away) if away else {}
    found = dict(known)
    for name in missing:
        history: dict[str, Any] = older.get(name) or {"seed": held.get(name), "writes": ()}
        seed = _loaded(history.get("seed"), encoder)
        found[name] = None if seed is None else _folded(seed, [value for _, _, value in history["writes"]], encoder)
    return found


def unfold(
    names: Sequence[str], values: Mapping[str, Any], moved: Callable[[str], bool], known: Deltas, encoder: Encoder, reads: Reads
) -> Deltas:
    """Tell what the delta channels of a new checkpoint hold.

    Args:
        names: The channels.
        values: The checkpoint's channel values.
        moved: Whether the version of a channel is another one than the parent's.
        known: What they hold at the parent.
        encoder: Gives items their digests; nothing that it encodes here is taken to be stored.
        reads: The parent.
    """
    grown = {name for name in names if name not in values and known[name] is not None and moved(name)}
    writes = reads.writes(grown) if grown else ()
    found: dict[str, Unfolded | None] = {}
    for name in names:
        base = known[name]
        if name in values:
            found[name] = _snapshot(values[name].value, base, encoder, reads)
        elif base is not None and name in grown:
            found[name] = _folded(base, [value for _, channel, value in writes if channel == name], encoder)
        else:
            found[name] = base
    return found


def away(found: CheckpointTuple | None, channels: Mapping[str, Any]) -> list[str]:
    """The delta channels whose values a checkpoint does not hold itself.

    Args:
        found: The checkpoint.
        channels: The graph's.
    """
    if found is None:
        return []
    from langgraph.channels.delta import DeltaChannel  # pyright: ignore[reportMissingTypeStubs]

    values, versions = found.checkpoint["channel_values"], found.checkpoint["channel_versions"]
    deltas = [name for name, channel in channels.items() if isinstance(channel, DeltaChannel)]
    return [name for name in deltas if name not in values and name in versions]


def whole(found: CheckpointTuple, channels: Mapping[str, Any], histories: Mapping[str, Any]) -> CheckpointTuple:
    """A checkpoint whose delta channels are stored whole, as LangGraph itself stores them where a branch begins.

    Args:
        found: The checkpoint.
        channels: The graph's, which know their reducers.
        histories: The writes that lead to it, as ``get_delta_channel_history`` tells them.
    """
    made = {name: _DeltaSnapshot(rebuilt(channels[name], history)) for name, history in histories.items()}
    facts: dict[str, Any] = {**found.metadata}
    counters: dict[str, Any] = facts.pop(COUNTERS, None) or {}
    left = {name: counts for name, counts in counters.items() if name not in made}
    return found._replace(
        checkpoint=cast(Any, {**found.checkpoint, "channel_values": {**found.checkpoint["channel_values"], **made}}),
        metadata=cast(Any, {**facts, **({COUNTERS: left} if left else {})}),
    )


def rebuilt(channel: Any, history: Mapping[str, Any]) -> Any:
    """What a delta channel holds behind a history, by its own reducer."""
    seed = history.get("seed")
    made = channel.from_checkpoint(channel.typ() if seed is None else seed)  # older releases take None for a value
    made.replay_writes(history["writes"])
    return made.get()


def unwrapped(value: Any) -> Any:
    """A channel's value, also where it was stored whole in between."""
    return value.value if isinstance(value, _DeltaSnapshot) else value


def _loaded(seed: Any, encoder: Encoder) -> Unfolded | None:
    value = unwrapped(seed)
    if value is None:
        return Unfolded((), ())
    if not _said(value):
        return None
    items = cast("list[BaseMessage]", value)
    return Unfolded([encoder.item(item) for item in items], items)


def _folded(base: Unfolded, writes: Sequence[Any], encoder: Encoder) -> Unfolded | None:
    """The messages behind some writes; None where those are no messages."""
    if not writes:
        return base
    if not all(_said(_written(value)) for value in writes):
        return None
    from langgraph.channels.delta import DeltaChannel  # pyright: ignore[reportMissingTypeStubs]
    from langgraph.graph.message import _messages_delta_reducer  # pyright: ignore[reportMissingTypeStubs, reportPrivateUsage]

    made = DeltaChannel[Any](cast(Any, _messages_delta_reducer))
    channel: Any = made.from_checkpoint(list(base.items))
    channel.replay_writes([("", "", value) for value in writes])
    items: list[BaseMessage] = channel.get()
    names = {id(item): name for item, name in zip(base.items, base.names, strict=True)}
    return Unfolded([names.get(id(item)) or encoder.item(item) for item in items], items)


def _snapshot(value: Any, known: Unfolded | None, encoder: Encoder, reads: Reads) -> Unfolded | None:
    """A value that is stored whole: the graph goes on working with these very objects, so they are not kept."""
    if not _said(value):
        return None
    names = [encoder.item(item) for item in cast("list[BaseMessage]", value)]
    ours = dict(zip(known.names, known.items, strict=True)) if known is not None else {}
    fresh = list(dict.fromkeys(name for name in names if name not in ours))
    stored = reads.objects([name.hex() for name in fresh if name not in encoder.bytes])
    data = [encoder.bytes.get(name) or stored[name.hex()] for name in fresh]
    ours.update(zip(fresh, encoder.serde.loads_typed(("msgpack", join_list(data))), strict=True))
    return Unfolded(names, [ours[name] for name in names])


def _written(value: Any) -> Any:
    """What an ``Overwrite`` holds, in any of its forms; else the write itself, as a list."""
    if type(value).__name__ == "Overwrite":
        return value.value or []
    if isinstance(value, dict):
        held = cast("dict[str, Any]", value)
        if _OVERWRITE in held or held.get("type") == _OVERWRITE:
            return held.get(_OVERWRITE, held.get("value")) or []
    return cast(Any, value) if isinstance(value, list) else [value]


def _said(value: Any) -> bool:
    return type(value) is list and all(isinstance(item, BaseMessage) for item in cast("list[Any]", value))
