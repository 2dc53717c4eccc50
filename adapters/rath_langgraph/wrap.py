"""`wrap`: a compiled graph that records itself, and works on Sessions. The original is left as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph.state import CompiledStateGraph  # pyright: ignore[reportMissingTypeStubs]

from rath_bridge.aio import in_thread
from rath_bridge.errors import UnsupportedError
from rath_bridge.model.report import LossReport, align
from rath_bridge.recorder import record
from rath_bridge.session import Session, Store
from rath_langgraph.compare import compare_key
from rath_langgraph.decode import decode
from rath_langgraph.encode import encode
from rath_langgraph.record import RathCallbackHandler, handed
from rath_langgraph.saver import RathSaver

_EXTRA = "_rath"


class RathGraph(CompiledStateGraph[Any, Any, Any, Any]):
    """A compiled graph that records itself; calling it with a Session runs it on that Session."""

    _rath: tuple[Store, str | None]

    def copy(self, update: dict[str, Any] | None = None) -> RathGraph:
        """As the graph's own, without losing the recording."""
        return _dressed(_plain(self).copy(update), self._rath)

    def __call__(self, session: Session, /, config: RunnableConfig | None = None) -> Session:
        """Run on a session: messages that this thread does not know yet enter as input.

        Args:
            session: Where to go on; its store should be the one that was wrapped for.
            config: More of LangGraph's config; ``thread_id`` defaults to the session's name.

        Returns:
            The session as the graph left it.
        """
        settings = self._settings(session, config)
        messages, report = cast("tuple[list[BaseMessage], LossReport]", encode(session))
        known = self._known(settings, messages, report)
        fresh = [message for index, message in enumerate(messages) if index not in known]
        with record(session.store, session.name):
            token = handed.set(tuple([i, *row[1:]] for i, row in enumerate(report.rows()) if row[0] not in known))
            try:
                result = _any(self).invoke({"messages": fresh} if fresh else None, settings)
            finally:
                handed.reset(token)
        return self._after(session, messages, result)

    async def acall(self, session: Session, /, config: RunnableConfig | None = None) -> Session:
        """Async twin of calling it."""
        settings = self._settings(session, config)
        messages, report = cast("tuple[list[BaseMessage], LossReport]", await in_thread(encode, session))
        known = await in_thread(self._known, settings, messages, report)
        fresh = [message for index, message in enumerate(messages) if index not in known]
        with record(session.store, session.name):
            token = handed.set(tuple([i, *row[1:]] for i, row in enumerate(report.rows()) if row[0] not in known))
            try:
                result = await _any(self).ainvoke({"messages": fresh} if fresh else None, settings)
            finally:
                handed.reset(token)
        return await in_thread(self._after, session, messages, result)

    def _settings(self, session: Session, config: RunnableConfig | None) -> RunnableConfig:
        """The config of a run on this session.

        Raises:
            UnsupportedError: The graph was wrapped for another session.
        """
        named = self._rath[1]
        if named not in (None, session.name):
            raise UnsupportedError(
                f"this graph was wrapped for session {named!r}, not for {session.name!r}: wrap it without session="
            )
        given: dict[str, Any] = {**((self.config or {}).get("configurable") or {}), **((config or {}).get("configurable") or {})}
        return cast(RunnableConfig, {**(config or {}), "configurable": {"thread_id": session.name, **given}})

    def _known(self, config: RunnableConfig, messages: list[BaseMessage], report: LossReport) -> set[int]:
        """Places of messages that the thread's last checkpoint holds."""
        saver = _any(self).checkpointer
        if not isinstance(saver, RathSaver):
            return set()
        found = saver.get_tuple(config)
        held: list[Any] = (found.checkpoint["channel_values"].get("messages") if found else None) or []
        aligned = align(report.manifest, [compare_key(item) for item in held if isinstance(item, BaseMessage)])
        chunks = {name for name in aligned if name is not None}
        last = max((entry.position for entry in report.manifest if entry.chunk in chunks), default=-1)
        return {entry.position for entry in report.manifest if entry.chunk in chunks} | {
            index for index in range(last) if not any(entry.position == index for entry in report.manifest)
        }

    def _after(self, session: Session, messages: list[BaseMessage], result: Any) -> Session:
        now = session.latest()
        if isinstance(_any(self).checkpointer, RathSaver):
            return now
        said = cast("Mapping[str, Any]", result).get("messages") if isinstance(result, Mapping) else None
        if not isinstance(said, list):
            return now
        # Without our checkpointer there is no state to compare with: what stands behind the input is new.
        return now.append(*decode(cast("list[Any]", said)[len(messages) :]), on_conflict="serialise")


def wrap(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    store: Store,
    *,
    session: str | None = None,
    checkpointer: Literal["rath"] | None = None,
    continues: LossReport | None = None,
) -> RathGraph:
    """Return a copy of a compiled graph that records its model calls, tool calls, nodes and interrupts.

    Args:
        graph: A compiled ``StateGraph``; it stays as it is.
        store: Where to record.
        session: Session to record in; the ambient recorder's, else the one that the thread lives in.
        checkpointer: ``"rath"`` attaches a `RathSaver` of this store in place of the graph's own checkpointer.
        continues: Report of the messages (``rb.encode``) that the first run starts from: they are not recorded a second time.

    Raises:
        UnsupportedError: Not a compiled graph.
    """
    if not isinstance(graph, CompiledStateGraph):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UnsupportedError(f"wrap takes a compiled StateGraph, not a {type(graph).__name__}: call .compile() first")
    handler = RathCallbackHandler(store, session, continues=continues.rows() if continues is not None else ())
    made: Any = _any(graph).with_config(callbacks=[handler])
    if checkpointer == "rath":
        made = made.copy({"checkpointer": RathSaver(store, session=session)})
    return _dressed(made, (store, session))


def _dressed(graph: Any, rath: tuple[Store, str | None]) -> RathGraph:
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
