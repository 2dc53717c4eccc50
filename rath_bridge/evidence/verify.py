"""Check evidence packets, whoever made them: every fault is named, none stops the check, and nothing is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, cast

import orjson

from rath_bridge.errors import PacketError, in_words
from rath_bridge.evidence import layout
from rath_bridge.evidence.beside import index_entry
from rath_bridge.evidence.causes import explained
from rath_bridge.evidence.contents import packet_chunks
from rath_bridge.evidence.history import History
from rath_bridge.evidence.judging import look_again
from rath_bridge.evidence.reading import BUFFER, PacketFiles, open_files, read_lines, shown
from rath_bridge.evidence.signing import MOST as SIGNATURE_BYTES
from rath_bridge.evidence.signing import KeyFile, Signature, judge, load_keys
from rath_bridge.evidence.signing import check as check_signature
from rath_bridge.evidence.verdicts import PacketReport
from rath_bridge.model.digests import Digest, digest, is_digest
from rath_bridge.model.reaching import Reference, check_object
from rath_bridge.verbs.fsck import Finding
from rath_bridge.verbs.words import counted

_MOST: Final = 100_000
"""Findings that are listed; what a hostile packet has beyond them is only said to be there."""


_NAMED: Final = 5


def verify_packet(
    path: str | os.PathLike[str],
    *,
    head: Digest | None = None,
    keys: Sequence[KeyFile] = (),
    progress: Callable[[int], None] | None = None,
) -> PacketReport:
    """Check a packet by itself: sums, hash chain, bodies, objects, refs, pairing, signatures, and that nothing is missing or foreign.

    Whoever rebuilds a packet wholly, sums and digests included, can only be found by something that is known from elsewhere:
    give ``head`` or ``keys`` (law 10). Coverage is counted again, and every claim is looked at again.

    Args:
        path: Directory or archive.
        head: Digest of a chunk that is known from elsewhere, such as a head that was noted down; the packet must hold it.
        keys: Files of public Ed25519 keys that are known from elsewhere; each must have signed the packet as it is. Of a file with
            several keys (``allowed_signers``), one must.
        progress: Told how many files and lines were checked.

    Returns:
        The report; hostile or broken input becomes findings, never an error.

    Raises:
        NotFoundError: There is nothing at ``path``.
        KeyFileError: A file names no key.
    """
    known = {str(key): load_keys(key) for key in keys}
    place = Path(path)
    try:
        files = open_files(place)
    except PacketError as error:
        return PacketReport(findings=(Finding(shown(place.name), str(error)),))
    try:
        if not files.sizes.keys() & {layout.MANIFEST, layout.CHUNKS, layout.SUMS}:  # nothing to compare: do not hash a whole disk
            problem = f"it is no packet: none of {layout.MANIFEST}, {layout.CHUNKS}, {layout.SUMS} is there"
            return PacketReport(findings=(*files.findings, Finding(shown(place.name), problem)))
        return _Verify(files, progress or (lambda _: None)).report(head, known)
    finally:
        files.close()


class _Verify:
    """One check. Bodies and blobs stream by; what stays in memory are digests."""

    def __init__(self, files: PacketFiles, progress: Callable[[int], None]) -> None:
        self._files, self._progress = files, progress
        self._done = 0
        self._found: list[Finding] = []
        self._sums: dict[str, str] = {}
        """What each file really hashes to."""
        self._notes: list[str] = []
        self._version = layout.VERSION
        self._history = History(self._found)

    def report(self, head: Digest | None, keys: Mapping[str, Sequence[bytes]]) -> PacketReport:
        told = self._document(layout.MANIFEST)
        manifest = told or {}
        if told is not None:
            self._manifest(manifest)
        elif not any(name in self._files.sizes for name in layout.ADDED):
            self._version = 1
        erased, absent = (set(_texts(manifest.get(name))) for name in ("erased", "absent"))
        self._lines(layout.BODIES, self._history.body)
        self._lines(layout.CHUNKS, lambda number, line: self._history.chunk(number, line, erased))
        self._history.finish()
        heads = self._history.refs((self._document(layout.REFS) or {}).get("refs"))
        if told is not None:
            self._agree(manifest, heads)
        sound = not self._found and self._sums.keys() >= {layout.BODIES, layout.CHUNKS}
        self._objects(absent)
        texts = {name: self._document(name, layout.MAX_READING) for name in self._reading()}
        again = look_again(self._files, texts, _texts(manifest.get("sessions")), len(absent), sound=sound)
        if not sound:
            self._notes.append("coverage and claims were not looked at: chunks, bodies or refs are damaged")
        self._found += again.findings
        if self._version >= 3:
            self._lines(layout.INDEX, self._index)
        self._rest()
        if head is not None and head not in self._history.chunks:
            self._found.append(Finding(head, "the known head is not in this packet: it is not the history that you know"))
        if head is not None and head in self._history.chunks and sound:
            self._vouched(head, heads)
        if erased:
            self._notes.append(f"{counted(len(erased), 'chunk')} without a body: the content was erased, the chain still holds")
        if absent:
            self._notes.append(f"{counted(len(absent), 'object')} not in the store when the packet was written")
        sums = self._read(layout.SUMS, layout.MAX_DOCUMENT)
        signatures = self._signatures(sums or b"")
        if signatures and not keys:
            self._notes.append("it is signed, but by whom only a key from elsewhere shows: give --key")
        changed = list(self._check_sums(sums))
        findings = [*self._files.findings, *changed, *judge(signatures, keys), *explained(changed, self._found)]
        if len(findings) > _MOST:
            left = len(findings) - _MOST
            findings = [*findings[:_MOST], Finding("packet", f"{left} more faults, which are not listed")]
        return PacketReport(
            findings=tuple(findings), sessions=tuple(_texts(manifest.get("sessions"))), chunks=len(self._history.chunks),
            heads=heads, notes=tuple(self._notes), signatures=tuple(one for one, _ in signatures), coverage=again.coverage,
            claims=again.claims, judged=sound,
        )  # fmt: skip

    def _vouched(self, head: Digest, heads: Mapping[str, Digest]) -> None:
        """Tell for which lines a known head does not stand: a history of somebody's own may lie beside the known one."""
        parents = {chunk.id: chunk.parents for chunk in packet_chunks(self._files, bodies=False)}
        behind: set[Digest] = set()
        waiting = [head]
        while waiting:
            one = waiting.pop()
            if one not in behind:
                behind.add(one)
                waiting += parents.get(one, ())
        ahead = {head}
        for one, above in parents.items():  # parents stand before their children
            if not ahead.isdisjoint(above):
                ahead.add(one)
        if head not in heads.values() or any(tip != head and tip in ahead for tip in heads.values()):
            self._notes.append("chunks were added after the known head: it vouches for what is before them, a signature for all")
        others = [shown(name) for name, tip in heads.items() if tip not in behind and tip not in ahead]
        if others:
            more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
            self._notes.append(
                f"the known head does not vouch for {', '.join(others[:_NAMED])}{more}: "
                "they leave its history, or have none of it; give their own heads, or a key"
            )

    def _reading(self) -> tuple[str, ...]:
        return () if self._version < 2 else (layout.CLAIMS, layout.COMMANDS, layout.COVERAGE, layout.ENVIRONMENT)

    def _signatures(self, sums: bytes) -> list[tuple[Signature, bytes | None]]:
        """Check every signature, in the order of their numbers."""
        if self._version < 2:
            return []
        names = [match for name in self._files.sizes if (match := layout.SIGNATURE.match(name))]
        found: list[tuple[Signature, bytes | None]] = []
        for match in sorted(names, key=lambda match: int(match[1] or 1)):
            data = self._read(match[0], SIGNATURE_BYTES)
            if data is None:
                found.append((Signature(match[0], None, "it cannot be read"), None))
            else:
                found.append(check_signature(match[0], data, sums))
        return found

    # ---------------------------------------------------------------- files

    def _document(self, name: str, limit: int | None = None) -> dict[str, Any] | None:
        """Read a JSON file; None where there is none to be read, which is a finding."""
        data = self._read(name, limit or layout.MAX_DOCUMENT)
        if data is None:
            return None
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            self._found.append(Finding(name, f"it is not JSON ({error})", name))
            return None
        if not isinstance(value, dict):
            self._found.append(Finding(name, "it is not a JSON object", name))
            return None
        return cast("dict[str, Any]", value)

    def _read(self, name: str, limit: int) -> bytes | None:
        """Read a small file whole and note its sum."""
        size = self._files.sizes.get(name)
        if size is None:
            if name in layout.required(self._version):
                self._found.append(Finding(name, "the file is missing", name))
            return None
        if size > limit:
            self._found.append(Finding(name, f"it has {size} bytes, at most {limit} are allowed; it was not read", name))
            return None
        try:
            with self._files.open(name) as file:
                data = file.read(limit + 1)
        except Exception as error:  # noqa: BLE001 - a broken archive may raise anything
            self._unreadable(name, error)
            return None
        self._sums[name] = digest(data)
        self._step()
        return data

    def _lines(self, name: str, take: Callable[[int, bytes], None]) -> None:
        if name not in self._files.sizes:
            self._found.append(Finding(name, "the file is missing", name))
            return
        total = sha256()
        try:
            with self._files.open(name) as file:
                for number, line in read_lines(file, total.update, layout.MAX_LINE):
                    if line is None:
                        self._found.append(Finding(name, f"a line of more than {layout.MAX_LINE} bytes", f"{name}:{number}"))
                    else:
                        take(number, line.removesuffix(b"\n"))
                        if not line.endswith(b"\n"):
                            self._found.append(Finding(name, "its last line is cut", f"{name}:{number}"))
                    self._step()
        except Exception as error:  # noqa: BLE001 - a broken archive may raise anything
            self._unreadable(name, error)
        else:
            self._sums[name] = total.hexdigest()

    def _hash(self, name: str) -> str | None:
        """Read a file of any size and note its sum."""
        total = sha256()
        try:
            with self._files.open(name) as file:
                while data := file.read(BUFFER):
                    total.update(data)
        except Exception as error:  # noqa: BLE001 - a broken archive may raise anything
            self._unreadable(name, error)
            return None
        self._step()
        self._sums[name] = total.hexdigest()
        return self._sums[name]

    def _unreadable(self, name: str, error: Exception) -> None:
        self._sums[name] = ""
        self._found.append(Finding(name, f"it cannot be read ({in_words(error)})", name))

    def _step(self) -> None:
        self._done += 1
        if self._done % 256 == 0:
            self._progress(self._done)

    # ---------------------------------------------------------------- parts

    def _manifest(self, manifest: Mapping[str, Any]) -> None:
        version = manifest.get("version")
        if manifest.get("format") != layout.FORMAT or type(version) is not int or version < 1:
            self._found.append(Finding(layout.MANIFEST, f"it does not say {layout.FORMAT!r} and a version", layout.MANIFEST))
        elif version < layout.VERSION:
            self._version = version
        elif version > layout.VERSION:
            self._notes.append(
                f"the packet has version {version}, this program knows {layout.VERSION}: what is new was checked by its sum only"
            )

    def _agree(self, manifest: Mapping[str, Any], heads: Mapping[str, Digest]) -> None:
        """What the manifest tells must be what is there."""
        history = self._history
        sessions = list(dict.fromkeys(name.partition("@")[0] for name in heads))
        for key, there in (
            ("sessions", sessions), ("heads", dict(heads)), ("chunks", len(history.chunks)), ("bodies", history.bodies),
        ):  # fmt: skip
            if manifest.get(key) != there:
                self._found.append(Finding(layout.MANIFEST, f"its {key!r} are not those of the packet", layout.MANIFEST))
        for key in ("erased", "absent"):
            told: Any = manifest.get(key, [])
            if not isinstance(told, list) or not all(map(is_digest, cast("list[Any]", told))):
                self._found.append(Finding(layout.MANIFEST, f"its {key!r} are no list of digests", layout.MANIFEST))
        for name in _texts(manifest.get("erased")):
            if name not in history.without_body:
                self._found.append(Finding(shown(name), "listed as erased, but it is no chunk without a body", layout.MANIFEST))

    def _objects(self, absent: set[str]) -> None:
        """Check every object that is there, and that exactly those are there that something refers to."""
        blobs: dict[Digest, tuple[int | None, str]] = {}
        trees: set[Digest] = set()
        queue = [(reference, where) for reference, where in self._history.references.items()]
        seen: set[Reference] = set()
        broken = ""
        """The first node that does not say any more what stands below it."""
        while queue:
            reference, where = queue.pop()
            if not reference.tree:
                blobs.setdefault(reference.digest, (reference.size, where))
                continue
            if reference in seen:
                continue
            seen.add(reference)
            trees.add(reference.digest)
            name = f"trees/{reference.digest}"
            data = self._read(name, layout.MAX_NODE)
            if data is None:
                broken = broken or ("" if reference.digest in absent else reference.digest)
                if name not in self._files.sizes and reference.digest not in absent:
                    self._found.append(Finding(reference.digest, f"a tree node is missing: {name}", where))
                continue
            problem, below = check_object(reference, data)
            if problem is not None:
                broken = broken or reference.digest
                self._found.append(Finding(reference.digest, problem, name))
            queue += [(child, name) for child in below]
        for name, (size, where) in blobs.items():
            self._blob(f"blobs/{name}", name, size, where, absent)
        for file in self._files.sizes:
            match = layout.OBJECT.match(file)
            if match and match[2] not in (blobs if match[1] == "blobs" else trees):
                self._found.append(Finding(match[2], "nothing in the packet refers to it", file, broken))
        for name in absent:
            if f"blobs/{name}" in self._files.sizes or f"trees/{name}" in self._files.sizes:
                self._found.append(Finding(shown(name), "listed as absent, but it is there", layout.MANIFEST))
            elif name not in blobs and name not in trees:
                self._found.append(Finding(shown(name), "listed as absent, but nothing refers to it", layout.MANIFEST))

    def _blob(self, file: str, name: Digest, size: int | None, where: str, absent: set[str]) -> None:
        there = self._files.sizes.get(file)
        if there is None:
            if name not in absent:
                self._found.append(Finding(name, f"a blob is missing: {shown(file)}", where))
            return
        total = self._hash(file)
        if total is not None and total != name:
            self._found.append(Finding(name, "its bytes do not hash to its name", file))
        elif size is not None and size != there:
            self._found.append(Finding(name, f"it has {there} bytes where {size} are written", where))

    def _index(self, number: int, line: bytes) -> None:
        """See that an index entry is one, and leads to a chunk of the packet."""
        place = f"{layout.INDEX}:{number}"
        try:
            _, name = index_entry(line)
        except (ValueError, TypeError, RecursionError) as error:
            self._found.append(Finding(layout.INDEX, f"a line that is no index entry ({error})", place))
            return
        if name not in self._history.chunks:
            self._found.append(Finding(name, "an index entry leads to it, but it is not in the packet", place))

    def _rest(self) -> None:
        """Read what was not read yet, so that its sum is known, and name what does not belong."""
        newer = any("this program knows" in note for note in self._notes)
        for name in layout.required(self._version):
            if name in (layout.INSTRUCTIONS, layout.REPORT, layout.SPANS) and name not in self._files.sizes:
                self._found.append(Finding(name, "the file is missing", name))
        for name in self._files.sizes:
            if not layout.is_known(name, self._version):
                if newer:
                    self._notes.append(f"{name}: not known to this version")
                else:
                    self._found.append(Finding(name, "the file does not belong to the packet", name))
            if name not in self._sums and name != layout.SUMS and not layout.SIGNATURE.match(name):
                self._hash(name)

    def _check_sums(self, data: bytes | None) -> Iterable[Finding]:
        """What ``sha256sum -c`` does, and what it does not do: order, doubles, and files that are not listed."""
        if data is None:
            return
        listed: dict[str, str] = {}
        last = ""
        cut = "" if data.endswith(b"\n") else layout.SUMS
        if cut:
            yield Finding(layout.SUMS, "its last line is cut" if data else "it is empty", layout.SUMS)
        for number, line in enumerate(data.split(b"\n")[:-1], 1):
            match = layout.SUM_LINE.match(line)
            place = f"{layout.SUMS}:{number}"
            if match is None:
                yield Finding(layout.SUMS, "a line that is not '<sha256>  <name>'", place)
                continue
            name = match[2].decode()
            if name <= last:
                yield Finding(shown(name), "listed twice, or not in order", place)
            last = max(last, name)
            listed.setdefault(name, match[1].decode())
            if name not in self._files.sizes or name == layout.SUMS:
                yield Finding(shown(name), "listed, but not in the packet", place)
            elif self._sums.get(name) and self._sums[name] != match[1].decode():
                yield Finding(name, f"its sha256 is {self._sums[name]}, not the one that is listed", place)
        for name in self._files.sizes:
            if name not in listed and name != layout.SUMS and not layout.SIGNATURE.match(name):
                yield Finding(name, f"not listed in {layout.SUMS}", layout.SUMS, cut)


def _texts(value: Any) -> list[str]:
    return [item for item in cast("list[Any]", value) if isinstance(item, str)] if isinstance(value, list) else []
