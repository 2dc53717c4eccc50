"""A complaint about a file names the line: where a value begins, or where it should have been."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rath_bridge.errors import DecodeError
from rath_bridge.interchange.places import line_of
from rath_bridge.interchange.reading import read

TEXT = '{\n "a": [1,\n  {"b": "]}", "c": {\n   "d": 2}}\n ],\n "e": 3\n}\n'


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ([], 1), (["a"], 2), (["a", 0], 2), (["a", 1], 3), (["a", 1, "c"], 3), (["a", 1, "c", "d"], 4), (["e"], 6), (["x"], 1),
        (["a", 7], 2), (["a", 1, "x"], 3), (["e", "x"], 6), ([0], 1),
    ],
)  # fmt: skip
def test_the_line_of_a_path(path: list[str | int], line: int) -> None:
    assert line_of(TEXT, path) == line


VALUES = st.recursive(st.integers() | st.text(), lambda one: st.lists(one) | st.dictionaries(st.text(), one), max_leaves=12)


@given(VALUES, st.data())
def test_it_is_the_line_that_an_indented_text_has_it_on(value: object, data: st.DataObject) -> None:
    path: list[str | int] = []
    here = value
    while isinstance(here, list | dict) and here:
        step = data.draw(st.sampled_from(list(here) if isinstance(here, dict) else list(range(len(here)))))
        path.append(step)
        here = here[step]
    mark = "\u2020mark"
    marked = json.loads(json.dumps(value))
    if not path:
        return
    inner = marked
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = mark
    text = json.dumps(marked, indent=1)
    lines = [number for number, row in enumerate(text.split("\n"), 1) if json.dumps(mark) in row]
    assert line_of(text, path) in lines


def test_json_lines_and_documents_among_them() -> None:
    rows = [{"messages": [{"role": "user", "content": "hi"}]}, {"messages": [{"role": "user", "content": [5]}]}]
    data = b"\n".join([json.dumps(rows[0]).encode(), b"", json.dumps(rows[1]).encode(), b""])
    with pytest.raises(DecodeError) as caught:
        [one.decode() for one in read(data, "talks.jsonl")]
    assert (caught.value.place, caught.value.path) == ("talks.jsonl:3", "messages[0].content[0]")
