"""One namespace of one thread, as this process knows it."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, Final

from rath_bridge.errors import InvalidNameError
from rath_bridge.model.chunk import SpanContext
from rath_bridge.model.digests import Digest
from rath_bridge.model.report import ManifestEntry
from rath_bridge.session import Store, check_name, native_name
from rath_langgraph.deltas import Deltas
from rath_langgraph.items import Seen
from rath_langgraph.lift import feed_items
from rath_langgraph.state import State

_log: Final = logging.getLogger("rath_bridge")
_STATES: Final = 8

Where = tuple[str, str]
"""Session and branch."""


@dataclass(frozen=True, slots=True)
class Known:
    """A stored checkpoint."""

    chunk: Digest
    state: State
    feed: str | None = None
    """The channel that feeds the transcript."""
    ids: tuple[Digest | None, ...] = ()
    """The message chunk of each of its items, as far as it is known."""
    deltas: Deltas = field(default_factory=dict[str, Any])
    """What its delta channels hold, as far as it is known."""
    whole: bool = True
    """Nothing that it stands on was erased."""
    handed: tuple[ManifestEntry, ...] | None = ()
    """Of an input that the graph has not taken in yet: what was handed over. None: read from the store, and not looked for."""

    def items(self, channel: str | None) -> Sequence[bytes]:
        """Digests of the messages that a channel holds."""
        delta = self.deltas.get(channel or "")
        return delta.names if delta is not None else feed_items(self.state.values.get(channel or ""))


@dataclass(slots=True)
class Line:
    """One namespace of one thread, as this process knows it."""

    thread_id: str
    namespace: str
    erasures: int
    """Of the store: with another one since, what is known of values may not be stored any more."""
    lock: Any = field(default_factory=RLock)
    where: Where = ("", "main")
    """Where the thread goes on, unless a session is named or ambient."""
    run: str = ""
    run_chunk: Digest = ""
    span: SpanContext | None = None
    started: str | None = None
    """Of a subgraph's call: the checkpoint of the graph around it from which it began."""
    tips: dict[str, Where] = field(default_factory=dict[str, Where])
    """Checkpoints that are the last of this thread on their branch."""
    passed: set[str] = field(default_factory=set[str])
    """Checkpoints that have been followed by another."""
    marks: dict[Where, tuple[Digest, int]] = field(default_factory=dict[Where, tuple[Digest, int]])
    """Head and position up to which a branch has been read."""
    states: OrderedDict[str, Known] = field(default_factory=OrderedDict[str, Known])
    seen: Seen = field(default_factory=Seen)
    redacted: bool = False
    """Whether what is known was encoded without its secrets."""

    def remember(self, checkpoint_id: str, known: Known) -> None:
        """Keep what is known of a checkpoint; the oldest goes."""
        self.states[checkpoint_id] = known
        self.states.move_to_end(checkpoint_id)
        while len(self.states) > _STATES:
            self.states.popitem(last=False)

    def renew(self, erasures: int) -> None:
        """Keep the checkpoint that was remembered last: it was written as if it were the first."""
        if self.erasures != erasures:
            while len(self.states) > 1:
                self.states.popitem(last=False)
            self.erasures = erasures

    def forget_content(self) -> None:
        """Know nothing of what is stored any more: the next checkpoint is written as if it were the first."""
        self.states.clear()
        self.seen = Seen()

    @property
    def weight(self) -> int:
        """List items that it keeps in memory."""
        states = list(self.states.values())
        lists = [len(v.tree.items) for k in states for v in k.state.values.values() if v.tree]
        return max([*lists, *(len(d.names) for k in states for d in k.deltas.values() if d is not None)], default=0)


def warn_of_branch(store: Store, line: Line) -> None:
    """Say so where a thread begins empty under the name of a session's branch: a fork of a session is no thread."""
    session, _, branch = line.thread_id.rpartition("@")
    place = session or line.where[0], branch
    alone = not session and line.where[0] == native_name("langgraph", line.thread_id)
    if alone or line.namespace or place == line.where or branch == "main":
        return
    try:
        found = store.backend.ref(check_name(place[0]), check_name(branch, "branch"))
    except InvalidNameError:  # no branch is called that
        return
    if found is not None:
        _log.warning(
            "rath_bridge: thread %r begins empty: it bears the name of branch %s, whose state a checkpointer alone does not take over."
            " Call wrap(graph, store) with that branch's Session, or fork the thread with copy_thread",
            line.thread_id, found.name,
        )  # fmt: skip
