"""Third parties enter by the same door: an entry point, found without knowing its name."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import rath_bridge as rb
from rath_bridge import plugins
from rath_bridge.errors import DecodeError, MissingExtraError, UnknownFormatError
from rath_bridge.session import Session
from rath_bridge.testing import AdapterContract, Sample

THIRD_PARTY = Path(__file__).parent / "thirdparty"


@pytest.fixture(scope="module", autouse=True)
def installed() -> Iterator[None]:
    """Put the third party's files and its metadata where Python looks for installed packages."""
    sys.path.insert(0, str(THIRD_PARTY))
    importlib.invalidate_caches()
    plugins._discover.cache_clear()
    yield
    sys.path.remove(str(THIRD_PARTY))
    plugins._discover.cache_clear()


@pytest.fixture
def paper() -> ModuleType:
    return importlib.import_module("rath_paper")


class TestPaper(AdapterContract):
    @pytest.fixture
    def adapter(self) -> plugins.Adapter:
        return plugins.adapter("paper")

    @pytest.fixture
    def samples(self, paper: ModuleType) -> list[Sample]:
        texts = (
            ["me: hello", "you: hi", "me: yes", "you: ok", "me: yes"],
            [],
            ["ann: odd \u2028 \ud800 \0", "rules: ", "x: : :", "me: " + "long " * 300],
        )
        return [Sample(paper.Sheet(lines)) for lines in texts] + [Sample(paper.Sheet(["me: x"]), "messages")]

    @pytest.fixture
    def continued(self, paper: ModuleType) -> Callable[[Session], Session]:
        def go_on(session: Session) -> Session:
            sheet, _ = rb.encode(session, "paper")
            return session.append(*rb.decode(paper.Sheet([f"you: no, after {len(sheet.lines)} lines"])))

        return go_on


def test_it_is_found_beside_our_own_and_a_broken_one_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    plugins._discover.cache_clear()
    with caplog.at_level(logging.WARNING, "rath_bridge"):
        assert "paper" in plugins.adapters()
    assert "torn" in plugins.broken_adapters()
    assert "the paper is torn" in plugins.broken_adapters()["torn"]
    assert "the paper is torn" in caplog.text


def test_one_that_lacks_what_an_adapter_has_is_reported_too() -> None:
    assert "empty" not in plugins.adapters()
    assert "lacks name, extra, SUPPORTED, recognises" in plugins.broken_adapters()["empty"]


def test_a_value_finds_its_adapter(paper: ModuleType) -> None:
    session = rb.open_store("memory:").create("s").append(*rb.decode(paper.Sheet(["me: hello", "you: hi"])))
    assert [(m.role, m.text) for m in session.messages()] == [("user", "hello"), ("assistant", "hi")]
    sheet, report = rb.encode(session.append(rb.message("user", "more")), "paper")
    assert sheet.lines == ["me: hello", "you: hi", "me: more"]
    assert report.exact
    assert str(report) == "nothing lost; 3 items handed over"


def test_names_may_be_written_with_a_hyphen() -> None:
    assert plugins.adapter("paper") is plugins.adapter("Paper".lower())
    for name in ("no-such", "no_such"):
        with pytest.raises(UnknownFormatError, match="paper"):
            plugins.adapter(name)


def test_what_nobody_recognises_is_named() -> None:
    with pytest.raises(UnknownFormatError, match=r"builtins\.object") as caught:
        rb.decode(object())
    assert "paper" in caught.value.known


def test_a_damaged_value_names_its_path(paper: ModuleType) -> None:
    with pytest.raises(DecodeError, match=r"lines\[1\]"):
        rb.decode(paper.Sheet(["me: fine", "broken"]))


def test_a_missing_framework_names_the_line_that_installs_it() -> None:
    with pytest.raises(MissingExtraError, match=r'pip install "rath-bridge\[mcp\]"'):
        plugins.require("no_such_framework", "recording MCP", "mcp")
    assert plugins.require("json", "anything", "mcp").dumps([]) == "[]"
