"""Verbs that adapters offer: an optional member ``commands()`` returns a `typer.Typer`, mounted under the adapter's name."""

from __future__ import annotations

from typing import Any

import typer

from rath_bridge.plugins import Adapter, adapters


def has_commands(adapter: Adapter) -> bool:
    """Tell whether an adapter offers verbs of its own."""
    return callable(getattr(adapter, "commands", None))


def offered_names() -> list[str]:
    """Return the names of the adapters that offer verbs."""
    return [name for name, one in adapters().items() if has_commands(one)]


def offered_command(name: str) -> Any:
    """Return the command group of an adapter, None where there is none."""
    adapter: Any = adapters().get(name.replace("-", "_"))
    if adapter is None or not has_commands(adapter):
        return None
    group = typer.main.get_group(adapter.commands())
    group.name = name
    return group
