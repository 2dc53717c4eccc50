"""Writes on their way: a checkpoint waits for those of the one before it, so that it never stands without them.

LangGraph hands both to a pool and waits for neither; its threads may overtake each other (langchain-ai/langgraph/issues/8039).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from threading import Condition


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
