"""Documents -> sessions of a store. What stands already is found again, so that the same file twice changes nothing.

Each chunk that comes in is indexed under a *mark*: a digest over all that came before it and itself, times and nonces left out. A file
that has grown (JSON lines that a tool appends to) is continued; one that has changed in the middle, or whose session went on here
meanwhile, becomes a branch at the last chunk that they share.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, Literal

import orjson

from rath_bridge.errors import NameInUseError
from rath_bridge.interchange.formats import CUT
from rath_bridge.interchange.reading import Document
from rath_bridge.model.chunk import Chunk, Draft, Key, draft
from rath_bridge.model.digests import digest
from rath_bridge.model.kinds import Gap, SessionStart
from rath_bridge.session import Session, Store, check_name, native_name
from rath_bridge.store.protocol import Ref

INDEX: Final = "rath_bridge.import"
"""Framework of the index keys under which marks stand."""

Status = Literal["new", "grown", "branched", "unchanged", "empty"]


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of one document."""

    source: str
    format: str
    session: str
    """Where it stands: ``atif/run-1``, or ``atif/run-1@import-1a2b3c4d``."""
    status: Status
    """``empty`` where the document holds nothing: no session is made of it."""
    chunks: int
    """How many are new."""
    torn: int = 0
    """Bytes of a cut last line, which were left out (the session has a ``gap``)."""


def import_document(store: Store, document: Document, *, name: str | None = None, dry_run: bool = False) -> Imported:
    """Bring one document into a store, in one transaction.

    Args:
        store: Where to.
        document: From `rath_bridge.interchange.reading.read`.
        name: The session; by default the document's own id tells it (``atif/run-1``), or the file's name (``import/talk``).
        dry_run: Only tell what would be done.

    Raises:
        DecodeError: It is damaged; nothing was written.
        NameInUseError: ``name`` is a session that does not come from this document.
    """
    drafts = document.decode()
    marks = _marks(drafts)
    if document.torn:
        drafts.append(draft(Gap(count=1, reason=CUT, attributes={"bytes": document.torn})))
        marks.append(_next(marks[-1] if marks else "", drafts[-1]))
    wanted = check_name(name) if name is not None else _name(document)
    if not drafts:
        return Imported(document.label, document.format.name, wanted, "empty", 0)
    try:
        return _import(store, document, wanted, drafts, marks, own_name=name is not None, dry_run=dry_run)
    except NameInUseError:
        if name is not None or wanted not in store:
            raise
        return _import(store, document, wanted, drafts, marks, own_name=False, dry_run=dry_run)  # somebody was faster


def _import(
    store: Store, document: Document, wanted: str, drafts: Sequence[Draft], marks: Sequence[str], *, own_name: bool, dry_run: bool
) -> Imported:
    session = wanted
    ref = store.backend.ref(session, "main")
    standing = 0 if ref is None else _standing(store, session, document, marks)
    if ref is not None and not standing:
        if own_name:
            raise NameInUseError(session)
        session = f"{wanted[:380]}~{marks[0][:8]}"  # by how it begins, so that it is found again when it has grown
        ref = store.backend.ref(session, "main")
        standing = 0 if ref is None else _standing(store, session, document, marks)

    def done(status: Status, count: int, where: str = session) -> Imported:
        return Imported(document.label, document.format.name, where, status, count, document.torn)

    keys = [Key(INDEX, session, document.format.name, mark) for mark in marks]
    keyed = [item._replace(keys=(*item.keys, key)) for item, key in zip(drafts, keys, strict=True)]
    if ref is None:
        if not dry_run:
            start = draft(SessionStart(op="import", name=session, of=document.label))
            store.backend.append(session, "main", [start, *keyed], head=None, reason="import")
        return done("new", len(drafts) + 1)
    if standing == len(drafts):
        return done("unchanged", 0)
    last = store.backend.lookup(keys[standing - 1])
    if last is not None and _goes_on(store, ref, last):
        if not dry_run:
            store.backend.append(session, "main", keyed[standing:], head=ref.head, on_conflict="branch", reason="import")
        return done("grown", len(drafts) - standing)
    branch = f"import-{marks[-1][:8]}"
    where = f"{session}@{branch}"
    if last is None or store.backend.ref(session, branch) is not None:
        return done("unchanged", 0, where)
    if not dry_run:
        start = draft(SessionStart(op="fork", name=session, branch=branch, of=session, reason=f"import of {document.label}"))
        items = [start, *keyed[standing:]]
        store.backend.append(session, branch, items, head=None, parents=(last.id,), reason="import")
    return done("branched", len(drafts) - standing + 1, where)


def _name(document: Document) -> str:
    if document.native_id:
        return native_name(document.format.name, document.native_id)
    path, _, number = document.label.partition("#")
    stem = PurePath(path).name.partition(".")[0] or "stdin"
    return native_name("import", re.sub(r"\s+", "-", stem) + (f"-{number}" if number else ""))


def _marks(drafts: Iterable[Draft]) -> list[str]:
    found: list[str] = []
    mark = ""
    for item in drafts:
        mark = _next(mark, item)
        found.append(mark)
    return found


def _next(mark: str, item: Draft) -> str:
    body = orjson.loads(item.body)
    body.pop("nonce", None)
    facts = [mark, item.kind, item.run, body]
    return digest(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS))[:32]


def _standing(store: Store, session: str, document: Document, marks: Sequence[str]) -> int:
    """How many of the marks stand in the store. A mark tells all before it, so that they are a beginning: search it by halves."""
    low, high = 0, len(marks)
    while low < high:
        middle = (low + high) // 2
        if store.backend.lookup(Key(INDEX, session, document.format.name, marks[middle])) is None:
            high = middle
        else:
            low = middle + 1
    return low


def _goes_on(store: Store, ref: Ref, last: Chunk) -> bool:
    """Whether the main branch still stands where the import left it (counted gaps do not matter)."""
    if ref.position < last.position:
        return False
    behind = Session(store, ref.session, ref.branch, ref.head, ref.position)[last.position :]
    return behind[0].id == last.id and all(chunk.kind == "gap" for chunk in behind[1:])
