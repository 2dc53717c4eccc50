"""How history is condensed and drawn: every chunk in one piece, every line connected, narrow where it can be."""

from __future__ import annotations

import json
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rath_bridge as rb
from rath_bridge.cli import face
from rath_bridge.cli.pieces import condense
from rath_bridge.cli.rails import ASCII, UNICODE, draw, order
from rath_bridge.model.kinds import Message
from rath_bridge.model.parts import TextPart
from rath_bridge.session import Session
from rath_bridge.verbs.branches import COUNTED, count
from tests.cli_store import fill, run


def said(text: str) -> rb.Draft:
    return rb.message("user", text)


def drawn(session: Session) -> list[str]:
    refs = session.store.backend.refs(session.session)
    return ["".join(char for char, _ in row.cells) for row in draw(condense(refs, session.store.backend), UNICODE)]


def test_a_straight_line_is_one_row() -> None:
    s = rb.open_store("memory:").create("s").append(*(said(str(i)) for i in range(5000)))
    pieces = condense(s.store.backend.refs("s"), s.store.backend)
    assert [(piece.count, piece.refs) for piece in pieces] == [(5001, ("s",))]
    assert drawn(s) == ["●"]


def test_a_fork_stands_right_above_its_point() -> None:
    s = rb.open_store("memory:").create("s").append(said("a"), said("b"))
    s.fork("x", at=s[1].id).append(said("x"))
    assert drawn(s) == ["●", "├─●", "●"]


def test_a_merge_opens_a_lane_and_the_branch_closes_it() -> None:
    s = rb.open_store("memory:").create("s").append(said("a"))
    b = s.fork("x").append(said("x"))
    s.append(said("b")).merge(b).append(said("c"))
    assert drawn(s) == ["●", "◆─╮", "● │", "├─●", "●"]


def test_a_branch_that_goes_on_after_its_merge() -> None:
    s = rb.open_store("memory:").create("s").append(said("a"))
    b = s.fork("x").append(said("x"))
    s.append(said("b")).merge(b)
    b.append(said("more"))
    assert drawn(s) == ["●", "◆─╮", "● │", "│ ├─●", "├─●", "●"]


def test_unrelated_lines_merged() -> None:
    store = rb.open_store("memory:")
    s, other = store.create("s").append(said("a")), store.create("o").append(said("b"))
    s.merge(other)
    rows = drawn(s)
    assert rows[1] == "◆─╮"
    assert rows[-2:] in (["● │", "  ●"], ["│ ●", "●"])


def test_fifty_branches_stay_narrow(sqlite_url: str) -> None:
    with rb.open_store(sqlite_url) as store:
        s = store.create("wide").append(*(said(str(i)) for i in range(20)))
        for i in range(50):
            s.fork(f"b{i:02}", at=s[i % 7].id).append(said(f"way {i}"))
    lines = run("graph", "wide", store=sqlite_url).stdout.splitlines()
    assert sum("[b" in line for line in lines) == 50
    assert max(line.index("[") for line in lines if "[" in line) <= 38
    plain = run("graph", "wide", "--ascii", store=sqlite_url).stdout
    assert plain.isascii()
    assert "|-*" in plain
    rows = json.loads(run("graph", "wide", "--json", store=sqlite_url).stdout)["pieces"]
    assert sum(row["chunks"] for row in rows) == 21 + 100


def test_labels_are_branch_names(sqlite_url: str) -> None:
    fill(sqlite_url).close()
    text = run("graph", "ticket-4711", store=sqlite_url).stdout
    assert "[main]" in text
    assert "[try-b]" in text
    assert "◆─╮" in text
    assert "[main]" not in run("graph", "ticket-4711@try-b", store=sqlite_url).stdout
    assert "M-." in run("graph", "ticket-4711", "--ascii", store=sqlite_url).stdout


STEPS = st.lists(st.tuples(st.sampled_from(["append", "fork", "merge"]), st.integers(0, 99), st.integers(0, 99)), max_size=25)


@given(STEPS)
def test_any_history_is_drawn_whole(steps: list[tuple[str, int, int]]) -> None:
    tips = [rb.open_store("memory:").create("s")]
    for number, (what, one, two) in enumerate(steps):
        at = one % len(tips)
        if what == "append":
            tips[at] = tips[at].append(said(str(number)))
        elif what == "fork":
            tips.append(tips[at].fork(f"b{number}", at=tips[at][two % len(tips[at])].id))
        else:
            tips[at] = tips[at].merge(tips[two % len(tips)])
    backend = tips[0].store.backend
    pieces = condense(backend.refs("s"), backend)
    everything = {entry.chunk.id for tip in tips for entry in tip.log(all=True)}
    assert sum(piece.count for piece in pieces) == len(everything)
    assert {piece.tip for piece in pieces} | {piece.first for piece in pieces} <= everything
    for piece in pieces:
        assert tuple(pieces[parent].tip for parent in piece.parents) == backend.chunk(piece.first).parents
    ordered = order(pieces)
    assert sorted(ordered) == list(range(len(pieces)))
    place = {number: row for row, number in enumerate(ordered)}
    assert all(place[parent] > place[n] for n, piece in enumerate(pieces) for parent in piece.parents)
    for glyphs in (UNICODE, ASCII):
        rows = draw(pieces, glyphs)
        assert [row.piece for row in rows if row.piece is not None] == ordered
        for above, below in pairwise(rows):
            assert connected(above.cells, below.cells, glyphs), (above, below)


@given(STEPS)
def test_chunks_of_all_branches_are_counted_once(steps: list[tuple[str, int, int]]) -> None:
    tips = [rb.open_store("memory:").create("s")]
    for number, (what, one, two) in enumerate(steps):
        at = one % len(tips)
        if what == "fork":
            tips.append(tips[at].fork(f"b{number}", at=tips[at][two % len(tips[at])].id))
        else:
            tips[at] = tips[at].append(said(str(number)))
    backend = tips[0].store.backend
    assert count(backend.refs("s"), backend) == (
        None if len(tips) > COUNTED else len({c.id for tip in tips for c in tip.chunks()})
    )


def test_ls_counts_all_branches_and_says_where_it_does_not(sqlite_url: str) -> None:
    with rb.open_store(sqlite_url) as store:
        s = store.create("few").append(said("a"), said("b"))
        s.fork("x", at=s[1].id).append(said("x"))
        many = store.create("many").append(said("a"))
        for number in range(COUNTED):
            many.fork(f"b{number}")
    rows = {row["name"]: row for row in json.loads(run("ls", "--json", store=sqlite_url).stdout)["sessions"]}
    assert [(rows[name]["chunks"], rows[name]["counted"]) for name in ("few", "many")] == [(5, "all"), (2, "main")]
    assert "2 on main" in run("ls", store=sqlite_url).stdout


def test_each_row_has_a_date(sqlite_url: str) -> None:
    with rb.open_store(sqlite_url) as store:
        s = store.create("s").append(said("a")._replace(at=1_700_000_000_000_000))
        s.fork("x").append(said("x")._replace(at=1_800_000_000_000_000))
    lines = run("graph", "s", store=sqlite_url).stdout.splitlines()
    assert [date for line in lines for date in ("2027-01-15 08:00", "2023-11-14 22:13") if date in line] == [
        "2027-01-15 08:00", "2023-11-14 22:13",
    ]  # fmt: skip
    assert [row["at"][:10] for row in json.loads(run("graph", "s", "--json", store=sqlite_url).stdout)["pieces"]] == [
        "2027-01-15",
        "2023-11-14",
    ]


def test_only_pieces_are_held() -> None:
    """A long line is one piece, and reading it keeps no more of it than a page or two."""
    s = rb.open_store("memory:").create("s").append(*(said(str(i)) for i in range(20_000)))
    s.fork("x", at=s[10_000].id).append(said("x"))
    refs, backend = s.store.backend.refs("s"), s.store.backend
    condense(refs, backend)
    tracemalloc.start()
    pieces = condense(refs, backend)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [piece.count for piece in pieces] == [10_001, 10_000, 2]
    assert peak < 8_000_000


def connected(above: tuple[tuple[str, int], ...], below: tuple[tuple[str, int], ...], glyphs: dict[str, str]) -> bool:
    """A rail begins at something that goes down."""
    down = {glyphs[name] for name in ("|", "node", "merge", "fork", "open", "meet")}
    chars = [char for char, _ in above]
    return all(at < len(chars) and chars[at] in down for at, (char, _) in enumerate(below) if char == glyphs["|"] and at % 2 == 0)


@pytest.mark.parametrize("length", [31, 32, 33, 4200])
def test_pages_meet_known_history_at_any_offset(length: int) -> None:
    s = rb.open_store("memory:").create("s").append(*(said(str(i)) for i in range(length)))
    s.fork("x", at=s[length // 2].id).append(said("x"))
    pieces = condense(s.store.backend.refs("s"), s.store.backend)
    assert sum(piece.count for piece in pieces) == length + 3
    assert len(pieces) == 3


@pytest.mark.parametrize(("columns", "told"), [(80, False), (120, True)])
def test_frameworks_leave_room_for_what_was_said(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, columns: int, told: bool
) -> None:
    with rb.open_store(sqlite_url) as store:
        origin = {"adapter": "rath_langgraph", "framework": "langgraph"}
        store.create("s").append(rb.draft(Message(role="user", parts=(TextPart("hello"),)), origin=origin))
    monkeypatch.setattr(face, "PIPE_WIDTH", columns)
    line = run("graph", "s", store=sqlite_url).stdout
    assert "user: hello" in line
    assert ("langgraph" in line) is told


def test_piped_tables_have_no_blanks_at_the_ends_of_their_lines(sqlite_url: str) -> None:
    with fill(sqlite_url):
        pass
    for verb in (("ls",), ("audit", "ticket-4711"), ("doctor",), ("adapters",)):
        lines = run(*verb, store=sqlite_url).stdout.splitlines()
        assert lines
        assert not [line for line in lines if line != line.rstrip()], verb
