"""Files as they lie there -> documents: JSON, JSON lines, and what a format reads itself. Lines end at a newline and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from rath_bridge.errors import DecodeError, UnknownFormatError
from rath_bridge.interchange.formats import Format, documents, format_named, format_of, formats

_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Document:
    """What becomes one session."""

    label: str
    """The file, and which document of it where there are several: ``talks.jsonl#3``."""
    format: Format
    native_id: str | None
    obj: Any
    torn: int = 0
    """Bytes of a last line that was cut in the middle of writing, and left out."""


def read(data: bytes, label: str, format: str | None = None) -> Iterator[Document]:  # noqa: A002 - the word that users have for it
    """Yield the documents of a file.

    Args:
        data: Its bytes.
        label: Its name, for errors.
        format: Name of its format; found by content, when absent.

    Raises:
        DecodeError: Neither JSON nor JSON lines, nor anything that a format reads; file and line are named.
        UnknownFormatError: Nobody recognises it.
    """
    wanted = None if format is None else format_named(format)
    for one in formats().values() if wanted is None else (wanted,):
        loads = getattr(one, "loads", None)
        obj = loads(data) if callable(loads) else None
        if obj is not None:
            yield from _documents(one, obj, label, 0)
            return
    obj, torn = parse(data, label)
    one = wanted or format_of(obj)
    alone: list[Any] = [obj] if isinstance(obj, dict) else []  # one line of JSON lines looks like a document
    if alone and one is None:
        one, obj = format_of(alone), alone
    elif alone and wanted is not None and not wanted.recognises(obj) and wanted.recognises(alone):
        obj = alone
    if one is None:
        raise UnknownFormatError(f"the content of {label}", list(formats()))
    yield from _documents(one, obj, label, torn)


def _documents(one: Format, obj: Any, label: str, torn: int) -> Iterator[Document]:
    found = list(documents(one, obj))
    for number, (native_id, document) in enumerate(found, 1):
        last = number == len(found)
        yield Document(label if len(found) == 1 else f"{label}#{number}", one, native_id, document, torn if last else 0)


def parse(data: bytes, label: str) -> tuple[Any, int]:
    """Read JSON, or JSON lines as a list of records.

    Returns:
        The value, and how many bytes of a last, torn line were left out: a writer died there.

    Raises:
        DecodeError: Neither; the line is named.
    """
    data = data.removeprefix(_BOM)
    try:
        return _loads(data), 0
    except ValueError as error:
        problem = str(error)
    rows = data.split(b"\n")
    if len(rows) < 2 or not _is_line(rows[0]):  # not even its first line stands for itself
        raise DecodeError(label, f"neither JSON nor JSON lines ({problem})")
    found: list[Any] = []
    for number, row in enumerate(rows, 1):
        if not row.strip():
            continue
        try:
            found.append(_loads(row))
        except ValueError as error:
            if number == len(rows) and number > 1:
                return found, len(row)
            raise DecodeError(f"{label}:{number}", f"this line is not JSON ({error})") from error
    return found, 0


def _is_line(row: bytes) -> bool:
    try:
        _loads(row)
    except ValueError:
        return False
    return True


def _loads(data: bytes) -> Any:
    """Parse JSON; whatever is wrong is a ValueError."""
    try:
        return json.loads(data.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
