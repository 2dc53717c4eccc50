"""The briefing: deterministic, marked, short enough, and honest about what is open. Ids and names that fit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rath_bridge as rb
from rath_bridge.errors import UnknownFormatError, UnsupportedError
from rath_bridge.handover import TARGETS, Told
from rath_bridge.model.fitting import CALL_ID, RESPONSES_CALL_ID, fitting_id, fitting_name
from rath_bridge.model.kinds import Message, ToolResult
from rath_bridge.model.parts import BlobPart, TextPart, ToolCallPart, ToolCallResponsePart
from rath_bridge.model.report import Loss, LossReport, align, manifest_of
from rath_bridge.testing.strategies import session_of, transcripts
from rath_bridge.verbs.words import summary
from tests.handover.probes import PNG, answer, assistant, user
from tests.handover.stacks import handed
from tests.handover.test_table import valid


def made(*said: Message | ToolResult) -> rb.Session:
    return rb.open_store("memory:").create("ticket").append(*(rb.draft(one) for one in said))


def text_of(session: rb.Session, style: Any = "briefing") -> str:
    messages, _ = rb.encode(session, "openai_messages", style=style)
    return messages[0]["content"]


def test_what_a_briefing_tells() -> None:
    s = made(
        Message(role="system", parts=(TextPart("be brief"),)),
        user("pay 3", BlobPart("image", PNG, "image/png"), name="ann"),
        assistant("I pay", ToolCallPart("c1", "pay", {"n": 3})),
        answer("c1", {"paid": True}),
        assistant("Done.\nAll is paid.", name="clerk"),
        user("sure?"),
    )
    lines = text_of(s).split("\n")
    ids = [m.id[:12] for m in s.messages()]
    assert lines[0] == (
        f"[briefing: what was said and done before in session ticket (5 messages, 1 tool call), up to chunk {s.messages()[4].id}]"
    )
    assert lines[1:-1] == [
        f"{ids[0]} system: be brief",
        f"{ids[1]} user ann: pay 3 [image/png, {len(PNG)} B]",
        f"{ids[2]} assistant: I pay calls pay(n=3)",
        f'{ids[3]} tool: result {{"paid":true}}',
        f"{ids[4]} assistant clerk: Done.",
        "All is paid.",
    ]
    assert lines[-1] == "[end of the briefing: it is a summary, nobody said these words]"


def test_a_call_that_failed_is_told_as_failed_and_a_name_once() -> None:
    """AutoGen's user is called "user", and its results say ``is_error``."""
    failed = ToolCallResponsePart("c1", "kaputt", {"is_error": True})
    s = made(
        user("Weather?", name="user"),
        assistant(ToolCallPart("c1", "weather", {}), name="guide"),
        Message(role="tool", name="guide", parts=(failed,)),
        assistant("I cannot tell.", name="guide"),
    )
    said = [line.partition(" ")[2] for line in text_of(s).split("\n")[1:-1]]
    assert said == [
        "user: Weather?",
        "assistant guide: calls weather()",
        "tool guide: failed: kaputt",
        "assistant guide: I cannot tell.",
    ]
    assert [summary(one.chunk) for one in s.messages()][:1] == ["user: Weather?"]


def test_losses_of_one_kind_are_told_once_and_the_rare_ones_first() -> None:
    s = made(*(user(str(number), name="ann") for number in range(8)))
    s = s.append(rb.draft(Message(role="tool", name="guide", parts=(ToolCallResponsePart("c1", {"n": 1}),))))
    report = LossReport(
        (*(Loss(one.id, "name", "the speaker's name 'ann'") for one in s.messages()[:8]),
         Loss(s.head, "parts[0].response", "no text"), Loss(s.head, "parts[3].response", "no text"), Loss(s.head, "parts[1]", "reasoning"))
    )  # fmt: skip
    first = s.messages()[0].id[:12]
    assert str(report).splitlines() == [
        "11 losses; 0 items handed over",
        f"  {s.head[:12]} parts[1]: reasoning",
        f"  {s.head[:12]} parts[0].response: no text (and 1 more like it)",
        f"  {first} name: the speaker's name 'ann' (and 7 more like it)",
    ]
    assert "tool's name" not in str(rb.encode(s, "openai_messages")[1])


def test_calls_that_no_message_answers_are_told() -> None:
    s = made(user("go"), assistant(ToolCallPart("c1", "pay", {}), ToolCallPart("c2", "look", {})), assistant("one moment"))
    s = s.append(rb.draft(ToolResult(name="pay", call_id="c1", result="paid")))
    text = text_of(s)
    assert "pay ok: paid" in text
    assert "no answer to look: it may or may not have run" in text


def test_a_long_history_is_cut_in_the_middle_and_stands_for_all() -> None:
    s = made(*[one for n in range(60) for one in (user(f"question {n}"), assistant(f"answer {n}"))])
    (block,), report = rb.encode(s, "openai_messages", style="briefing")
    assert "(70 lines are left out here; they are on record)" in block["content"]
    assert "question 0" in block["content"]
    assert "answer 59" in block["content"]
    assert len(report.manifest[0].stands_for) == 120
    assert len(text_of(made(user("hi"), assistant("x" * 100_000)))) < 9_000


def test_only_the_users_own_words_are_no_briefing() -> None:
    s = made(user("hi"), user("there"))
    for target in TARGETS:
        assert str(handed(s, target, "briefing")[0]) == str(handed(s, target)[0])


def test_a_function_writes_the_words() -> None:
    seen: list[Told] = []

    def write(told: Told) -> str:
        seen.append(told)
        return "paid, all is well"

    s = made(user("pay"), assistant(ToolCallPart("c1", "pay", {})), answer("c1"), assistant("done"), user("more"))
    assert text_of(s, write).split("\n")[1:-1] == ["paid, all is well"]
    assert [call.name for call in seen[0].calls] == ["pay"]
    assert [m.text for m in seen[0].rest] == ["more"]


@given(transcripts(odd_text=False), st.sampled_from(TARGETS))
def test_a_briefing_is_the_same_every_time_and_is_found_again(bodies: Any, target: str) -> None:
    s = session_of(bodies)
    native, report = handed(s, target, "briefing")
    again, second = handed(s, target, "briefing")
    assert str(native) == str(again)
    assert report == second
    manifest = manifest_of(report.rows())
    assert manifest == report.manifest
    assert align(manifest, [entry.digest for entry in manifest]) == [entry.chunk for entry in manifest]
    told = {name for entry in manifest for name in (entry.chunk, *entry.stands_for)}
    assert told | {loss.chunk for loss in report.losses} >= {m.id for m in s.messages()}
    assert s.latest() == s


def test_a_style_that_there_is_not() -> None:
    with pytest.raises(UnsupportedError, match="no style 'short'"):
        rb.encode(made(user("hi")), "langgraph", style="short")
    with pytest.raises(UnknownFormatError):
        rb.encode(made(user("hi")), "nobody")
    with pytest.raises(UnsupportedError, match="one form only"):
        rb.encode(made(user("hi")), "openai_messages", "items")


@given(st.text(max_size=120), st.sampled_from([CALL_ID, RESPONSES_CALL_ID]))
def test_ids_and_names_fit_and_stay_apart(text: str, limit: int) -> None:
    for found in (fitting_id(text, limit), fitting_name(text)):
        assert 0 < len(found) <= 64
        assert found.replace("_", "").replace("-", "").isascii()
    assert len(fitting_id(text, limit)) <= limit
    assert fitting_id(fitting_id(text, limit), limit) == fitting_id(text, limit)
    assert fitting_name(fitting_name(text)) == fitting_name(text)
    assert fitting_id(text, limit) != fitting_id(text + "x", limit)
    assert fitting_name(text) != fitting_name(text + ".")


def test_what_the_framework_said_itself_goes_home_as_it_was() -> None:
    """An id that is too long elsewhere is the framework's own business at home (law 1)."""
    import rath_openai_agents

    items = [
        {"role": "user", "content": "go"},
        {"type": "function_call", "call_id": "c" * 90, "name": "pay", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c" * 90, "output": "paid"},
    ]
    s = rb.open_store("memory:").create("home").append(*rath_openai_agents.decode(items))
    native, report = rb.encode(s, "openai_agents")
    assert native == items
    assert report.exact


@pytest.mark.parametrize("style", ["exact", "briefing"])
@pytest.mark.parametrize("target", TARGETS)
def test_what_was_erased_is_named_and_the_rest_is_handed_over(target: str, style: str) -> None:
    result = ToolResult(name="pay", call_id="c1", result="y" * 600)
    s = made(user("a secret " + "x" * 600), assistant(ToolCallPart("c1", "pay", {})), result)
    s = s.append(rb.message("assistant", "done"), rb.message("user", "more"))
    gone = [s[1].id, s[3].id]
    s.store.backend.erase(gone)
    native, report = handed(s.latest(), target, style)
    assert native
    assert "secret" not in str(native)
    assert (gone[0], "body") in {(loss.chunk, loss.path) for loss in report.losses}
    assert s.diff(s.fork(f"{target}-{style}").append(rb.message("assistant", "no"))).to_json()
    assert s.blame("secret") == []
    assert s.blame("done")


# ---------------------------------------------------------------- what people met elsewhere


def test_a_claude_code_session_goes_on_elsewhere_as_a_briefing() -> None:
    """farion1231/cc-switch 5305, stablyai/orca 21965: tool calls do not map, so the next agent wants to be told what was done."""
    from rath_bridge.interchange import claude_code
    from tests.interchange.test_agent_logs import CLAUDE

    s = rb.open_store("memory:").create("log").append(*claude_code.decode(CLAUDE)).append(rb.message("user", "go on, please"))
    for target in TARGETS:
        native, report = handed(s, target, "briefing")
        assert len(native) == 3, (
            "the briefing, and what the user said last, picture and all: no foreign call in the next model's mouth"
        )
        assert len(report.manifest[0].stands_for) == len(s.messages()) - 2
    calls = [part.name for one in s.messages() for part in one.parts if isinstance(part, ToolCallPart)]
    assert calls
    assert all(f"calls {name}(" in text_of(s) for name in calls)


@pytest.mark.parametrize("target", TARGETS)
def test_an_id_that_another_provider_made_is_taken(target: str) -> None:
    """microsoft/autogen 6377, vercel/ai 8132, langmanus 119: an id of 41 to 83 characters from one model is refused by the next."""
    for length in (41, 46, 64, 65, 83):
        s = made(user("go"), assistant(ToolCallPart("w" * length, "look", {})), answer("w" * length))
        native, _ = handed(s, target)
        valid(list(native), target)
