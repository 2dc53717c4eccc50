"""AutoGen's own scripted model, and what tests say with it."""

from __future__ import annotations

import json
from typing import Any

from autogen_core import FunctionCall
from autogen_core.models import CreateResult, ModelInfo, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

from rath_autogen.natives import dump

INFO = ModelInfo(vision=True, function_calling=True, json_output=True, family="unknown", structured_output=True)


def client(*answers: str | CreateResult) -> ReplayChatCompletionClient:
    return ReplayChatCompletionClient(list(answers), model_info=INFO)


def asks(name: str, arguments: str = "{}", call_id: str = "c1", thought: str | None = None) -> CreateResult:
    """A model's answer that asks for one tool."""
    call = FunctionCall(id=call_id, name=name, arguments=arguments)
    usage = RequestUsage(prompt_tokens=5, completion_tokens=6)
    return CreateResult(finish_reason="function_calls", content=[call], usage=usage, cached=False, thought=thought)


def says(text: str, thought: str | None = None) -> CreateResult:
    usage = RequestUsage(prompt_tokens=7, completion_tokens=8)
    return CreateResult(finish_reason="stop", content=text, usage=usage, cached=False, thought=thought)


def dumped(messages: Any) -> list[dict[str, Any]]:
    return [dump(message) for message in messages]


LEDGER = json.dumps(
    {
        key: {"reason": "r", "answer": answer}
        for key, answer in {
            "is_request_satisfied": False,
            "is_in_loop": False,
            "is_progress_being_made": True,
            "next_speaker": "a",
            "instruction_or_question": "work",
        }.items()
    }
)
DONE = LEDGER.replace(
    '"is_request_satisfied": {"reason": "r", "answer": false', '"is_request_satisfied": {"reason": "r", "answer": true'
)
"""What the orchestrator of MagenticOne is told: that a works, and that all is done."""
