"""Agents over the SDK's own scripted models, run plain or streamed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agents import Agent, RunConfig, Runner, Usage, function_tool
from agents.models.interface import Model

import rath_bridge as rb
from rath_openai_agents import RathRunHooks, RathTracingProcessor, RecordingModel
from tests.openai_agents.doubles import ModelStep, ScriptedModel, assistant_message, function_call

USAGE = Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)

Wrap = Callable[[Model], Model]


def step(*output: Any, response_id: str = "resp_1") -> ModelStep:
    return ModelStep(output=list(output), usage=USAGE, response_id=response_id)


def say(text: str) -> ModelStep:
    return step(assistant_message(text))


def call(name: str, arguments: dict[str, Any] | None = None, call_id: str = "call_1") -> Any:
    return function_call(name, arguments or {}, call_id=call_id)


@function_tool
def get_weather(city: str) -> str:
    """Tell the weather."""
    return f"sunny in {city}"


def plain(model: Model) -> Model:
    return model


def solo(steps: Sequence[Any], wrap: Wrap = plain, *, traces: bool = True, **fields: Any) -> Agent[Any]:
    return Agent(name="Solo", model=wrap(ScriptedModel(steps, emit_traces=traces)), **fields)


def triage(wrap: Wrap = plain, *, traces: bool = True, **fields: Any) -> Agent[Any]:
    """A tool call, then a handoff, then an answer: three model calls, 45 tokens."""
    first = [step(call("get_weather", {"city": "Oslo"})), step(call("transfer_to_billing", call_id="call_2"))]
    billing = Agent(name="Billing", model=wrap(ScriptedModel([say("done")], emit_traces=traces)))
    model = wrap(ScriptedModel(first, emit_traces=traces))
    return Agent(name="Triage", instructions="triage", model=model, tools=[get_weather], handoffs=[billing], **fields)


async def go(agent: Agent[Any], given: Any = "hi", *, streamed: bool = False, group: str = "g", **options: Any) -> Any:
    config = options.pop("run_config", None) or RunConfig(group_id=group)
    if not streamed:
        return await Runner.run(agent, given, run_config=config, **options)
    result = Runner.run_streamed(agent, given, run_config=config, **options)
    async for _ in result.stream_events():
        pass
    return result


def exact(store: rb.Store) -> tuple[Wrap, RathRunHooks]:
    """The second line: a recording model and hooks."""
    return lambda model: RecordingModel(model, store), RathRunHooks(store)


def watch(store: rb.Store, **options: Any) -> RathTracingProcessor:
    from agents.tracing import add_trace_processor

    processor = RathTracingProcessor(store, **options)
    add_trace_processor(processor)
    return processor


def session(store: rb.Store, group: str = "g") -> rb.Session:
    return store.session(f"openai_agents/{group}")


def bodies(s: rb.Session, kind: str) -> list[Any]:
    return [chunk.body for chunk in s if chunk.kind == kind]


def said(s: rb.Session, run: str | None = None) -> list[tuple[str, str]]:
    """Role and text (or calls and answers) of each message."""
    return [(m.role, m.text or " ".join(_shown(part) for part in m.parts)) for m in s.messages(run)]


def _shown(part: Any) -> str:
    if part.type == "tool_call":
        return f"{part.name}#{part.id}"
    return f"={part.response}#{part.id}" if part.type == "tool_call_response" else part.type


def whole(s: rb.Session) -> rb.Session:
    """The session, after the checks that hold for every recorded run."""
    assert s.fsck() == []
    assert all(not one.extra for one in s.calls())
    begun = [c.run for c in s if c.kind == "run" and c.body.phase == "begin"]  # type: ignore[attr-defined]
    ended = [c.run for c in s if c.kind == "run" and c.body.phase == "end"]  # type: ignore[attr-defined]
    assert sorted(begun) == sorted(ended), "every run that began has ended"  # type: ignore[type-var]
    return s
