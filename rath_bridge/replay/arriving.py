"""Frameworks that are imported while a replay runs: they must answer from the record from their first call on."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from typing import Any


class _Finder:
    """Watches for the top-level modules of frameworks (source: ``importlib.abc.MetaPathFinder``)."""

    def __init__(self, wanted: Mapping[str, Callable[[], None]]) -> None:
        self._wanted = dict(wanted)
        self._looking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if self._looking or name not in self._wanted:
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking = False
        if spec is None or spec.loader is None:
            return None
        arrived, loader = self._wanted.pop(name), spec.loader
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            arrived()

        loader.exec_module = exec_module
        return spec


@contextmanager
def arriving(wanted: Mapping[str, Callable[[], None]]) -> Generator[None]:
    """Call a function once a module has been imported for the first time, as long as the block runs.

    Args:
        wanted: Name of a top-level module to what is called when it stands.
    """
    finder = _Finder({name: call for name, call in wanted.items() if name not in sys.modules})
    sys.meta_path.insert(0, finder)  # pyright: ignore[reportArgumentType]
    try:
        yield
    finally:
        sys.meta_path.remove(finder)  # pyright: ignore[reportArgumentType]
