"""The index in SQL: which chunk stands under a key.

An *owner* is a native id of a framework, with its namespaces. Its ``base`` is the owner that it was copied from, and it sees that one's
entries up to a stamp; an owner without a name is only seen through others. A copied entry is never changed where it stands
(`rath_bridge.store.layers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from rath_bridge.errors import CorruptStoreError, NameInUseError
from rath_bridge.model.chunk import Key
from rath_bridge.store import schema
from rath_bridge.store.layers import Entry, read_layers

if TYPE_CHECKING:
    from rath_bridge.store.tx import Tx

_GONE: Final = 0
"""Stands in an entry for a chunk that is not found there any more; row numbers begin above it."""
Row = tuple[str, str, int]
"""Key, sub and the chunk's row number."""


def _text(data: Any) -> str:
    return bytes(data).decode("utf-8", "surrogatepass")


def _data(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class _Owner:
    number: int
    base: int | None
    upto: int | None
    clock: int
    """Grows with every copy: entries with a smaller stamp are seen by one."""


class SqlIndex:
    """The index as one transaction sees it."""

    def __init__(self, tx: Tx, dialect: schema.Dialect) -> None:
        self.tx, self.dialect = tx, dialect

    # ---------------------------------------------------------------- read

    def find(self, key: Key) -> int | None:
        """The row of the chunk that stands under a key."""
        for scope, upto in self._layers(key.framework, key.native_id, key.namespace):
            found = self.tx.all(schema.ENTRY, (scope, _data(key.key), _data(key.sub)))
            if found and (upto is None or found[0][1] <= upto):
                return found[0][0] or None
        return None

    def standing(self, keys: Sequence[Key]) -> set[Key]:
        """Those of some keys under which a chunk stands: each scope is asked once, however many keys are of it."""
        scopes: dict[tuple[str, str, str], dict[tuple[str, str], Key]] = {}
        for key in keys:
            scopes.setdefault((key.framework, key.native_id, key.namespace), {})[key.key, key.sub] = key
        found: set[Key] = set()
        for scope, left in scopes.items():
            for number, upto in self._layers(*scope):
                rows = self.tx.among(f"{schema.ENTRIES_AMONG}{number}", sorted({_data(name) for name, _ in left}))
                for name, sub, chunk, stamp in rows:
                    if upto is None or stamp <= upto:
                        key = left.pop((_text(name), _text(sub)), None)
                        found |= {key} if key is not None and chunk else set()
        return found

    def scan(
        self, framework: str, native_id: str, namespace: str, before: str | None = None, exact: str | None = None,
        sub: str | None = None, limit: int | None = None,
    ) -> list[Row]:  # fmt: skip
        """Entries of one scope, greatest key first, then by ``sub``."""
        layers = self._layers(framework, native_id, namespace)
        sql, params = schema.ENTRIES, list[Any]()
        for clause, value in ((" AND key < ?", before), (" AND key = ?", exact), (" AND sub = ?", sub)):
            if value is not None:
                sql += clause
                params.append(_data(value))

        def page(scope: int, upto: int | None, size: int | None) -> list[Entry]:
            text, given = sql, [scope, *params]
            if upto is not None:
                text, given = text + " AND stamp <= ?", [*given, upto]
            text += " ORDER BY key DESC, sub"
            if size is not None:
                text, given = text + " LIMIT ?", [*given, size]
            return [Entry(bytes(key), bytes(sub_), chunk) for key, sub_, chunk in self.tx.all(text, given)]

        found = page(*layers[0], limit) if len(layers) == 1 else read_layers([partial(page, *layer) for layer in layers], limit)
        return [(_text(entry.key), _text(entry.sub), cast(int, entry.chunk)) for entry in found if entry.chunk]

    def frameworks(self) -> list[str]:
        """Every framework that something stands under."""
        return sorted(_text(row[0]) for row in self.tx.all(schema.FRAMEWORKS))

    def scopes(self, framework: str, native_id: str | None = None) -> list[tuple[str, str]]:
        """``(native_id, namespace)`` of every scope in which something stands."""
        if native_id is None:
            plain = self.tx.all(schema.SCOPES, (_data(framework),))
        else:
            plain = self.tx.all(schema.SCOPES + " AND o.native_id = ?", (_data(framework), _data(native_id)))
        found = {(_text(name), _text(namespace)) for name, namespace, base in plain if base is None}
        sql, params = schema.COPIES, [_data(framework)]
        if native_id is not None:
            sql, params = sql + " AND native_id = ?", [*params, _data(native_id)]
        for name, number in self.tx.all(sql, params):
            copied = _text(name)
            spaces = {_text(row[0]) for owner in self._chain(number) for row in self.tx.all(schema.NAMESPACES, (owner,))}
            found |= {(copied, space) for space in spaces if self.scan(framework, copied, space, limit=1)}
        return sorted(found)

    def _chain(self, number: int) -> list[int]:
        found = [number]
        while (above := self.tx.all(schema.OWNER_BY_NUMBER, (found[-1],))) and above[0][0] is not None:
            if above[0][0] in found:
                raise CorruptStoreError(f"owner {number}", "what it was copied from leads back to it")
            found.append(above[0][0])
        return found

    def _layers(self, framework: str, native_id: str, namespace: str) -> list[tuple[int, int | None]]:
        """Scopes that are read as one, the topmost first, each with the last stamp that is seen of it."""
        space = _data(namespace)
        found = self.tx.all(schema.SCOPE, (space, _data(framework), _data(native_id)))
        if not found:
            return []
        number, base, upto, _, scope = found[0]
        layers: list[tuple[int, int | None]] = [] if scope is None else [(scope, None)]
        seen = {number}
        while base is not None:
            if base in seen:
                raise CorruptStoreError(f"owner {number}", "what it was copied from leads back to it")
            seen.add(base)
            row = self.tx.all(schema.SCOPE_OF, (space, base))
            if not row:
                raise CorruptStoreError(f"owner {number}", "what it was copied from is not there")
            below, limit, scope = row[0]
            if scope is not None:
                layers.append((scope, upto))
            base, upto = below, limit
        return layers

    # ---------------------------------------------------------------- write

    def put(self, entries: Sequence[tuple[Key, int]]) -> None:
        """Let chunks (by row number) be found under keys; the last one of a key stands."""
        owners: dict[tuple[str, str], dict[tuple[str, str, str], int]] = {}
        for key, number in entries:
            owners.setdefault((key.framework, key.native_id), {})[key.namespace, key.key, key.sub] = number
        rows: list[tuple[Any, ...]] = []
        for name in sorted(owners, key=lambda pair: (_data(pair[0]), _data(pair[1]))):
            latest = owners[name]
            spaces = sorted({space for space, _, _ in latest})
            owner, scopes = self._open(*name, spaces)
            if owner.clock and any(self._is_seen(owner, scopes[space], key, sub) for space, key, sub in latest):
                self._go_on_above(name, owner)
                owner, scopes = self._open(*name, spaces)
            rows += [(scopes[space], _data(key), _data(sub), n, owner.clock) for (space, key, sub), n in latest.items()]
        self.tx.many(schema.PUT_ENTRY, sorted(rows))

    def copy(self, framework: str, native_id: str, target: str) -> bool:
        """Let everything that is found under one native id be found under another one too, as it is now."""
        found = self._locked(framework, native_id)
        if found is None:
            return False
        self.tx.run(schema.PUT_OWNER, (_data(framework), _data(target)))
        there = self._locked(framework, target)
        if there is None or there.base is not None or there.clock or there.number == found.number:
            raise NameInUseError(f"{framework} {target!r}")
        self.tx.run(schema.TICK, (found.number,))
        self.tx.run(schema.LAY, (found.number, found.clock, there.number))
        return True

    def drop(self, framework: str, native_id: str, namespace: str | None = None, keys: Sequence[str] | None = None) -> int:
        """Let entries not be found any more; returns how many."""
        owner = self._locked(framework, native_id)
        if owner is None:
            return 0
        spaces = [space for _, space in self.scopes(framework, native_id) if namespace in (None, space)]
        plain = owner.base is None and not owner.clock
        self._in_order(owner.number, spaces, keys)
        if plain and keys is None:
            dropped = sum(len(self.tx.all(schema.DROP_SCOPE, (owner.number, _data(space)))) for space in spaces)
        elif plain:
            dropped = sum(
                len(self.tx.all(schema.DROP_KEY, (owner.number, _data(space), _data(key))))
                for space in spaces
                for key in keys or ()
            )
        else:
            wanted = [None] if keys is None else [*dict.fromkeys(keys)]
            gone = [
                (space, *row[:2])
                for space in spaces
                for key in wanted
                for row in self.scan(framework, native_id, space, exact=key)
            ]
            dropped = len(gone)
            if gone and not (namespace is None and keys is None):
                self._hide(framework, native_id, owner, gone)
        if namespace is None and keys is None:
            self._forget(owner.number)
        return dropped

    def _in_order(self, owner: int, spaces: Sequence[str], keys: Sequence[str] | None) -> None:
        """Lock what will be dropped in the order in which `put` locks: whoever takes it as it comes may wait in a circle with it."""
        if self.dialect.lock:
            sql = schema.ENTRIES_IN_ORDER if keys is None else schema.KEYS_IN_ORDER
            given: list[Any] = [owner, [_data(space) for space in spaces]]
            self.tx.run(sql + self.dialect.lock, given if keys is None else [*given, [_data(key) for key in keys]])

    def _hide(self, framework: str, native_id: str, owner: _Owner, gone: Sequence[tuple[str, str, str]]) -> None:
        spaces = sorted({space for space, _, _ in gone})
        owner, scopes = self._open(framework, native_id, spaces)
        if any(self._is_seen(owner, scopes[space], key, sub) for space, key, sub in gone):
            self._go_on_above((framework, native_id), owner)
            owner, scopes = self._open(framework, native_id, spaces)
        if owner.base is None:
            self.tx.many(schema.DROP_ENTRY, [(scopes[space], _data(key), _data(sub)) for space, key, sub in gone])
        else:
            rows = [(scopes[space], _data(key), _data(sub), _GONE, owner.clock) for space, key, sub in gone]
            self.tx.many(schema.PUT_ENTRY, sorted(rows))

    def _forget(self, number: int) -> None:
        """Drop an owner; where copies see it, only its name goes. What nobody sees any more goes with it."""
        at: int | None = number
        while at is not None:
            if self.tx.all(schema.HEIR, (at,)):
                self.tx.run(schema.UNNAME, (at,))
                return
            base = self.tx.all(schema.OWNER_BY_NUMBER, (at,))[0][0]
            for statement in schema.DROP_OWNER:
                self.tx.run(statement, (at,))
            below = self.tx.all(schema.OWNER_BY_NUMBER, (base,)) if base is not None else []
            at = base if below and below[0][1] is None else None

    def _go_on_above(self, name: tuple[str, str], owner: _Owner) -> None:
        """Leave what copies see where it is: the name goes to a new owner over the old one."""
        self.tx.run(schema.UNNAME, (owner.number,))
        self.tx.run(schema.PUT_OWNER, (_data(name[0]), _data(name[1])))
        above = self._locked(*name)
        assert above is not None
        self.tx.run(schema.LAY, (owner.number, owner.clock, above.number))

    def _is_seen(self, owner: _Owner, scope: int, key: str, sub: str) -> bool:
        """Whether a copy sees the entry that stands there."""
        found = self.tx.all(schema.ENTRY, (scope, _data(key), _data(sub)))
        return bool(found) and found[0][1] < owner.clock and bool(self.tx.all(schema.HEIR, (owner.number,)))

    def _locked(self, framework: str, native_id: str) -> _Owner | None:
        found = self.tx.all(schema.OWNER + self.dialect.lock, (_data(framework), _data(native_id)))
        return _Owner(*found[0]) if found else None

    def _open(self, framework: str, native_id: str, spaces: Sequence[str]) -> tuple[_Owner, dict[str, int]]:
        """An owner and the scopes of its namespaces, made where they are missing."""
        scopes: dict[str, int] = {}
        owner: _Owner | None = None
        for space in spaces:
            given = (_data(space), _data(framework), _data(native_id))
            found = self.tx.all(schema.SCOPE, given)
            if not found:
                self.tx.run(schema.PUT_OWNER, given[1:])
                found = self.tx.all(schema.SCOPE, given)
            if found[0][4] is None:
                self.tx.run(schema.PUT_SCOPE, (found[0][0], given[0]))
                found = self.tx.all(schema.SCOPE, given)
            owner = _Owner(*found[0][:4])
            scopes[space] = found[0][4]
        assert owner is not None
        return owner, scopes
