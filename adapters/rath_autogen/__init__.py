"""The rath_bridge adapter for AutoGen (autogen-agentchat 0.7): results, messages, saved states; model calls and runs as they happen.

Imports without AutoGen; what needs it says so on use.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from rath_autogen.decode import decode, recognises
from rath_autogen.encode import dumps, encode
from rath_bridge.plugins import require

if TYPE_CHECKING:
    from rath_autogen.record import RecordingChatCompletionClient as RecordingChatCompletionClient
    from rath_autogen.replay import RathReplayChatCompletionClient as RathReplayChatCompletionClient
    from rath_autogen.replay import RathReplayWorkbench as RathReplayWorkbench
    from rath_autogen.runner import wrap as wrap
    from rath_autogen.saved import load_team_state as load_team_state
    from rath_autogen.saved import save_team_state as save_team_state
    from rath_autogen.tape import ReplayDivergenceError as ReplayDivergenceError
    from rath_bridge.replay import Player, Tape

name: Final = "autogen"
extra: Final = "autogen"
frameworks: Final = ("autogen_core",)
suffix: Final = ".json"
SUPPORTED: Final = {"autogen-agentchat": ">=0.7,<0.8", "autogen-core": ">=0.7,<0.8", "autogen-ext": ">=0.7,<0.8"}

BESIDE: Final = {
    "mcp": (
        "<2",
        'autogen_ext.tools.mcp does not import with it (AutoGen issue 8014): pip install "mcp<2", if its MCP tools are used',
    )
}
"""What breaks something of AutoGen where it is installed beside it."""

_LAZY: Final = {
    "RathReplayChatCompletionClient": "replay", "RathReplayWorkbench": "replay", "RecordingChatCompletionClient": "record",
    "ReplayDivergenceError": "tape", "load_team_state": "saved", "save_team_state": "saved", "wrap": "runner",
}  # fmt: skip

__all__ = [
    "SUPPORTED", "RathReplayChatCompletionClient", "RathReplayWorkbench", "RecordingChatCompletionClient", "ReplayDivergenceError",
    "decode", "dumps", "encode", "extra", "load_team_state", "name", "recognises", "save_team_state", "suffix", "wrap",
]  # fmt: skip


def player(tape: Tape) -> Player | None:
    """Return AutoGen's part of a replay; None where nothing of it is on record and AutoGen is not in use."""
    on_record = any("rath_autogen" in (chunk.origin or "") for chunk in tape.held.chunks)
    if not on_record and "autogen_core" not in sys.modules:
        return None
    require("autogen_agentchat.messages", "replaying a run of AutoGen", extra)
    from rath_autogen.staging import AutoGenPlayer

    return AutoGenPlayer(tape)


def __getattr__(wanted: str) -> Any:
    if wanted in _LAZY:
        require("autogen_agentchat.messages", f"rath_autogen.{wanted}", extra)
        found = getattr(import_module(f"rath_autogen.{_LAZY[wanted]}"), wanted)
        globals()[wanted] = found
        return found
    raise AttributeError(f"module 'rath_autogen' has no attribute {wanted!r}")
