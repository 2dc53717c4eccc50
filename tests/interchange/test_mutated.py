"""Files as nobody should write them: whatever is cut, flipped, swapped or mistyped, only our own errors come out.

The number of files is `MUTATIONS` of the environment: 10 000 in the long run (`.ci/run`), a few hundred otherwise.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

import rath_bridge as rb
from rath_bridge.errors import DecodeError, RathError, UnknownFormatError
from rath_bridge.interchange.importing import import_document
from rath_bridge.interchange.reading import read
from rath_bridge.model.parts import GenericPart
from tests.interchange.test_agent_logs import CLAUDE, CODEX
from tests.interchange.test_atif import FULL
from tests.interchange.test_openai_messages import REQUEST, TALK
from tests.interchange.test_responses_markdown import ITEMS, RESPONSE

MUTATIONS = int(os.environ.get("MUTATIONS") or ("10000" if os.environ.get("RATH_CI") else "300"))
HEADER = {
    "record_type": "header", "schema_version": 1, "id": "31ae1aa9-4f38-45fe-8003-f347847de0b1", "created_at": "2026-11-29T16:00:40+00:00",
    "parent_session_ids": [], "lineage_operator": "x", "lineage_kind": "op_fork", "lineage_extras": [], "sandbox_backend": "local",
    "sandbox_spec": {"working_dir": "x"}, "sandbox_handle_id": None,
}  # fmt: skip
RECORDS = [
    HEADER,
    {"record_type": "chunk", "index": 0, "kind": "user", "payload": {"content": "hi"}},
    {"record_type": "chunk", "index": 1, "kind": "assistant", "payload": {"content": None, "tool_calls": TALK[2]["tool_calls"]}},
    {
        "record_type": "chunk",
        "index": 2,
        "kind": "tool_result",
        "payload": {"tool_call_id": "c1", "name": "weather", "content": "x"},
    },
    {"record_type": "trailer", "closed_at": None, "final_chunk_count": 3, "cumulative_usage": {"prompt_tokens": 1}},
]
ODD: list[Any] = [
    None, True, -1, 2**70, 1e400, "", "\ud800", "9" * 5000, [], {}, [[]], [None], {"type": 5}, {"$rath": "int"}, "2026-99-99T00:00:00Z",
    {"role": "tool"}, "0001-01-01T00:00:00+23:59",
]  # fmt: skip


def lines(values: list[Any]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in values)


SAMPLES = [
    *(json.dumps(one).encode() for one in (FULL, TALK, REQUEST, ITEMS, RESPONSE)), lines(RECORDS), lines([REQUEST, REQUEST]),
    lines(CLAUDE), lines(CODEX),
]  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container with a key or an index in it."""
    stack = [value]
    while stack:
        item = stack.pop()
        inner = list(item.items()) if isinstance(item, dict) else list(enumerate(item)) if isinstance(item, list) else []
        for key, below in inner:
            yield item, key
            stack.append(below)


def mutated(chance: random.Random) -> bytes:
    data = chance.choice(SAMPLES)
    if chance.random() < 0.4:  # the bytes
        for _ in range(chance.choice((1, 1, 3, 20))):
            at = chance.randrange(len(data))
            what = chance.randrange(4)
            piece = bytes([chance.randrange(256)]) if what == 0 else b"" if what == 1 else data[at : at + 40]
            data = data[: chance.randrange(len(data)) if what == 3 else at] + piece + data[at + 1 :]
        return data
    whole = data[:1] == b"[" or b"\n" not in data
    rows = [json.loads(data)] if whole else [json.loads(row) for row in data.splitlines()]
    for _ in range(chance.choice((1, 1, 2, 5))):  # the values
        container, key = chance.choice(list(places(rows)))
        act = chance.randrange(4)
        if act == 0:
            del container[key]
        elif act == 1 and isinstance(container, list):
            container.append(deepcopy(container[key]))
        else:
            container[key] = deepcopy(chance.choice(ODD))  # its own: one that is changed later would come to hold itself
        if not rows:
            return b""
    return json.dumps(rows[0]).encode() if whole else lines(rows)


@pytest.mark.parametrize("part", range(4))
def test_only_our_errors_come_out_and_name_the_file(part: int) -> None:
    chance = random.Random(part)
    store = rb.open_store("memory:")
    read_whole, told = 0, list[tuple[bytes, RathError]]()
    for _ in range(MUTATIONS // 4):
        data = mutated(chance)
        try:
            for document in read(data, "file.json"):
                done = import_document(store, document)
                session = store.session(done.session)
                session.messages()
                document.format.dumps(document.format.encode(session)[0])
                read_whole += 1
        except RathError as error:
            told.append((data, error))
    placed = [(data, error) for data, error in told if isinstance(error, DecodeError)]
    assert min(read_whole, len(placed)) > MUTATIONS // 40
    for data, error in placed:
        file, _, line = error.place.rpartition(":")
        assert file == "file.json", error
        assert 1 <= int(line) <= data.count(b"\n") + 1, error
        assert error.path or "JSON" in error.problem, error
    for _, error in told:
        assert isinstance(error, DecodeError | UnknownFormatError)
        assert "file.json" in str(error)
    assert list(store.fsck()) == []


def test_what_is_nested_without_end_is_refused() -> None:
    for data in (b"[" * 100_000, b'{"a":' * 100_000, b'[{"role":"user","content":' + b"[" * 5_000 + b"]" * 5_000 + b"}]"):
        with pytest.raises(RathError, match=r"file\.json"):
            list(read(data, "file.json"))


def test_a_part_whose_type_is_a_long_text_is_clean() -> None:
    """Found by the mutations: fsck took the blob of the type for a part without one."""
    part = GenericPart("9" * 5000, {})
    session = rb.open_store("memory:").create("s").append(rb.message("user", [part]))
    assert session.fsck() == []
    assert session.messages()[0].parts == (part,)


def test_a_foreign_part_under_one_of_our_names_is_kept() -> None:
    """Found by the mutations: a ``file`` without an id could be read and not written."""
    odd = {"type": "file", "file": {"path": "/x"}}
    (document,) = read(json.dumps([{"role": "user", "content": [odd]}]).encode(), "talk.json")
    store = rb.open_store("memory:")
    session = store.session(import_document(store, document).session)
    assert session.messages()[0].parts == (GenericPart("foreign", {"value": odd}),)
    assert document.format.encode(session)[0] == document.obj
