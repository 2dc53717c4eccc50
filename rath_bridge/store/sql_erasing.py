"""Erasing over SQL."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator

from rath_bridge.errors import MissingChunkError
from rath_bridge.model.digests import Digest
from rath_bridge.store import rows, schema
from rath_bridge.store.columns import raw_id
from rath_bridge.store.erasing import Erasure, bodies_alone, many, plan
from rath_bridge.store.objects import drop_objects, every_object, read_objects
from rath_bridge.store.sql_appending import SqlAppender
from rath_bridge.store.tx import Tx


class SqlEraser(SqlAppender):
    """What rewrites a store: erasures, and files without what was erased."""

    @abstractmethod
    def alone(self, tx: Tx) -> None:
        """Wait until nobody else writes, and let nobody else write until this transaction ends."""

    def scrub(self) -> None:
        with self.reading() as tx:
            waiting = tx.all(schema.UNSWEPT)
        if waiting and waiting[0][0] != "0":
            self.erase((), unused=True)
        self.rewrite()

    @abstractmethod
    def rewrite(self) -> None:
        """Write the store's files anew."""

    def erase(
        self,
        chunks: Iterable[Digest],
        *,
        objects: Iterable[Digest] = (),
        copies: bool = True,
        unused: bool = False,
        later: bool = False,
        dry_run: bool = False,
    ) -> Erasure:
        names = sorted(set(chunks))
        with self.writing() as tx:
            self.alone(tx)
            waiting = int(next(iter(tx.all(schema.UNSWEPT)), ("0",))[0])
            if later and many(waiting + len(names), tx.all(schema.LAST_OBJECT)[0][0] or 0):
                later, copies, unused = False, False, True
            found = self._built(tx, tx.among(schema.CHUNKS_NAMED, [raw_id(name) for name in names]))
            if len(found) != len(names):
                raise MissingChunkError(min(set(names) - {chunk.id for chunk in found}))
            wanted = {chunk.id: chunk.body_bytes for chunk in found if chunk.body_bytes is not None}
            done = bodies_alone(wanted, self._had_outside(tx, wanted)) if later else plan(
                wanted, set(objects), lambda: self._bodies(tx), lambda some: read_objects(tx, some, missing_ok=True),
                copies=copies, unused=every_object(tx) if unused else (),
            )  # fmt: skip
            if not dry_run:
                left = waiting + len(done.erasure.chunks) if later else 0 if unused else waiting
                if left != waiting:
                    tx.run(schema.PUT_UNSWEPT, (str(left),))
                stubs = [(bytes.fromhex(total) + rows.varint(size), raw_id(name)) for name, (total, size) in done.stubs.items()]
                tx.many(schema.ERASE_BODY, stubs)
                drop_objects(tx, done.erasure.objects, done.erasure.named)
                if done.erasure.objects:
                    tx.run(schema.COUNT_ERASURE)
        return done.erasure

    def erasures(self) -> int:
        with self.reading() as tx:
            return int(next(iter(tx.all(schema.ERASURES)), ("0",))[0])

    def _had_outside(self, tx: Tx, wanted: Collection[Digest]) -> set[Digest]:
        """Chunks whose bodies others have, too: detached lines share them."""
        groups: dict[int, list[tuple[int, Digest]]] = {}
        for number, name, body in tx.all(schema.SHARED_BODIES):
            source = rows.Cursor(bytes(body), f"row {number}").number()
            groups.setdefault(source, []).append((number, bytes(name).hex()))
        if not groups:
            return set()
        sources = {number: bytes(name).hex() for number, name in tx.among(schema.IDS_AMONG, sorted(groups))}
        found: set[Digest] = set()
        for source, group in groups.items():
            names = {name for _, name in group} | ({sources[source]} if source in sources else set[Digest]())
            if not names <= set(wanted):
                found |= names.intersection(wanted)
        return found

    def _bodies(self, tx: Tx) -> Iterator[tuple[Digest, bytes]]:
        """Every chunk's body, a page at a time, inside of a transaction."""
        at = -1
        while found := tx.all(schema.BODIES_AFTER, (at,)):
            at = found[-1][0]
            targets = {row[0]: rows.Cursor(bytes(row[3]), f"row {row[0]}").number() for row in found if row[2] == rows.SHARED}
            held = {row[0]: row for row in tx.among(schema.CHUNKS_AMONG, sorted(set(targets.values())))} if targets else {}
            for number, name, form, data in found:
                if number in targets:
                    row = held[targets[number]]
                    form, data = row[9], row[10]
                if form != rows.ERASED:
                    yield bytes(name).hex(), rows.unpack(form, data, "chunk", bytes(name).hex())
