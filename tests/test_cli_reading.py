"""ls, log, show, diff, blame, graph: what they print, in text and in JSON."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from hashlib import sha256

import pytest

import rath_bridge as rb
from rath_bridge.model.chunk import Native
from rath_bridge.model.encoding import TreeRef
from rath_bridge.model.kinds import Checkpoint, Gap, Inference, Message, Run, ToolCall, Unknown, Usage
from rath_bridge.model.parts import ToolCallResponsePart
from rath_bridge.model.trees import list_tree
from rath_bridge.verbs.words import body_words
from tests.cli_store import HOSTILE, TRIAGE, fill, run


@pytest.fixture
def url(sqlite_url: str) -> str:
    fill(sqlite_url).close()
    return sqlite_url


def test_ls_tells_branches_chunks_frameworks(url: str) -> None:
    lines = run("ls", store=url).stdout.splitlines()
    assert lines[0].split() == ["SESSION", "BRANCHES", "CHUNKS", "LAST", "PENDING", "FRAMEWORKS"]
    assert lines[2].startswith("ticket-4711")
    assert lines[2].rstrip().endswith("langgraph, openai_agents")
    assert "try-b" in run("ls", "ticket-4711", store=url).stdout


def test_ls_json(url: str) -> None:
    found = json.loads(run("ls", "--json", store=url).stdout)
    one = next(row for row in found["sessions"] if row["name"] == "ticket-4711")
    assert one["frameworks"] == ["langgraph", "openai_agents"]
    assert one["pending"] == 0
    assert {branch["name"] for branch in one["branches"]} == {"main", "try-b"}
    assert found["next_actions"] == [f"rath-bridge {what} copy --store {url}" for what in ("log", "graph", "fsck")]


def test_an_empty_store(sqlite_url: str) -> None:
    rb.open_store(sqlite_url).close()
    assert "No sessions" in run("ls", store=sqlite_url).stdout
    assert json.loads(run("ls", "--json", store=sqlite_url).stdout)["sessions"] == []
    assert run("fsck", store=sqlite_url).exit_code == 0


def test_a_pending_call_is_counted(sqlite_url: str) -> None:
    from rath_bridge.model.kinds import ToolCall

    with rb.open_store(sqlite_url) as store:
        store.create("s").append(rb.draft(ToolCall(name="pay", call_id="c1")))
    assert json.loads(run("ls", "--json", store=sqlite_url).stdout)["sessions"][0]["pending"] == 1


def test_log_is_newest_first(url: str) -> None:
    lines = run("log", "ticket-4711", store=url).stdout.splitlines()
    assert "note" in lines[0]
    assert "[main]" in lines[0]
    assert "ann: looks good" in lines[0]
    assert "created ticket-4711" in lines[-1]
    assert any("look_up(number=4711)" in line and "triage" in line for line in lines)
    assert any("120 in, 30 out" in line for line in lines)
    assert run("log", "ticket-4711", "-n", "2", store=url).stdout.splitlines() == lines[:2]
    assert run("log", "ticket-4711", "-n", "0", store=url).stdout == ""


@pytest.mark.parametrize("more", [(), ("--oneline",), ("--all",)])
def test_log_tells_the_number_of_each_chunk(url: str, more: tuple[str, ...]) -> None:
    """NAME:N, ``--until`` and ``overrides=`` take it."""
    for line in run("log", "ticket-4711", "--kind", "tool_call", *more, store=url).stdout.splitlines():
        digest, number = line.split()[:2]
        assert json.loads(run("show", f"ticket-4711:{number}", "--json", store=url).stdout)["id"].startswith(digest)


def test_log_of_one_run_by_name_and_id(url: str) -> None:
    by_name = run("log", "ticket-4711", "--run", "triage", "--oneline", store=url).stdout
    assert len(by_name.splitlines()) == 7
    assert by_name == run("log", "ticket-4711", "--run", TRIAGE[:6], "--oneline", store=url).stdout
    assert run("log", "ticket-4711", "--run", "nobody", store=url).stdout == ""


def test_log_all_holds_what_was_merged_in(url: str) -> None:
    assert "credit note" not in run("log", "ticket-4711", "-n", "1", store=url).stdout
    everything = json.loads(run("log", "ticket-4711", "--all", "--json", store=url).stdout)["chunks"]
    assert any(row["kind"] == "handoff" for row in everything)
    assert len({row["id"] for row in everything}) == len(everything)


def test_log_json_names_runs(url: str) -> None:
    found = json.loads(run("log", "ticket-4711", "--json", store=url).stdout)
    call = next(row for row in found["chunks"] if row["kind"] == "tool_call")
    assert (call["run"], call["run_name"], call["framework"]) == (TRIAGE, "triage", "langgraph")
    assert found["next_actions"][0].startswith("rath-bridge show ")
    again = json.loads(run("log", "ticket-4711", "--json", store=url).stdout)
    assert found == again


def test_show_by_number_digest_and_session(url: str) -> None:
    by_number = run("show", "ticket-4711:5", store=url).stdout
    digest = by_number.split()[1]
    assert run("show", digest[:8], store=url).stdout == by_number == run("show", digest.upper(), store=url).stdout
    assert "number: 4711" in by_number
    assert f"triage ({TRIAGE})" in by_number
    assert "looks good" in run("show", "ticket-4711", store=url).stdout
    assert run("show", "ticket-4711:-1", store=url).stdout == run("show", "ticket-4711", store=url).stdout
    assert "long long" in run("show", "ticket-4711:7", store=url).stdout


def test_raw_and_body_are_exact(url: str) -> None:
    with rb.open_store(url) as store:
        chunk = store.session("ticket-4711")[4]
    raw = run("show", "ticket-4711:4", "--raw", store=url).stdout_bytes
    assert hashlib.sha256(raw).hexdigest() == chunk.id
    body = run("show", "ticket-4711:4", "--body", store=url).stdout_bytes
    assert hashlib.sha256(body).hexdigest() == chunk.body_digest
    assert run("show", "ticket-4711:4", "--body", "--raw", store=url).exit_code == 2


def test_show_values_that_json_cannot_hold(sqlite_url: str) -> None:
    odd = {"big": 2**20000, "nan": float("nan"), "raw": b"\x00\xff", 1: True, "one": 1, "half": "\ud800", "none": None}
    with rb.open_store(sqlite_url) as store:
        native = Native("demo", "1", "json", b"{}")
        store.create("odd").append(
            rb.draft(Unknown(name="later.kind", fields={"x": odd})), rb.draft(Message(role="user"), native=native)
        )
    text = run("show", "odd:1", store=sqlite_url)
    assert text.exit_code == 0
    assert "later.kind" in text.stdout
    assert "one: 1\n" in text.stdout
    assert "\\ud800" in text.stdout
    assert json.loads(run("show", "odd:1", "--json", store=sqlite_url).stdout)["body"]["x"]["$rath"] == "map"
    assert "unknown kind: x=" in run("log", "odd", store=sqlite_url).stdout
    assert json.loads(run("show", "odd:2", "--json", store=sqlite_url).stdout)["native"]["codec"] == "json"


def test_diff_shows_base_sides_and_values(sqlite_url: str) -> None:
    with rb.open_store(sqlite_url) as store:
        s = store.create("s").append(rb.message("user", "same"))
        s.fork("b").append(rb.message("assistant", "the answer is five"), rb.message("user", "thanks"))
        s.append(rb.message("assistant", "the answer is four"))
    found = run("diff", "s", "s@b", store=sqlite_url)
    assert found.exit_code == 1
    assert "base" in found.stdout
    assert "user: same" in found.stdout
    assert "the answer is [-four-]{+five+}" in found.stdout
    assert "+ " in found.stdout.splitlines()[-1]
    assert found.stdout == run("diff", "s", "b", store=sqlite_url).stdout, "a branch of the same session goes by its name"
    by_chunk = run("diff", "s", "s@b", "--chunks", store=sqlite_url).stdout
    assert "body.parts[0].content" in by_chunk
    assert "the answer is [-four-]{+five+}" in by_chunk
    stat = run("diff", "--stat", "s", "s@b", store=sqlite_url)
    assert stat.exit_code == 1
    assert stat.stdout.splitlines()[-1].split() == ["message", "·", "1", "·", "1"]
    data = json.loads(run("diff", "s", "s@b", "--json", store=sqlite_url).stdout)
    assert data["differ"]
    assert data["a"]["name"] == "s"
    assert data["changes"][0]["theirs_value"] == "the answer is five"
    assert data["transcript"][0]["words"] == [["same", "the answer is "], ["removed", "four"], ["added", "five"]]
    assert data["spent"]["ours"]["messages"] == 1
    assert json.loads(run("diff", "s", "s@b", "--stat", "--json", store=sqlite_url).stdout)["sections"]["transcript"] == {
        "added": 1, "changed": 1,
    }  # fmt: skip
    same = run("diff", "s", "s", store=sqlite_url)
    assert same.exit_code == 0
    assert "No difference" in same.stdout


def test_diff_of_a_detached_copy_compares_whole(url: str) -> None:
    with rb.open_store(url) as store:
        store.session("ticket-4711").detach("twin")
    found = run("diff", "ticket-4711", "twin", store=url)
    assert "no shared history" in found.stdout


def test_blame(url: str) -> None:
    found = run("blame", "ticket-4711", "credit note", store=url)
    assert found.exit_code == 0
    assert "I write a credit note" in found.stdout
    assert run("blame", "ticket-4711", "never said", store=url).exit_code == 1
    assert run("blame", "ticket-4711", "", store=url).exit_code == 2
    assert json.loads(run("blame", "ticket-4711", "look_up", "--json", store=url).stdout)["found"][0]["runs"] == ["triage"]


@pytest.mark.parametrize("verb", ["log", "show", "graph", "blame", "diff"])
def test_hostile_text_is_shown_and_never_obeyed(sqlite_url: str, verb: str) -> None:
    with rb.open_store(sqlite_url) as store:
        s = store.create("s\u202ex")
        s.fork("b[red]").append(rb.message("user", "calm"))
        s.append(rb.message("user", HOSTILE, name=HOSTILE), rb.draft(Unknown(name="other", fields={"x": {HOSTILE: HOSTILE}})))
    args = {"blame": ["s\u202ex", "markup"], "diff": ["s\u202ex", "s\u202ex@b[red]"], "show": ["s\u202ex:1"]}.get(
        verb, ["s\u202ex"]
    )
    for extra in ([], ["--json"]):
        found = run(verb, *args, *extra, store=sqlite_url, env={"FORCE_COLOR": None})
        assert found.exit_code in (0, 1)
        assert not {c for c in found.stdout if not c.isprintable() and c != "\n"}
        assert extra or "[bold red]markup[/]" in found.stdout
    coloured = run(verb, *args, store=sqlite_url, env={"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "400"})
    assert "\x1b[2J" not in coloured.stdout
    assert "\x1b]" not in coloured.stdout
    assert "\x07" not in coloured.stdout
    assert "\u202e" not in coloured.stdout
    assert "\x9b" not in coloured.stdout


def test_colours_only_where_they_are_wanted(url: str) -> None:
    wanted = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "NO_COLOR": None}
    assert "\x1b[" in run("ls", store=url, env=wanted).stdout
    assert "\x1b[" not in run("ls", "--no-color", store=url, env=wanted).stdout
    assert "\x1b[" not in run("--no-color", "ls", store=url, env=wanted).stdout
    assert "\x1b[" not in run("ls", store=url, env={**wanted, "NO_COLOR": "1"}).stdout
    assert "\x1b[" not in run("ls", store=url, env={"FORCE_COLOR": None}).stdout


def test_nested_runs_come_along(sqlite_url: str) -> None:
    from rath_bridge.model.kinds import Run

    with rb.open_store(sqlite_url) as store:
        store.create("s").append(
            rb.draft(Run(phase="begin", name="team", type="team"), run="aaaa0000"),
            rb.draft(Run(phase="begin", name="agent", parent="aaaa0000"), run="bbbb0000"),
            rb.draft(Run(phase="begin", name="tool", parent="bbbb0000"), run="cccc0000"),
            rb.draft(Message(role="tool"), run="cccc0000"),
            rb.message("user", "outside"),
        )
    count = {
        name: len(run("log", "s", "--run", name, store=sqlite_url).stdout.splitlines())
        for name in ("team", "agent", "tool", "bbbb")
    }
    assert count == {"team": 4, "agent": 3, "tool": 2, "bbbb": 3}


def test_erased_content_is_named_and_cannot_be_compared() -> None:

    from rath_bridge.cli.comparing import INCOMPARABLE, status_of
    from rath_bridge.verbs.diff import Change, Diff
    from rath_bridge.verbs.words import summary

    chunk = rb.open_store("memory:").create("s").append(rb.message("user", "secret"))[-1]
    erased = replace(chunk, body_bytes=None, erased_digest=chunk.body_digest)
    assert erased.envelope == chunk.envelope
    assert summary(erased) == f"(erased, {chunk.size} B)"
    gone = Change(kind="changed", ours=chunk, theirs=erased, path="body.erased")
    assert status_of(Diff(None, changes=(gone,))) == INCOMPARABLE == 125
    assert status_of(Diff(None, changes=(gone, Change(kind="added", theirs=chunk)))) == 1
    assert status_of(Diff(None, changes=(Change(kind="same", ours=chunk, theirs=chunk),))) == 0


def test_every_kind_has_its_words() -> None:
    from rath_bridge.model import kinds
    from rath_bridge.model.parts import BlobPart, FilePart, GenericPart, ReasoningPart, ToolCallResponsePart, UriPart
    from rath_bridge.verbs.words import body_words

    parts = (ReasoningPart("hm"), ToolCallResponsePart("c", [1]), BlobPart("image", b"x" * 2000, "image/png"), FilePart("image", "f1"),
             UriPart("audio", "https://a.b"), GenericPart("server_tool_call"))  # fmt: skip
    words: list[tuple[kinds.Body, str]] = [
        (kinds.Message(role="assistant", name="ann", parts=parts),
         "assistant ann: (thinks) hm ← [1] [image/png, 2.0 kB] [image file f1] [audio https://a.b] [server_tool_call]"),
        (kinds.ToolResult(name="pay", status="error", error="no money"), "pay failed: no money"),
        (kinds.ToolResult(name="pay", status="no_response", reason="timeout"), "pay gave no response (timeout)"),
        (kinds.Inference(model="m", error="overloaded", finish_reasons=("length",)), "m · length · failed: overloaded"),
        (kinds.Handoff(from_agent="a", to_agent="b"), "a → b"),
        (kinds.Route(router="r", chosen=("a",), candidates=("a", "b"), reason="fits"), "r chose a of a, b: fits"),
        (kinds.Guardrail(name="pii", stage="input", triggered=True), "pii on input: triggered"),
        (kinds.Approval(phase="granted", by="ann", subject="pay"), "granted by ann: pay"),
        (kinds.Memory(op="recall", query="tax", items=(1, 2)), "recall tax: 2 items"),
        (kinds.Placement(backend="local", root="./ws"), "on local, ./ws"),
        (kinds.Workspace(), "0 files"),
        (kinds.Compaction(dropped=("a" * 64,), reason="trimmed", stands="b" * 64),
         "1 message dropped (trimmed), bbbbbbbb stands for them"),
        (kinds.Redaction(targets=("a",), reason="asked"), "1 chunk erased: asked"),
        (kinds.Gap(count=3, reason="spool full"), "3 events are not on record: spool full"),
        (kinds.Error(type="RateLimit", message="slow"), "RateLimit: slow"),
        (kinds.Span(name="GET", duration=0.25), "GET · 0.250 s"),
        (kinds.Note(text="hi", author="ann"), "ann: hi"),
        (kinds.Checkpoint(step=3, source="loop", namespace="sub"), "step 3, loop, in sub"),
        (kinds.Task(name="agent", writes=(1,)), "agent: 1 write"),
        (kinds.SessionStart(op="fork", name="s", branch="b", of="s"), "forked s@b from s"),
        (kinds.Run(phase="end", name="r", status="error", error="boom"), "r ends: error, boom"),
    ]  # fmt: skip
    for body, text in words:
        assert body_words(body) == text


def test_show_prints_the_prompt_of_a_model_call(sqlite_url: str) -> None:
    """Whatever a framework keeps it as; long messages are cut, and whole with --full and --json."""
    url = sqlite_url
    items = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": HOSTILE.replace("\ud800", "") + "long " * 200 + "end"},
    ]
    data = [json.dumps(item).encode() for item in items]
    tree, nodes = list_tree([sha256(one).digest() for one in data])
    held = {**nodes, **{sha256(one).hexdigest(): one for one in data}}
    with rb.open_store(url) as store:
        made = rb.draft(Inference(model="m-1", input=tree.ref), run=TRIAGE, objects=held)
        store.create("s").append(made, rb.draft(Inference(usage=Usage(input_tokens=3))))
    shown = run("show", "s:1", store=url).stdout
    assert "usage: not on record" in shown
    assert "- system: Be kind." in shown
    assert "long long" in shown
    assert "\x1b" not in shown
    assert "long end" not in shown
    assert "long end" in run("show", "s:1", "--full", store=url).stdout
    told = json.loads(run("show", "s:1", "--json", store=url).stdout)
    assert [one["role"] for one in told["prompt"]] == ["system", "user"]
    assert told["prompt"][1]["parts"][0]["content"].endswith("end")
    assert told["body"]["input"]["digest"] == tree.ref.digest
    assert "usage: 3 input tokens" in run("show", "s:2", store=url).stdout
    found = run("show", tree.ref.digest[:8], store=url).stdout
    assert "list of 2" in found
    assert "system: Be kind." in found
    one = sha256(data[0]).hexdigest()
    assert json.loads(run("show", one[:8], "--json", store=url).stdout)["value"] == items[0]
    assert run("show", one, "--raw", store=url).stdout_bytes == data[0]
    missing = run("show", "00000000", store=url)
    assert missing.exit_code == 2
    assert "no chunk, blob or tree begins with 00000000" in missing.stderr
    assert "fsck" not in missing.stderr


def test_log_json_holds_the_bodies(url: str) -> None:
    rows = json.loads(run("log", "ticket-4711", "--json", store=url).stdout)["chunks"]
    with rb.open_store(url) as store:
        bodies = {chunk.id: chunk.values for chunk in store.session("ticket-4711")}
    assert next(row["body"]["arguments"] for row in rows if row["kind"] == "tool_call") == {"number": 4711}
    assert all(row["body"].keys() == bodies[row["id"]].keys() for row in rows)


def test_chunks_and_messages_print_on_one_line() -> None:
    s = rb.open_store("memory:").create("s").append(rb.message("user", HOSTILE + "long " * 50))
    s = s.append(
        rb.draft(Message(role="tool", parts=(ToolCallResponsePart("c1", 1),))), rb.draft(Inference(model="m-1", agent="a"))
    )
    said = repr(s.messages()[0])
    assert said.startswith("Message(user: '")
    assert said.endswith(f"of chunk {s[1].id[:12]}")
    assert repr(s[1]).startswith(f"Chunk({s[1].id[:12]}, number 1, message, 'user: ")
    assert repr(s.messages()[1].body) == "Message(tool: 'tool_call_response')"
    assert repr(s[3]) == f"Chunk({s[3].id[:12]}, number 3, inference, 'm-1 a')"
    for one in (said, repr(s[1])):
        assert len(one) < 140
        assert one.isprintable()
    assert repr(replace(s[1], body_bytes=None, erased_digest=s[1].body_digest)).endswith("message, erased)")


def test_log_of_all_tells_the_branch_of_each_row(url: str) -> None:
    rows = json.loads(run("log", "ticket-4711", "--all", "--json", store=url).stdout)["chunks"]
    assert {row["branch"] for row in rows if row["run"] == TRIAGE} == {"main"}, "what both share is main's"
    forked = [row for row in rows if row["kind"] in ("handoff", "session") and "try-b" in (row["branch"], row["summary"])]
    assert {row["branch"] for row in forked} == {"try-b"}
    assert next(row["branch"] for row in rows if row["kind"] == "merge") == "main"
    handoff = run("log", "ticket-4711", "--all", "--kind", "handoff", store=url).stdout
    assert "  try-b " in handoff, "filters do not lose it"
    assert "branch" not in json.loads(run("log", "ticket-4711", "--json", store=url).stdout)["chunks"][0]


def test_what_a_merge_wrote_is_not_told_as_a_users_words(url: str) -> None:
    assert "  merge: [merged from" in run("log", "ticket-4711", store=url).stdout
    assert "user merge:" not in run("log", "ticket-4711", store=url).stdout


def test_graph_tells_a_row_by_what_people_know(sqlite_url: str) -> None:
    with rb.open_store(sqlite_url) as store:
        call = rb.draft(ToolCall(name="look_up", arguments={}, call_id="c1"))
        store.create("s").append(call, rb.draft(Run(phase="end", name="x", type="graph", status="ok")))
    assert run("graph", "s", store=sqlite_url).stdout.rstrip().endswith("look_up()")


def test_words_of_one_and_of_many() -> None:
    assert body_words(Checkpoint(state=TreeRef("a" * 64, 1, "map"))) == "1 channel"
    assert body_words(Gap(reason="x", count=1)) == "1 event is not on record: x"
    assert body_words(Gap(reason="x", count=2)) == "2 events are not on record: x"
