"""Exceptions as values: what is kept of one gives it back, and nothing is imported or run for that."""

from __future__ import annotations

import sys
from http import HTTPStatus
from types import ModuleType
from typing import Any

import pytest

from rath_bridge.replay import Divergence, ReplayDivergenceError
from rath_bridge.verbs.raised import described, made_again, stand_in

RAN: list[str] = []


class BankDown(Exception):
    def __init__(self, code: int, words: str, *, more: Any = None) -> None:
        RAN.append("init")
        super().__init__(words)
        self.code, self.more = code, more


class Odd(Exception):
    def __new__(cls, *args: Any) -> Odd:
        RAN.append("new")
        return super().__new__(cls, *args)

    def __str__(self) -> str:
        return f"odd: {self.reason}"  # type: ignore[attr-defined]


class Wire(ConnectionError):
    class Cut(Exception):
        pass


class NotUsed(OSError):
    def __init__(self, code: int, words: str) -> None:
        super().__init__(code, words)


class Loud(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


def test_the_class_its_arguments_and_its_plain_attributes() -> None:
    facts = described(BankDown(503, "bank is down", more={"status": HTTPStatus.BAD_GATEWAY, "seen": [1.5, None, True]}))
    RAN.clear()
    error: Any = made_again(facts).error
    assert (type(error), str(error), error.args, error.code) == (BankDown, "bank is down", ("bank is down",), 503)
    assert error.more == {"status": 502, "seen": [1.5, None, True]}
    assert RAN == [], "no code of the class was run"


def test_what_is_no_plain_data_is_named() -> None:
    again = made_again(described(BankDown(1, "x", more=object())))
    assert again.lacking == ("more",)
    assert not hasattr(again.error, "more")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a", 2), KeyError("k"), OSError(2, "gone"), FileNotFoundError(2, "gone", "x"), Wire("cut"), Wire(104, "reset"),
        Wire.Cut(1), ModuleNotFoundError("no x", name="x"), SyntaxError("bad"), NotUsed(104, "reset"),
    ],
    ids=repr,
)  # fmt: skip
def test_builtin_and_nested_classes(error: Exception) -> None:
    found: Any = made_again(described(error)).error
    assert (type(found), found.args, str(found)) == (type(error), error.args, str(error))
    for name in ("errno", "filename", "name", "lineno"):
        assert getattr(found, name, None) == getattr(error, name, None)


def test_the_chain() -> None:
    try:
        try:
            raise KeyError("a") from BankDown(7, "deep")
        except KeyError as error:
            raise ValueError("b") from error
    except ValueError as error:
        found: Any = made_again(described(error)).error
    assert isinstance(found.__cause__, KeyError)
    deep: Any = found.__cause__.__cause__
    assert (type(deep), deep.code) == (BankDown, 7)
    loop = ValueError("loop")
    loop.__cause__ = loop
    assert "cause" not in described(loop)


def test_what_cannot_be_given_back() -> None:
    class Local(Exception):
        pass

    unset = described(Odd("x"))
    ended = ReplayDivergenceError(Divergence("a", "b", "c"))
    for facts in (
        described(Local("x")), unset, described(KeyboardInterrupt()), described(ended), described(ExceptionGroup("g", [ValueError()])),
        described(Loud()), None, {}, {"module": "os", "name": "system", "args": ["true"]}, {"module": "builtins", "name": "SystemExit"},
        {"module": "builtins", "name": "object"}, {"module": 1, "name": []}, {"module": "builtins", "name": "ValueError.__class__"},
    ):  # fmt: skip
        assert made_again(facts).error is None, facts
    shown = stand_in(described(Local("x")), RuntimeError)
    assert (type(shown).__name__, str(shown), repr(shown), isinstance(shown, RuntimeError)) == ("Local", "x", "Local('x')", True)


def test_nothing_is_imported_or_run(monkeypatch: pytest.MonkeyPatch) -> None:
    lazy = ModuleType("lazy_module")

    def load(name: str) -> Any:
        RAN.append(name)
        return BankDown

    lazy.__dict__["__getattr__"] = load
    monkeypatch.setitem(sys.modules, "lazy_module", lazy)
    monkeypatch.setitem(sys.modules, "odd_module", 17)  # type: ignore[arg-type]
    for module in ("lazy_module", "odd_module", "sched", "there.is.none"):
        monkeypatch.delitem(sys.modules, "sched", raising=False)
        assert made_again({"module": module, "name": "BankDown", "args": []}).error is None
        assert "sched" not in sys.modules
    assert RAN == []


def test_attributes_of_a_record_change_nothing_but_the_exception() -> None:
    attributes = {"__class__": "y", "__dict__": 1, "code": 2, "args": "no"}
    facts = {"module": __name__, "name": "BankDown", "args": ["x"], "attributes": attributes, "members": {"errno": 1}}
    error: Any = made_again(facts).error
    assert (type(error), error.args, error.code) == (BankDown, ("x",), 2)


def test_describing_never_raises() -> None:
    assert described(Loud())["name"] == "Loud"
    long = BankDown(1, "x", more="x" * 30_000)
    assert described(long)["lacking"] == ["more"]
    deep: Any = []
    for _ in range(2000):
        deep = [deep]
    assert described(BankDown(1, "x", more=deep))["lacking"] == ["more"]
