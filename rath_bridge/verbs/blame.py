"""Blame: where a text, a call's argument, a key of a state, a file or a digest came from, and through what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, cast

import orjson

from rath_bridge.errors import MissingObjectError, RathError
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest, is_digest
from rath_bridge.model.encoding import BlobRef, TreeRef, decode, parsed, references
from rath_bridge.model.kinds import KINDS, RESERVED, marked
from rath_bridge.model.trees import children
from rath_bridge.store.protocol import Reader
from rath_bridge.verbs.changes import Path, path_text
from rath_bridge.verbs.lineage import ancestors
from rath_bridge.verbs.matching import framework
from rath_bridge.verbs.packed import plain_value
from rath_bridge.verbs.provenance import Found, Link, Provenance, trace
from rath_bridge.verbs.words import value_words

_STATE: Final = frozenset({"lists", "envelope"})
"""A checkpoint's own bookkeeping: its keys are found in the state itself."""
_AROUND: Final = 40
"""Characters of an excerpt on each side."""


@dataclass(frozen=True, slots=True)
class BlameLine:
    """One place where it stands, and where that came from."""

    chunk: Chunk
    runs: tuple[str, ...] = ()
    """Names of the run that it belongs to, from the top-level run down."""
    where: str = "body"
    """Path in the body."""
    excerpt: str = ""
    """The text around it."""
    agent: str | None = None
    """Who said or did it: the speaker, the agent that the body names, else the innermost run."""
    framework: str | None = None
    branch: str | None = None
    """The branch on which it was written: ``ticket@try-b`` where that is not ``main``."""
    model_call: Link | None = None
    """The ``inference`` chunk that it came from."""
    tool_call: Link | None = None
    """The ``tool_call`` chunk that it is, or came from."""
    links: tuple[Link, ...] = field(default=())
    """All it goes back to, nearest first: model and tool call, the messages it edits or stands for, what was handed over."""


def blame(head: Digest, wanted: str, reader: Reader) -> list[BlameLine]:
    """Find the chunks that brought something into a session, first appearance first, and follow each back.

    Looks through every chunk that ``head`` descends from (what was merged in, too): all texts of the bodies, long ones
    included; keys of framework states and file names of workspaces, where their content is new or changed; and the digests of
    chunks, bodies, blobs, native records and trees. Items inside state trees are not opened: their messages stand in chunks of
    their own.

    Args:
        head: Where to begin.
        wanted: Some text, a state's key, a path, or a digest.
        reader: Read access.

    Raises:
        ValueError: ``wanted`` is empty.
    """
    if not wanted:
        raise ValueError("blame needs some text, a key, a path or a digest to look for; it was given nothing")
    search = _Search(wanted, reader)
    found: list[Found] = []
    for chunk in ancestors(head, reader):
        found += search.places(chunk)
    found = _changed(found[::-1])
    origins = trace(head, found, reader) if found else {}
    return [_line(one, origins[number]) for number, one in enumerate(found)]


def _changed(found: list[Found]) -> list[Found]:
    """Leave out a file, or a state's key, where it stands as it stood before."""
    last: dict[tuple[Any, ...], Digest] = {}
    kept: list[Found] = []
    for one in found:
        if one.value is not None:
            place = (one.chunk.kind, framework(one.chunk), *one.path)
            if last.get(place) == one.value:
                continue
            last[place] = one.value
        kept.append(one)
    return kept


def _line(one: Found, origin: Provenance) -> BlameLine:
    return BlameLine(
        one.chunk, origin.runs, path_text(one.path), one.excerpt, origin.agent, framework(one.chunk), origin.branch,
        origin.model_call, origin.tool_call, origin.links,
    )  # fmt: skip


class _Search:
    """Looks for one text. Long texts are shared between chunks and are searched once."""

    def __init__(self, wanted: str, reader: Reader) -> None:
        self._wanted, self._reader = wanted, reader
        self._is_digest = is_digest(wanted)
        self._utf8 = wanted.encode("utf-8", "surrogatepass")
        try:
            self._json: bytes | None = orjson.dumps(wanted)[1:-1]
        except orjson.JSONEncodeError:
            self._json = None  # half of a surrogate pair: such texts stand in base64 or in blobs
        self._texts: dict[Digest, bool] = {}
        self._entries: dict[Digest, Digest | None] = {}

    def places(self, chunk: Chunk) -> Iterator[Found]:
        """Yield every place of a chunk at which it stands."""
        if self._is_digest and self._wanted in (chunk.id, chunk.body_digest):
            yield Found(chunk, (), self._wanted)
        if chunk.body_bytes is None:
            return
        if self._may_hold(chunk.body_bytes):
            values = self._values(chunk.body_bytes)
            hidden = _bookkeeping(chunk.kind)
            for path, excerpt, whole in self._leaves(values):
                if path[0] not in hidden or (whole and path[0] not in _STATE and (path[0] != "manifest" or self._is_digest)):
                    yield Found(chunk, path, excerpt)
        if chunk.kind == "workspace" and (file := self._entry(chunk, "files")) is not None:
            yield Found(chunk, ("files", self._wanted), f"{self._wanted} {file}", file)
        if chunk.kind == "checkpoint" and (value := self._entry(chunk, "state")) is not None:
            yield Found(chunk, ("state", self._wanted), self._state_words(chunk, value), value)

    def _entry(self, chunk: Chunk, name: str) -> Digest | None:
        tree = decode(cast(bytes, chunk.body_bytes)).get(name)
        if not isinstance(tree, TreeRef):
            return None
        if tree.digest not in self._entries:
            self._entries = {tree.digest: _entry(tree, self._utf8, self._reader)}  # the last one: a state often stays as it is
        return self._entries[tree.digest]

    def _state_words(self, chunk: Chunk, value: Digest) -> str:
        count = cast("dict[str, Any]", decode(cast(bytes, chunk.body_bytes)).get("lists") or {}).get(self._wanted)
        if count is not None:
            return f"{self._wanted}: {count} items"
        try:
            data = self._reader.objects([value])[value]
        except RathError:  # erased, or a fault that fsck names
            return f"{self._wanted} {value}"
        return f"{self._wanted} = {value_words(plain_value(data, packed=framework(chunk) == 'langgraph'), 200)}"

    def _may_hold(self, body: bytes) -> bool:
        if self._json is not None and self._json in body:
            return True
        if b'"$rath"' not in body:
            return False
        if b'"surrogates"' in body:
            return True
        names = [name for name in references(parsed(body), loadable=True) if name not in self._texts]
        for name in names:
            try:
                data = self._reader.objects([name])[name]
            except MissingObjectError:
                data = b""  # erased, or a fault that fsck names
            self._texts[name] = self._utf8 in data
        return any(self._texts[name] for name in references(parsed(body), loadable=True))

    def _values(self, body: bytes) -> Any:
        """The body as it is searched: long texts read in, unless one of them is looked for by its digest."""
        try:
            by_name = self._is_digest and self._utf8 in body
            values: dict[str, Any] = decode(body, None if by_name else self._reader.objects)
        except MissingObjectError:
            values = decode(body)
        return {key: value for key, value in values.items() if key not in RESERVED or (self._is_digest and key == "native")}

    def _leaves(self, values: Any) -> Iterator[tuple[Path, str, bool]]:
        """Yield path, excerpt, and whether that is all that stands there."""
        stack: list[tuple[Path, Any]] = [((), values)]
        while stack:
            path, value = stack.pop()
            if isinstance(value, dict):
                items = list(cast("dict[Any, Any]", value).items())
                for key, _ in items:
                    if isinstance(key, str) and self._wanted in key and path:
                        yield (*path, key), key, key == self._wanted
                stack += [((*path, key if isinstance(key, str) else repr(key)), item) for key, item in reversed(items)]
            elif isinstance(value, list):
                stack += [((*path, i), item) for i, item in reversed(list(enumerate(cast("list[Any]", value))))]
            elif isinstance(value, str):
                if (at := value.find(self._wanted)) >= 0:
                    yield path, _excerpt(value, at, len(self._wanted)), value == self._wanted
            elif isinstance(value, (BlobRef, TreeRef)):
                if value.digest == self._wanted:
                    yield path, self._wanted, True
            elif type(value) in (int, float) and self._wanted in str(value):
                yield path, str(value), str(value) == self._wanted


@lru_cache
def _bookkeeping(kind: str) -> frozenset[str]:
    """Fields of a kind that nobody says: ids, times, versions. They count where they are asked for whole."""
    cls = KINDS.get(kind)
    return (
        frozenset()
        if cls is None
        else (marked(cls, "generated") | marked(cls, "volatile") | {"manifest", *_STATE}) - {"attributes"}
    )


def _excerpt(text: str, at: int, size: int) -> str:
    start, end = max(0, at - _AROUND), at + size + _AROUND
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"


def _entry(ref: TreeRef, key: bytes, reader: Reader) -> Digest | None:
    """Look one key of a map tree up, a node a level."""
    name = ref.digest
    while True:
        try:
            form, level, pairs = children(reader.objects([name])[name], name)
        except MissingObjectError:
            return None
        if form != "M":
            return None
        if level == 0:
            return next((value.hex() for found, value in pairs if found == key), None)
        below = [value for found, value in pairs if found <= key]
        if not below:
            return None
        name = below[-1].hex()
