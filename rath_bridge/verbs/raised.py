"""Exceptions as values: what is kept of one, and one that is made of it again.

Nothing is imported for that, and no code of the class is run: it is looked up where its module stands in this process already, made by
the constructor of the builtin class below it, and given the arguments and the plain attributes that are on record.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

_LIMIT: Final = 2000
_LARGEST: Final = 20_000
"""Characters of one value that is kept."""
_DEPTH: Final = 6
_CHAIN: Final = 8
_MEMBERS: Final[Mapping[type[Exception], tuple[str, ...]]] = {
    OSError: ("errno", "strerror", "filename"), ImportError: ("msg", "name", "path"), NameError: ("name",), AttributeError: ("name",),
    SyntaxError: ("msg", "filename", "lineno", "offset", "text"),
}  # fmt: skip
"""What builtin exceptions hold beside their arguments and attributes."""
_OUT: Final = ("rath_bridge.replay",)
"""Modules whose exceptions speak of a replay itself: they are never made again."""


class _NotPlainError(ValueError):
    """A value that JSON does not hold."""


def described(error: BaseException) -> dict[str, Any]:
    """Return what is kept of an exception: its class, text, arguments, plain attributes, and what it was raised from. Never raises."""
    found: dict[str, Any] = {}
    at: BaseException | None = error
    place, seen = found, set[int]()
    while at is not None and id(at) not in seen and len(seen) < _CHAIN:
        seen.add(id(at))
        if at is not error:
            place["cause"] = {}
            place = place["cause"]
        place.update(_described(at))
        at = at.__cause__
    return found


class Again(NamedTuple):
    """An exception that was made again."""

    error: Exception | None
    """None where its class is not imported here, or cannot be made without its own code."""
    lacking: tuple[str, ...] = ()
    """Attributes that it had then, and has not now."""


def made_again(facts: Any) -> Again:
    """Make an exception of what `described` has kept of it."""
    known = _map(facts)
    cls = _imported(known.get("module"), known.get("name"))
    if cls is None:
        return Again(None)
    given = known.get("args")
    args = tuple(cast("Sequence[Any]", given)) if isinstance(given, list | tuple) else ()
    try:
        error = _made(cls, args)
        if not isinstance(error, cls):
            return Again(None)
        attributes = {key: value for key, value in _map(known.get("attributes")).items() if _is_own(key)}
        vars(error).update(attributes)
        for name, value in _map(known.get("members")).items():
            for base, names in _MEMBERS.items():
                if isinstance(error, base) and name in names:
                    vars(base)[name].__set__(error, value)
        _ = str(error), repr(error)  # those of its class may stand on what is not on record
    except Exception:  # noqa: BLE001 - a class that cannot be made so
        return Again(None)
    if known.get("cause"):
        cause = made_again(known["cause"])
        error.__cause__ = cause.error or stand_in(known["cause"])
    lacking = known.get("lacking")
    names = cast("Sequence[Any]", lacking) if isinstance(lacking, list | tuple) else ()
    return Again(error, tuple(one for one in names if isinstance(one, str)))


def stand_in(facts: Any, *bases: type[Any]) -> Exception:
    """Return an exception that reads as the one that was kept, of a class of the same name.

    Args:
        facts: As for `made_again`.
        bases: What else it is; `Exception` where there is nothing.
    """
    known = _map(facts)
    name, text = str(known.get("name") or "Exception"), str(known.get("text", ""))
    shown = str(known.get("repr") or f"{name}({text!r})")

    def represent(_: object) -> str:
        return shown

    return type(name.rpartition(".")[2] or "Exception", bases or (Exception,), {"__repr__": represent})(text)


# ---------------------------------------------------------------- inside


def _described(error: BaseException) -> dict[str, Any]:
    kind = type(error)
    found: dict[str, Any] = {"module": str(kind.__module__), "name": str(kind.__qualname__)}
    try:
        found |= {"repr": repr(error)[:_LIMIT], "text": str(error)[:_LIMIT]}
    except Exception:  # noqa: BLE001 - the user's own
        found.setdefault("text", "")
    lacking: list[str] = []
    found["args"] = [_kept(f"args[{index}]", value, lacking) for index, value in enumerate(_args(error))]
    attributes: dict[str, Any] = {}
    for key, value in list(getattr(error, "__dict__", {}).items())[:100]:
        if _is_own(key):
            try:
                attributes[key] = _plain(value)
            except _NotPlainError:
                lacking.append(key)
    found |= {"attributes": attributes} if attributes else {}
    members = {
        name: value
        for base, names in _MEMBERS.items()
        if isinstance(error, base)
        for name in names
        if isinstance(value := vars(base)[name].__get__(error), str | int)
    }
    found |= {"members": members} if members else {}
    return found | ({"lacking": lacking} if lacking else {})


def _args(error: BaseException) -> tuple[Any, ...]:
    found: Any = cast(Any, BaseException).args.__get__(error)  # a class may have an ``args`` of its own
    return cast("tuple[Any, ...]", found) if isinstance(found, tuple) else ()


def _kept(name: str, value: Any, lacking: list[str]) -> Any:
    try:
        return _plain(value)
    except _NotPlainError:
        lacking.append(name)
    try:
        return repr(value)[:_LIMIT]
    except Exception:  # noqa: BLE001 - the user's own
        return type(value).__name__


def _plain(value: Any, depth: int = 0) -> Any:
    """A value that JSON holds, as it is; what stems from one (an ``IntEnum``, a text of a class of its own) is one."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int.__add__(value, 0)
    if isinstance(value, float):
        return float.__add__(value, 0.0)
    if isinstance(value, str):
        if str.__len__(value) > _LARGEST:
            raise _NotPlainError
        return str.__str__(value)
    if depth >= _DEPTH or type(value) not in (list, tuple, dict) or len(value) > _LARGEST // 20:
        raise _NotPlainError
    if isinstance(value, dict):
        named = cast("dict[Any, Any]", value)
        if not all(type(key) is str for key in named):
            raise _NotPlainError
        return {key: _plain(item, depth + 1) for key, item in named.items()}
    return [_plain(item, depth + 1) for item in cast("Sequence[Any]", value)]


def _is_own(key: Any) -> bool:
    return type(key) is str and not (key.startswith("__") and key.endswith("__"))


def _map(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _imported(module: Any, name: Any) -> type[Exception] | None:
    """Find a class where it was defined, without running anything: no import, no ``__getattr__``."""
    if not isinstance(module, str) or not isinstance(name, str) or module.startswith(_OUT):
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        try:
            held: Any = (object if not isinstance(found, type) else type).__getattribute__(found, "__dict__")
            found = held.get(part)
        except Exception:  # noqa: BLE001 - anything may stand in sys.modules
            return None
    if not isinstance(found, type):
        return None
    line = type.mro(found) if type(found) is type else found.__mro__
    return cast("type[Exception]", found) if Exception in line else None


def _made(cls: type[Exception], args: tuple[Any, ...]) -> Exception:
    if cls.__module__ == "builtins":
        return cls(*args)
    native = next(base for base in cls.__mro__ if base.__module__ == "builtins")
    error: Exception = native.__new__(cls, *args)
    error.args = args
    return error
