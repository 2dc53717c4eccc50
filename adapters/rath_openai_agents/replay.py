"""Replay: `ReplayModel` answers from the record, and `replaying` makes a whole agent graph that runs nothing (law 5)."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, cast

from agents import Agent, FunctionTool, GuardrailFunctionOutput, Handoff, InputGuardrail, OutputGuardrail, RunConfig
from agents.exceptions import AgentsException
from agents.items import ModelResponse
from agents.models.interface import Model
from agents.tracing import mcp_tools_span
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseOutputItemAddedEvent,
    ResponseOutputItemDoneEvent,
    ResponseTextDeltaEvent,
)
from pydantic import TypeAdapter

from rath_bridge.errors import UnsupportedError
from rath_bridge.replay import divergence
from rath_bridge.session import Session
from rath_openai_agents.answering import Given, RecordedError, answering, function, recorded_error
from rath_openai_agents.inference import request_of
from rath_openai_agents.items import item_list, table
from rath_openai_agents.reading import Reply, Step
from rath_openai_agents.tape import Divergence, Tape

_ARGUMENTS: Final = ("system_instructions", "input", "model_settings", "tools", "output_schema", "handoffs", "tracing")
_RESPONSE: Final[TypeAdapter[Any]] = TypeAdapter(ModelResponse)


class ReplayDivergenceError(divergence.ReplayDivergenceError, AgentsException):
    """As `rath_bridge.replay.ReplayDivergenceError`, in the SDK's own tree: the SDK passes it on as it is."""


class ReplayModel(Model):
    """Answers model calls from a session, plain or streamed; asks nobody.

    A call is found by what was asked: input items, instructions, settings, tools, handoffs, output type. Put it into
    ``Agent(model=...)`` or ``RunConfig(model=...)``; for tools, handoffs and guardrails as well, use `replaying`.
    """

    def __init__(self, record: Session | Tape, *, agent: str | None = None) -> None:
        """Serve a record.

        Args:
            record: A session, or the tape of a replay that has more than one model.
            agent: Whose calls, for error messages.
        """
        self.tape = record if isinstance(record, Tape) else Tape.of(record)
        self._agent = agent

    @property
    def divergence(self) -> Divergence | None:
        """The first place where the run left the record."""
        return self.tape.divergence

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """Return the recorded response.

        Raises:
            ReplayDivergenceError: This was not asked then.
            Exception: The call failed when it was recorded; this is what it failed with.
        """
        return self.plain(self._reply(args, kwargs))

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Stream the recorded response: each item, its text in one piece, then the end."""
        async for event in self.streamed(self._reply(args, kwargs)):
            yield event

    def plain(self, reply: Reply) -> ModelResponse:
        """Return a recorded response.

        Raises:
            ReplayDivergenceError: It was not recorded exactly.
        """
        self._exact(reply)
        return _plain_response(reply)

    async def streamed(self, reply: Reply) -> AsyncIterator[Any]:
        """Stream a recorded response.

        Raises:
            ReplayDivergenceError: It was not recorded exactly.
        """
        self._exact(reply)
        number = 0
        response = _whole_response(reply)
        for index, item in enumerate(response.output):
            number += 1
            yield ResponseOutputItemAddedEvent(
                item=item, output_index=index, sequence_number=number, type="response.output_item.added"
            )
            for place, part in enumerate(getattr(item, "content", None) or ()):
                if getattr(part, "type", None) == "output_text" and part.text:
                    number += 1
                    yield ResponseTextDeltaEvent(
                        content_index=place, delta=part.text, item_id=str(getattr(item, "id", "")), logprobs=[],
                        output_index=index, sequence_number=number, type="response.output_text.delta",
                    )  # fmt: skip
            number += 1
            yield ResponseOutputItemDoneEvent(
                item=item, output_index=index, sequence_number=number, type="response.output_item.done"
            )
        yield ResponseCompletedEvent(response=response, sequence_number=number + 1, type="response.completed")

    def _reply(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Reply:
        asked = dict(zip(_ARGUMENTS, args, strict=False)) | dict(kwargs)
        found = self.tape.reply(item_list(asked["input"]), request_of(asked, {}), self._agent)
        if isinstance(found, Divergence):
            raise ReplayDivergenceError(found)
        if found.body.error is not None:
            raise recorded_error(found.body.error, found.body.attributes.get("exception"))
        return found

    def _exact(self, reply: Reply) -> None:
        if reply.native is None:
            held = f"a call that {reply.body.observer} saw, without its exact answer"
            raise ReplayDivergenceError(self.tape.miss(Divergence("model call", "a call", held, reply.chunk)))


def _plain_response(reply: Reply) -> ModelResponse:
    native: dict[str, Any] = dict(reply.native or {})
    if "object" in native:  # it was streamed: a whole Response
        usage: Any = native.get("usage")
        native = {"output": native["output"], "usage": {"requests": 1, **(usage or {})}, "response_id": native.get("id")}
    return _RESPONSE.validate_python({"response_id": None, **native})


def _whole_response(reply: Reply) -> Response:
    native = dict(reply.native or {})
    if "object" in native:
        return Response.model_validate(native)
    usage = dict(native.get("usage") or {})
    tokens = {name: usage.get(name, 0) for name in ("input_tokens", "output_tokens", "total_tokens")}
    details = {
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    known = {name: {**zero, **_first(usage.get(name))} for name, zero in details.items()}
    return Response.model_validate({
        "id": native.get("response_id") or "replayed", "object": "response", "created_at": 0.0,
        "model": reply.body.response_model or reply.body.model or "replayed", "output": native["output"],
        "parallel_tool_calls": False, "tool_choice": "auto", "tools": [], "usage": {**tokens, **known},
    })  # fmt: skip


def _first(details: Any) -> dict[str, Any]:
    found: Any = cast("list[Any]", details)[0] if isinstance(details, list) and details else cast(Any, details)
    return {name: value for name, value in table(found).items() if value is not None}


# ------------------------------------------------------------------ a whole agent graph


@dataclass(frozen=True, slots=True)
class Replaying:
    """An agent that replays, with what became of it."""

    agent: Agent[Any]
    """Pass it to ``Runner.run`` or ``Runner.run_streamed`` as the original was."""
    tape: Tape

    @property
    def served(self) -> int:
        """Model calls, answers of tools and decisions that came from the record."""
        return self.tape.served

    @property
    def misses(self) -> tuple[Divergence, ...]:
        """Everything that the record did not hold."""
        return tuple(self.tape.misses)

    @property
    def unused(self) -> tuple[str, ...]:
        """Model calls of the record that the run did not ask for."""
        return self.tape.unused

    @property
    def divergence(self) -> Divergence | None:
        """The first place where the run left the record."""
        return self.tape.divergence

    def run_config(self, config: RunConfig | None = None) -> RunConfig:
        """Return a run's configuration as a replay needs it: its model is the record, its guardrails decide as they did.

        Nothing is traced: what is replayed is never recorded as newly done.
        """
        config = config or RunConfig()
        return replace(
            config, model=None, tracing_disabled=True,
            input_guardrails=[_guardrail(one, self.tape) for one in config.input_guardrails or ()],
            output_guardrails=[_guardrail(one, self.tape) for one in config.output_guardrails or ()],
        )  # fmt: skip


def replaying(agent: Agent[Any], record: Session | Tape) -> Replaying:
    """Return an agent graph that runs nothing: models, tools, MCP servers, handoff callbacks and guardrails answer from the record.

    The agent itself is left as it is. A tool's own guardrails are part of its recorded answer, and an agent used as a tool is
    answered for as one call. What the record does not hold is a divergence that names both sides, never a guess.

    Args:
        agent: Where the recorded run started, built as it was then.
        record: The session in which it was recorded.
    """
    tape = record if isinstance(record, Tape) else Tape.of(record)
    return Replaying(_Graph(tape).of(agent), tape)


def _of_server(name: str, tool: FunctionTool) -> FunctionTool:
    """Mark a tool as its server's: hooks record whose it is."""
    if hasattr(tool, "_tool_origin"):  # not before SDK 0.24
        from agents.tool import ToolOrigin, ToolOriginType

        cast(Any, tool)._tool_origin = ToolOrigin(ToolOriginType.MCP, mcp_server_name=name)
    return tool


class _Graph:
    """Clones of an agent graph; handoffs may lead in circles."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._made: dict[int, tuple[Agent[Any], Agent[Any]]] = {}

    def of(self, agent: Agent[Any]) -> Agent[Any]:
        known = self._made.get(id(agent))
        if known is not None:
            return known[1]
        clone = agent.clone(
            model=self.model(agent), model_settings=agent.model_settings, mcp_servers=[],
            tools=[self.tool(one) for one in agent.tools],
            input_guardrails=[self.guardrail(one) for one in agent.input_guardrails],
            output_guardrails=[self.guardrail(one) for one in agent.output_guardrails],
        )  # fmt: skip
        self._made[id(agent)] = (agent, clone)
        self.serve(agent, clone)
        clone.handoffs = [self._handoff(one) for one in cast("Sequence[Any]", agent.handoffs)]
        return clone

    def model(self, agent: Agent[Any]) -> Model:
        """What answers for an agent's model."""
        return ReplayModel(self._tape, agent=agent.name)

    def tool(self, tool: Any) -> Any:
        """What answers for a tool."""
        return answering(tool, self.ask, self._tape.rejected.__contains__)

    def ask(self, name: str, call_id: str | None, arguments: Any) -> Given:
        """What becomes of a call of a tool.

        Raises:
            ReplayDivergenceError: The record does not hold it.
        """
        tape = self._tape
        found = tape.find_step(name, arguments) if call_id is None else tape.find_answer(name, call_id, arguments)
        if isinstance(found, Divergence):
            raise ReplayDivergenceError(tape.miss(found))
        answer = found.answer if isinstance(found, Step) else found
        return Given("value") if answer is None else Given("serve", answer)

    async def live(self, agent: Agent[Any], server: str, context: Any, arguments: str) -> Any:
        """Call a tool of an MCP server; a replay that changes nothing comes by no such call.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            f"the tool of the MCP server {server!r} cannot be called here: use rath_bridge.replay for a what-if"
        )

    def guardrail(self, guardrail: Any) -> Any:
        """What decides for a guardrail."""
        return _guardrail(guardrail, self._tape)

    def serve(self, agent: Agent[Any], clone: Agent[Any]) -> None:
        """Let a clone have the tools of the agent's MCP servers as the record has them: no server is asked."""
        if not agent.mcp_servers:
            return
        names = [server.name for server in agent.mcp_servers]
        tape = self._tape
        own = {getattr(one, "name", None) for one in agent.tools}
        known = tape.tools.get(agent.name)
        found = [one for one in (tape.tools.get(None, []) if known is None else known) if one.get("name") not in own]
        tools = [self._served(one, names, agent) for one in found if "parameters" in one]

        async def get_mcp_tools(run_context: Any) -> list[Any]:
            for name in names:
                if name in tape.listed:
                    with mcp_tools_span(server=name) as span:
                        span.span_data.result = list(tape.listed[name])
            return list(tools)

        clone.get_mcp_tools = get_mcp_tools

    def _served(self, one: Mapping[str, Any], names: Sequence[str], agent: Agent[Any]) -> FunctionTool:
        name = str(one["name"])
        listing = next((server for server in names if name in self._tape.listed.get(server, ())), names[0])
        owner = self._tape.servers.get(name, listing)
        tool = FunctionTool(
            name=name, description=str(one.get("description", "")), params_json_schema=dict(one["parameters"]),
            strict_json_schema=bool(one.get("strict", False)), on_invoke_tool=function(name, self.ask, partial(self.live, agent, owner)),
        )  # fmt: skip
        return _of_server(owner, tool)

    def _handoff(self, one: Any) -> Any:
        if isinstance(one, Agent):
            return self.of(cast("Agent[Any]", one))
        if not isinstance(one, Handoff):
            return one
        again = copy.copy(cast("Any", one))
        target: Any = one._agent_ref() if one._agent_ref is not None else None  # pyright: ignore[reportPrivateUsage]

        async def led(context: Any, arguments: Any) -> Any:
            if target is None:
                miss = Divergence(
                    f"handoff {one.tool_name}", f"an agent {one.agent_name} that only its callback knows", "its name"
                )
                raise ReplayDivergenceError(self._tape.miss(miss))
            return self.of(target)

        again.on_invoke_handoff = led
        return again


# ------------------------------------------------------------------ guardrails


def _guardrail(guardrail: Any, tape: Tape) -> Any:
    """Return a guardrail that decides as it did; its own function is not called."""
    again = copy.copy(guardrail)
    stage = "input" if isinstance(guardrail, InputGuardrail) else "output"
    assert isinstance(guardrail, InputGuardrail | OutputGuardrail)
    name = guardrail.get_name()

    def decide(*_: Any) -> GuardrailFunctionOutput:
        found = tape.decision(stage, name)
        if isinstance(found, Divergence):
            raise ReplayDivergenceError(found)
        return GuardrailFunctionOutput(output_info=found[2], tripwire_triggered=found[1])

    again.guardrail_function = decide
    again.name = name
    return again


__all__ = ["RecordedError", "ReplayDivergenceError", "ReplayModel", "Replaying", "replaying"]
