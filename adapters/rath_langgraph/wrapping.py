"""`wrap`: a compiled graph that records itself, and works on Sessions. The original is left as it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass
from typing import Any, Final, Literal, cast
from uuid import UUID, uuid4

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.graph.state import CompiledStateGraph  # pyright: ignore[reportMissingTypeStubs]

from rath_bridge.aio import in_thread
from rath_bridge.errors import UnsupportedError
from rath_bridge.given import check_store
from rath_bridge.model.chunk import Chunk, Draft
from rath_bridge.model.report import LossReport, align
from rath_bridge.recorder import record
from rath_bridge.replay import current_tape
from rath_bridge.session import Session, Store
from rath_langgraph.behind import ToolsWait
from rath_langgraph.carry import carried
from rath_langgraph.compare import compare_key
from rath_langgraph.decode import decode
from rath_langgraph.deltas import away, unwrapped, whole
from rath_langgraph.encode import encode
from rath_langgraph.followed import FollowedSaver
from rath_langgraph.merging import StateMerger
from rath_langgraph.record import RathCallbackHandler, handed
from rath_langgraph.saver import RathSaver
from rath_langgraph.turns import recorded_turns

_EXTRA: Final = "_rath"
_LENT: Final = "__pregel_checkpointer"
"""Where a graph lends its checkpointer to those in it (``langgraph._internal._constants.CONFIG_KEY_CHECKPOINTER``)."""


@dataclass(frozen=True, slots=True)
class Wrapping:
    """What a wrapped graph knows beside the graph."""

    store: Store
    session: str | None
    handler: RathCallbackHandler


class RathGraph(CompiledStateGraph[Any, Any, Any, Any]):
    """A compiled graph that records itself; calling it with a Session runs it on that Session."""

    _rath: Wrapping

    def copy(self, update: dict[str, Any] | None = None) -> RathGraph:
        """As the graph's own, without losing the recording."""
        return _dressed(_plain(self).copy(update), self._rath)

    # ---------------------------------------------------------------- custom stream output

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:  # noqa: A002 # pyright: ignore[reportIncompatibleMethodOverride]
        """As the graph's own; what nodes send through their stream writer is recorded as it is handed over."""
        modes, shape = self._modes(kwargs)
        found, context, unsaved = _any(super()).stream, kwargs.get("context"), self._is_unsaved(config)
        if "custom" not in modes and context is None and not unsaved:
            yield from found(input, config, **kwargs)
            return
        run, settings = _with_run(config)
        with self._rath.handler.given(run, context, unsaved), closing(found(input, settings, **kwargs)) as items:
            for item in items:
                if "custom" in modes:
                    self._tap(run, item, shape)
                yield item

    async def astream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> AsyncIterator[Any]:  # noqa: A002 # pyright: ignore[reportIncompatibleMethodOverride]
        """Async twin of `stream`."""
        modes, shape = self._modes(kwargs)
        found, context, unsaved = _any(super()).astream, kwargs.get("context"), self._is_unsaved(config)
        run, settings = _with_run(config) if "custom" in modes or context is not None or unsaved else (None, config)
        with self._rath.handler.given(run, context, unsaved):
            async with aclosing(found(input, settings, **kwargs)) as items:
                async for item in items:
                    if run is not None and "custom" in modes:
                        self._tap(run, item, shape)
                    yield item

    def _is_unsaved(self, config: RunnableConfig | None) -> bool:
        """Whether no checkpointer that is recorded keeps this run's state."""
        own = _any(self).checkpointer
        given = cast(RunnableConfig, {**(self.config or {}), **(config or {})})
        lent: dict[str, Any] = ensure_config(given).get("configurable") or {}
        found: Any = None if own is False else lent.get(_LENT, own)
        return not (isinstance(found, FollowedSaver) or (isinstance(found, RathSaver) and found.store == self._rath.store))

    def _modes(self, kwargs: Mapping[str, Any]) -> tuple[Sequence[str], tuple[bool, bool, bool]]:
        """The modes that are asked for, and how items come: with their namespace, with their mode, as maps."""
        given = kwargs.get("stream_mode") or _any(self).stream_mode
        modes = [given] if isinstance(given, str) else list(given)
        return modes, (bool(kwargs.get("subgraphs")), not isinstance(given, str), kwargs.get("version") == "v2")

    def _tap(self, run: UUID, item: Any, shape: tuple[bool, bool, bool]) -> None:
        subgraphs, named, maps = shape
        if maps:
            namespace, mode, data = item.get("ns", ()), item.get("type"), item.get("data")
        else:
            parts = cast("tuple[Any, ...]", item if subgraphs or named else (item,))
            namespace, data = (parts[0] if subgraphs else ()), parts[-1]
            mode = parts[-2] if named else "custom"
        if mode == "custom":
            self._rath.handler.streamed(run, namespace, data)

    # ---------------------------------------------------------------- on a Session

    def __call__(self, session: Session, /, config: RunnableConfig | None = None) -> Session:
        """Run on a session: messages that this thread does not know yet enter as input.

        Args:
            session: Where to go on; its store should be the one that was wrapped for.
            config: More of LangGraph's config; ``thread_id`` defaults to the session's name.

        Returns:
            The session as the graph left it.
        """
        turns = recorded_turns(self, session)
        return self.go_on(session, config) if turns is None else turns.again(self)

    def go_on(self, session: Session, config: RunnableConfig | None = None) -> Session:
        """One run on a session."""
        settings = self._settings(session, config)
        messages, report = cast("tuple[list[BaseMessage], LossReport]", encode(session))
        saver, thread_id = self._saver(), _thread(settings)
        run, settings = _with_run(settings)
        with record(session.store, session.name), self._rath.handler.calling(run) as noted:
            found = saver.get_tuple(settings) if saver else None
            plan = carried(session, saver, thread_id, found, _any(self).channels) if saver else None
            if saver is not None and plan is not None:
                plan.tell(saver)
                found = saver.get_tuple(settings)
            if saver is not None and found is not None and (names := away(found, _any(self).channels)):
                found = whole(found, _any(self).channels, saver.get_delta_channel_history(config=found.config, channels=names))
            known = _known(found, messages, report)
            fresh = [message for index, message in enumerate(messages) if index not in known]
            token = handed.set(_rows(report, known))
            try:
                result = _any(self).invoke({"messages": fresh} if fresh else None, settings)
            finally:
                handed.reset(token)
        return self._after(session, messages, result, noted)

    async def acall(self, session: Session, /, config: RunnableConfig | None = None) -> Session:
        """Async twin of calling it."""
        turns = recorded_turns(self, session)
        return await (self.ago_on(session, config) if turns is None else turns.aagain(self))

    async def ago_on(self, session: Session, config: RunnableConfig | None = None) -> Session:
        """Async twin of `go_on`."""
        settings = self._settings(session, config)
        messages, report = cast("tuple[list[BaseMessage], LossReport]", await in_thread(encode, session))
        saver, thread_id = self._saver(), _thread(settings)
        run, settings = _with_run(settings)
        with record(session.store, session.name), self._rath.handler.calling(run) as noted:
            found = await saver.aget_tuple(settings) if saver else None
            plan = await in_thread(carried, session, saver, thread_id, found, _any(self).channels) if saver else None
            if saver is not None and plan is not None:
                await plan.atell(saver)
                found = await saver.aget_tuple(settings)
            if saver is not None and found is not None and (names := away(found, _any(self).channels)):
                told = await saver.aget_delta_channel_history(config=found.config, channels=names)
                found = whole(found, _any(self).channels, told)
            known = _known(found, messages, report)
            fresh = [message for index, message in enumerate(messages) if index not in known]
            token = handed.set(_rows(report, known))
            try:
                result = await _any(self).ainvoke({"messages": fresh} if fresh else None, settings)
            finally:
                handed.reset(token)
        return await in_thread(self._after, session, messages, result, noted)

    def merge_state(self, base: Chunk | None, ours: Chunk | None, theirs: Chunk | None) -> Sequence[Draft]:
        """Merge checkpoints by this graph's reducers: ``session.merge(other, strategy="state", merge_state=app.merge_state)``.

        Raises:
            MergeConflict: Both sides changed what no reducer merges, or the same message; all conflicts are listed.
        """
        return StateMerger(self._rath.store, self)(base, ours, theirs)

    def _saver(self) -> BaseCheckpointSaver[Any] | None:
        found = _any(self).checkpointer
        return cast("BaseCheckpointSaver[Any]", found) if isinstance(found, BaseCheckpointSaver) else None

    def _settings(self, session: Any, config: RunnableConfig | None) -> RunnableConfig:
        """The config of a run on this session.

        Raises:
            UnsupportedError: No session, or the graph was wrapped for another one.
        """
        if not isinstance(session, Session):
            raise UnsupportedError(
                f"a wrapped graph is called with a Session, not with a {type(session).__name__}: open one with"
                f" store.session(name, create=True), or use .invoke(input, config) as before"
            )
        named = self._rath.session
        if named not in (None, session.name):
            raise UnsupportedError(
                f"this graph was wrapped for session {named!r}, not for {session.name!r}: wrap it without session="
            )
        if session.store != self._rath.store and current_tape() is None:
            raise UnsupportedError(
                f"{session.name} lives in {session.store.url}, and this graph was wrapped for {self._rath.store.url}: wrap it"
                f" for that store, or import the session"
            )
        given: dict[str, Any] = {**((self.config or {}).get("configurable") or {}), **((config or {}).get("configurable") or {})}
        return cast(RunnableConfig, {**(config or {}), "configurable": {"thread_id": session.name, **given}})

    def _after(self, session: Session, messages: list[BaseMessage], result: Any, noted: set[str]) -> Session:
        now = session.latest()
        if self._saver() is not None or noted:
            return now
        said = cast("Mapping[str, Any]", result).get("messages") if isinstance(result, Mapping) else None
        if not isinstance(said, list):
            return now
        # Neither a checkpointer nor a list of its own (it runs inside of a graph, say): what stands behind the input is new.
        return now.append(*decode(cast("list[Any]", said)[len(messages) :]), on_conflict="serialise")


# ``StateGraph.add_node`` takes a node's input schema from the hints of ``__call__``; a wrapped graph that is a node has that of its graph.
RathGraph.__call__.__annotations__.clear()


def wrap(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    store: Store,
    *,
    session: str | None = None,
    checkpointer: Literal["rath"] | None = None,
    continues: LossReport | None = None,
) -> RathGraph:
    """Return a copy of a compiled graph that records its model calls, tool calls, nodes, routes, questions and answers.

    The graph's own checkpointer, if it has one, stays in charge: its checkpoints are mirrored into the session.

    Args:
        graph: A compiled ``StateGraph``; it stays as it is.
        store: Where to record.
        session: Session to record in; the ambient recorder's, else the one that the thread lives in.
        checkpointer: ``"rath"`` attaches a `RathSaver` of this store in place of the graph's own checkpointer.
        continues: Report of the messages (``rb.encode``) that the first run starts from: they are not recorded a second time.

    Raises:
        UnsupportedError: Not a compiled graph, or another ``checkpointer``.
        WrongTypeError: The store is no Store.
    """
    if not isinstance(graph, CompiledStateGraph):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UnsupportedError(f"wrap takes a compiled StateGraph, not a {type(graph).__name__}: call .compile() first")
    check_store(store, "wrap", session)
    if checkpointer not in (None, "rath"):
        raise UnsupportedError(
            f"there is no checkpointer={checkpointer!r}: use 'rath', or give yours to .compile() and leave checkpointer out here"
        )
    rows = continues.rows() if continues is not None else ()
    handler = RathCallbackHandler(store, session, continues=rows, graph=graph)
    made: Any = _any(graph).with_config(callbacks=[ToolsWait(handler), handler])
    own = made.checkpointer
    if checkpointer == "rath":
        made = made.copy({"checkpointer": RathSaver(store, session=session)})
    elif isinstance(own, BaseCheckpointSaver) and not (isinstance(own, RathSaver) and own.store == store):
        made = made.copy({"checkpointer": FollowedSaver(cast("BaseCheckpointSaver[Any]", own), store, session)})
    return _dressed(made, Wrapping(store, session, handler))


def _known(found: CheckpointTuple | None, messages: list[BaseMessage], report: LossReport) -> set[int]:
    """Places of messages that the thread's last checkpoint holds."""
    held: list[Any] = unwrapped(found.checkpoint["channel_values"].get("messages") if found else None) or []
    aligned = align(report.manifest, [compare_key(item) for item in held if isinstance(item, BaseMessage)])
    chunks = {name for name in aligned if name is not None}
    last = max((entry.position for entry in report.manifest if entry.chunk in chunks), default=-1)
    return {entry.position for entry in report.manifest if entry.chunk in chunks} | {
        index for index in range(last) if not any(entry.position == index for entry in report.manifest)
    }


def _thread(config: RunnableConfig) -> str:
    return str((config.get("configurable") or {})["thread_id"])


def _rows(report: LossReport, known: set[int]) -> tuple[list[object], ...]:
    return tuple([i, *row[1:]] for i, row in enumerate(report.rows()) if row[0] not in known)


def _with_run(config: RunnableConfig | None) -> tuple[UUID, RunnableConfig]:
    """A config in which the graph's callback run has a known id."""
    run: Any = (config or {}).get("run_id") or uuid4()
    return run, cast(RunnableConfig, {**(config or {}), "run_id": run})


def _dressed(graph: Any, rath: Wrapping) -> RathGraph:
    graph.__class__ = RathGraph
    setattr(graph, _EXTRA, rath)
    return graph


def _any(graph: object) -> Any:
    """The framework's own methods are typed with parameters that nobody can name."""
    return graph


def _plain(graph: RathGraph) -> Any:
    made = _any(CompiledStateGraph).__new__(CompiledStateGraph)
    made.__dict__.update({key: value for key, value in graph.__dict__.items() if key != _EXTRA})
    return made
