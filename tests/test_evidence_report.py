"""``report.html``: one page, nothing executed, nothing fetched, agents' text inert; looked at in a real browser."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import rath_bridge as rb
from rath_bridge.evidence import Claim, claim_draft
from rath_bridge.evidence.page import text
from rath_bridge.model.kinds import Error, Handoff, Inference, Message, Note, Run, ToolCall, ToolResult
from rath_bridge.model.parts import TextPart, ToolCallPart, ToolCallResponsePart
from tests.browser import look_at, needs_browser
from tests.cli_store import HOSTILE, fill
from tests.rich_session import rich_session
from tests.test_evidence_packet import contents

EVIL = "</style></title><script>alert(1)</script><img src=http://192.0.2.1/x onerror=alert(2)>\"'--> " + HOSTILE
TAGS = frozenset({
    "html", "head", "meta", "title", "style", "body", "main", "header", "section", "h1", "h2", "h3", "p", "div", "span", "b", "s", "br",
    "ul", "li", "table", "tr", "th", "td", "code", "pre", "a", "label", "input", "svg", "path", "circle", "text", "footer",
})  # fmt: skip


class Strict(HTMLParser):
    """Collects what a page consists of."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: set[str] = set()
        self.names: set[str] = set()
        self.ids: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}
        self.links |= {value or "" for name, value in attrs if name in ("href", "src", "action", "data", "srcset", "xlink:href")}
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in ("meta", "br", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("path", "circle"):
            while self.open and self.open[-1] in ("path", "circle"):
                self.open.pop()
            assert self.open.pop() == tag


def page(packet: Path) -> str:
    return contents(packet)["report.html"].decode()


def parsed(html: str) -> Strict:
    found = Strict()
    found.feed(html)
    found.close()
    assert found.open == []
    return found


def hostile(store: rb.Store) -> rb.Session:
    """Every place in which foreign text can stand, with text that wants out."""
    evil = EVIL.replace("\ud800", "")
    s = store.create("evil/<b>x</b>&\"'").append(
        rb.draft(
            Run(phase="begin", name=evil, type=evil),
            run="r1",
            origin={"adapter": evil[:80], "framework": evil[:80], "version": evil[:40]},
        ),
        rb.draft(Message(role=evil, name=evil, parts=(TextPart(EVIL * 30), ToolCallPart(evil, evil, {evil: evil}))), run="r1"),
        rb.draft(Message(role="assistant", parts=(TextPart(EVIL),)), run="r1"),
        rb.draft(Inference(model=evil, agent=evil), run="r1"),
        rb.draft(ToolCall(name=evil, call_id=evil, arguments={evil: evil}), run="r1"),
        rb.draft(ToolResult(name=evil, call_id=evil, status="error", error=evil), run="r1"),
        rb.draft(Handoff(from_agent=evil, to_agent=evil), run="r1"),
        rb.draft(Error(type=evil, message=evil), run="r1"),
        rb.draft(Note(text=evil, author=evil)),
    )
    s = s.fork("x<script>").append(rb.message("user", EVIL))
    return store.session("evil/<b>x</b>&\"'").merge(s).append(
        claim_draft(Claim(id=evil[:90], sentence=evil, status="supported", by=evil, command=evil, precondition=evil))
    )  # fmt: skip


def test_text_from_agents_stays_text(tmp_path: Path) -> None:
    packet = rb.export_packet(hostile(rb.open_store("memory:")), tmp_path / "p")
    assert rb.verify_packet(packet).ok
    html = page(packet)
    found = parsed(html)
    assert found.tags <= TAGS
    assert all(link.startswith("#") for link in found.links)
    assert not any(name.startswith("on") for name in found.names)
    assert "default-src 'none'" in html
    assert not any(char in html for char in "\x00\x07\x1b\x9b\u202e\u2066\U000e0041")
    assert "alert(1)" in html  # it is there, as text
    assert len(html) < 400_000
    for name in ("VERIFY.md",):
        assert "<script>" not in contents(packet)[name].decode().replace("\\<script\\>", "")


def test_what_a_person_finds_on_it(tmp_path: Path) -> None:
    memory, other = rb.open_store("memory:"), rb.open_store(f"sqlite:///{tmp_path}/s.db")
    with fill(f"sqlite:///{tmp_path}/s.db"), other:
        s = other.session("ticket-4711")
        s = s.append(
            claim_draft(Claim(id="looked", sentence="It was looked up.", status="supported", evidence=(s[5].id,), by="ann"))
        )
        packet = rb.export_packet([s, rich_session(memory, "second")], tmp_path / "p")
        html = page(packet)
        for words in (
            "2 sessions", "ticket-4711", "second", "m-1", "triage", "rath_langgraph (langgraph 1.0)", "It was looked up.", "says ann",
            "My invoice 4711 is wrong", "Lines, forks and merges", "ticket-4711@try-b", "Which effects are unconfirmed?", s.head,
            "Blind spots", "sha256sum --check --strict", "raw threading.Thread", "1 hold as made",
        ):  # fmt: skip
            assert words in html, words
        found = parsed(html)
        assert {link[1:] for link in found.links} <= set(found.ids)
        assert len(found.ids) == len(set(found.ids))
        assert page(rb.export_packet([s, memory.session("second")], tmp_path / "q")) == html


def test_what_failed_is_seen_what_is_linked_can_be_seen_and_machinery_waits(tmp_path: Path) -> None:
    mcp = {"adapter": "rath_mcp", "framework": "mcp", "version": "1"}
    said = {"content": [{"type": "text", "content": "the bank refused"}], "isError": True}
    s = rb.open_store("memory:").create("s").append(
        rb.draft(Note(text="mcp: tools/list"), origin=mcp),
        rb.draft(Note(text="a person's remark", author="ann")),
        rb.draft(ToolCall(name="find", call_id="c1")),
        rb.draft(ToolResult(name="find", call_id="c1", result={"content": [{"type": "text", "content": "three rows"}]})),
        rb.draft(ToolCall(name="refund", call_id="c2")),
        rb.draft(ToolResult(name="refund", call_id="c2", status="error", result=said)),
        rb.draft(Run(phase="begin", name="1", type="thread"), run="t1"),
        rb.draft(Message(role="assistant", parts=(TextPart("Done."),)), run="t1"),
    )  # fmt: skip
    html = page(rb.export_packet(s, tmp_path / "p"))
    assert html.count('class="row tool_result failed ') == 1
    assert "find ← three rows" in html
    assert html.count('class="row note minor ') == html.count('class="row note l0') == 1
    assert ".row.minor:target{display:grid}" in html  # a link to machinery shows it
    assert "<b>assistant</b>message" in html
    assert 'href="#heads"' in html  # it is not signed


def test_rows_of_one_second_are_told_apart_and_calls_stand_once(tmp_path: Path) -> None:
    at = 1_796_000_000_000_000
    asks, unknown = (Message(role="assistant", parts=(ToolCallPart(name, "find", {}),)) for name in ("c1", "c2"))
    s = rb.open_store("memory:").create("s").append(
        rb.draft(asks, at=at + 1_000),
        rb.draft(ToolCall(name="find", call_id="c1"), at=at + 2_000),
        rb.draft(ToolResult(name="find", call_id="c1", result=3), at=at + 5_000_000),
        rb.draft(Message(role="tool", parts=(ToolCallResponsePart("c1", 3),)), at=at + 7_000_000),
        rb.draft(unknown, at=at + 9_000_000),
    )  # fmt: skip
    html = page(rb.export_packet(s, tmp_path / "p"))
    clocks = re.findall(r'<span class="at">([^<]*)</span>', html)
    assert [len(clock) for clock in clocks[1:]] == [12, 12, 8, 8, 8]
    assert clocks[1].endswith(".001")
    assert html.count('class="row message minor ') == 2, "what only a message tells is seen"
    assert html.count('class="row message l0') == 1
    assert f'<a class="id" href="#c{s.head[:16]}">{s.head[:8]}</a></div>' in html


def test_a_long_session_is_cut_and_says_so(tmp_path: Path) -> None:
    s = rb.open_store("memory:").create("long").append(*[rb.message("user", f"message {n}") for n in range(2000)])
    html = page(rb.export_packet(s, tmp_path / "p"))
    assert "801 events between are not shown here" in html
    for shown, number in ((True, 0), (True, 1999), (False, 1000)):
        assert (f">message {number}<" in html) is shown
    assert len(html) < 1_000_000


@pytest.mark.parametrize("value", ["a\u202eb", "<b>&\"'", "a\x1b[2J", "\x00", "x" * 1000, "a\nb"])
def test_text_is_inert(value: str) -> None:
    shown = text(value)
    assert not any(char in shown for char in "<>\"'\x1b\x00\u202e")
    assert len(shown) <= 401 * 6


@needs_browser
def test_a_browser_shows_it_without_an_error_or_a_request(tmp_path: Path) -> None:
    packet = rb.export_packet(hostile(rb.open_store("memory:")), tmp_path / "p")
    found = look_at(packet / "report.html", tmp_path)
    assert "CONSOLE" not in found.said
    assert found.picture.stat().st_size > 20_000
    assert "192.0.2.1" not in found.network
