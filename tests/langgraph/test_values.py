"""Values are lossless or loud, and safe to load."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import re
import subprocess
import sys
import types
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Interrupt, Overwrite, Send
from pydantic import BaseModel, PrivateAttr

import rath_bridge as rb
from rath_bridge.errors import EncodeError, UnsupportedError
from rath_langgraph import RathSaver, RathSerializer
from tests.langgraph.graphs import thread


class Colour(enum.Enum):
    RED = "red"
    PAIR = (1, 2)


class Level(enum.IntFlag):
    LOW = 1
    HIGH = 2


class Point(NamedTuple):
    x: int
    y: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
    name: str
    steps: tuple[str, ...] = ()
    colour: Colour = Colour.RED
    cache: dict[Any, Any] = field(default_factory=dict, compare=False)


class Inner(BaseModel):
    n: int = 0


class Special(Inner):
    extra_field: str = "kept"


class Outer(BaseModel):
    inner: Inner
    point: Point = Point(1)
    tags: set[tuple[int, int]] = set()
    _hidden: int = PrivateAttr(default=0)


class Words(list[str]):
    pass


class Odd(Exception):
    def __init__(self, code: int, *, why: str) -> None:
        super().__init__(code)
        self.why = why


VALUES: list[Any] = [
    (1, (2, [3, (4,)])), [(1, 2), "x"], {"a": (1,)}, {1: "int", (2, 3): "tuple", None: "none", 1.5: "float", b"b": "bytes"},
    Counter("hello"), defaultdict(list, {"a": [1]}), OrderedDict([("b", 1), ("a", 2)]), {(1, 2), (3, 4)}, frozenset({(1,)}),
    deque([1, 2], maxlen=3), 2**70, -(2**200), "half \ud800 surrogate", {"k\udfff": ["\ud800"]}, "nul \x00", Colour.RED, Colour.PAIR,
    Level.LOW | Level.HIGH, {Colour.RED: 1}, Point(1, (2, 3)), Plan("a", ("b",), cache={(1,): {2}}), Words(["a"]),
    Outer(inner=Special(n=3), tags={(1, 2)}), Inner.model_construct(n="not an int"),
    dt.datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Paris")), dt.timedelta(days=1), decimal.Decimal("1.10"), uuid.uuid4(),
    AIMessage("x", tool_calls=[{"name": "f", "args": {"a": [1]}, "id": "c"}]), ToolMessage("z", tool_call_id="1", artifact=(1, {(2,)})),
    HumanMessage([{"type": "text", "text": "x"}], extra_thing=(1, 2)), Document("page", metadata={"t": (1,)}),
    Send("node", {"t": (1, 2)}), Command(goto="x", update={"a": (1,)}), Interrupt(value=(1,), id="i"), Overwrite((1, 2)), b"bytes",
    None, True, float("inf"), [], {}, bytearray(b"x"), [b"x", bytearray(b"\xc4"), {"k": bytearray()}], {1: bytearray(b"1")},
    Path("a") / "half \udc80", re.compile("half \ud800", re.IGNORECASE), re.compile(b"bytes"),
]  # fmt: skip


def exact(a: Any, b: Any) -> bool:
    """Equal, of the same types all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(map(repr, a)) == list(map(repr, b)) and all(exact(x, y) for x, y in zip(a.values(), b.values(), strict=True))
    if isinstance(a, (list, tuple, deque)):
        return len(a) == len(b) and all(map(exact, a, b))
    if isinstance(a, BaseModel):
        return exact(a.__dict__, b.__dict__) and exact(a.__pydantic_private__, b.__pydantic_private__)
    return bool(a == b)


@pytest.mark.parametrize("value", VALUES, ids=lambda v: type(v).__name__)
def test_values_come_back_as_they_were(value: Any) -> None:
    # langchain-ai/langgraph/issues/6718, 8184, 8388: changed in silence
    serde = RathSerializer()
    for wrapped in (value, [value], {"deep": [value, {"er": value}]}):
        back = serde.loads_typed(serde.dumps_typed(wrapped))
        assert exact(wrapped, back), (wrapped, back)


def test_what_equality_does_not_show() -> None:
    serde = RathSerializer()
    outer = Outer(inner=Special(), tags={(1, 2)})
    outer._hidden = 7
    back = serde.loads_typed(serde.dumps_typed(outer))
    assert (back._hidden, type(back.inner), back.model_fields_set) == (7, Special, {"inner", "tags"})
    assert serde.loads_typed(serde.dumps_typed(deque([1], 3))).maxlen == 3
    assert serde.loads_typed(serde.dumps_typed(defaultdict(int)))["x"] == 0
    odd = serde.loads_typed(serde.dumps_typed(Odd(3, why="so")))
    assert (type(odd), odd.args, odd.why) == (Odd, (3,), "so")
    hash(serde.loads_typed(serde.dumps_typed(Plan("x"))))


_text = st.text(st.characters(exclude_categories=()), max_size=8)
_plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False) | st.binary(max_size=8)
    | _text,
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple)
    | st.dictionaries(_text | st.integers() | st.tuples(st.integers()), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(_plain)
def test_anything_made_of_builtins_comes_back(value: Any) -> None:
    serde = RathSerializer()
    assert exact(value, serde.loads_typed(serde.dumps_typed(value)))


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, {"b": lambda: 0}]}, "['a'][1]['b']"), ([1, (2, object())], "[1][1]"), (Plan("x", cache={"fn": print}), ".cache['fn']"),
        (Inner.model_construct(n=range(3)), ".n"), (complex(1, 2), "the value"), (defaultdict(lambda: 0), "the value"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_named(value: Any, path: str) -> None:
    # langchain-ai/langgraph/issues/8606, 5054: "Type is not msgpack serializable", and no word of where
    with pytest.raises(EncodeError) as caught:
        RathSerializer().dumps_typed(value)
    assert caught.value.path == path


def test_put_names_the_place_in_the_state(store_url: str) -> None:
    class State(TypedDict):
        made: Annotated[list[Any], lambda a, b: a + b]

    graph = StateGraph(State)
    graph.add_node("work", lambda state: {"made": [{"name": "x" * 100}, {"handle": print}]})
    graph.add_edge(START, "work")
    with rb.open_store(store_url) as store:
        app: Any = graph.compile(checkpointer=RathSaver(store))
        with pytest.raises(EncodeError, match=r"builtin_function_or_method at a write to 'made'\[1\]\['handle'\]"):
            app.invoke({"made": []}, thread())
        assert app.get_state(thread()).values == {"made": []}


def test_loading_never_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    # CVE-2026-28277: whatever the stored bytes name is imported and called
    module = types.ModuleType("not_there_tomorrow")
    monkeypatch.setitem(sys.modules, "not_there_tomorrow", module)
    exec(
        "from dataclasses import dataclass\n@dataclass\nclass Thing:\n    n: int = 1\ndef run(x): raise SystemExit\n",
        module.__dict__,
    )
    monkeypatch.setitem(sys.modules, "not_there_tomorrow", module)
    serde = RathSerializer()
    kept = serde.dumps_typed({"it": module.Thing(2)})
    assert serde.loads_typed(kept)["it"] == module.Thing(2)
    monkeypatch.delitem(sys.modules, "not_there_tomorrow")
    with pytest.raises(UnsupportedError, match="add 'import not_there_tomorrow', or RathSaver"):
        RathSerializer().loads_typed(kept)
    assert RathSerializer(allow=[module.Thing]).loads_typed(kept)["it"].n == 2
    assert "not_there_tomorrow" not in sys.modules


def test_functions_in_stored_bytes_are_not_called() -> None:
    import ormsgpack

    for code in (0, 1, 2, 3, 5):
        evil = ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(["os", "system", "echo", "x"])))
        with pytest.raises(UnsupportedError):
            RathSerializer().loads_typed(("msgpack", evil))
    with pytest.raises(UnsupportedError, match="pickle"):
        RathSerializer().loads_typed(("pickle", b"cos\nsystem\n(S'echo'\ntR."))


def test_what_langgraphs_serializer_wrote_is_read() -> None:
    old = JsonPlusSerializer()
    for value in (HumanMessage("x", id="1"), Plan("a"), Inner(n=2), uuid.uuid4(), {1, 2}, deque([1]), Send("a", 1), Colour.RED):
        assert RathSerializer().loads_typed(old.dumps_typed([value])) == old.loads_typed(old.dumps_typed([value]))
    message = AIMessage("x", id="1", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3})
    assert old.loads_typed(RathSerializer().dumps_typed([message])) == [message]  # and messages the other way round


def test_pydantic_and_dataclass_states_just_work(store_url: str) -> None:
    # langchain-ai/langgraph/issues/7695: an allowlist turns user models into dicts in silence
    class Local(BaseModel):
        items: list[tuple[int, Plan]] = []

    graph: Any = StateGraph(Outer)
    graph.add_node("work", lambda state: {"inner": Special(n=state.inner.n + 1), "point": Point(2, (3,))})
    graph.add_edge(START, "work")
    with rb.open_store(store_url) as store:
        app: Any = graph.compile(checkpointer=RathSaver(store))
        app.invoke(Outer(inner=Inner(n=1)), thread())
        values = chat_again(graph, store).get_state(thread()).values
        assert exact(values["inner"], Special(n=2))
        assert exact(values["point"], Point(2, (3,)))
        serde = RathSerializer()
        assert serde.loads_typed(serde.dumps_typed(Local(items=[(1, Plan("x"))]))).items == [(1, Plan("x"))]


def chat_again(graph: Any, store: Any) -> Any:
    return graph.compile(checkpointer=RathSaver(store))


GENERIC = """
import sys
from typing import Generic, TypedDict, TypeVar
import rath_bridge as rb
from langgraph.graph import START, StateGraph
from pydantic import BaseModel
from rath_langgraph import RathSaver
from tests.langgraph.graphs import thread
T = TypeVar("T")
class Box(BaseModel, Generic[T]):
    item: T
class State(TypedDict):
    box: Box[int]
    more: list[Box[list[str]]]
graph = StateGraph(State).add_node("work", lambda state: {"more": [Box[list[str]](item=["x"])]}).add_edge(START, "work")
with rb.open_store(sys.argv[1]) as store:
    app = graph.compile(checkpointer=RathSaver(store))
    if sys.argv[2] == "write":
        app.invoke({"box": Box[int](item=3)}, thread())
    else:
        found = app.get_state(thread()).values
        assert found == {"box": Box[int](item=3), "more": [Box[list[str]](item=["x"])]}, found
"""


def test_generic_models_are_read_by_another_process(sqlite_url: str) -> None:
    for what in ("write", "read"):
        subprocess.run([sys.executable, "-c", GENERIC, sqlite_url, what], check=True, timeout=60)
