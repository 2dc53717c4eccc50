"""Exceptions, written down and raised again: a replay fails where the run failed, with an error that says and shows the same."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, cast

from rath_bridge.errors import RathError
from rath_langgraph.neutral import plain

_LIMIT = 2000


class RecordedError(RathError, RuntimeError):
    """What was asked for failed when it was recorded, with these words, and its own class is not imported here."""


def described(error: BaseException) -> dict[str, Any]:
    """What is kept of an exception, beside its words."""
    kind = type(error)
    return {"module": kind.__module__, "name": kind.__qualname__, "repr": repr(error)[:_LIMIT], "text": str(error)[:_LIMIT],
            "args": plain(error.args)}  # fmt: skip


def raised_again(words: str, facts: Any) -> Exception:
    """Return an exception to raise: of the same class where that is imported and can be made again, else one that reads the same.

    Args:
        words: ``Type: message``.
        facts: From `described`, where they were kept.
    """
    known: Mapping[str, Any] = cast("Mapping[str, Any]", facts) if isinstance(facts, Mapping) else {}
    name, _, text = words.partition(": ")
    name, text = str(known.get("name") or name), str(known.get("text", text))
    cls: Any = sys.modules.get(str(known.get("module")))
    for part in name.split("."):
        cls = getattr(cls, part, None)
    if isinstance(cls, type) and issubclass(cls, Exception):
        try:
            made = cls(*known.get("args", ()))
            if str(made) == text:
                return made
        except Exception:  # noqa: BLE001 - a class that wants other arguments
            pass
    shown = str(known.get("repr") or f"{name}({text!r})")

    def represent(_: object) -> str:
        return shown

    return type(name.rpartition(".")[2] or "RecordedError", (RecordedError,), {"__repr__": represent})(text)
