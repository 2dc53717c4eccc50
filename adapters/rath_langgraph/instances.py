"""Instances of somebody's classes as values, and back: their state is set, no constructor and no validator of theirs runs."""

from __future__ import annotations

import builtins
import dataclasses
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, cast
from zoneinfo import ZoneInfo

from pydantic import BaseModel

from rath_bridge.errors import UnsupportedError
from rath_langgraph.mirror import ATOMS

_TUPLE: Final[Any] = tuple
_LIST: Final[Any] = list
_DICT: Final[Any] = dict
_SET: Final[Any] = set
_INTO_OTHERS: Final = 12
_new: Final[Any] = object.__new__
_set: Final[Any] = object.__setattr__


def is_text(key: object) -> bool:
    """Whether a key is text that UTF-8 can hold."""
    if type(key) is not str:
        return False
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def holds_bytearray(value: object) -> bool:
    """Whether a bytearray stands in a value, as far as that consists of lists and dicts: msgpack would make bytes of it."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if type(one) is bytearray:
            return True
        if type(one) is list:
            waiting += cast("list[object]", one)
        elif type(one) is dict:
            waiting += cast("dict[object, object]", one).values()
    return False


def is_array(obj: object) -> bool:
    """Whether it is an array of numpy, of plain numbers or text."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(obj) is numpy.ndarray and not cast(Any, obj).dtype.hasobject


def is_number(obj: object) -> bool:
    """Whether it is a number of numpy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(obj, numpy.generic) and not cast(Any, obj).dtype.hasobject


def plain_value(base: type[Any], obj: Any) -> Any:
    """The value of an instance of a subclass, as msgpack can hold it; none of its own methods runs."""
    if base is dict:
        return [[key, value] for key, value in _DICT.items(obj)]
    if base in (list, set, frozenset, tuple):
        return [*cast(Any, base).__iter__(obj)]
    if base is bytes:
        return bytes(memoryview(obj))
    return {str: str.__str__, int: int.__int__, float: float.__float__}[base](obj)


def step_into(value: object) -> int:
    """How much of the allowed depth a look into an object costs: what is no plain data may lead round in circles."""
    return 1 if isinstance(value, BaseModel) or dataclasses.is_dataclass(value) else _INTO_OTHERS


def has_slots(kind: type) -> bool:
    """Whether a class keeps values that its dict does not show."""
    return any(getattr(cls, "__slots__", ()) for cls in kind.__mro__ if cls.__module__ != "builtins")


def imported(module: str, name: str) -> Any:
    """A class by name among the imported modules; None where there is none, or more than one."""
    at: Any = sys.modules.get(module)
    plain, bracket, _ = name.partition("[")
    for part in plain.split("."):
        at = getattr(at, part, None)
    if not isinstance(at, type):
        return None
    if not bracket:
        return at
    # A generic model of pydantic with its types: whoever has named it holds it, and no module need do.
    made = [cls for cls in type.__subclasses__(at) if (cls.__module__, cls.__qualname__) == (module, name)]
    return made[0] if len(made) == 1 else None


def parts_of(value: Any) -> Iterator[tuple[str, Any]]:
    """What a value consists of, with the step of the path to each."""
    if isinstance(value, Mapping):
        for key, item in cast("Mapping[Any, Any]", value).items():
            yield f"[{key!r}]", item
            if type(key) not in ATOMS:
                yield f".keys()[{key!r}]", key
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        for index, item in enumerate(cast("Iterable[Any]", value)):
            yield f"[{index}]", item
    elif isinstance(value, BaseException):
        for index, item in enumerate(value.args):
            yield f".args[{index}]", item
    elif dataclasses.is_dataclass(value) or isinstance(value, BaseModel):
        for key, item in getattr(value, "__dict__", {}).items():
            yield f".{key}", item


def collected(name: str, items: Any, more: Any) -> Any:
    """What `RathSerializer` has taken apart: a collection of the standard library, a number of numpy."""
    if name == "numpy":
        numpy: Any = sys.modules.get("numpy")
        if numpy is None:
            raise UnsupportedError("a number of numpy is stored here (loading never imports): add 'import numpy'")
        return numpy.frombuffer(more, dtype=items)[0]
    if name == "bytearray":
        return bytearray(items)
    if name == "deque":
        return deque(items, maxlen=more)
    if name == "datetime":
        text, fold = items
        return datetime.fromisoformat(text).replace(tzinfo=None if more is None else ZoneInfo(more), fold=fold)
    pairs: list[tuple[Any, Any]] = [(key, value) for key, value in items]
    if name == "Counter":
        return Counter(dict(pairs))
    if name == "OrderedDict":
        return OrderedDict(pairs)
    factory = None if more is None else getattr(builtins, more)
    if factory is not None and not isinstance(factory, type):
        raise UnsupportedError(f"a defaultdict of {more!r}")
    return defaultdict(factory, pairs)


def rebuilt(how: str, cls: Any, state: Any) -> Any:
    """An instance with its state set: no constructor, no validator of it runs."""
    if how == "enum":
        return cls(state)
    if how == "named":
        return _TUPLE.__new__(cls, state)
    if how == "fields":
        made: Any = _new(cls)
        for key, value in state.items():
            _set(made, key, value)
        return made
    if how == "model":
        made = _new(cls)
        fields, extra, given, private = state
        _set(made, "__dict__", fields)
        _set(made, "__pydantic_extra__", extra)
        _set(made, "__pydantic_fields_set__", set(given))
        _set(made, "__pydantic_private__", private)
        return made
    if how == "error":
        made = cls.__new__(cls, *state[0])
        made.args = tuple(state[0])
        made.__dict__.update(state[1])
        return made
    plain, attributes = state
    if how in ("list", "dict", "set"):
        made = cls.__new__(cls)
        if how == "list":
            _LIST.extend(made, plain)
        elif how == "dict":
            for key, value in plain:
                _DICT.__setitem__(made, key, value)
        else:
            _SET.update(made, plain)
    else:
        base: Any = {"str": str, "int": int, "float": float, "bytes": bytes, "frozenset": frozenset, "tuple": tuple}[how]
        made = base.__new__(cls, plain)
    if attributes:
        made.__dict__.update(attributes)
    return made
