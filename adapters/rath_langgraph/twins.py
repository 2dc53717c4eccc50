"""The async side of a checkpointer: the same bodies on our own thread pool, so on any event loop.

A graph that is cancelled leaves writes behind, for which LangGraph does not always wait. Each is carried out to its end, and who
reads the thread's newest checkpoint next, on the same loop, reads it behind them: as with a saver that never gives the loop away.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Hashable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

from rath_bridge.aio import in_thread, settled
from rath_langgraph.configs import configurable, place_of
from rath_langgraph.flight import Flight

T = TypeVar("T")

_Place = tuple[str, str, int]
_arriving: Final[WeakKeyDictionary[Flight, dict[_Place, set[asyncio.Future[None]]]]] = WeakKeyDictionary()
"""What was handed over and does not stand yet, by thread, namespace and event loop."""


@contextmanager
def _arrival(flight: Flight, thread_id: str, namespace: str) -> Generator[None]:
    """Let those who read this place on this loop wait until the block has ended."""
    loop = asyncio.get_running_loop()
    known, place, over = _arriving.setdefault(flight, {}), (thread_id, namespace, id(loop)), loop.create_future()
    known.setdefault(place, set()).add(over)
    try:
        yield
    finally:
        known[place].discard(over)
        if not known[place]:
            del known[place]
        if not over.done():
            over.set_result(None)


async def carried_out(flight: Flight, checkpoint: Hashable, write: Callable[[], T]) -> T:
    """Write something of a checkpoint, to its end: under way from here on, not from when a thread takes it up."""
    under_way = ExitStack()
    under_way.enter_context(flight.of(checkpoint))

    def written() -> T:
        with under_way:  # it ends on the thread: who waits for it may hold up the loop
            return write()

    with under_way:
        return await settled(written)


async def _arrived(flight: Flight, thread_id: str, namespace: str) -> None:
    """Wait until nothing is under way to a place that was handed over on this loop."""
    place = (thread_id, namespace, id(asyncio.get_running_loop()))
    while waiting := _arriving.get(flight, {}).get(place):
        await asyncio.wait(waiting)
        await asyncio.sleep(0)  # the next of a chain sets out


class AsyncTwins(BaseCheckpointSaver[Any]):
    """Async twins of a saver's sync methods."""

    @property
    def flight(self) -> Flight:
        """What is on its way to the store."""
        raise NotImplementedError

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Async twin of `get_tuple`."""
        await _arrived(self.flight, *place_of(config))
        return await in_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the contract's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Async twin of `list`; read a few at a time."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        while True:
            page = await in_thread(lambda: [*islice(found, 8)])
            for item in page:
                yield item
            if len(page) < 8:
                return

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """Async twin of `put`."""
        place = place_of(config)
        with _arrival(self.flight, *place):
            return await carried_out(
                self.flight, (*place, checkpoint["id"], "put"), lambda: self.put(config, checkpoint, metadata, new_versions)
            )

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Async twin of `put_writes`."""
        place, name = place_of(config), str(configurable(config).get("checkpoint_id") or "")
        with _arrival(self.flight, *place):
            await carried_out(self.flight, (*place, name), lambda: self.put_writes(config, writes, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        """Async twin of `delete_thread`."""
        await settled(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Async twin of `delete_for_runs`."""
        await settled(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Async twin of `copy_thread`."""
        await settled(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Async twin of `prune`."""
        await settled(lambda: self.prune(thread_ids, strategy=strategy))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Async twin of `get_delta_channel_history`."""
        return await in_thread(lambda: self.get_delta_channel_history(config=config, channels=channels))
