"""The read side of a store over SQL."""

from __future__ import annotations

from collections.abc import Iterator

from rath_bridge.errors import CorruptStoreError, MissingChunkError
from rath_bridge.model.chunk import Chunk, Key
from rath_bridge.model.digests import Digest
from rath_bridge.store import schema
from rath_bridge.store.columns import raw_id
from rath_bridge.store.protocol import Ref, RefMove
from rath_bridge.store.sql_chunks import PAGE, SqlChunks
from rath_bridge.store.sql_index import SqlIndex
from rath_bridge.store.tx import Tx, bytes_text, text_bytes


class SqlReader(SqlChunks):
    """`rath_bridge.store.protocol.Reader` over SQL."""

    def refs(self, session: str | None = None) -> list[Ref]:
        with self.reading() as tx:
            return self._refs(tx, session)

    def _refs(self, tx: Tx, session: str | None) -> list[Ref]:
        found = tx.all(schema.REFS) if session is None else tx.all(schema.REFS + " WHERE r.session = ?", (text_bytes(session),))
        refs = [
            Ref(bytes_text(name), bytes_text(branch), bytes(head).hex(), self._position(tx, tip))
            for name, branch, tip, head in found
        ]
        return sorted(refs, key=lambda ref: (ref.session, ref.branch != "main", ref.branch))

    def ref(self, session: str, branch: str) -> Ref | None:
        with self.reading() as tx:
            sql = schema.REFS + " WHERE r.session = ? AND r.branch = ?"
            found = tx.all(sql, (text_bytes(session), text_bytes(branch)))
            return Ref(session, branch, bytes(found[0][3]).hex(), self._position(tx, found[0][2])) if found else None

    def reflog(self, session: str, branch: str) -> list[RefMove]:
        with self.reading() as tx:
            found = tx.all(schema.REF, (text_bytes(session), text_bytes(branch)))
            moves = tx.all(schema.MOVES, (found[0][0],)) if found else []
            ids = self._ids(tx, [n for _, old, new, _ in moves for n in (old, new) if n is not None])
            return [
                RefMove(at, None if old is None else ids[old], ids[new], self._term(tx, reason)) for at, old, new, reason in moves
            ]

    def chunk(self, name: Digest) -> Chunk:
        with self.reading() as tx:
            found = tx.all(schema.CHUNK_BY_ID, (raw_id(name),))
            if not found:
                raise MissingChunkError(name)
            (chunk,) = self._built(tx, found)
        if chunk.id != name.lower():  # the database's index and its table do not agree
            raise CorruptStoreError(f"chunk {name[:16]}", f"{chunk.id} stands in its place")
        return chunk

    def line(self, head: Digest, start: int = 0, stop: int | None = None) -> Iterator[Chunk]:
        with self.reading() as tx:
            spans = self._spans(tx, head, start, stop)
        for first, last in spans:
            for at in range(first, last + 1, PAGE):
                with self.reading() as tx:
                    page = self._built(tx, tx.all(schema.CHUNKS_BETWEEN, (at, min(last, at + PAGE - 1))))
                yield from page

    def _pages(self, tx: Tx, head: Digest, start: int, stop: int | None) -> Iterator[list[tuple[int, Chunk]]]:
        """Like `line`, inside a transaction, with row numbers."""
        for first, last in self._spans(tx, head, start, stop):
            for at in range(first, last + 1, PAGE):
                found = tx.all(schema.CHUNKS_BETWEEN, (at, min(last, at + PAGE - 1)))
                yield list(zip([row[0] for row in found], self._built(tx, found), strict=True))

    def _spans(self, tx: Tx, head: Digest, start: int, stop: int | None) -> list[tuple[int, int]]:
        """Row ranges (inclusive) of a first-parent line, oldest first."""
        found = tx.all(schema.PARENT, (raw_id(head),))
        if not found:
            raise MissingChunkError(head)
        return self._spans_of(tx, found[0][0], start, stop)

    def _spans_of(self, tx: Tx, row: int, start: int, stop: int | None) -> list[tuple[int, int]]:
        at: int | None = row
        spans: list[tuple[int, int]] = []
        while at is not None:
            line = at >> schema.SHIFT
            parent, first = self._line(tx, line)
            end = first + (at & schema.MAX_OFFSET)
            if stop is not None:
                end = min(end, stop - 1)
            if end >= max(first, start):
                base = line << schema.SHIFT
                spans.append((base + max(first, start) - first, base + end - first))
            if first <= start:
                break
            at = parent
        return spans[::-1]

    def find(self, prefix: str) -> list[Digest]:
        return self._beginning(schema.FIND, prefix)

    def find_objects(self, prefix: str) -> list[Digest]:
        """Up to ten digests of blobs, native records and tree nodes that begin with these hexadecimal characters."""
        return self._beginning(schema.FIND_OBJECTS, prefix)

    def _beginning(self, query: str, prefix: str) -> list[Digest]:
        low, high = bytes.fromhex(prefix.ljust(64, "0")), bytes.fromhex(prefix.ljust(64, "f"))
        with self.reading() as tx:
            return [bytes(row[0]).hex() for row in tx.all(query, (low, high))]

    def lookup(self, key: Key) -> Chunk | None:
        with self.reading() as tx:
            number = self._index(tx).find(key)
            return None if number is None else self._chunks(tx, [number])[0]

    def scan(
        self,
        framework: str,
        native_id: str,
        namespace: str,
        *,
        before: str | None = None,
        exact: str | None = None,
        sub: str | None = None,
        limit: int | None = None,
    ) -> list[tuple[Key, Chunk]]:
        with self.reading() as tx:
            found = self._index(tx).scan(framework, native_id, namespace, before, exact, sub, limit)
            chunks = self._chunks(tx, [row[2] for row in found])
            return [
                (Key(framework, native_id, namespace, key, sub_), chunk)
                for (key, sub_, _), chunk in zip(found, chunks, strict=True)
            ]

    def entries(self) -> Iterator[tuple[Key, Digest]]:
        with self.reading() as tx:
            frameworks = self._index(tx).frameworks()
        for framework in frameworks:
            for native_id, namespace in self.scopes(framework):
                with self.reading() as tx:
                    found = self._index(tx).scan(framework, native_id, namespace)
                    ids = self._ids(tx, [row[2] for row in found])
                yield from ((Key(framework, native_id, namespace, key, sub), ids[number]) for key, sub, number in found)

    def scopes(self, framework: str, native_id: str | None = None) -> list[tuple[str, str]]:
        with self.reading() as tx:
            return self._index(tx).scopes(framework, native_id)

    def _index(self, tx: Tx) -> SqlIndex:
        return SqlIndex(tx, self.dialect)
