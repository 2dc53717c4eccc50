"""The rath_bridge adapter for the OpenAI Agents SDK: runs out and in, a tracing processor, a recording model, hooks.

Imports without the SDK; the names below are loaded when they are first used.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rath_bridge.replay import Player, Tape
    from rath_openai_agents.hooks import RathRunHooks as RathRunHooks
    from rath_openai_agents.processor import RathTracingProcessor as RathTracingProcessor
    from rath_openai_agents.processor import install as install
    from rath_openai_agents.record import RecordingModel as RecordingModel
    from rath_openai_agents.replay import ReplayDivergenceError as ReplayDivergenceError
    from rath_openai_agents.replay import ReplayModel as ReplayModel
    from rath_openai_agents.replay import replaying as replaying
    from rath_openai_agents.run import wrap as wrap
    from rath_openai_agents.session import RathSession as RathSession
    from rath_openai_agents.tape import replayable as replayable

from rath_openai_agents.decode import decode as decode
from rath_openai_agents.decode import documents as documents
from rath_openai_agents.decode import recognises as recognises
from rath_openai_agents.encode import dumps as dumps
from rath_openai_agents.encode import encode as encode
from rath_openai_agents.state import StateResumedError as StateResumedError
from rath_openai_agents.state import checkpoint as checkpoint

name: Final = "openai_agents"
extra: Final = "openai-agents"
frameworks: Final = ("agents",)
SUPPORTED: Final[Mapping[str, str]] = {"openai-agents": ">=0.20"}

_PUBLIC: Final = {
    "RathTracingProcessor": "processor", "install": "processor", "RecordingModel": "record", "RathRunHooks": "hooks",
    "wrap": "run", "RathSession": "session", "ReplayModel": "replay",
    "ReplayDivergenceError": "replay", "replaying": "replay", "replayable": "tape",
}  # fmt: skip

__all__ = [
    "SUPPORTED",
    "RathRunHooks",
    "RathSession",
    "RathTracingProcessor",
    "RecordingModel",
    "ReplayDivergenceError",
    "ReplayModel",
    "StateResumedError",
    "checkpoint",
    "decode",
    "documents",
    "dumps",
    "encode",
    "extra",
    "install",
    "name",
    "recognises",
    "replayable",
    "replaying",
    "wrap",
]  # fmt: skip


def player(tape: Tape) -> Player | None:
    """Return the SDK's part of a replay; None where nothing of it is on record and the SDK is not in use."""
    on_record = any("rath_openai_agents" in (chunk.origin or "") for chunk in tape.held.chunks)
    if not on_record and "agents" not in sys.modules:
        return None
    from rath_bridge.plugins import require

    require("agents", "replaying a run of the OpenAI Agents SDK", extra)
    from rath_openai_agents.staging import AgentsPlayer

    return AgentsPlayer(tape)


def __getattr__(wanted: str) -> Any:
    if wanted not in _PUBLIC:
        raise AttributeError(f"module 'rath_openai_agents' has no attribute {wanted!r}")
    from rath_bridge.plugins import require

    require("agents", f"rath_openai_agents.{wanted}", extra)
    value = getattr(import_module(f"rath_openai_agents.{_PUBLIC[wanted]}"), wanted)
    globals()[wanted] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
