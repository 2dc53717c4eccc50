"""The one table of attribute names: what is written, and every other name under which it is read.

The GenAI conventions (open-telemetry/semantic-conventions-genai) are in development and still being renamed: each row has the
name that is written first, then both sides of every rename. OpenInference's flat names stand in `OPENINFERENCE`. What no
convention names (lineage, replay, what a store knows) is ``rath.*``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SCOPE: Final = "rath_bridge"
"""Instrumentation scope of every span that is made here: by it, ours are known."""
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/gen-ai/1.42.0"
OTHER: Final = "_OTHER"
"""The conventions' value for what is required and not known."""

# ------------------------------------------------------------------ GenAI

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
CONVERSATION: Final = "gen_ai.conversation.id"
OUTPUT_TYPE: Final = "gen_ai.output.type"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_CREATION: Final = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105 - tokens of language models
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
AGENT_NAME: Final = "gen_ai.agent.name"
AGENT_ID: Final = "gen_ai.agent.id"
AGENT_DESCRIPTION: Final = "gen_ai.agent.description"
WORKFLOW_NAME: Final = "gen_ai.workflow.name"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_DESCRIPTION: Final = "gen_ai.tool.description"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
DATA_SOURCE: Final = "gen_ai.data_source.id"
RETRIEVAL_QUERY: Final = "gen_ai.retrieval.query.text"
RETRIEVAL_DOCUMENTS: Final = "gen_ai.retrieval.documents"
PROMPT_NAME: Final = "gen_ai.prompt.name"
ERROR_TYPE: Final = "error.type"

REQUEST: Final[Mapping[str, str]] = {
    "choice_count": "gen_ai.request.choice.count", "frequency_penalty": "gen_ai.request.frequency_penalty",
    "max_tokens": "gen_ai.request.max_tokens", "presence_penalty": "gen_ai.request.presence_penalty", "seed": "gen_ai.request.seed",
    "stop_sequences": "gen_ai.request.stop_sequences", "temperature": "gen_ai.request.temperature", "top_k": "gen_ai.request.top_k",
    "top_p": "gen_ai.request.top_p",
}  # fmt: skip
"""A request's parameters by our name."""

PARAMETER_NAMES: Final[Mapping[str, str]] = {
    "n": "choice_count", "candidate_count": "choice_count", "max_completion_tokens": "max_tokens", "max_output_tokens": "max_tokens",
    "stop": "stop_sequences",
}  # fmt: skip
"""What providers call a parameter, where that is another word."""

# ------------------------------------------------------------------ MCP and JSON-RPC

MCP_METHOD: Final = "mcp.method.name"
MCP_RESOURCE: Final = "mcp.resource.uri"
RPC_STATUS: Final = "rpc.response.status_code"
TOOL_ERROR: Final = "tool_error"

# ------------------------------------------------------------------ ours

SESSION: Final = "rath.session"
"""The line: ``name`` or ``name@branch``."""
CHUNK: Final = "rath.chunk"
"""Digest of the chunk that a span or link stands for."""
RUN: Final = "rath.run"
RUN_TYPE: Final = "rath.run.type"
RUN_STATUS: Final = "rath.run.status"
CALL_STATUS: Final = "rath.call.status"
CALL_REASON: Final = "rath.call.reason"
FRAMEWORK: Final = "rath.framework"
OBSERVER: Final = "rath.observer"
LINK: Final = "rath.link"
"""What a span link is: ``fork``, ``detach``, ``import``, ``replay``, ``merge``, ``merge.base``, ``run`` (an enclosing run without ids)."""
LINKED_SESSION: Final = "rath.link.session"
MERGE_STRATEGY: Final = "rath.merge.strategy"
REPLAYED: Final = "rath.replayed"
"""True on what was served from the record: nothing was executed."""
BASIS: Final = "rath.basis"
ERASED: Final = "rath.erased"
COST: Final = "rath.usage.cost_usd"
MCP_SERVER: Final = "rath.mcp.server"
HANDOFF_FROM: Final = "rath.handoff.from"
HANDOFF_TO: Final = "rath.handoff.to"
GUARDRAIL_NAME: Final = "rath.guardrail.name"
GUARDRAIL_STAGE: Final = "rath.guardrail.stage"
GUARDRAIL_TRIGGERED: Final = "rath.guardrail.triggered"
MEMORY_STORE: Final = "rath.memory.store"

# ------------------------------------------------------------------ renames

RENAMES: Final[Mapping[str, tuple[str, ...]]] = {
    PROVIDER: ("gen_ai.system",),
    CONVERSATION: ("gen_ai.session.id", "gen_ai.thread.id", "session.id"),
    INPUT_TOKENS: ("gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens"),
    OUTPUT_TOKENS: ("gen_ai.usage.completion_tokens", "llm.usage.completion_tokens"),
    CACHE_READ: ("gen_ai.usage.cache_read_input_tokens",),
    CACHE_CREATION: ("gen_ai.usage.cache_write.input_tokens", "gen_ai.usage.cache_creation_input_tokens"),
    REASONING_TOKENS: ("gen_ai.usage.reasoning_tokens", "gen_ai.usage.reasoning.tokens"),
    FINISH_REASONS: ("gen_ai.response.finish_reason",),
    INPUT_MESSAGES: ("gen_ai.prompt.messages", "gen_ai.input_messages"),
    OUTPUT_MESSAGES: ("gen_ai.completion.messages", "gen_ai.output_messages"),
    SYSTEM_INSTRUCTIONS: ("gen_ai.system.instructions",),
    TOOL_DEFINITIONS: ("gen_ai.request.tools",),
    TOOL_ARGUMENTS: ("gen_ai.tool.arguments", "gen_ai.tool.input"),
    TOOL_RESULT: ("gen_ai.tool.result", "gen_ai.tool.output", "gen_ai.tool.message"),
    TOOL_CALL_ID: ("gen_ai.tool_call.id",),
    REQUEST["choice_count"]: ("gen_ai.request.candidate_count",),
    REQUEST["seed"]: ("gen_ai.openai.request.seed",),
    OUTPUT_TYPE: ("gen_ai.openai.request.response_format", "gen_ai.request.response_format"),
}
"""Written name to the other names of the same thing, older and newer, in the order in which they are believed."""

NEWER: Final = frozenset(
    {
        MCP_METHOD,
        MCP_RESOURCE,
        "mcp.protocol.version",
        "mcp.session.id",
        "jsonrpc.request.id",
        "jsonrpc.protocol.version",
        RPC_STATUS,
    }
)
"""Names that are written and that a reader may not find in the ``opentelemetry-semantic-conventions`` of its day."""

OPENINFERENCE: Final[Mapping[str, str]] = {
    "llm.model_name": RESPONSE_MODEL, "llm.provider": PROVIDER, "session.id": CONVERSATION, "agent.name": AGENT_NAME,
    "llm.token_count.prompt": INPUT_TOKENS, "llm.token_count.completion": OUTPUT_TOKENS,
    "llm.token_count.prompt_details.cache_read": CACHE_READ, "llm.token_count.prompt_details.cache_write": CACHE_CREATION,
    "llm.token_count.completion_details.reasoning": REASONING_TOKENS, "llm.cost.total": COST,
    "tool.name": TOOL_NAME, "tool.id": TOOL_CALL_ID, "tool.description": TOOL_DESCRIPTION, "llm.finish_reason": FINISH_REASONS,
    "tool_call.id": TOOL_CALL_ID, "llm.finish_reasons": FINISH_REASONS,
}  # fmt: skip
"""OpenInference's flat names (openinference-semantic-conventions 0.1.42) to the name that is written."""

OPENINFERENCE_KINDS: Final[Mapping[str, str]] = {
    "LLM": "chat", "AGENT": "invoke_agent", "CHAIN": "invoke_workflow", "TOOL": "execute_tool", "RETRIEVER": "retrieval",
    "EMBEDDING": "embeddings", "GUARDRAIL": "guardrail", "RERANKER": "rerank",
}  # fmt: skip
"""``openinference.span.kind`` to ``gen_ai.operation.name``; GUARDRAIL and RERANKER have no operation there."""

CONTENT: Final = frozenset(
    other
    for name in (
        INPUT_MESSAGES, OUTPUT_MESSAGES, SYSTEM_INSTRUCTIONS, TOOL_DEFINITIONS, TOOL_ARGUMENTS, TOOL_RESULT, RETRIEVAL_QUERY,
        RETRIEVAL_DOCUMENTS,
    )
    for other in (name, *RENAMES.get(name, ()))
)  # fmt: skip
"""What is content: left out unless it was asked for."""

_OTHERS: Final = {other: name for name, others in RENAMES.items() for other in others}


def renamed(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes under the names that are written; where a thing stands under several, the written one is believed,
    else the first.
    """
    found = dict(attributes)
    for name in attributes:
        written = _OTHERS.get(name)
        if written is not None:
            value = found.pop(name)
            if written not in attributes:
                found.setdefault(written, value)
    return found
