"""``docs/cli.md``, written from the verbs themselves: ``python -m rath_bridge.cli.manual > docs/cli.md``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import Enum
from importlib import metadata
from typing import Any

import typer

from rath_bridge.cli.app import app
from rath_bridge.cli.offered import offered_command, offered_names
from rath_bridge.plugins import GROUP


def manual() -> str:
    """Return the manual of all verbs in Markdown, those of the adapters that come with the core included; others differ by machine."""
    root: Any = typer.main.get_command(app)
    parts = ["# rath-bridge", "", inspect.cleandoc(root.help), "", "These stand before or after any verb:", ""]
    shared = [parameter for parameter in root.params if parameter.name in ("store", "no_color")]
    parts += [*_table(shared), ""]
    ours = metadata.distribution("rath-bridge").entry_points.select(group=GROUP).names
    added = {name: offered_command(name) for name in sorted(ours & set(offered_names()))}
    for name, command in {**root.commands, **added}.items():
        for word, one in [(f"{name} {below}", c) for below, c in getattr(command, "commands", {}).items()] or [(name, command)]:
            parts += [*_verb(word, one), ""]
    written = "*This page is written by `python -m rath_bridge.cli.manual`; a test compares it.*"
    return "\n".join([*parts, written, ""])


def _verb(name: str, command: Any) -> Iterator[str]:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name not in ("store", "no_color")]
    usage = " ".join(["rath-bridge", name, *(["[OPTIONS]"] if options else []), *(_word(p) for p in arguments)])
    yield f"## {name}"
    yield ""
    yield f"    {usage}"
    yield ""
    yield inspect.cleandoc(command.help)
    yield ""
    yield from _table([*arguments, *options])


def _table(parameters: list[Any]) -> Iterator[str]:
    if parameters:
        yield "| | |"
        yield "|---|---|"
    for parameter in parameters:
        if parameter.param_type_name == "argument":
            word = _word(parameter)
        else:
            value = "" if parameter.is_flag else f" {parameter.metavar or _choices(parameter)}"
            word = f"{', '.join(parameter.opts)}{value}"
        yield f"| `{word}` | {(parameter.help or '').replace('|', chr(92) + '|')} |"


def _word(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _choices(parameter: Any) -> str:
    default = parameter.default
    if not isinstance(default, Enum):
        return str(parameter.name).upper()
    return "|".join(str(choice.value) for choice in type(default))


if __name__ == "__main__":
    print(manual(), end="")  # noqa: T201 - the page goes to stdout
