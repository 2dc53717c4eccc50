"""Values as bytes: what a serde writes, cut into items that are stored once.

msgpack arrays concatenate: a header and the bytes of its items are the list. So a list is kept as one entry per item, grows by what
is new, and loads in one call. An item that still equals a snapshot of its last encoding is not encoded again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, cast

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from rath_bridge.model.digests import Digest, digest
from rath_bridge.model.encoding import INLINE_LIMIT
from rath_bridge.model.trees import Tree, list_tree

SMALL: Final = 64
"""Lists whose items are smaller than this on average are kept whole: a digest would cost more than an item."""
_DEPTH: Final = 16
_SEEN: Final = 20_000
"""Snapshots that one line keeps; with more, it begins anew."""
_ATOMS: Final = frozenset({str, int, float, bool, bytes, type(None)})


def is_open(serde: SerializerProtocol) -> bool:
    """Tell whether a serde writes plain msgpack; whatever another one writes is kept whole, and nothing of it in clear."""
    kind = type(serde)
    return (
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


@dataclass(slots=True)
class Seen:
    """Items of the last lists, by a hint (class, id, text), with a snapshot of what they were when they were encoded."""

    known: dict[object, tuple[object, bytes]] = field(default_factory=dict[object, tuple[object, bytes]])

    def find(self, item: object) -> bytes | None:
        """Return the digest of an item that is what it was at its last encoding."""
        found = self.known.get(_hint(item))
        if found is None:
            return None
        old: Any = found[0]
        if isinstance(item, BaseMessage):
            same = _unchanged(old[0], item.__dict__) and _same(old[1], item.__pydantic_extra__)
        else:
            same = _same(old, item)
        return found[1] if same else None

    def remember(self, encoder: Encoder) -> None:
        """Take over what an encoder has encoded, once it is durable."""
        if len(self.known) > _SEEN:
            self.known.clear()
        self.known.update(encoder.snapshots)


class _OpaqueError(Exception):
    """A value whose changes could not be noticed."""


def _hint(item: object) -> object:
    if isinstance(item, BaseMessage):
        return (type(item), item.id, item.content if type(item.content) is str else None)
    return item if type(item) is str else None


def _content(item: object) -> object:
    return (item.__dict__, item.__pydantic_extra__) if isinstance(item, BaseMessage) else item


def _snapshot(value: Any) -> Any:
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind in _ATOMS:
        return value
    if kind is dict:
        return {key: _snapshot(item) for key, item in value.items()}
    if kind is list or kind is tuple:
        copies = [_snapshot(item) for item in value]
        return copies if kind is list else tuple(copies)
    raise _OpaqueError


def _unchanged(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """`_same` for the fields of a model, whose order is fixed; most are atoms or empty, and a thread has thousands of them."""
    if len(old) != len(new):
        return False
    for key, value in new.items():
        other = old.get(key, old)
        kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
        if kind is not type(other):
            return False
        if kind in _ATOMS:
            if value is not other and value != other:
                return False
        elif (value or other) and not _same(other, value):
            return False
    return True


def _same(old: Any, new: Any) -> bool:
    """Equality that knows 1 from True and sees the order of keys: equal here means equal bytes."""
    kind: type[Any] = type(new)  # pyright: ignore[reportUnknownVariableType]
    if type(old) is not kind:
        return False
    if kind is dict:
        return len(old) == len(new) and all(
            a == b and type(a) is type(b) and ((x is y and type(y) in _ATOMS) or _same(x, y))
            for (a, x), (b, y) in zip(old.items(), new.items(), strict=True)
        )
    if kind is list or kind is tuple:
        return len(old) == len(new) and all(_same(x, y) for x, y in zip(old, new, strict=True))
    return kind in _ATOMS and bool(old == new)


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
    if kind in _ATOMS or depth > _DEPTH:
        return
    parts: Iterable[Any]
    if isinstance(value, Mapping):
        parts = cast("Mapping[Any, Any]", value).values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = cast("Iterable[Any]", value)
    else:
        fields: dict[str, Any] = getattr(value, "__dict__", {})
        more: dict[str, Any] | None = getattr(value, "__pydantic_extra__", None)
        parts = (*fields.values(), *(more or {}).values())
    for part in parts:
        long_texts(part, found, depth + 1)


class Encoder:
    """Encodes the values of one append, and collects the objects that they need."""

    def __init__(
        self, serde: SerializerProtocol, seen: Seen | None = None, clean: Callable[[object], object] | None = None
    ) -> None:
        self.serde, self.seen = serde, Seen() if seen is None else seen
        self.clean = clean
        """Takes known secrets out of observed items before they are encoded."""
        self.open = is_open(serde)
        self.objects: dict[Digest, bytes] = {}
        self.snapshots: dict[object, tuple[object, bytes]] = {}
        """Items encoded here as they were, with their digests: to be remembered once they are durable."""
        self.bytes: dict[bytes, bytes] = {}
        """Bytes of the fresh items by digest."""

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
            with suppress(_OpaqueError):
                taken = _snapshot(_content(item))
        written = item if self.clean is None else self.clean(item)
        kind, data = self.serde.dumps_typed([written])
        if kind != "msgpack" or data[:1] != b"\x91":
            raise TypeError(f"{type(item).__name__} is written as {kind}, not as msgpack")
        data = bytes(data[1:])
        name = sha256(data).digest()
        self.bytes[name] = data
        if taken is not None and _same(taken, _content(item)):  # the graph may have changed it meanwhile, in another thread
            self.snapshots[hint] = (taken, name)
        return name

    def keep(self, item: object, name: bytes) -> None:
        """Put a fresh item's bytes, and its long texts, into the objects."""
        data = self.bytes.get(name)
        if data is not None:
            self.objects[name.hex()] = data
            long_texts(item if self.clean is None else self.clean(item), self.objects)

    def items(self, values: Sequence[object]) -> list[bytes] | None:
        """Encode a list by item; None where it is better kept whole."""
        if not self.open or not values:
            return None
        snapshots, data = dict(self.snapshots), dict(self.bytes)
        try:
            names = [self.item(value) for value in values]
        except TypeError:
            names = []
        if names and (isinstance(values[0], BaseMessage) or self._mean(names) >= SMALL):
            return names
        self.snapshots, self.bytes = snapshots, data
        return None

    def _mean(self, names: Sequence[bytes]) -> float:
        sizes = [len(self.bytes[name]) for name in names if name in self.bytes]
        return sum(sizes) / len(sizes) if sizes else SMALL

    def value(self, value: Any, old: Value | None = None) -> Value:
        """Encode a channel's value; with the old one at hand, what it shares costs nothing."""
        if type(value) is list:
            values = cast("list[object]", value)
            names = self.items(values)
            if names is not None:
                before = old.tree if old else None
                tree, nodes = list_tree(names, before)
                self.objects.update(nodes)
                standing: set[bytes] = set(before.items) if before else set()
                for item, name in zip(values, names, strict=True):
                    if name not in standing:
                        self.keep(item, name)
                return Value("msgpack", tree.levels[-1][0].digest, tree)
        kind, data = self.serde.dumps_typed(value)
        data = bytes(data)
        name = sha256(data).digest()
        if kind != "null" and (old is None or old.digest != name):
            self.objects[name.hex()] = data
            if self.open:
                long_texts(cast(object, value), self.objects)
        return Value(kind, name)


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
