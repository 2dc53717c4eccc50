"""What bodies stand on: the blobs, native records and trees that they refer to, down to the last item."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from rath_bridge.errors import CorruptStoreError, ErasedError, MissingObjectError, StoreUnavailableError
from rath_bridge.model.digests import Digest, digest, is_digest
from rath_bridge.model.encoding import decode, dumps
from rath_bridge.model.trees import children

Fetch = Callable[[Iterable[Digest]], Mapping[Digest, bytes]]

ABSENT: Final = "it is referred to, but is not there"
_BATCH: Final = 64
_BATCH_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Reference:
    """One object that a body, or a tree node, refers to."""

    digest: Digest
    tree: bool = False
    """A tree node, whose own references count too."""
    size: int | None = None
    """Bytes, where the reference tells."""
    form: str | None = None
    """``L`` or ``M``, where the place tells."""
    level: int | None = None
    """Level of the node, where the node above tells."""
    lists: frozenset[bytes] = frozenset()
    """Keys of a map whose values are list trees themselves (``Checkpoint.lists``)."""


def body_references(body: Any) -> Iterator[Reference]:
    """Yield what a body refers to.

    Args:
        body: Parsed JSON of the body, escapes in place.
    """
    lists, state = frozenset[bytes](), None
    if type(body) is dict:
        fields = cast("dict[str, Any]", body)
        state = fields.get("state")
        if isinstance(fields.get("lists"), dict):
            names: dict[Any, Any] = decode(dumps(fields["lists"]))
            lists = frozenset(name.encode("utf-8", "surrogatepass") for name in names if isinstance(name, str))
    stack: list[Any] = [body]
    while stack:
        item = stack.pop()
        if type(item) is list:
            stack.extend(cast("list[Any]", item))
        elif type(item) is dict:
            value = cast("dict[str, Any]", item)
            tag = value.get("$rath")
            if tag is None:
                stack.extend(value.values())
            elif tag == "map":
                stack.append(value.get("v"))
            elif "digest" in value:
                size = value.get("size")
                yield Reference(
                    digest=str(value["digest"]), tree=tag == "tree", size=size if type(size) is int else None,
                    form={"list": "L", "map": "M"}.get(str(value.get("form"))), lists=lists if item is state else frozenset(),
                )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reached:
    """One object that was reached, or could not be."""

    reference: Reference
    data: bytes | None
    """Its bytes; None where there is a problem, or where it was erased."""
    problem: str | None = None


class Memo:
    """Remembers what was seen lately, in bounded memory; what is forgotten is only seen again."""

    def __init__(self, limit: int = 200_000) -> None:
        self._limit = limit
        self._young: set[object] = set()
        self._old: set[object] = set()

    def add(self, key: object) -> bool:
        """Remember ``key``; True when it was not known."""
        if key in self._young:
            return False
        known = key in self._old
        if len(self._young) >= self._limit:
            self._old, self._young = self._young, set()
        self._young.add(key)
        return not known


def reach(references: Iterable[Reference], fetch: Fetch, seen: Memo) -> Iterator[Reached]:
    """Yield every object behind ``references``, tree nodes and their items included, each once; never stops at a fault.

    Args:
        references: Where to begin.
        fetch: Reads objects; raises where one is missing.
        seen: What was reached before; it is left out together with all below it.
    """
    queue: deque[Reference] = deque()

    def push(reference: Reference) -> None:
        if seen.add((reference.digest, reference.tree, reference.lists)):
            queue.append(reference)

    for reference in references:
        push(reference)
    while queue:
        batch = _batch(queue)
        found = _read([reference.digest for reference in batch], fetch)
        for reference in batch:
            data = found.get(reference.digest, ABSENT)  # a store may know the bytes by another spelling, which is no digest
            if not isinstance(data, bytes):
                yield Reached(reference, None, data)
                continue
            problem, below = check_object(reference, data)
            yield Reached(reference, data, problem)
            for child in below:
                push(child)


def _batch(queue: deque[Reference]) -> list[Reference]:
    found: list[Reference] = []
    size = 0
    while queue and len(found) < _BATCH and size < _BATCH_BYTES:
        reference = queue.popleft()
        found.append(reference)
        size += reference.size or 0
    return found


def _read(names: list[Digest], fetch: Fetch) -> dict[Digest, bytes | str | None]:
    """Read objects; for one that cannot be read, say why; for one that was erased, say nothing."""
    try:
        return dict(fetch(names))
    except StoreUnavailableError:
        raise
    except Exception as error:  # noqa: BLE001 - damage may raise anything; with one name it becomes a finding
        if len(names) == 1:
            if isinstance(error, ErasedError):
                return {names[0]: None}
            missing = isinstance(error, MissingObjectError)
            return {names[0]: ABSENT if missing else f"it cannot be read ({error})"}
    found: dict[Digest, bytes | str | None] = {}
    for name in names:
        found |= _read([name], fetch)
    return found


def check_object(reference: Reference, data: bytes) -> tuple[str | None, Iterable[Reference]]:
    """Check one object against its name and its reference; return the problem, and what it refers to itself."""
    name = reference.digest
    if not is_digest(name):
        return "its name is not a digest", ()
    if digest(data) != name:
        return "its bytes do not hash to its name", ()
    if reference.size is not None and reference.size != len(data):
        return f"it has {len(data)} bytes where {reference.size} are written", ()
    if not reference.tree:
        return None, ()
    try:
        form, level, pairs = children(data, name)
    except CorruptStoreError:
        return "its bytes are not a tree node", ()
    problem = None
    if reference.form not in (None, form):
        problem = "it is the node of another form of tree"
    elif reference.level not in (None, level):
        problem = f"it is a node of level {level} where level {reference.level} belongs"
    if level:
        return problem, [Reference(v.hex(), True, None, form, level - 1, reference.lists) for _, v in pairs]
    return problem, [
        Reference(v.hex(), True, None, "L") if k in reference.lists and form == "M" else Reference(v.hex()) for k, v in pairs
    ]
