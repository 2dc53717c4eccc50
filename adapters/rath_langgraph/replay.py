"""Replay: for the time of a replay, chat models, text models and tools of LangChain answer from the record (law 5).

A node is code: it runs. What it calls through the public entry points of ``BaseChatModel``, ``BaseLLM`` and ``BaseTool`` (invoke, stream,
batch and their async twins) is answered by a stand-in, on which LangChain's own machinery runs, so callbacks, streams and ids are what
they were. Other threads and contexts, in which no replay runs, are not affected.

Sources: ``langchain_core.language_models.chat_models``, ``langchain_core.tools.base`` (langchain-core 1.8).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from threading import Lock
from typing import Any, Final, cast

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.language_models.llms import BaseLLM
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.pregel import Pregel  # pyright: ignore[reportMissingTypeStubs]

from rath_bridge.model.digests import Digest
from rath_bridge.replay import Tape as CoreTape
from rath_bridge.replay import current_tape, patched
from rath_langgraph.followed import FollowedSaver
from rath_langgraph.recorded_model import RecordedModel
from rath_langgraph.recorded_text import RecordedStream, RecordedText
from rath_langgraph.recorded_tool import RecordedTool
from rath_langgraph.saver import RathSaver
from rath_langgraph.tape import Tape
from rath_langgraph.threads import FRAMEWORK

_MODEL: Final = ("invoke", "ainvoke", "stream", "astream", "generate", "agenerate", "generate_prompt", "agenerate_prompt",
                 "stream_events", "astream_events")  # fmt: skip
_GRAPH: Final = ("stream", "astream", "get_state", "aget_state", "get_state_history", "aget_state_history", "update_state",
                 "aupdate_state", "bulk_update_state", "abulk_update_state")  # fmt: skip
_TOOL: Final = ("invoke", "ainvoke", "run", "arun")
_TEXT: Final[tuple[str, ...]] = (
    "invoke", "ainvoke", "stream", "astream", "generate", "agenerate", "generate_prompt", "agenerate_prompt", "batch", "abatch",
)  # fmt: skip


class GraphPlayer:
    """Answers for LangChain's models and tools from a record."""

    def __init__(self, core: CoreTape) -> None:
        self.core = core
        self.tape = Tape.of(core)
        self.asked: dict[str, list[Any]] = {}
        """Tool call id to what the tool has asked a person so far."""
        self._savers: dict[int, tuple[BaseCheckpointSaver[Any], BaseCheckpointSaver[Any]]] = {}
        self._lock = Lock()

    @contextmanager
    def installed(self) -> Generator[None]:
        """Put stand-ins in front of every class of models and tools that has an entry point of its own."""
        with ExitStack() as undo:
            for name in _GRAPH:
                undo.enter_context(patched(Pregel, name, _graphs[name]))
            parts: tuple[tuple[type[Any], Mapping[str, Callable[..., Any]]], ...] = (
                (BaseChatModel, _models), (BaseTool, _tools), (BaseLLM, _texts),
            )  # fmt: skip
            for base, made in parts:
                for cls in _classes(base):
                    for name in made.keys() & vars(cls).keys():
                        if cls not in (RecordedModel, RecordedTool, RecordedText, RecordedStream):
                            undo.enter_context(patched(cls, name, made[name]))
            yield

    def saver(self, own: BaseCheckpointSaver[Any]) -> BaseCheckpointSaver[Any]:
        """The checkpointer that a graph has in this replay: its threads are those of the scratch, the user's own are left alone."""
        with self._lock:
            if id(own) not in self._savers:
                kept = own.followers if isinstance(own, FollowedSaver) else own
                made = kept.bound() if isinstance(kept, RathSaver) else InMemorySaver()
                self._savers[id(own)] = own, made
            return self._savers[id(own)][1]

    @property
    def unused(self) -> Sequence[Digest]:
        """Calls of the record that were not asked for."""
        return self.tape.unused

    @property
    def reasons(self) -> Sequence[str]:
        """Why LangGraph's part of the record cannot be replayed whole."""
        if self.tape.bare and self.core.misses:
            return [
                *self.tape.reasons,
                "checkpoints alone are on record, not what models and tools said: record with wrap(graph, store)",
            ]
        return self.tape.reasons


def _player() -> GraphPlayer | None:
    tape = current_tape()
    return tape.player(FRAMEWORK) if tape is not None else None


def _classes(base: type[Any]) -> list[type[Any]]:
    found: dict[type[Any], None] = {base: None}
    waiting = [base]
    while waiting:
        for one in waiting.pop().__subclasses__():
            if one not in found:
                found[one] = None
                waiting.append(one)
    return list(found)


def _on_stand_in(name: str, made: Callable[[GraphPlayer, Any], Any], kind: type[Any]) -> Callable[..., Any]:
    def call(original: Callable[..., Any], real: Any, *args: Any, **kwargs: Any) -> Any:
        player = _player()
        if player is None or isinstance(real, kind):
            return original(real, *args, **kwargs)
        return getattr(made(player, real), name)(*args, **kwargs)

    return call


def _on_scratch(name: str) -> Callable[..., Any]:
    def call(original: Callable[..., Any], graph: Any, *args: Any, **kwargs: Any) -> Any:
        player, own = _player(), graph.checkpointer
        if player is not None and isinstance(own, BaseCheckpointSaver):
            graph = copy(graph)
            graph.checkpointer = player.saver(cast("BaseCheckpointSaver[Any]", own))
        return original(graph, *args, **kwargs)

    return call


_graphs: Final = {name: _on_scratch(name) for name in _GRAPH}
_models: Final = {name: _on_stand_in(name, RecordedModel.of, RecordedModel) for name in _MODEL}
_tools: Final = {name: _on_stand_in(name, RecordedTool.of, RecordedTool) for name in _TOOL}
_texts: Final = {name: _on_stand_in(name, RecordedText.of, RecordedText) for name in _TEXT}
