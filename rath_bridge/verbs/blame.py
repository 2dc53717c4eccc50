"""Blame: which chunk, run and agent brought a text, a path or a digest in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

import orjson

from rath_bridge.errors import MissingObjectError
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest, is_digest
from rath_bridge.model.encoding import BlobRef, TreeRef, decode, parsed, references
from rath_bridge.model.kinds import RESERVED
from rath_bridge.model.trees import children
from rath_bridge.store.protocol import Reader
from rath_bridge.verbs.diff import Path, path_text
from rath_bridge.verbs.lineage import ancestors

_AROUND: Final = 40
"""Characters of an excerpt on each side."""


@dataclass(frozen=True, slots=True)
class BlameLine:
    """One place where it stands."""

    chunk: Chunk
    runs: tuple[str, ...] = ()
    """Names of the run that it belongs to, from the top-level run down."""
    where: str = "body"
    """Path in the body."""
    excerpt: str = ""
    """The text around it."""


def blame(head: Digest, wanted: str, reader: Reader) -> list[BlameLine]:
    """Find the chunks that brought a text, a workspace path or a digest into a session, first appearance first.

    Looks through every chunk that ``head`` descends from (what was merged in, too): all texts of the bodies, long ones
    included, file names of workspaces (where the file is new or changed), and the digests of chunks, bodies, blobs, native
    records and trees. Items inside state trees are not opened: their messages stand in chunks of their own.

    Args:
        head: Where to begin.
        wanted: Some text, a path, or a digest.
        reader: Read access.

    Raises:
        ValueError: ``wanted`` is empty.
    """
    if not wanted:
        raise ValueError("blame needs some text, a path or a digest to look for; it was given nothing")
    search = _Search(wanted, reader)
    runs: dict[str, tuple[str, str | None]] = {}
    found: list[tuple[Chunk, Path, str, Digest | None]] = []
    for chunk in ancestors(head, reader):
        if chunk.kind == "run" and chunk.run is not None and chunk.body_bytes is not None:
            body = parsed(chunk.body_bytes, f"chunk {chunk.id[:16]}")
            if body.get("phase") == "begin":
                runs[chunk.run] = (str(body.get("name")), body.get("parent"))
        found += [(chunk, *place) for place in search.places(chunk)]
    lines: list[BlameLine] = []
    files: set[Digest] = set()
    for chunk, path, excerpt, file in reversed(found):
        if file is None or file not in files:
            lines.append(BlameLine(chunk, _names(chunk.run, runs), path_text(path), excerpt))
        if file is not None:
            files.add(file)
    return lines


def _names(run: str | None, runs: dict[str, tuple[str, str | None]]) -> tuple[str, ...]:
    found: list[str] = []
    seen: set[str] = set()
    while run is not None and run in runs and run not in seen:
        seen.add(run)
        name, run = runs[run]
        found.append(name)
    return tuple(reversed(found))


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

    def places(self, chunk: Chunk) -> Iterator[tuple[Path, str, Digest | None]]:
        """Yield path, excerpt and (for files of a workspace) the file's digest."""
        if self._is_digest and self._wanted in (chunk.id, chunk.body_digest):
            yield (), self._wanted, None
        if chunk.body_bytes is None:
            return
        if self._may_hold(chunk.body_bytes):
            values = self._values(chunk.body_bytes)
            yield from ((path, excerpt, None) for path, excerpt in self._leaves(values))
        if chunk.kind == "workspace":
            files = decode(chunk.body_bytes).get("files")
            if isinstance(files, TreeRef) and (file := _entry(files, self._utf8, self._reader)) is not None:
                yield ("files", self._wanted), f"{self._wanted} {file}", file

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

    def _leaves(self, values: Any) -> Iterator[tuple[Path, str]]:
        stack: list[tuple[Path, Any]] = [((), values)]
        while stack:
            path, value = stack.pop()
            if isinstance(value, dict):
                items = list(cast("dict[Any, Any]", value).items())
                for key, _ in items:
                    if isinstance(key, str) and self._wanted in key:
                        yield (*path, key), key
                stack += [((*path, key if isinstance(key, str) else repr(key)), item) for key, item in reversed(items)]
            elif isinstance(value, list):
                stack += [((*path, i), item) for i, item in reversed(list(enumerate(cast("list[Any]", value))))]
            elif isinstance(value, str):
                if (at := value.find(self._wanted)) >= 0:
                    yield path, _excerpt(value, at, len(self._wanted))
            elif isinstance(value, (BlobRef, TreeRef)):
                if value.digest == self._wanted:
                    yield path, self._wanted
            elif type(value) in (int, float) and self._wanted in str(value):
                yield path, str(value)


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
