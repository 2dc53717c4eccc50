"""Replay: one tape for a mixed stack. ``rath_bridge.replay(session, run)`` runs code again on its record.

The package itself can be called, so that ``rb.replay(s, run)`` and ``from rath_bridge.replay import Tape`` are the same name.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from rath_bridge.replay.divergence import Divergence, ReplayDivergenceError, ReplayHaltedError
from rath_bridge.replay.effects import Effect, OnMiss, Policy, ToolPolicy, effect
from rath_bridge.replay.leftover import outside
from rath_bridge.replay.patching import patched
from rath_bridge.replay.players import Player
from rath_bridge.replay.report import ReplayReport
from rath_bridge.replay.running import areplay, replay
from rath_bridge.replay.tape import Tape, Verdict, current_tape
from rath_bridge.replay.turns import Recorded, may_go_on, recorded, said, tape_of

__all__ = [
    "Divergence", "Effect", "OnMiss", "Player", "Policy", "Recorded", "ReplayDivergenceError", "ReplayHaltedError", "ReplayReport", "Tape",
    "ToolPolicy", "Verdict", "areplay", "current_tape", "effect", "may_go_on", "outside", "patched", "recorded", "replay", "said",
    "tape_of",
]  # fmt: skip


class _Callable(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> ReplayReport:
        return replay(*args, **options)


sys.modules[__name__].__class__ = _Callable
