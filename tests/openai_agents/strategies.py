"""Hypothesis strategies for input items: every type that the SDK's own union has, built from its type hints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as AbstractSequence
from typing import Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints, is_typeddict

from hypothesis import strategies as st
from openai.types.responses.response_input_item_param import ResponseInputItemParam

from rath_bridge.testing.strategies import json_values

PAIRS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "shell_call": "shell_call_output",
    "local_shell_call": "local_shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
}

TEXTS = st.one_of(st.text(max_size=12), st.sampled_from(["", "\0", "\u2028", "\U0001f600", "yes", "x" * 600, "é" * 300]))


def value(hint: Any) -> st.SearchStrategy[Any]:
    """A JSON value of a type hint."""
    if is_typeddict(hint):
        return typed(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Required, NotRequired):
        return value(arguments[0])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is Union:
        return st.one_of(*map(value, arguments))
    if hint is str:
        return TEXTS
    if hint is int:
        return st.integers(-(2**70), 2**70)
    if hint is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    if hint is bool:
        return st.booleans()
    if hint is type(None):
        return st.none()
    if origin is not None and (origin is dict or issubclass(origin, Mapping)):
        return st.dictionaries(st.text(max_size=6), value(arguments[1]), max_size=2)
    if (origin is not None and issubclass(origin, Iterable | AbstractSequence)) or getattr(
        origin, "__name__", ""
    ) == "SequenceNotStr":
        return st.lists(value(arguments[0]), max_size=2)
    return json_values(4)


def typed(hint: Any) -> st.SearchStrategy[dict[str, Any]]:
    """A dict of a TypedDict: what it requires, and some of the rest."""
    hints = get_type_hints(hint, include_extras=True)
    # with postponed annotations, __required_keys__ does not know `Required`
    required = {
        name for name, h in hints.items() if get_origin(h) is Required or (hint.__total__ and get_origin(h) is not NotRequired)
    }
    needed = {name: st.deferred(lambda h=h: value(h)) for name, h in hints.items() if name in required}
    others = {name: st.deferred(lambda h=h: value(h)) for name, h in hints.items() if name not in required}
    return st.fixed_dictionaries(needed, optional=others)


ITEM_TYPES = get_args(ResponseInputItemParam)


def items() -> st.SearchStrategy[list[dict[str, Any]]]:
    """Lists in which every call has its answer, as the SDK keeps them; ids are unique."""
    return st.lists(st.one_of(*map(typed, ITEM_TYPES)), min_size=1, max_size=6).map(paired)


def paired(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give each call an id and an answer; leave out answers that stand alone."""
    rows: list[dict[str, Any]] = []
    answers = {answer["type"]: answer for answer in found if answer.get("type") in PAIRS.values()}
    for number, item in enumerate(found):
        kind = item.get("type", "message")
        if kind in PAIRS.values():
            continue
        if kind not in PAIRS:
            rows.append(item)
            continue
        call_id = f"call_{number}"
        answer = dict(answers.get(PAIRS[kind], {"type": PAIRS[kind], "output": "ok"}))
        answer["id" if kind == "local_shell_call" else "call_id"] = call_id
        rows += [{**item, "call_id": call_id}, answer]
    return rows or [{"role": "user", "content": "hi"}]
