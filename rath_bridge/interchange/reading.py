"""Files as they lie there -> documents: JSON, JSON lines, and what a format reads itself. Lines end at a newline and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from rath_bridge.errors import DecodeError, UnknownFormatError
from rath_bridge.interchange.formats import Format, documents, format_named, format_of, formats
from rath_bridge.interchange.places import Source
from rath_bridge.model.chunk import Draft

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
    source: Source | None = None
    """The file's text; None where it is not JSON."""

    def decode(self) -> list[Draft]:
        """Translate it into chunks.

        Raises:
            DecodeError: It is damaged; the error names the file, the line and the path.
        """
        try:
            return list(self.format.decode(self.obj))
        except DecodeError as error:
            raise _placed(error, self.label, self.source, self.obj) from error


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
            yield from _documents(one, obj, label, 0, None)
            return
    try:
        obj, torn = parse(data, label)
    except DecodeError as error:
        if wanted is None or not callable(getattr(wanted, "loads", None)):
            raise
        raise DecodeError(error.place, f"not what {wanted.name} reads, cut or of another format: {error.problem}") from error
    source = Source(label, data.removeprefix(_BOM), obj)
    one = wanted or format_of(obj)
    alone: list[Any] = [obj] if isinstance(obj, dict) else []  # one line of JSON lines looks like a document
    if alone and one is None:
        one, obj = format_of(alone), alone
    elif alone and wanted is not None and not wanted.recognises(obj) and wanted.recognises(alone):
        obj = alone
    if one is None:
        raise UnknownFormatError(f"the content of {label}", list(formats()))
    if obj is alone:
        source = Source(label, b"[" + source.data + b"]", obj)
    yield from _documents(one, obj, label, torn, source)


def _documents(one: Format, obj: Any, label: str, torn: int, source: Source | None) -> Iterator[Document]:
    try:
        found = list(documents(one, obj))
    except DecodeError as error:
        raise _placed(error, label, source, obj) from error
    for number, (native_id, document) in enumerate(found, 1):
        last = number == len(found)
        place = label if len(found) == 1 else f"{label}#{number}"
        yield Document(place, one, native_id, document, torn if last else 0, source)


def _placed(error: DecodeError, label: str, source: Source | None, obj: Any) -> DecodeError:
    """Say of a format's error in which file and on which line it is."""
    place = label if source is None else f"{source.file}:{source.line(obj, error.path)}"
    return DecodeError(place, f"{error.problem} ({error.place})", error.path)


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
        problem = error
    rows = data.split(b"\n")
    if len(rows) < 2 or not _is_json(rows[0]):  # not even its first line stands for itself
        raise DecodeError(f"{label}:{_line(problem, data)}", f"neither JSON nor JSON lines ({problem})") from problem
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


def _line(error: ValueError, data: bytes) -> int:
    """The line on which a text ceases to be JSON; the first, where nothing tells."""
    if isinstance(error, json.JSONDecodeError):
        return error.lineno
    return data.count(b"\n", 0, error.start) + 1 if isinstance(error, UnicodeDecodeError) else 1


def _is_json(data: bytes) -> bool:
    try:
        _loads(data)
    except ValueError:
        return False
    return True


def _loads(data: bytes) -> Any:
    """Parse JSON; whatever is wrong is a ValueError."""
    try:
        return json.loads(data.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
