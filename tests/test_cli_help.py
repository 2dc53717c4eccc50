"""``--help`` of every command, adapters' included: each argument and option goes by one name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from rath_bridge.cli.app import app
from tests.cli_store import run


def commands(at: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, at
    if hasattr(at, "list_commands"):
        context = typer.Context(at)
        for name in at.list_commands(context):
            yield from commands(at.get_command(context, name), (*path, name))


COMMANDS = dict(commands(typer.main.get_command(app)))


def test_all_commands_are_here() -> None:
    assert {("replay",), ("claim", "add"), ("mcp", "record"), ("merge",)} <= COMMANDS.keys()


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_names_each_thing_once_and_alike(path: tuple[str, ...]) -> None:
    done = run(*path, "--help")
    assert done.exit_code == 0
    text, command = done.stdout, COMMANDS[path]
    assert not re.search(r"<|>|list\[|\bstr\b|INTEGER", text), text
    usage = text.partition("\n\n")[0]
    for one in command.params:
        if one.param_type_name == "argument":
            assert one.metavar, one.name
            assert re.search(rf"(?m)^  {re.escape(one.metavar)}(  |$)", text)
            assert one.metavar in " ".join(usage.split())
        elif not one.is_flag:
            assert one.metavar, one.name
            assert re.search(rf"(?m)^  .*{re.escape(one.opts[-1])} {re.escape(one.metavar)}(  |$)", text)
    assert "--help" in text
