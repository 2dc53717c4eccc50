"""Every Python block of the README and of docs/ runs, top to bottom, page by page, in an empty directory."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
READER = Sybil(parsers=[PythonCodeBlockParser(), SkipParser()])


@pytest.fixture
def tidy() -> Iterator[None]:
    """Close what a page leaves open as a script would by ending: ``Runner.run_sync`` keeps an event loop for the thread."""
    yield
    loop = getattr(getattr(asyncio.get_event_loop_policy(), "_local", None), "_loop", None)
    if loop is not None and not loop.is_running():
        loop.close()
        asyncio.set_event_loop(None)
    gc.collect()


@pytest.mark.usefixtures("tidy")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for example in READER.parse(page).examples():
        example.evaluate()
