"""The SDK's part of a replay: ``Runner.run`` and its twins work on agents that answer from the tape (`rath_bridge.replay`)."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, cast

from agents import Agent, GuardrailFunctionOutput, InputGuardrail, RunConfig, RunState
from agents.items import ModelResponse
from agents.mcp.server import _MCPServerWithClientSession  # pyright: ignore[reportPrivateUsage]
from agents.models.interface import Model
from agents.run import AgentRunner

from rath_bridge.model.digests import Digest
from rath_bridge.replay import Divergence, Verdict, current_tape, patched
from rath_bridge.replay import Tape as CoreTape
from rath_openai_agents.answering import Given, recorded_error
from rath_openai_agents.guardrails import telling, tells
from rath_openai_agents.inference import request_of
from rath_openai_agents.items import item_list
from rath_openai_agents.late import LateServers
from rath_openai_agents.options import config_of
from rath_openai_agents.place import observed
from rath_openai_agents.reading import NO_MODEL, Answer, Reply
from rath_openai_agents.record import RecordingModel
from rath_openai_agents.replay import ReplayModel, _Graph  # pyright: ignore[reportPrivateUsage]
from rath_openai_agents.run import _Recording  # pyright: ignore[reportPrivateUsage]
from rath_openai_agents.tape import Tape

_ARGUMENTS = ("system_instructions", "input", "model_settings", "tools", "output_schema", "handoffs", "tracing")


class AgentsPlayer:
    """Answers for the SDK from a record (source: ``agents.run.AgentRunner``)."""

    def __init__(self, core: CoreTape) -> None:
        self.core = core
        self.tape = Tape.of(core.session)
        self.late = LateServers()

    @contextmanager
    def installed(self) -> Generator[None]:
        """Let runs work on agents that answer from the record."""
        with ExitStack() as stack:
            stack.enter_context(patched(AgentRunner, "run", _run))
            stack.enter_context(patched(AgentRunner, "run_streamed", _run_streamed))
            stack.enter_context(patched(RecordingModel, "get_response", _get_response))
            stack.enter_context(patched(RecordingModel, "stream_response", _stream_response))
            stack.enter_context(patched(_MCPServerWithClientSession, "connect", _unconnected))
            stack.enter_context(patched(_MCPServerWithClientSession, "cleanup", _let_go))
            stack.callback(self.late.close)
            yield

    @property
    def unused(self) -> Sequence[Digest]:
        """Model calls that were not asked for."""
        return self.tape.left

    @property
    def reasons(self) -> Sequence[str]:
        """Why the SDK's part of the record cannot be replayed whole."""
        held = self.core.held
        own = [chunk for chunk in held.chunks if "rath_openai_agents" in (chunk.origin or "")]
        if not (self.tape.replies or any(chunk.kind == "run" for chunk in own)):
            return []
        erased = any(
            chunk.kind == "inference" and chunk.id in held.unreadable for chunk in own
        )  # it was recorded: the core tells
        left_out = {NO_MODEL} if erased else set[str]()
        return [one for one in self.tape.reasons if one not in left_out and not one.endswith("gaps are on record")]

    def staged(self, agent: Agent[Any], config: RunConfig) -> tuple[Agent[Any], RunConfig]:
        """Return an agent, and a configuration, of which nothing is asked live unless the tape says so."""
        graph = _Stage(self, config)
        again = replace(
            config, model=None,
            input_guardrails=[graph.guardrail(one) for one in config.input_guardrails or ()],
            output_guardrails=[graph.guardrail(one) for one in config.output_guardrails or ()],
        )  # fmt: skip
        return graph.of(agent), again


def _player() -> AgentsPlayer | None:
    tape = current_tape()
    return tape.player("openai_agents") if tape is not None else None


def _staged(agent: Agent[Any], options: dict[str, Any]) -> Agent[Any]:
    player = _player()
    if player is None:
        return agent
    agent, options["run_config"] = player.staged(agent, config_of(options))
    return agent


async def _restored(agent: Agent[Any], given: Any) -> Any:
    """Return a paused run on the agents of the stage: its state holds the agents and tools that it was paused with."""
    own = None if given._context is None else given._context.context
    return await RunState.from_json(agent, given.to_json(), context_override=own)


async def _run(original: Callable[..., Any], runner: Any, starting_agent: Agent[Any], input: Any, **options: Any) -> Any:  # noqa: A002
    agent = _staged(starting_agent, options)
    given = await _restored(agent, input) if type(input) is RunState else input
    return await original(runner, agent, given, **options)


def _run_streamed(original: Callable[..., Any], runner: Any, starting_agent: Agent[Any], input: Any, **options: Any) -> Any:  # noqa: A002
    agent = _staged(starting_agent, options)
    given: Any = input
    if type(input) is RunState:  # a stream is begun without waiting
        with ThreadPoolExecutor(1) as thread:
            given = thread.submit(asyncio.run, _restored(agent, input)).result()
    return original(runner, agent, given, **options)


def _asking(model: RecordingModel) -> RecordingModel:
    """Return a recording model that a program asks by itself, without a runner, as one that asks the tape."""
    player, inner = _player(), model.inner
    if player is None or isinstance(inner, ReplayModel) or observed.get() is not None:
        return model
    again = copy.copy(model)
    again.inner = _AskingModel(player, None, inner, lambda: inner)
    return again


async def _get_response(original: Callable[..., Any], model: RecordingModel, *args: Any, **kwargs: Any) -> Any:
    return await original(_asking(model), *args, **kwargs)


def _stream_response(original: Callable[..., Any], model: RecordingModel, *args: Any, **kwargs: Any) -> Any:
    return original(_asking(model), *args, **kwargs)


async def _unconnected(original: Callable[..., Any], server: Any, *args: Any, **kwargs: Any) -> Any:
    """Connect no MCP server whose tools answer from the agents' own record; the record of a wire answers for itself."""
    return await original(server, *args, **kwargs) if _on_wire() else None


async def _let_go(original: Callable[..., Any], server: Any, *args: Any, **kwargs: Any) -> Any:
    """Disconnect an MCP server that was connected for a live call."""
    if _on_wire():
        return await original(server, *args, **kwargs)
    player = _player()
    return None if player is None else await player.late.let_go(server)


def _on_wire() -> bool:
    tape = current_tape()
    return bool(getattr(tape.player("mcp") if tape is not None else None, "on_wire", False))


class _Stage(_Graph):
    """Clones of an agent graph whose every part asks the tape first."""

    def __init__(self, player: AgentsPlayer, config: RunConfig) -> None:
        super().__init__(player.tape)
        self._player, self._config = player, config

    def model(self, agent: Agent[Any]) -> Model:
        given = agent.model if self._config.model is None else self._config.model
        provider = self._config.model_provider
        live = given.inner if isinstance(given, RecordingModel) else given

        def real() -> Model:
            return live if isinstance(live, Model) else provider.get_model(live)

        asking = _AskingModel(self._player, agent.name, live if isinstance(live, Model) else None, real)
        if isinstance(given, RecordingModel):
            again = copy.copy(given)
            again.inner = asking
            return again
        return RecordingModel(asking, provider._recorder) if isinstance(provider, _Recording) else asking  # pyright: ignore[reportPrivateUsage]

    def serve(self, agent: Agent[Any], clone: Agent[Any]) -> None:
        if _on_wire():
            clone.mcp_servers = list(agent.mcp_servers)
        else:
            super().serve(agent, clone)

    async def live(self, agent: Agent[Any], server: str, context: Any, arguments: str) -> Any:
        return await self._player.late.call(agent, server, context, arguments)

    def ask(self, name: str, call_id: str | None, arguments: Any) -> Given:
        tape, core = self._player.tape, self._player.core
        if call_id is not None:
            found = tape.find_answer(name, call_id, arguments)
            verdict = core.ask("tool", name, chunk=_chunk(found), arguments=arguments, expected=_expected(found))
            return _given(verdict, None if isinstance(found, Divergence) else found)
        step = tape.find_step(name, arguments)
        if isinstance(step, Divergence):
            return _given(core.ask("tool", name, arguments=arguments, expected=step), None)
        if step.begins is not None:  # what becomes of its first step becomes of the whole call
            step.call.verdict = core.ask("tool", name, chunk=step.begins, arguments=arguments)
        if step.call.verdict.action != "live" and step.answer is None:
            return Given("value")  # another step gives the answer
        return _given(step.call.verdict, step.answer)

    def guardrail(self, guardrail: Any) -> Any:
        stage = "input" if isinstance(guardrail, InputGuardrail) else "output"
        name = guardrail.get_name()
        core, tape = self._player.core, self._player.tape
        live: Any = cast(Any, guardrail).guardrail_function

        def decide(*arguments: Any) -> Any:
            found = tape.find_decision(stage, name)
            missing = isinstance(found, Divergence)
            verdict = core.ask(
                "guardrail", name, chunk=None if missing else found[0], expected=found if missing else None
            )  # fmt: skip
            if verdict.action == "live" or missing:
                return live(*arguments)
            return GuardrailFunctionOutput(output_info=found[2], tripwire_triggered=found[1])

        if tells(guardrail):
            return telling(guardrail, decide)
        again: Any = copy.copy(cast(Any, guardrail))
        again.name, again.guardrail_function = name, decide
        return again


def _given(verdict: Verdict, answer: Answer | None) -> Given:
    if verdict.action == "serve":
        return Given("serve", answer)
    return Given(verdict.action, value=verdict.error if verdict.action == "error" else verdict.value)


def _chunk(found: Reply | Answer | Divergence) -> Digest | None:
    return None if isinstance(found, Divergence) else found.chunk


def _expected(found: Any) -> Divergence | None:
    return found if isinstance(found, Divergence) else None


class _AskingModel(ReplayModel):
    """Answers a model's calls as the tape says."""

    def __init__(self, player: AgentsPlayer, agent: str | None, stands_for: Model | None, real: Callable[[], Model]) -> None:
        super().__init__(player.tape, agent=agent)
        self._core, self._name, self._real = player.core, agent, real
        self.stands_for = stands_for

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        found, verdict, asked = self._ask(args, kwargs)
        if verdict.action == "live":
            return await self._live(verdict).get_response(**asked)
        return self.plain(_changed(found, verdict))

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        found, verdict, asked = self._ask(args, kwargs)
        if verdict.action == "live":
            async for event in self._live(verdict).stream_response(**asked):
                yield event
            return
        async for event in self.streamed(_changed(found, verdict)):
            yield event

    def _ask(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Reply | Divergence, Verdict, dict[str, Any]]:
        asked = dict(zip(_ARGUMENTS, args, strict=False)) | dict(kwargs)
        found = self.tape.find_reply(item_list(asked["input"]), request_of(asked, {}), self._name)
        verdict = self._core.ask("model", self._name, chunk=_chunk(found), expected=_expected(found))
        if verdict.prompt is not None:
            old = asked.get("system_instructions")
            asked["system_instructions"] = verdict.prompt(old) if callable(verdict.prompt) else verdict.prompt
        return found, verdict, asked

    def _live(self, verdict: Verdict) -> Model:
        return verdict.value if verdict.value is not None else self._real()


def _changed(found: Reply | Divergence, verdict: Verdict) -> Reply:
    """Return the reply to serve: the recorded one, or it with another output."""
    reply = cast(Reply, found)
    if verdict.action == "serve":
        if reply.body.error is not None:
            raise recorded_error(reply.body.error, reply.body.attributes.get("exception"))
        return reply
    value: Any = verdict.value
    if isinstance(value, str):
        part: dict[str, Any] = {"type": "output_text", "text": value, "annotations": [], "logprobs": []}
        value = [{"type": "message", "id": "changed", "role": "assistant", "status": "completed", "content": [part]}]
    return replace(reply, native={**(reply.native or {}), "output": list(value)})
