"""What has begun while a graph runs and has not ended: runs of graphs and nodes, calls of models and tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import Token
from dataclasses import dataclass, field
from threading import RLock
from typing import Any
from uuid import UUID

from rath_bridge.model.chunk import Draft, Native, now
from rath_bridge.model.digests import Digest
from rath_bridge.model.kinds import Body
from rath_bridge.recorder import Recorder, RunHandle
from rath_langgraph.items import Seen, Value
from rath_langgraph.neutral import origin

Tokens = tuple[Token[Recorder | None], Token[RunHandle | None]]
Made = tuple[Body, Native | None, Mapping[Digest, bytes] | None]


@dataclass(slots=True)
class Prompts:
    """The last prompt of every node, so that a prompt that grows costs what is new."""

    seen: Seen = field(default_factory=Seen)
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    fresh: dict[Digest, bytes] = field(default_factory=dict[Digest, bytes])
    """What they are made of and no chunk has carried yet: whichever call ends first takes it along, since others share it."""
    erasures: int = -1
    """`Recorder.erasures` since which all of it is taken for stored."""
    lock: Any = field(default_factory=RLock)

    def renew(self, recorder: Recorder) -> None:
        """Where something was erased, by whomever, take nothing for stored."""
        if recorder.erased_since(self.erasures):
            self.seen = Seen()
            self.values.clear()
        self.erasures = recorder.erasures


@dataclass(slots=True)
class OpenRun:
    """A graph or node run that has begun; inner runnables share the entry of what they run in."""

    recorder: Recorder
    run: RunHandle
    kind: str
    """``graph`` or ``node``."""
    name: str
    owned: bool = False
    outermost: bool = False
    """Of a graph that is nested in none."""
    thread_id: str | None = None
    thread: RunHandle | None = None
    tokens: Tokens | None = None
    status: str = "ok"
    passing: bool = False
    """Of a node: a command of a graph inside passes through it, to the graph around."""
    attempts: dict[str, int] = field(default_factory=dict[str, int])
    """Of a graph: how often each task has begun."""
    routers: dict[Any, str] = field(default_factory=dict[Any, str])
    """Of a node: callback run id to name of what may be a router."""
    asked: list[str] = field(default_factory=list[str])
    """Of a graph: interrupts that it was stopped by."""
    prompts: Prompts = field(default_factory=Prompts)
    key: UUID | None = None
    """Of the callbacks."""


@dataclass(slots=True)
class OpenCall:
    """A model or tool call that has begun."""

    recorder: Recorder
    owned: bool
    run: RunHandle | None
    started: float
    name: str = ""
    call_id: str = ""
    body: dict[str, Any] = field(default_factory=dict[str, Any])
    prompts: Prompts | None = None
    """Of a chat model: what it is asked is built among these."""
    prompt: Callable[[], Any] | None = None
    """Builds what it is asked, off the graph's thread: while the model works, if the writer comes to it."""
    erasures: int = -1
    """Of the store, when that was built."""
    first: float | None = None
    """Seconds to the first token."""

    def prepare(self) -> None:
        """Build what the model is asked now; where that fails, the chunk of the call will say so."""
        with suppress(Exception):
            self._build()

    def take(self) -> Mapping[Digest, bytes]:
        """See that what the model was asked stands in ``body``; returns what prompts are made of and nobody has kept so far."""
        if self.prompts is None:
            return {}
        with self.prompts.lock:
            if "input" not in self.body or self.recorder.erased_since(self.erasures):
                self._build()
            self.prompt = None
            fresh, self.prompts.fresh = self.prompts.fresh, {}
        return fresh

    def _build(self) -> None:
        if self.prompts is not None and self.prompt is not None:
            with self.prompts.lock:
                self.prompts.renew(self.recorder)
                self.erasures = self.prompts.erasures
                self.body["input"] = self.prompt()


def later(recorder: Recorder, run: RunHandle | None, make: Callable[[], Made]) -> None:
    """Queue a chunk that is built off the graph's thread; it bears the time of now."""
    at = now()

    def built() -> Draft:
        body, native, objects = make()
        return recorder.draft(body, run=run, at=at, native=native, objects=objects, origin=origin())

    recorder.defer(built)
