"""Trace exports in and home: what the SDK's exporters write, thin as it is, read without loss; damage is named by line and field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agents import RunConfig, trace
from agents.tracing import Span, Trace, TracingProcessor, add_trace_processor, custom_span, set_trace_processors
from agents.tracing.processors import BackendSpanExporter, BatchTraceProcessor
from hypothesis import given, settings
from hypothesis import strategies as st

import rath_bridge as rb
from rath_bridge.errors import DecodeError, RathError, UnsupportedError
from rath_bridge.interchange.reading import read
from tests.cli_store import run as cli
from tests.openai_agents.doubles import httpx
from tests.openai_agents.scripted import bodies, call, get_weather, go, said, say, solo, step, triage, whole
from tests.openai_agents.test_processor import real


class Exported(TracingProcessor):
    """Keeps what an exporter is handed, as ``BatchTraceProcessor`` does: traces as they start, spans as they end."""

    def __init__(self) -> None:
        self.entries: list[Any] = []

    def on_trace_start(self, trace: Trace) -> None:
        self.entries.append(json.loads(json.dumps(trace.export())))

    def on_trace_end(self, trace: Trace) -> None: ...

    def on_span_start(self, span: Span[Any]) -> None: ...

    def on_span_end(self, span: Span[Any]) -> None:
        self.entries.append(json.loads(json.dumps(span.export())))

    def shutdown(self) -> None: ...

    def force_flush(self) -> None: ...


@pytest.fixture
def exported() -> list[Any]:
    processor = Exported()
    add_trace_processor(processor)
    return processor.entries


def read_in(entries: Any, name: str = "s") -> rb.Session:
    return whole(rb.open_store("memory:").create(name).append(*rb.decode(entries)))


def lines(entries: list[Any]) -> str:
    return "".join(json.dumps(one) + "\n" for one in entries)


# ------------------------------------------------------------------ what it becomes


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
async def test_an_export_becomes_what_the_processor_records(exported: list[Any], streamed: bool) -> None:
    await go(triage(), streamed=streamed)
    s = read_in(exported)
    runs = [(body.name, body.type) for body in bodies(s, "run") if body.phase == "begin"]
    assert runs == [("Agent workflow", "workflow"), ("Triage", "agent"), ("Billing", "agent")]
    assert (s.usage().input_tokens, s.usage().output_tokens) == (30, 15)
    assert [(i.observer, i.agent) for i in bodies(s, "inference")] == [("span", "Triage")] * 2 + [("span", "Billing")]
    assert [(c.name, c.arguments, c.basis) for c in bodies(s, "tool_call")] == [("get_weather", {"city": "Oslo"}, "inferred")]
    assert [r.result for r in bodies(s, "tool_result")] == ["sunny in Oslo"]
    assert [(h.from_agent, h.to_agent) for h in bodies(s, "handoff")] == [("Triage", "Billing")]
    assert bodies(s, "run")[0].attributes["group_id"] == "g"
    assert [b.attributes["turn"] for b in bodies(s, "span") if b.name == "turn"] == [1, 2, 3]
    assert s.pending() == ()


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
async def test_what_a_chat_model_said_is_read(exported: list[Any], streamed: bool) -> None:
    await go(real("chat"), "weather?", streamed=streamed)
    s = read_in(exported)
    assert said(s) == [
        ("user", "weather?"), ("assistant", "get_weather#call_1"), ("tool", "=sunny in Oslo#call_1"), ("assistant", "hello"),
    ]  # fmt: skip
    first, last = bodies(s, "inference")
    assert (first.model, first.request["system"], first.input.count, last.input.count) == ("gpt-x", "sys!", 1, 3)
    assert s.usage().input_tokens == 22
    (called,) = bodies(s, "tool_call")
    assert (called.call_id, called.basis) == ("call_1", "inferred"), "paired by what the model asked for"


async def test_a_responses_export_says_that_it_holds_no_text(exported: list[Any]) -> None:
    await go(real("responses"), "weather?")
    s = read_in(exported)
    assert said(s) == []
    assert [(i.response_id, i.attributes["content"]) for i in bodies(s, "inference")] == [
        ("resp_1", "not exported"), ("resp_2", "not exported"),
    ]  # fmt: skip
    assert s.usage().input_tokens == 22


async def test_an_agent_used_as_a_tool_nests_and_its_tokens_count_once(exported: list[Any]) -> None:
    helper = solo([say("inner answer")])
    agent = solo([step(call("ask", {"input": "q"})), say("outer")], tools=[helper.as_tool("ask", "Ask.")])
    await go(agent)
    s = read_in(exported)
    begun = {body.name: (chunk.run, body.parent) for chunk in s if chunk.kind == "run" and (body := chunk.body).phase == "begin"}  # type: ignore[attr-defined]
    assert len([one for one in bodies(s, "run") if one.phase == "begin"]) == 4
    assert begun["Agent workflow"][1] is not None, "the inner one nests"
    assert (s.usage().input_tokens, len(bodies(s, "inference"))) == (30, 3)


async def test_errors_guardrails_and_unknown_types_are_kept(exported: list[Any]) -> None:
    with trace("manual", group_id="g", metadata={"tenant": "t1"}), custom_span("db", {"q": 1}) as span:
        span.set_error({"message": "boom", "data": {"x": 1}})
    odd = {**exported[1], "id": "span_odd", "span_data": {"type": "teleport", "to": ["Oslo"], "deep": {"x": 2**60}}}
    guard = {
        **exported[1],
        "id": "span_g",
        "error": None,
        "span_data": {"type": "guardrail", "name": "polite", "triggered": True},
    }
    entries = [*exported, odd, guard, {"object": "trace.note", "trace_id": exported[0]["id"], "text": "from a later SDK"}]
    s = read_in(entries)
    found = {b.name: b for b in bodies(s, "span")}
    assert (found["db"].status, found["db"].attributes["data"]) == ("error", {"q": 1})
    assert found["teleport"].attributes["deep"] == {"x": 2**60}
    assert [(g.name, g.triggered) for g in bodies(s, "guardrail")] == [("polite", True)]
    assert [n.text for n in bodies(s, "note")] == ["OpenAI Agents trace.note"]
    assert rb.encode(s, "openai_agents", "trace")[0] == entries


# ------------------------------------------------------------------ home


async def test_an_export_goes_home_entry_by_entry(exported: list[Any], store: rb.Store) -> None:
    for group in ("a", "b"):
        await go(triage(), group=group)
    s = store.create("s").append(*rb.decode(exported))
    home, report = rb.encode(s, "openai_agents", "trace")
    assert home == exported
    assert report.exact
    again = store.create("t").append(*rb.decode({"data": exported}))
    assert rb.encode(again, "openai_agents", "trace")[0] == exported
    with pytest.raises(UnsupportedError, match="no|not"):
        rb.encode(store.create("u"), "openai_agents", "trace")


NAMES = st.sampled_from(["span_a", "span_b", "span_c", "span_d"])
KINDS = st.sampled_from([
    {"type": "agent", "name": "A"}, {"type": "function", "name": "f", "input": "{}", "output": "1", "mcp_data": None},
    {"type": "custom", "name": "task", "data": {"sdk_span_type": "task", "name": "t"}}, {"type": "guardrail", "name": "g"},
    {"type": "custom", "name": "turn", "data": {"sdk_span_type": "turn", "turn": 1, "usage": {"input_tokens": 3, "output_tokens": 1}}},
    {"type": "generation", "input": [{"role": "user", "content": "hi"}], "output": [{"role": "assistant", "content": "yo"}]},
    {"type": "handoff", "from_agent": "A", "to_agent": None}, {"type": "response", "response_id": None, "usage": None},
    {"type": "speech", "input": "x"}, {"type": "mcp_tools", "server": "s", "result": ["add"]},
])  # fmt: skip
SPANS = st.builds(
    lambda name, parent, data, began: {
        "object": "trace.span", "id": name, "trace_id": "trace_1", "parent_id": parent, "started_at": began, "ended_at": None,
        "span_data": data, "error": None,
    },
    NAMES, st.none() | NAMES, KINDS, st.none() | st.sampled_from(["2026-11-29T16:03:56.455444+00:00", "2026-11-29T16:03:57+00:00"]),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(SPANS, min_size=1, max_size=8))
def test_any_tree_and_any_circle_is_read_whole(entries: list[Any]) -> None:
    """Parents that are missing, repeated ids, circles: every entry stands once, and goes home."""
    s = rb.open_store("memory:").create("s").append(*rb.decode(entries))
    assert s.fsck() == []
    assert rb.encode(s, "openai_agents", "trace")[0] == entries
    begun = [c.run for c in s if c.kind == "run" and c.body.phase == "begin"]  # type: ignore[attr-defined]
    ended = [c.run for c in s if c.kind == "run" and c.body.phase == "end"]  # type: ignore[attr-defined]
    assert sorted(map(str, begun)) == sorted(map(str, ended))


# ------------------------------------------------------------------ files


async def test_files_are_imported_by_content_and_by_name(exported: list[Any], tmp_path: Path) -> None:
    for group in ("one", "two"):
        await go(triage(), group=group)
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    (tmp_path / "list.json").write_text(json.dumps(exported))
    (tmp_path / "lines.jsonl").write_text(lines(exported))
    (tmp_path / "posted.json").write_text(json.dumps({"data": exported}))
    done = cli("import", str(tmp_path / "list.json"), store=url)
    assert done.exit_code == 0, done.output
    with rb.open_store(url) as store:
        assert {s.name for s in store.sessions()} == {"openai_agents/one", "openai_agents/two"}
        assert whole(store.session("openai_agents/one")).usage().input_tokens == 30
    for name in ("lines.jsonl", "posted.json"):
        again = cli("import", "--from", "openai_agents", str(tmp_path / name), store=url)
        assert (again.exit_code, "2 unchanged" in again.output) == (0, True), again.output


async def test_what_the_sdks_own_exporter_posts_is_read(tmp_path: Path) -> None:
    """openai-agents-python issues 2444, 2518: keys of usage that the backend refuses are no trouble here."""
    posted: list[Any] = []

    def answer(request: Any) -> Any:
        posted.append(json.loads(request.content))
        return httpx.Response(200)

    exporter = BackendSpanExporter(api_key="test", endpoint="http://mock.invalid/ingest")
    exporter._client = httpx.Client(transport=httpx.MockTransport(answer))
    batch = BatchTraceProcessor(exporter)
    set_trace_processors([batch])
    await go(real("chat"), "weather?", run_config=RunConfig(group_id="g", trace_metadata={"tenant": "t1"}))
    batch.force_flush()
    batch.shutdown()
    (document,) = read(lines(posted).encode(), "posted.jsonl")
    assert (document.format.name, document.native_id) == ("openai_agents", "g")
    s = read_in(document.obj)
    assert said(s)[-1] == ("assistant", "hello")
    assert s.usage().input_tokens == 22
    assert bodies(s, "run")[0].attributes["metadata"] == {"tenant": "t1"}


DAMAGE: list[tuple[str, Any, str]] = [
    ("trace_id", 7, "trace_id"), ("id", None, "id"), ("span_data", [], "span_data"), ("started_at", "noon", "started_at"),
    ("span_data", {"kind": "x"}, "span_data.type"), ("error", "boom", "error"), ("object", 1, "object"),
    ("span_data", {"type": "generation", "input": "hi"}, "span_data.input"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value", "path"), DAMAGE, ids=[f"{path}={value!r:.12}" for _, value, path in DAMAGE])
async def test_damage_is_named_by_line_and_field(exported: list[Any], field: str, value: Any, path: str) -> None:
    await go(solo([say("hello")], tools=[get_weather]))
    exported[2] = {**exported[2], field: value}

    def decoded() -> list[Any]:
        return [document.decode() for document in read(lines(exported).encode(), "trace.jsonl", "openai_agents")]

    with pytest.raises(DecodeError) as caught:
        decoded()
    assert str(caught.value).startswith("cannot read trace.jsonl:3 ")
    assert caught.value.path.endswith(path)


def test_a_damaged_file_of_the_cli_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    file = tmp_path / "trace.jsonl"
    good = {"object": "trace", "id": "trace_1", "workflow_name": "w"}
    file.write_text(json.dumps(good) + '\n{"object": "trace.span", "id": "s", "trace_id"\n' + json.dumps(good) + "\n")
    done = cli("import", "--from", "openai-agents", str(file), store=url)
    assert done.exit_code == 3
    assert "trace.jsonl:2" in done.output
    with rb.open_store(url) as store:
        assert list(store.sessions()) == []


def test_items_and_states_are_files_too(tmp_path: Path) -> None:
    items = [
        {"role": "user", "content": "hi"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yo"}]},
    ]
    (document,) = read(json.dumps(items).encode(), "items.json", "openai_agents")
    s = rb.open_store("memory:").create("s").append(*document.decode())
    home, _ = document.format.encode(s)
    assert json.loads(document.format.dumps(home)) == items
    (found,) = read(json.dumps(items[:1]).encode(), "chat.json")
    assert found.format.name != "openai_agents", "the formats of the core are asked first"


def test_whatever_stands_there_never_ends_in_a_crash() -> None:
    base = {
        "object": "trace.span",
        "id": "s",
        "trace_id": "t",
        "span_data": {"type": "function", "name": "f", "input": "{", "output": [1]},
    }
    for odd in (
        None,
        7,
        "x",
        [],
        [[]],
        {},
        {"data": 1},
        [{"data": [1]}],
        {**base, "span_data": {**base["span_data"], "mcp_data": 3}},
    ):
        try:
            rb.decode([base, odd])
        except RathError:
            continue
