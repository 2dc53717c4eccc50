"""What a run was told beside its input is told again in a replay, where it is plain data, and named where it is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from agents import Agent, ModelSettings, RunConfig, RunHooks, function_tool
from agents.exceptions import MaxTurnsExceeded

import rath_bridge as rb
from rath_openai_agents import wrap
from tests.openai_agents.doubles import ScriptedModel
from tests.openai_agents.scripted import call, say, step

SECRET = "sk-" + "a1B2" * 8


@function_tool
def look() -> str:
    return "nothing yet"


@dataclass
class Ctx:
    user: str


def greeting(context: Any, agent: Any) -> str:
    given = context.context
    return f"Help {given['user'] if isinstance(given, dict) else given.user}."


def clerk(store: rb.Store, *steps: Any, instructions: Any = "Help.", **fields: Any) -> Any:
    made: Agent[Any] = Agent(
        name="Clerk", instructions=instructions, model=ScriptedModel(list(steps)), tools=[look], **fields
    )  # fmt: skip
    return wrap(made, store, session="oa")


async def again(store: rb.Store, **fields: Any) -> rb.ReplayReport:
    """Replay with a new agent that has no model to ask."""
    heads = store.backend.refs()
    report = await rb.areplay(store.session("oa"), clerk(store, **fields))
    assert (report.live, store.backend.refs()) == (0, heads)
    return report


def looks(number: int) -> list[Any]:
    return [step(call("look", {}, f"c{one}")) for one in range(number)]


async def streamed(wrapped: Any, given: Any, **options: Any) -> None:
    async for _ in wrapped.run_streamed(given, **options).stream_events():
        pass


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
async def test_a_run_that_had_too_few_turns_has_too_few_again(store: rb.Store, stream: bool) -> None:
    wrapped = clerk(store, *looks(2))
    with pytest.raises(MaxTurnsExceeded):
        await (streamed if stream else type(wrapped).run)(wrapped, "Hello?", max_turns=2)
    await clerk(store, say("hi")).run("Again?")
    with pytest.raises(MaxTurnsExceeded):
        await clerk(store, *looks(1)).run("And again?", max_turns=1)
    report = await again(store)
    assert (report.equal, report.served, report.unused, report.reasons) == (True, 7, (), ()), str(report)
    assert report.error is not None
    assert report.error.startswith("MaxTurnsExceeded")


async def test_more_turns_than_the_default(store: rb.Store) -> None:
    await clerk(store, *looks(11), say("found")).run("Hello?", max_turns=12)
    report = await again(store)
    assert (report.equal, report.error, report.notes) == (True, None, ()), str(report)


@pytest.mark.usefixtures("sync_loop")
def test_a_context_of_plain_data(store: rb.Store) -> None:
    given = {"user": "Ann", "about": "long " * 200, "tags": ["a", 1, None, 2.5, b"\xff", 2**70]}
    clerk(store, say("hi"), instructions=greeting).run_sync("Hello?", context=given)
    given["user"] = "changed afterwards"
    seen: list[Any] = []

    def instructions(context: Any, agent: Any) -> str:
        seen.append(context.context)
        return greeting(context, agent)

    report = rb.replay(store.session("oa"), clerk(store, instructions=instructions))
    assert (report.equal, report.notes) == (True, ()), str(report)
    assert seen == [{**given, "user": "Ann"}]


async def test_a_context_that_is_no_data_is_named(store: rb.Store) -> None:
    await clerk(store, say("hi")).run("Hello?", context=Ctx("Ann"), hooks=RunHooks())
    report = await again(store)
    told = (
        "context, hooks of a run of Clerk could not be given again (no plain data, or a secret): "
        "give rb.replay a function that runs the agent"
    )
    assert (report.equal, report.notes, report.reasons) == (True, (told,), ()), str(report)


async def test_a_context_that_is_no_data_and_is_needed_is_a_reason(store: rb.Store) -> None:
    await clerk(store, say("hi"), instructions=greeting).run("Hello?", context=Ctx("Ann"))
    report = await again(store, instructions=greeting)
    assert (report.equal, report.exit_status, len(report.reasons)) == (None, 125, 1), str(report)
    assert report.reasons[0].startswith("context of a run of Clerk could not be given again")
    program = clerk(store, instructions=greeting)
    report = await rb.areplay(store.session("oa"), lambda: program.run("Hello?", context=Ctx("Ann")))
    assert (report.equal, report.reasons, report.notes) == (True, (), ()), str(report)


async def test_a_configuration(store: rb.Store) -> None:
    settings = ModelSettings(temperature=0.5, extra_args={"seed": 7})
    config = RunConfig(
        workflow_name="Desk", group_id="g", trace_metadata={"k": "v"}, model_settings=settings, model=ScriptedModel([say("hi")])
    )
    await clerk(store).run("Hello?", run_config=config)
    await clerk(store, say("more")).run("Oslo?", run_config=RunConfig(tracing_disabled=True))
    report = await again(store)
    assert (report.equal, report.served) == (True, 2), str(report)
    assert [note.partition(" of ")[0] for note in report.notes] == ["run_config.model"]


async def test_a_configuration_given_as_a_map(store: rb.Store) -> None:
    await clerk(store, say("hi")).run("Hello?", run_config={"workflow_name": "Desk", "model_settings": ModelSettings(top_p=0.1)})
    report = await again(store)
    assert (report.equal, report.notes) == (True, ()), str(report)


async def test_a_secret_is_not_kept(store: rb.Store) -> None:
    await clerk(store, say("hi")).run("Hello?", context={"key": SECRET, "user": "Ann"})
    assert not any(SECRET.encode() in (chunk.body_bytes or b"") for chunk in store.session("oa"))
    report = await again(store)
    assert report.equal
    assert len(report.notes) == 1


async def test_withheld_content_is_not_kept(store: rb.Store) -> None:
    config = RunConfig(trace_include_sensitive_data=False)
    await clerk(store, say("hi")).run("Hello?", context={"user": "Ann Onym"}, max_turns=3, run_config=config)
    assert not any(b"Onym" in (chunk.body_bytes or b"") for chunk in store.session("oa"))
    begin = next(chunk.body for chunk in store.session("oa") if chunk.kind == "run")
    assert begin.attributes["options"] == {  # type: ignore[attr-defined]
        "given": {"max_turns": 3, "run_config.trace_include_sensitive_data": False}, "missing": ["context"],
    }  # fmt: skip


async def test_options_are_no_difference_by_themselves(store: rb.Store) -> None:
    """What came of them is compared: records from before they were kept are equal to what they were."""
    await clerk(store, say("hi")).run("Hello?")
    program = clerk(store)
    report = await rb.areplay(store.session("oa"), lambda: program.run("Hello?", max_turns=3, context={"a": 1}))
    assert report.equal, str(report)
