"""The formats that other tools speak: one module each, found by name or by content.

A format has ``name``, ``suffix`` and the functions of `Format`. Two more are optional:

``loads(data) -> object | None``
    Read what is neither JSON nor JSON lines (protobuf, say); None where it is not this format's.
``documents(obj) -> iterable of (native id | None, document)``
    Split what a file holds into what becomes one session each; by default the file is one document.

An adapter that has ``dumps`` as well is a format too: a framework's files are read and written like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Protocol, cast

from rath_bridge import plugins
from rath_bridge.errors import UnknownFormatError, UnsupportedError
from rath_bridge.model.chunk import Draft
from rath_bridge.model.report import LossReport
from rath_bridge.session import Session

OURS: Final = ("atif", "otlp", "claude_code", "codex", "openai_responses", "openai_messages", "markdown")
"""In the order in which a document is offered to them: what is told by its own marks first."""
CUT: Final = "the last line of the file was cut"
"""Reason of the ``gap`` behind what came from a file whose writer died."""


class Format(Protocol):
    """What every format has."""

    @property
    def name(self) -> str:
        """``atif``, ``openai_messages`` ..."""
        ...

    def recognises(self, obj: Any, /) -> bool:
        """Tell whether ``decode`` reads this document."""
        ...

    def decode(self, obj: Any, /) -> Sequence[Draft]:
        """Translate a document (parsed JSON; a list of records for JSON lines) into chunks; pure.

        Raises:
            DecodeError: It is not what it seems; the error names the path.
        """
        ...

    def encode(self, session: Session, /) -> tuple[Any, LossReport]:
        """Translate a session into a document; pure. What came from this format goes home exactly."""
        ...

    def dumps(self, native: Any, /) -> bytes:
        """Return a document as a file has it."""
        ...


@lru_cache(maxsize=1)
def _core() -> dict[str, Format]:
    found: dict[str, Format] = {}
    for module in OURS:
        place = f"rath_bridge.interchange.{module}"
        if find_spec(place) is not None:
            loaded = cast(Format, import_module(place))
            found[loaded.name] = loaded
    return found


def formats() -> Mapping[str, Format]:
    """Return every format by name: those of the core, then adapters that read and write files."""
    core = _core()
    others = [(name, one) for name, one in plugins.adapters().items() if name not in core]
    return {**core, **{name: cast(Format, one) for name, one in others if callable(getattr(one, "dumps", None))}}


def format_named(name: str) -> Format:
    """Return one format.

    Raises:
        UnknownFormatError: There is none of that name.
        UnsupportedError: An adapter of that name reads and writes no files.
    """
    known = formats()
    found = known.get(name.replace("-", "_"))
    if found is not None:
        return found
    if name.replace("-", "_") in plugins.adapters():
        raise UnsupportedError(f"the adapter {name} reads and writes no files: it has no dumps; what does: {', '.join(known)}")
    raise UnknownFormatError(f"the format {name!r}", list(known))


def format_of(obj: Any) -> Format | None:
    """Return the format whose document this is, None where nobody knows it."""
    return next((one for one in formats().values() if one.recognises(obj)), None)


def documents(one: Format, obj: Any) -> Iterable[tuple[str | None, Any]]:
    """Split what a file holds into (native id, document) pairs; each becomes a session."""
    split = getattr(one, "documents", None)
    return cast("Iterable[tuple[str | None, Any]]", split(obj)) if callable(split) else [(None, obj)]


def decode(obj: Any, format: str | None = None) -> tuple[Draft, ...]:  # noqa: A002 - the word that users have for it
    """Translate a document into chunks to append.

    Args:
        obj: Parsed JSON; a list of records for JSON lines.
        format: Name of its format; found by content, when absent.

    Raises:
        UnknownFormatError: No format of that name, or none that recognises it.
        DecodeError: It is damaged; the error names the path.
    """
    one = format_of(obj) if format is None else format_named(format)
    if one is None:
        raise UnknownFormatError(f"this document ({type(obj).__name__})", list(formats()))
    return tuple(one.decode(obj))


def encode(session: Session, format: str) -> tuple[Any, LossReport]:  # noqa: A002 - as above
    """Translate a session into a document of a format; pure.

    Returns:
        The document, and what it could not hold.
    """
    return format_named(format).encode(session)
