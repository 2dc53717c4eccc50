"""The SDK's own scripted model where the release has one, else ours; and the HTTP client that its OpenAI library speaks through."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
else:
    _made = import_module("agents.testing" if find_spec("agents.testing") else "tests.openai_agents.own_double")
    ModelStep, ScriptedModel = _made.ModelStep, _made.ScriptedModel
    assistant_message, function_call = _made.assistant_message, _made.function_call

_client = import_module("openai._base_client")
httpx: Any = getattr(_client, "httpx2", None) or getattr(_client, "httpx")  # noqa: B009 - only one of the two is there

__all__ = ["ModelStep", "ScriptedModel", "assistant_message", "function_call", "httpx"]
