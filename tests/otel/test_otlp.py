"""OTLP files in and out: two vocabularies, old and new names, JSON and protobuf, and damage."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import rath_bridge as rb
from rath_bridge.errors import DecodeError, RathError
from rath_bridge.interchange import documents, format_named, format_of, otlp
from rath_bridge.interchange.importing import import_document
from rath_bridge.interchange.otlp_wire import from_protobuf, to_protobuf
from rath_bridge.interchange.reading import read
from rath_bridge.model.kinds import Body, Inference, Usage
from rath_bridge.otel import names
from rath_bridge.otel.vocabulary import read as read_span
from rath_bridge.testing.strategies import session_of, transcripts
from rath_bridge.verbs.replay_form import replay_form
from tests.otel.otlp_made import conversation, document, protobuf, traced
from tests.otel.traced import scripted


def imported(obj: Any) -> rb.Session:
    return rb.open_store("memory:").create("x").append(*otlp.decode(obj))


# ------------------------------------------------------------------ two vocabularies


def test_the_same_work_in_two_vocabularies_gives_the_same_chunks() -> None:
    ours, theirs = (imported(document(traced(conversation(words)))) for words in ("genai", "openinference"))
    assert replay_form(ours) == replay_form(theirs)
    assert [chunk.kind for chunk in ours] == [chunk.kind for chunk in theirs]
    assert [(m.role, m.parts) for m in ours.messages()] == [(m.role, m.parts) for m in theirs.messages()]


@pytest.mark.parametrize("words", ["genai", "openinference"])
def test_one_message_once_one_call_once(words: str) -> None:
    s = imported(document(traced(conversation(words))))
    assert [m.role for m in s.messages()] == ["system", "user", "assistant", "tool", "assistant", "user", "assistant"]
    assert s.messages()[-2].text == "yes"
    (call,) = s.calls()
    assert (call.call_id, call.status, call.asked is not None, call.result is not None) == ("c1", "ok", True, True)
    assert s.usage() == Usage(
        input_tokens=60, output_tokens=18, cache_read_input_tokens=9, cache_creation_input_tokens=6, reasoning_output_tokens=3
    )
    assert s.fsck() == []


def test_every_rename_is_read_from_both_sides() -> None:
    made = {names.OPERATION: "chat", names.REQUEST_MODEL: "m"}
    values: dict[str, Any] = {
        names.INPUT_MESSAGES: '[{"role":"user","parts":[]}]', names.OUTPUT_MESSAGES: '[{"role":"assistant","parts":[]}]',
        names.TOOL_DEFINITIONS: '[{"name":"t"}]', names.FINISH_REASONS: ["stop"],
    }  # fmt: skip
    for name, others in names.RENAMES.items():
        value = values.get(name, 7 if "tokens" in name or name in (names.REQUEST["seed"], names.REQUEST["choice_count"]) else "x")
        told = read_span({**made, name: value}, "chat m")
        for other in others:
            assert read_span({**made, other: value}, "chat m") == told, other


def test_older_instrumentations() -> None:
    flat = {"llm.request.type": "chat", "gen_ai.system": "openai", "gen_ai.request.model": "m", "gen_ai.usage.prompt_tokens": 4,
            "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "hi", "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": "hello", "gen_ai.completion.0.finish_reason": "stop"}  # fmt: skip
    told = read_span(flat, "openai.chat")
    assert told is not None
    assert [(one.role, one.json["parts"]) for one in (*told.given, *told.said)] == [
        ("user", [{"type": "text", "content": "hi"}]), ("assistant", [{"type": "text", "content": "hello"}])
    ]  # fmt: skip
    assert (told.provider, told.finish_reasons, told.usage) == ("openai", ("stop",), Usage(input_tokens=4))
    events = [
        ("gen_ai.user.message", {"content": "hi"}),
        ("gen_ai.choice", {"finish_reason": "stop", "message": '{"role":"assistant","content":"hello"}'}),
    ]  # fmt: skip
    by_events = read_span({"gen_ai.system": "openai", "gen_ai.request.model": "m"}, "chat m", events)
    assert by_events is not None
    assert (by_events.given, [one.json for one in by_events.said]) == (told.given, [one.json for one in told.said])
    workflow = read_span({"traceloop.span.kind": "workflow", "traceloop.entity.name": "pipeline"}, "pipeline.workflow")
    assert workflow is not None
    assert (workflow.name, workflow.subject) == ("invoke_workflow", "pipeline")


def test_two_observers_of_one_call_are_counted_once() -> None:
    inner = {
        "name": "openai.chat",
        "attributes": {"llm.request.type": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 9},
    }
    outer = {"name": "ChatOpenAI", "attributes": {"openinference.span.kind": "LLM", "llm.model_name": "m"}, "children": [inner]}
    s = imported(document(traced([outer])))
    assert [chunk.kind for chunk in s][1:] == ["span", "inference"]
    assert s.usage() == Usage(input_tokens=9)


def test_a_workflow_without_model_calls_says_what_it_was_asked() -> None:
    chain = {"openinference.span.kind": "CHAIN", "input.value": "2+2?", "output.value": '{"answer": 4}'}
    s = imported(document(traced([{"name": "sum", "attributes": chain}])))
    assert [(m.role, m.text, m.body.basis) for m in s.messages()] == [
        ("user", "2+2?", "inferred"),
        ("assistant", '{"answer":4}', "inferred"),
    ]


def test_calls_below_a_chain_feed_the_transcript() -> None:
    chain = {"openinference.span.kind": "CHAIN"}
    node = {"name": "node", "attributes": chain, "children": conversation("openinference")[0]["children"]}
    tree = [{"name": "LangGraph", "attributes": {**chain, "input.value": "{}"}, "children": [node]}]
    assert [m.role for m in imported(document(traced(tree))).messages()][:4] == ["system", "user", "assistant", "tool"]


def test_foreign_spans_stay_and_keep_their_place() -> None:
    tree = [{"name": "GET /", "attributes": {"http.request.method": "GET"}, "children": conversation("genai")}]
    s = imported(document(traced(tree)))
    chunk = next(chunk for chunk in s if chunk.kind == "span")
    run = next(chunk for chunk in s if chunk.kind == "run")
    assert chunk.span is not None
    assert run.span is not None
    assert run.span.parent_id == chunk.span.span_id


# ------------------------------------------------------------------ home


@pytest.mark.parametrize("words", ["genai", "openinference"])
def test_a_file_goes_home_exactly(words: str, store_url: str) -> None:
    spans = traced([*conversation(words), {"name": "other", "attributes": {"a": [1, 2], "b": True, "c": 0.5}}])
    plain, packed = document(spans), protobuf(spans)
    store = rb.open_store(store_url)
    back, report = otlp.encode(store.create("a").append(*otlp.decode(plain)))
    assert back == plain
    assert report.exact
    found = otlp.loads(packed)
    back, report = otlp.encode(store.create("b").append(*otlp.decode(packed)))
    assert back == found
    assert ExportTraceServiceRequest.FromString(otlp.dumps_protobuf(back)) == ExportTraceServiceRequest.FromString(packed)
    store.close()


def test_lines_of_a_file_exporter_go_home_as_lines() -> None:
    many = [document(traced(conversation("genai"))), document(traced(conversation("openinference")))]
    back, _ = otlp.encode(imported(many))
    assert back == many
    assert [json.loads(line) for line in otlp.dumps(back).splitlines()] == many


def test_what_goes_out_comes_in_again() -> None:
    first = scripted(rb.open_store("memory:"))
    out, report = otlp.encode(first)
    assert report.exact
    again = imported(out)
    kinds = [chunk.kind for chunk in again]
    assert kinds.count("run") == 4
    assert {"inference", "tool_call", "tool_result", "guardrail", "memory", "handoff", "message"} <= set(kinds)
    assert again.usage() == first.usage()
    assert otlp.encode(again)[0] == out
    request = ExportTraceServiceRequest.FromString(otlp.dumps_protobuf(out))
    assert len(request.resource_spans[0].scope_spans[0].spans) == 9


@settings(max_examples=25)
@given(bodies=transcripts(odd_text=True))
def test_away_is_honest(bodies: tuple[Body, ...]) -> None:
    """A message that no model call read or said is named; nothing else is lost."""
    session = session_of(bodies)
    out, report = otlp.encode(session)
    assert {loss.path for loss in report.losses} <= {"parts"}
    messages = {chunk.id for chunk in session if chunk.kind == "message"}
    assert {loss.chunk for loss in report.losses} <= messages
    assert imported(out).usage() == session.usage()


# ------------------------------------------------------------------ files


def test_the_wire_agrees_with_the_public_library() -> None:
    packed = protobuf(traced(conversation("genai")))
    assert to_protobuf(from_protobuf(packed)) == ExportTraceServiceRequest.FromString(packed).SerializeToString(
        deterministic=True
    )


def test_every_form_of_a_file_is_found_by_its_content() -> None:
    spans = traced(conversation("genai"))
    plain, packed = document(spans), protobuf(spans)
    framed = b"".join(len(one).to_bytes(4, "big") + one for one in (packed, packed))
    forms = {
        "json": json.dumps(plain).encode(), "indented": json.dumps(plain, indent=2).encode(), "proto": packed,
        "lines": b"\n".join(json.dumps(plain).encode() for _ in range(2)), "frames": framed,
    }  # fmt: skip
    for form, data in forms.items():
        (found,) = read(data, f"spans.{form}")
        assert (found.format.name, found.native_id) == ("otlp", "c-7"), form
        assert len(imported(found.obj).messages()) == 7
    one = format_of(plain)
    assert one is not None
    assert one.name == "otlp"
    assert otlp.loads(b"# a page of Markdown\n") is None


def test_conversations_become_sessions() -> None:
    alone = {"name": "execute_tool t", "attributes": {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "t"}}
    spans = traced([*conversation("genai"), alone, {"name": "GET /", "attributes": {}}, *conversation("openinference")])
    found = dict(documents(format_named("otlp"), document(spans)))
    assert set(found) == {"c-7", f"{spans[5].context.trace_id:032x}", None} if spans[5].context else False
    assert len(imported(found["c-7"]).usage().__class__.__name__) > 0
    assert len([chunk for chunk in imported(found["c-7"]) if chunk.kind == "inference"]) == 6


def test_the_same_file_twice_changes_nothing(tmp_path: Path) -> None:
    store = rb.open_store("memory:")
    data = json.dumps(document(traced(conversation("genai")))).encode()
    first, second = (import_document(store, next(iter(read(data, "spans.json")))) for _ in range(2))
    assert (first.session, first.status, second.status, second.chunks) == ("otlp/c-7", "new", "unchanged", 0)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"traceId": "xyz"}, "traceId"), ({"spanId": None}, "spans[0]"), ({"startTimeUnixNano": "soon"}, "startTimeUnixNano"),
        ({"name": 5}, "name"), ({"attributes": {"a": 1}}, "attributes"), ({"attributes": [{"key": 1}]}, "attributes[0].key"),
        ({"attributes": [{"key": "a", "value": {"intValue": "x"}}]}, "spans[0]"), ({"events": [3]}, "events"),
    ],
)  # fmt: skip
def test_damage_is_named_by_its_path(change: dict[str, Any], path: str) -> None:
    obj = document(traced([{"name": "x", "attributes": {}}]))
    obj["resourceSpans"][0]["scopeSpans"][0]["spans"][0] |= change
    with pytest.raises(DecodeError) as caught:
        otlp.decode(obj)
    assert caught.value.path.startswith("resourceSpans[0].scopeSpans[0].spans[0]")
    assert path in caught.value.path


def test_parents_that_go_round_in_a_circle_are_read() -> None:
    obj = document(traced([{"name": "a", "attributes": {}, "children": [{"name": "b", "attributes": {}}]}]))
    first, second = obj["resourceSpans"][0]["scopeSpans"][0]["spans"]
    second["parentSpanId"] = first["spanId"]
    assert len(imported(obj)) == 3


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A file with a few bytes changed, cut or put in."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out))
        kind = rng.randrange(4)
        if kind == 0:
            out[at] = rng.randrange(256)
        elif kind == 1:
            del out[at : at + rng.randint(1, 30)]
        elif kind == 2:
            out[at:at] = rng.choice([b"null", b"[]", b"{}", b"-1", b'"x"', b"1e999", b"\\ud800", b"\x80\x80"])
        elif len(out) > 40:
            del out[at:]
        out = out or bytearray(b"{")
    return bytes(out)


ODD: list[Any] = [
    None,
    0,
    -1,
    2**70,
    1.5,
    "",
    "x",
    "\ud800",
    [],
    {},
    [[]],
    {"a": {}},
    True,
    "1e999",
    '{"a":[',
    '[{"role":1}]',
    "9" * 30,
]


def misshapen(obj: Any, rng: random.Random) -> Any:
    """A document with a few of its values, of any depth, changed for others."""
    obj = json.loads(json.dumps(obj))
    places: list[tuple[Any, Any]] = []
    stack = [obj]
    while stack:
        one = stack.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ()
        places += [(one, key) for key in keys]
        stack += [one[key] for key in keys]
    for _ in range(rng.randint(1, 3)):
        holder, key = rng.choice(places)
        holder[key] = rng.choice(ODD)
    return obj


@pytest.mark.parametrize("seed", range(4))
def test_misshapen_documents_raise_only_our_errors(seed: int) -> None:
    rng = random.Random(seed)
    given = document(traced(conversation("genai" if seed % 2 else "openinference")))
    for _ in range(60):
        try:
            session = imported(misshapen(given, rng))
        except RathError:
            continue
        session.messages()
        otlp.encode(session)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_files_raise_only_our_errors(seed: int) -> None:
    rng = random.Random(seed)
    spans = traced(conversation("genai" if seed % 2 else "openinference"))
    files = [json.dumps(document(spans)).encode(), protobuf(spans)]
    for number in range(100):
        try:
            for one in read(mutated(files[number % 2], rng), "spans.json"):
                imported(one.obj) if one.format.name == "otlp" else None
        except RathError:
            continue


def test_usage_that_is_no_number_is_left_out() -> None:
    call = {"name": "chat", "attributes": {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": "many"}}
    body = cast(Inference, next(chunk for chunk in imported(document(traced([call]))) if chunk.kind == "inference").body)
    assert body.usage is None
