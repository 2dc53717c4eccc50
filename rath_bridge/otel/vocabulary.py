"""What a span tells, whichever words it uses: the GenAI conventions (old and new names), OpenInference, OpenLLMetry, MCP.

`read` gives one `Operation` for each span of an agent's work, and None for any other span; the chunks are made from it in one place
(`rath_bridge.interchange.otlp`), so that the same span in two vocabularies gives the same chunks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from rath_bridge.errors import DecodeError
from rath_bridge.model.kinds import Usage
from rath_bridge.model.parts import GenericPart, Part, foreign_part, part_from_json
from rath_bridge.otel import content as words
from rath_bridge.otel import names as n
from rath_bridge.otel.openinference import openinference
from rath_bridge.otel.values import indexed, listed, mapping, parsed

CALLS: Final = frozenset({"chat", "text_completion", "generate_content", "embeddings", "completion", "responses"})
"""Operations that are a model call."""
RUNS: Final = {"invoke_agent": "agent", "invoke_workflow": "workflow", "plan": "plan"}
"""Operations that others nest in, and what a run of theirs is called."""
_TRACELOOP: Final = {"workflow": "invoke_workflow", "task": "invoke_workflow", "agent": "invoke_agent", "tool": "execute_tool"}
_PARAMETERS: Final = {written: name for name, written in n.REQUEST.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One message."""

    role: str
    parts: tuple[Part, ...]
    name: str | None = None
    finish_reason: str | None = None

    @property
    def json(self) -> dict[str, Any]:
        """As the conventions write it, without its finish reason: also what two messages are compared by."""
        found: dict[str, Any] = {"role": self.role, "parts": [words.part(part) for part in self.parts]}
        return found if self.name is None else {**found, "name": self.name}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What an agent did, in nobody's words but ours."""

    name: str
    """``chat``, ``invoke_agent``, ``execute_tool``, ``retrieval``, ``guardrail`` ..."""
    subject: str | None = None
    """The agent, workflow, tool, data source or check."""
    conversation: str | None = None
    provider: str | None = None
    model: str | None = None
    response_model: str | None = None
    response_id: str | None = None
    agent: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    system: Any = None
    tools: tuple[Any, ...] = ()
    streamed: bool | None = None
    finish_reasons: tuple[str, ...] = ()
    usage: Usage | None = None
    first_chunk: float | None = None
    given: tuple[Said, ...] = ()
    said: tuple[Said, ...] = ()
    input: Any = None
    """What a run, a tool or a retrieval was given, where it is no message."""
    output: Any = None
    call_id: str | None = None
    tool_type: str | None = None
    error_type: str | None = None
    mcp: Mapping[str, Any] = field(default_factory=dict[str, Any])


def read(attributes: Mapping[str, Any], name: str, events: Sequence[tuple[str, Mapping[str, Any]]] = ()) -> Operation | None:
    """Read a span.

    Args:
        attributes: Its attributes, as plain values.
        name: Its name.
        events: Its events' names and attributes: older instrumentations keep messages there.
    """
    found = n.renamed(attributes)
    kind = found.get("openinference.span.kind")
    if isinstance(kind, str) and n.OPERATION not in found:
        found = openinference(found, kind.upper())
    elif n.OPERATION not in found:
        found = _older(found)
    elif kind is None and found.get("traceloop.span.kind") == "workflow" and found[n.OPERATION] == "invoke_agent":
        # OpenLLMetry tells of a graph twice, as an agent and, inside of it, as its workflow: the talk is the agent's.
        found = {**found, n.OPERATION: "invoke_workflow", n.WORKFLOW_NAME: found.get("traceloop.entity.name")}
    operation = found.get(n.OPERATION)
    if not isinstance(operation, str):
        return None
    subject = _text(found.get({
        "invoke_agent": n.AGENT_NAME, "create_agent": n.AGENT_NAME, "plan": n.AGENT_NAME, "invoke_workflow": n.WORKFLOW_NAME,
        "execute_tool": n.TOOL_NAME, "retrieval": n.DATA_SOURCE, "guardrail": n.GUARDRAIL_NAME, "handoff": n.HANDOFF_TO,
    }.get(operation, n.MCP_METHOD)))  # fmt: skip
    given, said, system = _content(found, attributes, events)
    reasons = found.get(n.FINISH_REASONS)
    told = (reasons,) if isinstance(reasons, str) else tuple(map(str, listed(reasons)))
    return Operation(
        name=operation, subject=subject or (name.partition(" ")[2] or name if operation != "chat" else None),
        conversation=_text(found.get(n.CONVERSATION)), provider=_text(found.get(n.PROVIDER)),
        model=_text(found.get(n.REQUEST_MODEL) or found.get(n.RESPONSE_MODEL)), response_model=_text(found.get(n.RESPONSE_MODEL)),
        response_id=_text(found.get(n.RESPONSE_ID)), agent=_text(found.get(n.AGENT_NAME)),
        params={ours: found[written] for written, ours in _PARAMETERS.items() if written in found}, system=system,
        tools=tuple(listed(parsed(found.get(n.TOOL_DEFINITIONS)))),
        streamed=True if found.get(n.REQUEST_STREAM) is True else None,
        finish_reasons=told or tuple(one.finish_reason for one in said if one.finish_reason), usage=_usage(found),
        first_chunk=_number(found.get(n.FIRST_CHUNK)), given=given, said=said, input=_first(found, _INPUTS),
        output=_first(found, _OUTPUTS), call_id=_text(found.get(n.TOOL_CALL_ID)), tool_type=_text(found.get(n.TOOL_TYPE)),
        error_type=_text(found.get(n.ERROR_TYPE)),
        mcp={key: value for key, value in found.items() if key.startswith(("mcp.", "jsonrpc.", "rpc.", "network."))},
    )  # fmt: skip


_INPUTS: Final = (n.TOOL_ARGUMENTS, n.RETRIEVAL_QUERY, "input.value", "traceloop.entity.input", "input")
_OUTPUTS: Final = (n.TOOL_RESULT, n.RETRIEVAL_DOCUMENTS, "output.value", "traceloop.entity.output", "output")


def _first(found: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((parsed(found[key]) for key in keys if found.get(key) is not None), None)


def _text(value: Any) -> str | None:
    return None if value is None or value == "" else value if isinstance(value, str) else words.json_text(value)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _usage(found: Mapping[str, Any]) -> Usage | None:
    counts: dict[str, Any] = {}
    for field_, written in (
        ("input_tokens", n.INPUT_TOKENS), ("output_tokens", n.OUTPUT_TOKENS), ("cache_read_input_tokens", n.CACHE_READ),
        ("cache_creation_input_tokens", n.CACHE_CREATION), ("reasoning_output_tokens", n.REASONING_TOKENS), ("cost_usd", n.COST),
    ):  # fmt: skip
        number = _number(found.get(written))
        if number is not None and abs(number) < 2**53:  # which NaN is not
            counts[field_] = number if field_ == "cost_usd" else int(number)
    return Usage(**counts) if counts else None


# ------------------------------------------------------------------ messages


def _content(
    found: Mapping[str, Any], attributes: Mapping[str, Any], events: Sequence[tuple[str, Mapping[str, Any]]]
) -> tuple[tuple[Said, ...], tuple[Said, ...], Any]:
    """Messages in, messages out, instructions: from attributes, else from events."""
    sources = [found, *(n.renamed(about) for name, about in events if name == "gen_ai.client.inference.operation.details")]
    given = _said(next((one[n.INPUT_MESSAGES] for one in sources if one.get(n.INPUT_MESSAGES)), None))
    said = _said(next((one[n.OUTPUT_MESSAGES] for one in sources if one.get(n.OUTPUT_MESSAGES)), None))
    system = _instructions(next((one[n.SYSTEM_INSTRUCTIONS] for one in sources if one.get(n.SYSTEM_INSTRUCTIONS)), None))
    if not given and not said:
        given, said = _said(indexed(attributes, "gen_ai.prompt.")), _said(indexed(attributes, "gen_ai.completion."))
    if not given and not said:
        given, said = _from_events(events)
    return given, said, system


def _from_events(events: Sequence[tuple[str, Mapping[str, Any]]]) -> tuple[tuple[Said, ...], tuple[Said, ...]]:
    """The conventions before 1.37: one event for each message."""
    given: list[Any] = []
    said: list[Any] = []
    for name, about in events:
        if name == "gen_ai.choice":
            told: Any = parsed(about.get("message")) if "message" in about else dict(about)
            body: dict[str, Any] = dict(cast("Mapping[str, Any]", told)) if isinstance(told, Mapping) else {"content": told}
            said.append({"role": "assistant", **body, "finish_reason": about.get("finish_reason")})
        elif name.startswith("gen_ai.") and name.endswith(".message"):
            found = {key: parsed(value) if key == "tool_calls" else value for key, value in about.items()}
            role = name.removeprefix("gen_ai.").removesuffix(".message")
            given.append({"role": role, **found, **({"tool_call_id": found["id"]} if role == "tool" and "id" in found else {})})
        elif name == "gen_ai.content.prompt":
            given += listed(parsed(about.get("gen_ai.prompt")))
        elif name == "gen_ai.content.completion":
            said += listed(parsed(about.get("gen_ai.completion")))
    return _said(given), _said(said)


def _said(value: Any) -> tuple[Said, ...]:
    found: list[Said] = []
    for item in listed(parsed(value)):
        one = words.messages([item])[0]
        parts = tuple(_part(part) for part in listed(one.get("parts")))
        reason: Any = cast("Mapping[str, Any]", item).get("finish_reason") if isinstance(item, Mapping) else None
        name = one.get("name")
        found.append(
            Said(
                role=str(one.get("role")), parts=parts, name=name if isinstance(name, str) else None,
                finish_reason=reason if isinstance(reason, str) and reason else None,
            )
        )  # fmt: skip
    return tuple(found)


def _part(value: Any) -> Part:
    """A part; what is none by the schema is kept as a generic one."""
    if isinstance(value, Mapping) and isinstance(value.get("type"), str):  # pyright: ignore[reportUnknownMemberType]
        given = cast("Mapping[str, Any]", value)
        try:
            found = part_from_json(given)
        except DecodeError:
            return foreign_part(given)
        texts = isinstance(getattr(found, "content", ""), str)
        if given["type"] == "blob" or (given["type"] in ("text", "reasoning") and not texts):
            return _blob(given) if given["type"] == "blob" else GenericPart("unknown", {"content": given.get("content")})
        return found
    return GenericPart("unknown", {"content": value})


def _blob(given: Mapping[str, Any]) -> Part:
    from base64 import b64decode

    try:
        data = b64decode(given["content"], validate=True)
    except (TypeError, ValueError):
        return foreign_part(given)
    return part_from_json({**given, "content": data})


def _instructions(value: Any) -> Any:
    found = parsed(value)
    pieces = [mapping(one).get("content") for one in listed(found)]
    texts = [one for one in pieces if isinstance(one, str)]
    return "\n".join(texts) if texts and len(texts) == len(pieces) else found


def _older(given: Mapping[str, Any]) -> dict[str, Any]:
    """OpenLLMetry, MCP spans without an operation, and GenAI spans from before operations had names."""
    found = dict(given)
    kind, request = given.get("traceloop.span.kind"), given.get("llm.request.type")
    if n.GUARDRAIL_NAME in given or n.HANDOFF_TO in given:  # ours: the conventions have no operation for them
        found[n.OPERATION] = "guardrail" if n.GUARDRAIL_NAME in given else "handoff"
    elif n.MCP_METHOD in given:
        found[n.OPERATION] = "execute_tool" if given[n.MCP_METHOD] == "tools/call" else "mcp"
    elif isinstance(kind, str) and kind in _TRACELOOP:
        operation = found[n.OPERATION] = _TRACELOOP[kind]
        place = {"invoke_agent": n.AGENT_NAME, "execute_tool": n.TOOL_NAME}.get(operation, n.WORKFLOW_NAME)
        found.setdefault(place, given.get("traceloop.entity.name"))
    elif isinstance(request, str):
        found[n.OPERATION] = {"completion": "text_completion", "embedding": "embeddings"}.get(request, request)
    elif n.REQUEST_MODEL in given or n.RESPONSE_MODEL in given:
        found[n.OPERATION] = "chat"
    elif n.TOOL_NAME in given:
        found[n.OPERATION] = "execute_tool"
    return found
