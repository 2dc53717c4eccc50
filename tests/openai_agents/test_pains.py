"""What users of the SDK reported about traces, sessions and paused runs, each with the right behaviour (links: openai-agents-python).

Shown elsewhere: 1387, 97, 190, 31 (`test_processor.py`: install takes away the upload and nothing else); 222, 2444 (the SDK's own models;
`test_export.py` for 2518); 4717 (`test_runs.py`: identical parallel calls keep their ids); 4070 (a model error is the same plain and
streamed); weave 5795 (state is freed); 1658, 4690 (`test_session.py`: cancellation, a failed append); 1061, 2503 (no orphan and no idle
reasoning is handed out); 2069 (fork at any item, inclusive).
"""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, RunConfig, Runner, RunState, custom_span, function_tool, trace
from agents.testing import ScriptedModel
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rath_bridge as rb
from rath_bridge.errors import NameInUseError
from rath_bridge.model.trees import read_list
from rath_bridge.otel import export_spans
from rath_openai_agents import RathSession, encode, wrap
from tests.openai_agents import builds
from tests.openai_agents.builds import RAN
from tests.openai_agents.scripted import (
    bodies,
    call,
    exact,
    get_weather,
    go,
    said,
    say,
    session,
    solo,
    step,
    triage,
    watch,
    whole,
)


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


@function_tool(needs_approval=True)
def pay(amount: int) -> str:
    RAN.append(f"paid {amount}")
    return f"paid {amount}"


def payer(*steps: Any) -> Agent[Any]:
    return solo(list(steps), tools=[pay])


ASK = step(call("pay", {"amount": 5}, "p1"))


async def test_issue_2135_a_trace_is_durable_at_its_end(tmp_path: Path) -> None:
    """Traces never appeared from short-lived workers: another process finds the run without any flush."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    watch(rb.open_store(url))
    await go(solo([say("hello")]))
    with rb.open_store(url) as other:
        assert whole(session(other)).usage().input_tokens == 10


async def test_issue_634_a_stream_that_is_closed_in_another_context(store: rb.Store, caplog: pytest.LogCaptureFixture) -> None:
    watch(store)
    result = Runner.run_streamed(solo([say("hello there")]), "hi", run_config=RunConfig(group_id="g"))
    stream = result.stream_events()
    await contextvars.Context().run(asyncio.ensure_future, anext(stream))  # type: ignore[arg-type]
    async for _ in stream:
        pass
    whole(session(store))
    assert [record for record in caplog.records if record.name == "rath_bridge"] == []


async def test_openinference_3337_input_and_output_stand_at_the_root(store: rb.Store) -> None:
    watch(store)
    wrap_, hooks = exact(store)
    result = await go(solo([step(call("get_weather", {"city": "Oslo"})), say("Sunny.")], wrap_, tools=[get_weather]), hooks=hooks)
    s = whole(session(store))
    root = next(c.run for c in s if c.kind == "run")
    assert said(s, root)[0] == ("user", "hi")
    assert said(s, root)[-1] == ("assistant", result.final_output)


async def test_contrib_4197_the_tools_of_mcp_servers_are_listed(store: rb.Store) -> None:
    watch(store)
    await go(builds.served(builds.real))
    (listing, *_) = [one for one in bodies(session(store), "span") if one.name == "mcp_tools"]
    assert (listing.attributes["server"], list(listing.attributes["result"])) == ("adder", ["add"])


async def test_genai_549_and_725_every_type_of_span_is_mapped_and_names_its_conversation(store: rb.Store) -> None:
    watch(store, session="s")
    with trace("all", group_id="talk-7"):
        for build in (builds.tools, builds.handed_off, builds.checked, builds.served):
            await go(build(builds.real), group="talk-7")
        with custom_span("query", {"rows": 1}):
            pass
    s = whole(store.session("s"))
    kinds = {chunk.kind for chunk in s}
    assert {"run", "inference", "tool_call", "tool_result", "handoff", "guardrail", "span"} <= kinds
    assert {one.name for one in bodies(s, "span")} >= {"mcp_tools", "query", "turn"}
    made = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made))
    export_spans(s, tracer_provider=provider)
    found = made.get_finished_spans()
    assert found
    assert {str((span.attributes or {}).get("gen_ai.conversation.id")) for span in found} == {"s"}
    root = next(body for body in bodies(s, "run") if body.phase == "begin")
    assert root.attributes["group_id"] == "talk-7"


SEALED = """
import asyncio, os, sys
from contextlib import suppress

os.environ["OPENAI_API_KEY"] = "sk-none"
tried = []

def watch(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        tried.append(event)
        raise OSError("sealed")

sys.addaudithook(watch)

import rath_bridge as rb
from agents import Runner
from agents.tracing import get_trace_provider
from rath_openai_agents import install
from tests.openai_agents.scripted import say, solo

async def run():
    await Runner.run(solo([say("hello")]), "hi")
    with suppress(Exception):
        get_trace_provider().force_flush()

if sys.argv[1] == "ours":
    store = rb.open_store("memory:")
    install(store)
asyncio.run(run())
print(bool(tried), len(store.sessions()) if sys.argv[1] == "ours" else "-")
"""


@pytest.mark.parametrize(("how", "told"), [("ours", "False 1"), ("the SDK's own", "True -")])
def test_pull_199_nothing_leaves_the_machine(how: str, told: str) -> None:
    """Organisations with zero data retention cannot use tracing, which uploads: ours keeps all of it here, and tries no connection."""
    done = subprocess.run(
        [sys.executable, "-c", SEALED, how], capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[2], check=True
    )
    assert done.stdout.strip() == told, done.stderr


async def test_issue_1699_a_history_is_not_saved_again(store: rb.Store) -> None:
    kept = RathSession("42", store)
    for number in range(3):
        await Runner.run(solo([say(f"answer {number}")]), f"question {number}", session=kept)
    assert len(await kept.get_items()) == len(kept.session.messages()) == 6


async def test_issue_4069_an_input_callback_that_repeats_items_adds_none(store: rb.Store) -> None:
    kept = RathSession("42", store)
    await Runner.run(solo([say("one")]), "first", session=kept)
    config = RunConfig(session_input_callback=lambda history, new: [*history, *new])
    await Runner.run(solo([say("two")]), "second", session=kept, run_config=config)
    assert said(kept.session) == [("user", "first"), ("assistant", "one"), ("user", "second"), ("assistant", "two")]


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
async def test_issue_2426_calls_are_saved_with_their_answers(store: rb.Store, streamed: bool) -> None:
    kept = RathSession("42", store)
    await go(solo([step(call("get_weather", {"city": "Oslo"})), say("ok")], tools=[get_weather]), streamed=streamed, session=kept)
    assert [one.get("type") for one in await kept.get_items()][1:3] == ["function_call", "function_call_output"]


async def test_issue_4827_and_js_701_an_approval_adds_the_answer_once_beside_its_call(store: rb.Store) -> None:
    kept = RathSession("42", store)
    paused = await go(payer(ASK), "pay", session=kept)
    agent = payer(say("done"))
    state: Any = await RunState.from_json(agent, paused.to_state().to_json())
    state.approve(state.get_interruptions()[0])
    await go(agent, state, session=kept)
    kinds = [one.get("type", "message") for one in await kept.get_items()]
    assert kinds == ["message", "function_call", "function_call_output", "message"]
    await go(payer(say("again")), "and now?", session=kept)
    assert RAN == ["paid 5"]


async def test_pull_2500_nested_approvals_survive_json(store: rb.Store) -> None:
    """An approval inside an agent used as a tool looped for ever after a round trip; restored states interfered."""

    def outer(inner: list[Any], steps: list[Any]) -> Agent[Any]:
        helper = Agent(name="Helper", model=ScriptedModel(inner), tools=[pay])
        return Agent(name="Solo", model=ScriptedModel(steps), tools=[helper.as_tool("help", "Helps.")])

    agent = outer([ASK, say("helped")], [step(call("help", {"input": "please"}, "h1")), say("done")])
    paused = await go(agent, "hi")
    s = whole(store.create("s").append(*rb.decode(paused.to_state())))
    home, _ = rb.encode(s, "openai_agents", "state")
    restored: Any = await RunState.from_json(agent, home)
    restored.approve(restored.get_interruptions()[0])
    result = await wrap(agent, store, "s").run(restored)
    assert (result.final_output, RAN) == ("done", ["paid 5"])


async def test_issue_4244_an_approval_belongs_to_the_state(store: rb.Store) -> None:
    """It was ignored where a context was passed on resuming."""
    await wrap(payer(ASK), store, "s").run("pay")
    agent = payer(say("done"))
    state: Any = await RunState.from_json(agent, rb.encode(store.session("s"), "openai_agents", "state")[0])
    state.approve(state.get_interruptions()[0])
    result = await wrap(agent, store, "s").run(state, context={"tenant": "t1"})
    assert (result.final_output, RAN) == ("done", ["paid 5"])


async def test_pull_2501_restored_states_do_not_interfere() -> None:
    """Two states restored from one snapshot: an approval of the one approved nothing in the other."""
    agent = payer(ASK, say("done"))
    snapshot = (await go(agent, "pay")).to_state().to_json()
    store = rb.open_store("memory:")
    home, _ = rb.encode(store.create("s").append(*rb.decode(snapshot)), "openai_agents", "state")
    first: Any = await RunState.from_json(agent, home)
    second: Any = await RunState.from_json(agent, home)
    first.approve(first.get_interruptions()[0])
    assert len((await go(agent, second)).interruptions) == 1
    assert RAN == []
    assert (await go(agent, first)).final_output == "done"
    assert RAN == ["paid 5"]


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
async def test_issue_2171_a_nested_history_stands_once(store: rb.Store, streamed: bool) -> None:
    """The agent that took over got a summary, and the raw calls beside it: one transcript, and each model's own view as it was."""
    watch(store)
    wrap_, hooks = exact(store)
    config = RunConfig(group_id="g", nest_handoff_history=True)
    kept = RathSession("42", store)
    result = await go(triage(wrap_), hooks=hooks, streamed=streamed, run_config=config, session=kept)
    spoken = [
        ("user", "hi"), ("assistant", "get_weather#call_1"), ("tool", "=sunny in Oslo#call_1"),
        ("assistant", "transfer_to_billing#call_2"), ("tool", '={"assistant": "Billing"}#call_2'), ("assistant", "done"),
    ]  # fmt: skip
    recorded = whole(session(store))
    assert said(kept.session) == spoken
    assert said(recorded) == [*spoken[:4], spoken[5]], (
        "no model was handed the answer to the handoff; `encode` gives it all the same"
    )
    # a result alone holds the SDK's own list, summary first: it goes home as it is, each call once beside the summary
    assert encode(store.create("read").append(*rb.decode(result)))[0] == result.to_input_list()
    items = encode(recorded)[0]
    assert [one["call_id"] for one in items if one.get("type") == "function_call"] == ["call_1", "call_2"]
    assert not any("CONVERSATION HISTORY" in str(one) for one in items)
    asked = next(body for body in bodies(recorded, "inference") if body.agent == "Billing")
    view = [raw.hex() for raw in read_list(asked.input, store.backend.objects)]
    assert b"CONVERSATION HISTORY" in store.backend.objects(view)[view[0]], "what that model was handed is on record as it was"


async def test_issue_1862_one_chunk_for_one_call(store: rb.Store) -> None:
    watch(store)
    wrap_, hooks = exact(store)
    await go(builds.handed_off(lambda steps: wrap_(ScriptedModel(steps))), streamed=True, hooks=hooks)
    s = whole(session(store))
    ids = [one.call_id for kind in ("tool_call", "handoff") for one in bodies(s, kind)]
    assert ids == ["h1"]


async def test_pull_4152_a_branch_name_is_taken_once(store: rb.Store) -> None:
    kept = RathSession("42", store)
    await Runner.run(solo([say("one")]), "first", session=kept)
    await kept.fork("try", at=0)
    with pytest.raises(NameInUseError):
        await kept.fork("try", at=1)


async def test_issue_1709_reasoning_of_another_framework_is_named_and_left_out(store: rb.Store) -> None:
    from rath_bridge.model.kinds import Message
    from rath_bridge.model.parts import ReasoningPart, TextPart

    thought = rb.draft(Message(role="assistant", parts=(ReasoningPart("hm"), TextPart("yes"))))
    items, report = encode(store.create("s").append(rb.message("user", "hi"), thought))
    assert items[-1] == {"role": "assistant", "content": "yes"}
    assert [loss.path for loss in report.losses] == ["parts[0]"]


async def test_issue_4393_max_turns_leaves_the_same_log_plain_and_streamed(store: rb.Store) -> None:
    watch(store)
    wrap_, hooks = exact(store)
    for name, streamed in (("plain", False), ("streamed", True)):
        steps = [step(call("get_weather", {"city": "Oslo"}, f"c{n}")) for n in range(3)]
        with pytest.raises(Exception, match="Max turns"):
            await go(solo(steps, wrap_, tools=[get_weather]), streamed=streamed, hooks=hooks, group=name, max_turns=2)
    plain, other = (whole(session(store, name)) for name in ("plain", "streamed"))
    assert said(plain) == said(other)
    assert encode(plain)[0] == encode(other)[0]


def test_the_example_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import runpy

    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "openai_agents_run.py"))
    asyncio.run(example["main"]())
    told = capsys.readouterr().out
    assert told.startswith("user: Weather in Oslo?\n")
    assert "trip: equal\n  3 served, 0 live, 0 unused, 0 misses" in told
