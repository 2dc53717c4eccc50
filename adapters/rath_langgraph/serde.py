"""`RathSerializer`: LangGraph's msgpack, made lossless or loud, and safe to load.

What LangGraph's own serializer writes is read; messages are written as it writes them. What it would change silently (tuples, subclasses,
keys that are no text, integers beyond 64 bits, lone surrogates, exceptions, ``deque(maxlen=...)``) has extension types of its own.
Loading never imports and never unpickles: classes are looked up among the modules that this process has imported.
Source: ``langgraph.checkpoint.serde.jsonplus`` and ``_msgpack`` (langgraph-checkpoint 4.3).
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable
from datetime import datetime
from enum import Enum
from pathlib import PurePath
from typing import Any, Final, cast
from zoneinfo import ZoneInfo

import ormsgpack
from langgraph.checkpoint.serde import _msgpack as lists
from langgraph.checkpoint.serde import jsonplus as theirs
from langgraph.checkpoint.serde.types import SendProtocol, _DeltaSnapshot  # pyright: ignore[reportPrivateUsage]
from pydantic import BaseModel

from rath_bridge.errors import EncodeError, UnsupportedError
from rath_langgraph.instances import (
    collected,
    has_slots,
    holds_bytearray,
    imported,
    is_array,
    is_number,
    is_text,
    parts_of,
    plain_value,
    rebuilt,
)

TUPLE: Final = 64
INT: Final = 65
TEXT: Final = 66
PAIRS: Final = 67
"""A dict whose keys are not all text."""
COLLECTION: Final = 68
OBJECT: Final = 69
"""(how, module, qualified name, state): see `_object`."""

_LOOSE: Final = (
    ormsgpack.OPT_PASSTHROUGH_DATACLASS | ormsgpack.OPT_PASSTHROUGH_DATETIME | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID | ormsgpack.OPT_PASSTHROUGH_TUPLE | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_BIG_INT
)  # fmt: skip
_KINDS: Final = frozenset({"null", "bytes", "bytearray", "json", "msgpack"})
_ANY_KEYS: Final = ormsgpack.OPT_NON_STR_KEYS
_ATOMS: Final = frozenset({str, int, float, bool, bytes, type(None)})
_BASES: Final = (str, int, float, bytes, list, dict, set, frozenset, tuple)
_SAFE: Final = lists.SAFE_MSGPACK_TYPES
_BINARY: Final = (b"\xc4", b"\xc5", b"\xc6")
"""With one of these bytes msgpack begins what is binary."""
_CONVERTIBLE: Final = (ormsgpack.MsgpackEncodeError, TypeError, ValueError, AttributeError, RecursionError)


class _Wrapped:
    """Something that msgpack has a form for which is not its own."""

    def __init__(self, tag: int, data: bytes) -> None:
        self.tag, self.data = tag, data


class RathSerializer(theirs.JsonPlusSerializer):
    """Writes what comes back equal, or raises; loads only classes that this process has imported.

    Args:
        allow: More classes that may be constructed: ones that cannot be found by their module and name (defined in a function, say).
    """

    def __init__(self, allow: Iterable[type] = ()) -> None:
        super().__init__(pickle_fallback=False, allowed_msgpack_modules=None)
        self._allowed: dict[tuple[str, str], type] = {(cls.__module__, cls.__qualname__): cls for cls in allow}

    def with_msgpack_allowlist(self, extra_allowlist: Iterable[tuple[str, ...] | type]) -> RathSerializer:
        """Itself: the classes of a compiled graph's state are imported."""
        more = {cls for cls in extra_allowlist if isinstance(cls, type)} - set(self._allowed.values())
        return RathSerializer([*self._allowed.values(), *more]) if more else self

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Write a value.

        Raises:
            EncodeError: It could not come back equal; the error names the path.
        """
        kind: type[Any] = type(obj)  # pyright: ignore[reportUnknownVariableType]
        if obj is None:
            return "null", b""
        if kind is bytes:
            return "bytes", obj
        if kind is bytearray:
            return "bytearray", bytes(obj)
        try:
            return "msgpack", self._pack(obj)
        except _CONVERTIBLE as error:
            path, found = self._culprit(obj)
            raise EncodeError(
                path or "the value", found, "keep data in the state, not handles, functions or open files"
            ) from error

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Read a value.

        Raises:
            UnsupportedError: A class in it is not imported here, or the bytes are of a kind that is not loaded.
        """
        if data[0] == "msgpack":
            return self._unpack(data[1])
        if data[0] == "pickle":
            raise UnsupportedError("these bytes are a pickle, which is never loaded: pass the serde that wrote them (serde=...)")
        if data[0] not in _KINDS:
            raise UnsupportedError(f"{data[0]!r} bytes are not of this serializer: pass the serde that wrote them (serde=...)")
        return super().loads_typed(data)

    # ---------------------------------------------------------------- write

    def _pack(self, value: Any) -> bytes:
        try:
            data = ormsgpack.packb(value, default=self._default, option=_LOOSE)
            if not any(mark in data for mark in _BINARY) or not holds_bytearray(value):
                return data
            spelled = self._spelled(value)
        except ormsgpack.MsgpackEncodeError:
            spelled = self._spelled(value)
            if spelled is value:
                raise
        return ormsgpack.packb(spelled, default=self._default, option=_LOOSE)

    def _ext(self, tag: int, value: Any) -> ormsgpack.Ext:
        return ormsgpack.Ext(tag, self._pack(value))

    def _spelled(self, value: Any) -> Any:
        """Wrap what has no form in msgpack and never reaches `_default`: lone surrogates, keys that are no text, bytearrays."""
        kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
        if kind is str:
            try:
                value.encode()
            except UnicodeEncodeError:
                return _Wrapped(TEXT, value.encode("utf-8", "surrogatepass"))
        elif kind is bytearray:
            return _Wrapped(COLLECTION, self._pack(["bytearray", bytes(value), None]))
        elif kind is list:
            items = [self._spelled(item) for item in value]
            return value if all(a is b for a, b in zip(items, value, strict=True)) else items
        elif kind is dict:
            if not all(is_text(key) for key in value):
                return _Wrapped(PAIRS, self._pack([[self._spelled(key), self._spelled(item)] for key, item in value.items()]))
            entries = {key: self._spelled(item) for key, item in value.items()}
            return value if all(entries[key] is value[key] for key in entries) else entries
        return value

    def _default(self, obj: Any) -> Any:
        kind: type[Any] = type(obj)  # pyright: ignore[reportUnknownVariableType]
        if kind is _Wrapped:
            return ormsgpack.Ext(obj.tag, obj.data)
        if kind is tuple:
            return self._ext(TUPLE, list(obj))
        if kind is int:
            return ormsgpack.Ext(INT, str(obj).encode())
        if isinstance(obj, _DeltaSnapshot):
            return self._ext(theirs.EXT_DELTA_SNAPSHOT, obj.value)
        if kind in (set, frozenset):
            return self._ext(theirs.EXT_CONSTRUCTOR_SINGLE_ARG, ["builtins", kind.__name__, list(obj)])
        if kind in (deque, OrderedDict, defaultdict, Counter):
            return self._ext(COLLECTION, self._collection(obj, kind))
        if kind.__module__ == "langgraph.types" and isinstance(obj, SendProtocol):  # the protocol is slow to ask
            timeout = getattr(obj, "timeout", None)
            args = [obj.node, obj.arg] if timeout is None else [obj.node, obj.arg, timeout]
            return self._ext(theirs.EXT_CONSTRUCTOR_POS_ARGS, [kind.__module__, kind.__name__, args])
        if isinstance(obj, BaseModel) and (kind.__module__, kind.__name__) in _SAFE:
            fields = {**obj.__dict__, **(obj.__pydantic_extra__ or {})}
            return self._ext(theirs.EXT_PYDANTIC_V2, [kind.__module__, kind.__name__, fields, "model_validate_json"])
        if kind is datetime:
            at = cast(datetime, obj)
            zone: str | None = getattr(at.tzinfo, "key", None)
            if (zone is not None and isinstance(at.tzinfo, ZoneInfo)) or (
                at.fold and at.tzinfo is None
            ):  # written as text, only its offset from UTC would be left
                return self._ext(COLLECTION, ["datetime", [at.replace(tzinfo=None).isoformat(), at.fold], zone])
        if is_number(obj):
            return self._ext(COLLECTION, ["numpy", cast(Any, obj).dtype.str, cast(Any, obj).tobytes()])
        made = self._object(obj, kind)
        if made is not None:
            self._known(kind)
            return self._ext(OBJECT, [made[0], kind.__module__, kind.__qualname__, made[1]])
        if (kind.__module__, kind.__name__) in _SAFE or kind is re.Pattern or is_array(obj):
            one = cast(Any, obj)
            given: list[Any] = (
                [*one.parts] if isinstance(obj, PurePath) else [one.pattern, one.flags] if kind is re.Pattern else []
            )
            if any(type(part) is str and not is_text(part) for part in given):  # theirs would lose the surrogates
                named = ("re", "compile") if kind is re.Pattern else (kind.__module__, kind.__name__)
                return self._ext(theirs.EXT_CONSTRUCTOR_POS_ARGS, [*named, given])
            return theirs._msgpack_default(obj)  # pyright: ignore[reportPrivateUsage]
        raise TypeError(f"a {kind.__module__}.{kind.__qualname__} cannot be kept")

    def _collection(self, obj: Any, kind: type[Any]) -> list[Any]:
        if kind is deque:
            return ["deque", list(obj), obj.maxlen]
        pairs = [[key, value] for key, value in obj.items()]
        if kind is not defaultdict:
            return [kind.__name__, pairs, None]
        made = obj.default_factory
        if made is not None and (not isinstance(made, type) or made.__module__ != "builtins"):
            raise TypeError(f"a defaultdict whose factory is {made!r}")
        return ["defaultdict", pairs, None if made is None else made.__name__]

    def _object(self, obj: Any, kind: type[Any]) -> tuple[str, Any] | None:
        """How an instance of somebody's class is made again, and from what: by setting its state, without running its code."""
        if isinstance(obj, Enum):
            return "enum", obj.value
        if isinstance(obj, BaseModel):
            given = sorted(obj.__pydantic_fields_set__)
            return "model", [obj.__dict__, obj.__pydantic_extra__, given, obj.__pydantic_private__]
        if isinstance(obj, type):
            return None
        if dataclasses.is_dataclass(obj):
            names = [field.name for field in dataclasses.fields(obj)]
            state = {name: getattr(obj, name) for name in names if hasattr(obj, name)}
            return "fields", {**state, **getattr(obj, "__dict__", {})}
        if isinstance(obj, tuple) and hasattr(kind, "_fields"):
            return "named", list(cast("tuple[Any, ...]", obj))
        if isinstance(obj, BaseException):
            return "error", [list(obj.args), dict(obj.__dict__)]
        base = next((base for base in _BASES if isinstance(obj, base)), None)
        if base is None or kind.__module__ == "builtins" or has_slots(kind):
            return None
        state = [plain_value(base, obj), dict(getattr(cast(object, obj), "__dict__", {}))]
        if type(rebuilt(base.__name__, kind, state)) is not kind:
            return None
        return base.__name__, state

    def _known(self, kind: type) -> None:
        """A class that its name does not lead to is found again in this process; another one has to be told."""
        name = (kind.__module__, kind.__qualname__)
        if imported(*name) is not kind:
            self._allowed[name] = kind

    def _culprit(self, value: Any, path: str = "", depth: int = 0) -> tuple[str, str]:
        """The innermost value that cannot be kept: its path, and what it is."""
        for step, part in parts_of(value) if depth < 64 else ():
            try:
                self._pack(part)
            except _CONVERTIBLE:
                return self._culprit(part, path + step, depth + 1)
        kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
        return path, f"a {kind.__module__}.{kind.__qualname__}" if kind.__module__ != "builtins" else f"a {kind.__qualname__}"

    # ---------------------------------------------------------------- read

    def _unpack(self, data: bytes) -> Any:
        failed: list[Exception] = []

        def made(code: int, inner: bytes) -> Any:
            try:
                return self._made(code, inner)
            except Exception as error:
                failed.append(error)
                raise

        try:
            return ormsgpack.unpackb(data, ext_hook=made, option=_ANY_KEYS)
        except ValueError:  # what went wrong in the hook is not told
            if failed:
                raise failed[0] from None
            raise

    def _made(self, code: int, data: bytes) -> Any:
        if code == INT:
            return int(data)
        if code == TEXT:
            return data.decode("utf-8", "surrogatepass")
        value = self._unpack(data)
        if code == TUPLE:
            return tuple(value)
        if code == PAIRS:
            return dict(value)
        if code == COLLECTION:
            return collected(*value)
        if code == OBJECT:
            how, module, name, state = value
            return rebuilt(how, self._class(module, name), state)
        if code == theirs.EXT_DELTA_SNAPSHOT:
            return _DeltaSnapshot(value)
        if code == theirs.EXT_NUMPY_ARRAY:
            return theirs._msgpack_ext_hook(code, data)  # pyright: ignore[reportPrivateUsage]
        return self._theirs(code, value)

    def _theirs(self, code: int, value: Any) -> Any:
        """What LangGraph's own serializer has written."""
        module, name, given = value[:3]
        if (module, name) in _SAFE:
            made: Any = getattr(__import__(module, fromlist=[name]), name)  # one of a fixed list
        else:
            made = self._class(module, name)
        if code == theirs.EXT_CONSTRUCTOR_SINGLE_ARG:
            return made(given)
        if code == theirs.EXT_CONSTRUCTOR_POS_ARGS:
            return made(*given[:2], timeout=given[2]) if name == "Send" and len(given) == 3 else made(*given)
        if code == theirs.EXT_CONSTRUCTOR_KW_ARGS:
            return made(**given)
        if code == theirs.EXT_METHOD_SINGLE_ARG and (module, name, value[3]) in lists.SAFE_MSGPACK_METHODS:
            return getattr(made, value[3])(given)
        if code in (theirs.EXT_PYDANTIC_V1, theirs.EXT_PYDANTIC_V2):
            try:
                return made(**given)
            except Exception:  # noqa: BLE001 - as LangGraph does: a model that its own validators refuse
                return (made.model_construct if hasattr(made, "model_construct") else made.construct)(**given)
        raise UnsupportedError(f"extension type {code} of msgpack is not known: written by a newer version?")

    def _class(self, module: str, name: str) -> type:
        found = self._allowed.get((module, name)) or imported(module, name)
        if found is None:
            raise UnsupportedError(
                f"{module}.{name} is stored here and not imported in this process (loading never imports): "
                f"add 'import {module}', or RathSaver(store, allow=[{name.rpartition('.')[2]}]); rath-bridge import has --module {module}"
            )
        if not (
            dataclasses.is_dataclass(found)
            or (isinstance(found, type) and issubclass(found, (BaseModel, Enum, BaseException, *_BASES)))
        ):
            raise UnsupportedError(
                f"{module}.{name} is no dataclass, pydantic model, Enum, NamedTuple or exception: it is not made"
            )
        return cast(type, found)
