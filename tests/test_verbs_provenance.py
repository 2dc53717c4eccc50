"""blame: chunk, agent, framework, branch, model call and tool call; through merges and hand-overs; recorded and inferred apart."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

import rath_bridge as rb
from rath_bridge.model.digests import digest
from rath_bridge.model.kinds import Inference, Message, Run, ToolCall, ToolResult, Workspace
from rath_bridge.model.parts import TextPart, ToolCallPart
from rath_bridge.model.trees import map_tree
from rath_bridge.verbs.blame import BlameLine
from rath_bridge.verbs.lineage import ancestors
from tests.cli_store import run
from tests.handover.stacks import ANSWER, TARGETS, turn


def chunks(session: rb.Session) -> dict[str, Any]:
    return {chunk.id: chunk for chunk in ancestors(session.head, session.store.backend)}


def told(session: rb.Session, line: BlameLine) -> list[tuple[str, str, str]]:
    """(how, kind of the chunk that the link names, basis)"""
    known = chunks(session)
    return [(link.how, known[link.chunk].kind, link.basis) for link in line.links]


def messages(session: rb.Session, wanted: str) -> list[BlameLine]:
    return [line for line in session.blame(wanted) if line.chunk.kind == "message" and line.where.startswith("body.parts")]


def said(text: str, **fields: Any) -> Message:
    return Message(role="assistant", parts=(TextPart(text),), **fields)


# ---------------------------------------------------------------- a sentence, through frameworks


async def test_a_sentence_goes_back_through_every_hand_over() -> None:
    session = rb.open_store("memory:").create("ticket")
    for name in TARGETS:
        session = (await turn(session, name)).session
    lines = messages(session, ANSWER)
    assert [line.framework for line in lines] == list(TARGETS)
    assert all(line.branch == "ticket" for line in lines)
    assert [line.agent for line in lines][1:] == ["Adder", "adder", "chat"]
    for line, name in zip(lines, TARGETS, strict=True):
        assert line.model_call is not None
        call = chunks(session)[line.model_call.chunk]
        assert call.run is None or call.body.output is not None
        assert line.model_call.basis == ("recorded" if name in ("langgraph", "openai_agents", "autogen") else "inferred")
    for before, line in pairwise(lines):
        handed = [link for link in line.links if link.how == "handed over"]
        assert [(link.chunk, link.basis) for link in handed] == [(before.chunk.id, "recorded")], "the run's manifest names it"


async def test_a_briefing_hands_over_what_it_stands_for() -> None:
    one = (await turn(rb.open_store("memory:").create("ticket"), "langgraph")).session
    two = (await turn(one, "openai_agents", "briefing")).session
    first, second = messages(two, ANSWER)
    assert ("handed over", first.chunk.id) in [(link.how, link.chunk) for link in second.links]


async def test_a_sentence_goes_back_through_a_merge() -> None:
    base = rb.open_store("memory:").create("ticket").append(rb.message("user", "hello"))
    side = (await turn(base.fork("side"), "autogen")).session
    merged = base.append(rb.message("user", "more")).merge(side)
    written, block = messages(merged, ANSWER)
    assert (written.branch, written.framework, written.agent) == ("ticket@side", "autogen", "adder")
    assert block.branch == "ticket"
    assert told(merged, block)[0] == ("merged in by", "merge", "recorded")
    assert ("stands for", written.chunk.id) in [(link.how, link.chunk) for link in block.links]


# ---------------------------------------------------------------- calls


@pytest.mark.parametrize("name", TARGETS)
async def test_an_argument_and_a_result_name_their_calls(name: str) -> None:
    base = rb.open_store("memory:").create("ticket")
    session = (await turn((await turn(base, name)).session, name)).session  # two turns with one call id
    known = chunks(session)
    asked = [line for line in messages(session, "add") if line.where.endswith(".name")]
    asked = [line for line in asked if any(isinstance(p, ToolCallPart) for p in known[line.chunk.id].body.parts)]
    assert len(asked) == 2
    models = [line.model_call.chunk for line in asked if line.model_call]
    calls = [chunk.id for chunk in session if chunk.kind == "inference"]
    assert models == calls[::2], "each of its own turn: the first of its two model calls"
    results = [line for line in session.blame("3") if line.where == "body.parts[0].response"]
    assert len(results) == 2
    for line, ask in zip(results, asked, strict=True):
        assert ("asked by", ask.chunk.id) in [(link.how, link.chunk) for link in line.links]
    for line in session.blame("3"):
        if line.chunk.kind == "tool_result" and line.where == "body.result":
            assert line.tool_call is not None
            assert known[line.tool_call.chunk].body.name == "add"


def test_what_a_chunk_says_is_inferred_is_inferred() -> None:
    s = (
        rb.open_store("memory:")
        .create("s")
        .append(
            rb.draft(Run(phase="begin", name="clerk"), run="r"),
            rb.draft(ToolCall(name="pay", call_id="c1", basis="inferred"), run="r"),
            rb.draft(ToolResult(name="pay", call_id="c1", result="paid 48 EUR"), run="r"),
            rb.draft(Inference(model="m"), run="r"),
            rb.draft(said("You paid 48 EUR."), run="r"),
        )
    )
    result, answer = s.blame("48 EUR")
    assert told(s, result) == [("tool call", "tool_call", "inferred")]
    assert told(s, answer) == [("model call", "inference", "inferred"), ("said before", "tool_result", "inferred")]
    assert (answer.agent, answer.runs) == ("clerk", ("clerk",))


def test_edits_and_repeats_name_what_they_are_of() -> None:
    s = rb.open_store("memory:").create("s").append(rb.message("assistant", "the sky is green"))
    s = s.append(
        rb.draft(said("the sky is blue", replaces=s[1].id)), rb.draft(said("the sky is blue", same_as=s[1].id, basis="inferred"))
    )
    edited, repeated = s.blame("blue")
    assert [(link.how, link.chunk, link.basis) for link in edited.links] == [("edits", s[1].id, "recorded")]
    assert ("same as", s[1].id, "inferred") in [(link.how, link.chunk, link.basis) for link in repeated.links]


# ---------------------------------------------------------------- files and states


def test_a_file_goes_back_to_the_call_before_it() -> None:
    files, nodes = map_tree({"report.md": bytes.fromhex(digest(b"x"))})
    s = (
        rb.open_store("memory:")
        .create("s")
        .append(
            rb.draft(Run(phase="begin", name="coder"), run="r"),
            rb.draft(ToolCall(name="write_file", call_id="c1"), run="r"),
            rb.draft(Workspace(files=files), objects={**nodes, digest(b"x"): b"x"}, run="r"),
        )
    )
    (line,) = s.blame("report.md")
    assert told(s, line) == [("written by", "tool_call", "inferred")]
    assert line.agent == "coder"


def test_a_key_of_a_state_goes_back_to_the_node_that_wrote_it() -> None:
    from rath_langgraph import RathSaver
    from tests.langgraph.graphs import asking, thread

    store = rb.open_store("memory:")
    app = asking(checkpointer=RathSaver(store, session="t"))
    app.invoke({"messages": [("user", "hi")], "note": "start"}, thread())
    session = store.session("t")
    lines = [line for line in session.blame("note") if line.where == "body.state.note"]
    assert [(line.excerpt, line.agent) for line in lines] == [("note = start", "__start__"), ("note = draft", "write")]
    assert told(session, lines[1]) == [("written by", "task", "recorded")]


def test_a_states_key_names_the_model_call_of_its_node() -> None:
    from rath_langgraph import wrap
    from tests.langgraph.graphs import react, scripted, thread

    store = rb.open_store("memory:")
    wrap(react(scripted("hello")), store, session="t", checkpointer="rath").invoke({"messages": [("user", "hi")]}, thread())
    session = store.session("t")
    last = [line for line in session.blame("messages") if line.where == "body.state.messages"][-1]
    assert (last.agent, last.excerpt) == ("llm", "messages: 2 items")
    assert [how for how in told(session, last) if how[0] == "model call"] == [("model call", "inference", "inferred")]


# ---------------------------------------------------------------- what is not said


def test_ids_and_times_count_where_they_are_asked_for_whole() -> None:
    s = (
        rb.open_store("memory:")
        .create("s")
        .append(
            rb.draft(Run(phase="begin", name="clerk", native_id="thread-48"), run="r"),
            rb.draft(Inference(model="m", duration=0.48), run="r"),
        )
    )
    assert s.blame("48") == []
    assert [line.where for line in s.blame("thread-48")] == ["body.native_id"]


def test_a_thousand_places_are_told() -> None:
    s = rb.open_store("memory:").create("s").append(*[rb.message("user", f"yes {n}") for n in range(1_000)])
    found = s.blame("yes")
    assert len(found) == 1_000
    assert {line.branch for line in found} == {"s"}


async def test_blame_on_the_command_line(sqlite_url: str) -> None:
    with rb.open_store(sqlite_url) as store:
        await turn((await turn(store.create("ticket"), "langgraph")).session, "openai_agents")
    text = run("blame", "ticket", ANSWER, store=sqlite_url).stdout
    assert "ticket / langgraph" in text
    assert "← model call" in text
    assert "← handed over" in text
    data = json.loads(run("blame", "ticket", ANSWER, "-n", "2", "--json", store=sqlite_url).stdout)
    assert (len(data["found"]), data["places"] > 2) == (2, True)
    assert data["found"][1]["model_call"]["basis"] == "recorded"
