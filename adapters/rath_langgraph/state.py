"""One LangGraph checkpoint <-> one ``checkpoint`` chunk: channels in a map tree, the bookkeeping around them in the envelope.

Source: ``langgraph.checkpoint.base`` (``Checkpoint``, ``CheckpointMetadata``, ``CheckpointTuple``, ``get_checkpoint_metadata``).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, cast

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.base import Checkpoint as LangGraphCheckpoint
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import (
    ERROR,
    _DeltaSnapshot,  # pyright: ignore[reportPrivateUsage]
)

from rath_bridge.errors import CorruptStoreError, EncodeError, MissingObjectError, UnsupportedError
from rath_bridge.model.chunk import Chunk
from rath_bridge.model.digests import Digest, digest
from rath_bridge.model.encoding import BlobRef, TreeRef
from rath_bridge.model.kinds import Checkpoint, Task
from rath_bridge.model.trees import list_tree, map_tree, read_list, read_map
from rath_langgraph.compare import content_key
from rath_langgraph.items import SEEN, SNAPSHOT, Encoder, Seen, Value, is_open, join_list
from rath_langgraph.lift import message_channel
from rath_langgraph.mirror import Copies, Loaded, fresh

Fetch = Callable[[Iterable[Digest]], Mapping[Digest, bytes]]

LIST: Final = "msgpack[]"
"""Type tag of a write that is kept by item."""
_NOT_ENVELOPE: Final = frozenset({"id", "channel_values"})


@dataclass(frozen=True, slots=True)
class State:
    """What is known of a stored checkpoint: enough to store the next one at the cost of what is new."""

    versions: Mapping[str, Any]
    values: Mapping[str, Value]
    said: Mapping[str, Digest] = field(default_factory=dict[str, Digest])
    """`content_key` of the channels, as far as they are known."""


@contextmanager
def telling(place: str) -> Generator[None]:
    """Let an error about a value say where in the state it stands."""
    try:
        yield
    except EncodeError as error:
        path = place + error.path if error.path.startswith(("[", ".")) else place
        raise EncodeError(path, error.found, "keep data in the state, not handles, functions or open files") from error.__cause__


def encode_state(
    channels: Mapping[str, Any],
    encoder: Encoder,
    old: State | None,
    versions: Mapping[str, Any] | None = None,
    moved: Iterable[str] = (),
) -> tuple[TreeRef, dict[str, int], dict[str, str], dict[str, Value]]:
    """Encode channel values into a map tree.

    Args:
        channels: Values by channel.
        encoder: Collects the objects.
        old: The parent checkpoint: a channel whose version did not move keeps its digest.
        versions: ``channel_versions`` of the new checkpoint.
        moved: Channels in ``new_versions``.

    Returns:
        The tree, the number of items of every list that is kept by item, the type tags that are not plain msgpack, and the values.
    """
    before = old.values if old else dict[str, Value]()
    known = old.versions if old else dict[str, Any]()
    changed = set(moved)
    values: dict[str, Value] = {}
    for channel, value in channels.items():
        kept = before.get(channel)
        if kept is not None and versions and channel not in changed and known.get(channel) == versions.get(channel) is not None:
            values[channel] = kept
        else:
            with telling(f"state[{channel!r}]"):
                values[channel] = encoder.value(value, kept)
    tree, nodes = map_tree({channel: value.digest for channel, value in values.items() if value.type != "null"})
    encoder.objects.update(nodes)
    lists = {channel: len(value.tree.items) for channel, value in values.items() if value.tree is not None}
    return tree, lists, {channel: value.type for channel, value in values.items() if value.type != "msgpack"}, values


def checkpoint_body(
    namespace: str,
    parent: str | None,
    checkpoint: LangGraphCheckpoint,
    metadata: Mapping[str, Any],
    encoder: Encoder,
    old: State | None,
    moved: Iterable[str],
) -> tuple[Checkpoint, State]:
    """Translate a checkpoint into its body; the encoder holds the objects that it needs."""
    versions = checkpoint["channel_versions"]
    state, lists, types, values = encode_state(checkpoint["channel_values"], encoder, old, versions, moved)
    envelope: dict[str, Any] = {key: value for key, value in checkpoint.items() if key not in _NOT_ENVELOPE}
    facts = dict(metadata)
    step = facts.pop("step", None) if type(facts.get("step")) is int else None
    source = facts.pop("source", None) if type(facts.get("source")) is str else None
    sealed: dict[str, Any] = {}
    if facts:
        (envelope if encoder.open and _is_plain(facts) else sealed)["metadata"] = facts
    sends = envelope.get("pending_sends")
    if sends and not (encoder.open and _is_plain(sends)):
        sealed["pending_sends"] = envelope.pop("pending_sends")
    if sealed:
        kind, data = encoder.serde.dumps_typed(sealed)
        envelope["sealed"] = [kind, bytes(data)]
    if types:
        envelope["types"] = types
    said = said_by(checkpoint["channel_values"], values, encoder, old) if encoder.open else None
    body = Checkpoint(
        namespace=namespace, checkpoint_id=checkpoint["id"], parent_checkpoint_id=parent, step=step, source=source,
        state=state, lists=lists, content=None if said is None else content_of(said), envelope=envelope,
    )  # fmt: skip
    return body, State(dict(versions), values, said or {})


def said_by(channels: Mapping[str, Any], values: Mapping[str, Value], encoder: Encoder, old: State | None) -> dict[str, Digest]:
    """What every channel of the user says, without ids that are new in every run; the transcript's messages are left out."""
    mirrors = (encoder.mirrors, encoder.seen.mirrors)
    feed = message_channel(channels, lambda name: any(name in values and values[name].digest in known for known in mirrors))
    found: dict[str, Digest] = {}
    for name, value in channels.items():
        if name == feed or (name.startswith(("__", "branch:", "join:")) and name != "__pregel_tasks"):
            continue
        same = old is not None and name in old.said and old.values.get(name) is values.get(name)
        found[name] = old.said[name] if same and old is not None else _content(value, values.get(name), encoder.seen)
    return found


def _content(value: Any, stored: Value | None, seen: Seen) -> Digest:
    """What a channel says; of a list, each item is looked at once and known by its digest from then on."""
    if type(value) is not list:
        return content_key(value)
    items = cast("list[object]", value)
    if stored is None or stored.tree is None or len(stored.tree.items) != len(items):
        return digest("".join(map(content_key, items)).encode())
    known: list[Digest] = []
    for name, item in zip(stored.tree.items, items, strict=True):
        key = seen.said.get(name)
        if key is None:
            if len(seen.said) > SEEN:
                seen.said.clear()
            key = seen.said[name] = content_key(item)
        known.append(key)
    return digest("".join(known).encode())


def content_of(said: Mapping[str, Digest]) -> str:
    """One digest over what the channels say; empty where there are none."""
    text = "".join(f"{name}\0{said[name]}\n" for name in sorted(said))
    return digest(text.encode("utf-8", "surrogatepass"))[:32] if text else ""


def _is_plain(value: Any) -> bool:
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind in (str, int, float, bool, type(None)):
        return True
    if kind is dict:
        return all(type(key) is str and _is_plain(item) for key, item in value.items())
    return kind in (list, tuple) and all(_is_plain(item) for item in value)


# -------------------------------------------------------------------------------------------------------------- back


def read_state(body: Checkpoint, fetch: Fetch) -> State:
    """Read a stored checkpoint's digests, no values."""
    envelope = cast("dict[str, Any]", body.envelope or {})
    types: dict[str, str] = envelope.get("types") or {}
    names = read_map(body.state, fetch) if body.state is not None else {}
    values = {channel: Value("null", b"") for channel, kind in types.items() if kind == "null"}
    for channel, name in names.items():
        tree = None
        if channel in body.lists:
            tree = list_tree(read_list(TreeRef(name.hex(), int(body.lists[channel])), fetch))[0]
        values[channel] = Value(types.get(channel, "msgpack"), name, tree)
    return State(envelope.get("channel_versions") or {}, values)


def load_values(
    state: State, serde: SerializerProtocol, fetch: Fetch, place: str, copies: Copies | None = None, seen: Seen | None = None
) -> dict[str, Any]:
    """Load the values of a state, all bytes in one fetch.

    Args:
        state: Digests of the values.
        serde: The saver's.
        fetch: Reads bytes.
        place: For errors.
        copies: Messages that were loaded before: they are copied, not read.
        seen: Takes over lists of messages, so that a put that follows compares them at little cost.

    Raises:
        CorruptStoreError: The serde cannot read what is stored; the error names the channel.
    """
    held = {
        channel: copies.find(value.tree.items)
        for channel, value in state.values.items()
        if copies is not None and value.tree is not None and is_open(serde)
    }
    wanted: set[bytes] = set()
    for channel, value in state.values.items():
        if value.tree is None:
            if value.type != "null":
                wanted.add(value.digest)
        elif None in (found := held.get(channel, [None])):
            wanted.update(name for name, one in zip(value.tree.items, found, strict=False) if one is None)
            if channel not in held:
                wanted.update(value.tree.items)
    try:
        stored = fetch([name.hex() for name in wanted]) if wanted else dict[Digest, bytes]()
    except CorruptStoreError as error:
        raise CorruptStoreError(f"{place}, {error.what}", error.problem) from error
    except MissingObjectError as error:
        raise CorruptStoreError(place, f"a value of it is missing, {error.digest}") from error
    values: dict[str, Any] = {}
    for channel, value in state.values.items():
        where = f"{place}, channel {channel!r}"
        if value.tree is None:
            data = b"" if value.type == "null" else stored[value.digest.hex()]
            values[channel] = _loads(serde, value.type, data, where)
        elif channel in held and copies is not None:
            values[channel] = _listed(value.tree.items, held[channel], serde, stored, copies, where)
            if seen is not None and value.digest not in seen.mirrors:
                found = copies.find(value.tree.items)
                if None not in found:
                    seen.loaded(value, cast("list[Loaded]", found))
        else:
            values[channel] = _loads(serde, "msgpack", join_list([stored[name.hex()] for name in value.tree.items]), where)
        if value.type == SNAPSHOT:
            values[channel] = _DeltaSnapshot(values[channel])
    return values


def _listed(
    names: Sequence[bytes], held: Sequence[Loaded | None], serde: SerializerProtocol, stored: Mapping[Digest, bytes], copies: Copies,
    place: str,
) -> list[Any]:  # fmt: skip
    """A list whose items are copied where they are at hand, and loaded in one call where they are not."""
    missing = [i for i, one in enumerate(held) if one is None]
    if not missing:
        return fresh(cast("Sequence[Loaded]", held))
    read = [stored[names[i].hex()] for i in missing]
    found = cast("list[Any]", _loads(serde, "msgpack", join_list(read), place))
    for i, data, item in zip(missing, read, found, strict=True):
        copies.keep(names[i], item, len(data))
    if len(missing) == len(held):
        return found
    copied, rest = iter(fresh([one for one in held if one is not None])), iter(found)
    return [next(rest if one is None else copied) for one in held]


def _loads(serde: SerializerProtocol, kind: str, data: bytes, place: str) -> Any:
    try:
        return serde.loads_typed((kind, data))
    except UnsupportedError as error:
        raise UnsupportedError(f"{place}: {error}") from error
    except Exception as error:
        raise CorruptStoreError(place, f"the serde cannot read its {kind} bytes ({type(error).__name__}: {error})") from error


def read_metadata(body: Checkpoint, serde: SerializerProtocol, place: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the checkpoint's bookkeeping without its values, and its metadata."""
    envelope = dict(cast("dict[str, Any]", body.envelope or {}))
    envelope.pop("types", None)
    if "sealed" in envelope:
        kind, data = envelope.pop("sealed")
        envelope.update(_loads(serde, kind, data, f"{place}, metadata"))
    facts: dict[str, Any] = {}
    if body.source is not None:
        facts["source"] = body.source
    if body.step is not None:
        facts["step"] = body.step
    facts.update(envelope.pop("metadata", None) or {})
    return {"id": body.checkpoint_id, **envelope}, facts


# ------------------------------------------------------------------------------------------------------------- tasks


def task_body(
    namespace: str, checkpoint_id: str, writes: Sequence[tuple[str, Any]], task_id: str, path: str, encoder: Encoder
) -> Task:
    """Translate the writes of one ``put_writes`` call; long values and items of lists are named by digest."""
    rows: list[list[Any]] = []
    for position, (channel, value) in enumerate(writes):
        index = WRITES_IDX_MAP.get(channel, position)
        where = f"a write to {channel!r}"
        if channel == ERROR and isinstance(value, BaseException):
            value = repr(value)  # as LangGraph's own savers: an error must not keep a thread from being read
        with telling(where):
            made_items = encoder.items(cast("list[object]", value)) if type(value) is list else None
        if made_items is not None:
            names = made_items[0]
            for item, name in zip(cast("list[object]", value), names, strict=True):
                encoder.keep(item, name)
            rows.append([index, channel, LIST, [BlobRef(name.hex(), len(encoder.bytes.get(name, b""))) for name in names]])
            continue
        with telling(where):
            made = encoder.value(cast(Any, value))
        if made.type == "null":
            rows.append([index, channel, "null"])
        else:
            name = made.digest.hex()
            data = encoder.objects[name]
            small = len(data) < 64  # a reference costs as much
            rows.append([index, channel, made.type, encoder.objects.pop(name) if small else BlobRef(name, len(data))])
    return Task(namespace=namespace, checkpoint_id=checkpoint_id, task_id=task_id, path=path, writes=tuple(rows))


def load_writes(
    chunks: Iterable[Chunk],
    serde: SerializerProtocol,
    fetch: Fetch,
    *,
    ordered: bool = True,
    channels: Container[str] | None = None,
) -> list[tuple[str, str, Any]]:
    """Fold the task chunks of one checkpoint into its pending writes.

    For each (task, index) the first regular write stands and the last special one; order is (task_path, task_id, index), or, unless
    ``ordered``, as they were written. With ``channels``, only writes to those are loaded.
    """
    rows: dict[tuple[str, int], tuple[str, list[Any]]] = {}
    for chunk in sorted(chunks, key=lambda c: (c.at, c.position)):
        body = cast(Task, chunk.body)
        task_id = body.task_id or ""
        replace = all(row[1] in WRITES_IDX_MAP for row in body.writes)
        for row in body.writes:
            if replace or (task_id, row[0]) not in rows:
                rows[task_id, row[0]] = (body.path, row)
    if channels is not None:
        rows = {place: found for place, found in rows.items() if found[1][1] in channels}
    wanted = {ref.digest for _, row in rows.values() for ref in references(row)}
    found = fetch(wanted) if wanted else dict[Digest, bytes]()
    listed = list(rows.items())
    if ordered:
        listed.sort(key=lambda pair: (pair[1][0], *pair[0]))
    return [(task_id, row[1], _write(row, serde, found)) for (task_id, _), (_, row) in listed]


def references(row: Sequence[Any]) -> list[BlobRef]:
    """The objects that one row of a task's writes is made of."""
    if len(row) < 4:
        return []
    return cast("list[BlobRef]", row[3]) if row[2] == LIST else [row[3]] if isinstance(row[3], BlobRef) else []


def _write(row: Sequence[Any], serde: SerializerProtocol, found: Mapping[Digest, bytes]) -> Any:
    place = f"a write to {row[1]!r}"
    if len(row) < 4:
        return _loads(serde, "null", b"", place)
    if row[2] == LIST:
        return _loads(serde, "msgpack", join_list([found[ref.digest] for ref in row[3]]), place)
    return _loads(serde, row[2], found[row[3].digest] if isinstance(row[3], BlobRef) else row[3], place)
