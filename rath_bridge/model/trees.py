"""Content-defined trees: a value that grows, stored in nodes that two versions share.

A tree is an ordered list, or a map, of digests. Its shape is a function of its content alone: a node
is cut after an item whose digest ends in three zero bits, at 2 items at least and 32 at most, so that an append, a drop at the
front and an edit in the middle each change a few nodes, however the tree was grown.

Bytes of a node (``docs/format/vectors/trees.json`` has vectors)::

    list, leaf and inner   "L" level  digest*                        each digest 32 raw bytes
    map, leaf              "M" 0      (key-length key digest)*        LEB128 length, UTF-8 key
    map, inner             "M" level  (key-length key digest)*        key = the first key below

``level`` is one byte, 0 for leaves. The root is the only node of its level. An empty tree is one empty leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from rath_bridge.errors import CorruptStoreError
from rath_bridge.model.digests import Digest
from rath_bridge.model.encoding import TreeRef

MIN_ITEMS: Final = 2
MAX_ITEMS: Final = 32

Nodes = dict[Digest, bytes]
Fetch = Callable[[Iterable[Digest]], Mapping[Digest, bytes]]


@dataclass(frozen=True, slots=True)
class _Node:
    """One node: its digest, and how many items of the level below it spans."""

    digest: bytes
    width: int
    closed: bool
    """Cut by content (or full), so that what follows it starts a new node."""
    key: bytes = b""
    """First key below it; maps only."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A list of digests with its levels, from which the next version is grown cheaply.

    Keep it beside the value that it stands for; ``grown`` compares with the old items and touches the rest.
    """

    items: Sequence[bytes]
    """Raw 32-byte digests, in order."""
    levels: tuple[tuple[_Node, ...], ...]
    """Nodes from the leaves up; the last level is the root alone."""

    @property
    def ref(self) -> TreeRef:
        """The reference that stands in a body."""
        return TreeRef(self.levels[-1][0].digest.hex(), len(self.items), "list")


def list_tree(items: Sequence[bytes], old: Tree | None = None) -> tuple[Tree, Nodes]:
    """Build the tree of ``items``; return it with the nodes that ``old`` does not have.

    Args:
        items: Raw 32-byte digests, in order.
        old: An earlier version, of any content; shared nodes at its front are not built again.

    Returns:
        The tree, and node bytes by digest: all of them without ``old``, else only new ones.
    """
    nodes: Nodes = {}
    levels: list[tuple[_Node, ...]] = []
    shared = _common_prefix(items, old.items) if old else 0
    below: Sequence[bytes] = items
    level = 0
    while True:
        old_level = old.levels[level] if old and level < len(old.levels) else ()
        kept, start = _kept(old_level, shared)
        level_nodes = [*kept, *_cut(below, start, level, nodes, {node.digest for node in old_level})]
        levels.append(tuple(level_nodes))
        if len(level_nodes) == 1:
            return Tree(items, tuple(levels)), nodes
        below = [node.digest for node in level_nodes]
        shared = len(kept)
        level += 1


def _common_prefix(new: Sequence[bytes], old: Sequence[bytes]) -> int:
    """Length of the common front, by halving: comparing slices runs at C speed."""
    size = min(len(new), len(old))
    if new[:size] == old[:size]:
        return size
    low, high = 0, size
    while low < high:
        middle = (low + high + 1) // 2
        if new[low:middle] == old[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _kept(old_level: Sequence[_Node], shared: int) -> tuple[Sequence[_Node], int]:
    """Return the old nodes that lie whole in the common front and were closed, and where they end."""
    end = 0
    for count, node in enumerate(old_level):
        if not node.closed or end + node.width > shared:
            return old_level[:count], end
        end += node.width
    return old_level, end


def _cut(below: Sequence[bytes], start: int, level: int, nodes: Nodes, known: set[bytes]) -> Iterator[_Node]:
    """Cut ``below[start:]`` into nodes; at least one node for an empty level."""
    head = b"L" + bytes((level,))
    first, total = start, len(below)
    while first < total or (first == start == 0 and total == 0):
        end = first
        closed = False
        while end < total and not closed:
            end += 1
            closed = end - first == MAX_ITEMS or (end - first >= MIN_ITEMS and below[end - 1][31] & 7 == 0)
        data = head + b"".join(below[first:end])
        name = sha256(data).digest()
        if name not in known:
            nodes[name.hex()] = data
        yield _Node(name, end - first, closed)
        if total == 0:
            return
        first = end


def map_tree(entries: Mapping[str, bytes]) -> tuple[TreeRef, Nodes]:
    """Build the tree of a map from UTF-8 keys to raw 32-byte digests.

    Keys with lone surrogates are written with their surrogates (``surrogatepass``).
    """
    nodes: Nodes = {}
    level = 0
    below = sorted((key.encode("utf-8", "surrogatepass"), value) for key, value in entries.items())
    while True:
        above: list[tuple[bytes, bytes]] = []
        for part in _parts(below):
            data = b"M" + bytes((level,)) + b"".join(_varint(len(key)) + key + value for key, value in part)
            name = sha256(data).digest()
            nodes[name.hex()] = data
            above.append((part[0][0] if part else b"", name))
        if len(above) == 1:
            return TreeRef(above[0][1].hex(), len(entries), "map"), nodes
        below = above
        level += 1


def _parts(entries: list[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    part: list[tuple[bytes, bytes]] = []
    for entry in entries:
        part.append(entry)
        if len(part) == MAX_ITEMS or (len(part) >= MIN_ITEMS and entry[1][31] & 7 == 0):
            yield part
            part = []
    if part or not entries:
        yield part


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


def children(data: bytes, name: Digest = "?") -> tuple[str, int, list[tuple[bytes, bytes]]]:
    """Parse a node into its form (``L`` or ``M``), level and ``(key, digest)`` pairs (key empty in lists).

    Raises:
        CorruptStoreError: The bytes are not a node.
    """
    problem = CorruptStoreError(f"tree node {name[:16]}", "its bytes are not a tree node")
    if len(data) < 2 or data[:1] not in b"LM":
        raise problem
    level, found = data[1], list[tuple[bytes, bytes]]()
    if level and len(data) == 2:  # only a leaf may be empty
        raise problem
    if data[:1] == b"L":
        if (len(data) - 2) % 32:
            raise problem
        return "L", level, [(b"", data[i : i + 32]) for i in range(2, len(data), 32)]
    at = 2
    while at < len(data):
        size = shift = 0
        while True:
            if at >= len(data) or shift > 28:
                raise problem
            byte = data[at]
            at += 1
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        key, value = data[at : at + size], data[at + size : at + size + 32]
        if len(value) != 32 or not _is_key(key):
            raise problem
        found.append((key, value))
        at += size + 32
    return "M", level, found


def _is_key(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def read_list(ref: TreeRef, fetch: Fetch) -> list[bytes]:
    """Return the raw digests of a list tree, in order, one fetch per level."""
    return [value for _, value in _leaves(ref, fetch, "L")]


def read_map(ref: TreeRef, fetch: Fetch) -> dict[str, bytes]:
    """Return the entries of a map tree."""
    return {key.decode("utf-8", "surrogatepass"): value for key, value in _leaves(ref, fetch, "M")}


def _leaves(ref: TreeRef, fetch: Fetch, form: str) -> list[tuple[bytes, bytes]]:
    row: list[Digest] = [ref.digest]
    level: int | None = None
    while True:
        data = fetch(row)
        pairs: list[tuple[bytes, bytes]] = []
        for name in row:
            found_form, height, found = children(data[name], name)
            level = height if level is None else level
            if (found_form, height) != (form, level):
                raise CorruptStoreError(
                    f"tree node {name[:16]}", f"it is {found_form}{height} where a node {form}{level} should stand"
                )
            pairs += found
        if level == 0:
            return pairs
        level = (level or 0) - 1
        row = [value.hex() for _, value in pairs]


def open_list(ref: TreeRef, fetch: Fetch) -> Tree:
    """Read a list tree back with its levels, so that it can be grown further."""
    return list_tree(read_list(ref, fetch))[0]
