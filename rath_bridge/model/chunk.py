"""Chunks: what is appended (`Draft`), what is kept (`Chunk`), and the exact bytes of an envelope.

An envelope is one line of deterministic JSON; its sha256 is the chunk's id::

    {"at":"2026-11-29T17:32:48.123456Z","body":"<digest>","kind":"message","origin":{...},
     "parents":["<digest>"],"run":"<id>","size":123,"span":{"span_id":"...","trace_id":"..."}}

Absent fields are left out. ``parents`` is session order; a framework's own lineage stands in the body.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from os import urandom
from time import time_ns
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

import orjson

from rath_bridge.errors import DecodeError, EncodeError, ErasedError, in_words
from rath_bridge.model.digests import Digest, digest, is_digest
from rath_bridge.model.encoding import Loader, decode, dumps, escape, parsed, references, small, spliced
from rath_bridge.model.kinds import KINDS, RESERVED, Body, Unknown, body_fields, body_of
from rath_bridge.model.parts import shortened, words_of

_PLAIN: Final = re.compile(r"[\w.:/@+-]{1,200}\Z", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z\Z", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FIRST: Final = -62_135_596_800_000_000
"""The year 1, in microseconds since 1970."""
LAST: Final = 253_402_300_799_999_999
"""The end of the year 9999."""
_KIND: Final = re.compile(r"[a-z][a-z0-9_.]{0,63}\Z")


class SpanContext(NamedTuple):
    """OpenTelemetry ids, assigned when the work starts."""

    trace_id: str
    """32 lowercase hexadecimal characters."""
    span_id: str
    """16 lowercase hexadecimal characters."""
    parent_id: str | None = None


@dataclass(frozen=True, slots=True)
class Native:
    """A framework's exact bytes, only for the trip home."""

    framework: str
    version: str
    codec: str
    """How the bytes are to be read: ``json``, ``msgpack``, ``wire`` ..."""
    data: bytes


@dataclass(frozen=True, slots=True)
class Key:
    """An index entry across sessions: (framework, native id, namespace, key) finds a chunk."""

    framework: str
    native_id: str
    namespace: str
    key: str
    sub: str = ""


class Draft(NamedTuple):
    """A chunk before it has parents. Build it with `draft` (or ``rb.message``); append it to a session."""

    kind: str
    body: bytes
    """The exact body bytes, nonce inside."""
    body_digest: Digest
    objects: Mapping[Digest, bytes]
    """Blobs, native records and tree nodes that the body refers to and that may be new."""
    at: int
    """Microseconds since 1970, UTC."""
    run: str | None = None
    origin: str | None = None
    """Canonical JSON of who recorded it: adapter, framework, version."""
    span: SpanContext | None = None
    keys: tuple[Key, ...] = ()
    """Written with the chunk; an entry that stands there already is superseded."""
    once: Key | None = None
    """Append only if no chunk stands under this key yet (it is written too): idempotent appends."""


def now() -> int:
    """Microseconds since 1970, UTC."""
    return time_ns() // 1000


def draft(
    body: Body,
    *,
    run: str | None = None,
    origin: Mapping[str, str] | None = None,
    span: SpanContext | None = None,
    at: int | None = None,
    native: Native | None = None,
    objects: Mapping[Digest, bytes] | None = None,
    keys: Sequence[Key] = (),
    once: Key | None = None,
    nonce: str | None = None,
) -> Draft:
    """Encode a body into a draft.

    Args:
        body: Any kind of `rath_bridge.model.kinds`.
        run: Id of the run it belongs to.
        origin: Who recorded it: ``adapter``, ``framework``, ``version``.
        span: OpenTelemetry ids of the work.
        at: Microseconds since 1970; now, when absent.
        native: The framework's own bytes for this chunk.
        objects: Tree nodes and item bytes that the body's references need, by digest.
        keys: Index entries under which frameworks look the chunk up.
        once: Append only if no chunk stands under this key yet.
        nonce: 32 hexadecimal characters; random, when absent.

    Raises:
        EncodeError: A value cannot be kept; the error names its path (``body.arguments.x[3]``).
    """
    kind = body.name if isinstance(body, Unknown) else body.kind
    return draft_of(
        kind, body_fields(body), run=run, origin=origin, span=span, at=at, native=native, objects=objects, keys=keys, once=once,
        nonce=nonce,
    )  # fmt: skip


def draft_of(
    kind: str,
    values: dict[str, Any],
    *,
    run: str | None = None,
    origin: Mapping[str, str] | str | None = None,
    span: SpanContext | None = None,
    at: int | None = None,
    native: Native | None = None,
    objects: Mapping[Digest, bytes] | None = None,
    keys: Sequence[Key] = (),
    once: Key | None = None,
    nonce: str | None = None,
    plain: bool = False,
) -> Draft:
    """Encode the fields of a body into a draft: `draft` for who has them as a map already (it is changed).

    Args:
        kind: Of the body.
        values: Its fields, absent ones left out.
        run: This and what follows: as for `draft`.
        origin: ... or the text that another draft has there.
        span: ...
        at: ...
        native: ...
        objects: ...
        keys: ...
        once: ...
        nonce: ...
        plain: All types are JSON's own (no enum, no UUID): a small body is encoded in one step.

    Raises:
        EncodeError: A value cannot be kept; the error names its path.
    """
    if kind not in KINDS:
        if not _KIND.match(kind):
            raise EncodeError("kind", repr(kind), "use lowercase letters, digits, dots and underscores")
        if not RESERVED.isdisjoint(values):
            raise EncodeError("body", f"the reserved key {sorted(RESERVED & set(values))}", "rename it")
    for key in keys if once is None else (*keys, once):
        if {str} != {type(part) for part in (key.framework, key.native_id, key.namespace, key.key, key.sub)}:
            raise EncodeError("keys", f"{key!r:.100}", "all parts of a key are texts")
    blobs: dict[Digest, bytes] = {**objects} if objects else {}
    values["nonce"] = nonce or urandom(16).hex()
    data = small(values, plain=plain)
    if data is not None and native is not None:
        bare, data = data, spliced({**values, "native": _native(native, blobs)})
        if data is not None and (data.count(b"null") != bare.count(b"null") or data.count(b"$") != bare.count(b"$") + 1):
            data = None  # somebody has changed a value meanwhile, or the three texts are odd
    if data is None:
        escaped = escape(values, blobs)
        if "$rath" in escaped:
            raise EncodeError(
                "body", "a field whose name is no plain text", "fields of a body are named by text other than '$rath'"
            )
        data = dumps({**escaped, "native": _native(native, blobs)} if native is not None else escaped)
    return Draft(
        kind,
        data,
        sha256(data).hexdigest(),
        blobs or _NONE,
        now() if at is None else _moment(at),
        run if run is None or _PLAIN.match(run) else _text(run),
        origin if origin is None or isinstance(origin, str) else _origin(origin) if origin else None,
        span and _span(span),
        tuple(keys) if keys else (),
        once,
    )


def _native(native: Native, blobs: dict[Digest, bytes]) -> dict[str, Any]:
    name = digest(native.data)
    blobs[name] = native.data
    return {
        "$rath": "native",
        "digest": name,
        "size": len(native.data),
        "framework": native.framework,
        "version": native.version,
        "codec": native.codec,
    }


_NONE: Final[Mapping[Digest, bytes]] = MappingProxyType({})
"""Most drafts bring no objects: one empty map serves them all."""


def _moment(at: int) -> int:
    if not FIRST <= at <= LAST:
        raise EncodeError("at", f"the time {at}", "give microseconds since 1970, in the years 1 to 9999")
    return at


def _text(run: str) -> str:
    try:
        run.encode()
    except UnicodeEncodeError as error:
        raise EncodeError("run", "half of a surrogate pair", "use a run id that UTF-8 can hold") from error
    return run


def _origin(origin: Mapping[str, str]) -> str:
    try:
        return dumps(dict(origin)).decode()
    except TypeError as error:
        raise EncodeError("origin", f"what JSON cannot hold ({error})", "give texts: adapter, framework, version") from error


def _span(span: SpanContext) -> SpanContext:
    ids = f"{span.trace_id}{span.span_id}{span.parent_id or '0'}"
    lengths = len(span.trace_id), len(span.span_id), len(ids)
    if lengths == (32, 16, 64) and ids.isascii() and ids.isalnum():  # as nearly all are
        return span
    for name in (span.trace_id, span.span_id, span.parent_id):
        if name is not None and not _PLAIN.match(name):
            raise EncodeError("span", f"the id {name!r:.60}", "OpenTelemetry ids are lowercase hexadecimal")
    return span


def format_time(at: int) -> str:
    """Return microseconds since 1970 as ``2026-11-29T17:32:48.123456Z``."""
    seconds, micros = divmod(at, 1_000_000)
    moment = datetime.fromtimestamp(seconds, UTC)
    day = f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d}"
    return f"{day}T{moment.hour:02d}:{moment.minute:02d}:{moment.second:02d}.{micros:06d}Z"


def parse_time(text: str) -> int:
    """Inverse of `format_time`; exact.

    Raises:
        ValueError: Not UTC with six decimals and Z.
    """
    if not _TIME.match(text):
        raise ValueError(f"{text[:40]!r} is not a time of the form 2026-11-29T17:32:48.123456Z")
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)


def _quote(text: str) -> str:
    return f'"{text}"' if _PLAIN.match(text) else orjson.dumps(text).decode()


_second: tuple[int, str] = (-1, "")
"""The last second and its text: many chunks are made within one. One tuple, so that threads never see half of it."""


def render_envelope(draft: Draft, parents: Sequence[Digest]) -> bytes:
    """Return the exact envelope bytes of a draft with these parents."""
    global _second
    second, micros = divmod(draft.at, 1_000_000)
    known, stamp = _second
    if second != known:
        stamp = format_time(draft.at)[:19]
        _second = (second, stamp)
    kind, body, total, _, _, run, origin, span, _, _ = draft
    return render(f"{stamp}.{micros:06d}Z", total, kind, origin, parents, run, len(body), span)


def render(
    at: str,
    body: Digest,
    kind: str,
    origin: str | None,
    parents: Sequence[Digest],
    run: str | None,
    size: int,
    span: SpanContext | None,
) -> bytes:
    """Return envelope bytes from their facts: keys sorted, absent ones left out."""
    text = f'{{"at":"{at}","body":"{body}","kind":"{kind}"'
    if origin is not None:
        text += f',"origin":{origin}'
    if parents:
        text += ',"parents":["' + '","'.join(parents) + '"]'
    if run is not None:
        text += f',"run":{_quote(run)}'
    text += f',"size":{size}'
    if span is not None:
        parent = "" if span.parent_id is None else f'"parent_id":"{span.parent_id}",'
        text += f',"span":{{{parent}"span_id":"{span.span_id}","trace_id":"{span.trace_id}"}}'
    return (text + "}").encode()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chunk:
    """One immutable event of a session. Two chunks are equal when their ids are."""

    id: Digest
    kind: str
    parents: tuple[Digest, ...]
    at: int
    """Microseconds since 1970, UTC."""
    run: str | None
    origin: str | None
    span: SpanContext | None
    size: int
    """Bytes of the body."""
    body_bytes: bytes | None
    """The exact body bytes; None once erased."""
    position: int
    """Place on its line, from 0: how many first parents it has."""
    generation: int = 0
    """1 + the greatest generation of its parents; equals ``position`` where nothing was merged."""
    raw: bytes | None = None
    """The envelope's bytes where it holds fields that this version does not know."""
    erased_digest: Digest | None = None
    load: Loader | None = field(default=None, repr=False)
    """Fetches blobs from the store."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Chunk) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"Chunk({self.id[:12]}, number {self.position}, {self.kind}{self._told()})"

    def _told(self) -> str:
        """What the body tells in a few words, as far as it can be read without the store."""
        try:
            body: Any = orjson.loads(self.body_bytes) if self.body_bytes is not None else None
        except orjson.JSONDecodeError:
            return ", unreadable"
        if not isinstance(body, dict):
            return ", erased" if body is None else ""
        found = cast("dict[str, Any]", body)
        names = [value for key in ("role", "name", "model", "agent") if isinstance(value := found.get(key), str)]
        if said := words_of(found.get("parts")):
            return f", {shortened(': '.join((*names, said)))}"
        return f", {shortened(' '.join(names))}" if names else ""

    @property
    def body_digest(self) -> Digest:
        """The sha256 of the body, also once it is erased."""
        return self.erased_digest or digest(self.body_bytes or b"")

    @property
    def envelope(self) -> bytes:
        """The exact bytes whose sha256 is `id`."""
        if self.raw is not None:
            return self.raw
        return render(
            at=format_time(self.at), body=self.body_digest, kind=self.kind, origin=self.origin,
            parents=self.parents, run=self.run, size=self.size, span=self.span,
        )  # fmt: skip

    @property
    def values(self) -> dict[str, Any]:
        """The body as a map, long texts read in, ``nonce`` and ``native`` left out.

        Raises:
            ErasedError: The content was erased.
            MissingObjectError: A blob that it refers to is gone.
        """
        found = decode(self._bytes(), self.load, f"chunk {self.id[:16]}")
        return {key: value for key, value in found.items() if key not in RESERVED}

    @property
    def body(self) -> Body:
        """The body as its kind's dataclass (`Unknown` for a kind that this version does not know)."""
        return body_of(self.kind, self.values, f"chunk {self.id[:16]}")

    @property
    def native_ref(self) -> Mapping[str, Any] | None:
        """``framework``, ``version``, ``codec``, ``digest`` and ``size`` of the native record, if there is one."""
        return self._parsed().get("native") if b'"native"' in (self.body_bytes or b"") else None

    @property
    def native(self) -> Native | None:
        """The framework's own bytes, read from the store."""
        ref = self.native_ref
        if ref is None or self.load is None:
            return None
        return Native(ref["framework"], ref["version"], ref["codec"], self.load([ref["digest"]])[ref["digest"]])

    @property
    def references(self) -> frozenset[Digest]:
        """Digests of every blob, native record and tree root that the body names."""
        return frozenset() if self.body_bytes is None else frozenset(references(self._parsed()))

    def _parsed(self) -> Any:
        return parsed(self._bytes(), f"chunk {self.id[:16]}")

    def _bytes(self) -> bytes:
        if self.body_bytes is None:
            raise ErasedError(self.id)
        return self.body_bytes


_ENVELOPE_KEYS: Final = frozenset({"at", "body", "kind", "origin", "parents", "run", "size", "span"})


def parse_envelope(
    data: bytes, body: bytes | None, position: int = 0, load: Loader | None = None, place: str = "envelope"
) -> Chunk:
    """Read an envelope's bytes (as exported) back into a chunk; unknown fields are kept.

    Raises:
        DecodeError: Not an envelope: the field is named.
    """
    try:
        parsed: Any = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise DecodeError(place, f"not JSON ({error})") from error
    if not isinstance(parsed, dict):
        raise DecodeError(place, "an envelope is a JSON object")
    found = cast("dict[str, Any]", parsed)
    try:
        chunk = Chunk(
            id=digest(data), kind=_kind(found["kind"]), parents=tuple(_digest(p) for p in found.get("parents", ())),
            at=parse_time(found["at"]), run=_typed(found.get("run"), str, None),
            origin=dumps(_typed(found["origin"], dict)).decode() if "origin" in found else None,
            span=_read_span(_typed(found["span"], dict)) if "span" in found else None, size=_typed(found["size"], int),
            body_bytes=body, position=position, generation=position,
            erased_digest=_digest(found["body"]) if body is None else None, load=load,
        )  # fmt: skip
        if chunk.size < 0 or not is_digest(found["body"]):
            raise ValueError("its size or body digest is none")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DecodeError(place, f"not an envelope ({in_words(error)})") from error
    # What this version would write otherwise (unknown fields, another order, a body that is not this one's) is kept as it is.
    return chunk if found.keys() <= _ENVELOPE_KEYS and chunk.envelope == data else replace(chunk, raw=data)


def _typed(value: Any, *kinds: Any) -> Any:
    if not any(value is kind or type(value) is kind for kind in kinds):
        raise ValueError(f"{value!r:.60} where another type should stand")
    return value


def _read_span(found: Any) -> SpanContext:
    parent = found.get("parent_id")
    span = SpanContext(_typed(found["trace_id"], str), _typed(found["span_id"], str), _typed(parent, str, None))
    return _span(span)


def _digest(text: Any) -> Digest:
    if not is_digest(text):
        raise ValueError(f"{text!r} is not a digest")
    return text


def _kind(text: Any) -> str:
    if not isinstance(text, str) or not _KIND.match(text):
        raise ValueError(f"{text!r} is not a kind")
    return text
