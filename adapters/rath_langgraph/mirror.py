"""Lists of messages at C speed: what they were at their last encoding, and fresh copies of what was loaded before.

A thread's list is compared at every put and loaded at every turn; per message that may cost a microsecond, not twenty. Nothing here is
shared with a graph: what may change is copied on the way in and on the way out.
"""

from __future__ import annotations

import gc
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from threading import Lock
from typing import Any, Final, NamedTuple, cast

from langchain_core.messages import BaseMessage
from pydantic import BaseModel

ATOMS: Final = frozenset({str, int, float, bool, bytes, type(None)})
LIMIT: Final = 64 * 1024 * 1024
"""Encoded bytes of the messages that are kept for copying."""
_FIELDS: Final = attrgetter("__dict__")
_EXTRA: Final = attrgetter("__pydantic_extra__")
_VALUES: Final[Callable[[dict[str, Any]], Iterable[Any]]] = dict[str, Any].values
_CHANGED: Final = object()
"""Stands for a message whose changes could not be noticed: equal to nothing."""
_new: Any = object.__new__
_set_fields: Any = BaseModel.__dict__["__dict__"].__set__
_set_given: Any = BaseModel.__dict__["__pydantic_fields_set__"].__set__
_set_extra: Any = BaseModel.__dict__["__pydantic_extra__"].__set__
_set_private: Any = BaseModel.__dict__["__pydantic_private__"].__set__


class OpaqueError(Exception):
    """A value whose changes could not be noticed."""


def snapshot(value: Any) -> Any:
    """Copy a value of atoms, lists, tuples and dicts.

    Raises:
        OpaqueError: Something else is in it.
    """
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind in ATOMS:
        return value
    if kind is dict:
        return {key: snapshot(item) for key, item in value.items()}
    if kind is list:
        return [snapshot(item) for item in value]
    if kind is tuple:
        return tuple([snapshot(item) for item in value])
    raise OpaqueError


def same(old: Any, new: Any) -> bool:
    """Equality that knows 1 from True and sees the order of keys: equal here means equal bytes."""
    kind: type[Any] = type(new)  # pyright: ignore[reportUnknownVariableType]
    if type(old) is not kind:
        return False
    if kind is dict:
        return len(old) == len(new) and all(
            a == b and type(a) is type(b) and ((x is y and type(y) in ATOMS) or same(x, y))
            for (a, x), (b, y) in zip(old.items(), new.items(), strict=True)
        )
    if kind is list or kind is tuple:
        return len(old) == len(new) and all(same(x, y) for x, y in zip(old, new, strict=True))
    return kind in ATOMS and (old is new or bool(old == new))


def _deep(fields: Mapping[str, Any], extra: object) -> tuple[str, ...] | None:
    """Fields that are not settled by ``==`` and the type of the value; None where there are none."""
    names = tuple(key for key, value in fields.items() if value and type(value) not in ATOMS)
    return names if names or extra else None


@dataclass(slots=True)
class Mirror:
    """One list of messages as it was when it was encoded."""

    names: list[bytes] = field(default_factory=list[bytes])
    """Digests of its items."""
    classes: list[type] = field(default_factory=list[type])
    fields: list[Any] = field(default_factory=list[Any])
    """Snapshots of ``__dict__``."""
    extras: list[Any] = field(default_factory=list[Any])
    kinds: list[type] = field(default_factory=list[type])
    """Types of all field values, one after the other."""
    deep: list[tuple[int, tuple[str, ...]]] = field(default_factory=list[tuple[int, tuple[str, ...]]])
    """Places whose nested values have to be looked at."""

    def add(self, name: bytes, cls: type, fields: dict[str, Any] | None, extra: Any) -> None:
        """Add an item; ``fields`` is None where no snapshot could be taken."""
        if fields is not None:
            nested = _deep(fields, extra)
            if nested is not None:
                self.deep.append((len(self.names), nested))
            self.kinds.extend(map(type, fields.values()))
        self.names.append(name)
        self.classes.append(cls)
        self.fields.append(_CHANGED if fields is None else fields)
        self.extras.append(extra)

    def front(self, size: int) -> Mirror:
        """A copy of the first items, to be grown."""
        if size == len(self.names):
            return Mirror(
                [*self.names], [*self.classes], [*self.fields], [*self.extras], [*self.kinds], [*self.deep]
            )  # fmt: skip
        kinds = sum(len(d) for d in self.fields[:size] if d is not _CHANGED)
        return Mirror(
            self.names[:size], self.classes[:size], self.fields[:size], self.extras[:size], self.kinds[:kinds],
            [entry for entry in self.deep if entry[0] < size],
        )  # fmt: skip

    def matches(self, values: Sequence[object]) -> int:
        """How many messages at the front are what they were.

        ``==`` of dicts runs at C speed and takes 1 for True: the types of all values are compared beside it, nested values apart.
        """
        classes = list(map(type, values))
        try:
            fields: list[Any] = list(map(_FIELDS, values))
            extras: list[Any] = list(map(_EXTRA, values))
            size = min(_front(fields, self.fields), _front(classes, self.classes), _front(extras, self.extras))
        except Exception:  # noqa: BLE001 - no messages, or a value in them that cannot be compared
            return 0
        for place, nested in self.deep:
            if place >= size:
                break
            old, new = self.fields[place], fields[place]
            if not (all(same(old[key], new[key]) for key in nested) and same(self.extras[place], extras[place])):
                size = place
                break
        kinds = list(map(type, chain.from_iterable(map(_VALUES, fields[:size]))))
        return size if kinds == self.kinds[: len(kinds)] else 0


def _front(new: list[Any], old: list[Any]) -> int:
    """Length of the common front, by halving."""
    size = min(len(new), len(old))
    if new[:size] == old[:size]:
        return size
    low, high = 0, size - 1
    while low < high:
        middle = (low + high + 1) // 2
        if new[low:middle] == old[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class Loaded(NamedTuple):
    """A message as a serde has loaded it, kept for copying."""

    cls: type[BaseMessage]
    fields: dict[str, Any]
    flat: tuple[tuple[str, type], ...]
    """Fields that are empty lists or dicts."""
    nested: tuple[str, ...]
    given: set[str]
    extra: dict[str, Any] | None


class _Pause:
    """Holds the garbage collector while thousands of objects are made that are all in use: it would look for garbage among them two
    hundred times and find none, at three times the cost of making them. Threads that overlap are counted; the last one lets it go on.
    """

    def __init__(self) -> None:
        self._lock, self._inside, self._was_on = Lock(), 0, False

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._was_on = gc.isenabled()
                gc.disable()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._was_on:
                gc.enable()

    def after_fork(self) -> None:
        """A child has none of the threads that were inside."""
        if self._inside and self._was_on:
            gc.enable()
        self.__init__()


_pause: Final = _Pause()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pause.after_fork)
_MANY: Final = 128


def fresh(items: Sequence[Loaded]) -> list[BaseMessage]:
    """Copies that share nothing that can change."""
    if len(items) < _MANY:
        return _copies(items)
    with _pause:
        return _copies(items)


def _copies(items: Sequence[Loaded]) -> list[BaseMessage]:
    found: list[BaseMessage] = []
    for cls, old, flat, nested, given, extra in items:
        made = _new(cls)
        fields = old.copy()
        for key, kind in flat:
            fields[key] = kind()
        for key in nested:
            fields[key] = snapshot(old[key])
        _set_fields(made, fields)
        _set_given(made, given.copy())
        _set_extra(made, snapshot(extra) if extra else None if extra is None else {})
        _set_private(made, None)
        found.append(made)
    return found


def loaded(message: object) -> Loaded | None:
    """Take a message that was loaded just now, or None where a copy by fields would not be the whole of it."""
    if not isinstance(message, BaseMessage) or not type(message).__module__.startswith("langchain_core.messages."):
        return None
    if message.__pydantic_private__ is not None:
        return None
    try:
        fields, extra = snapshot(message.__dict__), snapshot(message.__pydantic_extra__)
    except OpaqueError:
        return None
    nested = tuple(key for key, value in fields.items() if type(value) not in ATOMS)
    flat = tuple((key, cast("type[Any]", type(fields[key]))) for key in nested if not fields[key])
    nested = tuple(key for key in nested if fields[key])
    return Loaded(type(message), fields, flat, nested, set(message.__pydantic_fields_set__), extra)


class Copies:
    """Messages that were loaded lately, by the digest of their bytes, so never stale. Safe from any thread."""

    def __init__(self) -> None:
        self._held: OrderedDict[bytes, tuple[Loaded, int]] = OrderedDict()
        self._size = 0
        self._lock = Lock()

    def find(self, names: Iterable[bytes]) -> list[Loaded | None]:
        """What is held of these, in their order."""
        held = self._held
        return [found[0] if (found := held.get(name)) is not None else None for name in names]

    def holds(self, name: bytes) -> bool:
        """Whether this one is held."""
        return name in self._held

    def keep(self, name: bytes, message: object, size: int) -> None:
        """Keep a message that a serde gave for these bytes; the ones that came first go."""
        made = loaded(message)
        if made is None or size > LIMIT // 8:
            return
        with self._lock:
            if name not in self._held:
                self._held[name] = (made, size)
                self._size += size
            while self._size > LIMIT:
                self._size -= self._held.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Forget all of them (a deleted thread; a forked child, where the lock may have been held)."""
        self._lock = Lock()
        self._held, self._size = OrderedDict(), 0


def mirror_of(names: Sequence[bytes], items: Sequence[Loaded]) -> Mirror:
    """The mirror of a list that was loaded: written again, its messages have the bytes that they came from."""
    made = Mirror()
    for name, item in zip(names, items, strict=True):
        made.add(name, item.cls, item.fields, item.extra)
    return made
