"""Where this package meets LangGraph: what is supported, and an error in words where it is missing or too old."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from rath_bridge.errors import UnsupportedError
from rath_bridge.plugins import require

SUPPORTED: Final[Mapping[str, str]] = {"langgraph": ">=1.2.5", "langgraph-checkpoint": ">=4.1", "langchain-core": ">=1.4.7"}


def room(name: str, feature: str) -> Any:
    """Import a module of this package that needs LangGraph.

    Args:
        name: Of the module.
        feature: What needs it, for errors.

    Raises:
        MissingExtraError: LangGraph is not installed.
        UnsupportedError: What is installed is too old, or too new.
    """
    require("langgraph.checkpoint.base", feature, "langgraph")
    try:
        return import_module(f"rath_langgraph.{name}")
    except ImportError as error:
        if not (error.name or "").startswith(("langgraph", "langchain_core")):
            raise
        found = ", ".join(f"{package} {_installed(package)}" for package in SUPPORTED)
        wanted = ", ".join(f"{package}{spec}" for package, spec in SUPPORTED.items())
        raise UnsupportedError(
            f'{feature} cannot be loaded beside {found} ({error}): it needs {wanted}, pip install -U "rath-bridge[langgraph]"'
        ) from error


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(none)"
