"""Rows to chunks, and the texts that they share, with what a connection has learnt of both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from types import NoneType
from typing import Any, Final

import orjson

from rath_bridge.errors import CorruptStoreError
from rath_bridge.model.chunk import FIRST, LAST, Chunk
from rath_bridge.model.digests import Digest
from rath_bridge.model.encoding import references
from rath_bridge.store import rows, schema
from rath_bridge.store.columns import span_of, span_told
from rath_bridge.store.objects import read_objects
from rath_bridge.store.tx import Tx, text_bytes

PAGE: Final = 512
_TERMS: Final = 50_000


class SqlChunks(ABC):
    """What every part of a store over SQL stands on."""

    dialect: schema.Dialect
    url: str

    def __init__(self) -> None:
        self._terms: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._lines: dict[int, tuple[int | None, int]] = {}

    @abstractmethod
    def reading(self) -> AbstractContextManager[Tx]:
        """A consistent view."""

    def objects(self, names: Iterable[Digest]) -> Mapping[Digest, bytes]:
        with self.reading() as tx:
            return read_objects(tx, list(names))

    def _chunks(self, tx: Tx, numbers: Sequence[int]) -> list[Chunk]:
        """Chunks by row number, in the order asked for."""
        if not numbers:
            return []
        found = tx.among(schema.CHUNKS_AMONG, sorted(set(numbers)))
        by_number = dict(zip([row[0] for row in found], self._built(tx, found), strict=True))
        try:
            return [by_number[number] for number in numbers]
        except KeyError as error:
            raise CorruptStoreError(f"row {error.args[0]}", "an index or a ref names a chunk that is not there") from None

    def _built(self, tx: Tx, found: Sequence[tuple[Any, ...]]) -> list[Chunk]:
        above = {row[0]: self._parent_row(tx, row[0]) for row in found}
        here = {row[0]: bytes(row[1]).hex() for row in found}
        ids = {**self._ids(tx, [n for n in above.values() if n is not None and n not in here]), **here}
        self._load_terms(tx, {n for row in found for n in (row[2], row[4], row[5]) if n is not None})
        shared = self._shared(tx, [row for row in found if row[9] == rows.SHARED])
        page = _Page(self)
        built: list[Chunk] = []
        for row in found:
            number, _, kind, at, run, origin, span, merged, generation, form, data, raw = row
            parent = above[number]
            parents = () if parent is None else (ids[parent],)
            if merged is not None:
                more = bytes(merged)
                parents += tuple(more[i : i + 32].hex() for i in range(0, len(more), 32))
            if form == rows.SHARED:
                form, data = shared[number]
            erased, size, body = None, 0, None
            if form == rows.ERASED:
                cursor = rows.Cursor(bytes(data), f"chunk {here[number][:16]}")
                erased, size = cursor.take(32).hex(), cursor.number()
            else:
                body = rows.unpack(form, data, "chunk", here[number])
                size = len(body)
                page.bodies.append(body)
            position = self._line(tx, number >> schema.SHIFT)[1] + (number & schema.MAX_OFFSET)
            if type(at) is not int or not FIRST <= at <= LAST or type(generation) not in (int, NoneType):
                raise CorruptStoreError(f"chunk {here[number][:16]}", "its time or generation cannot be")
            if origin is not None and not _is_origin(self._terms[origin]):
                raise CorruptStoreError(f"chunk {here[number][:16]}", "its origin is another text")
            built.append(Chunk(
                id=here[number], kind=self._terms[kind], parents=parents, at=at,
                run=None if run is None else self._terms[run], origin=None if origin is None else self._terms[origin],
                span=span_of(span) if raw is None else span_told(span, bytes(raw)), size=size, body_bytes=body, position=position,
                generation=position if generation is None else generation, raw=None if raw is None else bytes(raw),
                erased_digest=erased, load=page,
            ))  # fmt: skip
        return built

    def _shared(self, tx: Tx, found: Sequence[tuple[Any, ...]]) -> dict[int, tuple[int, bytes]]:
        """Bodies of detached chunks: they stand in the rows that they were copied from."""
        if not found:
            return {}
        targets = {row[0]: rows.Cursor(bytes(row[10]), f"row {row[0]}").number() for row in found}
        bodies = {row[0]: (row[9], bytes(row[10])) for row in tx.among(schema.CHUNKS_AMONG, sorted(set(targets.values())))}
        try:
            return {number: bodies[target] for number, target in targets.items()}
        except KeyError as error:
            raise CorruptStoreError(f"row {error.args[0]}", "a detached copy names a body that is not there") from None

    def _parent_row(self, tx: Tx, number: int) -> int | None:
        return number - 1 if number & schema.MAX_OFFSET else self._line(tx, number >> schema.SHIFT)[0]

    def _position(self, tx: Tx, number: int) -> int:
        return self._line(tx, number >> schema.SHIFT)[1] + (number & schema.MAX_OFFSET)

    def _ids(self, tx: Tx, numbers: Sequence[int]) -> dict[int, Digest]:
        wanted = sorted(set(numbers))
        found = {n: bytes(name).hex() for n, name in tx.among(schema.IDS_AMONG, wanted)} if wanted else {}
        if len(found) != len(wanted):
            gone = next(n for n in wanted if n not in found)
            raise CorruptStoreError(f"row {gone}", "it is named as a parent or in a reflog and is not there")
        return found

    def _line(self, tx: Tx, line: int) -> tuple[int | None, int]:
        known = self._lines.get(line)
        if known is None:
            known = self._read_line(tx, line)
            parent, start = known
            above = -1
            if parent is not None:
                above = (self._lines.get(parent >> schema.SHIFT) or self._read_line(tx, parent >> schema.SHIFT))[1]
                above += parent & schema.MAX_OFFSET
            if start != above + 1:  # also what keeps walks from going in circles
                raise CorruptStoreError(f"line {line}", f"it begins at {start}, what it follows stands at {above}")
            if len(self._lines) > _TERMS:
                self._lines.clear()
            self._lines[line] = known
        return known

    def _read_line(self, tx: Tx, line: int) -> tuple[int | None, int]:
        found = tx.all(schema.LINE, (line,))
        if not found:
            raise CorruptStoreError(f"line {line}", "it is not there although chunks stand on it")
        return found[0][0], found[0][1]

    # ---------------------------------------------------------------- terms

    def _intern(self, tx: Tx, words: Iterable[str]) -> Mapping[str, int]:
        """Numbers for repeated texts (kinds, runs, origins); remembered only after the commit."""
        found = {word: self._numbers[word] for word in words if word in self._numbers}
        missing = {text_bytes(word): word for word in words if word not in found}
        if missing:
            known = tx.among(schema.TERMS_AMONG, sorted(missing))
            new = sorted(set(missing) - {bytes(text) for _, text in known})
            if new:
                tx.many(schema.PUT_TERM, [(text,) for text in new])
                known = tx.among(schema.TERMS_AMONG, sorted(missing))
            found.update({missing[bytes(text)]: n for n, text in known})
        return found

    def _remember(self, terms: Mapping[str, int]) -> None:
        if len(self._terms) > _TERMS:
            self._terms, self._numbers = {}, {}
        for word, number in terms.items():
            self._terms[number] = word
            self._numbers[word] = number

    def _load_terms(self, tx: Tx, numbers: Iterable[int]) -> None:
        missing = sorted(n for n in numbers if n not in self._terms)
        if missing:
            found = tx.among(schema.TERMS_BY_NUMBER, missing)
            if len(found) != len(missing):
                raise CorruptStoreError("rath_term", "a kind, run or origin is named that is not there")
            self._terms.update({n: bytes(text).decode() for n, text in found})

    def _term(self, tx: Tx, number: int) -> str:
        self._load_terms(tx, [number])
        return self._terms[number]


@lru_cache(maxsize=1024)
def _is_origin(text: str) -> bool:
    try:
        return type(orjson.loads(text)) is dict
    except ValueError:
        return False


class _Page:
    """Loads the blobs of a page of chunks in one query, when the first of them is wanted."""

    def __init__(self, backend: SqlChunks) -> None:
        self._backend = backend
        self.bodies: list[bytes] = []
        self._loaded: Mapping[Digest, bytes] | None = None

    def __call__(self, names: Iterable[Digest]) -> Mapping[Digest, bytes]:
        wanted = list(names)
        if self._loaded is None:
            found = {name for body in self.bodies if b'"$rath":' in body for name in _loadable(body)}
            self.bodies = []
            self._loaded = {}
            if len(found) > 1 and not found.isdisjoint(wanted):
                with self._backend.reading() as tx:
                    self._loaded = read_objects(tx, sorted(found), missing_ok=True)
        missing = [name for name in wanted if name not in self._loaded]
        more: Mapping[Digest, bytes] = self._backend.objects(missing) if missing else {}
        return {name: more[name] if name in more else self._loaded[name] for name in wanted}


def _loadable(body: bytes) -> list[Digest]:
    try:
        return list(references(orjson.loads(body), loadable=True))
    except orjson.JSONDecodeError:
        return []  # damaged: who reads this body is told so
