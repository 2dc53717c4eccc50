"""How rows are packed: compact in the store, rebuilt to the exact bytes on the way out.

A body is kept in its chunk's row. An object (blob, native record, tree node) names others by row number, not by digest: a native
record that contains a text of its draft is *segments* around that text, a tree node is a list of row numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from threading import local
from typing import Final

import zstandard

from rath_bridge.errors import CorruptStoreError
from rath_bridge.model.digests import Digest
from rath_bridge.model.trees import children
from rath_bridge.store.dictionary import DICTIONARY_1

RAW: Final = 0
SHARED: Final = 1
"""A body that stands in another chunk's row (detached lines)."""
SEGMENTS: Final = 2
LIST_NODE: Final = 3
MAP_NODE: Final = 4
ERASED: Final = 5
"""Of a body, only digest and size are left; of an object, only its row, which trees still name."""
COMPRESSED: Final = 8
"""Flag: zstd with dictionary 1."""

_SHORT: Final = 256
"""Bytes below which speed is worth more than the few that a better compression would save: most chunks are that short."""
_PIECE: Final = Struct("<IQII")
_MOST_PIECES: Final = 255
_SOURCE_SIZE: Final = 128
"""Smaller texts are not worth a segment."""
_RUN: Final = re.compile(rb"[ !#-\[\]-~]{64,}")
"""Pieces of a text that stand unchanged in any JSON string, whatever the writer escapes."""


class _Codec(local):
    """zstd contexts are not for sharing between threads."""

    def __init__(self) -> None:
        words = zstandard.ZstdCompressionDict(DICTIONARY_1, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        self.press = zstandard.ZstdCompressor(level=3, dict_data=words, write_checksum=False, write_dict_id=False)
        self.press_short = zstandard.ZstdCompressor(level=-1, dict_data=words, write_checksum=False, write_dict_id=False)
        """For what the dictionary holds nearly all of: as small, in half the time (no Huffman tables are made)."""
        self.expand = zstandard.ZstdDecompressor(dict_data=words)


_codec = _Codec()


def pack(data: bytes, form: int = RAW) -> tuple[int, bytes]:
    """Compress where it pays; returns form and data."""
    size = len(data)
    if size >= 64:
        small = (_codec.press if size >= _SHORT else _codec.press_short).compress(data)
        if len(small) < size - (size >> 4):
            return form | COMPRESSED, small
    return form, data


def unpack(form: int, data: bytes, what: str, name: object) -> bytes:
    """Undo `pack`; ``what`` and ``name`` say in an error whose bytes they are.

    Raises:
        CorruptStoreError: The bytes cannot be decompressed.
    """
    if not form & COMPRESSED:
        return bytes(data)
    try:
        return _codec.expand.decompress(data)
    except zstandard.ZstdError as error:
        raise CorruptStoreError(f"{what} {name}", f"its stored bytes are damaged ({error})") from error


def varint(number: int) -> bytes:
    """LEB128."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


class Cursor:
    """Reads varints and slices off stored bytes."""

    def __init__(self, data: bytes, what: str) -> None:
        self.data, self.at, self.what = data, 0, what

    def number(self) -> int:
        """Next varint."""
        found = shift = 0
        while True:
            if self.at >= len(self.data) or shift > 63:
                raise CorruptStoreError(self.what, "its stored bytes end too early")
            byte = self.data[self.at]
            self.at += 1
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return found

    def take(self, size: int) -> bytes:
        """Next ``size`` bytes."""
        found = self.data[self.at : self.at + size]
        if len(found) != size:
            raise CorruptStoreError(self.what, "its stored bytes end too early")
        self.at += size
        return found

    @property
    def more(self) -> bool:
        """Whether bytes are left."""
        return self.at < len(self.data)


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of an object that is a range of another one."""

    at: int
    source: Digest
    start: int
    size: int


def find_pieces(objects: Mapping[Digest, bytes]) -> dict[Digest, list[Piece]]:
    """Find which objects of one draft contain others (a native record around its texts)."""
    if not 2 <= len(objects) <= 64:
        return {}
    by_size = sorted(objects.items(), key=lambda pair: len(pair[1]))
    found: dict[Digest, list[Piece]] = {}
    for index, (name, data) in enumerate(by_size):
        if is_node(data):
            continue
        pieces: list[Piece] = []
        for source, text in reversed(by_size[:index]):
            if len(text) < _SOURCE_SIZE or len(text) >= len(data) or is_node(text):
                continue
            pieces += _places(data, source, text)
        if pieces:
            found[name] = _disjoint(pieces)[:_MOST_PIECES]
    return found


def _places(data: bytes, source: Digest, text: bytes) -> Iterator[Piece]:
    at = data.find(text)
    if at >= 0:
        yield Piece(at, source, 0, len(text))
        return
    at = 0
    for run in _RUN.finditer(text):  # escaped somewhere: try the pieces between
        place = data.find(run.group(), at)
        if place < 0:
            return
        yield Piece(place, source, run.start(), len(run.group()))
        at = place + len(run.group())


def _disjoint(pieces: Sequence[Piece]) -> list[Piece]:
    kept: list[Piece] = []
    end = 0
    for piece in sorted(pieces, key=lambda p: (p.at, -p.size)):
        if piece.at >= end:
            kept.append(piece)
            end = piece.at + piece.size
    return kept


def write_segments(data: bytes, pieces: Sequence[Piece], numbers: Mapping[Digest, int]) -> bytes:
    """Encode an object as literals and ranges of others: a count, a table of pieces, then the literals.

    The table has fixed widths, since a whole list of messages is read at once and parsing is what costs.
    """
    table, literals = bytearray(), bytearray()
    at = 0
    for piece in pieces:
        table += _PIECE.pack(piece.at - at, numbers[piece.source], piece.start, piece.size)
        literals += data[at : piece.at]
        at = piece.at + piece.size
    return bytes((len(pieces),)) + table + literals + data[at:]


def segment_table(data: bytes, row: int) -> list[tuple[int, int, int, int]]:
    """Pieces of a segmented object: bytes of literal before it, row number of its source, start and size there."""
    end = 1 + data[0] * _PIECE.size if data else 1
    if len(data) < end:
        raise CorruptStoreError(f"object row {row}", "its stored bytes end too early")
    return list(_PIECE.iter_unpack(data[1:end]))


def read_segments(data: bytes, table: Sequence[tuple[int, int, int, int]], sources: Mapping[int, bytes]) -> bytes:
    """Rebuild a segmented object."""
    found: list[bytes] = []
    at = 1 + len(table) * _PIECE.size
    for literal, source, start, size in table:
        found.append(data[at : at + literal])
        found.append(sources[source][start : start + size])
        at += literal
    found.append(data[at:])
    return b"".join(found)


def is_node(data: bytes) -> bool:
    """Tell whether bytes can be a tree node with children (a text that happens to look like one is kept exactly as well)."""
    if len(data) < 34 or data[:1] not in b"LM" or data[1] > 32:
        return False
    return data[:1] == b"M" or (len(data) - 2) % 32 == 0


def node_children(data: bytes) -> list[bytes] | None:
    """Raw digests that a node names, or None where the bytes are no node."""
    try:
        return [value for _, value in children(data)[2]]
    except CorruptStoreError:
        return None


def write_node(data: bytes, numbers: Mapping[Digest, int]) -> tuple[int, bytes]:
    """Encode a node with row numbers in place of digests; returns form and data."""
    form, level, pairs = children(data)
    if form == "L":
        return LIST_NODE, bytes((level,)) + b"".join(varint(numbers[value.hex()]) for _, value in pairs)
    return MAP_NODE, bytes((level,)) + b"".join(varint(len(key)) + key + varint(numbers[value.hex()]) for key, value in pairs)


def node_numbers(form: int, data: bytes, row: int) -> list[tuple[bytes, int]]:
    """Parse a stored node into keys and row numbers."""
    cursor, found = Cursor(data, f"object row {row}"), list[tuple[bytes, int]]()
    cursor.take(1)
    while cursor.more:
        key = cursor.take(cursor.number()) if form == MAP_NODE else b""
        found.append((key, cursor.number()))
    return found


def read_node(form: int, data: bytes, pairs: Sequence[tuple[bytes, int]], digests: Mapping[int, bytes]) -> bytes:
    """Rebuild a node's exact bytes."""
    if form == LIST_NODE:
        return b"L" + data[:1] + b"".join([digests[number] for _, number in pairs])
    return b"M" + data[:1] + b"".join(varint(len(key)) + key + digests[number] for key, number in pairs)
