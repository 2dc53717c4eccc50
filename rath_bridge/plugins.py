"""Adapters: what one offers, and how they are found (entry points in the group ``rath_bridge.adapters``).

An adapter is a module (or any object) with the members of `Adapter`. It imports without its framework, and raises
`MissingExtraError`
on use. Third parties enter by the same door: add an entry point and run `rath_bridge.testing.AdapterContract`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import metadata
from typing import Any, Final, Protocol, runtime_checkable

from rath_bridge.errors import MissingExtraError, UnknownFormatError
from rath_bridge.model.chunk import Draft
from rath_bridge.model.report import LossReport
from rath_bridge.session import Session

GROUP: Final = "rath_bridge.adapters"
_log: Final = logging.getLogger("rath_bridge")


@runtime_checkable
class Adapter(Protocol):
    """What every adapter has.

    One member is optional: ``player(tape) -> Player | None``, the framework's part of a replay (`rath_bridge.replay.Player`); None
    where nothing of the framework is on record and it is not in use. ``frameworks``, the top-level modules of the framework, goes with
    it: when one of them is imported in the middle of a replay, the player is asked for again.

    So is ``prompt(items) -> Sequence[Message]``: it reads the items of an ``inference`` chunk's input where they are no JSON.

    So is ``needed(backend, before) -> Iterable[Digest]``: old chunks that ``rath-bridge prune`` must leave, since younger ones stand on
    them. And ``BLIND_SPOTS``: sentences that tell what the adapter is known not to see, for evidence packets. And ``BESIDE``: packages that
    break something of the framework where they stand beside it, with the versions that do not, and what to do else, for the doctor.
    """

    @property
    def name(self) -> str:
        """``langgraph``, ``openai_agents``, ``autogen``, ``mcp`` ..."""
        ...

    @property
    def extra(self) -> str:
        """What pip installs the framework by: an extra of ours, as in ``rath-bridge[extra]``; else a requirement, as it is."""
        ...

    @property
    def SUPPORTED(self) -> Mapping[str, str]:  # noqa: N802 - a constant of the module
        """Distribution to version specifier: ``{"langgraph": ">=1.0,<2"}``."""
        ...

    def recognises(self, obj: Any, /) -> bool:
        """Tell whether ``decode`` reads this object; must not import the framework."""
        ...

    def decode(self, obj: Any, /) -> Sequence[Draft]:
        """Translate a native record into chunks to append.

        Raises:
            DecodeError: It is not what it seems; the error names the path.
        """
        ...

    def encode(self, session: Session, /, as_: str = "messages") -> tuple[Any, LossReport]:
        """Translate a session into what the framework takes; pure. Items that came from this framework go home exactly.

        Args:
            session: What to hand over.
            as_: Which native form; each adapter lists its own in `UnsupportedError`.
        """
        ...


@lru_cache(maxsize=1)
def _discover() -> tuple[dict[str, Any], dict[str, str]]:
    found: dict[str, Any] = {}
    broken: dict[str, str] = {}
    for point in sorted(metadata.entry_points(group=GROUP), key=lambda p: p.name):
        try:
            loaded = point.load()
            missing = [name for name in ("name", "extra", "SUPPORTED", "recognises") if not hasattr(loaded, name)]
            if missing:
                raise AttributeError(
                    f"{point.value} lacks {', '.join(missing)}: an entry point names what has them, a module or module:object"
                )
            found[point.name] = loaded
        except Exception as error:  # noqa: BLE001 - one broken plugin is reported, never fatal
            broken[point.name] = f"{type(error).__name__}: {error}"
            _log.warning("rath_bridge: adapter %s cannot be loaded: %s", point.name, broken[point.name])
    return found, broken


def adapters() -> Mapping[str, Adapter]:
    """Return every installed adapter by name."""
    return _discover()[0]


def broken_adapters() -> Mapping[str, str]:
    """Return the adapters that could not be loaded, with the reason."""
    return _discover()[1]


def adapter(name: str) -> Adapter:
    """Return one adapter.

    Raises:
        UnknownFormatError: There is none of that name.
    """
    found = adapters().get(name.replace("-", "_"))
    if found is None:
        raise UnknownFormatError(repr(name), list(adapters()))
    return found


def decode(obj: Any) -> tuple[Draft, ...]:
    """Translate a native record into chunks; the adapter is found by the object.

    Raises:
        UnknownFormatError: No adapter recognises it.
        DecodeError: It is damaged; the error names the path.
    """
    for one in adapters().values():
        if one.recognises(obj):
            return tuple(one.decode(obj))
    kind: type[Any] = type(obj)  # pyright: ignore[reportUnknownVariableType]
    raise UnknownFormatError(f"a {kind.__module__}.{kind.__qualname__}", list(adapters()))


def require(module: str, feature: str, extra: str) -> Any:
    """Import a framework at the edge.

    Raises:
        MissingExtraError: It is not installed; the error has the exact pip line.
    """
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(feature, extra) from error
