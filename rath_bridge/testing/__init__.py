"""Shipped tests: prove an adapter or a store of your own.

``AdapterContract`` and ``StoreContract`` are pytest classes to subclass; ``strategies`` holds the Hypothesis strategies they
use, ``NaiveModel`` the plain Python model that the state machine is compared with. Nothing of the rest of the package imports
this one, and only here are pytest and Hypothesis needed::

    from rath_bridge.testing import StoreContract

    class TestMyStore(StoreContract):
        @pytest.fixture
        def backend(self, tmp_path):
            return MyBackend(tmp_path)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from rath_bridge.errors import RathError

if TYPE_CHECKING:
    from rath_bridge.testing import strategies as strategies
    from rath_bridge.testing.adapter import AdapterContract as AdapterContract
    from rath_bridge.testing.adapter import Sample as Sample
    from rath_bridge.testing.equal import same as same
    from rath_bridge.testing.naive import NaiveModel as NaiveModel
    from rath_bridge.testing.store import StoreContract as StoreContract

_PUBLIC: Final = {
    "AdapterContract": "adapter", "Sample": "adapter", "StoreContract": "store", "NaiveModel": "naive", "same": "equal",
}  # fmt: skip

__all__ = ["AdapterContract", "MissingTestToolError", "NaiveModel", "Sample", "StoreContract", "same", "strategies"]


class MissingTestToolError(RathError, ImportError):
    """pytest or Hypothesis is not installed; the core does not need them."""

    def __init__(self, tool: str) -> None:
        self.tool = tool
        super().__init__(f"rath_bridge.testing needs {tool}, which is not installed: pip install pytest hypothesis")


def __getattr__(name: str) -> Any:
    if name != "strategies" and name not in _PUBLIC:
        raise AttributeError(f"module 'rath_bridge.testing' has no attribute {name!r}")
    place = f"rath_bridge.testing.{_PUBLIC.get(name, name)}"
    try:
        if name.endswith("Contract"):  # a failing contract shows its values, as tests of one's own do
            import_module("pytest").register_assert_rewrite(place)
        module = import_module(place)
    except ModuleNotFoundError as error:
        if error.name in ("pytest", "hypothesis"):
            raise MissingTestToolError(error.name) from error
        raise
    value = module if name == "strategies" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC, "strategies"])
