"""`FollowedSaver`: a graph's own checkpointer stays in charge, and what it is told is kept in a session as well.

Everything is answered by the own one. What is written goes to both, to the own one first; where ours cannot write, the graph goes on and
the loss is counted in a ``gap``. Source of the contract: ``langgraph.checkpoint.base.BaseCheckpointSaver`` (langgraph-checkpoint 4.3).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from copy import copy
from inspect import signature
from typing import Any, Final, cast

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.constants import START

from rath_bridge.aio import settled
from rath_bridge.model.chunk import draft
from rath_bridge.model.kinds import Gap
from rath_bridge.recorder import current_recorder
from rath_bridge.replay import current_tape
from rath_bridge.session import Store
from rath_bridge.store.protocol import Ref
from rath_langgraph.configs import configurable, place_of
from rath_langgraph.flight import landings
from rath_langgraph.items import is_open
from rath_langgraph.neutral import origin
from rath_langgraph.saver import RathSaver
from rath_langgraph.stages import Stages
from rath_langgraph.twins import carried_out

_log: Final = logging.getLogger("rath_bridge")


class FollowedSaver(BaseCheckpointSaver[Any]):
    """A checkpointer whose checkpoints appear in a session; any other attribute is the own checkpointer's."""

    lands: Final = True
    """It tells which checkpoints stand (`rath_langgraph.flight.landings`)."""

    def __init__(self, own: BaseCheckpointSaver[Any], store: Store, session: str | None = None) -> None:
        """Follow a checkpointer.

        Args:
            own: Stays in charge: reads come from it, and writes go to it first. One that encrypts has its values kept encrypted.
            store: Where its checkpoints appear.
            session: In which session; the ambient recorder's, else ``langgraph/<thread_id>``.
        """
        super().__init__(serde=own.serde)
        self.own = own
        self.followers = RathSaver(store, session=session, serde=None if is_open(own.serde) else own.serde)
        self._stages = Stages(store, session)
        self._lost: dict[str, int] = {}
        self._takes_path = "task_path" in signature(own.put_writes).parameters

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "own":
            raise AttributeError(name)
        return getattr(self.own, name)

    def with_allowlist(self, extra_allowlist: Any) -> FollowedSaver:
        """As the own one's."""
        made = copy(self)
        made.own = self.own.with_allowlist(extra_allowlist)
        made.serde = made.own.serde
        return made

    @property
    def config_specs(self) -> list[Any]:
        """The own one's."""
        return cast(Any, self.own).config_specs

    def get_next_version(self, current: Any, channel: None) -> Any:
        """The own one's."""
        return self.own.get_next_version(current, channel)

    @property
    def charge(self) -> BaseCheckpointSaver[Any]:
        """Who answers: the own one; while a replay runs, ours alone, which leads to its scratch."""
        return self.own if current_tape() is None else self.followers

    # ---------------------------------------------------------------- read

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The own one's."""
        found = self.charge.get_tuple(config)
        landings.read(*place_of(config), found)
        return found

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the contract's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """The own one's."""
        return self.charge.list(config, filter=filter, before=before, limit=limit)

    def get_delta_channel_history(self, *, config: RunnableConfig, channels: Sequence[str]) -> Mapping[str, DeltaChannelHistory]:
        """The own one's."""
        return self.charge.get_delta_channel_history(config=config, channels=channels)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The own one's."""
        found = await self.charge.aget_tuple(config)
        landings.read(*place_of(config), found)
        return found

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the contract's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """The own one's."""
        async for found in self.charge.alist(config, filter=filter, before=before, limit=limit):
            yield found

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """The own one's."""
        return await self.charge.aget_delta_channel_history(config=config, channels=channels)

    # ---------------------------------------------------------------- write

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """Store a checkpoint in both."""
        checkpoint = _settled(checkpoint)
        try:
            found = self.charge.put(config, checkpoint, metadata, new_versions)
            self._follow(config, lambda: self.followers.put(config, checkpoint, metadata, new_versions))
        finally:
            landings.land(checkpoint["id"])
        return found

    def put_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        """Store a task's writes in both."""
        writes = [(channel, _copied(value)) for channel, value in writes]
        if self._takes_path:
            self.charge.put_writes(config, writes, task_id, task_path)
        else:
            self.charge.put_writes(config, writes, task_id)
        self._follow(config, lambda: self.followers.put_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread in both."""
        self.charge.delete_thread(thread_id)
        self._follow(_of(thread_id), lambda: self.followers.delete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete what some runs left in both."""
        self.charge.delete_for_runs(run_ids)
        self._follow(None, lambda: self.followers.delete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread in both."""
        self.charge.copy_thread(source_thread_id, target_thread_id)
        self._follow(_of(target_thread_id), lambda: self.followers.copy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Prune in both."""
        self.charge.prune(thread_ids, strategy=strategy)
        self._follow(None, lambda: self.followers.prune(thread_ids, strategy=strategy))

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        """Async twin of `put`."""
        checkpoint = _settled(checkpoint)
        try:
            found = await self.charge.aput(config, checkpoint, metadata, new_versions)
            await carried_out(
                self.followers.flight,
                (*place_of(config), checkpoint["id"], "put"),
                lambda: self._follow(config, lambda: self.followers.put(config, checkpoint, metadata, new_versions)),
            )
        finally:
            landings.land(checkpoint["id"])
        return found

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Async twin of `put_writes`."""
        writes = [(channel, _copied(value)) for channel, value in writes]
        if self._takes_path:
            await self.charge.aput_writes(config, writes, task_id, task_path)
        else:
            await self.charge.aput_writes(config, writes, task_id)
        await carried_out(
            self.followers.flight,
            (*place_of(config), str(configurable(config).get("checkpoint_id") or "")),
            lambda: self._follow(config, lambda: self.followers.put_writes(config, writes, task_id, task_path)),
        )

    async def adelete_thread(self, thread_id: str) -> None:
        """Async twin of `delete_thread`."""
        await self.charge.adelete_thread(thread_id)
        await settled(self._follow, _of(thread_id), lambda: self.followers.delete_thread(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Async twin of `delete_for_runs`."""
        await self.charge.adelete_for_runs(run_ids)
        await settled(self._follow, None, lambda: self.followers.delete_for_runs(run_ids))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Async twin of `copy_thread`."""
        await self.charge.acopy_thread(source_thread_id, target_thread_id)
        await settled(self._follow, _of(target_thread_id), lambda: self.followers.copy_thread(source_thread_id, target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Async twin of `prune`."""
        await self.charge.aprune(thread_ids, strategy=strategy)
        await settled(self._follow, None, lambda: self.followers.prune(thread_ids, strategy=strategy))

    # ---------------------------------------------------------------- inside

    def _follow(self, config: RunnableConfig | None, write: Callable[[], object]) -> None:
        """Write to our store; a failure never stops the graph (unless the recorder is strict), and is counted."""
        configurable: dict[str, Any] = (config or {}).get("configurable") or {}
        thread_id, namespace = str(configurable.get("thread_id") or ""), str(configurable.get("checkpoint_ns") or "")
        if current_tape() is not None:
            return  # it was told already
        try:
            write()
            lost = self._lost.pop(thread_id, 0)
            if lost:
                gap = Gap(count=lost, reason="checkpoints of the graph's own checkpointer could not be kept")
                threads = self._stages.here()
                where = threads.home(threads.line(thread_id, namespace))
                place = threads.store.session(Ref(*where, "", 0).name, create=True)
                place.append(draft(gap, origin=origin()), on_conflict="serialise")
        except Exception as error:
            recorder = current_recorder()
            if recorder is not None and recorder.strict:
                raise
            self._lost[thread_id] = self._lost.get(thread_id, 0) + 1
            _log.warning("rath_bridge: a checkpoint of thread %r could not be followed: %s", thread_id, error)


def _settled(checkpoint: Checkpoint) -> Checkpoint:
    """A checkpoint whose input will not change under the two writers: reducers give ids to the messages that they take in."""
    values = checkpoint["channel_values"]
    if START not in values:
        return checkpoint
    return cast(Checkpoint, {**checkpoint, "channel_values": {**values, START: _copied(values[START])}})


def _copied(value: Any) -> Any:
    if isinstance(value, BaseMessage):
        return copy(value)
    if type(value) is list:
        return [_copied(item) for item in cast("list[Any]", value)]
    if type(value) is dict:
        return {key: _copied(item) for key, item in cast("dict[Any, Any]", value).items()}
    return value


def _of(thread_id: str) -> RunnableConfig:
    return cast(RunnableConfig, {"configurable": {"thread_id": thread_id}})
