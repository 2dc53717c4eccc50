"""docs/adapters.md: the adapter that the page prints passes the contract that it must pass, found by the entry point that it prints."""

from __future__ import annotations

import importlib
import json
import logging
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import rath_bridge as rb
from rath_bridge import plugins
from rath_bridge.errors import MissingExtraError, UnsupportedError
from rath_bridge.interchange.formats import format_named
from rath_bridge.model.kinds import Message
from tests.cli_store import run

PAGE = (Path(__file__).parents[1] / "docs" / "adapters.md").read_text()


def printed() -> dict[str, Any]:
    """What the page's Python blocks define."""
    names: dict[str, Any] = {"__name__": "rath_lines"}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(block, names)
    return names


class TestPrintedAdapter(cast("type[Any]", printed()["TestLines"])):
    """The page's own test."""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put the page's adapter where Python looks for installed packages, with the entry point of the page."""
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    ((name, point),) = tomllib.loads(block)["project"]["entry-points"]["rath_bridge.adapters"].items()
    found = tmp_path / "rath_lines-1.dist-info"
    found.mkdir()
    (found / "METADATA").write_text("Metadata-Version: 2.1\nName: rath-lines\nVersion: 1\n")
    (found / "entry_points.txt").write_text(f"[rath_bridge.adapters]\n{name} = {point}\n")
    first = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    (tmp_path / "rath_lines.py").write_text(first)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    plugins._discover.cache_clear()
    yield found
    sys.modules.pop("rath_lines", None)
    plugins._discover.cache_clear()


def test_the_printed_entry_point_loads_the_printed_class(installed: Path) -> None:
    assert plugins.adapters()["lines"].name == "lines"
    session = rb.open_store("memory:").create("s").append(*rb.decode(["user: hello"]))
    assert rb.encode(session, "lines")[0] == ["user: hello"]


def test_a_class_in_a_module_is_told_how_to_be_named(installed: Path) -> None:
    (installed / "entry_points.txt").write_text("[rath_bridge.adapters]\nlines = rath_lines\n")
    plugins._discover.cache_clear()
    assert "lines" not in plugins.adapters()
    assert "an entry point names what has them, a module or module:object" in plugins.broken_adapters()["lines"]


@pytest.mark.usefixtures("installed")
def test_its_framework_is_not_an_extra_of_ours() -> None:
    assert 'pip install "lines"' in run("doctor").stdout
    assert "rath-bridge[lines]" not in run("doctor").stdout
    assert str(MissingExtraError("x", "rath-lines[framework]")).endswith('pip install "rath-lines[framework]"')
    assert str(MissingExtraError("x", "openai_agents")).endswith('pip install "rath-bridge[openai_agents]"')


@pytest.mark.usefixtures("installed")
def test_it_reads_and_writes_files_once_it_has_dumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sqlite_url: str) -> None:
    with pytest.raises(UnsupportedError, match="the adapter lines reads and writes no files: it has no dumps"):
        format_named("lines")
    monkeypatch.setattr(plugins.adapter("lines"), "dumps", lambda native: json.dumps(native).encode(), raising=False)
    with rb.open_store(sqlite_url) as store:
        store.create("chat").append(*rb.decode(["user: hello", "assistant: hi"]))
    file = tmp_path / "chat.json"
    run("export", "chat", "--out", str(file), "--to", "lines", store=sqlite_url)
    assert json.loads(file.read_bytes()) == ["user: hello", "assistant: hi"]
    run("import", str(file), "--from", "lines", "--as", "again", store=sqlite_url)
    with rb.open_store(sqlite_url) as store:
        assert rb.encode(store.session("again"), "lines")[0] == ["user: hello", "assistant: hi"]


def test_a_draft_is_not_emitted(caplog: pytest.LogCaptureFixture) -> None:
    store = rb.open_store("memory:")
    with caplog.at_level(logging.WARNING, "rath_bridge"), rb.record(store, "a") as recorder:
        assert recorder.emit(cast("Message", rb.message("user", "hello"))) is None
    assert "this takes a body of rath_bridge.model.kinds; a draft, as decode returns it, goes to Recorder.append" in caplog.text
    (gap,) = [chunk for chunk in store.session("a").chunks() if chunk.kind == "gap"]
    assert "Recorder.append" in str(gap.body)
