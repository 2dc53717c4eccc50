"""Whole histories, from an evidence packet or another store, into a store: the same chunks with the same ids.

A session that is not there yet is made; a branch that has grown elsewhere moves forward; one that went on in both places stays, and
what came is put beside it as ``import-<8 hex of its tip>``. A session of the same name with another beginning is another session: it
comes in as ``name~<8 hex of its root>``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol

import orjson

from rath_bridge.errors import CorruptStoreError, MissingChunkError, MissingObjectError, PacketError
from rath_bridge.evidence import layout, verify_packet
from rath_bridge.evidence.beside import index_entry
from rath_bridge.evidence.contents import packet_chunks
from rath_bridge.evidence.order import parents_first
from rath_bridge.evidence.reading import DirectoryFiles, PacketFiles, ZipFiles
from rath_bridge.interchange.importing import Imported
from rath_bridge.model.chunk import Chunk, Key
from rath_bridge.model.digests import Digest
from rath_bridge.model.reaching import Fetch, Memo, body_references, reach
from rath_bridge.session import Store
from rath_bridge.store.arriving import Arrival, Landing
from rath_bridge.store.protocol import Backend, Reader, Ref
from rath_bridge.verbs.lineage import walk

_PAGE: Final = 256


class Origin(Protocol):
    """Where histories come from."""

    format: str
    label: str
    refs: Sequence[Ref]

    def at(self, head: Digest, position: int) -> Digest | None:
        """The chunk at a position of the line of ``head``; None where the line is shorter."""
        ...

    def arrivals(self, heads: Sequence[Digest], held: Held) -> Iterator[Arrival]:
        """All that these heads descend from, parents first; what the receiver holds already comes without objects."""
        ...

    def chunks(self) -> Iterator[Chunk]:
        """All that its refs descend from, without objects."""
        ...

    def fetch(self, names: Iterable[Digest]) -> Mapping[Digest, bytes]:
        """Objects; raises where one is not there."""
        ...


class Held:
    """Tells which chunks a store holds: the lines of the sessions that grow are read once, a page at a time; of what lies beside
    them, only chunks whose parents it holds are asked for, one by one.
    """

    def __init__(self, backend: Backend, sessions: Iterable[str]) -> None:
        self._backend = backend
        heads = {ref.head for session in sessions for ref in backend.refs(session)}
        self._there = {chunk.id for chunk in walk(heads, backend)}

    def __call__(self, chunk: Chunk) -> bool:
        """Whether it stands there; parents come before children."""
        if chunk.id in self._there:
            return True
        if not self._there.issuperset(chunk.parents):
            return False
        try:
            self._backend.chunk(chunk.id)
        except MissingChunkError:
            return False
        self._there.add(chunk.id)
        return True


def transfer(origin: Origin, store: Store, *, dry_run: bool = False) -> list[Imported]:
    """Bring the refs of an origin into a store, all in one transaction.

    Returns:
        What became of each ref; ``chunks`` is how many its line has gained.

    Raises:
        CorruptStoreError: A chunk or object is not what its name says; nothing was kept.
        ConflictError: Somebody moved a ref meanwhile; nothing was kept: import once more.
    """
    done: list[Imported] = []
    landings: list[Landing] = []
    names: dict[str, str] = {}
    for ref in origin.refs:
        session = names.get(ref.session)
        if session is None:
            session = names[ref.session] = _session(origin, ref, store.backend)
        result, landing = _plan(origin, ref, session, store.backend)
        done.append(result)
        if landing is not None:
            landings.append(landing)
    if landings and not dry_run:
        held = Held(store.backend, {landing.session for landing in landings})
        store.backend.ingest(origin.arrivals([landing.tip for landing in landings], held), landings)
    return done


def _session(origin: Origin, ref: Ref, backend: Backend) -> str:
    """The session's name here: another one where this name has another beginning."""
    root = origin.at(ref.head, 0)
    standing = backend.refs(ref.session)
    roots = {next(backend.line(one.head, 0, 1)).id for one in standing}
    return ref.session if not standing or root in roots else f"{ref.session[:380]}~{(root or '')[:8]}"


def _plan(origin: Origin, ref: Ref, session: str, backend: Backend) -> tuple[Imported, Landing | None]:
    standing = backend.ref(session, ref.branch)

    def told(status: Any, gained: int, branch: str = ref.branch) -> Imported:
        return Imported(origin.label, origin.format, Ref(session, branch, "", 0).name, status, gained)

    if standing is None:
        return told("new", ref.position + 1), Landing(session, ref.branch, None, ref.head)
    if origin.at(ref.head, standing.position) == standing.head:
        if standing.head == ref.head:
            return told("unchanged", 0), None
        return told("grown", ref.position - standing.position), Landing(session, ref.branch, standing.head, ref.head)
    ahead = next(backend.line(standing.head, ref.position, ref.position + 1), None)
    if ahead is not None and ahead.id == ref.head:  # it has only gone on here
        return told("unchanged", 0), None
    branch = f"import-{ref.head[:8]}"
    if backend.ref(session, branch) is not None:
        return told("unchanged", 0, branch), None
    return told("branched", ref.position + 1, branch), Landing(session, branch, None, ref.head)


Keys = Mapping[Digest, Sequence[Key]]
"""Index entries by the chunk that they lead to."""


def _by_chunk(entries: Iterable[tuple[Key, Digest]]) -> Keys:
    found: dict[Digest, list[Key]] = {}
    for key, name in entries:
        found.setdefault(name, []).append(key)
    return found


def _objects(chunks: Sequence[Chunk], fetch: Fetch, trees: Memo, keys: Keys, held: Held) -> Iterator[Arrival]:
    """Give each chunk its objects: its own blobs always (a native record is kept around the texts of its chunk), tree nodes once.

    What the receiver holds brings none: there they may be erased, and a newer chunk that shares them must bring them itself.
    """
    for chunk in chunks:
        found: dict[Digest, bytes] = {}
        if not held(chunk) and chunk.body_bytes is not None and b'"digest"' in chunk.body_bytes:
            references = list(body_references(orjson.loads(chunk.body_bytes)))
            blobs = [reference for reference in references if not reference.tree]
            for reached in (*reach(blobs, fetch, Memo()), *reach([one for one in references if one.tree], fetch, trees)):
                if reached.data is None:  # it was erased there, or never kept
                    continue
                if reached.problem is not None:
                    raise CorruptStoreError(f"object {reached.reference.digest[:16]}", reached.problem)
                found[reached.reference.digest] = reached.data
        yield Arrival(chunk, found, tuple(keys.get(chunk.id, ())))


class StoreOrigin:
    """Another store."""

    format = "store"

    def __init__(self, reader: Reader, label: str) -> None:
        self._reader, self.label = reader, label
        self.refs: Sequence[Ref] = reader.refs()

    def at(self, head: Digest, position: int) -> Digest | None:
        """The chunk at a position of the line of ``head``."""
        found = next(self._reader.line(head, position, position + 1), None)
        return None if found is None else found.id

    def chunks(self) -> Iterator[Chunk]:
        """All that its refs descend from, in pages."""
        return walk([ref.head for ref in self.refs], self._reader)

    def fetch(self, names: Iterable[Digest]) -> Mapping[Digest, bytes]:
        """Objects of the other store."""
        return self._reader.objects(names)

    def arrivals(self, heads: Sequence[Digest], held: Held) -> Iterator[Arrival]:
        """All that these heads descend from, in pages."""
        done: set[Digest] = set()
        trees = Memo(1 << 62)
        keys = _by_chunk(self._reader.entries())
        for head in heads:
            waiting = parents_first(head, self._reader, done)
            while page := list(islice(waiting, _PAGE)):
                yield from _objects(page, self._reader.objects, trees, keys, held)


class PacketOrigin:
    """An evidence packet: checked whole before any of it is taken."""

    format = "packet"

    def __init__(self, path: Path) -> None:
        """Check and index a packet.

        Raises:
            PacketError: It has faults; `rath_bridge.evidence.verify_packet` lists them all.
        """
        self.label = path.name
        report = verify_packet(path)
        if report.findings:
            first = report.findings[0]
            raise PacketError(
                f"{path.name} has {len(report.findings)} fault(s), first {first.object}: {first.problem}. "
                f"See them all with: rath-bridge verify {path.name}"
            )
        self._files: PacketFiles = DirectoryFiles(path) if path.is_dir() else ZipFiles(path)
        with self._files.open(layout.REFS) as file:
            refs = orjson.loads(file.read())["refs"]
        self.refs: Sequence[Ref] = [Ref(one["session"], one["branch"], one["head"], one["position"]) for one in refs]
        self._above: dict[Digest, Digest | None] = {}
        for chunk in packet_chunks(self._files, bodies=False):
            self._above[chunk.id] = chunk.parents[0] if chunk.parents else None
        self._lines: dict[Digest, list[Digest]] = {}

    def at(self, head: Digest, position: int) -> Digest | None:
        """The chunk at a position of the line of ``head``."""
        line = self._lines.get(head)
        if line is None:
            line = list[Digest]()
            at: Digest | None = head
            while at is not None:
                line.append(at)
                at = self._above[at]
            self._lines[head] = line
        return line[-1 - position] if position < len(line) else None

    def chunks(self) -> Iterator[Chunk]:
        """Every chunk of the packet."""
        return packet_chunks(self._files)

    def fetch(self, names: Iterable[Digest]) -> Mapping[Digest, bytes]:
        """Objects of the packet."""
        found: dict[Digest, bytes] = {}
        for name in names:
            file = next((f for f in (f"blobs/{name}", f"trees/{name}") if f in self._files.sizes), None)
            if file is None:
                raise MissingObjectError(name)
            with self._files.open(file) as data:
                found[name] = data.read()
        return found

    def arrivals(self, heads: Sequence[Digest], held: Held) -> Iterator[Arrival]:
        """Every chunk of the packet: all of them belong to its refs."""
        trees = Memo(1 << 62)
        chunks = packet_chunks(self._files)
        keys = _by_chunk(self._entries())
        while page := list(islice(chunks, _PAGE)):
            yield from _objects(page, self.fetch, trees, keys, held)

    def _entries(self) -> Iterator[tuple[Key, Digest]]:
        """Index entries; packets before version 3 carry none, so adapters do not find their threads in them."""
        if layout.INDEX in self._files.sizes:
            with self._files.open(layout.INDEX) as file:
                for line in file:
                    yield index_entry(line)

    def close(self) -> None:
        """Close the archive."""
        self._files.close()


def is_packet(path: Path) -> bool:
    """Tell a packet from other files: by its manifest in a directory, or by being a zip archive."""
    if path.is_dir():
        return (path / layout.MANIFEST).is_file() and (path / layout.CHUNKS).is_file()
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


def is_store(path: Path) -> bool:
    """Tell a SQLite store by the file's own mark."""
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"
