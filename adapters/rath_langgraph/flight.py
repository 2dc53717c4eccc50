"""Writes on their way: a checkpoint waits for those of the one before it, so that it never stands without them.

LangGraph hands both to a pool and waits for neither; its threads may overtake each other (langchain-ai/langgraph/issues/8039).
"""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from threading import Condition
from typing import Any, Final

from langgraph.checkpoint.base import CheckpointTuple

_IDS: Final = 4096
_PLACES: Final = 1024


class Flight:
    """Counts what is on its way, by the checkpoint that it belongs to. Safe from any thread."""

    def __init__(self) -> None:
        self._under_way: Counter[Hashable] = Counter()
        self._landed = Condition()

    @contextmanager
    def of(self, checkpoint: Hashable) -> Generator[None]:
        """Something of this checkpoint is written in the block."""
        with self._landed:
            self._under_way[checkpoint] += 1
        try:
            yield
        finally:
            with self._landed:
                self._under_way[checkpoint] -= 1
                if not self._under_way[checkpoint]:
                    del self._under_way[checkpoint]
                    self._landed.notify_all()

    def wait(self, checkpoint: Hashable) -> None:
        """Wait until nothing of a checkpoint is on its way."""
        with self._landed:
            self._landed.wait_for(lambda: checkpoint not in self._under_way)

    def expect(self, checkpoint: Hashable, stands: Callable[[], bool], patience: float) -> None:
        """Give something a moment to set out, and then wait until it has landed."""
        with self._landed:
            self._landed.wait_for(lambda: checkpoint not in self._under_way and stands(), patience)
            self._landed.wait_for(lambda: checkpoint not in self._under_way)


class Landings:
    """Checkpoints that need not be waited for: they stand, or will not come. Safe from any thread."""

    def __init__(self) -> None:
        self._landed: OrderedDict[str, None] = OrderedDict()
        self._places: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._then: OrderedDict[str, list[Callable[[], object]]] = OrderedDict()
        self._change = Condition()

    def __contains__(self, checkpoint_id: str) -> bool:
        return checkpoint_id in self._landed

    def read(self, thread_id: str, namespace: str, found: CheckpointTuple | None) -> None:
        """A graph has looked where it stands: its checkpoints will be put here."""
        with self._change:
            _keep(self._places, (thread_id, namespace), _PLACES)
        if found is not None:
            self.land(found.checkpoint["id"])

    def leads(self, thread_id: str, namespace: str) -> bool:
        """Whether checkpoints of this namespace are put here."""
        return (thread_id, namespace) in self._places

    def land(self, checkpoint_id: str) -> None:
        """It stands, or is not waited for any longer."""
        if checkpoint_id in self._landed:
            return
        with self._change:
            _keep(self._landed, checkpoint_id, _IDS)
            waiting = self._then.pop(checkpoint_id, [])
            self._change.notify_all()
        for fn in waiting:
            fn()

    def wait(self, checkpoint_id: str, seconds: float) -> bool:
        """Wait for it, but not for long."""
        with self._change:
            return self._change.wait_for(lambda: checkpoint_id in self._landed, seconds)

    def then(self, checkpoint_id: str, fn: Callable[[], object]) -> bool:
        """Call this on the thread that puts it, as soon as it stands; False where it stands already, and nothing is called."""
        with self._change:
            if checkpoint_id in self._landed:
                return False
            self._then.setdefault(checkpoint_id, []).append(fn)
            while len(self._then) > _PLACES:
                self._then.popitem(last=False)
            return True

    def reset(self) -> None:
        """Start anew in a forked child: nobody is left who would put what was on its way."""
        self._change = Condition()
        self._then.clear()


def _keep(known: OrderedDict[Any, None], key: Hashable, most: int) -> None:
    known[key] = None
    known.move_to_end(key)
    while len(known) > most:
        known.popitem(last=False)


landings: Final = Landings()
"""Of this process: a checkpoint's id is its own wherever it is put."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=landings.reset)
