"""What guardrails tell beside their decision (``output_info``), which no span holds."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

from agents import InputGuardrail

from rath_bridge.model.kinds import Guardrail
from rath_openai_agents.faults import guard
from rath_openai_agents.items import plain
from rath_openai_agents.place import locate


def telling(guardrail: Any, decide: Callable[..., Any] | None = None) -> Any:
    """Return a guardrail whose decisions are put on record with what it tells; the guardrail itself is left as it is.

    Args:
        guardrail: ``InputGuardrail`` or ``OutputGuardrail``.
        decide: What decides in its place.
    """
    again = copy.copy(guardrail)
    again.name = guardrail.get_name()
    inner: Callable[..., Any] = decide or guardrail.guardrail_function

    async def told(*arguments: Any) -> Any:
        found = inner(*arguments)
        found = await found if inspect.isawaitable(found) else found
        with guard(None, "what a guardrail told"):
            _note(again, found, arguments)
        return found

    again.guardrail_function = told
    told.tells = True  # type: ignore[attr-defined]
    return again


def tells(guardrail: Any) -> bool:
    """Tell whether a guardrail was made by `telling`."""
    return bool(getattr(guardrail.guardrail_function, "tells", False))


def _note(guardrail: Any, found: Any, arguments: tuple[Any, ...]) -> None:
    place = locate(None, None)
    if place is None:
        return
    info = plain(found.output_info)
    if place.node is not None and place.node.kind == "guardrail":
        place.node.info = info  # its span's end writes it
        return
    body = Guardrail(
        name=guardrail.name, stage="input" if isinstance(guardrail, InputGuardrail) else "output", triggered=found.tripwire_triggered,
        output=info, agent=getattr(arguments[1], "name", None) if len(arguments) > 1 else None,
    )  # fmt: skip
    place.emit(body, span=place.span())


__all__ = ["telling", "tells"]
