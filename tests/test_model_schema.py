"""The published JSON Schemas: current, valid themselves, and true of everything that is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rath_bridge.model import kinds, schema
from rath_bridge.model.chunk import Draft, draft, render_envelope
from rath_bridge.testing import strategies

FOLDER = Path(__file__).parents[1] / "docs/format/schema"
ENVELOPE = jsonschema.Draft202012Validator(schema.envelope_schema())


def test_the_committed_files_are_current() -> None:
    written = {path.name: json.loads(path.read_text("utf-8")) for path in FOLDER.glob("*.json")}
    assert written == schema.schemas(), "run: python -m rath_bridge.model.schema docs/format/schema"


@pytest.mark.parametrize("name", schema.schemas())
def test_each_is_a_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema.schemas()[name])


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_every_body_that_can_be_written_is_valid(kind: str) -> None:
    validator = jsonschema.Draft202012Validator(schema.body_schema(kind))

    @given(strategies.bodies_of(kinds.KINDS[kind]), st.none() | strategies.natives())
    def check(body: kinds.Body, native: Any) -> None:
        found = orjson.loads(draft(body, native=native).body)
        problems = [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(found)]
        assert not problems

    check()


@given(strategies.drafts(), st.lists(strategies.digests(), max_size=2))
def test_every_envelope_that_can_be_written_is_valid(item: Draft, parents: list[str]) -> None:
    ENVELOPE.validate(orjson.loads(render_envelope(item, parents)))


def test_fields_are_explained_and_marked() -> None:
    properties = schema.body_schema("message")["properties"]
    assert properties["replaces"]["description"] == "Digest of the message chunk that this one edits."
    assert properties["id"]["x-rath-generated"] is True
    assert properties["attributes"]["x-rath-volatile"] is True
    for kind, cls in kinds.KINDS.items():
        found = schema.body_schema(kind)["properties"]
        assert {name for name, field in found.items() if "x-rath-generated" in field} == kinds.marked(cls, "generated")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("message", {"parts": []}), ("message", {"role": 1}), ("message", {"role": "user", "parts": [{"content": "x"}]}),
        ("message", {"role": "user", "parts": [{"type": "text"}]}), ("message", {"role": "u", "parts": [{"type": "text", "content": 1}]}),
        ("inference", {"usage": {"input_tokens": "many"}}), ("gap", {"count": 1.5, "reason": ""}),
        ("checkpoint", {"state": {"$rath": "x"}}),
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_wrong_is_refused(kind: str, body: dict[str, Any]) -> None:
    validator = jsonschema.Draft202012Validator(schema.body_schema(kind))
    assert list(validator.iter_errors({"nonce": "0" * 32, **body}))


def test_fields_of_later_versions_are_allowed() -> None:
    validator = jsonschema.Draft202012Validator(schema.body_schema("note"))
    validator.validate({"nonce": "0" * 32, "text": "x", "later": 1})
