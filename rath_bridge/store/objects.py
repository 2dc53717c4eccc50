"""Objects in SQL: written once by digest, compact inside, rebuilt to their exact bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rath_bridge.errors import CorruptStoreError, ErasedError, MissingObjectError
from rath_bridge.model.digests import Digest
from rath_bridge.store import rows, schema

if TYPE_CHECKING:
    from rath_bridge.store.sql import Tx

_NODES: Final = (rows.LIST_NODE, rows.MAP_NODE)


def put_objects(tx: Tx, groups: Sequence[Mapping[Digest, bytes]]) -> None:
    """Write the objects of a batch that the store does not hold yet.

    Passes go plain objects, segmented ones, then nodes from the leaves up, each sorted by digest: an order that all
    writers share, so
    that they never wait for each other in a circle.

    Args:
        tx: An open transaction.
        groups: The objects of each draft; native records are looked for around the texts of their own draft.
    """
    everything = {name: data for group in groups for name, data in group.items()}
    if not everything:
        return
    mentioned = {name for data in everything.values() if rows.is_node(data) for name in _hex(rows.node_children(data) or ())}
    numbers = _known(tx, sorted({*everything, *mentioned}))
    fresh = {name: data for name, data in everything.items() if name not in numbers}
    if not fresh:
        return
    pieces: dict[Digest, list[rows.Piece]] = {}
    for group in groups:
        if not fresh.keys().isdisjoint(group):
            pieces.update({name: found for name, found in rows.find_pieces(group).items() if name in fresh})
    nodes = {name: data for name, data in fresh.items() if _is_whole_node(data, everything, numbers)}
    plain = [name for name in fresh if name not in nodes and name not in pieces]
    _insert(tx, {name: rows.pack(fresh[name]) for name in sorted(plain)}, numbers)
    segmented = [name for name in fresh if name in pieces and name not in nodes]
    while segmented:  # a record may contain one that is segmented itself: smallest first
        ready = [name for name in segmented if all(piece.source in numbers for piece in pieces[name])]
        _insert(
            tx, {n: rows.pack(rows.write_segments(fresh[n], pieces[n], numbers), rows.SEGMENTS) for n in sorted(ready)}, numbers
        )
        segmented = [name for name in segmented if name not in ready]
    for rank in sorted({_rank(data) for data in nodes.values()}):
        wave = sorted(name for name, data in nodes.items() if _rank(data) == rank)
        _insert(tx, {name: rows.write_node(nodes[name], numbers) for name in wave}, numbers)


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


def _known(tx: Tx, names: Sequence[Digest]) -> dict[Digest, int]:
    return {bytes(name).hex(): n for n, name in tx.among(schema.OBJECTS_KNOWN, [bytes.fromhex(name) for name in names])}


def _insert(tx: Tx, packed: Mapping[Digest, tuple[int, bytes]], numbers: dict[Digest, int]) -> None:
    for name, (form, data) in packed.items():
        made = tx.all(schema.PUT_OBJECT, (bytes.fromhex(name), form, data))
        if made:
            numbers[name] = made[0][0]
        else:  # another writer was faster
            numbers.update(_known(tx, [name]))


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
    gone = {bytes(name): n for n, name in tx.among(schema.OBJECTS_KNOWN, [bytes.fromhex(name) for name in names])}
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
