"""What a step of a graph does stands behind the checkpoint that the step was made from.

With ``durability="async"`` LangGraph hands a checkpoint to a pool, or to the loop, and begins the next step. Every task is told the id of
the checkpoint that it stands on: what models and tools do in it is held in the recorder's queue until that one has been put, and a tool's
intent, which has to be durable before the tool runs, waits for it. Every wait ends; then things stand in the order in which they came.

Source: ``langgraph.pregel._algo.prepare_single_task`` (``checkpoint_map``), ``langgraph.pregel._executor`` (langgraph 1.2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from threading import Timer, get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from langchain_core.callbacks import AsyncCallbackManager, BaseCallbackHandler
from langchain_core.runnables.config import var_child_runnable_config

from rath_bridge.recorder import Recorder
from rath_langgraph.configs import place_name
from rath_langgraph.flight import landings

if TYPE_CHECKING:
    from rath_langgraph.watching import Watching

PATIENCE: float = 0.1
"""Seconds that a tool waits at most; a checkpoint that did not come is not waited for again."""
HOLD: float = 0.5
"""Seconds that an inference is held at most; nobody waits for it."""
_CHECKPOINTER: Final = "__pregel_checkpointer"
_DURABILITY: Final = "__pregel_durability"
_SEPARATOR: Final = "|"


def ground() -> tuple[str, str] | None:
    """The checkpoint that the running task stands on, and its place, while it is still to be put; None where none is to come."""
    told: Mapping[str, Any] = (var_child_runnable_config.get() or {}).get("configurable") or {}
    known: Mapping[str, str] = told.get("checkpoint_map") or {}
    saver: object = told.get(_CHECKPOINTER)
    if not known or told.get(_DURABILITY) == "exit" or not getattr(type(saver), "lands", False):
        return None
    thread_id, namespace = str(told.get("thread_id")), str(told.get("checkpoint_ns") or "")
    while namespace:  # a graph without a checkpointer of its own stands where the graph around it does
        namespace = namespace.rpartition(_SEPARATOR)[0]
        name = known.get(namespace)
        if name is not None and landings.leads(thread_id, namespace):
            return None if name in landings else (name, place_name(thread_id, namespace))
    return None


def stand_behind(recorder: Recorder) -> None:
    """Let what is recorded from now on stand behind the checkpoint that the running task stands on."""
    found = ground()
    if found is not None:
        (name, place), until = found, monotonic() + HOLD
        recorder.hold(name, place, lambda: name not in landings and monotonic() < until)


def await_ground(recorder: Recorder) -> None:
    """Wait until nothing is held, but not for long; not on an event loop, which may have to put it."""
    name = recorder.held
    if name is None or _on_loop():
        return
    until = monotonic() + PATIENCE
    while name is not None:
        if not landings.wait(name, until - monotonic()):
            landings.land(name)
        name = recorder.held


def finish(recorder: Recorder, *, close: bool) -> None:
    """Write what a graph has left, and close its recorder; what is held is written by whoever puts what it waits for."""
    name = recorder.held
    if name is None:
        recorder.flush()
        if close:
            recorder.close()
        return
    late = Timer(2 * HOLD, recorder.close if close else recorder.flush)  # should nobody put it
    late.daemon = True

    def stands() -> None:
        late.cancel()
        finish(recorder, close=close)

    if landings.then(name, stands):
        late.start()
    else:
        finish(recorder, close=close)


def _on_loop() -> bool:
    """Whether this is the event loop of an async graph."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return isinstance((var_child_runnable_config.get() or {}).get("callbacks"), AsyncCallbackManager)


class ToolsWait(BaseCallbackHandler):
    """Before a tool of an async graph: lets the loop go on until the checkpoint stands that asked for the tool."""

    run_inline = True
    ignore_llm = ignore_chain = ignore_retry = property(lambda _: True)  # pyright: ignore[reportIncompatibleMethodOverride]
    ignore_retriever = ignore_chat_model = property(lambda _: True)  # pyright: ignore[reportIncompatibleMethodOverride]
    ignore_custom_event = property(lambda _: True)  # pyright: ignore[reportIncompatibleMethodOverride]

    def __init__(self, handler: Watching) -> None:
        self._handler = handler

    @property
    def ignore_agent(self) -> bool:
        """Tell whether there is nothing to wait for."""
        return not _on_loop() or ground() is None

    @property
    def on_tool_start(self) -> Callable[..., Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The hook, which knows the thread that it was taken on: called for a sync tool, it runs on another, and the loop stands still."""
        return partial(self._wait, get_ident())

    async def _wait(self, thread: int, *_: Any, parent_run_id: UUID | None = None, **__: Any) -> None:
        found, until = ground(), monotonic() + PATIENCE
        recorder = self._handler.recorder_of(parent_run_id)
        if thread != get_ident():
            return
        name = found[0] if found is not None else None
        while name is not None:
            await _landed(name, until - monotonic())
            name = recorder.held if recorder is not None else None


async def _landed(name: str, seconds: float) -> None:
    """Wait for a checkpoint while the loop goes on, but not for long."""
    loop = asyncio.get_running_loop()
    stands: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(lambda: stands.done() or stands.set_result(None))

    if landings.then(name, tell):
        with suppress(TimeoutError):
            await asyncio.wait_for(stands, max(seconds, 0))
        landings.land(name)
