"""Threads in and out: from any LangGraph checkpointer into a store, and back, with everything that ``list`` shows.

Source: ``BaseCheckpointSaver`` (langgraph-checkpoint 4.3); only its public methods are used, so any saver will do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import WRITES_IDX_MAP, BaseCheckpointSaver, CheckpointTuple

from rath_bridge.errors import DecodeError, MissingSessionError, RathError, UnsupportedError
from rath_bridge.session import Store
from rath_langgraph.configs import configurable
from rath_langgraph.saver import RathSaver

Progress = Callable[[int, int], None]
"""Called with how many checkpoints are done, and how many there are."""
Name = tuple[str, str]
"""Checkpoint id and namespace."""
_PATH: Final = "~moved, "


def import_thread(
    source: BaseCheckpointSaver[Any],
    store: Store | RathSaver,
    thread_id: str,
    *,
    target: str | None = None,
    progress: Progress | None = None,
) -> int:
    """Bring a thread of another checkpointer into a store: all namespaces, checkpoints, metadata and pending writes, in order.

    What stands there already is left as it is, so an import that was interrupted goes on where it was.

    Args:
        source: Any saver with the sync methods (``SqliteSaver``, ``PostgresSaver``, ``InMemorySaver`` ...).
        store: The store, or a `RathSaver` of it (for its session or serde).
        thread_id: The thread in the source.
        target: Its id in the store; the same when absent.
        progress: Told after every checkpoint.

    Returns:
        How many checkpoints were written.

    Raises:
        MissingSessionError: The source has no such thread.
        EncodeError: A value cannot be kept; what came before it is there.
        DecodeError: The source cannot read one of its rows; what came before it is there.
    """
    saver = store if isinstance(store, RathSaver) else RathSaver(store)
    return move(source, saver, thread_id, target or thread_id, _names(source, thread_id), progress)


def export_thread(
    store: Store | RathSaver,
    thread_id: str,
    target: BaseCheckpointSaver[Any],
    *,
    target_id: str | None = None,
    progress: Progress | None = None,
) -> int:
    """Write a thread into another checkpointer; see `import_thread`."""
    saver = store if isinstance(store, RathSaver) else RathSaver(store)
    return move(saver, target, thread_id, target_id or thread_id, _names(saver, thread_id), progress)


def thread_ids(source: BaseCheckpointSaver[Any]) -> list[str]:
    """The threads of a saver, in the order of their newest checkpoints."""
    return [*dict.fromkeys(str(configurable(found.config)["thread_id"]) for found in source.list(None))]


def _names(source: BaseCheckpointSaver[Any], thread_id: str) -> list[Name]:
    """What a thread consists of. A page of a saver that keeps whole states may be gigabytes: names first, then one at a time."""
    here: RunnableConfig = {"configurable": {"thread_id": thread_id}}
    names = sorted((found.checkpoint["id"], configurable(found.config).get("checkpoint_ns", "")) for found in source.list(here))
    if not names:
        raise MissingSessionError(f"thread {thread_id!r}", [])
    return names


def move(
    source: BaseCheckpointSaver[Any],
    target: BaseCheckpointSaver[Any],
    thread_id: str,
    target_id: str,
    names: Sequence[Name],
    progress: Progress | None,
) -> int:
    """Write what the target does not hold, in order; see `import_thread`."""
    written = 0
    for count, (checkpoint_id, namespace) in enumerate(names, 1):
        place = {"checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}
        there: RunnableConfig = {"configurable": {"thread_id": target_id, **place}}
        if not _stands(target, there):
            found = _read(source, {"configurable": {"thread_id": thread_id, **place}})
            if found is not None:
                write_tuple(target, found, target_id)
                written += 1
        if progress is not None:
            progress(count, len(names))
    return written


def _read(source: BaseCheckpointSaver[Any], config: RunnableConfig) -> CheckpointTuple | None:
    try:
        return source.get_tuple(config)
    except UnsupportedError as error:
        raise UnsupportedError(f"{_told(config)}: {error}") from error
    except RathError:
        raise
    except Exception as error:
        raise DecodeError(_told(config), f"its saver cannot ({type(error).__name__}: {error})") from error


def _told(config: RunnableConfig) -> str:
    place = configurable(config)
    return f"checkpoint {place['checkpoint_id']} of thread {place['thread_id']!r}"


def _stands(target: BaseCheckpointSaver[Any], config: RunnableConfig) -> bool:
    if isinstance(target, RathSaver):  # and not only in the saver behind it
        return target.holds(config)
    return target.get_tuple(config) is not None


def write_tuple(target: BaseCheckpointSaver[Any], found: CheckpointTuple, target_id: str) -> None:
    """Write one checkpoint: its writes first, so that a checkpoint that stands is whole."""
    named = configurable(found.config)
    place: dict[str, Any] = {"thread_id": target_id, "checkpoint_ns": named.get("checkpoint_ns", "")}
    config: RunnableConfig = {"configurable": {**place, "checkpoint_id": found.checkpoint["id"]}}
    for number, (task_id, writes) in enumerate(_tasks(found)):
        target.put_writes(config, writes, task_id, f"{_PATH}{number:06}")
    if found.parent_config is not None:
        place["checkpoint_id"] = configurable(found.parent_config)["checkpoint_id"]
    versions = found.checkpoint["channel_versions"]
    target.put({"configurable": place}, found.checkpoint, cast(Any, found.metadata), dict(versions))


def _tasks(found: CheckpointTuple) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """Pending writes by task, special ones one at a time; a tuple does not tell their paths, only their order."""
    tasks: dict[str, list[tuple[str, Any]]] = {}
    for task_id, channel, value in found.pending_writes or ():
        tasks.setdefault(task_id, []).append((channel, value))
    for task_id, writes in tasks.items():
        special = [write for write in writes if write[0] in WRITES_IDX_MAP]
        plain = [write for write in writes if write[0] not in WRITES_IDX_MAP]
        yield from ((task_id, [write]) for write in special)
        if plain:
            yield task_id, plain
