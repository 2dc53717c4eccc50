"""Objects in SQL: written once by digest, compact inside, rebuilt to their exact bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rath_bridge.errors import CorruptStoreError, ErasedError, MissingObjectError
from rath_bridge.model.digests import Digest
from rath_bridge.store import rows, schema

if TYPE_CHECKING:
    from rath_bridge.store.tx import Tx

_NODES: Final = (rows.LIST_NODE, rows.MAP_NODE)


def put_objects(tx: Tx, groups: Sequence[Mapping[Digest, bytes]], dialect: schema.Dialect) -> None:
    """Write the objects of a batch that the store does not hold yet; what was erased may be said again.

    Waves go plain objects, segmented ones, then nodes from the leaves up, each sorted by digest: an order that all
    writers share, so
    that they never wait for each other in a circle.

    Args:
        tx: An open transaction.
        groups: The objects of each draft; native records are looked for around the texts of their own draft.
        dialect: Of the database.
    """
    everything = {name: data for group in groups for name, data in group.items()}
    if not everything:
        return
    mentioned = {name for data in everything.values() if rows.is_node(data) for name in _hex(rows.node_children(data) or ())}
    numbers, erased = _known(tx, sorted({*everything, *mentioned}))
    fresh = {name: data for name, data in everything.items() if name not in numbers}
    if not fresh:
        return
    pieces: dict[Digest, list[rows.Piece]] = {}
    for group in groups:
        if not fresh.keys().isdisjoint(group):
            pieces.update({name: found for name, found in rows.find_pieces(group).items() if name in fresh})
    nodes = {name: data for name, data in fresh.items() if _is_whole_node(data, everything, numbers)}
    plain = [name for name in fresh if name not in nodes and name not in pieces]
    writer = _Writer(tx, dialect, numbers, erased)
    writer.put({name: rows.pack(fresh[name]) for name in sorted(plain)})
    segmented = [name for name in fresh if name in pieces and name not in nodes]
    while segmented:  # a record may contain one that is segmented itself: smallest first
        ready = [name for name in segmented if all(piece.source in numbers for piece in pieces[name])]
        writer.put({n: rows.pack(rows.write_segments(fresh[n], pieces[n], numbers), rows.SEGMENTS) for n in sorted(ready)})
        segmented = [name for name in segmented if name not in ready]
    for rank in sorted({_rank(data) for data in nodes.values()}):
        wave = sorted(name for name, data in nodes.items() if _rank(data) == rank)
        writer.put({name: rows.write_node(nodes[name], numbers) for name in wave})
    writer.finish()


class _Writer:
    """Gives objects their row numbers, wave after wave, and writes them with as few statements as the database lets it."""

    def __init__(self, tx: Tx, dialect: schema.Dialect, numbers: dict[Digest, int], erased: Mapping[Digest, int]) -> None:
        self._tx, self._numbers, self._erased = tx, numbers, erased
        self._last = tx.all(schema.LAST_OBJECT)[0][0] or 0 if dialect.alone else None
        self._new: list[tuple[int, bytes, int, bytes]] = []
        self._again: list[tuple[int, bytes, int]] = []

    def put(self, packed: Mapping[Digest, tuple[int, bytes]]) -> None:
        """Take a wave; all that it refers to has numbers."""
        fresh: list[Digest] = []
        for name, (form, data) in packed.items():
            if name in self._erased:
                self._numbers[name] = self._erased[name]
                self._again.append((form, data, self._erased[name]))
            elif self._last is None:
                fresh.append(name)
            else:
                self._last += 1
                self._numbers[name] = self._last
                self._new.append((self._last, bytes.fromhex(name), form, data))
        if fresh:
            columns = [bytes.fromhex(name) for name in fresh], [packed[n][0] for n in fresh], [packed[n][1] for n in fresh]
            self._numbers.update({bytes(name).hex(): n for n, name in self._tx.all(schema.PUT_OBJECTS, columns)})
            if late := [name for name in fresh if name not in self._numbers]:  # another writer was faster
                self._numbers.update(_known(self._tx, late)[0])

    def finish(self) -> None:
        """Write what has waited."""
        if self._new:
            self._tx.many(schema.PUT_OBJECT, self._new)
        if self._again:
            self._tx.many(schema.REWRITE_OBJECT, self._again)


def _hex(raw: Sequence[bytes]) -> list[Digest]:
    return [value.hex() for value in raw]


def _is_whole_node(data: bytes, batch: Mapping[Digest, bytes], numbers: Mapping[Digest, int]) -> bool:
    """A node all of whose children are at hand; bytes that only look like one are kept as they are.

    A node names items, or nodes that are written before it: anything else would not be rebuilt in order.
    """
    if not rows.is_node(data):
        return False
    names = rows.node_children(data)
    if not names:
        return False
    for name in _hex(names):
        child = batch.get(name)
        if name not in numbers and (child is None or (rows.is_node(child) and _rank(child) >= _rank(data))):
            return False
    return True


def _rank(node: bytes) -> tuple[bool, int]:
    """Order of writing: lists from the leaves up, then maps, which name the roots of lists."""
    return node[:1] == b"M", node[1]


def _known(tx: Tx, names: Sequence[Digest]) -> tuple[dict[Digest, int], dict[Digest, int]]:
    """Row numbers of objects that stand, and of those that were erased and that trees still name."""
    standing: dict[Digest, int] = {}
    erased: dict[Digest, int] = {}
    for n, name, form in tx.among(schema.OBJECTS_KNOWN, [bytes.fromhex(name) for name in names]):
        (erased if form == rows.ERASED else standing)[bytes(name).hex()] = n
    return standing, erased


def read_objects(tx: Tx, names: Sequence[Digest], *, missing_ok: bool = False) -> dict[Digest, bytes]:
    """Read objects to their exact bytes, a few queries for any number of them.

    Raises:
        MissingObjectError: One of them is not there (unless ``missing_ok``).
        ErasedError: One of them was erased (unless ``missing_ok``).
        CorruptStoreError: What is stored cannot be rebuilt.
    """
    if not names:
        return {}
    try:
        wanted = [bytes.fromhex(name) for name in sorted(set(names))]
    except ValueError:
        raise MissingObjectError(str(names[0]), "not a digest") from None
    found = tx.among(schema.OBJECTS_AMONG, wanted)
    digests = {n: bytes(name) for n, name, _, _ in found}
    gone = set(wanted).difference(digests.values())
    if gone and not missing_ok:
        raise MissingObjectError(min(gone).hex())
    if erased := {n for n, _, form, _ in found if form == rows.ERASED}:
        if not missing_ok:
            raise ErasedError(digests[min(erased)].hex())
        found = [row for row in found if row[0] not in erased]
        digests = {n: name for n, name in digests.items() if n not in erased}
    stored = {n: _opened(n, form, data) for n, _, form, data in found}
    _fetch_sources(tx, stored)
    children = {number for form, _, parts in stored.values() if form in _NODES for _, number in parts}
    children -= digests.keys()
    below = {n: bytes(name) for n, name in tx.among(schema.DIGESTS_BY_NUMBER, sorted(children))} if children else {}
    below.update(digests)
    built: dict[int, bytes] = {}
    waiting = sorted(stored)  # sources stand before what refers to them, unless one was erased and said again
    while waiting:
        later: list[int] = []
        for n in waiting:
            try:
                built[n] = _built(n, stored[n], built, below)
            except KeyError as error:
                if error.args[0] not in stored:
                    raise CorruptStoreError(f"object row {n}", f"it refers to row {error.args[0]}, which is not there") from None
                later.append(n)
        if len(later) == len(waiting):
            raise CorruptStoreError(f"object row {later[0]}", "it is made of rows that are made of it")
        waiting = later
    return {name.hex(): built[n] for n, name in digests.items()}


def every_object(tx: Tx) -> Iterator[Digest]:
    """Name every object, a page at a time."""
    at = -1
    while found := tx.all(schema.OBJECT_DIGESTS_AFTER, (at,)):
        at = found[-1][0]
        yield from (bytes(name).hex() for _, name in found)


def drop_objects(tx: Tx, names: Sequence[Digest], named: Sequence[Digest]) -> None:
    """Erase objects. A native record that was kept around one of them is written out first; of one that is still named, by a
    tree or by a body, the row stays, empty: trees are stored with row numbers.
    """
    gone = {bytes.fromhex(name): n for name, n in _known(tx, names)[0].items()}
    numbers = set(gone.values())
    kept = {gone[raw] for raw in map(bytes.fromhex, named) if raw in gone}
    around: list[int] = []
    at = -1
    while numbers and (found := tx.all(schema.MADE_OF_OTHERS, (at,))):
        at = found[-1][0]
        for row in found:
            if row[0] in numbers:
                continue
            stored = _opened(*row)
            if stored.form == rows.SEGMENTS:
                if not numbers.isdisjoint(piece[1] for piece in stored.parts):
                    around.append(row[0])
            else:
                kept.update(numbers.intersection(number for _, number in stored.parts))
    for first in range(0, len(around), 64):
        digests = {bytes(name).hex(): n for n, name in tx.among(schema.DIGESTS_BY_NUMBER, around[first : first + 64])}
        whole = read_objects(tx, list(digests))
        tx.many(schema.REWRITE_OBJECT, [(*rows.pack(whole[name]), n) for name, n in digests.items()])
    tx.many(schema.ERASE_OBJECT, [(b"", n) for n in sorted(kept)])
    tx.many(schema.DROP_OBJECT, [(n,) for n in sorted(numbers - kept)])


class _Stored(NamedTuple):
    """An object as its row has it, decompressed and parsed once."""

    form: int
    data: bytes
    parts: Sequence[Any] = ()
    """Pieces of a segmented object; keys and row numbers of a node."""


def _opened(n: int, form: int, data: Any) -> _Stored:
    raw = rows.unpack(form, data, "object row", n)
    form &= ~rows.COMPRESSED
    if form == rows.SEGMENTS:
        return _Stored(form, raw, rows.segment_table(raw, n))
    return _Stored(form, raw, rows.node_numbers(form, raw, n) if form in _NODES else ())


def _fetch_sources(tx: Tx, stored: dict[int, _Stored]) -> None:
    todo = stored
    while True:
        missing = {piece[1] for form, _, parts in todo.values() if form == rows.SEGMENTS for piece in parts} - stored.keys()
        if not missing:
            return
        todo = {n: _opened(n, form, data) for n, form, data in tx.among(schema.OBJECTS_BY_NUMBER, sorted(missing))}
        if len(todo) != len(missing):
            raise CorruptStoreError("rath_object", "a native record refers to a text that is not there")
        stored.update(todo)


def _built(n: int, found: _Stored, built: Mapping[int, bytes], digests: Mapping[int, bytes]) -> bytes:
    form, data, parts = found
    if form == rows.RAW:
        return data
    if form == rows.SEGMENTS:
        return rows.read_segments(data, parts, built)
    if form in _NODES:
        return rows.read_node(form, data, parts, digests)
    raise CorruptStoreError(f"object row {n}", f"unknown form {form}: written by a newer version?")
