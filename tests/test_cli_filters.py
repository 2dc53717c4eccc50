"""log, show, graph with what a person asks for: kind, agent, tool, framework, time, words, branch; a page at a time."""

from __future__ import annotations

import json
import os
import pty
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import rath_bridge as rb
from rath_bridge.cli.filtering import moment
from rath_bridge.model.kinds import Message, Run, ToolCall, ToolResult
from rath_bridge.model.parts import TextPart
from rath_bridge.verbs.matching import Filter, Matcher
from tests.cli_store import fill, run
from tests.rich_session import LONG
from tests.waiting import started


@pytest.fixture
def url(sqlite_url: str) -> str:
    fill(sqlite_url).close()
    return sqlite_url


def kinds(url: str, *args: str) -> list[str]:
    found = json.loads(run("log", "ticket-4711", *args, "--json", store=url).stdout)
    return [row["kind"] for row in found["chunks"]]


def test_log_by_kind_tool_agent_and_framework(url: str) -> None:
    everything = kinds(url)
    assert kinds(url, "--kind", "message") == [kind for kind in everything if kind == "message"]
    assert set(kinds(url, "--kind", "run", "--kind", "NOTE")) == {"run", "note"}
    assert set(kinds(url, "--tool", "look_up")) == {"message", "tool_call", "tool_result"}
    assert kinds(url, "--tool", "look_up", "--kind", "tool_call") == ["tool_call"]
    assert len(kinds(url, "--agent", "triage")) == len(kinds(url, "--run", "triage"))
    assert set(kinds(url, "--framework", "langgraph")) <= set(everything)
    assert kinds(url, "--framework", "openai-agents", "--all")
    assert kinds(url, "--framework", "nobody") == []


def test_log_by_words_and_time(url: str) -> None:
    assert kinds(url, "--grep", "INVOICE 4711") == []
    assert kinds(url, "--grep", "invoice 4711")[-1] == "message"
    assert kinds(url, "--grep", r"inv\w+ 47\d+")[-1] == "message"
    assert len(kinds(url, "--since", "1h")) == len(kinds(url))
    assert kinds(url, "--since", "2999-01-01") == []
    for bad in (["--grep", "("], ["--since", "yesterday-ish"], ["--kind", "mesage"]):
        found = run("log", "ticket-4711", *bad, store=url)
        assert found.exit_code == 2
    assert "did you mean 'message'?" in run("log", "ticket-4711", "--kind", "mesage", store=url).output


def test_times_of_people() -> None:
    assert moment("2026-11-29T10:00") - moment("2026-11-29") == 36_000_000_000
    assert moment("2026-11-29T10:00+02:00") == moment("2026-11-29T08:00")
    assert abs(moment("1h") - moment("60m")) < 1_000_000


def test_log_page_by_page(url: str) -> None:
    whole = json.loads(run("log", "ticket-4711", "--json", store=url).stdout)["chunks"]
    for extra in ([], ["--all"]):
        whole = json.loads(run("log", "ticket-4711", *extra, "--json", store=url).stdout)["chunks"]
        rows: list[Any] = []
        args = ["-n", "3"]
        while True:
            page = json.loads(run("log", "ticket-4711", *extra, *args, "--json", store=url).stdout)
            rows += page["chunks"]
            more = [hint for hint in page["next_actions"] if "--before" in hint]
            if not more:
                break
            before = re.search(r"--before (\w+)", more[0])
            assert before
            args = ["-n", "3", "--before", before[1]]
        assert rows == whole


def test_a_branch_by_its_name(url: str) -> None:
    assert run("log", "ticket-4711", "--branch", "try-b", store=url).stdout == run("log", "ticket-4711@try-b", store=url).stdout
    assert run("show", "ticket-4711", "--branch", "try-b", store=url).stdout == run("show", "ticket-4711@try-b", store=url).stdout
    assert (
        run("graph", "ticket-4711", "--branch", "try-b", store=url).stdout == run("graph", "ticket-4711@try-b", store=url).stdout
    )
    assert run("log", "ticket-4711@try-b", "--branch", "x", store=url).exit_code == 2
    assert run("log", "ticket-4711", "--branch", "none", store=url).exit_code == 2
    merged = run("merge", "ticket-4711", "try-b", store=url)
    assert (merged.exit_code, "holds ticket-4711@try-b already" in merged.stdout) == (0, True)


def test_show_every_chunk_that_fits(url: str) -> None:
    found = run("show", "ticket-4711", "--tool", "look_up", store=url).stdout
    assert found.count("\nkind ") == len(kinds(url, "--tool", "look_up"))
    assert "number: 4711" in found
    data = json.loads(run("show", "ticket-4711", "--kind", "tool_call", "-n", "1", "--json", store=url).stdout)
    assert [row["body"]["name"] for row in data["chunks"]] == ["look_up"]
    assert run("show", "ticket-4711", "--kind", "message", "--raw", store=url).exit_code == 2


def test_graph_counts_what_fits_and_draws_the_rest(url: str) -> None:
    plain = run("graph", "ticket-4711", "--ascii", store=url).stdout.splitlines()
    found = run("graph", "ticket-4711", "--ascii", "--tool", "look_up", store=url).stdout.splitlines()
    assert len(found) == len(plain), "the shape stays"
    assert any("look_up" in line for line in found)
    rows = json.loads(run("graph", "ticket-4711", "--tool", "look_up", "--json", store=url).stdout)["pieces"]
    assert sum(row["matched"] for row in rows) == len(kinds(url, "--tool", "look_up", "--all"))


def test_graph_of_all_sessions_that_share_a_history(url: str) -> None:
    with rb.open_store(url) as store:
        store.session("ticket-4711").fork(session="other")
    assert "other" not in run("graph", "ticket-4711", store=url).stdout
    assert "[other]" in run("graph", "ticket-4711", "--all", store=url).stdout
    assert "[copy]" not in run("graph", "ticket-4711", "--all", store=url).stdout, "a detached copy has a root of its own"


def test_a_filter_looks_into_long_texts_and_knows_what_was_erased() -> None:
    from dataclasses import replace

    s = rb.open_store("memory:").create("s").append(rb.message("user", LONG), rb.message("user", "half \ud800"))
    found = Matcher(Filter(grep=re.compile("quarterly")), s.store.backend.objects)
    assert [chunk.position for chunk in found.of(s)] == [1]
    erased = replace(s[1], body_bytes=None, erased_digest=s[1].body_digest)
    assert not found(erased)
    assert Matcher(Filter(kinds=frozenset(["message"])), s.store.backend.objects)(erased)
    assert not Filter()


def test_who_counts_as_an_agent() -> None:
    s = (
        rb.open_store("memory:")
        .create("s")
        .append(
            rb.draft(Run(phase="begin", name="Writer", type="agent"), run="r"),
            rb.draft(Message(role="assistant", parts=(TextPart("x"),)), run="r"),
            rb.draft(Message(role="assistant", name="editor", parts=(TextPart("x"),)), run="r"),
            rb.draft(ToolCall(name="pay", agent="editor", call_id="c"), run="r"),
            rb.draft(ToolResult(name="pay", call_id="c"), run="r"),
        )
    )
    from rath_bridge.cli.runs import RunNames

    backend = s.store.backend
    by = {name: Matcher(Filter(agents=frozenset([name])), backend.objects, RunNames(backend).of) for name in ("writer", "editor")}
    assert [chunk.position for chunk in by["writer"].of(s)] == [1, 2, 3, 4, 5]
    assert [chunk.position for chunk in by["editor"].of(s)] == [3, 4]


def test_a_terminal_gets_a_pager(url: str, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    pager = f'{sys.executable} -c \'import sys; open("{seen}", "w").write(sys.stdin.read())\''
    environment = {**os.environ, "RATH_BRIDGE_PAGER": pager, "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "200"}
    end, terminal = pty.openpty()
    command = [sys.executable, "-m", "rath_bridge", "log", "ticket-4711", "--store", url]
    with started(command, env=environment, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True) as running:
        os.close(terminal)
        with suppress(OSError):  # Linux: the other side is gone
            while os.read(end, 65_536):
                pass
        assert running.wait(60) == 0
    os.close(end)
    assert "created ticket-4711" in seen.read_text()


def test_export_names_its_formats_and_doctor_names_fsck(url: str) -> None:
    from rath_bridge.interchange.formats import OURS

    text = " ".join(run("export", "--help").stdout.split())
    assert all(name in text for name in OURS)
    assert "rath-bridge fsck checks what it holds" in " ".join(run("doctor", store=url).stdout.split())
