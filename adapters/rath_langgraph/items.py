"""Values as bytes: what a serde writes, cut into items that are stored once.

msgpack arrays concatenate: a header and the bytes of its items are the list. So a list is kept as one entry per item, grows by what
is new, and loads in one call. An item that still equals a snapshot of its last encoding is not encoded again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from typing import Any, Final, cast

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot  # pyright: ignore[reportPrivateUsage]

from rath_bridge.errors import EncodeError
from rath_bridge.model.digests import Digest, digest
from rath_bridge.model.encoding import INLINE_LIMIT
from rath_bridge.model.trees import Tree, list_tree
from rath_langgraph.instances import step_into
from rath_langgraph.mirror import ATOMS, Loaded, Mirror, OpaqueError, mirror_of, same, snapshot
from rath_langgraph.serde import RathSerializer

SMALL: Final = 64
"""Lists whose items are smaller than this on average are kept whole: a digest would cost more than an item."""
SNAPSHOT: Final = "delta[]"
"""Type tag of a delta channel's whole value that is kept by item."""
_DEPTH: Final = 16
SEEN: Final = 20_000
"""Snapshots that one line keeps; with more, it begins anew."""
_MIRRORS: Final = 4


def is_open(serde: SerializerProtocol) -> bool:
    """Tell whether a serde writes plain msgpack; whatever another one writes is kept whole, and nothing of it in clear."""
    kind = type(serde)
    return kind is RathSerializer or (
        isinstance(serde, JsonPlusSerializer)
        and kind.dumps_typed is JsonPlusSerializer.dumps_typed
        and kind.loads_typed is JsonPlusSerializer.loads_typed
    )


@dataclass(frozen=True, slots=True)
class Value:
    """One channel's value as it is stored."""

    type: str
    """The serde's type tag (``msgpack``, ``null``, ``bytes``, ``msgpack+aes`` ...)."""
    digest: bytes
    """Raw sha256 of the bytes, or of the root of its list tree."""
    tree: Tree | None = None
    """Of a list that is kept by item."""

    def names(self) -> Sequence[bytes]:
        """Digests of what holds its bytes."""
        return self.tree.items if self.tree is not None else () if self.type == "null" else (self.digest,)


@dataclass(slots=True)
class Seen:
    """Items of the last lists, by a hint (class, id, text), with a snapshot of what they were when they were encoded."""

    known: dict[object, tuple[object, bytes]] = field(default_factory=dict[object, tuple[object, bytes]])
    mirrors: OrderedDict[bytes, Mirror] = field(default_factory=OrderedDict[bytes, Mirror])
    """The last lists of messages, by the digest of their root."""
    said: dict[bytes, Digest] = field(default_factory=dict[bytes, Digest])
    """What an item says (`rath_langgraph.compare.content_key`), by its digest."""

    def find(self, item: object) -> bytes | None:
        """Return the digest of an item that is what it was at its last encoding."""
        found = self.known.get(_hint(item))
        if found is None:
            return None
        return found[1] if same(found[0], _content(item)) else None

    def remember(self, encoder: Encoder) -> None:
        """Take over what an encoder has encoded, once it is durable."""
        if len(self.known) > SEEN:
            self.known.clear()
        self.known.update(encoder.snapshots)
        for root, mirror in encoder.mirrors.items():
            self.mirror(root, mirror)

    def mirror(self, root: bytes, mirror: Mirror) -> None:
        """Keep what a list was; the oldest goes."""
        self.mirrors[root] = mirror
        while len(self.mirrors) > _MIRRORS:
            self.mirrors.popitem(last=False)

    def loaded(self, value: Value, items: Sequence[Loaded]) -> None:
        """Take over a list that was loaded from the store."""
        if value.digest not in self.mirrors and value.tree is not None:
            self.mirror(value.digest, mirror_of(value.tree.items, items))


def _hint(item: object) -> object:
    if isinstance(item, BaseMessage):
        return (type(item), item.id, item.content if type(item.content) is str else None)
    return item if type(item) is str else None


def _content(item: object) -> object:
    return (item.__dict__, item.__pydantic_extra__) if isinstance(item, BaseMessage) else item


def long_texts(value: object, found: dict[Digest, bytes], depth: int = 0) -> None:
    """Collect the texts that become blobs, so that the store can keep bytes that hold them as segments around them."""
    kind = type(value)
    if kind is str:
        text = cast(str, value)
        if len(text) >= INLINE_LIMIT // 4:
            try:
                data = text.encode()
            except UnicodeEncodeError:
                return
            if len(data) >= INLINE_LIMIT:
                found[digest(data)] = data
        return
    if kind in ATOMS or depth > _DEPTH or isinstance(value, (Enum, type)):
        return  # a member leads to its class, and that to all the others
    step = 1
    parts: Iterable[Any]
    if isinstance(value, Mapping):
        parts = cast("Mapping[Any, Any]", value).values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = cast("Iterable[Any]", value)
    else:
        fields: dict[str, Any] = getattr(value, "__dict__", {})
        more: dict[str, Any] | None = getattr(value, "__pydantic_extra__", None)
        step = step_into(value) if fields else 1
        parts = (*fields.values(), *(more or {}).values())
    for part in parts:
        long_texts(part, found, depth + step)


class Encoder:
    """Encodes the values of one append, and collects the objects that they need."""

    def __init__(
        self, serde: SerializerProtocol, seen: Seen | None = None, clean: Callable[[object], object] | None = None
    ) -> None:
        self.serde, self.seen = serde, Seen() if seen is None else seen
        self.clean = clean
        """Takes known secrets out of items before they are encoded."""
        self.check: Callable[[bytes, object], None] | None = getattr(clean, "check", None)
        """Refuses bytes in which one is left; where it is set, whole values are cleaned as well."""
        self.open = is_open(serde)
        self.objects: dict[Digest, bytes] = {}
        self.snapshots: dict[object, tuple[object, bytes]] = {}
        """Items encoded here as they were, with their digests: to be remembered once they are durable."""
        self.bytes: dict[bytes, bytes] = {}
        """Bytes of the fresh items by digest."""
        self.mirrors: dict[bytes, Mirror] = {}
        """Lists of messages encoded here, by the digest of their root."""

    def item(self, item: object) -> bytes:
        """Encode one item of a list; returns its raw digest.

        Raises:
            TypeError: The serde cannot write it, or writes it in a form that is no part of a list.
        """
        known = self.seen.find(item)
        if known is not None:
            return known
        hint, taken = _hint(item), None
        if hint is not None:
            with suppress(OpaqueError):
                taken = snapshot(_content(item))
        written = item if self.clean is None else self.clean(item)
        kind, data = self.serde.dumps_typed([written])
        if self.check is not None:
            self.check(data, item)
        if kind != "msgpack" or data[:1] != b"\x91":
            raise TypeError(f"{type(item).__name__} is written as {kind}, not as msgpack")
        data = bytes(data[1:])
        name = sha256(data).digest()
        self.bytes[name] = data
        if taken is not None and same(taken, _content(item)):  # the graph may have changed it meanwhile, in another thread
            self.snapshots[hint] = (taken, name)
        return name

    def _item_at(self, index: int, item: object) -> bytes:
        try:
            return self.item(item)
        except EncodeError as error:  # its path begins in a list of one
            raise EncodeError(f"[{index}]{error.path.removeprefix('[0]')}", error.found) from error.__cause__

    def keep(self, item: object, name: bytes) -> None:
        """Put a fresh item's bytes, and its long texts, into the objects."""
        data = self.bytes.get(name)
        if data is not None:
            self.objects[name.hex()] = data
            if len(data) >= INLINE_LIMIT:  # else no text in it is that long
                long_texts(item if self.clean is None else self.clean(item), self.objects)

    def items(self, values: Sequence[object], mirror: Mirror | None = None) -> tuple[list[bytes], Mirror | None] | None:
        """Encode a list by item; None where it is better kept whole.

        Args:
            values: The list.
            mirror: What an earlier version of it was: its front costs nothing where it still is.

        Returns:
            The items' digests, and for a list of messages what it is now.
        """
        if not self.open or not values:
            return None
        front = mirror.matches(values) if mirror is not None else 0
        if mirror is not None and front == len(values) == len(mirror.names):
            return mirror.names, mirror
        grown = mirror.front(front) if mirror is not None else Mirror()
        snapshots, data = dict(self.snapshots), dict(self.bytes)
        messages = True
        try:
            for index, value in enumerate(values[front:] if front else values, front):
                name = self._item_at(index, value)
                if isinstance(value, BaseMessage):
                    found = self.snapshots.get(_hint(value)) or self.seen.known.get(_hint(value))
                    taken: Any = found[0] if found is not None and found[1] == name else (None, None)
                    grown.add(name, type(value), taken[0], taken[1])
                else:
                    messages = False
                    grown.names.append(name)
        except TypeError:
            grown = Mirror()
        names = grown.names
        if names and (isinstance(values[0], BaseMessage) or self._mean(names) >= SMALL):
            return names, grown if messages else None
        self.snapshots, self.bytes = snapshots, data
        return None

    def _mean(self, names: Sequence[bytes]) -> float:
        sizes = [len(self.bytes[name]) for name in names if name in self.bytes]
        return sum(sizes) / len(sizes) if sizes else SMALL

    def value(self, value: Any, old: Value | None = None) -> Value:
        """Encode a channel's value; with the old one at hand, what it shares costs nothing."""
        held: Any = value.value if isinstance(value, _DeltaSnapshot) else value
        made = (
            self._listed(cast("list[object]", held), old, "msgpack" if held is value else SNAPSHOT)
            if type(held) is list
            else None
        )
        if made is not None:
            return made
        whole = cast(object, value)
        if self.check is not None and self.clean is not None:
            whole = self.clean(whole)
        kind, data = self.serde.dumps_typed(whole)
        data = bytes(data)
        if self.check is not None:
            self.check(data, whole)
        name = sha256(data).digest()
        if kind != "null" and (old is None or old.digest != name):
            self.objects[name.hex()] = data
            if self.open and len(data) >= INLINE_LIMIT:
                long_texts(whole, self.objects)
        return Value(kind, name)

    def _listed(self, values: Sequence[object], old: Value | None, kind: str) -> Value | None:
        made = self.items(values, self.seen.mirrors.get(old.digest) if old is not None else None)
        if made is None:
            return None
        names, mirror = made
        before = old.tree if old else None
        if before is not None and old is not None and (before.items is names or before.items == names):
            value = old if old.type == kind else Value(kind, old.digest, before)
        else:
            tree, nodes = list_tree(names, before)
            self.objects.update(nodes)
            self._keep_fresh(values, names, before.items if before else ())
            value = Value(kind, tree.levels[-1][0].digest, tree)
        if mirror is not None:
            self.mirrors[value.digest] = mirror
        return value

    def _keep_fresh(self, values: Sequence[object], names: Sequence[bytes], standing: Sequence[bytes]) -> None:
        """Put the items of a list that were encoded just now into the objects."""
        fresh = self.bytes.keys() - set(standing)
        if fresh:
            front = len(standing) if names[: len(standing)] == standing else 0
            for item, name in zip(values[front:], names[front:], strict=True):
                if name in fresh:
                    self.keep(item, name)


def join_list(items: Sequence[bytes]) -> bytes:
    """Return the msgpack array of items that are encoded already."""
    size = len(items)
    if size < 16:
        head = bytes((0x90 | size,))
    elif size < 1 << 16:
        head = b"\xdc" + size.to_bytes(2, "big")
    else:
        head = b"\xdd" + size.to_bytes(4, "big")
    return head + b"".join(items)
