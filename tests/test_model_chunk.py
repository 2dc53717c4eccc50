"""Chunks: every kind and part comes back, envelopes are read and written exactly, what is unknown is kept."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rath_bridge as rb
from rath_bridge.errors import DecodeError, EncodeError, ErasedError
from rath_bridge.model import chunk, kinds, parts
from rath_bridge.model.chunk import (
    Chunk,
    Draft,
    Native,
    SpanContext,
    draft,
    draft_of,
    format_time,
    parse_envelope,
    parse_time,
    render_envelope,
)
from rath_bridge.model.digests import digest
from rath_bridge.model.encoding import TreeRef, encoded
from rath_bridge.testing import same, strategies

PARENTS = st.lists(strategies.digests(), max_size=2, unique=True)


def read(item: Draft, parents: Any = ()) -> Chunk:
    return parse_envelope(
        render_envelope(item, parents), item.body, load=lambda names: {name: item.objects[name] for name in names}
    )


@pytest.mark.parametrize("kind", kinds.KINDS.values(), ids=kinds.KINDS)
def test_every_kind_comes_back(kind: type[kinds.Body]) -> None:
    @given(strategies.bodies_of(kind))
    def check(body: kinds.Body) -> None:
        chunk = read(draft(body))
        assert type(chunk.body) is kind
        assert same(chunk.body, body)

    check()


@given(strategies.parts())
def test_every_part_comes_back(part: parts.Part) -> None:
    found = parts.part_from_json(parts.part_to_json(part))
    assert type(found) is type(part)
    assert same(found, part)
    assert same(parts.part_to_json(found), parts.part_to_json(part))


def test_the_two_spellings_of_a_response_are_read() -> None:
    expected = parts.ToolCallResponsePart("1", {"a": 1})
    assert parts.part_from_json({"type": "tool_call_response", "id": "1", "result": {"a": 1}}) == expected
    assert parts.part_from_json({"type": "tool_call_response", "id": "1", "response": {"a": 1}}) == expected


@pytest.mark.parametrize(
    "value", [None, 1, [], {}, {"type": 1}, {"type": "text"}, {"type": "tool_call", "id": "1"}, {"type": "uri", "uri": ""}]
)
def test_a_malformed_part_is_named(value: Any) -> None:
    with pytest.raises(DecodeError, match=r"body\.parts\[0\]"):
        kinds.body_of("message", {"role": "user", "parts": [value]})


@given(strategies.bodies())
def test_equal_bodies_with_equal_nonces_are_equal_bytes(body: kinds.Body) -> None:
    assert draft(body, nonce="00" * 16).body == draft(body, nonce="00" * 16).body
    assert draft(body).body != draft(body).body


def test_an_absent_base_is_read_back() -> None:
    body = kinds.Merge(strategy="summary", base=None, ours="a" * 64, theirs="b" * 64)
    assert read(draft(body)).body == body


@given(strategies.drafts(), PARENTS)
def test_an_envelope_is_read_and_written_exactly(item: Draft, parents_: list[str]) -> None:
    data = render_envelope(item, parents_)
    chunk = parse_envelope(data, item.body)
    assert chunk.envelope == data
    assert chunk.id == digest(data)
    assert chunk.raw is None
    assert (chunk.kind, chunk.parents, chunk.run, chunk.span, chunk.at) == (
        item.kind,
        tuple(parents_),
        item.run,
        item.span,
        item.at,
    )
    assert (chunk.size, chunk.body_digest) == (len(item.body), digest(item.body))
    assert orjson.dumps(orjson.loads(data), option=orjson.OPT_SORT_KEYS) == data
    erased = parse_envelope(data, None)
    assert (erased.envelope, erased.body_digest) == (data, chunk.body_digest)
    with pytest.raises(ErasedError):
        _ = erased.body


@given(st.integers(-60_000_000_000_000_000, 250_000_000_000_000_000))
def test_times_are_exact(at: int) -> None:
    text = format_time(at)
    assert len(text) == 27
    assert parse_time(text) == at


def test_what_a_later_version_adds_is_kept_byte_for_byte() -> None:
    item = draft(kinds.Note(text="x"), span=SpanContext("1" * 32, "2" * 16), run="r")
    plain = orjson.loads(render_envelope(item, ()))
    for later in (
        {**plain, "later": {"x": 1}},
        {**plain, "span": {**plain["span"], "flags": 1}},
        {**plain, "kind": "later.kind"},
        {**plain, "origin": {"z": [1], "a": "b"}},
    ):
        for data in (
            orjson.dumps(later, option=orjson.OPT_SORT_KEYS),
            orjson.dumps(later),
            orjson.dumps(later, option=orjson.OPT_INDENT_2),
        ):
            chunk = parse_envelope(data, item.body)
            assert chunk.envelope == data
            assert chunk.id == digest(data)
            assert chunk.run == "r"
            assert chunk.span == item.span


def test_an_unknown_kind_and_unknown_fields_are_kept_and_shown() -> None:
    body = kinds.Unknown(name="later", fields={"a": 1, "b": {"$rath": 2}, "long": "x" * 600})
    assert read(draft(body)).body == body
    found = kinds.body_of("note", {"text": "x", "later": 1})
    assert found == kinds.Note(text="x")
    item = draft(kinds.Note(text="x"))
    later = orjson.dumps({**orjson.loads(item.body), "later": 1}, option=orjson.OPT_SORT_KEYS)
    chunk = read(item._replace(body=later, body_digest=digest(later)))
    assert chunk.body_bytes == later
    assert chunk.values == {"text": "x", "later": 1}


def test_a_body_that_is_not_the_envelopes_does_not_hide() -> None:
    item = draft(kinds.Note(text="x"))
    data = render_envelope(item, ())
    chunk = parse_envelope(data, item.body.replace(b'"x"', b'"y"'))
    assert chunk.envelope == data
    assert chunk.id == digest(chunk.envelope)
    assert chunk.body_digest != item.body_digest


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "Not A Kind"}, {"kind": 1}, {"kind": None}, {"body": "x"}, {"body": 1}, {"at": "yesterday"}, {"at": 5}, {"size": "x"},
        {"size": None}, {"size": -1}, {"size": True}, {"parents": ["x"]}, {"parents": 5}, {"parents": "0" * 64}, {"run": 5},
        {"run": ["x"]}, {"span": 5}, {"span": {"trace_id": "x"}}, {"span": {"trace_id": 1, "span_id": 2}}, {"origin": 5},
        {"span": {"trace_id": "a", "span_id": "b", "parent_id": 5}},
    ],
    ids=repr,
)  # fmt: skip
def test_a_damaged_envelope_is_refused_by_name(change: dict[str, Any]) -> None:
    item = draft(kinds.Note(text="x"), run="r")
    found = {**orjson.loads(render_envelope(item, ())), **change}
    for body in (item.body, None):
        with pytest.raises(DecodeError, match="line 7"):
            parse_envelope(orjson.dumps(found), body, place="line 7")


@pytest.mark.parametrize("data", [b"", b"[]", b"5", b"{", b"{}", b"\xff"])
def test_bytes_that_are_no_envelope_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_envelope(data, None)


@given(st.data())
def test_any_body_bytes_are_read_or_refused(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(kinds.KINDS)))
    names = ["text", "parts", "usage", "role", "name", "phase", "input", "files", "state"]
    values = data.draw(st.dictionaries(st.sampled_from(names), strategies.json_values(6)))
    with suppress(DecodeError):
        kinds.body_of(kind, values)


@pytest.mark.parametrize(
    "fields",
    [
        {"run": "\ud800"}, {"origin": {"adapter": "\ud800"}}, {"origin": {"adapter": 2**70}}, {"span": SpanContext('a"b', "c")},
        {"span": SpanContext("a", "b", "\n")}, {"at": 10**18}, {"at": -(10**18)},
    ],
    ids=repr,
)  # fmt: skip
def test_what_no_envelope_can_hold_is_refused_before_it_is_appended(fields: dict[str, Any]) -> None:
    with pytest.raises(EncodeError):
        draft(kinds.Note(text="x"), **fields)


def test_reserved_keys_and_bad_kinds_are_refused() -> None:
    for fields in ({"nonce": 1}, {"native": 1}, {1: 2}, {"$rath": 1}):
        with pytest.raises(EncodeError):
            draft(kinds.Unknown(name="later", fields=fields))  # pyright: ignore[reportArgumentType]
    for name in ("", "Later", "1x", "a b", "x" * 65):
        with pytest.raises(EncodeError):
            draft(kinds.Unknown(name=name, fields={}))


def test_native_bytes_go_home_exactly() -> None:
    session = rb.open_store("memory:").create("s")
    native = Native("made", "1.0", "json", b'{"b": 1, "a":  2}\xff')
    chunk = session.append(draft(kinds.Note(text="x"), native=native))[-1]
    assert chunk.native == native
    assert chunk.references == {digest(native.data)}
    assert "native" not in chunk.values
    assert session[0].native is None


def test_a_loss_of_text_is_not_possible_through_extra_keys() -> None:
    part = parts.TextPart("x", {"signature": "s", "content_type": "y"})
    assert parts.part_from_json(parts.part_to_json(part)) == part


def test_usage_adds_up_field_by_field() -> None:
    one, two = kinds.Usage(input_tokens=1, cost_usd=0.5), kinds.Usage(input_tokens=2, output_tokens=3)
    assert one + two == kinds.Usage(input_tokens=3, output_tokens=3, cost_usd=0.5)
    assert (one + two).total_tokens == 6
    assert kinds.Usage() + kinds.Usage() == kinds.Usage()


def test_a_body_with_references_a_native_record_and_what_was_encoded_before_is_the_same_bytes() -> None:
    tools = [{"name": "pay", "parameters": {"$ref": "x", "default": None}}]
    native = Native("f", "1", "json", b"{}")

    def made(tools: Any, *, plain: bool) -> Draft:
        values = {"input": TreeRef("0" * 64, 3), "request": {"tools": tools}}
        return draft_of("inference", values, at=1, nonce="0" * 32, native=native, plain=plain)

    assert made(encoded(tools), plain=True) == made(tools, plain=False)


def test_a_native_record_whose_version_is_a_text_of_its_own_type_is_kept() -> None:
    class Version(str):
        __slots__ = ()

    def made(version: str) -> bytes:
        return draft(kinds.Note(text="x"), native=Native("f", version, "json", b"{}"), nonce="0" * 32).body

    assert made(Version("1.0")) == made("1.0")


def test_a_chunk_of_another_kind_is_shown_whatever_it_calls_parts() -> None:
    for odd in (["a", 1, None], [["x"]], [{"type": None}], {"a": 1}, "text"):
        assert repr(read(draft(kinds.Unknown(name="vendor.thing", fields={"parts": odd, "role": 5})))).startswith("Chunk(")


def test_an_empty_parent_span_is_refused_whatever_the_other_ids_are() -> None:
    for span_id in ("0" * 16, "0" * 31, "0" * 32):
        with pytest.raises(EncodeError):
            draft(kinds.Note(text="x"), span=SpanContext("0" * 32, span_id, ""))


def test_a_body_with_references_and_a_native_record_is_not_encoded_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk, "escape", lambda *_: pytest.fail("the slow way"))
    values = {"input": TreeRef("0" * 64, 3), "request": {"tools": encoded([{"$ref": None}])}}
    assert draft_of("inference", values, native=Native("f", "1", "json", b"{}"), plain=True).body
