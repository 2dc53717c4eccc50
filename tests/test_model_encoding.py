"""The encoding keeps every value exactly, and the same value is always the same bytes."""

from __future__ import annotations

import json
from collections import OrderedDict
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rath_bridge.errors import DecodeError, EncodeError
from rath_bridge.model.digests import digest
from rath_bridge.model.encoding import MAX_DEPTH, BlobRef, Encoded, TreeRef, decode, encode, encoded, references, small, spliced
from rath_bridge.testing import same, strategies


def again(value: Any) -> Any:
    data, blobs = encode(value)
    return decode(data, lambda names: {name: blobs[name] for name in names})


@given(strategies.values())
def test_any_value_survives(value: Any) -> None:
    assert same(again(value), value)


@given(strategies.values())
@example({"a": float("nan")})
@example({"a": {"$rath": "int", "v": "0x1"}})
@example([2**53, -(2**53)])
@example({"a": None, "b": "null", "c": b"x"})
@example({"a": "x" * 399})
@example({"a": "x" * 300, "b": ["y" * 300]})
@example({"a": "x" * 511, "b": "\u00e9" * 255, "c": "z" * 512})
@example({"a": "x" * 300, "b": '"' * 512})
@example({"a": "x" * 300, "b": "\u00e9" * 256})
@example([[[[{"v": ("\ud800", 1, True, 0.1)}]]]])
def test_what_is_encoded_in_one_step_is_the_same_bytes(value: Any) -> None:
    data = small(value)
    assert data is None or (data, {}) == encode(value)


def test_most_small_values_take_one_step() -> None:
    assert small({"b": [1, -0.5, "é", True], "a": {}}) == b'{"a":{},"b":[1,-0.5,"\xc3\xa9",true]}'
    assert small({"a": "x" * 511, "b": "\u00e9" * 255}) is not None
    wide: Any = 0
    for _ in range(190):
        wide = [wide]
    assert small(wide) == encode(wide)[0]


@given(strategies.values(), strategies.values())
@example({"$ref": "#/$defs/x", "default": None}, {"a": None})
@example({"$rath": 1}, 1)
@example({"a": "x" * 600}, 1)
@example({"a": "x" * 200, "b": "y" * 300}, "z" * 500)
def test_what_was_encoded_before_is_the_same_bytes(often: Any, rest: Any) -> None:
    ref = TreeRef("0" * 64, 3)
    plain = {"in": ref, "a": often, "b": {"c": often, "d": rest}, "e": BlobRef("1" * 64, 3, "$null")}
    held = encoded(often)
    again = {"in": ref, "a": held, "b": {"c": held, "d": rest}, "e": BlobRef("1" * 64, 3, "$null")}
    assert encode(again) == encode(plain)
    for value in (again, {"in": ref, "a": held, "b": rest}):
        one_step = small(value, plain=True)
        assert one_step is None or (one_step, {}) == encode(value)


def test_a_body_with_references_and_what_was_encoded_before_takes_one_step() -> None:
    tools = encoded([{"name": "pay", "parameters": {"$ref": "#/$defs/x", "default": None, "about": "x" * 500}}])
    assert type(tools) is Encoded
    value = {"input": TreeRef("0" * 64, 3), "request": {"tools": tools}, "output": ["y" * 200]}
    assert small(value, plain=True) == encode(value)[0]
    assert spliced({**value, "native": "x"}) == encode({**value, "native": "x"})[0]
    assert small({"request": {"tools": tools}, "user": "$"}, plain=True) is None
    assert small({"request": {"tools": tools}, "nan": float("nan")}, plain=True) is None


def test_nothing_is_nested_too_deep_by_what_was_encoded_before() -> None:
    deep: Any = 0
    for _ in range(MAX_DEPTH - 2):
        deep = [deep]
    assert encoded(deep) is deep


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 1


class Word(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "odd",
    [
        Colour.RED,
        Level.HIGH,
        Word("x"),
        UUID(int=1),
        datetime(2026, 1, 1, tzinfo=UTC),
        OrderedDict(a=1),
        {1: 2},
        b"x",
        {Word("x"): 1},
    ],
    ids=repr,
)
def test_what_only_looks_like_json_takes_no_short_way(odd: Any) -> None:
    assert small({"v": [odd]}) is None


@pytest.mark.parametrize("text", [*strategies.ODD_TEXTS, "x" * 511, "x" * 512, "\ud800" * 300, "é" * 256], ids=repr)
def test_any_text_survives(text: str) -> None:
    assert again({"v": text}) == {"v": text}
    assert again({text: 1}) == {text: 1}


def test_any_int_survives() -> None:
    for number in (*strategies.ODD_INTS, 0, -1, 2**100_000):
        assert again([number]) == [number]


@pytest.mark.parametrize(
    "number", [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 5e-324, 1.7976931348623157e308, 0.1, 1e22, 1.0]
)
def test_any_float_survives(number: float) -> None:
    assert same(again([number]), [number])


def test_one_and_true_and_one_point_nought_stay_what_they_are() -> None:
    assert same(again([1, True, 1.0]), [1, True, 1.0])


def test_keys_of_any_kind() -> None:
    value = {1: "a", (1, ("b", b"c")): 2, None: 3, b"\xff": 4, "$rath": 5, "\ud800": 6, 2**80: 7, "x": 8}
    assert same(again(value), value)


def test_an_object_that_looks_like_an_escape_stays_an_object() -> None:
    for value in ({"$rath": "int", "v": "0x1"}, {"$rath": "blob", "digest": "0" * 64, "size": 1}, [{"$rath": {"$rath": 1}}]):
        assert same(again(value), value)


def test_references_are_found_wherever_they_stand() -> None:
    long, tree = "long " * 200, TreeRef(digest(b"t"), 3)
    data, blobs = encode({"a": [long, {1: tree}], ("k", 2): {"$rath": BlobRef(digest(b"b"), 1)}, "key" * 300: 1})
    assert set(references(orjson.loads(data))) == {*blobs, tree.digest, digest(b"b")}
    assert set(references(orjson.loads(data), loadable=True)) == set(blobs)


@given(strategies.values(), st.randoms(use_true_random=False))
def test_the_order_of_a_dict_does_not_matter(value: Any, random: Any) -> None:
    def shuffled(item: Any) -> Any:
        if isinstance(item, dict):
            pairs = [(key, shuffled(inner)) for key, inner in item.items()]
            random.shuffle(pairs)
            return dict(pairs)
        return [shuffled(inner) for inner in item] if isinstance(item, list) else item

    assert encode(shuffled(value)) == encode(value)


def test_the_bytes_are_json_with_sorted_keys_in_utf8() -> None:
    data, _ = encode({"b": 1, "a": {"z": "é\u2028", "\uffff": 1, "\U00010000": 2}})
    assert data == '{"a":{"z":"é\u2028","\uffff":1,"\U00010000":2},"b":1}'.encode()
    assert json.loads(data)["b"] == 1


def test_other_mappings_and_tuples_are_maps_and_lists() -> None:
    assert again(OrderedDict(b=(1, 2), a=1)) == {"b": [1, 2], "a": 1}


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize("odd", [object(), {1, 2}, datetime(2026, 1, 1, tzinfo=UTC), Decimal(1), Text("x"), bytearray(b"x"), 1j])
def test_what_cannot_be_kept_is_named_with_its_path(odd: object) -> None:
    with pytest.raises(EncodeError) as caught:
        encode({"arguments": {"x": [0, 1, 2, odd]}})
    assert caught.value.path == "body.arguments.x[3]"
    assert "body.arguments.x[3]" in str(caught.value)
    assert type(odd).__name__ in str(caught.value)


def test_a_path_through_an_odd_key_is_named_too() -> None:
    with pytest.raises(EncodeError, match=r"body\.a\[7\]\.b\[0\]"):
        encode({"a": {7: {"b": [object()]}}})
    with pytest.raises(EncodeError, match=r"keys\(\)"):
        encode({"a": {frozenset(): 1}})


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: {"k": v}, lambda v: {1: v}])
def test_deep_values_are_kept_or_refused_never_something_else(wrap: Any) -> None:
    kept = refused = 0
    for depth in (1, 30, 60, 66, 67, 68, MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, MAX_DEPTH + 2, 260, 2000):
        value: Any = "leaf"
        for _ in range(depth):
            value = wrap(value)
        try:
            data, _ = encode(value)
        except EncodeError as error:
            assert "deeper" in str(error)  # noqa: PT017
            refused += 1
        else:
            found = decode(data)
            for _ in range(depth):
                found = next(iter(found.values())) if isinstance(found, dict) else found[0]
            assert found == "leaf"
            kept += 1
    assert kept >= 3
    assert refused >= 2


def test_nested_odd_maps_cost_no_more_than_their_size() -> None:
    value: Any = 0
    for _ in range(50):
        value = {"x": value, 1: 0}
    assert same(again(value), value)


_json = st.recursive(
    st.none()
    | st.integers(-5, 5)
    | st.sampled_from(["int", "float", "map", "text", "surrogates", "bytes", "blob", "tree", "0x1", "nan", "AA=="]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["$rath", "v", "digest", "size", "count", "x"]), inner)
    ),
    max_leaves=8,
)


@given(_json)
@example({"$rath": ["map"], "v": 1})
@example({"$rath": "text", "digest": [1], "size": 2})
@example({"$rath": "map", "v": [[{"a": 1}, 2]]})
def test_foreign_bytes_are_read_or_refused_by_name(value: Any) -> None:
    for load in (None, lambda names: dict.fromkeys(names, b"x")):
        with suppress(DecodeError):
            decode(orjson.dumps(value), load)


def test_bytes_that_are_no_json_are_refused() -> None:
    for data in (b"", b"{", b"\xff", b'"\\ud800"'):
        with pytest.raises(DecodeError, match="not JSON"):
            decode(data)
    deep = b'{"a":{"$rath":"int","v":"0x1"},"b":' + b"[" * 900 + b"]" * 900 + b"}"
    with pytest.raises(DecodeError):
        decode(deep)


def test_an_escape_of_a_later_version_is_shown_as_it_is() -> None:
    later = {"$rath": "decimal", "v": "1.10", "digest": digest(b"x")}
    assert decode(orjson.dumps({"a": later})) == {"a": later}
    assert list(references({"a": later})) == [digest(b"x")]


def test_without_a_loader_long_texts_stay_references() -> None:
    data, blobs = encode({"a": "x" * 600})
    assert decode(data) == {"a": BlobRef(next(iter(blobs)), 600)}
