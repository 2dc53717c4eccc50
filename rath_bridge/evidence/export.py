"""Write evidence packets."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import orjson

import rath_bridge
from rath_bridge.errors import CorruptStoreError, MissingChunkError, NameInUseError, PacketError
from rath_bridge.evidence import layout
from rath_bridge.evidence.audit import answers
from rath_bridge.evidence.beside import index_lines, span_lines
from rath_bridge.evidence.claims import Claim, ClaimError, check_claims, recorded_claim
from rath_bridge.evidence.coverage import coverage_of
from rath_bridge.evidence.environment import environment as this_environment
from rath_bridge.evidence.instructions import commands, verify_md
from rath_bridge.evidence.order import parents_first
from rath_bridge.evidence.report import report
from rath_bridge.evidence.signing import KeyFile, load_signer, sign, signer_name
from rath_bridge.evidence.survey import Survey
from rath_bridge.evidence.timeline import Timeline
from rath_bridge.evidence.writing import LineFile, Sink, packet_at
from rath_bridge.given import check_session
from rath_bridge.model.chunk import Chunk, format_time
from rath_bridge.model.digests import Digest, digest
from rath_bridge.model.reaching import Memo, Reference, body_references, reach
from rath_bridge.session import Session, Store
from rath_bridge.store.protocol import Reader, Ref, RefMove

_PAGE: Final = 256
_ASKED: Final = 20_000
"""Chunks of a line up to which the report answers audit questions about it; ``rath-bridge audit`` answers them for any."""
_SESSIONS: Final = 20
"""Sessions about which it does."""


def export_packet(
    sessions: Session | Sequence[Session],
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    claims: Iterable[Claim] = (),
    sign_with: Sequence[KeyFile | Any] = (),
    environment: bool | Mapping[str, Any] = True,
    progress: Callable[[int], None] | None = None,
) -> Path:
    """Write one or several sessions, whole, as an evidence packet.

    All branches of each session, everything that they descend from, their bodies and all objects behind those go in.
    Chunks are streamed; the packet appears at its place when it is whole. Equal stores give equal packets, but for the
    environment and the signatures.

    Args:
        sessions: What to export; any branch stands for its whole session. They may live in several stores.
        path: A directory to create, or an archive where it ends in ``.zip``.
        overwrite: Replace a packet that stands there.
        claims: What is claimed, beside the claims that the sessions record themselves.
        sign_with: Files of private Ed25519 keys (OpenSSH or PEM), or keys from `load_signer`; each signs.
        environment: False leaves the description of this machine out; a map stands in its place.
        progress: Told how many chunks are written.

    Returns:
        Where it stands.

    Raises:
        PacketExistsError: Something stands there already.
        ClaimError: A claim has the id of one that a session records.
        KeyFileError: A file holds no key to sign with.
        NameInUseError: Two stores have a session of the same name.
        CorruptStoreError: The store is damaged; ``rath-bridge fsck`` lists every fault.
    """
    given = [sessions] if isinstance(sessions, Session) else list(sessions)
    for one in given:
        check_session(one, "export_packet")
    if not given:
        raise PacketError("a packet needs at least one session, none was given: pass a Session or several")
    keys = [load_signer(key) if isinstance(key, str | os.PathLike) else key for key in sign_with]  # pyright: ignore[reportUnknownArgumentType]
    if len(keys) > layout.MAX_SIGNATURES:
        raise PacketError(f"a packet takes {layout.MAX_SIGNATURES} signatures, {len(keys)} keys were given: leave some out")
    snapshots = _snapshots(given)
    target = Path(path)
    with packet_at(target, overwrite=overwrite) as sink:
        facts = _Facts()
        with sink.lines(layout.CHUNKS) as chunks, sink.lines(layout.BODIES) as bodies:
            writer = _Writer(sink, chunks, bodies, facts)
            for reader, ref, _ in snapshots:
                ordered = parents_first(ref.head, reader, facts.done)
                while page := list(islice(ordered, _PAGE)):
                    writer.page(page, reader)
                    if progress is not None:
                        progress(chunks.count)
            counts = {"chunks": chunks.count, "bodies": bodies.count}
        readers = list({id(reader): reader for reader, _, _ in snapshots}.values())
        _lines(sink, layout.INDEX, index_lines(readers, facts.done))
        stores = {session.session: session.store for session in given}
        _lines(sink, layout.SPANS, span_lines([_session(stores[ref.session], ref) for _, ref, _ in snapshots]))
        refs = [ref for _, ref, _ in snapshots]
        _document(sink, layout.REFS, {"refs": [_ref(ref, moves) for _, ref, moves in snapshots]})
        _document(sink, layout.MANIFEST, _manifest(refs, counts, facts))
        _documents(sink, snapshots, facts, list(claims), environment, [signer_name(key) for key in keys])
        sums = "".join(f"{sink.sums[name]}  {name}\n" for name in sorted(sink.sums)).encode()
        sink.add(layout.SUMS, sums)
        for number, key in enumerate(keys, 1):
            sink.add(layout.signature_file(number), sign(sums, key))
    return target


def _snapshots(sessions: Iterable[Session]) -> list[tuple[Reader, Ref, list[RefMove]]]:
    """Every ref of the sessions as it stands now, with the reflog up to there."""
    stores: dict[str, Session] = {}
    for session in sessions:
        known = stores.setdefault(session.session, session)
        if known.store != session.store:
            raise NameInUseError(session.session)
    found: list[tuple[Reader, Ref, list[RefMove]]] = []
    for name in sorted(stores):
        reader = stores[name].store.backend
        for ref in reader.refs(name):
            moves = reader.reflog(ref.session, ref.branch)
            while moves and moves[-1].new != ref.head:  # somebody went on meanwhile
                moves.pop()
            found.append((reader, ref, moves))
    return found


@dataclass(slots=True)
class _Facts:
    """What the manifest tells, collected on the way."""

    done: set[Digest] = field(default_factory=set[Digest])
    erased: list[Digest] = field(default_factory=list[Digest])
    absent: set[Digest] = field(default_factory=set[Digest])
    origins: set[str] = field(default_factory=set[str])
    survey: Survey = field(default_factory=Survey)
    timeline: Timeline = field(default_factory=Timeline)
    claims: dict[str, Claim] = field(default_factory=dict[str, Claim])
    """What the sessions claim themselves."""


def _documents(
    sink: Sink,
    snapshots: Sequence[tuple[Reader, Ref, list[RefMove]]],
    facts: _Facts,
    claims: Sequence[Claim],
    environment: bool | Mapping[str, Any],
    signers: Sequence[str],
) -> None:
    """Write what is there for readers: coverage, claims, environment, commands and instructions."""
    heads = {ref.name: ref.head for _, ref, _ in snapshots}
    ledger = dict(facts.claims)
    for claim in claims:
        if ledger.setdefault(claim.id, claim) != claim:
            raise ClaimError(claim.id, "another claim has this id; give it a name of its own")
    readers = list({id(reader): reader for reader, _, _ in snapshots}.values())

    def chunk(name: Digest) -> Chunk | None:
        for reader in readers if name in facts.done else ():
            try:
                return reader.chunk(name)
            except MissingChunkError:
                continue
        return None

    verdicts = check_claims(ledger.values(), chunk, facts.survey.tally)
    coverage = coverage_of(facts.survey, [ref.session for _, ref, _ in snapshots], len(facts.absent))
    _document(sink, layout.CLAIMS, {"claims": [one.to_json() for one in verdicts]})
    _document(sink, layout.COMMANDS, commands(heads, coverage, verdicts))
    told = coverage.to_json()
    _document(sink, layout.COVERAGE, {key: told[key] for key in ("facts", "holes", "blind_spots", "not_in_packet")})
    where = this_environment() if environment is True else environment or {}
    _document(sink, layout.ENVIRONMENT, dict(where))
    sink.add(layout.INSTRUCTIONS, verify_md(heads, facts.survey.chunks, len(facts.erased), signers, coverage, verdicts))
    asked = [(reader, ref) for reader, ref, _ in snapshots if ref.branch == "main" and ref.position < _ASKED][:_SESSIONS]
    found = {ref.name: answers(parents_first(ref.head, reader, set()), ref.head) for reader, ref in asked}
    sink.add(layout.REPORT, report(heads, facts.timeline, facts.survey, coverage, verdicts, found, signers))


class _Writer:
    def __init__(self, sink: Sink, chunks: LineFile, bodies: LineFile, facts: _Facts) -> None:
        self._sink, self._chunks, self._bodies, self._facts = sink, chunks, bodies, facts
        self._seen = Memo(1 << 62)

    def page(self, chunks: Sequence[Chunk], reader: Reader) -> None:
        """Write some chunks, their bodies, and the objects that were not written yet."""
        references: list[Reference] = []
        for chunk in chunks:
            envelope = chunk.envelope
            if digest(envelope) != chunk.id or b"\n" in envelope or len(envelope) > layout.MAX_LINE:
                raise CorruptStoreError(f"chunk {chunk.id[:16]}", "its envelope does not hash to its id, or is no line")
            self._chunks.write(envelope)
            if chunk.origin is not None:
                self._facts.origins.add(chunk.origin)
            self._facts.survey.feed(chunk)
            self._facts.timeline.feed(chunk)
            self._claim(chunk)
            body = chunk.body_bytes
            if body is None:
                self._facts.erased.append(chunk.id)
                continue
            if b"\n" in body or len(body) > layout.MAX_LINE:
                raise CorruptStoreError(f"chunk {chunk.id[:16]}", f"its body is no line of at most {layout.MAX_LINE} bytes")
            self._bodies.write(body)
            if b'"digest"' in body:
                references += body_references(orjson.loads(body))
        for reached in reach(references, reader.objects, self._seen):
            name = reached.reference.digest
            if reached.data is None:
                self._facts.absent.add(name)
                continue
            if reached.problem is not None or (reached.reference.tree and len(reached.data) > layout.MAX_NODE):
                raise CorruptStoreError(f"object {name[:16]}", reached.problem or "it is too large for a tree node")
            file = f"{'trees' if reached.reference.tree else 'blobs'}/{name}"
            if file not in self._sink.sums:
                self._sink.add(file, reached.data)

    def _claim(self, chunk: Chunk) -> None:
        try:
            claim = recorded_claim(chunk)
        except ClaimError:  # it only looks like one
            return
        if claim is not None:
            self._facts.claims[claim.id] = claim


def _ref(ref: Ref, moves: Iterable[RefMove]) -> dict[str, Any]:
    return {
        "session": ref.session,
        "branch": ref.branch,
        "head": ref.head,
        "position": ref.position,
        "reflog": [{"at": format_time(m.at), "old": m.old, "new": m.new, "reason": m.reason} for m in moves],
    }


def _manifest(refs: Sequence[Ref], counts: dict[str, int], facts: _Facts) -> dict[str, Any]:
    return {
        "format": layout.FORMAT,
        "version": layout.VERSION,
        "sessions": list(dict.fromkeys(ref.session for ref in refs)),
        "heads": {ref.name: ref.head for ref in refs},
        **counts,
        "erased": sorted(facts.erased),
        "absent": sorted(facts.absent),
        "software": {
            "rath_bridge": rath_bridge.__version__,
            "python": platform.python_version(),
            "recorded_by": [orjson.loads(origin) for origin in sorted(facts.origins)],
        },
    }


def _session(store: Store, ref: Ref) -> Session:
    return Session(store, ref.session, ref.branch, ref.head, ref.position)


def _lines(sink: Sink, name: str, lines: Iterable[bytes]) -> None:
    with sink.lines(name) as file:
        for line in lines:
            file.write(line)


def _document(sink: Sink, name: str, value: dict[str, Any]) -> None:
    try:
        data = orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)
    except TypeError as error:
        raise PacketError(
            f"{name} cannot be written, it was given what JSON cannot hold ({error}): give texts and numbers"
        ) from error
    most = layout.MAX_READING if name in layout.ADDED else layout.MAX_DOCUMENT
    if len(data) > most:
        what = "export fewer sessions at once" if name not in (layout.CLAIMS, layout.ENVIRONMENT) else "make it shorter"
        raise PacketError(f"{name} would have {len(data)} bytes, a packet may hold {most}: {what}")
    sink.add(name, data)
