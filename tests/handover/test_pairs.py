"""Every ordered pair of frameworks, and chains of three: the next one really runs, and answers; nothing is said twice."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

import rath_bridge as rb
from rath_bridge.handover import TARGETS
from rath_bridge.model.parts import ToolCallPart, ToolCallResponsePart
from tests.handover.stacks import ANSWER, ASK, INPUT, OUTPUT, ROLES, calls_and_answers, roles, turn
from tests.handover.test_table import valid

PAGE = Path(__file__).parents[2] / "docs/hand-over.md"
TABLE = Path(__file__).parents[2] / "build/hand-over-matrix.md"
TURN = (("user", ASK), ("assistant", "add(1, 2)"), ("tool", "3"), ("assistant", ANSWER))
PAIRS = list(product(TARGETS, TARGETS))

pytestmark = pytest.mark.filterwarnings("ignore:.*:ResourceWarning")


def said(session: rb.Session) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for one in session.messages():
        words = [one.text] if one.text else []
        for part in one.parts:
            if isinstance(part, ToolCallPart):
                words.append(f"{part.name}({part.arguments['a']}, {part.arguments['b']})")
            elif isinstance(part, ToolCallResponsePart):
                words.append(str(part.response))
        found.append((one.role, " ".join(words)))
    return found


def whole(session: rb.Session, turns: int) -> None:
    """What holds after any number of turns, whoever made them: law 12, law 8, law 7, and a clean store."""
    assert said(session) == list(TURN) * turns, "equal texts in two turns are two messages, and each is there once"
    assert [call.status for call in session.calls()] == ["ok"] * turns
    assert session.pending() == ()
    usage = session.usage()
    assert (usage.input_tokens, usage.output_tokens) == (2 * turns * INPUT, 2 * turns * OUTPUT)
    assert session.fsck() == []


async def pair(first: str, second: str, store_url: str = "memory:") -> str:
    """Let one go on from the other, in both styles; return the cell of the matrix."""
    store = rb.open_store(store_url)
    one = await turn(store.create("ticket"), first)
    whole(one.session, 1)
    brief = one.session.fork("briefed")
    two = await turn(one.session, second)
    whole(two.session, 2)
    assert [m.id for m in two.session.messages()][:4] == [m.id for m in one.session.messages()]
    valid(two.seen, second)
    assert roles(two.seen, second) <= ROLES[second]
    assert len(calls_and_answers(two.seen, second)) == 2, "the model was handed the other's call and its result"
    if first == second:
        assert two.report.exact, str(two.report)
    short = await turn(brief, second, "briefing")
    whole(short.session, 2)
    assert len(short.seen) == 2, "the briefing, and the user's words"
    (row, _) = short.report.manifest
    assert row.stands_for == tuple(m.id for m in one.session.messages())
    begun = [c for c in short.session if c.kind == "run" and c.body.manifest]  # type: ignore[attr-defined]
    assert list(begun[-1].body.manifest[0]) == row.row(), "the record says what the briefing stood for"  # type: ignore[attr-defined]
    store.close()
    lost = sorted({loss.what.partition(":")[0].partition(" '")[0] for loss in two.report.losses})
    return f"{len(two.report.manifest)} items; {f'lost: {_listed(lost)}' if lost else 'nothing lost'}"


def _listed(words: list[str]) -> str:
    return ", ".join(words)


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=lambda name: name)
async def test_each_pair_goes_on(first: str, second: str, sqlite_url: str) -> None:
    await pair(first, second, sqlite_url)


async def test_the_matrix_is_printed_and_stands_on_the_page() -> None:
    cells = {names: await pair(*names) for names in PAIRS}
    lines = [f"| from \\ to | {' | '.join(TARGETS)} |", f"|---{'|---' * len(TARGETS)}|"]
    lines += [f"| {first} | {' | '.join(cells[first, second] for second in TARGETS)} |" for first in TARGETS]
    text = "\n".join(lines)
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(f"{text}\n")
    print(text)  # noqa: T201 - shown with -rP
    assert text in PAGE.read_text(), f"put {TABLE.name} from build/ on the page"


@pytest.mark.parametrize("chain", [c for c in product(TARGETS, TARGETS, TARGETS) if c[0] != c[1] != c[2]], ids="-".join)
async def test_chains_of_three(chain: tuple[str, ...]) -> None:
    session = rb.open_store("memory:").create("ticket")
    for number, name in enumerate(chain, 1):
        session = (await turn(session, name, "exact" if number % 2 else "briefing")).session
        whole(session, number)


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=lambda name: name)
async def test_a_fork_made_in_one_merges_into_a_session_that_another_continues(first: str, second: str) -> None:
    base = (await turn(rb.open_store("memory:").create("ticket"), first)).session
    side = (await turn(base.fork("side"), first)).session
    main = (await turn(base, second)).session
    merged = main.merge(side)
    assert (merged.usage().input_tokens, merged.usage().output_tokens) == (6 * INPUT, 6 * OUTPUT), "the base counts once"
    after = (await turn(merged, second)).session
    block = after.messages()[8]
    assert block.name == "merge"
    assert block.body.stands_for == tuple(m.id for m in side.messages()[4:])
    assert said(after)[:8] == list(TURN) * 2
    assert said(after)[9:] == list(TURN)
    assert after.fsck() == []


async def test_a_next_agent_that_hands_its_list_back_twice_says_nothing_twice() -> None:
    from rath_bridge.handover import encode, take

    session = (await turn(rb.open_store("memory:").create("ticket"), "langgraph")).session
    messages, report = encode(session, "openai_messages")
    messages = [*messages, {"role": "user", "content": ASK}, {"role": "assistant", "content": ANSWER}]
    session = take(session, messages, report)
    count = len(session.messages())
    assert count == 6
    again, report = encode(session, "openai_messages")
    assert again == messages
    assert take(session, again, report) == session
    extra: Any = {"role": "user", "content": ASK}
    assert len(take(session, [*again, extra], report).messages()) == count + 1
