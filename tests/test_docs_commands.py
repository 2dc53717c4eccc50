"""Every ``rath-bridge`` command that a page shows is one that there is, with options that there are."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from rath_bridge.cli.app import app
from tests.cli_store import run

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    {ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("**/*.md"), *(ROOT / "examples").glob("*.py")}
)
LINE = re.compile(r"^(?:\$ |export \w+=\S+ )?(?:\S*/)?rath-bridge (?P<words>.*)$")
INLINE = re.compile(r"`(?:\S*/)?rath-bridge (?P<words>[^`]+)`", re.DOTALL)


def commands(text: str) -> Iterator[tuple[str, bool]]:
    """The words after ``rath-bridge``, and whether they stand on a line of their own: such a line is complete."""
    for line in text.splitlines():
        found = LINE.match(line.strip())
        if found is not None:
            yield found["words"], True
    for found in INLINE.finditer(text):
        yield " ".join(found["words"].split()), False


def words(text: str) -> list[str]:
    """As a shell takes them; what is behind a # is a remark."""
    return shlex.split(text.replace("‘", "'"), comments=True)


def parse(command: Any, name: str, rest: list[str], parent: Any = None) -> None:
    """Let every parser on the way look at its part; nothing is run."""
    context = command.make_context(name, rest, parent=parent)
    if hasattr(command, "resolve_command"):
        found, below, left = command.resolve_command(context, [*context._protected_args, *context.args])
        parse(below, found, left, context)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_are_understood(page: Path) -> None:
    root = typer.main.get_command(app)
    for text, whole in commands(page.read_text()):
        if "|" in text or "…" in text or "[OPTIONS]" in text:  # lists of verbs, and usage lines
            continue
        try:
            parse(root, "rath-bridge", words(text))
        except Exception as error:
            if whole or type(error).__name__ not in ("MissingParameter", "NoArgsIsHelpError"):
                raise AssertionError(f"{page.name}: rath-bridge {text}: {error}") from error


@pytest.mark.parametrize("text", ["frobnicate x", "fork ticket try --nope", "fsck --head", "claim drop x y"])
def test_a_command_that_there_is_not_would_be_noticed(text: str) -> None:
    with pytest.raises(Exception, match=r"(?i)no such|requires"):
        parse(typer.main.get_command(app), "rath-bridge", words(text))


def test_the_list_of_verbs_is_whole_and_usage_lines_are_as_in_the_manual() -> None:
    shown = run("--help").stdout
    assert "..." not in shown.partition("Commands:")[2]
    manual = (ROOT / "docs" / "cli.md").read_text()
    for name in ("ls", "replay", "redact", "claim add"):
        first = run(*name.split(), "--help").stdout.splitlines()[0]
        assert f"    {first.removeprefix('Usage: ')}\n" in manual
