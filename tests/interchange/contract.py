"""A format under the contract that adapters have: laws 1, 2, 8 and 12 hold for files as well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rath_bridge.errors import UnsupportedError
from rath_bridge.interchange import Format, format_named
from rath_bridge.model.chunk import Draft
from rath_bridge.model.report import LossReport
from rath_bridge.session import Session


class AsAdapter:
    """A format in an adapter's clothes."""

    def __init__(self, name: str) -> None:
        self.format: Format = format_named(name)
        self.name = self.format.name
        self.extra = ""
        self.SUPPORTED: dict[str, str] = {}

    def recognises(self, obj: Any, /) -> bool:
        return self.format.recognises(obj)

    def decode(self, obj: Any, /) -> Sequence[Draft]:
        return self.format.decode(obj)

    def encode(self, session: Session, /, as_: str = "document") -> tuple[Any, LossReport]:
        if as_ != "document":
            raise UnsupportedError(f"a format has no form {as_!r}")
        return self.format.encode(session)
